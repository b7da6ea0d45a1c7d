//! Parameter validation: what the specification declares of a call's arguments, checked before any
//! adapter sees them, in the order in which an adapter of ours checks it.

use super::{call, layer};
use crate::generate::{File, checks, rust};
use crate::model::{Dir, Function, Param, Spec};
use anyhow::Result;
use std::fmt::Write as _;

const DOC: &str = "Parameter validation: each function checks what the specification declares of its arguments, then\n\
calls what it wraps.\n\n\
Unsafe blocks rest on what the specification asks of a caller: pointers that are not null are\n\
readable for what their parameter says.";

const USES: &str =
    "use crate::layers::parameters::refused;\nuse ur::object::{boundary, checks::*, ensure};";

pub(super) fn file(spec: &Spec) -> Result<(&'static str, File)> {
    layer(spec, "parameters", DOC, USES, |function| {
        let checks = statements(spec, function)?;
        Ok((!checks.is_empty()).then(|| {
            format!(
                "match boundary(|| {{ {checks} Ok(()) }}) {{
                    UR_RESULT_SUCCESS => {},
                    error => refused({:?}, error),
                }}",
                call(function),
                function.name
            )
        }))
    })
}

fn statements(spec: &Spec, function: &Function) -> Result<String> {
    let mut out = checks::pointers(spec, function);
    for param in &function.params {
        let ty = param.c_type();
        if spec.is_handle(&ty.base) && ty.is_plain() && !param.optional && !param.nocheck {
            let _ = writeln!(out, "handle({})?;", rust::ident(&param.name));
        }
    }
    out.push_str(&checks::ranges(spec, function));
    out.push_str(&checks::conditions(spec, function)?);
    out.push_str(&checks::wait_lists(function));
    for param in &function.params {
        out.push_str(&late(spec, param));
    }
    Ok(out)
}

/// What a shim of an adapter checks as it decodes a parameter.
fn late(spec: &Spec, param: &Param) -> String {
    let ty = param.c_type();
    let raw = rust::ident(&param.name);
    if ty.is_plain() && param.name == "propName" {
        return checks::value(spec, &ty.base, &raw);
    }
    let Some(count) = &param.count else {
        return String::new();
    };
    if spec.is_handle(&ty.base) && ty.pointers == 1 && param.dir != Dir::Out {
        let null = checks::null_in_list(param);
        return format!("unsafe {{ handles({raw}, {count} as usize, {null}) }}?;\n");
    }
    let list = format!("unsafe {{ slice({raw}, {count} as usize) }}?");
    let given = match param.optional {
        true => format!("(if {raw}.is_null() {{ &[] }} else {{ {list} }})"),
        false => list,
    };
    checks::elements(spec, param, &given)
}
