//! Builds adapters, runs scenarios, and looks up the loader's functions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use ur::abi::*;
use ur::dl::{Binding, Library, function};

ur::dl::symbols! {
    pub struct Loader {
        required {
            urLoaderInit: unsafe extern "C" fn(ur_device_init_flags_t, ur_loader_config_handle_t) -> ur_result_t,
            urLoaderTearDown: unsafe extern "C" fn() -> ur_result_t,
            urAdapterGet: unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t,
            urAdapterRelease: unsafe extern "C" fn(ur_adapter_handle_t) -> ur_result_t,
            urAdapterRetain: unsafe extern "C" fn(ur_adapter_handle_t) -> ur_result_t,
            urPlatformGet: unsafe extern "C" fn(ur_adapter_handle_t, u32, *mut ur_platform_handle_t, *mut u32) -> ur_result_t,
            urDeviceGetSelected: unsafe extern "C" fn(ur_platform_handle_t, ur_device_type_t, u32, *mut ur_device_handle_t, *mut u32) -> ur_result_t,
            urDeviceGetInfo: unsafe extern "C" fn(ur_device_handle_t, ur_device_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urDeviceRelease: unsafe extern "C" fn(ur_device_handle_t) -> ur_result_t,
            urContextCreate: unsafe extern "C" fn(u32, *const ur_device_handle_t, *const ur_context_properties_t, *mut ur_context_handle_t) -> ur_result_t,
            urEventWait: unsafe extern "C" fn(u32, *const ur_event_handle_t) -> ur_result_t,
            urKernelCreate: unsafe extern "C" fn(ur_program_handle_t, *const c_char, *mut ur_kernel_handle_t) -> ur_result_t,
            urKernelRetain: unsafe extern "C" fn(ur_kernel_handle_t) -> ur_result_t,
            urKernelRelease: unsafe extern "C" fn(ur_kernel_handle_t) -> ur_result_t,
            urKernelGetSuggestedLocalWorkSize: unsafe extern "C" fn(ur_kernel_handle_t, ur_queue_handle_t, u32, *const usize, *const usize, *mut usize) -> ur_result_t,
            urCommandBufferAppendKernelLaunchExp: unsafe extern "C" fn(
                ur_exp_command_buffer_handle_t, ur_kernel_handle_t, u32, *const usize, *const usize, *const usize,
                u32, *mut ur_kernel_handle_t, u32, *const ur_exp_command_buffer_sync_point_t, u32,
                *const ur_event_handle_t, *mut ur_exp_command_buffer_sync_point_t, *mut ur_event_handle_t,
                *mut ur_exp_command_buffer_command_handle_t) -> ur_result_t,
            urKernelSetArgValue: unsafe extern "C" fn(ur_kernel_handle_t, u32, usize, *const ur_kernel_arg_value_properties_t, *const c_void) -> ur_result_t,
            urKernelSetArgLocal: unsafe extern "C" fn(ur_kernel_handle_t, u32, usize, *const ur_kernel_arg_local_properties_t) -> ur_result_t,
            urKernelSetArgPointer: unsafe extern "C" fn(ur_kernel_handle_t, u32, *const ur_kernel_arg_pointer_properties_t, *const c_void) -> ur_result_t,
            urKernelSetArgSampler: unsafe extern "C" fn(ur_kernel_handle_t, u32, *const ur_kernel_arg_sampler_properties_t, ur_sampler_handle_t) -> ur_result_t,
            urKernelSetArgMemObj: unsafe extern "C" fn(ur_kernel_handle_t, u32, *const ur_kernel_arg_mem_obj_properties_t, ur_mem_handle_t) -> ur_result_t,
            urEnqueueKernelLaunch: unsafe extern "C" fn(
                ur_queue_handle_t, ur_kernel_handle_t, u32, *const usize, *const usize, *const usize,
                *const ur_kernel_launch_ext_properties_t, u32, *const ur_event_handle_t, *mut ur_event_handle_t) -> ur_result_t,
            urLoaderConfigCreate: unsafe extern "C" fn(*mut ur_loader_config_handle_t) -> ur_result_t,
            urLoaderConfigRelease: unsafe extern "C" fn(ur_loader_config_handle_t) -> ur_result_t,
            urLoaderConfigSetCodeLocationCallback: unsafe extern "C" fn(ur_loader_config_handle_t, ur_code_location_callback_t, *mut c_void) -> ur_result_t,
            urLoaderConfigEnableLayer: unsafe extern "C" fn(ur_loader_config_handle_t, *const c_char) -> ur_result_t,
            urGetAdapterProcAddrTable: unsafe extern "C" fn(ur_api_version_t, *mut ur_adapter_dditable_t) -> ur_result_t,
        }
        optional {}
    }
}

/// A null pointer of any type.
pub fn null<T>() -> *mut T {
    std::ptr::null_mut()
}

/// The loader of this build, or the copy that `LOADER` names.
pub fn loader_path() -> PathBuf {
    if let Some(path) = std::env::var_os("LOADER") {
        return path.into();
    }
    let own = std::env::current_exe().expect("own path");
    own.with_file_name("libur_loader.so")
}

pub fn loader() -> &'static Loader {
    static LOADER: OnceLock<Loader> = OnceLock::new();
    LOADER.get_or_init(|| {
        let library = Library::open(loader_path(), Binding::Usual).expect("the loader was built");
        Loader::from_library(library).expect("the loader exports what it should")
    })
}

impl Loader {
    pub fn init(&self) -> ur_result_t {
        // SAFETY: no configuration is given.
        unsafe { (self.urLoaderInit)(ur_device_init_flags_t(0), std::ptr::null_mut()) }
    }

