//! `src/hal/generated`: one trait an object, and the C shims that check, decode, call one trait method
//! and encode. `src/stream/api/generated`: the traits as the engine answers them.

mod engine;
mod plan;
mod shims;
mod traits;

use super::File;
use crate::model::Spec;
use anyhow::Result;
use plan::{Plan, Shape, associated};
pub use traits::has_default;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    let plans = spec
        .functions()
        .filter(|function| function.table.is_some())
        .map(|function| Plan::new(spec, function))
        .collect::<Result<Vec<_>>>()?;
    let mut files = engine::files(spec, &plans)?;
    files.extend([
        File::rust(
            "src/hal/generated/mod.rs",
            "Generated parts of the hal.",
            "pub mod shims;\npub mod traits;\n",
        )?,
        File::rust(
            "src/hal/generated/traits.rs",
            traits::TRAITS_DOC,
            &traits::traits(spec, &plans),
        )?,
        File::rust(
            "src/hal/generated/shims.rs",
            shims::SHIMS_DOC,
            &shims::shims(spec, &plans)?,
        )?,
    ]);
    Ok(files)
}

pub use engine::hooks;

/// A table function and the trait method that answers it, `(trait, method)`; none where the hal does.
pub struct Entry {
    pub function: String,
    pub method: Option<(String, String)>,
}

pub fn entries(spec: &Spec) -> Result<Vec<Entry>> {
    spec.functions()
        .filter(|function| function.table.is_some())
        .map(|function| {
            let plan = Plan::new(spec, function)?;
            let method = matches!(plan.kind, Shape::Method { .. })
                .then(|| (associated(&plan.object), plan.method.clone()));
            Ok(Entry {
                function: function.name.clone(),
                method,
            })
        })
        .collect()
}
