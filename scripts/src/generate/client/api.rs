//! `api.rs`: every public function of a loader, as a method that counts its calls.

use crate::generate::{abi, rust};
use crate::model::{Function, Spec};
use std::fmt::Write as _;

pub(super) const DOC: &str = "Every public function of a loader, by name.\n\n\
The methods are safe to name although C promises nothing about their arguments: each call is\n\
itself what is under test, and what a callee breaks stays in the process that runs the test.";

pub(super) fn api(spec: &Spec) -> String {
    let functions: Vec<&Function> = spec.functions().collect();
    let mut fields = String::new();
    let mut loads = String::new();
    let mut methods = String::new();
    let mut names = String::new();
    for (index, function) in functions.iter().enumerate() {
        let name = &function.name;
        let _ = writeln!(fields, "{name}: {},", abi::pfn(function));
        let _ = writeln!(
            loads,
            "{name}: unsafe {{ function(library.address(c{name:?})) }},"
        );
        let _ = writeln!(names, "{name:?},");
        let arguments: Vec<String> = function
            .params
            .iter()
            .map(|param| rust::ident(&param.name))
            .collect();
        let _ = write!(
            methods,
            "pub fn {name}(&self, {}) -> Status {{
                let result = self.symbols.{name}.map(|call| unsafe {{ call({}) }});
                self.calls.record({index}, result)
            }}\n",
            rust::params(&function.params),
            arguments.join(", ")
        );
    }
    format!(
        "#![allow(non_snake_case, clippy::too_many_arguments, clippy::undocumented_unsafe_blocks)]
        use crate::status::{{Calls, Status}};
        use std::ffi::{{c_char, c_void}};
        use ur::abi::*;
        use ur::dl::{{Library, function}};
        /// Names of all functions, in the order of the call counters.
        pub const FUNCTIONS: [&str; {count}] = [{names}];
        struct Symbols {{ {fields} }}
        /// A loader library, opened, with a count of the calls made to each of its functions.
        pub struct Api {{
            symbols: Symbols,
            calls: Calls,
            _library: Library,
        }}
        impl Api {{
            /// Looks up all functions of an open library; a missing one is an error when it is called.
            pub fn new(library: Library) -> Self {{
                let symbols = Symbols {{ {loads} }};
                Self {{ symbols, calls: Calls::new(&FUNCTIONS), _library: library }}
            }}
            pub fn calls(&self) -> &Calls {{ &self.calls }}
            {methods}
        }}\n",
        count = functions.len(),
    )
}
