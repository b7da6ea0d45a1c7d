//! Our specification and our headers against the reference's facts, item by item and offline.
//!
//! `tests/abi_layout.rs` does the same for the types of running Rust code, `symbols.rs` for what the
//! built loader exports. Run with `--nocapture` to see how many facts each test compares.

mod support;

use std::fmt::Write as _;
use support::{Dialect, Facts, compare, compile, include};
use xtask::model::{Item, Param, Spec};
use xtask::reference::{Layout, Macro, Reference, Signature};

fn reference() -> Reference {
    Reference::load().expect("scripts/abi/reference.json is readable")
}

fn spec() -> Spec {
    Spec::load(&xtask::repository().join("spec")).expect("spec/ is consistent")
}

/// `name type, name type` with the blanks of the specification's and the reference's types alike.
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

/// Assertions about our headers in the reference's terms, and how many facts they state.
struct Assertions {
    dialect: Dialect,
    /// C or C++.
    text: String,
    count: usize,
}

impl Assertions {
    fn new(dialect: Dialect) -> Self {
        let mut text = String::from("#include \"ur_ddi.h\"\n#include <stddef.h>\n");
        text += match dialect {
            Dialect::Cxx17 => {
                "#include <cstring>\n#include <type_traits>\n\
                 #define SAME(a, b) static_assert(std::is_same<a, b>::value, #a)\n\
                 #define CHECK(a) static_assert(a, #a)\n\
                 #define ALIGN(a) alignof(a)\n\
                 #define FIELD(a, b) decltype(static_cast<a *>(nullptr)->b)\n"
            }
            _ => {
                "#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), #a)\n\
                 #define CHECK(a) _Static_assert(a, #a)\n\
                 #define ALIGN(a) _Alignof(a)\n\
                 #define FIELD(a, b) __typeof__(((a *)0)->b)\n"
            }
        };
        Self {
            dialect,
            text,
            count: 0,
        }
    }

    fn check(&mut self, condition: &str) {
        let _ = writeln!(self.text, "CHECK({condition});");
        self.count += 1;
    }

    fn same(&mut self, ours: &str, reference: &str) {
        // Commas in a type must not part the macro's arguments.
        let _ = writeln!(
            self.text,
            "typedef __typeof__({reference}) reference_{};",
            self.count
        );
        let _ = writeln!(self.text, "SAME({ours}, reference_{});", self.count);
        self.count += 1;
    }

    /// Compiles what was asserted and returns the number of facts.
    fn compile(self) -> usize {
        // Pedantry would object to the compiler's own `__typeof__`; headers.rs applies it to the headers.
        if let Err(message) = compile(self.dialect, &self.text, &[&include()], &["-Wno-pedantic"]) {
            panic!("{:?}:\n{message}", self.dialect);
        }
        self.count
    }
}

fn header_values(dialect: Dialect) {
    let reference = reference();
    let mut enumerators = Assertions::new(dialect);
    let mut tags = Assertions::new(dialect);
    for (tag, values) in &reference.enums {
        for (name, value) in values {
            enumerators.check(&format!("{name} == {value}"));
            if dialect == Dialect::Cxx17 {
                enumerators.same(&format!("decltype({name})"), tag);
                enumerators.count -= 1;
            }
        }
        tags.same(tag, &format!("enum {tag}"));
    }
    for (handle, tag) in &reference.handles {
        tags.same(handle, &format!("struct {tag} *"));
    }
    for name in reference.structs.keys().chain(reference.tables.keys()) {
        tags.same(name, &format!("struct {name}"));
    }
    for name in reference.unions.keys() {
        tags.same(name, &format!("union {name}"));
    }
    println!(
        "{dialect:?}: {} enumerators and {} tags agree",
        enumerators.compile(),
        tags.compile()
    );
}

fn header_macros(dialect: Dialect) {
    let mut macros = Assertions::new(dialect);
    for (name, found) in &reference().macros {
        match found {
            Macro::Object(value) if value.starts_with('"') => {
                macros.check(&format!("sizeof({name}) == sizeof({value})"));
                let text = value.trim_matches('"');
                for (at, letter) in text.chars().enumerate() {
                    if dialect == Dialect::Cxx17 {
                        let _ = writeln!(macros.text, "CHECK({name}[{at}] == '{letter}');");
                    }
                }
            }
            Macro::Object(value) => {
                macros.check(&format!("{name} == {value}"));
                macros.same(
                    &format!("__typeof__({name})"),
                    &format!("__typeof__({value})"),
                );
                macros.count -= 1;
            }
            Macro::Function { args, body } => {
                let values = ["5", "0x10007"];
                let _ = writeln!(
                    macros.text,
                    "#define REFERENCE_{name}({}) {body}",
                    args.join(", ")
                );
                let arguments = values[..args.len()].join(", ");
                macros.check(&format!(
                    "{name}({arguments}) == REFERENCE_{name}({arguments})"
                ));
            }
        }
    }
    println!("{dialect:?}: {} macros agree", macros.compile());
}

