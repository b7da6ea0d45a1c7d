//! The Rust printer, the project's C++ printer and recorded texts of the reference printer agree.
//!
//! scripts/tests/print.cpp makes the same values in C++.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use ur::abi::print::{self, Print};
use ur::abi::*;

const EXPECTED: &str = include_str!("../scripts/tests/print.expected");

/// Lines of a name, a tab and a text.
type Texts = BTreeMap<String, String>;

fn texts(lines: &str) -> Texts {
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, text)| (name.to_owned(), hide_addresses(text)))
        .collect()
}

/// Removes the addresses of objects, which differ between runs. Those of made-up handles are short.
fn hide_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| !c.is_ascii_hexdigit())
            .unwrap_or(part.len());
        if end < 6 {
            let _ = write!(out, "0x{part}");
        } else {
            let _ = write!(out, "0xADDR{}", &part[end..]);
        }
    }
    out
}

fn text(value: &dyn Print) -> String {
    // SAFETY: every value of these tests points to live objects, or its handles are opaque.
    unsafe { print::text(value) }
}

/// The C++ program, compiled once; `None` without a C++ compiler.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(compile).as_deref()
}

fn compile() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("print");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let compiled = Command::new(&compiler)
        .args([
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-I",
        ])
        .arg(root.join("include"))
        .arg(root.join("scripts/tests/print.cpp"))
        .arg("-o")
        .arg(&program)
        .output();
    let compiled = match compiled {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no C++ compiler ({compiler})");
            return None;
        }
        other => other.expect("the compiler runs"),
    };
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    Some(program)
}

/// The output of the C++ program.
fn cpp(arguments: &[&str]) -> Option<String> {
    let ran = Command::new(program()?)
        .args(arguments)
        .output()
        .expect("the program runs");
    assert!(ran.status.success(), "{:?}", ran.status);
    Some(String::from_utf8(ran.stdout).expect("text"))
}

#[test]
fn cpp_prints_what_the_reference_prints() {
    let Some(output) = cpp(&[]) else { return };
    assert_eq!(texts(&output), texts(EXPECTED));
}

#[test]
fn rust_prints_what_the_reference_prints() {
    let mut out = Cases::default();
    enums(&mut out);
    flags(&mut out);
    structs(&mut out);
    unions(&mut out);
    chains(&mut out);
    calls(&mut out);
    infos(&mut out);
    assert_eq!(out.0, texts(EXPECTED));
}

#[derive(Default)]
struct Cases(Texts);

impl Cases {
    fn show(&mut self, name: &str, value: &dyn Print) {
        let old = self.0.insert(name.to_owned(), hide_addresses(&text(value)));
        assert!(old.is_none(), "two cases are called {name}");
    }
}

fn handle<T>(value: usize) -> *mut T {
    std::ptr::without_provenance_mut(value)
}

fn enums(out: &mut Cases) {
    out.show("result", &UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES);
    out.show("result unknown", &ur_result_t(0x7ffffff0));
    out.show("version", &UR_API_VERSION_0_12);
    out.show("version unknown", &ur_api_version_t(0x30007));
    out.show("function", &UR_FUNCTION_ENQUEUE_USM_FILL_2D);
    out.show("bit", &print::Bit(UR_QUEUE_FLAG_ON_DEVICE));
    out.show("bits are no enumerator", &print::Bit(ur_queue_flags_t(3)));
}

fn queue(flags: u32) -> ur_queue_properties_t {
    ur_queue_properties_t {
        flags: ur_queue_flags_t(flags),
        ..Default::default()
    }
}

fn flags(out: &mut Cases) {
    let profiling = UR_QUEUE_FLAG_PROFILING_ENABLE.0;
    out.show("flags none", &queue(0));
    out.show("flags one", &queue(profiling));
    out.show(
        "flags two",
        &queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE.0 | profiling),
    );
    out.show("flags unknown", &queue(0x80000000));
    out.show("flags some unknown", &queue(profiling | 0x00300000));
}

