//! `loader/src/generated`: the exported functions, which go through the application's table, and
//! the dispatch functions that fill it, which go through the handle's.

use super::{File, checks, rust};
use crate::model::{Function, Spec};
use anyhow::Result;
use std::fmt::Write as _;

pub fn files(spec: &Spec) -> Result<Vec<File>> {
    Ok(vec![
        File::rust(
            "loader/src/generated/mod.rs",
            "Generated parts of the loader.",
            MODULES,
        )?,
        File::rust(
            "loader/src/generated/exports.rs",
            EXPORTS_DOC,
            &exports(spec),
        )?,
        File::rust(
            "loader/src/generated/dispatch.rs",
            DISPATCH_DOC,
            &dispatch(spec),
        )?,
    ])
}

const MODULES: &str = "pub mod dispatch;\npub mod exports;\npub mod layers;\npub mod print;\n";

const EXPORTS_DOC: &str = "What the library exports for applications: every table function, through the table in force.\n\
What programs call most goes straight to dispatch while that table is the plain one.\n\n\
Unsafe calls pass a caller's arguments on as they came. A symbol's version directive stands in the\n\
function's own module: elsewhere it would be dropped in unoptimised builds.";

const DISPATCH_DOC: &str = "The application's table without layers: each function follows its handle's first word to the\n\
adapter's own table.\n\nUnsafe calls pass a caller's arguments on as they came.";

const ALLOW: &str = "#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, clippy::too_many_arguments, non_snake_case)]\n";

/// The tables whose functions programs call most. The loader puts nothing of its own into these.
const STRAIGHT: [&str; 3] = ["Enqueue", "EnqueueExp", "Event"];

pub(super) fn in_tables(spec: &Spec) -> impl Iterator<Item = (&Function, &str, &str)> {
    spec.functions().filter_map(|function| {
        Some((
            function,
            function.table.as_deref()?,
            function.slot.as_deref()?,
        ))
    })
}

fn arguments(function: &Function) -> String {
    function
        .params
        .iter()
        .map(|param| rust::ident(&param.name))
        .collect::<Vec<_>>()
        .join(", ")
}

fn is_straight(function: &Function, spec: &Spec) -> bool {
    let often = function.table.as_deref();
    often.is_some_and(|table| STRAIGHT.contains(&table)) && function.dispatch(spec).is_some()
}

fn exports(spec: &Spec) -> String {
    let mut out = format!(
        "{ALLOW}use super::dispatch;\nuse std::arch::global_asm;\nuse std::ffi::{{c_char, c_void}};\nuse ur::abi::*;\n"
    );
    for (function, table, slot) in in_tables(spec) {
        let name = &function.name;
        let arguments = arguments(function);
        let straight = match is_straight(function, spec) {
            true => format!(
                "if crate::state::is_plain() {{ return unsafe {{ dispatch::{name}({arguments}) }}; }}"
            ),
            false => String::new(),
        };
        let _ = write!(
            out,
            "#[unsafe(no_mangle)]
            pub unsafe extern \"C\" fn {name}({params}) -> ur_result_t {{
                {clears}
                {straight}
                match crate::state::app_table().and_then(|table| table.{table}.{slot}) {{
                    Some(function) => unsafe {{ function({arguments}) }},
                    None => UR_RESULT_ERROR_UNINITIALIZED,
                }}
            }}
            global_asm!(\".symver {name}, {name}@@@LIBUR_LOADER_0.12\");\n",
            params = rust::params(&function.params),
            clears = checks::clears(function),
        );
    }
    for table in &spec.tables {
        let name = format!("urGet{}ProcAddrTable", table.name);
        let _ = write!(
            out,
            "#[unsafe(no_mangle)]
            pub unsafe extern \"C\" fn {name}(version: ur_api_version_t, pDdiTable: *mut {part}) -> ur_result_t {{
                unsafe {{ crate::state::copy_table(version, pDdiTable, |table| &table.{member}) }}
            }}
            global_asm!(\".symver {name}, {name}@@@LIBUR_LOADER_0.12\");\n",
            part = table.struct_name,
            member = table.name,
        );
    }
    out
}

fn dispatch(spec: &Spec) -> String {
    let mut out = format!(
        "{ALLOW}use crate::dispatch::{{table_of, table_of_first}};\nuse std::ffi::{{c_char, c_void}};\nuse ur::abi::*;\n"
    );
    for (function, table, slot) in in_tables(spec) {
        let Some(handle) = function.dispatch(spec) else {
            continue;
        };
        let leader = rust::ident(&handle.name);
        let found = match &handle.count {
            None => format!("table_of({leader}.cast())"),
            Some(count) => format!(
                "table_of_first({count}, {leader}.cast(), {})",
                empty_error(function, count)
            ),
        };
        let _ = write!(
            out,
            "{inline}unsafe extern \"C\" fn {name}({params}) -> ur_result_t {{
                {clears}
                match unsafe {{ {found} }} {{
                    Ok(table) => match table.{table}.{slot} {{
                        Some(function) => unsafe {{ function({arguments}) }},
                        None => UR_RESULT_ERROR_UNINITIALIZED,
                    }},
                    Err(result) => result,
                }}
            }}\n",
            inline = match is_straight(function, spec) {
                true => "#[inline(always)]\npub(super) ",
                false => "",
            },
            name = function.name,
            params = rust::params(&function.params),
            arguments = arguments(function),
            clears = checks::clears(function),
        );
    }
    let mut members = String::new();
    for table in &spec.tables {
        let mut slots = String::new();
        for (function, _, slot) in
            in_tables(spec).filter(|(function, _, _)| table.slots.contains(&function.name))
        {
            let filled = match function.dispatch(spec) {
                Some(_) => format!("Some({})", function.name),
                None => "None".to_owned(),
            };
            let _ = write!(slots, "{slot}: {filled},");
        }
        let _ = write!(
            members,
            "{}: {} {{ {slots} }},",
            table.name, table.struct_name
        );
    }
    let _ = write!(
        out,
        "/// Every function that dispatches by handle; what does not is left empty for the loader to put in.
        pub static DISPATCH: ur_dditable_t = ur_dditable_t {{ {members} }};\n"
    );
    let straight = in_tables(spec).filter(|(function, _, _)| is_straight(function, spec));
    let slots: String = straight
        .map(|(_, table, slot)| format!("table.{table}.{slot}.map(|function| function as usize),"))
        .collect();
    let _ = write!(
        out,
        "/// A table's functions that exports go past, as addresses: the loader may replace none of them.
        #[cfg(test)]
        pub fn straight(table: &ur_dditable_t) -> Vec<Option<usize>> {{ Vec::from([{slots}]) }}\n"
    );
    out
}

/// What the function answers to a list without elements.
fn empty_error(function: &Function, count: &str) -> String {
    let when = format!("{count} == 0");
    let code = function
        .errors
        .iter()
        .find(|case| case.when.as_deref() == Some(&when))
        .map_or("INVALID_VALUE", |case| &case.code);
    format!("UR_RESULT_ERROR_{code}")
}
