//! Bounds checking: what the specification's `bounds` say of a command's ranges.

use super::{call, layer};
use crate::generate::{File, expr, rust};
use crate::model::{Dir, Function, Param, Spec};
use anyhow::{Context as _, Result, bail};

const DOC: &str = "Bounds checking: each function asks the adapter how large its objects and allocations are, and refuses\n\
what would go beyond their end.\n\n\
Unsafe calls pass a caller's arguments on as they came.";

const USES: &str = "use crate::layers::bounds::*;\nuse ur::object::boundary;";

pub(super) fn file(spec: &Spec) -> Result<(&'static str, File)> {
    layer(spec, "bounds", DOC, USES, |function| {
        let checks: Vec<String> = function
            .params
            .iter()
            .filter_map(|param| Some((param, param.bounds.as_deref()?)))
            .map(|(param, bounds)| check(spec, function, param, bounds))
            .collect::<Result<_>>()?;
        if function.name == "urCommandBufferCreateExp" {
            // A command buffer does not tell its context.
            return Ok(Some(format!(
                "let result = {};
                if result == UR_RESULT_SUCCESS {{ unsafe {{ command_buffer_created(hContext, phCommandBuffer) }} }}
                result",
                call(function)
            )));
        }
        Ok((!checks.is_empty()).then(|| {
            format!(
                "match boundary(|| {{ {} Ok(()) }}) {{
                    UR_RESULT_SUCCESS => {},
                    error => error,
                }}",
                checks.concat(),
                call(function)
            )
        }))
    })
}

fn check(spec: &Spec, function: &Function, param: &Param, bounds: &[String]) -> Result<String> {
    let ty = param.c_type();
    let raw = rust::ident(&param.name);
    let place = format!(
        "&Place {{ function: {:?}, argument: {:?} }}",
        function.name, param.name
    );
    let is_box = |name: &String| {
        let mut params = function.params.iter();
        params.any(|param| &param.name == name && param.ty == "ur_rect_offset_t")
    };
    let numbers = |from: usize| -> Result<String> {
        let bounds = &bounds[from..];
        let texts: Result<Vec<_>> = bounds
            .iter()
            .map(|text| expr::number(spec, function, text))
            .collect();
        Ok(texts?.join(", "))
    };
    Ok(match (bounds, ty.pointers) {
        ([origin, region], 0) if is_box(origin) => {
            format!("unsafe {{ image({place}, {raw}, {origin}, {region}) }}?;\n")
        }
        ([origin, region, _, _], 0) if is_box(origin) => {
            format!(
                "unsafe {{ buffer_box({place}, {raw}, {origin}, {region}, {}) }}?;\n",
                numbers(2)?
            )
        }
        ([_, _], 0) => format!("unsafe {{ buffer({place}, {raw}, {}) }}?;\n", numbers(0)?),
        ([_, _], 1) => {
            format!(
                "unsafe {{ usm({place}, {}, {raw}, {}) }}?;\n",
                context(spec, function)?,
                numbers(0)?
            )
        }
        ([_, _, _], 1) => {
            format!(
                "unsafe {{ usm_rows({place}, {}, {raw}, {}) }}?;\n",
                context(spec, function)?,
                numbers(0)?
            )
        }
        _ => bail!("{}: bounds of no known form", param.name),
    })
}

/// Where the context of a function's allocations is found.
fn context(spec: &Spec, function: &Function) -> Result<String> {
    let holder = function.dispatch(spec).context("no dispatch handle")?;
    anyhow::ensure!(holder.dir == Dir::In, "a context from an output");
    let name = &holder.name;
    Ok(match holder.c_type().base.as_str() {
        "ur_context_handle_t" => format!("Some({name})"),
        "ur_queue_handle_t" => format!("context_of_queue({name})"),
        "ur_exp_command_buffer_handle_t" => format!("context_of_command_buffer({name})"),
        other => bail!("no way from {other} to a context"),
    })
}
