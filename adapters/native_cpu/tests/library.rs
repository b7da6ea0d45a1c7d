//! The built library as a loader sees it: one life of it from the first reference to the last,
//! twice, and in a forked child.

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use ur::abi::*;
use ur::dl::{Binding, Library, function};

fn path() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a file");
    test.with_file_name("libur_adapter_native_cpu.so")
}

/// Calls a table's function and expects success.
macro_rules! ok {
    ($ur:ident.$table:ident.$function:ident($($argument:expr),* $(,)?)) => {{
        let function = $ur.$table.$function.expect("no slot is empty");
        // SAFETY: the arguments are live objects and memory of the test.
        let result = unsafe { function($($argument),*) };
        assert_eq!(result, UR_RESULT_SUCCESS, concat!(stringify!($table), ".", stringify!($function)))
    }};
}

/// An adapter's table, and its handle with a reference.
fn adapter(library: &Library) -> (&'static ur_dditable_t, ur_adapter_handle_t) {
    type Get = unsafe extern "C" fn(ur_api_version_t, *mut ur_adapter_dditable_t) -> ur_result_t;
    // SAFETY: the symbol has this type in every adapter.
    let get = unsafe { function::<Get>(library.address(c"urGetAdapterProcAddrTable")) };
    let mut table = ur_adapter_dditable_t::default();
    // SAFETY: the table is ours to fill.
    let result = unsafe { get.expect("is exported")(UR_API_VERSION_CURRENT, &raw mut table) };
    assert_eq!(result, UR_RESULT_SUCCESS);
    let mut adapter = null_mut();
    // SAFETY: there is room for one handle.
    let result = unsafe { table.pfnGet.expect("is there")(1, &raw mut adapter, null_mut()) };
    assert_eq!(result, UR_RESULT_SUCCESS);
    // SAFETY: a handle's first word points to its adapter's table, which lives with the library.
    (
        unsafe { &**adapter.cast::<*const ur_dditable_t>() },
        adapter,
    )
}

fn device(ur: &ur_dditable_t, adapter: ur_adapter_handle_t) -> ur_device_handle_t {
    let (mut platform, mut device) = (null_mut(), null_mut());
    ok!(ur
        .Platform
        .pfnGet(adapter, 1, &raw mut platform, null_mut()));
    ok!(ur
        .Device
        .pfnGet(platform, UR_DEVICE_TYPE_CPU, 1, &raw mut device, null_mut()));
    device
}

#[repr(C)]
struct Entry(
    *const c_char,
    Option<unsafe extern "C" fn(*const *mut c_void, *const usize)>,
);

// SAFETY: static names and functions.
unsafe impl Sync for Entry {}

/// args: usize[items], usize by value. The state begins with the global id.
unsafe extern "C" fn scale(args: *const *mut c_void, state: *const usize) {
    // SAFETY: the test passes these arguments.
    unsafe {
        let (item, factor) = (*state, *(*args.add(1)).cast::<usize>());
        (*args).cast::<usize>().add(item).write(item * factor);
    }
}

static TABLE: [Entry; 2] = [Entry(c"scale".as_ptr(), Some(scale)), Entry(null(), None)];

/// The table as a program's binary.
fn table() -> (*const u8, usize) {
    (TABLE.as_ptr().cast(), size_of_val(&TABLE))
}

