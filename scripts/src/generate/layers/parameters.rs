//! Parameter validation: what the specification declares of a call's arguments, checked before any
//! adapter sees them.

use super::{call, layer};
use crate::generate::{File, rust};
use crate::model::{Dir, Function, Spec};
use anyhow::Result;
use std::fmt::Write as _;

const DOC: &str = "Parameter validation: each function checks what the specification declares of its arguments, then\n\
calls what it wraps.\n\n\
Unsafe blocks rest on what the specification asks of a caller: pointers that are not null are\n\
readable for what their parameter says.";

const USES: &str = "use crate::layers::checks::*;\nuse ur::object::boundary;";

pub(super) fn file(spec: &Spec) -> Result<(&'static str, File)> {
    layer(spec, "parameters", DOC, USES, |function| {
        let checks = checks(spec, function);
        Ok((!checks.is_empty()).then(|| {
            format!(
                "match boundary(|| {{ {checks} Ok(()) }}) {{
                    UR_RESULT_SUCCESS => {},
                    error => error,
                }}",
                call(function)
            )
        }))
    })
}

fn checks(spec: &Spec, function: &Function) -> String {
    let mut out = String::new();
    for param in &function.params {
        let ty = param.c_type();
        if ty.is_pointer() && !param.optional && !param.nocheck {
            let _ = writeln!(out, "pointer({})?;", rust::ident(&param.name));
        }
    }
    for param in &function.params {
        let ty = param.c_type();
        if spec.is_handle(&ty.base) && ty.is_plain() && !param.optional && param.dir != Dir::Out {
            let _ = writeln!(out, "handle({})?;", rust::ident(&param.name));
        }
    }
    out
}