    pub fn tear_down(&self) -> ur_result_t {
        // SAFETY: no other thread uses the loader.
        unsafe { (self.urLoaderTearDown)() }
    }

    /// The first `capacity` adapters and the number of all.
    pub fn adapters(&self, capacity: u32) -> (ur_result_t, Vec<ur_adapter_handle_t>, u32) {
        let mut list = vec![std::ptr::null_mut(); capacity as usize];
        let mut total = u32::MAX;
        let start = if capacity == 0 {
            std::ptr::null_mut()
        } else {
            list.as_mut_ptr()
        };
        // SAFETY: the list has room for `capacity` handles.
        let result = unsafe { (self.urAdapterGet)(capacity, start, &mut total) };
        list.retain(|handle| !handle.is_null());
        (result, list, total)
    }
}

/// Fills one part of a table with the loader's function for it.
fn fill<T>(library: &Library, name: &str, part: &mut T) {
    let name = CString::new(format!("urGet{name}ProcAddrTable")).expect("a name");
    type Get<T> = unsafe extern "C" fn(ur_api_version_t, *mut T) -> ur_result_t;
    // SAFETY: callers pass the part that the named function fills.
    let get = unsafe { function::<Get<T>>(library.address(&name)) }.expect("exported");
    // SAFETY: `part` is writable.
    let result = unsafe { get(UR_API_VERSION_CURRENT, part) };
    assert_eq!(result, UR_RESULT_SUCCESS, "{name:?}");
}

macro_rules! fill_all {
    ($library:expr, $table:expr, $($part:ident)*) => {
        $(fill(&$library, stringify!($part), &mut $table.$part);)*
    };
}

/// All functions that the loader currently returns.
pub fn table() -> ur_dditable_t {
    let library = Library::open(loader_path(), Binding::Usual).expect("the loader was built");
    let mut table = ur_dditable_t::default();
    #[rustfmt::skip]
    fill_all!(library, table,
        Adapter Platform Context Event EventExp Program ProgramExp Kernel Queue QueueExp Sampler Mem
        PhysicalMem Enqueue EnqueueExp USM USMExp BindlessImagesExp CommandBufferExp GraphExp IPCExp
        MemoryExportExp UsmP2PExp VirtualMem Device DeviceExp);
    table
}

/// An empty directory for one test's files.
pub fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).expect("directory");
    path
}

/// Compiles `adapter.c` with these definitions to `path`.
pub fn build_adapter(path: &Path, definitions: &[&str]) -> String {
    build_library("adapter.c", path, definitions)
}

/// Compiles a C file of this folder to a library at `path`.
pub fn build_library(source: &str, path: &Path, definitions: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
        ])
        .args(
            definitions
                .iter()
                .map(|definition| format!("-D{definition}")),
        )
        .arg("-I")
        .arg(root.join("../include"))
        .arg(root.join("tests/loader").join(source))
        .arg("-o")
        .arg(path)
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    path.display().to_string()
}

/// Runs the ignored test `scenario` in its own process and returns its standard error. Variables
/// that change the loader's behaviour are removed, unless the test sets them.
pub fn child(scenario: &str, variables: &[(&str, &str)]) -> String {
    let output = child_output(scenario, variables);
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{scenario} {variables:?}: {}\n{out}\n{err}",
        output.status
    );
    assert!(out.contains("1 passed"), "{scenario} did not run: {out}");
    err
}

/// Runs the ignored test `scenario` in its own process, which may fail.
pub fn child_output(scenario: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args([
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
        scenario,
    ]);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("UR_") || text.starts_with("ONEAPI_") || text.starts_with("SYCL_") {
            command.env_remove(name);
        }
    }
    // Cargo adds the build folder, which contains real adapters.
    command.env_remove("LD_LIBRARY_PATH");
    command
        .envs(variables.iter().copied())
        .output()
        .expect("child runs")
}

/// Control functions of `adapter.c`.
pub struct Fake(Library);

impl Fake {
    /// Opens an adapter that the loader has loaded.
    pub fn open(path: &str) -> Fake {
        Fake(Library::open(path, Binding::Usual).expect("built by the test"))
    }

    fn call<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: callers pass the type that the function has in `adapter.c`.
        unsafe { function::<F>(self.0.address(name)) }.expect("adapter.c exports it")
    }

    pub fn live_devices(&self) -> c_int {
        // SAFETY: the function has no arguments.
        unsafe { self.call::<unsafe extern "C" fn() -> c_int>(c"fake_live_devices")() }
    }

    pub fn last_launch(&self) -> String {
        let call = self.call::<unsafe extern "C" fn() -> *const c_char>(c"fake_last_launch");
        // SAFETY: the function returns a C string that is valid until the next launch.
        unsafe { CStr::from_ptr(call()) }
            .to_string_lossy()
            .into_owned()
    }

    pub fn tag(&self, adapter: ur_adapter_handle_t) -> c_int {
        let call = self.call::<unsafe extern "C" fn(*mut c_void) -> c_int>(c"fake_tag");
        // SAFETY: `adapter.c` compares the handle with its own adapters.
        unsafe { call(adapter.cast()) }
    }

    pub fn platform(&self, at: c_int) -> ur_platform_handle_t {
        let call = self.call::<unsafe extern "C" fn(c_int) -> *mut c_void>(c"fake_platform");
        // SAFETY: `adapter.c` has three platforms.
        unsafe { call(at) }.cast()
    }

    /// A queue: any object that starts with a table.
    pub fn queue(&self) -> ur_queue_handle_t {
        let call = self.call::<unsafe extern "C" fn() -> *mut c_void>(c"fake_queue");
        // SAFETY: the function has no arguments.
        unsafe { call() }.cast()
    }
}
