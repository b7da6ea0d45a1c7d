//! `tests/generated/sweep.rs`: one caller a table function, its arguments drawn from a source of
//! values, so that a test can drive every shim with whatever it likes.

use super::{File, rust};
use crate::model::{CType, Function, Param, Spec};
use anyhow::Result;
use std::fmt::Write as _;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    let mut out = String::from("use super::Source;\nuse ur::abi::*;\n");
    let mut entries = String::new();
    for function in spec.functions() {
        let (Some(table), Some(slot)) = (&function.table, &function.slot) else {
            continue;
        };
        let arguments: Vec<String> = function
            .params
            .iter()
            .map(|param| draw(spec, function, param))
            .collect();
        let _ = writeln!(
            entries,
            "({:?}, |table, source| {{ let f = table.{table}.{slot}?; Some(unsafe {{ f({}) }}) }}),",
            function.name,
            arguments.join(", ")
        );
    }
    let _ = write!(
        out,
        "/// Calls one function of a table; none where its slot is empty.
        pub type Call = fn(&ur_dditable_t, &mut dyn Source) -> Option<ur_result_t>;
        /// Every table function with its caller.
        pub const CALLS: &[(&str, Call)] = &[{entries}];\n"
    );
    Ok(vec![File::rust(
        "tests/generated/sweep.rs",
        "Callers of every table function.",
        &out,
    )?])
}

fn draw(spec: &Spec, function: &Function, param: &Param) -> String {
    let ty = param.c_type();
    let counts = |other: &Param| other.count.as_deref() == Some(param.name.as_str());
    if function.params.iter().any(counts) {
        return "source.count() as _".into();
    }
    if spec.is_callback(&ty.base) && ty.pointers == 0 {
        return "None".into();
    }
    if ty.is_pointer() || spec.is_handle(&ty.base) {
        let handle = spec.is_handle(&ty.base) && ty.pointers == 0;
        let list = spec.is_handle(&ty.base) && ty.pointers == 1 && param.count.is_some();
        return match (handle, list) {
            (true, _) => "source.handle().cast()".into(),
            (_, true) => "source.list().cast()".into(),
            _ => "source.memory().cast()".into(),
        };
    }
    scalar(spec, &ty)
}

fn scalar(spec: &Spec, ty: &CType) -> String {
    if spec.enum_of(&ty.base).is_some() || spec.flags_of(&ty.base).is_some() {
        return format!(
            "{}(source.number() as u32)",
            spec.flags_of(&ty.base)
                .map_or(&ty.base, |flags| &flags.name)
        );
    }
    if spec.struct_of(&ty.base).is_some() {
        return format!("{}::default()", ty.base);
    }
    match rust::ctype(ty).as_str() {
        "u64" => "source.size()".to_owned(),
        other => format!("source.size() as {other}"),
    }
}
