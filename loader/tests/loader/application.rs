//! An application over `strict.c`: the loader's tables, and one object of most kinds.

use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::ptr::null;
use std::sync::OnceLock;

use ur::abi::*;
use ur::dl::{Binding, Library, function};

use crate::common::{build_library, child, directory, loader, loader_path, null as null_mut};

/// Runs a scenario over `strict.c` with these layers, and returns its standard error.
pub fn strict(scenario: &str, layers: &str, more: &[(&str, &str)]) -> String {
    static ADAPTER: OnceLock<String> = OnceLock::new();
    let adapter =
        ADAPTER.get_or_init(|| build_library("strict.c", &directory("strict").join("s.so"), &[]));
    let mut variables = vec![
        ("UR_ADAPTERS_FORCE_LOAD", adapter.as_str()),
        ("STRICT", adapter.as_str()),
        ("UR_ENABLE_LAYERS", layers),
    ];
    variables.extend_from_slice(more);
    child(scenario, &variables)
}

macro_rules! tables {
    ($($field:ident: $symbol:literal),* $(,)?) => {
        /// All functions as the loader exports them, through its layers.
        pub fn tables() -> ur_dditable_t {
            let library = Library::open(loader_path(), Binding::Usual).expect("the loader was built");
            let mut all = ur_dditable_t::default();
            $(get(&library, $symbol, &mut all.$field);)*
            all
        }
    };
}

tables! {
    Adapter: "Adapter", Platform: "Platform", Context: "Context", Event: "Event",
    EventExp: "EventExp", Program: "Program", ProgramExp: "ProgramExp", Kernel: "Kernel",
    Queue: "Queue", QueueExp: "QueueExp", Sampler: "Sampler", Mem: "Mem",
    PhysicalMem: "PhysicalMem", Enqueue: "Enqueue", EnqueueExp: "EnqueueExp", USM: "USM",
    USMExp: "USMExp", BindlessImagesExp: "BindlessImagesExp",
    CommandBufferExp: "CommandBufferExp", GraphExp: "GraphExp", IPCExp: "IPCExp",
    MemoryExportExp: "MemoryExportExp", UsmP2PExp: "UsmP2PExp", VirtualMem: "VirtualMem",
    Device: "Device", DeviceExp: "DeviceExp",
}

fn get<T>(library: &Library, name: &str, to: &mut T) {
    type Get<T> = unsafe extern "C" fn(ur_api_version_t, *mut T) -> ur_result_t;
    let symbol = CString::new(format!("urGet{name}ProcAddrTable")).expect("no NUL");
    // SAFETY: `tables` pairs each symbol with the part that it fills.
    let get = unsafe { function::<Get<T>>(library.address(&symbol)) }.expect("exported");
    // SAFETY: `to` is writable.
    let result = unsafe { get(UR_API_VERSION_CURRENT, to) };
    assert_eq!(result, UR_RESULT_SUCCESS, "{name}");
}

