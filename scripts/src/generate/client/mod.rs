//! `conformance/src/generated`: the calls that the conformance program makes.
//!
//! `arguments.rs` lists a valid call of each function, and an invalid call for each declared condition.

mod arguments;
mod solve;

use super::File;
use crate::model::Spec;
use anyhow::Result;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    Ok(vec![
        File::rust("conformance/src/generated/mod.rs", MOD_DOC, MOD_BODY)?,
        arguments::file(spec)?,
    ])
}

const MOD_DOC: &str = "The specification as the conformance program needs it.";

const MOD_BODY: &str = "
pub mod arguments;
";
