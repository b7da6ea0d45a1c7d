//! Images in their forms, and what only looks like one. A C compiler makes the shared objects.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::process::Command;

use ur::abi::*;
use ur::object::{Error, Result};

use super::elf::{self, SymbolKind};
use super::image::Image;
use crate::exec::State;

/// A directory of one test's own, gone after it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("ur-native-cpu-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Self(path)
    }

    /// Compiles a C source to a shared object; its path.
    fn compile(&self, source: &str) -> PathBuf {
        self.compile_with(source, "-O1")
    }

    fn compile_with(&self, source: &str, option: &str) -> PathBuf {
        let (from, to) = (self.0.join("kernels.c"), self.0.join("kernels.so"));
        std::fs::write(&from, source).expect("a file can be written");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(compiler);
        let done = command
            .args(["-shared", "-fPIC", option, "-o"])
            .arg(&to)
            .arg(&from)
            .status();
        assert!(done.expect("there is a C compiler").success());
        to
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const KERNELS: &str = "
    #include <stddef.h>
    struct state { size_t global_id[3]; };
    int counter = 40;
    static int hidden = 1;
    const long long table[5] = {1, 2, 3, 4, 5};
    void add_counter(void *const *args, struct state *st) {
        ((int *)args[0])[st->global_id[0]] = counter + hidden + (int)st->global_id[0];
    }
    static void not_exported(void) {}
    __attribute__((visibility(\"hidden\"))) void inside(void) { not_exported(); }
    void other(void *const *args, struct state *st) { (void)args; (void)st; inside(); }
";

fn load(bytes: &[u8]) -> Result<Image> {
    // SAFETY: the tests' binaries are what they are said to be, or no binaries at all.
    unsafe { Image::load(bytes.as_ptr(), bytes.len()) }
}

fn code(result: Result<Image>) -> Option<ur_result_t> {
    result.err().map(Error::code)
}

fn check_kernels(image: &Image) {
    let mut names = image.kernel_names();
    names.sort_unstable();
    assert_eq!(names, [c"add_counter", c"other"]);
    assert!(
        image.function(c"printf").is_none(),
        "what it uses is not its own"
    );
    assert!(image.function(c"counter").is_none() && image.global(c"other").is_none());
    let (address, bytes) = image.global(c"counter").expect("a variable");
    assert_eq!(
        (bytes, image.global(c"table").map(|(_, bytes)| bytes)),
        (4, Some(40))
    );
    // SAFETY: the variable is an `int` of the source.
    unsafe { std::ptr::with_exposed_provenance_mut::<i32>(address).write(100) };
    let kernel = image.function(c"add_counter").expect("a kernel");
    let mut result = [0i32; 4];
    let args = [result.as_mut_ptr().cast_const().cast::<c_void>()];
    let mut state = State {
        global_id: [2, 0, 0],
        ..State::default()
    };
    // SAFETY: the kernel takes one pointer to integers.
    unsafe { kernel(args.as_ptr(), &raw mut state) };
    assert_eq!(result, [0, 0, 103, 0]);
}

#[test]
fn a_shared_object_by_path_and_by_bytes() -> Result<()> {
    let scratch = Scratch::new("forms");
    let path = scratch.compile(KERNELS);
    let mut name = path.to_string_lossy().into_owned().into_bytes();
    check_kernels(&load(&name)?);
    name.extend(b"\0and more");
    let image = load(&name)?;
    assert_eq!(image.binary(), &name[..name.len() - 8]);
    let bytes = std::fs::read(&path).expect("was just written");
    // Each has its own variables, so each begins with 40.
    for _ in 0..3 {
        let (one, other) = (load(&bytes)?, load(&bytes)?);
        assert_ne!(one.global(c"counter"), other.global(c"counter"));
        check_kernels(&one);
        check_kernels(&other);
        assert!(one.binary() == bytes);
    }
    Ok(())
}

#[test]
fn a_library_that_stays_keeps_its_name() -> Result<()> {
    let scratch = Scratch::new("nodelete");
    let source = |value: i32| format!("int value = {value}; void k(void) {{}}");
    let path = scratch.compile_with(&source(1), "-Wl,-z,nodelete");
    let stays = std::fs::read(&path).expect("was just written");
    let next = std::fs::read(scratch.compile(&source(2))).expect("was just written");
    drop(load(&stays)?);
    let image = load(&next)?;
    let (address, _) = image.global(c"value").expect("a variable");
    // SAFETY: the variable is an `int` of the source.
    let value = unsafe { *std::ptr::with_exposed_provenance::<i32>(address) };
    assert_eq!(value, 2);
    Ok(())
}

extern "C" fn one(_: *const *const c_void, _: *mut State) {}
extern "C" fn two(_: *const *const c_void, _: *mut State) {}

#[repr(C)]
struct Entry(*const std::ffi::c_char, *const c_void);

#[test]
fn a_table_is_read_to_its_end_whatever_its_length() -> Result<()> {
    let table = [
        Entry(c"one".as_ptr(), one as *const c_void),
        Entry(c"/two".as_ptr(), two as *const c_void),
        Entry(std::ptr::null(), std::ptr::null()),
    ];
    for bytes in [0, 1, size_of_val(&table)] {
        // SAFETY: a table of kernels; a length below its own.
        let image = unsafe { Image::load(table.as_ptr().cast(), bytes) }?;
        assert_eq!(image.kernel_names(), [c"one", c"/two"]);
        assert_eq!(
            image.function(c"/two").map(|code| code as usize),
            Some(two as *const () as usize)
        );
        assert!(image.function(c"three").is_none() && image.global(c"one").is_none());
        assert!(load(&image.binary())?.function(c"one").is_some());
    }
    Ok(())
}

#[test]
fn what_is_no_binary_is_an_error() {
    let scratch = Scratch::new("broken");
    let whole = std::fs::read(scratch.compile(KERNELS)).expect("was just written");
    let refused = Some(UR_RESULT_ERROR_INVALID_NATIVE_BINARY);
    for bytes in [8, 63, 64, 200, whole.len() / 2] {
        assert_eq!(code(load(&whole[..bytes])), refused, "cut off at {bytes}");
    }
    let mut foreign = whole.clone();
    foreign[18] ^= 0x55;
    assert_eq!(code(load(&foreign)), refused);
    let program = std::fs::read("/proc/self/exe").expect("this program");
    assert!(
        elf::exports(&program).is_ok_and(|symbols| symbols.iter().all(|one| !one.name.is_empty()))
    );
    for seed in 0..2000usize {
        let mut changed = whole.clone();
        let at = seed.wrapping_mul(0x9e37_79b9) % 1024;
        changed[at % whole.len()] ^= (seed % 255 + 1) as u8;
        // Whatever comes out: no panic, and no bytes from outside.
        let _ = elf::exports(&changed);
    }
    assert_eq!(code(load(b"/no/such/file\0")), refused);
    assert_eq!(code(load(b"/etc/passwd\0")), refused);
    let garbage: Vec<u8> = (0..4096).map(|at| (at * 31 % 251) as u8 | 1).collect();
    assert_eq!(code(load(&garbage)), refused);
    let no_name = [
        Entry(8 as *const _, one as *const c_void),
        Entry(std::ptr::null(), std::ptr::null()),
    ];
    // SAFETY: a table whose name is not there, which is what is tested.
    let loaded = unsafe { Image::load(no_name.as_ptr().cast(), 32) };
    assert_eq!(code(loaded), refused);
    // SAFETY: no binary at all.
    let none = unsafe { Image::load(std::ptr::null(), 8) };
    assert_eq!(code(none), refused);
    // SAFETY: nothing is there, which is what is tested.
    assert_eq!(code(unsafe { Image::load(16 as *const u8, 0) }), refused);
}

#[test]
fn symbols_are_distinguished() {
    let scratch = Scratch::new("symbols");
    let bytes = std::fs::read(scratch.compile(KERNELS)).expect("was just written");
    let symbols = elf::exports(&bytes).expect("a shared object");
    let kind = |name: &CStr| {
        symbols
            .iter()
            .find(|one| one.name.as_c_str() == name)
            .map(|one| one.kind)
    };
    assert_eq!(kind(c"other"), Some(SymbolKind::Function));
    assert_eq!(kind(c"table"), Some(SymbolKind::Variable));
    assert_eq!(
        [kind(c"inside"), kind(c"not_exported"), kind(c"hidden")],
        [None; 3]
    );
}