/// A shared object with the same kernel, and the number of its arguments. A C compiler makes it.
fn shared_object() -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("ur-native-cpu-library-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let (source, object) = (folder.join("scale.c"), folder.join("scale.so"));
    let code = "#include <stddef.h>
        const unsigned ur_num_args_scale = 2;
        void scale(void *const *args, size_t *id) { ((size_t *)args[0])[*id] = *id * *(size_t *)args[1]; }";
    std::fs::write(&source, code).expect("a file can be written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut compiler = std::process::Command::new(compiler);
    let done = compiler
        .args(["-shared", "-fPIC", "-o"])
        .args([&object, &source])
        .status();
    assert!(done.expect("there is a C compiler").success());
    let bytes = std::fs::read(&object).expect("it was made");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    bytes
}

fn kernel(
    ur: &ur_dditable_t,
    context: ur_context_handle_t,
    mut device: ur_device_handle_t,
    (mut binary, mut bytes): (*const u8, usize),
    properties: *const ur_program_properties_t,
) -> ur_kernel_handle_t {
    let (mut program, mut kernel) = (null_mut(), null_mut());
    ok!(ur.Program.pfnCreateWithBinary(
        context,
        1,
        &raw mut device,
        &raw mut bytes,
        &raw mut binary,
        properties,
        &raw mut program
    ));
    ok!(ur.Program.pfnBuild(context, program, null()));
    ok!(ur
        .Kernel
        .pfnCreate(program, c"scale".as_ptr(), &raw mut kernel));
    ok!(ur.Program.pfnRelease(program));
    kernel
}

fn arguments(pointer: *const c_void, value: &usize) -> [ur_exp_kernel_arg_properties_t; 2] {
    let stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES;
    [
        ur_exp_kernel_arg_properties_t {
            stype,
            pNext: null_mut(),
            r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
            index: 0,
            size: size_of::<usize>(),
            value: ur_exp_kernel_arg_value_t { pointer },
        },
        ur_exp_kernel_arg_properties_t {
            stype,
            pNext: null_mut(),
            r#type: UR_EXP_KERNEL_ARG_TYPE_VALUE,
            index: 1,
            size: size_of::<usize>(),
            value: ur_exp_kernel_arg_value_t {
                value: (&raw const *value).cast(),
            },
        },
    ]
}

/// One life: allocates in queue order, runs a kernel on the memory, reads it, frees it, and gives
/// everything back.
fn live(library: &Library) {
    const ITEMS: usize = 1000;
    let items = ITEMS;
    let (ur, adapter) = adapter(library);
    let device = device(ur, adapter);
    let (mut context, mut queue, mut memory) = (null_mut(), null_mut(), null_mut());
    ok!(ur
        .Context
        .pfnCreate(1, &raw const device, null(), &raw mut context));
    ok!(ur.Queue.pfnCreate(context, device, null(), &raw mut queue));
    let kernel = kernel(ur, context, device, table(), null());
    let bytes = ITEMS * size_of::<usize>();
    ok!(ur.EnqueueExp.pfnUSMDeviceAllocExp(
        queue,
        null_mut(),
        bytes,
        null(),
        0,
        null(),
        &raw mut memory,
        null_mut()
    ));
    let args = arguments(memory, &3);
    ok!(ur.EnqueueExp.pfnKernelLaunchWithArgsExp(
        queue,
        kernel,
        1,
        null(),
        &raw const items,
        null(),
        2,
        args.as_ptr(),
        null(),
        0,
        null(),
        null_mut()
    ));
    let mut host = vec![0usize; ITEMS];
    ok!(ur.Enqueue.pfnUSMMemcpy(
        queue,
        1,
        host.as_mut_ptr().cast(),
        memory,
        bytes,
        0,
        null(),
        null_mut()
    ));
    assert!(host.iter().enumerate().all(|(at, &value)| value == at * 3));
    ok!(ur
        .EnqueueExp
        .pfnUSMFreeExp(queue, null_mut(), memory, 0, null(), null_mut()));
    ok!(ur.Kernel.pfnRelease(kernel));
    ok!(ur.Queue.pfnRelease(queue));
    ok!(ur.Context.pfnRelease(context));
    ok!(ur.Adapter.pfnRelease(adapter));
}

/// Threads of this process whose name says that they are the adapter's or the engine's. One that is
/// exiting is none: the system lists it until some time after it was joined.
fn our_threads() -> Vec<String> {
    const EXITING: u32 = 4; // PF_EXITING
    let tasks = std::fs::read_dir("/proc/self/task")
        .expect("Linux has it")
        .flatten();
    let named = tasks.filter_map(|task| {
        // Number, name in brackets, state, five numbers, flags.
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let flags = rest.split_whitespace().nth(6)?.parse::<u32>();
        let runs = flags.expect("a number") & EXITING == 0;
        (runs && name.starts_with("ur-")).then(|| name.to_owned())
    });
    named.collect()
}

/// The tests inspect the process's threads, so they run one at a time.
static SERIAL: Mutex<()> = Mutex::new(());

#[test]
fn no_thread_outlives_the_last_reference() {
    let _serial = SERIAL.lock();
    let library = Library::open(path(), Binding::Usual).expect("opens");
    for _ in 0..3 {
        live(&library);
        assert_eq!(our_threads(), Vec::<String>::new());
    }
    // Two users of one library: the first to leave ends nothing.
    let (ur, other) = adapter(&library);
    live(&library);
    // A thread has its name from when it first runs.
    let named = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        !our_threads().is_empty()
    });
    assert!(named);
    live(&library);
    ok!(ur.Adapter.pfnRelease(other));
    assert_eq!(our_threads(), Vec::<String>::new());
}

