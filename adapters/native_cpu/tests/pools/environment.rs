//! What the process's environment and limits make of the adapter, and what it says at its end.

use crate::fixture::*;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use ur::abi::*;

#[repr(C)]
struct Entry(
    *const c_char,
    Option<unsafe extern "C" fn(*const *mut c_void, *const usize)>,
);

// SAFETY: static names and functions.
unsafe impl Sync for Entry {}

static TABLE: [Entry; 2] = [Entry(c"deep".as_ptr(), Some(deep)), Entry(null(), None)];

/// Uses so many bytes of stack.
fn use_stack(bytes: usize) -> usize {
    const FRAME: usize = 64 << 10;
    let mut frame = MaybeUninit::<[u8; FRAME]>::uninit();
    let own: *mut u8 = frame.as_mut_ptr().cast();
    // SAFETY: the byte is the frame's.
    unsafe { own.write_volatile(1) };
    let below = bytes.checked_sub(FRAME).map_or(0, use_stack);
    // SAFETY: the byte is the frame's, and was written.
    below + usize::from(unsafe { own.read_volatile() })
}

/// args: the bytes of stack to use, by value.
unsafe extern "C" fn deep(args: *const *mut c_void, _: *const usize) {
    // SAFETY: the test passes this argument.
    use_stack(unsafe { *(*args).cast::<usize>() });
}

unsafe extern "C" fn deep_task(data: *mut c_void) {
    use_stack(data.addr());
}

fn kernel(fixture: &Fixture) -> ur_kernel_handle_t {
    let (mut program, mut kernel) = (null_mut(), null_mut());
    let (mut device, mut bytes) = (fixture.device, size_of_val(&TABLE));
    let mut binary = TABLE.as_ptr().cast::<u8>();
    ok!(
        fixture,
        Program.pfnCreateWithBinary(
            fixture.context,
            1,
            &raw mut device,
            &raw mut bytes,
            &raw mut binary,
            null(),
            &raw mut program
        )
    );
    ok!(fixture, Program.pfnBuild(fixture.context, program, null()));
    ok!(
        fixture,
        Kernel.pfnCreate(program, c"deep".as_ptr(), &raw mut kernel)
    );
    ok!(fixture, Program.pfnRelease(program));
    kernel
}

