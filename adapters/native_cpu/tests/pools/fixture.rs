//! A context on the CPU through the built library, and children of this program.

use std::ffi::c_void;
use std::process::Command;
use std::ptr::{null, null_mut};
use ur::abi::*;
use ur::dl::{Binding, Library, function};

/// Calls a table's function; an error is its code.
macro_rules! try_ur {
    ($fixture:expr, $table:ident.$function:ident($($argument:expr),* $(,)?)) => {{
        let function = $fixture.ur.$table.$function.expect("no slot is empty");
        // SAFETY: the arguments are live objects and memory of the test.
        match unsafe { function($($argument),*) } {
            UR_RESULT_SUCCESS => Ok(()),
            error => Err(error),
        }
    }};
}

macro_rules! ok {
    ($($call:tt)*) => {
        try_ur!($($call)*).expect("the call succeeds")
    };
}

/// One context on the CPU.
pub struct Fixture {
    pub ur: &'static ur_dditable_t,
    pub adapter: ur_adapter_handle_t,
    pub context: ur_context_handle_t,
    pub device: ur_device_handle_t,
    _library: Library,
}

pub type Queue = ur_queue_handle_t;
pub type Events<'a> = &'a [ur_event_handle_t];

impl Fixture {
    pub fn new() -> Self {
        type Get =
            unsafe extern "C" fn(ur_api_version_t, *mut ur_adapter_dditable_t) -> ur_result_t;
        let test = std::env::current_exe().expect("this test has a file");
        let path = test.with_file_name("libur_adapter_native_cpu.so");
        let library = Library::open(path, Binding::Usual).expect("the library is built");
        // SAFETY: the symbol has this type in every adapter.
        let get = unsafe { function::<Get>(library.address(c"urGetAdapterProcAddrTable")) };
        let mut table = ur_adapter_dditable_t::default();
        // SAFETY: the table is ours to fill.
        let result = unsafe { get.expect("is exported")(UR_API_VERSION_CURRENT, &raw mut table) };
        assert_eq!(result, UR_RESULT_SUCCESS);
        let mut adapter: ur_adapter_handle_t = null_mut();
        // SAFETY: there is room for one handle.
        let result = unsafe { table.pfnGet.expect("is there")(1, &raw mut adapter, null_mut()) };
        assert_eq!(result, UR_RESULT_SUCCESS);
        // SAFETY: a handle's first word points to its adapter's table, which lives with the library.
        let ur = unsafe { &**adapter.cast::<*const ur_dditable_t>() };
        let mut fixture = Self {
            ur,
            adapter,
            context: null_mut(),
            device: null_mut(),
            _library: library,
        };
        let mut platform = null_mut();
        ok!(
            fixture,
            Platform.pfnGet(adapter, 1, &raw mut platform, null_mut())
        );
        let device = &raw mut fixture.device;
        ok!(
            fixture,
            Device.pfnGet(platform, UR_DEVICE_TYPE_CPU, 1, device, null_mut())
        );
        let (device, context) = (&raw const fixture.device, &raw mut fixture.context);
        ok!(fixture, Context.pfnCreate(1, device, null(), context));
        fixture
    }

    pub fn queue(&self, flags: ur_queue_flags_t) -> Queue {
        let mut queue = null_mut();
        let properties = ur_queue_properties_t {
            stype: UR_STRUCTURE_TYPE_QUEUE_PROPERTIES,
            pNext: null_mut(),
            flags,
        };
        let at = &raw const properties;
        ok!(
            self,
            Queue.pfnCreate(self.context, self.device, at, &raw mut queue)
        );
        queue
    }

    pub fn pool(&self, max_bytes: usize) -> ur_usm_pool_handle_t {
        let mut pool = null_mut();
        let limits = ur_usm_pool_limits_desc_t {
            stype: UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC,
            pNext: null_mut(),
            maxPoolableSize: max_bytes,
            minDriverAllocSize: usize::MAX,
        };
        let mut desc = ur_usm_pool_desc_t {
            stype: UR_STRUCTURE_TYPE_USM_POOL_DESC,
            pNext: (&raw const limits).cast(),
            flags: Default::default(),
        };
        ok!(
            self,
            USM.pfnPoolCreate(self.context, &raw mut desc, &raw mut pool)
        );
        pool
    }