fn header_layouts(dialect: Dialect) {
    let reference = reference();
    let mut layouts = 0;
    let mut assertions = Assertions::new(dialect);
    for (name, layout) in reference.layouts() {
        assertions.check(&format!(
            "sizeof({name}) == {} && ALIGN({name}) == {}",
            layout.size, layout.align
        ));
        layouts += 1;
        for (field, ty, offset) in &layout.fields {
            assertions.check(&format!("offsetof({name}, {field}) == {offset}"));
            assertions.same(&format!("FIELD({name}, {field})"), ty);
            assertions.count -= 1;
        }
    }
    let facts = assertions.compile();
    println!(
        "{dialect:?}: {layouts} layouts with {} offsets and types of members agree",
        facts - layouts
    );
}

fn header_prototypes(dialect: Dialect) {
    let reference = reference();
    let mut functions = Assertions::new(dialect);
    for (name, signature) in reference.functions.iter().chain(&reference.getters) {
        functions.same(
            &format!("__typeof__(&{name})"),
            &format!("{} (*)({})", signature.returns, signature.types()),
        );
    }
    let mut types = Assertions::new(dialect);
    for (name, function) in &reference.pointers {
        let signature = reference
            .signature(function)
            .expect("a pointer's function is known");
        types.same(
            name,
            &format!("{} (*)({})", signature.returns, signature.types()),
        );
    }
    for (name, signature) in &reference.callbacks {
        types.same(
            name,
            &format!("{} (*)({})", signature.returns, signature.types()),
        );
    }
    for (name, ty) in &reference.typedefs {
        types.same(name, ty);
    }
    println!(
        "{dialect:?}: {} prototypes ({} functions, {} table getters) and {} pointer types, callbacks and typedefs agree",
        functions.compile(),
        reference.functions.len(),
        reference.getters.len(),
        types.compile()
    );
}

#[test]
fn headers_in_c() {
    header_values(Dialect::C11);
    header_macros(Dialect::C11);
    header_layouts(Dialect::C11);
    header_prototypes(Dialect::C11);
}

#[test]
fn headers_in_cxx() {
    header_values(Dialect::Cxx17);
    header_macros(Dialect::Cxx17);
    header_layouts(Dialect::Cxx17);
    header_prototypes(Dialect::Cxx17);
}

#[test]
fn print_header() {
    let printers = reference().printers;
    for dialect in [Dialect::C11, Dialect::Cxx17] {
        let mut functions = Assertions::new(dialect);
        functions.text += "#include \"ur_print.h\"\n";
        for (name, signature) in &printers {
            functions.same(
                &format!("__typeof__(&{name})"),
                &format!("{} (*)({})", signature.returns, signature.types()),
            );
        }
        println!(
            "{dialect:?}: {} printers' prototypes agree",
            functions.compile()
        );
    }
}

/// The assertions would notice: each of these is wrong in one thing.
#[test]
fn a_difference_does_not_compile() {
    for dialect in [Dialect::C11, Dialect::Cxx17] {
        let wrong: [fn(&mut Assertions); 5] = [
            |facts| facts.check("UR_RESULT_ERROR_INVALID_VALUE == 5"),
            |facts| facts.check("offsetof(ur_usm_desc_t, hints) == 12"),
            |facts| facts.same("FIELD(ur_usm_desc_t, pNext)", "void *"),
            |facts| facts.same("ur_queue_handle_t", "struct ur_event_handle_t_ *"),
            |facts| {
                facts.same(
                    "__typeof__(&urQueueFinish)",
                    "ur_result_t (*)(ur_event_handle_t)",
                )
            },
        ];
        for state in wrong {
            let mut facts = Assertions::new(dialect);
            state(&mut facts);
            let text = facts.text.clone();
            assert!(
                compile(dialect, &text, &[&include()], &["-Wno-pedantic"]).is_err(),
                "{dialect:?} took {text}"
            );
        }
    }
}
