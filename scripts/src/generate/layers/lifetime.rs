//! Leak checking and lifetime validation: which handles a call uses, gives out, and gives back.
//!
//! What `own` says of a parameter decides: an output belongs to the caller unless it is lent, a
//! handle is retained or released, and an info query lends the handles that its properties are.

use super::{call_with, layer};
use crate::generate::{File, rust};
use crate::model::{CType, Dir, Function, Own, Param, Spec};
use anyhow::{Result, ensure};
use std::fmt::Write as _;

const DOC: &str = "Leak checking and lifetime validation: each function says which handles it uses, gives out and gives\n\
back.\n\n\
Unsafe blocks rest on what the specification asks of a caller and, after a success, on what the\n\
adapter has promised to write.";

const USES: &str = "use crate::layers::lifetime::*;\nuse ur::object::{Kind, boundary};";

pub(super) fn file(spec: &Spec) -> Result<(&'static str, File)> {
    layer(spec, "lifetime", DOC, USES, |function| {
        let name = &function.name;
        let parts = Parts::of(spec, function)?;
        if parts.is_empty() {
            return Ok(None);
        }
        let mut body = format!("let call = Call::new({name:?});\n");
        if !parts.uses.is_empty() {
            let _ = write!(
                body,
                "if call.vets() {{
                    let vetted = boundary(|| {{ {} Ok(()) }});
                    if vetted != UR_RESULT_SUCCESS {{ return vetted; }}
                }}\n",
                parts.uses
            );
        }
        body.push_str(&parts.before);
        let call = call_with(function, &parts.given);
        if parts.always.is_empty() && parts.after.is_empty() {
            body.push_str(&call);
            return Ok(Some(body));
        }
        let _ = writeln!(body, "let result = {call};");
        body.push_str(&parts.always);
        if !parts.after.is_empty() {
            let _ = writeln!(
                body,
                "if call.gave(result) {{ boundary(|| {{ {} Ok(()) }}); }}",
                parts.after
            );
        }
        body.push_str("result");
        Ok(Some(body))
    })
}

/// What stands where in a wrapper.
#[derive(Default)]
struct Parts {
    /// Checks of handles that the call uses.
    uses: String,
    before: String,
    /// After the call, whatever its result.
    always: String,
    /// After a call that gave its outputs.
    after: String,
    /// Arguments that stand in for the caller's: `(parameter, text)`.
    given: Vec<(String, String)>,
}

impl Parts {
    fn is_empty(&self) -> bool {
        [&self.uses, &self.before, &self.always, &self.after]
            .iter()
            .all(|part| part.is_empty())
    }

    fn of(spec: &Spec, function: &Function) -> Result<Self> {
        let mut parts = Self::default();
        for param in &function.params {
            if param.info.is_some() && param.dir != Dir::In {
                parts.query(spec, function, param);
            } else if let Some(kind) = kind(spec, &param.c_type()) {
                parts.handle(spec, function, param, &kind)?;
            } else {
                parts.inside(param);
            }
        }
        Ok(parts)
    }