    pub fn alloc(
        &self,
        queue: Queue,
        pool: ur_usm_pool_handle_t,
        bytes: usize,
        waits: Events<'_>,
    ) -> Result<*mut c_void, ur_result_t> {
        self.alloc_to(queue, pool, bytes, waits, null_mut())
    }

    /// Allocates and returns the command's event.
    pub fn alloc_with_event(
        &self,
        queue: Queue,
        pool: ur_usm_pool_handle_t,
        bytes: usize,
        waits: Events<'_>,
    ) -> Result<(*mut c_void, ur_event_handle_t), ur_result_t> {
        let mut event = null_mut();
        let memory = self.alloc_to(queue, pool, bytes, waits, &raw mut event)?;
        Ok((memory, event))
    }

    fn alloc_to(
        &self,
        queue: Queue,
        pool: ur_usm_pool_handle_t,
        bytes: usize,
        waits: Events<'_>,
        event: *mut ur_event_handle_t,
    ) -> Result<*mut c_void, ur_result_t> {
        let mut memory = null_mut();
        let (count, list) = list(waits);
        let memory_at = &raw mut memory;
        try_ur!(
            self,
            EnqueueExp.pfnUSMDeviceAllocExp(
                queue,
                pool,
                bytes,
                null(),
                count,
                list,
                memory_at,
                event
            )
        )?;
        Ok(memory)
    }

    pub fn free(&self, queue: Queue, memory: *mut c_void) -> ur_event_handle_t {
        self.free_after(queue, memory, &[])
    }

    pub fn free_after(
        &self,
        queue: Queue,
        memory: *mut c_void,
        waits: Events<'_>,
    ) -> ur_event_handle_t {
        let (mut event, (count, list)) = (null_mut(), list(waits));
        let at = &raw mut event;
        ok!(
            self,
            EnqueueExp.pfnUSMFreeExp(queue, null_mut(), memory, count, list, at)
        );
        event
    }

    pub fn fill(&self, queue: Queue, memory: *mut c_void, bytes: usize) {
        self.release(self.fill_after(queue, memory, bytes, &[]));
    }

    pub fn fill_after(
        &self,
        queue: Queue,
        memory: *mut c_void,
        bytes: usize,
        waits: Events<'_>,
    ) -> ur_event_handle_t {
        let (pattern, mut event, (count, list)) = (7_u8, null_mut(), list(waits));
        let (from, at) = ((&raw const pattern).cast(), &raw mut event);
        ok!(
            self,
            Enqueue.pfnUSMFill(queue, memory, 1, from, bytes, count, list, at)
        );
        event
    }

    pub fn release(&self, event: ur_event_handle_t) {
        ok!(self, Event.pfnRelease(event));
    }

    pub fn finish(&self, queue: Queue) {
        ok!(self, Queue.pfnFinish(queue));
    }

    pub fn counter(&self, pool: ur_usm_pool_handle_t, what: ur_usm_pool_info_t) -> u64 {
        let mut value = 0_u64;
        let at = (&raw mut value).cast();
        ok!(self, USM.pfnPoolGetInfo(pool, what, 8, at, null_mut()));
        value
    }

    pub fn report(&self, pool: ur_usm_pool_handle_t) -> String {
        let mut text = vec![0_u8; 4096];
        let mut size = 0;
        let what = UR_USM_POOL_INFO_REPORT_EXT;
        let at = text.as_mut_ptr().cast();
        ok!(
            self,
            USM.pfnPoolGetInfo(pool, what, text.len(), at, &raw mut size)
        );
        text.truncate(size - 1);
        String::from_utf8(text).expect("it is text")
    }
}

pub fn list(events: Events<'_>) -> (u32, *const ur_event_handle_t) {
    match events {
        [] => (0, null()),
        events => (events.len() as u32, events.as_ptr()),
    }
}

pub const OUT_OF_ORDER: ur_queue_flags_t = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
pub const IN_ORDER: ur_queue_flags_t = ur_queue_flags_t(0);
pub const MIB: usize = 1 << 20;

/// Runs one test of this program, which is then its own master, with variables set.
pub fn child(test: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().expect("this test has a file"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
        .env("UR_TEST_CHILD", test)
        .envs(variables.iter().copied());
    let output = command.output().expect("this program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    (out, err)
}

/// Whether this process is a child that is to run this test's own part.
pub fn is_child(test: &str) -> bool {
    std::env::var("UR_TEST_CHILD").is_ok_and(|own| own == test)
}