#[test]
fn a_child_of_a_fork_gets_an_error() {
    let _serial = SERIAL.lock();
    let library = Library::open(path(), Binding::Usual).expect("opens");
    let (ur, adapter) = adapter(&library);
    let device = device(ur, adapter);
    let (mut context, mut queue) = (null_mut(), null_mut());
    ok!(ur
        .Context
        .pfnCreate(1, &raw const device, null(), &raw mut context));
    ok!(ur.Queue.pfnCreate(context, device, null(), &raw mut queue));
    let mut bytes = [0u8; 64];
    let fill = |bytes: &mut [u8; 64]| {
        let (memory, pattern) = (bytes.as_mut_ptr().cast(), 7u8);
        // SAFETY: the memory outlives the work: the test waits, and the child does no work.
        unsafe {
            ur.Enqueue.pfnUSMFill.expect("is there")(
                queue,
                memory,
                1,
                (&raw const pattern).cast(),
                64,
                0,
                null(),
                null_mut(),
            )
        }
    };
    assert_eq!(fill(&mut bytes), UR_RESULT_SUCCESS);
    ok!(ur.Queue.pfnFinish(queue));
    // SAFETY: the child calls what is under test and leaves without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut lost = fill(&mut bytes) == UR_RESULT_ERROR_DEVICE_LOST;
        let mut other = null_mut();
        // SAFETY: the handles are the parent's, which the child has a copy of.
        unsafe {
            let created =
                ur.Queue.pfnCreate.expect("is there")(context, device, null(), &raw mut other);
            lost &= created == UR_RESULT_ERROR_DEVICE_LOST;
            ur.Adapter.pfnRelease.expect("is there")(adapter);
            libc::_exit(if lost { 0 } else { 1 });
        }
    }
    let mut status = -1;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child hung up or was not told");
    assert_eq!(fill(&mut bytes), UR_RESULT_SUCCESS);
    ok!(ur.Queue.pfnFinish(queue));
    assert_eq!(bytes, [7; 64]);
    ok!(ur.Queue.pfnRelease(queue));
    ok!(ur.Context.pfnRelease(context));
    ok!(ur.Adapter.pfnRelease(adapter));
}

