//! The traits, one an object, with default bodies.

use super::plan::{Arg, Plan, Shape, associated};
use crate::generate::info;
use crate::generate::rust;
use crate::model::Spec;
use std::fmt::Write as _;

pub(super) const TRAITS_DOC: &str = "One trait an object: what a backend may implement. Each method stands for the C function that\n\
its documentation names. A method that a backend leaves out answers as all backends do, else `UNSUPPORTED_FEATURE`.";

/// Functions that backends answer alike, and the default bodies of their methods.
const DEFAULTS: [(&str, &str); 7] = [
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

pub(super) fn traits(spec: &Spec, plans: &[Plan<'_>]) -> String {
    let mut out = String::from(
        "#![allow(unused_variables, clippy::too_many_arguments)]
        use crate::hal::info::*;
        use crate::abi::*;
        use crate::hal::{Absent, Unwrapped};
        use crate::object::{Body, Error, Handles, InfoIn, InfoOut, Kind, ListOut, Object, Out, OutHandle, Result};
        use std::ffi::{CStr, c_char, c_void};
        use std::sync::Arc;\n",
    );
    let handles: Vec<_> = spec
        .handles()
        .filter(|handle| handle.name != "ur_loader_config_handle_t")
        .collect();
    let mut types = String::new();
    for handle in &handles {
        let name = associated(&handle.name);
        let _ = writeln!(
            types,
            "{}type {name}: {name}<Self>;",
            rust::doc(&handle.desc)
        );
    }
    let _ = write!(
        out,
        "/// A backend: its table, its adapter, and the types that stand behind its handles.
        pub trait Backend: crate::hal::Exported + Sized + Send + Sync + 'static {{
            {types}
            /// The backend that the adapter drives.
            const BACKEND: ur_backend_t;
            /// Rises when the adapter's behaviour changes. Clients keep lists of known differences by it.
            const REVISION: u32 = 1;
            /// The adapter that `urAdapterGet` hands out, made ready; none where the backend finds
            /// no driver, which is no error.
            fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>>;
        }}\n"
    );
    for handle in &handles {
        let name = associated(&handle.name);
        let mut methods = String::new();
        for plan in plans.iter().filter(|plan| plan.object == handle.name) {
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
            let _ = write!(
                methods,
                "{}#[doc = \"\"]\n#[doc = {:?}]\nfn {}({}) -> Result<{}> {{ {} }}\n",
                rust::doc(&plan.function.desc),
                format!(" `{}`", plan.function.name),
                plan.method,
                params.join(", "),
                plan.return_type(),
                default(&plan.function.name).unwrap_or("Err(Error::unsupported())"),
            );
        }
        let _ = writeln!(
            out,
            "{}pub trait {name}<B: Backend>: Body {{ {methods} }}",
            rust::doc(&format!("Behind `{}`. {}", handle.name, handle.desc))
        );
        let _ = write!(
            out,
            "/// Stands for the `{0}` of a backend that has none.
            pub type No{name} = Absent<{{ Kind::{name} as u32 }}>;
            impl Body for No{name} {{ const KIND: Kind = Kind::{name}; }}
            impl<B: Backend> {name}<B> for No{name} {{}}\n",
            handle.name
        );
    }
    out
}

pub(super) fn method_ty(spec: &Spec, arg: &Arg<'_>) -> String {
    if arg.param.name == "propName"
        && let Some(found) = spec.enum_of(&arg.param.c_type().base)
    {
        return info::name(&found.name);
    }
    arg.ty.clone()
}