    fn handle(
        &mut self,
        spec: &Spec,
        function: &Function,
        param: &Param,
        kind: &str,
    ) -> Result<()> {
        let raw = rust::ident(&param.name);
        match (param.c_type().pointers, &param.count, param.dir) {
            (0, None, _) if param.own == Some(Own::Release) => {
                let _ = write!(
                    self.before,
                    "let release = match call.release({kind}, {raw}.cast()) {{
                        Ok(release) => release,
                        Err(error) => return error,
                    }};\n"
                );
                self.always.push_str("release.ended(result);\n");
            }
            (0, None, _) => {
                let _ = writeln!(self.uses, "call.uses({kind}, {raw}.cast())?;");
                if param.own == Some(Own::Retain) {
                    let _ = writeln!(self.after, "call.retained({kind}, {raw}.cast());");
                }
            }
            (1, Some(count), Dir::In) => {
                let _ = writeln!(
                    self.uses,
                    "unsafe {{ call.uses_list({kind}, {raw}.cast(), {count} as usize) }}?;"
                );
            }
            (1, Some(count), _) => self.list(spec, function, param, kind, count),
            (1, None, Dir::Out | Dir::InOut) => self.output(spec, function, param, kind),
            _ => ensure!(false, "{} is a handle in no known role", param.name),
        }
        Ok(())
    }

    fn output(&mut self, spec: &Spec, function: &Function, param: &Param, kind: &str) {
        let raw = rust::ident(&param.name);
        let lender = lender(spec, function, param);
        let text = match (lender, param.dir) {
            (Some(lender), _) => {
                format!("unsafe {{ call.lent({kind}, {raw}.cast(), {lender}) }};\n")
            }
            (None, Dir::InOut) => {
                // A handle that was there already is used again and stays the caller's.
                let _ = writeln!(
                    self.before,
                    "let held = unsafe {{ call.held({kind}, {raw}.cast()) }};"
                );
                format!("unsafe {{ call.made_unless({kind}, {raw}.cast(), held) }};\n")
            }
            (None, _) => {
                // Where a refusal leaves null, what is there was given out: some adapters give a program
                // that did not link, for its log.
                let result = match param.cleared {
                    true => "UR_RESULT_SUCCESS",
                    false => "result",
                };
                let before = format!("before_{}", rust::snake(&param.name));
                let _ = writeln!(
                    self.before,
                    "let {before} = unsafe {{ call.before({raw}.cast()) }};"
                );
                let _ = writeln!(
                    self.always,
                    "unsafe {{ call.made({kind}, {raw}.cast(), {before}, {result}) }};"
                );
                return;
            }
        };
        self.after.push_str(&text);
    }

    /// A list that the adapter fills, as far as it has handles.
    fn list(&mut self, spec: &Spec, function: &Function, param: &Param, kind: &str, count: &str) {
        let raw = rust::ident(&param.name);
        let at = function
            .params
            .iter()
            .position(|other| other.name == param.name);
        let total = at
            .and_then(|at| function.params.get(at + 1))
            .filter(|next| next.dir == Dir::Out && next.ty == "uint32_t *");
        let room = match total {
            Some(total) => {
                let name = rust::ident(&total.name);
                self.before.push_str("let mut written = 0;\n");
                let given = format!(
                    "if {name}.is_null() && !{raw}.is_null() {{ &mut written }} else {{ {name} }}"
                );
                self.given.push((total.name.clone(), given));
                format!(
                    "{count}.min(if {name}.is_null() {{ written }} else {{ unsafe {{ *{name} }} }})"
                )
            }
            None => count.to_owned(),
        };
        let lender = match lender(spec, function, param) {
            Some(lender) => format!("Some({lender})"),
            None => "None".to_owned(),
        };
        let _ = writeln!(
            self.after,
            "unsafe {{ call.filled({kind}, {raw}.cast(), ({room}) as usize, {lender}) }};"
        );
    }

    /// Handles in structs that an argument points to.
    fn inside(&mut self, param: &Param) {
        let ty = param.c_type();
        let raw = rust::ident(&param.name);
        if ty.pointers != 1 || param.dir == Dir::Out {
            return;
        }
        let check = match (ty.base.as_str(), &param.count) {
            ("ur_exp_kernel_arg_properties_t", Some(count)) => {
                format!("call.uses_arguments({raw}, {count} as usize)")
            }
            ("ur_exp_command_buffer_update_kernel_launch_desc_t", Some(count)) => {
                format!("call.uses_updates({raw}, {count} as usize)")
            }
            ("ur_usm_pool_desc_t", None) => format!("call.uses_pool_desc({raw})"),
            _ => return,
        };
        let _ = writeln!(self.uses, "unsafe {{ {check} }}?;");
    }

    /// An info query: the properties that are handles.
    fn query(&mut self, spec: &Spec, function: &Function, param: &Param) {
        let Some(info) = param.info.as_deref() else {
            return;
        };
        let property = function
            .params
            .iter()
            .find(|other| info.first() == Some(&other.name));
        let values = property.and_then(|property| spec.enum_of(&property.c_type().base));
        let (Some(property), Some(values), Some(holder)) =
            (property, values, function.dispatch(spec))
        else {
            return;
        };
        let Some(lender) = kind(spec, &holder.c_type()) else {
            return;
        };
        let mut arms = String::new();
        for value in &values.values {
            let text = value.ty.as_deref().unwrap_or_default();
            let Some(kind) = kind(spec, &CType::parse(text)) else {
                continue;
            };
            let bytes = match text.ends_with("[]") {
                true => "size",
                false => "size.min(size_of::<usize>())",
            };
            let _ = writeln!(arms, "{} => Some(({kind}, {bytes})),", value.name);
        }
        if arms.is_empty() {
            return;
        }
        match info.get(1) {
            Some(room) => {
                self.before.push_str("let mut written = 0;\n");
                let given = format!(
                    "if pPropSizeRet.is_null() && !{}.is_null() {{ &mut written }} else {{ pPropSizeRet }}",
                    rust::ident(&param.name)
                );
                self.given.push(("pPropSizeRet".into(), given));
                let _ = writeln!(
                    self.after,
                    "let size = if pPropSizeRet.is_null() {{ written }} else {{ unsafe {{ *pPropSizeRet }} }};
                    let size = size.min({room});"
                );
            }
            None => self.after.push_str("let size = size_of::<usize>();\n"),
        }
        let _ = writeln!(
            self.after,
            "let handles = match {} {{ {arms} _ => None }};
            if let Some((kind, bytes)) = handles {{
                unsafe {{ call.told(kind, {}.cast(), bytes, ({lender}, {}.cast())) }};
            }}",
            rust::ident(&property.name),
            rust::ident(&param.name),
            rust::ident(&holder.name),
        );
    }
}

/// The kind of a handle type, as an expression.
fn kind(spec: &Spec, ty: &CType) -> Option<String> {
    spec.is_handle(&ty.base)
        .then(|| format!("Kind::{}", rust::object_name(&ty.base)))
}

/// Who keeps a handle that the caller gets without a reference of its own: `(kind, handle)`.
fn lender(spec: &Spec, function: &Function, param: &Param) -> Option<String> {
    // Platforms belong to their adapter, commands to their command buffer: they have no counts.
    let counted = !matches!(
        param.c_type().base.as_str(),
        "ur_platform_handle_t" | "ur_exp_command_buffer_command_handle_t"
    );
    if counted && param.own != Some(Own::Lend) {
        return None;
    }
    let holder = function.dispatch(spec)?;
    let kind = kind(spec, &holder.c_type())?;
    Some(format!("({kind}, {}.cast())", rust::ident(&holder.name)))
}
