//! The C printers: prototypes in `ur_print.h`, and the list of the loader's definitions.

use super::{Printer, Subject, call_struct, printers, render};
use crate::generate::functions::List;
use crate::model::Spec;
use anyhow::Result;
use minijinja::context;

pub fn header(spec: &Spec) -> Result<String> {
    let sections: Vec<_> = spec
        .groups
        .iter()
        .map(|group| {
            let prototypes: Vec<String> = printers(group).iter().filter_map(prototype).collect();
            context! { title => group.title.as_str(), prototypes }
        })
        .collect();
    render(
        include_str!("../../../templates/print/ur_print.h.j2"),
        context! { sections },
    )
}

/// The prototype for a type. Those for calls come from the list of calls.
fn prototype(printer: &Printer) -> Option<String> {
    let subject = match &printer.subject {
        Subject::Enumerator(name) => format!("enum {name} value"),
        Subject::Struct(found) => format!("const struct {} params", found.name),
        Subject::Call(_) => return None,
    };
    Some(format!(
        "UR_APIEXPORT ur_result_t UR_APICALL {}({subject}, char *buffer, const size_t buff_size, size_t *out_size);",
        printer.name
    ))
}

const DOC: &str = "\
The exported `urPrint*`, for the loader: `FORM NAME: TYPE;`.

FORM is `value`, `bit` for one bit of a set of flags, or `call` for a call's arguments, behind a pointer.";

pub fn exports(spec: &Spec) -> List {
    let rows = spec.groups.iter().flat_map(printers).map(|printer| {
        let name = printer.name;
        match printer.subject {
            Subject::Enumerator(ty) if spec.flags_of(ty).is_some() => {
                format!("bit {name}: {ty};\n")
            }
            Subject::Enumerator(ty) => format!("value {name}: {ty};\n"),
            Subject::Struct(found) => format!("value {name}: {};\n", found.name),
            Subject::Call(function) if function.params.is_empty() => {
                format!("call {name}: NoArguments;\n")
            }
            Subject::Call(function) => format!("call {name}: {};\n", call_struct(function)),
        }
    });
    List::new("for_each_printer", DOC, rows.collect())
}
