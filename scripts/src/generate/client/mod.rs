//! `conformance/src/generated`: what the conformance program needs of the specification.
//! `arguments.rs` lists one valid call of each function, and one wrong call for each condition that
//! the specification declares.

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