/// Runs this program's test with soft limits of so many KiB of stack, or `unlimited`.
fn limited(test: &str, stack: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -s $0 && exec \"$@\"", stack]);
    command
        .arg(std::env::current_exe().expect("this test has a file"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("UR_TEST_CHILD", test)
        .envs(variables.iter().copied());
    // No core file of those that are to crash.
    // SAFETY: the call only sets a limit, in the child before it runs the shell.
    unsafe {
        command.pre_exec(|| {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            Ok(())
        })
    };
    command.output().expect("a shell")
}

#[test]
fn kernels_and_host_tasks_have_the_stack_that_ulimit_gives() {
    const TEST: &str = "environment::kernels_and_host_tasks_have_the_stack_that_ulimit_gives";
    if is_child(TEST) {
        return run_deep();
    }
    let run = |stack, mib: usize| {
        let bytes = (mib << 20).to_string();
        let output = limited(TEST, stack, &[("BYTES", &bytes)]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    for (stack, mib) in [("8192", 4), ("65536", 48), ("unlimited", 4)] {
        let (fine, text) = run(stack, mib);
        assert!(fine, "{mib} MiB of {stack}: {text}");
    }
    let (fine, _) = run("2048", 4);
    assert!(!fine, "4 MiB of stack where 2 are allowed");
}

/// A kernel and a host task that use so many bytes of stack.
fn run_deep() {
    let bytes: usize = std::env::var("BYTES")
        .expect("set by the parent")
        .parse()
        .expect("a number");
    let fixture = Fixture::new();
    let queue = fixture.queue(IN_ORDER);
    let kernel = kernel(&fixture);
    let argument = ur_exp_kernel_arg_properties_t {
        stype: UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
        pNext: null_mut(),
        r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
        index: 0,
        size: size_of::<usize>(),
        value: ur_exp_kernel_arg_value_t {
            value: (&raw const bytes).cast(),
        },
    };
    let items = 1usize;
    ok!(
        fixture,
        EnqueueExp.pfnKernelLaunchWithArgsExp(
            queue,
            kernel,
            1,
            null(),
            &raw const items,
            null(),
            1,
            &raw const argument,
            null(),
            0,
            null(),
            null_mut()
        )
    );
    fixture.finish(queue);
    ok!(
        fixture,
        EnqueueExp.pfnHostTaskExp(
            queue,
            Some(deep_task),
            std::ptr::without_provenance_mut(bytes),
            null(),
            0,
            null(),
            null_mut()
        )
    );
    fixture.finish(queue);
}

#[test]
fn a_setting_that_is_none_is_said_once_at_the_default_level() {
    const TEST: &str = "environment::a_setting_that_is_none_is_said_once_at_the_default_level";
    if is_child(TEST) {
        for _ in 0..2 {
            let fixture = Fixture::new();
            kernel(&fixture);
            let pool = fixture.pool(0);
            let queue = fixture.queue(IN_ORDER);
            assert!(fixture.alloc(queue, pool, MIB, &[]).is_ok());
        }
        return;
    }
    for (name, value, accepted) in [
        (
            "SYCL_NATIVE_CPU_HOST_THREADS",
            "0",
            "a number from 1 to 4096",
        ),
        (
            "SYCL_NATIVE_CPU_HOST_THREADS",
            "four",
            "a number from 1 to 4096",
        ),
        ("UR_NATIVE_CPU_KERNEL_FORM", "groups", "item, group"),
        ("UR_POOL_WAITS", "sometimes", "bounded, never, always"),
        ("UR_POOL_DETERMINISTIC", "2", "1, true, yes, 0, false, no"),
    ] {
        let (_, err) = child(TEST, &[(name, value)]);
        let line = format!(
            "<NATIVE_CPU>[ERROR]: {name}: `{value}` is not understood; accepted: {accepted}; used \
             instead: "
        );
        assert_eq!(err.matches(name).count(), 1, "{err}");
        assert!(err.contains(&line), "{line} is not in\n{err}");
    }
    let (_, err) = child(
        TEST,
        &[
            ("SYCL_NATIVE_CPU_HOST_THREADS", "2"),
            ("UR_POOL_DETERMINISTIC", "yes"),
        ],
    );
    assert_eq!(err, "");
}

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn hear(_: ur_logger_level_t, text: *const c_char, _: *mut c_void) {
    // SAFETY: the adapter gives a C string.
    let text = unsafe { CStr::from_ptr(text) };
    let mut heard = HEARD.lock().expect("unpoisoned");
    heard.push(text.to_string_lossy().into_owned());
}

/// A callback whose data is gone.
unsafe extern "C" fn gone(_: ur_logger_level_t, _: *const c_char, _: *mut c_void) {
    std::process::abort();
}

#[test]
fn what_is_alive_is_said_of_an_adapter_that_is_not_released() {
    const TEST: &str = "environment::what_is_alive_is_said_of_an_adapter_that_is_not_released";
    const ALIVE: &str =
        "objects alive at the end, where the adapter was not released: 1 Context, 1 Queue";
    if is_child(TEST) {
        let fixture = Fixture::new();
        fixture.queue(IN_ORDER);
        let (adapter, level) = (fixture.adapter, UR_LOGGER_LEVEL_INFO);
        ok!(
            fixture,
            Adapter.pfnSetLoggerCallback(adapter, Some(gone), null_mut(), level)
        );
        std::mem::forget(fixture);
        return;
    }
    let (_, err) = child(TEST, &[]);
    assert_eq!(err, "");
    let (_, err) = child(TEST, &[("UR_LOG_NATIVE_CPU", "level:info")]);
    assert_eq!(err.matches(ALIVE).count(), 1, "{err}");
}

#[test]
fn what_is_left_alive_is_said_to_those_who_ask() {
    const TEST: &str = "environment::what_is_left_alive_is_said_to_those_who_ask";
    const ALIVE: &str = "objects alive after the last release: 1 Context, 1 Queue";
    if is_child(TEST) {
        let fixture = Fixture::new();
        fixture.queue(IN_ORDER);
        // As libsycl does, which shows what it hears.
        let level = UR_LOGGER_LEVEL_WARN;
        let adapter = fixture.adapter;
        ok!(
            fixture,
            Adapter.pfnSetLoggerCallback(adapter, Some(hear), null_mut(), level)
        );
        ok!(fixture, Adapter.pfnRelease(adapter));
        assert_eq!(*HEARD.lock().expect("unpoisoned"), Vec::<String>::new());
        return;
    }
    let (_, err) = child(TEST, &[]);
    assert_eq!(err, "");
    let (_, err) = child(TEST, &[("UR_LOG_NATIVE_CPU", "level:warning")]);
    assert_eq!(err, "");
    let (_, err) = child(TEST, &[("UR_LOG_NATIVE_CPU", "level:info")]);
    assert!(err.contains(ALIVE) && !err.contains("at the end"), "{err}");
}
