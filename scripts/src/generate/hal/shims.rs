//! The C shims of one object, as rows of `shims!`.

use super::plan::{Arg, Plan, Return, Shape, arg_name, associated, object_ty};
use super::wrap;
use crate::generate::{checks, rust};
use crate::model::{Own, Spec};
use anyhow::Result;
use std::fmt::Write as _;

/// Indentation of a row and of its body.
const ROW: usize = 4;
const BODY: usize = 8;

/// The rows of an object's functions.
pub(super) fn rows(spec: &Spec, plans: &[&Plan<'_>]) -> Result<String> {
    let mut out = String::from("\nshims! {\n");
    for plan in plans {
        let function = plan.function;
        let cleared: Vec<_> = function.params.iter().filter(|p| p.cleared).collect();
        let cleared: String = cleared
            .iter()
            .map(|param| format!(" clears {}", rust::ident(&param.name)))
            .collect();
        let head = format!(
            "{}({}){cleared}",
            function.name,
            rust::params(&function.params)
        );
        let statements = statements(spec, plan)?;
        let one_line = format!("{head} {{ {} }}", statements.join(" "));
        if statements.len() <= 2 && ROW + one_line.len() <= super::WIDTH {
            let _ = writeln!(out, "{}", wrap(&one_line, ROW));
            continue;
        }
        let _ = writeln!(out, "{} {{", wrap(&head, ROW));
        for statement in statements {
            let _ = writeln!(out, "{}", wrap(&statement, BODY));
        }
        out.push_str("    }\n");
    }
    out.push_str("}\n");
    Ok(out)
}

/// The statements of a shim's body.
fn statements(spec: &Spec, plan: &Plan<'_>) -> Result<Vec<String>> {
    let this = match &plan.kind {
        Shape::AdapterGet => {
            let names = plan.function.params.iter().map(|param| param.name.as_str());
            let names: Vec<_> = names.collect();
            return Ok(vec![format!(
                "crate::hal::adapter_get::<B>({})",
                names.join(", ")
            )]);
        }
        Shape::Retain => {
            return Ok(vec![
                format!("{}.retain();", first_object(plan)),
                "Ok(())".to_owned(),
            ]);
        }
        Shape::Release => return Ok(vec![format!("{}.release()", first_object(plan))]),
        Shape::Method { this } => this.as_deref(),
    };
    let (objects, others): (Vec<&Arg<'_>>, Vec<&Arg<'_>>) = plan
        .args
        .iter()
        .partition(|arg| arg.ty.contains("&Object<"));
    let mut out = Vec::new();
    let mut add = |text: String| out.extend(text.lines().map(str::to_owned));
    add(checks::pointers(spec, plan.function)
        .trim_end()
        .replace('\n', " "));
    if let Some(this) = this {
        add(format!(
            "let this = object::<B, {}>({this})?;",
            object_ty(&plan.object)
        ));
    }
    for arg in objects {
        add(format!("let {} = {};", arg.name, arg.decode));
    }
    add(checks::ranges(spec, plan.function));
    add(checks::conditions(spec, plan.function)?);
    add(checks::wait_lists(plan.function));
    // Arguments are decoded in order. An argument whose elements are checked needs a name, and so do all
    // before it.
    let elements: Vec<_> = others
        .iter()
        .map(|arg| checks::elements(spec, arg.param, &arg.name))
        .collect();
    let named = elements.iter().rposition(|text| !text.is_empty());
    let named = named.map_or(0, |last| last + 1);
    for (arg, elements) in others.iter().zip(&elements).take(named) {
        if arg.name != arg.decode {
            add(format!("let {} = {};", arg.name, decode(spec, arg)));
        }
        add(elements.clone());
    }
    let mut call: Vec<String> = this.map(|_| "this".to_owned()).into_iter().collect();
    let unnamed: Vec<_> = others.iter().skip(named).map(|arg| &arg.name).collect();
    call.extend(
        plan.args
            .iter()
            .map(|arg| match unnamed.contains(&&arg.name) {
                true => decode(spec, arg),
                false => arg.name.clone(),
            }),
    );
    let call = format!(
        "{}::{}({})",
        object_ty(&plan.object),
        plan.method,
        call.join(", ")
    );
    add(encode(plan, &call));
    Ok(out)
}

fn first_object(plan: &Plan<'_>) -> String {
    let mut params = plan.function.params.iter();
    let first = params.next().map_or("", |param| param.name.as_str());
    format!("object::<B, {}>({first})?", object_ty(&plan.object))
}

fn decode(spec: &Spec, arg: &Arg<'_>) -> String {
    match spec.enum_of(&arg.param.c_type().base) {
        Some(_) if arg.param.name == "propName" => format!("{}.try_into()?", arg.decode),
        _ => arg.decode.clone(),
    }
}

/// The call, and the statements that write its results.
fn encode(plan: &Plan<'_>, call: &str) -> String {
    let mut out = match plan.returns.as_slice() {
        [] => return call.to_owned(),
        [one] => format!("let {} = {call}?;\n", returned(one)),
        many => {
            let names: Vec<_> = many.iter().map(returned).collect();
            format!("let ({}) = {call}?;\n", names.join(", "))
        }
    };
    for back in &plan.returns {
        let to = rust::ident(&back.param.name);
        let name = returned(back);
        let value = match (back.is_handle, back.param.own) {
            // A lent handle carries no reference for the caller.
            (true, Some(Own::Lend)) => format!("{name}.handle().cast()"),
            (true, _) => format!("{name}.into_handle().cast()"),
            (false, _) => name,
        };
        let _ = writeln!(out, "{to}.write({value});");
    }
    out.push_str("Ok(())");
    out
}

fn returned(back: &Return<'_>) -> String {
    format!("{}_out", arg_name(&back.param.name))
}

/// The head of the object's file.
pub(super) fn doc(handle: &str) -> String {
    format!(
        "//! The trait behind `{handle}`, and the C functions that `{}` answers.\n",
        associated(handle)
    )
}