fn structs(out: &mut Cases) {
    out.show("rect", &ur_rect_offset_t { x: 1, y: 2, z: 3 });
    let region = ur_exp_image_copy_region_t {
        srcOffset: ur_rect_offset_t { x: 1, y: 2, z: 3 },
        dstOffset: ur_rect_offset_t { x: 4, y: 5, z: 6 },
        copyExtent: ur_rect_region_t {
            width: 7,
            height: 8,
            depth: 9,
        },
        ..Default::default()
    };
    out.show("nested", &region);
    let modes = ur_exp_sampler_addr_modes_t {
        addrModes: [
            UR_SAMPLER_ADDRESSING_MODE_NONE,
            UR_SAMPLER_ADDRESSING_MODE_CLAMP,
            UR_SAMPLER_ADDRESSING_MODE_REPEAT,
        ],
        ..Default::default()
    };
    out.show("array", &modes);
    let sampler = ur_sampler_desc_t {
        normalizedCoords: 1,
        addressingMode: UR_SAMPLER_ADDRESSING_MODE_REPEAT,
        filterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
        ..Default::default()
    };
    out.show("bool", &sampler);
    let buffer = ur_exp_command_buffer_desc_t {
        isUpdatable: 1,
        isInOrder: 0,
        enableProfiling: 1,
        ..Default::default()
    };
    out.show("ur_bool_t", &buffer);
    let mip = ur_exp_sampler_mip_properties_t {
        minMipmapLevelClamp: 0.1,
        maxMipmapLevelClamp: 1234567.0,
        maxAnisotropy: -2.5e-7,
        mipFilterMode: UR_SAMPLER_FILTER_MODE_NEAREST,
        ..Default::default()
    };
    out.show("float", &mip);
    out.show(
        "negative",
        &ur_exp_file_descriptor_t {
            fd: -1,
            ..Default::default()
        },
    );
    let place = ur_code_location_t {
        functionName: c"main".as_ptr(),
        sourceFile: c"main.cpp".as_ptr(),
        lineNumber: 12,
        columnNumber: 3,
    };
    out.show("strings", &place);
    out.show("string null", &ur_code_location_t::default());
    out.show(
        "bare null",
        &ur_exp_command_buffer_update_pointer_arg_desc_t {
            argIndex: 1,
            ..Default::default()
        },
    );
    let pool = ur_usm_pool_buffer_desc_t {
        size: 64,
        memType: UR_USM_TYPE_DEVICE,
        device: handle(0x1000),
        ..Default::default()
    };
    out.show("handle", &pool);
}

fn unions(out: &mut Cases) {
    let equally = ur_device_partition_value_t { equally: 4 };
    let mut partition = ur_device_partition_property_t {
        r#type: UR_DEVICE_PARTITION_EQUALLY,
        value: equally,
    };
    out.show("union", &partition);
    partition.r#type = UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN;
    out.show("union of flags", &partition);
    partition.r#type = UR_DEVICE_PARTITION_BY_CSLICE;
    out.show("union without member", &partition);
    let list = ur_device_partition_properties_t {
        pProperties: &partition,
        PropCount: 1,
        ..Default::default()
    };
    out.show("pointer to union", &list);
    let tuple = ur_exp_kernel_arg_mem_obj_tuple_t {
        hMem: handle(0x2000),
        flags: UR_MEM_FLAG_READ_ONLY,
    };
    let argument = ur_exp_kernel_arg_properties_t {
        r#type: UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ,
        value: ur_exp_kernel_arg_value_t { memObjTuple: tuple },
        ..Default::default()
    };
    out.show("union of struct", &argument);

    let metadata = [
        ur_program_metadata_t {
            pName: c"answer".as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_UINT64,
            size: 8,
            value: ur_program_metadata_value_t { data64: 1 << 40 },
        },
        ur_program_metadata_t {
            pName: c"target".as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_STRING,
            size: 4,
            value: ur_program_metadata_value_t {
                pString: c"spir64".as_ptr().cast_mut(),
            },
        },
    ];
    let mut program = ur_program_properties_t {
        count: 2,
        pMetadatas: metadata.as_ptr(),
        ..Default::default()
    };
    out.show("list", &program);
    program.count = 0;
    out.show("list empty", &program);
    program = ur_program_properties_t {
        count: 2,
        ..Default::default()
    };
    out.show("list null", &program);
}

fn chains(out: &mut Cases) {
    let mut third = ur_usm_alloc_location_desc_t {
        location: 7,
        ..Default::default()
    };
    for name in ["chain", "chain unknown"] {
        let second = ur_usm_host_desc_t {
            pNext: (&raw const third).cast(),
            ..Default::default()
        };
        let first = ur_usm_desc_t {
            pNext: (&raw const second).cast(),
            hints: UR_USM_ADVICE_FLAG_SET_READ_MOSTLY,
            align: 64,
            ..Default::default()
        };
        out.show(name, &first);
        third.stype = ur_structure_type_t(0x7ffffff0);
    }
}