/// Calls a function of a table. The loader leaves no slot empty.
macro_rules! call {
    ($table:expr, $part:ident . $slot:ident ( $($argument:expr),* $(,)? )) => {{
        let function = $table.$part.$slot.expect(stringify!($slot));
        #[allow(unused_unsafe)]
        // SAFETY: the scenario passes pointers that are null or valid. Layers refuse invalid
        // handles.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use call;

pub struct Application {
    pub all: ur_dditable_t,
    pub adapter: ur_adapter_handle_t,
    pub platform: ur_platform_handle_t,
    pub device: ur_device_handle_t,
    pub context: ur_context_handle_t,
    pub queue: ur_queue_handle_t,
}

impl Application {
    /// An application after `urLoaderInit`.
    pub fn new() -> Application {
        let all = tables();
        let mut app = Application {
            all,
            adapter: null_mut(),
            platform: null_mut(),
            device: null_mut(),
            context: null_mut(),
            queue: null_mut(),
        };
        let w = &mut app;
        let done = [
            call!(all, Adapter.pfnGet(1, &mut w.adapter, null_mut())),
            call!(
                all,
                Platform.pfnGet(w.adapter, 1, &mut w.platform, null_mut())
            ),
            call!(
                all,
                Device.pfnGet(w.platform, UR_DEVICE_TYPE_ALL, 1, &mut w.device, null_mut())
            ),
            call!(all, Context.pfnCreate(1, &w.device, null(), &mut w.context)),
            call!(
                all,
                Queue.pfnCreate(w.context, w.device, null(), &mut w.queue)
            ),
        ];
        assert_eq!(done, [UR_RESULT_SUCCESS; 5]);
        app
    }

    /// Initialises the loader with the environment's layers.
    pub fn init() -> Application {
        assert_eq!(loader().init(), UR_RESULT_SUCCESS);
        Application::new()
    }

    pub fn queue(&self, flags: ur_queue_flags_t) -> ur_queue_handle_t {
        let properties = ur_queue_properties_t {
            flags,
            ..ur_queue_properties_t::default()
        };
        let mut queue = null_mut();
        let result = call!(
            self.all,
            Queue.pfnCreate(self.context, self.device, &properties, &mut queue)
        );
        assert_eq!(result, UR_RESULT_SUCCESS);
        queue
    }

    pub fn event(&self) -> ur_event_handle_t {
        let mut event = null_mut();
        let result = call!(
            self.all,
            Enqueue.pfnEventsWait(self.queue, 0, null(), &mut event)
        );
        assert_eq!(result, UR_RESULT_SUCCESS);
        event
    }

    pub fn buffer(&self, size: usize) -> ur_mem_handle_t {
        let mut mem = null_mut();
        let flags = UR_MEM_FLAG_READ_WRITE;
        let result = call!(
            self.all,
            Mem.pfnBufferCreate(self.context, flags, size, null(), &mut mem)
        );
        assert_eq!(result, UR_RESULT_SUCCESS);
        mem
    }

    pub fn kernel(&self) -> ur_kernel_handle_t {
        let (mut program, mut kernel) = (null_mut(), null_mut());
        let text = c"il";
        let results = [
            call!(
                self.all,
                Program.pfnCreateWithIL(
                    self.context,
                    text.as_ptr().cast(),
                    2,
                    null(),
                    &mut program
                )
            ),
            call!(
                self.all,
                Kernel.pfnCreate(program, c"add".as_ptr(), &mut kernel)
            ),
            call!(self.all, Program.pfnRelease(program)),
        ];
        assert_eq!(results, [UR_RESULT_SUCCESS; 3]);
        kernel
    }

    pub fn usm(&self, size: usize) -> *mut std::ffi::c_void {
        let mut pointer = null_mut();
        let result = call!(
            self.all,
            USM.pfnDeviceAlloc(
                self.context,
                self.device,
                null(),
                null_mut(),
                size,
                &mut pointer
            )
        );
        assert_eq!(result, UR_RESULT_SUCCESS);
        pointer
    }

    /// Releases the objects of `new`, and tears the loader down.
    pub fn end(self) {
        let done = [
            call!(self.all, Queue.pfnRelease(self.queue)),
            call!(self.all, Context.pfnRelease(self.context)),
            call!(self.all, Device.pfnRelease(self.device)),
            call!(self.all, Adapter.pfnRelease(self.adapter)),
            loader().tear_down(),
        ];
        assert_eq!(done, [UR_RESULT_SUCCESS; 5]);
    }
}

/// Control functions of `strict.c`.
pub struct Strict(Library);

impl Strict {
    pub fn open() -> Strict {
        let path = std::env::var_os("STRICT").expect("a scenario of `strict`");
        Strict(Library::open(Path::new(&path), Binding::Usual).expect("built by the test"))
    }

    fn call<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: callers pass the type that the function has in `strict.c`.
        unsafe { function::<F>(self.0.address(name)) }.expect("strict.c exports it")
    }

    pub fn live(&self) -> c_int {
        // SAFETY: the function has no arguments.
        unsafe { self.call::<unsafe extern "C" fn() -> c_int>(c"strict_live")() }
    }

    /// Sets whether events report completion.
    pub fn complete(&self, yes: bool) {
        // SAFETY: the function takes an integer.
        unsafe { self.call::<unsafe extern "C" fn(c_int)>(c"strict_complete")(yes.into()) }
    }

    pub fn forget_blocks(&self) {
        // SAFETY: the function has no arguments.
        unsafe { self.call::<unsafe extern "C" fn()>(c"strict_forget_blocks")() }
    }

    /// Has the next release, callback or host task refused.
    pub fn fail_release(&self) {
        // SAFETY: the function takes an integer.
        unsafe { self.call::<unsafe extern "C" fn(c_int)>(c"strict_fail_release")(1) }
    }
}
