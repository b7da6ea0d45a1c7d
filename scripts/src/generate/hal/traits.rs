//! The traits with their default bodies, and the trait `Backend`, which names their implementations.

use super::plan::{Arg, Plan, Shape, associated};
use super::wrap;
use crate::generate::{info, rust};
use crate::model::{Handle, Spec};
use std::fmt::Write as _;

/// `Backend`.
pub(super) fn backend(handles: &[&Handle]) -> String {
    let mut types = String::new();
    for handle in handles {
        let name = associated(&handle.name);
        let _ = writeln!(
            types,
            "    /// {}\n    type {name}: {name}<Self>;",
            handle.desc
        );
    }
    format!(
        "/// A backend: its table, its adapter, and the types that stand behind its handles.
pub trait Backend: crate::hal::Exported + Sized + Send + Sync + 'static {{
{types}
    /// The adapter that `urAdapterGet` hands out, made ready; none where the backend finds no driver,
    /// which is no error.
    fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>>;
}}
"
    )
}

/// An object's trait, and the type that stands for a missing object.
pub(super) fn of(spec: &Spec, handle: &Handle, plans: &[&Plan<'_>]) -> String {
    let name = associated(&handle.name);
    let mut methods = String::new();
    for plan in plans {
        let Shape::Method { this } = &plan.kind else {
            continue;
        };
        let mut params: Vec<String> = Vec::new();
        if this.is_some() {
            params.push("this: &Object<Self>".into());
        }
        params.extend(
            plan.args
                .iter()
                .map(|arg| format!("{}: {}", arg.name, method_ty(spec, arg))),
        );
        let function = plan.function;
        let doc = format!("`{}`. {}", function.name, function.desc);
        for line in doc.lines() {
            let _ = writeln!(methods, "    /// {line}");
        }
        let method = format!(
            "fn {}({}) -> Result<{}> {{ unsupported() }}",
            plan.method,
            params.join(", "),
            plan.return_type(),
        );
        let _ = writeln!(methods, "{}\n", wrap(&method, 4));
    }
    format!(
        "/// Behind `{0}`. {1}\npub trait {name}<B: Backend>: Body {{\n{2}}}\n\nabsent! {{ No{name}: {name}, \"{0}\" }}\n",
        handle.name,
        handle.desc,
        methods.strip_suffix('\n').unwrap_or(&methods),
    )
}

pub(super) fn method_ty(spec: &Spec, arg: &Arg<'_>) -> String {
    if arg.param.name == "propName"
        && let Some(found) = spec.enum_of(&arg.param.c_type().base)
    {
        return info::name(&found.name);
    }
    arg.ty.clone()
}

/// The module's name.
pub(super) fn module(handle: &str) -> String {
    rust::snake(&associated(handle))
}