fn calls(out: &mut Cases) {
    let (mut context, mut device, mut q) = (handle(0x1000), handle(0x2000), handle(0x3000));
    let properties = queue(UR_QUEUE_FLAG_PROFILING_ENABLE.0);
    for (name, mut properties, mut queue) in [
        ("call", &raw const properties, &raw mut q),
        ("call null", null(), null_mut()),
    ] {
        let create = ur_queue_create_params_t {
            phContext: &mut context,
            phDevice: &mut device,
            ppProperties: &mut properties,
            pphQueue: &mut queue,
        };
        out.show(name, &create);
    }

    let mut events = [handle(0x10), handle(0x20), null_mut()];
    let (mut none, mut no_waits) = (0, null());
    let mut event = &raw mut events[2];
    for (name, mut count, mut waits) in [
        ("wait list", 3, (&raw const events).cast()),
        ("wait list null", none, no_waits),
    ] {
        let wait = ur_enqueue_events_wait_params_t {
            phQueue: &mut q,
            pnumEventsInWaitList: &mut count,
            pphEventWaitList: &mut waits,
            pphEvent: &mut event,
        };
        out.show(name, &wait);
    }

    let sizes = [64, 32];
    let launch = ur_enqueue_kernel_launch_with_args_exp_params_t {
        phQueue: &mut q,
        phKernel: &mut handle(0x4000),
        pworkDim: &mut 2,
        ppGlobalWorkOffset: &mut null(),
        ppGlobalWorkSize: &mut sizes.as_ptr(),
        ppLocalWorkSize: &mut null(),
        pnumArgs: &mut 0,
        ppArgs: &mut null(),
        plaunchPropList: &mut null(),
        pnumEventsInWaitList: &mut none,
        pphEventWaitList: &mut no_waits,
        pphEvent: &mut event,
    };
    out.show("first only", &launch);

    let mut native: ur_native_handle_t = 0x5000;
    let native = ur_context_get_native_handle_params_t {
        phContext: &mut context,
        pphNativeContext: &mut &raw mut native,
    };
    out.show("native handle out", &native);

    let callback = ur_event_set_callback_params_t {
        phEvent: &mut events[0],
        pexecStatus: &mut UR_EXECUTION_INFO_COMPLETE.clone(),
        ppfnNotify: &mut None,
        ppUserData: &mut null_mut(),
    };
    out.show("callback null", &callback);
}

fn info(property: ur_device_info_t, bytes: *const c_void, size: usize) -> String {
    let call = ur_device_get_info_params_t {
        phDevice: &mut handle(0x2000),
        ppropName: &mut property.clone(),
        ppropSize: &mut size.clone(),
        ppPropValue: &mut bytes.cast_mut(),
        ppPropSizeRet: &mut null_mut(),
    };
    text(&call)
}

fn infos(out: &mut Cases) {
    let words = [UR_DEVICE_TYPE_GPU.0, 2, 3, 4];
    let sizes = [1024_usize, 512, 64];
    let devices: [ur_device_handle_t; 2] = [handle(0x10), null_mut()];
    let unknown = ur_device_info_t(0x7ffffff0);
    let (words, sizes, devices): (*const c_void, *const c_void, *const c_void) = (
        (&raw const words).cast(),
        (&raw const sizes).cast(),
        (&raw const devices).cast(),
    );
    for (name, property, bytes, size) in [
        ("info enum", UR_DEVICE_INFO_TYPE, words, 4),
        ("info too small", UR_DEVICE_INFO_TYPE, words, 2),
        ("info null", UR_DEVICE_INFO_TYPE, null(), 4),
        ("info unknown", unknown, words, 4),
        ("info number", UR_DEVICE_INFO_VENDOR_ID, words, 16),
        ("info flags", UR_DEVICE_INFO_QUEUE_PROPERTIES, words, 4),
        ("info bool", UR_DEVICE_INFO_IMAGE_SUPPORT, words, 1),
        (
            "info string",
            UR_DEVICE_INFO_NAME,
            c"a device".as_ptr().cast(),
            9,
        ),
        ("info list", UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES, sizes, 24),
        ("info bytes", UR_DEVICE_INFO_UUID, words, 5),
        ("info handle", UR_DEVICE_INFO_PARENT_DEVICE, devices, 8),
        (
            "info handles",
            UR_DEVICE_INFO_COMPONENT_DEVICES,
            devices,
            16,
        ),
    ] {
        out.0.insert(
            name.to_owned(),
            hide_addresses(&info(property, bytes, size)),
        );
    }
}

#[repr(align(16))]
struct Zero([u8; 1024]);

/// Every value below `end` that has a name.
fn names<T: Print>(out: &mut String, end: u32, make: fn(u32) -> T) {
    for value in 0..end {
        let name = text(&make(value));
        if name != "unknown enumerator" {
            let _ = writeln!(out, "{value}\t{name}");
        }
    }
}

