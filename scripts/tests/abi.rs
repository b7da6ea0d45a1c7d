//! Compares our specification with the reference's facts, offline.
//!
//! `abi_headers.rs` compares the headers, `tests/generated/abi_layout.rs` of the root package the types of
//! running code, and `symbols.rs` the exports of the built loader. `--nocapture` shows the number of facts in
//! each test.

mod support;

use support::{Facts, compare, include};
use xtask::model::{Item, Param, Spec};
use xtask::reference::{Layout, Macro, Reference, Signature};

fn reference() -> Reference {
    Reference::load().expect("scripts/abi/reference.json is readable")
}

fn spec() -> Spec {
    Spec::load(&xtask::repository().join("spec")).expect("spec/ is consistent")
}

/// `name type, name type`, with the same blanks for both sides.
fn members<'a>(list: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let tight = |ty: &str| ty.replace(" *", "*").replace("* ", "*");
    list.into_iter()
        .map(|(name, ty)| format!("{name} {}", tight(ty)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn of_params(params: &[Param]) -> String {
    members(
        params
            .iter()
            .map(|param| (param.name.as_str(), param.ty.as_str())),
    )
}

fn of_signature(signature: &Signature) -> String {
    members(
        signature
            .params
            .iter()
            .map(|(name, ty)| (name.as_str(), ty.as_str())),
    )
}

fn of_layout(layout: &Layout) -> String {
    members(
        layout
            .fields
            .iter()
            .map(|(name, ty, _)| (name.as_str(), ty.as_str())),
    )
}

#[test]
fn specification_functions() {
    let reference = reference();
    let spec = spec();
    let theirs = reference.functions.iter().map(|(name, signature)| {
        assert_eq!(signature.returns, "ur_result_t", "{name}");
        (name.clone(), of_signature(signature))
    });
    let ours = spec
        .functions()
        .map(|function| (function.name.clone(), of_params(&function.params)));
    compare("function prototypes", &theirs.collect(), &ours.collect());
}

#[test]
fn specification_enumerators() {
    let mut theirs = Facts::new();
    for (tag, enumerators) in &reference().enums {
        for (name, value) in enumerators {
            theirs.insert(name.clone(), format!("{value} of enum {tag}"));
        }
    }
    let mut ours = Facts::new();
    for item in spec().items() {
        let (tag, values) = match item {
            Item::Enum(found) => (&found.name, &found.values),
            Item::Flags(found) => (&found.bit, &found.values),
            _ => continue,
        };
        let force = format!("{}_FORCE_UINT32", tag.trim_end_matches("_t").to_uppercase());
        ours.insert(force, format!("{} of enum {tag}", 0x7fff_ffff));
        ours.extend(
            values
                .iter()
                .filter(|value| value.header.is_none())
                .map(|value| (value.name.clone(), format!("{} of enum {tag}", value.value))),
        );
    }
    compare(
        "enumerators (UR_API_VERSION_CURRENT, an alias, included)",
        &theirs,
        &ours,
    );
}

#[test]
fn specification_types() {
    let reference = reference();
    let mut theirs: Facts = reference.typedefs.clone();
    theirs.extend(
        reference
            .handles
            .iter()
            .map(|(name, tag)| (name.clone(), format!("struct {tag} *"))),
    );
    theirs.extend(reference.callbacks.iter().map(|(name, found)| {
        (
            name.clone(),
            format!("{}({})", found.returns, of_signature(found)),
        )
    }));
    let mut ours = Facts::new();
    for item in spec().items() {
        match item {
            Item::Typedef(found) => ours.insert(found.name.clone(), found.ty.clone()),
            Item::Flags(found) => ours.insert(found.name.clone(), "uint32_t".to_owned()),
            Item::Handle(found) => {
                ours.insert(found.name.clone(), format!("struct {}_ *", found.name))
            }
            Item::Callback(found) => ours.insert(
                found.name.clone(),
                format!("{}({})", found.returns, of_params(&found.params)),
            ),
            _ => None,
        };
    }
    compare("typedefs, handles and callbacks", &theirs, &ours);
}

#[test]
fn specification_structs() {
    let reference = reference();
    let theirs = reference
        .structs
        .iter()
        .map(|(name, layout)| (name.clone(), format!("struct {}", of_layout(layout))));
    let unions = reference
        .unions
        .iter()
        .map(|(name, layout)| (name.clone(), format!("union {}", of_layout(layout))));
    let spec = spec();
    let mut ours = Facts::new();
    for item in spec.items() {
        match item {
            Item::Struct(found) => ours.insert(
                found.name.clone(),
                format!("struct {}", of_params(&found.members)),
            ),
            Item::Union(found) => ours.insert(
                found.name.clone(),
                format!("union {}", of_params(&found.members)),
            ),
            _ => None,
        };
    }
    for function in spec.functions() {
        let Some(name) = function.params_struct() else {
            continue;
        };
        let fields: Vec<_> = function
            .params
            .iter()
            .map(|param| (format!("p{}", param.name), format!("{} *", param.ty)))
            .collect();
        let fields = fields.iter().map(|(name, ty)| (name.as_str(), ty.as_str()));
        ours.insert(name, format!("struct {}", members(fields)));
    }
    compare(
        "structs and unions, members in order",
        &theirs.chain(unions).collect(),
        &ours,
    );
}

#[test]
fn specification_macros() {
    let theirs = reference()
        .macros
        .into_iter()
        .map(|(name, found)| match found {
            Macro::Object(value) => (name, value),
            Macro::Function { args, body } => (
                name,
                format!("({}) {}", args.join(","), body.replace(' ', "")),
            ),
        });
    let mut ours = Facts::new();
    for item in spec().items() {
        match item {
            Item::Macro(found) if found.args.is_empty() => {
                ours.insert(found.name.clone(), found.value.clone())
            }
            Item::Macro(found) => {
                let body = found.value.replace(' ', "");
                ours.insert(
                    found.name.clone(),
                    format!("({}) {body}", found.args.join(",")),
                )
            }
            Item::Flags(found) => {
                ours.insert(found.mask.clone(), format!("{:#010x}", found.undefined()))
            }
            _ => None,
        };
    }
    compare("macros", &theirs.collect(), &ours);
}

#[test]
fn specification_tables() {
    let reference = reference();
    let spec = spec();
    let mut ours = Facts::new();
    let mut slots = 0;
    for table in &spec.tables {
        let mut fields = Vec::new();
        for name in &table.slots {
            let function = spec
                .functions()
                .find(|function| &function.name == name)
                .expect("Spec::load checks slots");
            let slot = function.slot.clone().unwrap_or_default();
            fields.push((slot, format!("ur_pfn{}_t", function.stem())));
        }
        slots += fields.len();
        ours.insert(
            table.struct_name.clone(),
            members(fields.iter().map(|(name, ty)| (name.as_str(), ty.as_str()))),
        );
    }
    let all = spec
        .tables
        .iter()
        .map(|table| (table.name.as_str(), table.struct_name.as_str()));
    ours.insert("ur_dditable_t".to_owned(), members(all));
    let theirs = reference
        .tables
        .iter()
        .map(|(name, layout)| (name.clone(), of_layout(layout)));
    compare(
        &format!("tables (ur_dditable_t included) of {slots} slots"),
        &theirs.collect(),
        &ours,
    );

    let getters = spec.tables.iter().map(|table| {
        let fields = [
            ("version", "ur_api_version_t"),
            ("pDdiTable", &format!("{} *", table.struct_name)),
        ];
        (format!("urGet{}ProcAddrTable", table.name), members(fields))
    });
    let theirs = reference
        .getters
        .iter()
        .map(|(name, signature)| (name.clone(), of_signature(signature)));
    compare("table getters", &theirs.collect(), &getters.collect());
}

#[test]
fn function_list() {
    let path = include().join("ur_api_funcs.def");
    let text = std::fs::read_to_string(path).expect("include/ur_api_funcs.def is there");
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("_UR_API(")?.strip_suffix(')'));
    let ours: Facts = lines
        .map(|name| (name.to_owned(), "listed".to_owned()))
        .collect();
    let theirs = reference()
        .function_list
        .into_iter()
        .map(|name| (name, "listed".to_owned()));
    compare("entries of ur_api_funcs.def", &theirs.collect(), &ours);
}
