//! Tests with the C library and libm, which every system has.

use std::ffi::{c_char, c_int};

use super::{
    Binding, Library, LoadError, callback_panics, function, guarded_callback, in_callback,
};

const LIBC: &[&str] = &["libc.so.6"];
const LIBM: &[&str] = &["libno_such_library.so.1", "libm.so.6"];

crate::symbols! {
    struct Math {
        required {
            cos: unsafe extern "C" fn(f64) -> f64,
            power = "pow": unsafe extern "C" fn(f64, f64) -> f64,
        }
        optional {
            sqrt: unsafe extern "C" fn(f64) -> f64,
            absent = "ur_no_such_symbol": unsafe extern "C" fn() -> c_int,
        }
    }
}

crate::symbols! {
    #[allow(dead_code)]
    struct Broken {
        required {
            strlen: unsafe extern "C" fn(*const c_char) -> usize,
            ur_no_such_symbol: unsafe extern "C" fn(),
        }
        optional {}
    }
}

crate::symbols! {
    struct Extensions {
        required {}
        optional {
            strlen: unsafe extern "C" fn(*const c_char) -> usize,
            ur_no_such_symbol: unsafe extern "C" fn(),
        }
    }
}

#[test]
fn required_and_optional_symbols() {
    let math = Math::load(LIBM).expect("libm is there");
    // SAFETY: the C library's functions have the types given in the list.
    unsafe {
        assert_eq!((math.cos)(0.0), 1.0);
        assert_eq!((math.power)(2.0, 10.0), 1024.0);
        assert_eq!(math.sqrt.map(|sqrt| sqrt(9.0)), Some(3.0));
    }
    assert!(math.absent.is_none());
    assert_eq!(
        Math::SYMBOLS,
        [
            ("cos", true),
            ("pow", true),
            ("sqrt", false),
            ("ur_no_such_symbol", false)
        ]
    );
}

#[test]
fn a_missing_required_symbol_is_named() {
    let error = Broken::load(LIBC).err().expect("lacks a symbol");
    assert_eq!(
        error,
        LoadError::Symbol {
            library: "libc.so.6".to_owned(),
            symbol: "ur_no_such_symbol"
        }
    );
    assert_eq!(error.to_string(), "libc.so.6 lacks `ur_no_such_symbol`");
}

#[test]
fn a_missing_library_is_named_with_every_candidate() {
    let error = Math::load(&["libno_a.so", "libno_b.so"])
        .err()
        .expect("no such library");
    let LoadError::Library { tried } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        tried
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        ["libno_a.so", "libno_b.so"]
    );
    // The linker's own text starts with the name, which would stand there twice.
    let text = error.to_string();
    assert!(text.contains("; libno_b.so: cannot open "), "{text}");
    assert!(Math::load(&[]).is_err_and(|error| error.to_string() == "no library named"));
}

#[test]
fn a_driver_may_resolve_its_extensions() {
    let library = Library::open("libc.so.6", Binding::Deep).expect("libc is there");
    let mut asked = Vec::new();
    let found = Extensions::resolve(
        |symbol| {
            asked.push(symbol.to_owned());
            library.address(symbol)
        },
        "driver",
    )
    .expect("nothing is required");
    let strlen = found.strlen.expect("libc has it");
    // SAFETY: strlen reads a C string.
    assert_eq!(unsafe { strlen(c"four".as_ptr()) }, 4);
    assert!(found.ur_no_such_symbol.is_none());
    assert_eq!(
        asked,
        [c"strlen".to_owned(), c"ur_no_such_symbol".to_owned()]
    );
    let error = Broken::resolve(|_| std::ptr::null(), "driver")
        .err()
        .expect("required");
    assert_eq!(error.to_string(), "driver lacks `strlen`");
}

#[test]
fn addresses_and_functions() {
    let library = Library::open_first(LIBC).expect("libc is there");
    assert_eq!(library.name(), "libc.so.6");
    assert!(library.address(c"ur_no_such_symbol").is_null());
    // SAFETY: the type is getpid's.
    let getpid = unsafe { function::<unsafe extern "C" fn() -> c_int>(library.address(c"getpid")) };
    // SAFETY: getpid takes nothing.
    let id = getpid.map(|getpid| unsafe { getpid() });
    assert_eq!(id, Some(std::process::id().cast_signed()));
    // SAFETY: a null address is no function.
    assert!(unsafe { function::<unsafe extern "C" fn()>(std::ptr::null()) }.is_none());
}

extern "C" fn compare(a: *const std::ffi::c_void, b: *const std::ffi::c_void) -> c_int {
    guarded_callback(0, || {
        assert!(in_callback());
        // SAFETY: qsort passes elements of the array, which are integers.
        let (a, b) = unsafe { (*a.cast::<i32>(), *b.cast::<i32>()) };
        if a < 0 || b < 0 {
            std::panic::panic_any(Bomb);
        }
        c_int::from(a > b) - c_int::from(a < b)
    })
}

/// A panic payload whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload's destructor");
    }
}

#[test]
fn a_panic_stays_inside_a_callback() {
    let sort = |values: &mut [i32]| {
        // SAFETY: the array and the comparison belong together.
        unsafe {
            libc::qsort(
                values.as_mut_ptr().cast(),
                values.len(),
                size_of::<i32>(),
                Some(compare),
            );
        }
    };
    let mut values = [3, 1, 2];
    sort(&mut values);
    assert_eq!(values, [1, 2, 3]);
    let before = callback_panics();
    sort(&mut [3, -1, 2]);
    assert!(callback_panics() > before);
    assert!(!in_callback());
    assert_eq!(guarded_callback(1, || guarded_callback(2, || 3)), 3);
}