/// A launch with too few arguments is an error as far as their number is known, and reads zeros otherwise.
#[test]
fn missing_arguments() {
    let _serial = SERIAL.lock();
    let library = Library::open(path(), Binding::Usual).expect("opens");
    let (ur, adapter) = adapter(&library);
    let device = device(ur, adapter);
    let (mut context, mut queue) = (null_mut(), null_mut());
    ok!(ur
        .Context
        .pfnCreate(1, &raw const device, null(), &raw mut context));
    ok!(ur.Queue.pfnCreate(context, device, null(), &raw mut queue));
    let entry = ur_program_metadata_t {
        pName: c"scale@num_args".as_ptr(),
        r#type: UR_PROGRAM_METADATA_TYPE_UINT32,
        size: size_of::<u32>(),
        value: ur_program_metadata_value_t { data32: 2 },
    };
    let properties = ur_program_properties_t {
        count: 1,
        pMetadatas: &raw const entry,
        ..Default::default()
    };
    let known = kernel(ur, context, device, table(), &raw const properties);
    let unknown = kernel(ur, context, device, table(), null());
    let object = shared_object();
    let described = kernel(ur, context, device, (object.as_ptr(), object.len()), null());
    let mut memory = [9usize; 64];
    let args = arguments(memory.as_mut_ptr().cast(), &3);
    let launch = |kernel, args: &[ur_exp_kernel_arg_properties_t]| {
        let items = 64;
        let launch = ur.EnqueueExp.pfnKernelLaunchWithArgsExp.expect("is there");
        // SAFETY: the arguments outlive the launch, for which the test waits.
        let result = unsafe {
            launch(
                queue,
                kernel,
                1,
                null(),
                &raw const items,
                null(),
                args.len() as u32,
                args.as_ptr(),
                null(),
                0,
                null(),
                null_mut(),
            )
        };
        ok!(ur.Queue.pfnFinish(queue));
        result
    };
    let count = |kernel| {
        let mut count = 0u32;
        let info = ur.Kernel.pfnGetInfo.expect("is there");
        let to = (&raw mut count).cast();
        // SAFETY: the property has four bytes.
        let result = unsafe { info(kernel, UR_KERNEL_INFO_NUM_ARGS, 4, to, null_mut()) };
        (result, count)
    };
    assert_eq!(count(unknown), (UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION, 0));
    let missing = UR_RESULT_ERROR_INVALID_KERNEL_ARGS;
    let mut third = [args[0], args[1], args[1]];
    third[2].index = 2;
    for kernel in [known, described] {
        assert_eq!(count(kernel), (UR_RESULT_SUCCESS, 2));
        for some in [&args[..0], &args[..1], &args[1..]] {
            assert_eq!(launch(kernel, some), missing);
        }
        assert_eq!(
            launch(kernel, &third),
            UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX
        );
    }
    // Where the number is unknown, an argument before another one cannot be missing.
    assert_eq!(launch(unknown, &args[1..]), missing);
    assert_eq!(launch(unknown, &[third[0], third[2]]), missing);
    assert_eq!(memory, [9; 64]);
    for kernel in [known, described] {
        assert_eq!(launch(kernel, &args), UR_RESULT_SUCCESS);
        assert!(memory.iter().enumerate().all(|(at, &word)| word == at * 3));
        memory.fill(9);
    }
    // The last one can, and the kernel reads a factor of 0.
    assert_eq!(launch(unknown, &args[..1]), UR_RESULT_SUCCESS);
    assert_eq!(memory, [0; 64]);
    ok!(ur.Kernel.pfnRelease(known));
    ok!(ur.Kernel.pfnRelease(unknown));
    ok!(ur.Kernel.pfnRelease(described));
    ok!(ur.Queue.pfnRelease(queue));
    ok!(ur.Context.pfnRelease(context));
    ok!(ur.Adapter.pfnRelease(adapter));
}

fn partition(
    ur: &ur_dditable_t,
    device: ur_device_handle_t,
    by: &[(ur_device_partition_t, u32)],
) -> Result<Vec<ur_device_handle_t>, ur_result_t> {
    let by: Vec<_> = by
        .iter()
        .map(|&(r#type, count)| ur_device_partition_property_t {
            r#type,
            value: ur_device_partition_value_t { count },
        })
        .collect();
    let properties = ur_device_partition_properties_t {
        pProperties: by.as_ptr(),
        PropCount: by.len(),
        ..Default::default()
    };
    let partition = ur.Device.pfnPartition.expect("is there");
    let (mut parts, mut count) = (vec![null_mut(); 64], 0);
    // SAFETY: the properties live here, and there is room for that many parts.
    match unsafe {
        partition(
            device,
            &raw const properties,
            64,
            parts.as_mut_ptr(),
            &raw mut count,
        )
    } {
        UR_RESULT_SUCCESS => {
            parts.truncate(count as usize);
            Ok(parts)
        }
        error => Err(error),
    }
}