/// All values that can be enumerated, in the order of the C++ program.
fn sweep() -> String {
    let mut out = String::new();
    names(&mut out, 0x1000, ur_function_t);
    names(&mut out, 0x1000, ur_result_t);
    names(&mut out, 0xa000, ur_structure_type_t);
    names(&mut out, 0xa000, ur_device_info_t);
    names(&mut out, 0xa000, ur_command_t);

    let mut zero = Zero([0; 1024]);
    let arguments: [*mut c_void; 32] = [(&raw mut zero).cast(); 32];
    for function in 0..0x1000 {
        let function = ur_function_t(function);
        // SAFETY: every argument is zero: null, empty or no property.
        let call = unsafe { print::arguments(function, arguments.as_ptr().cast()) };
        if let Some(call) = call {
            let _ = writeln!(out, "{}\t{}", function.0, text(call));
        }
    }
    for tag in 0..0xa000_u32 {
        zero.0[..4].copy_from_slice(&tag.to_ne_bytes());
        let mut properties = queue(0);
        properties.pNext = (&raw mut zero).cast();
        let chain = text(&properties);
        if !chain.contains("unknown") {
            let _ = writeln!(out, "{tag}\t{chain}");
        }
    }
    out
}

#[test]
fn cpp_and_rust_agree_on_every_call_and_chain() {
    let rust = sweep();
    let every_call = ur_function_t::ALL.len();
    assert!(
        rust.lines().filter(|line| line.contains("\t.")).count() > every_call - 10,
        "{rust}"
    );
    let Some(output) = cpp(&["all"]) else { return };
    let lines = |text: &str| text.lines().map(hide_addresses).collect::<Vec<_>>();
    assert_eq!(lines(&rust), lines(&output));
}

#[test]
fn buffers_get_the_whole_text_or_nothing() {
    let mut buffer = [b'#' as c_char; 32];
    let mut size = 0;
    // SAFETY: the buffer has the given length, and the size is writable.
    let print = |buffer: *mut c_char, length, size: &mut usize| unsafe {
        print::to_buffer(&UR_RESULT_SUCCESS, buffer, length, size)
    };
    assert_eq!(print(null_mut(), 0, &mut size), UR_RESULT_SUCCESS);
    assert_eq!(size, "UR_RESULT_SUCCESS".len() + 1);
    size = 0;
    assert_eq!(
        print(buffer.as_mut_ptr(), 17, &mut size),
        UR_RESULT_ERROR_INVALID_SIZE
    );
    assert_eq!((size, buffer[0]), (18, b'#' as c_char));
    assert_eq!(print(buffer.as_mut_ptr(), 18, &mut size), UR_RESULT_SUCCESS);
    // SAFETY: the text ends with a NUL.
    let written = unsafe { CStr::from_ptr(buffer.as_ptr()) };
    assert_eq!(written, c"UR_RESULT_SUCCESS");
    assert_eq!(buffer[18], b'#' as c_char);
    // SAFETY: a null size is not written.
    let result =
        unsafe { print::to_buffer(&UR_RESULT_SUCCESS, buffer.as_mut_ptr(), 32, null_mut()) };
    assert_eq!(result, UR_RESULT_SUCCESS);
}

#[test]
fn a_chain_that_bites_its_tail_ends() {
    let mut desc = ur_usm_desc_t::default();
    desc.pNext = (&raw const desc).cast();
    let text = text(&desc);
    assert!(text.contains(" (...)"), "{text}");
    assert_eq!(text.matches("ur_usm_desc_t").count(), 33);
}

#[test]
fn text_stays_within_its_buffer_and_is_utf_8() {
    let name = b"a device\0";
    assert!(info(UR_DEVICE_INFO_NAME, name.as_ptr().cast(), 3).contains(" (a d)"));
    assert!(info(UR_DEVICE_INFO_NAME, [0xff_u8, 0].as_ptr().cast(), 2).contains(" (\u{fffd})"));
}

#[test]
fn floats_read_as_streams_show_them() {
    let shown = |value| {
        let mip = ur_exp_sampler_mip_properties_t {
            maxAnisotropy: value,
            ..Default::default()
        };
        let text = text(&mip);
        text.split(".maxAnisotropy = ")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .map(str::to_owned)
    };
    for (value, text) in [
        (0.0, "0"),
        (1.0, "1"),
        (100.0, "100"),
        (999999.5, "1e+06"),
        (123456.0, "123456"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5, "1.5"),
        (3.4e38, "3.4e+38"),
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
    ] {
        assert_eq!(shown(value).as_deref(), Some(text), "{value}");
    }
}
