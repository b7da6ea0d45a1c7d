//! The headers compile in every promised dialect, by either path, alone and together. They are far smaller
//! than the reference's.

mod support;

use support::{Dialect, compile, include};

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
    let source = "#include \"unified-runtime/ur_ddi.h\"\n#include \"ur_print.h\"\n#include \"ur_api.h\"\n\
                  #define _UR_API(name) name,\n\
                  enum listed {\n#include \"unified-runtime/ur_api_funcs.def\"\n};\n";
    // A struct member for each entry shows that the list is an X macro.
    let source = source.replace(
        "#define _UR_API(name) name,",
        "#define _UR_API(name) listed_##name,",
    );
    for dialect in Dialect::ALL {
        let source = format!("{source}int main(void) {{ return listed_urAdapterGet; }}\n");
        if let Err(message) = compile(dialect, &source, &[&include()], &[]) {
            panic!("{dialect:?}:\n{message}");
        }
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