fn units(ur: &ur_dditable_t, device: ur_device_handle_t) -> u32 {
    let mut units = 0u32;
    ok!(ur.Device.pfnGetInfo(
        device,
        UR_DEVICE_INFO_MAX_COMPUTE_UNITS,
        4,
        (&raw mut units).cast(),
        null_mut()
    ));
    units
}

#[test]
fn sub_devices_share_out_the_workers() {
    let _serial = SERIAL.lock();
    let library = Library::open(path(), Binding::Usual).expect("opens");
    let (ur, adapter) = adapter(&library);
    let device = device(ur, adapter);
    let all = units(ur, device);
    if all < 2 {
        assert_eq!(
            partition(ur, device, &[(UR_DEVICE_PARTITION_EQUALLY, 1)]),
            Err(UR_RESULT_ERROR_DEVICE_PARTITION_FAILED)
        );
    } else {
        let parts =
            partition(ur, device, &[(UR_DEVICE_PARTITION_EQUALLY, 1)]).expect("can be split");
        assert_eq!(parts.len(), all.min(64) as usize);
        assert!(parts.iter().all(|&part| units(ur, part) == 1));
        let by_counts = [
            (UR_DEVICE_PARTITION_BY_COUNTS, 1),
            (UR_DEVICE_PARTITION_BY_COUNTS, all - 1),
        ];
        let counts = partition(ur, device, &by_counts).expect("can be split");
        assert_eq!(
            counts
                .iter()
                .map(|&part| units(ur, part))
                .collect::<Vec<_>>(),
            [1, all - 1]
        );
        let wrong = Err(UR_RESULT_ERROR_INVALID_DEVICE_PARTITION_COUNT);
        assert_eq!(
            partition(
                ur,
                device,
                &[
                    (UR_DEVICE_PARTITION_BY_COUNTS, 1),
                    (UR_DEVICE_PARTITION_BY_COUNTS, all)
                ]
            ),
            wrong
        );
        assert_eq!(
            partition(ur, device, &[(UR_DEVICE_PARTITION_EQUALLY, 0)]),
            wrong
        );
        assert_eq!(
            partition(ur, device, &[(UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, 1)]),
            Err(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
        );
        for part in parts.into_iter().chain(counts) {
            ok!(ur.Device.pfnRelease(part));
        }
    }
    ok!(ur.Adapter.pfnRelease(adapter));
}

#[test]
fn the_first_native_binary_is_selected() {
    let _serial = SERIAL.lock();
    let library = Library::open(path(), Binding::Usual).expect("opens");
    let (ur, adapter) = adapter(&library);
    let device = device(ur, adapter);
    let select = |targets: &[&CStr]| {
        let of = |target: &&CStr| ur_device_binary_t {
            pDeviceTargetSpec: target.as_ptr(),
            ..Default::default()
        };
        let binaries: Vec<_> = targets.iter().map(of).collect();
        let mut selected = 99;
        let select = ur.Device.pfnSelectBinary.expect("is there");
        // SAFETY: the binaries live here.
        let result = unsafe {
            select(
                device,
                binaries.as_ptr(),
                binaries.len() as u32,
                &raw mut selected,
            )
        };
        (result, selected)
    };
    assert_eq!(
        select(&[c"spir64", c"native_cpu", c"native_cpu"]),
        (UR_RESULT_SUCCESS, 1)
    );
    assert_eq!(
        select(&[c"spir64", c"native_cpu2"]),
        (UR_RESULT_ERROR_INVALID_BINARY, 99)
    );
    ok!(ur.Adapter.pfnRelease(adapter));
}
