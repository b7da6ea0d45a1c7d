//! The headers compile in every promised dialect, by either path, alone and together, and their lists are whole.
//! They are far smaller than the reference's.

mod support;

use support::{Dialect, compile, include};
use xtask::model::Spec;

/// Size of the reference's ur_api.h in bytes.
const REFERENCE_SIZE: u64 = 754_979;

/// Headers, with whether only C++ can include them.
fn headers() -> Vec<(&'static str, bool)> {
    let mut all = Vec::new();
    for (name, only_cxx) in [
        ("ur_api.h", false),
        ("ur_ddi.h", false),
        ("ur_print.h", false),
        ("ur_print.hpp", true),
        ("ur_mock.h", false),
        ("ur_pool.h", false),
        ("ur_mock.hpp", true),
    ] {
        assert!(
            include().join(name).exists(),
            "include/{name} is missing: run `cargo xtask gen`"
        );
        all.push((name, only_cxx));
    }
    all
}

#[test]
fn every_header_compiles_alone() {
    let include = include();
    let folder = include.join("unified-runtime");
    let mut count = 0;
    for (name, only_cxx) in headers() {
        for dialect in Dialect::ALL {
            if only_cxx && dialect != Dialect::Cxx17 {
                continue;
            }
            let by_both = [
                (name.to_owned(), &include),
                (format!("unified-runtime/{name}"), &include),
                (name.to_owned(), &folder),
            ];
            for (path, root) in by_both {
                let source = format!(
                    "#include \"{path}\"\n#include <{path}>\nint main(void) {{ return 0; }}\n"
                );
                if let Err(message) = compile(dialect, &source, &[root], &[]) {
                    panic!("{path} as {dialect:?}:\n{message}");
                }
                count += 1;
            }
        }
    }
    println!("{count} compilations with -Wall -Wextra -Werror -pedantic");
}

#[test]
fn headers_compile_together() {
    // The printers' headers walk the list of calls, and leave that of functions to its user.
    let source = "#define _UR_API(name) listed_##name,\n\
                  #include \"unified-runtime/ur_ddi.h\"\n#include \"ur_print.h\"\n#include \"ur_api.h\"\n\
                  #ifdef __cplusplus\n#include \"ur_print.hpp\"\n#endif\n\
                  enum listed {\n#include \"unified-runtime/ur_api_funcs.def\"\n};\n";
    for dialect in Dialect::ALL {
        let source = format!("{source}int main(void) {{ return listed_urAdapterGet; }}\n");
        if let Err(message) = compile(dialect, &source, &[&include()], &[]) {
            panic!("{dialect:?}:\n{message}");
        }
    }
}

/// Every argument of every call is listed, and no macro of the list stays.
#[test]
fn calls_are_listed_with_their_arguments() {
    let source = r#"
#include "ur_print.h"
struct ur_loader_tear_down_params_t {};
#define CHECK(holds, name) typedef char name[(holds) ? 1 : -1];
#define UR_PARAMS(Name, name, NAME, params) \
  CHECK(sizeof(struct ur_##name##_params_t) == sizeof(void *) * (0 params), arguments_of_##name)
#define UR_PARAM(param) + 1
#include "ur_api_funcs.def"
#define UR_PARAMS(Name, name, NAME, params) params + 1
enum { calls = 0
#include "ur_api_funcs.def"
};
CHECK(calls == COUNT, every_call)
#if defined(UR_PARAMS) || defined(UR_PARAM) || defined(UR_PARAM_FLAGS) || defined(UR_PARAM_NATIVE) || \
    defined(UR_PARAM_BARE) || defined(UR_PARAM_LIST) || defined(UR_PARAM_INFO)
#error "a macro of the list is left"
#endif
"#;
    let spec = Spec::load(&xtask::repository().join("spec")).expect("spec/ is consistent");
    let source = source.replace("COUNT", &spec.functions().count().to_string());
    // Standard C has no structure without members.
    if let Err(message) = compile(Dialect::C99, &source, &[&include()], &["-Wno-pedantic"]) {
        panic!("{message}");
    }
}

#[test]
fn api_header_is_small() {
    let size = std::fs::metadata(include().join("ur_api.h"))
        .expect("include/ur_api.h is there")
        .len();
    assert!(
        size * 9 < REFERENCE_SIZE * 5,
        "ur_api.h has {size} bytes, more than 5/9 of the reference's"
    );
    println!("ur_api.h: {size} bytes, the reference's {REFERENCE_SIZE}");
}
