//! Images in their forms, and what only looks like one. A C compiler makes the shared objects.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::process::Command;

use ur::abi::*;
use ur::object::{Error, Result};

use super::elf::{self, SymbolKind};
use super::image::Image;
use super::memory;
use crate::exec::WorkItemState;

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

impl Image {
    fn load_path(path: &std::path::Path) -> Self {
        load(path.to_string_lossy().as_bytes()).expect("a shared object")
    }
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
    let mut state = WorkItemState {
        global_id: [2, 0, 0],
        ..WorkItemState::default()
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

extern "C" fn one(_: *const *const c_void, _: *mut WorkItemState) {}
extern "C" fn two(_: *const *const c_void, _: *mut WorkItemState) {}

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

/// Whole pages, of which the last cannot be accessed.
struct Pages(*mut u8);

const PAGE_BYTES: usize = 4096;
const PAGES: usize = 3;

impl Pages {
    fn new() -> Self {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: new memory at an address of the system's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE_BYTES,
                protection,
                flags,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let this = Self(start.cast());
        // SAFETY: the last of the pages.
        unsafe { libc::mprotect(this.end().cast(), PAGE_BYTES, libc::PROT_NONE) };
        this
    }

    /// The end of the accessible pages.
    fn end(&self) -> *mut u8 {
        self.0.wrapping_add((PAGES - 1) * PAGE_BYTES)
    }

    /// Stores values at the end, and returns their address.
    fn at_end<T: Copy>(&self, values: &[T]) -> *const u8 {
        let start = self.end().wrapping_sub(size_of_val(values));
        // SAFETY: the values fit into the pages before the end.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), start.cast(), values.len());
        }
        start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by `new`.
        unsafe { libc::munmap(self.0.cast(), PAGES * PAGE_BYTES) };
    }
}

/// A table in the program's own data, without its end. Other data may follow in its section.
static ENDLESS: [Endless; 2] = [Endless(c"one".as_ptr(), one), Endless(c"two".as_ptr(), two)];

#[repr(C)]
struct Endless(
    *const std::ffi::c_char,
    extern "C" fn(*const *const c_void, *mut WorkItemState),
);

// SAFETY: static names and functions.
unsafe impl Sync for Endless {}

#[test]
fn a_table_without_its_end_is_bounded() -> Result<()> {
    let refused = Some(UR_RESULT_ERROR_INVALID_NATIVE_BINARY);
    let (name, function) = (c"one".as_ptr().addr(), one as *const () as usize);
    let load_at = |address: *const u8| {
        // SAFETY: a table whose functions are kernels, or one to be refused.
        unsafe { Image::load(address, 0) }
    };
    // Tables that reach the end of their mapping.
    let pages = Pages::new();
    assert_eq!(code(load_at(pages.at_end(&[[name, function]; 3]))), refused);
    assert_eq!(code(load_at(pages.at_end(&[name]))), refused);
    let whole = load_at(pages.at_end(&[[name, function], [0, 0]]))?;
    assert_eq!(whole.kernel_names(), [c"one"]);
    // One in a section of the program, behind which data of other kinds lies.
    assert_eq!(code(load_at((&raw const ENDLESS).cast())), refused);
    Ok(())
}

#[test]
fn a_table_of_a_shared_object_is_bounded_by_its_section() {
    let scratch = Scratch::new("section");
    // The section holds two entries, and a third follows in the section behind it, in the same segment.
    let path = scratch.compile_with(
        "
        struct entry { const char *name; void (*function)(void); };
        void one(void) {}
        struct entry table[2] __attribute__((section(\"kernels_a\"), aligned(16))) = {{\"a\", one}, {\"b\", one}};
        struct entry more[2] __attribute__((section(\"kernels_b\"), aligned(16))) = {{\"c\", one}, {0, 0}};
        ",
        "-fno-toplevel-reorder",
    );
    let object = Image::load_path(&path);
    let (table, bytes) = object.global(c"table").expect("a variable");
    let (more, _) = object.global(c"more").expect("a variable");
    assert_eq!(more, table + bytes, "the sections are neighbours");
    let at = |address| {
        // SAFETY: a table in a loaded object.
        unsafe { Image::load(std::ptr::with_exposed_provenance(address), bytes) }
    };
    assert_eq!(code(at(table)), Some(UR_RESULT_ERROR_INVALID_NATIVE_BINARY));
    let image = at(more).expect("a whole table");
    assert_eq!(image.kernel_names(), [c"c"]);
    // The file is gone, and the segment bounds the table.
    drop(scratch);
    let image = at(table).expect("a table that goes on in the next section");
    assert_eq!(image.kernel_names().len(), 3);
}

#[test]
fn memory_is_read_as_far_as_it_is_there() {
    let pages = Pages::new();
    let at = pages.at_end(&[1u8, 2, 3, 4]).expose_provenance();
    for read in [memory::read, memory::read_through_file] {
        let mut four = [0; 4];
        assert_eq!((read(at, &mut four), four), (Some(()), [1, 2, 3, 4]));
        assert_eq!(read(at + 1, &mut four), None);
        assert_eq!(read(16, &mut four), None);
        assert_eq!(read(usize::MAX, &mut four), None);
    }
    assert_eq!(memory::bytes(at, 4), Some(vec![1, 2, 3, 4]));
    assert_eq!(memory::bytes(at, usize::MAX), None);
    assert_eq!(memory::text(at), None);
}

#[test]
fn what_a_table_points_to_is_checked() {
    let refused = Some(UR_RESULT_ERROR_INVALID_NATIVE_BINARY);
    let (name, function) = (c"one".as_ptr().addr(), one as *const () as usize);
    let pages = Pages::new();
    let long = vec![b'n'; 2 * PAGE_BYTES];
    let unterminated = pages.at_end(&long).addr();
    let table = |name, function| {
        let entries = [[name, function], [0, 0]];
        // SAFETY: a table that is right, or is to be refused.
        unsafe { Image::load(entries.as_ptr().cast(), size_of_val(&entries)) }
    };
    assert_eq!(code(table(name, function)), None);
    for (what, name, function) in [
        (
            "a name that runs into memory that is not there",
            unterminated,
            function,
        ),
        ("an empty name", c"".as_ptr().addr(), function),
        ("a name at no address", 1, function),
        ("a name at the last address", usize::MAX, function),
        ("a function in data", name, (&raw const ENDLESS).addr()),
        ("a function on the heap", name, long.as_ptr().addr()),
        ("a function on the stack", name, (&raw const refused).addr()),
        ("a function at no address", name, 16),
        ("a function beyond all addresses", name, usize::MAX),
    ] {
        assert_eq!(code(table(name, function)), refused, "{what}");
    }
}

#[test]
fn a_length_beyond_the_binary_is_an_error() {
    let refused = Some(UR_RESULT_ERROR_INVALID_NATIVE_BINARY);
    let scratch = Scratch::new("length");
    let whole = std::fs::read(scratch.compile(KERNELS)).expect("was just written");
    let pages = Pages::new();
    let start = pages.at_end(&whole[..PAGE_BYTES]);
    for bytes in [PAGE_BYTES + 1, usize::MAX / 2, usize::MAX] {
        // SAFETY: the bytes end before the length, which is what is tested.
        let loaded = unsafe { Image::load(start, bytes) };
        assert_eq!(code(loaded), refused, "{bytes}");
    }
    let path = pages.at_end(b"/etc");
    // SAFETY: the path ends before the length, which is what is tested.
    assert_eq!(code(unsafe { Image::load(path, 100) }), refused);
}

/// The place in the file of the value of an entry of the dynamic section.
fn dynamic_entry(object: &[u8], wanted: usize) -> usize {
    let word = |at: usize| {
        let bytes = object[at..at + 8].try_into().expect("eight bytes");
        u64::from_ne_bytes(bytes) as usize
    };
    let headers = word(32);
    let headers = (0..8).map(|index| headers + index * 56);
    let dynamic = headers
        .into_iter()
        .find(|&at| object[at..at + 4] == 2u32.to_ne_bytes());
    let start = word(dynamic.expect("a dynamic segment") + 8);
    let mut entries = (0..100).map(|index| start + index * 16);
    let found = entries.find(|&at| word(at) == wanted);
    found.expect("an entry") + 8
}

#[test]
fn a_shared_object_that_would_end_the_linker_is_refused() {
    let scratch = Scratch::new("linker");
    let whole = std::fs::read(scratch.compile(KERNELS)).expect("was just written");
    let refusal = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        elf::exports(&changed).expect_err("a broken object")
    };
    assert_eq!(refusal(4, &[1]), "no 64-bit ELF object");
    assert_eq!(refusal(6, &[2]), "no 64-bit ELF object");
    assert_eq!(refusal(18, &[0x55]), "made for another machine");
    assert_eq!(refusal(20, &[2]), "of another version of ELF");
    let far = (1u64 << 40).to_ne_bytes();
    let dynamic = "a broken dynamic section";
    // The tables of strings and of symbols, the size of the strings, the hashes, and the relocations.
    for tag in [5, 6, 10, 0x6fff_fef5, 7] {
        assert_eq!(
            refusal(dynamic_entry(&whole, tag), &far),
            dynamic,
            "{tag:#x}"
        );
    }
    assert_eq!(elf::exports(&whole).map(|found| found.len()), Ok(4));
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

#[test]
fn a_shared_object_says_how_many_arguments_a_kernel_takes() -> Result<()> {
    let scratch = Scratch::new("arguments");
    let path = scratch.compile(
        "
        const unsigned ur_num_args_three = 3;
        const unsigned long long ur_num_args_none = 0;
        const unsigned short ur_num_args_short = 2;
        const unsigned ur_num_args_many = 1 << 30;
        void three(void) {}
        void none(void) {}
        void unknown(void) {}
        void many(void) {}
        ",
    );
    let image = Image::load_path(&path);
    assert_eq!(image.arg_count(c"three")?, Some(3));
    assert_eq!(image.arg_count(c"none")?, Some(0));
    assert_eq!(image.arg_count(c"unknown")?, None);
    for wrong in [c"short", c"many"] {
        let code = image.arg_count(wrong).map_err(Error::code);
        assert_eq!(code, Err(UR_RESULT_ERROR_INVALID_NATIVE_BINARY));
    }
    Ok(())
}
