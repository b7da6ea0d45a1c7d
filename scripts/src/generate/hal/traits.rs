//! The traits with their default bodies, and the trait `Backend`, which names their implementations.

use super::plan::{Arg, Plan, Shape, associated};
use super::wrap;
use crate::generate::{info, rust};
use crate::model::{Handle, Spec};
use std::fmt::Write as _;

/// Functions that backends answer alike, and the default bodies of their methods.
const DEFAULTS: [(&str, &str); 9] = [
    (
        "urAdapterGetInfo",
        "crate::hal::answers::adapter_info::<B>(this, prop_name, out)",
    ),
    (
        "urAdapterGetLastError",
        "crate::hal::answers::last_driver_error()",
    ),
    (
        "urAdapterSetLoggerCallback",
        "crate::hal::answers::set_logger_and_level(logger_callback, user_data.expose_provenance(), level)",
    ),
    (
        "urAdapterSetLoggerCallbackLevel",
        "crate::hal::set_logger_level(level); Ok(())",
    ),
    ("urPlatformGetApiVersion", "Ok(UR_API_VERSION_CURRENT)"),
    (
        "urPlatformGetBackendOption",
        "crate::hal::answers::no_compiler_option(frontend_option)",
    ),
    ("urDeviceSelectBinary", "crate::hal::answers::no_binary()"),
    (
        "urUsmP2PPeerAccessGetInfoExp",
        "crate::hal::answers::no_peer_access(prop_name, out)",
    ),
    (
        "urKernelGetSuggestedLocalWorkSize",
        "Self::get_suggested_local_work_size_with_args(this, queue, global_work_offset, global_work_size, &[], suggested_local_work_size)",
    ),
];

fn default(function: &str) -> Option<&'static str> {
    let found = DEFAULTS.iter().find(|(name, _)| *name == function);
    found.map(|(_, body)| *body)
}

/// Whether every backend answers a function, by the default body of its method.
pub fn has_default(function: &str) -> bool {
    default(function).is_some()
}

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
    /// The backend that the adapter drives.
    const BACKEND: crate::abi::ur_backend_t;
    /// Rises when the adapter's behaviour changes. Clients keep lists of known differences by it.
    const REVISION: u32 = 1;
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
            "fn {}({}) -> Result<{}> {{ {} }}",
            plan.method,
            params.join(", "),
            plan.return_type(),
            default(&function.name).unwrap_or("unsupported()"),
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
