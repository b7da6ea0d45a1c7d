//! Compares our headers with the reference's facts, in C and in C++, by assertions of the compiler.
//!
//! `--nocapture` shows the number of facts in each test.

mod support;

use std::fmt::Write as _;
use support::{Dialect, compile, include};
use xtask::reference::{Macro, Reference};

fn reference() -> Reference {
    Reference::load().expect("scripts/abi/reference.json is readable")
}

/// Assertions about our headers in the reference's terms, with the number of facts.
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
        // Commas in a type must not split the macro's arguments.
        let _ = writeln!(
            self.text,
            "typedef __typeof__({reference}) reference_{};",
            self.count
        );
        let _ = writeln!(self.text, "SAME({ours}, reference_{});", self.count);
        self.count += 1;
    }

    /// Compiles the assertions. Returns the number of facts.
    fn compile(self) -> usize {
        // `-pedantic` would refuse the compiler's own `__typeof__`. headers.rs uses it on the headers.
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

/// Each of these wrong assertions must fail.
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
