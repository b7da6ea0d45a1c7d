//! A client of Level Zero: its functions, a context, and short forms for what the tests do often.

use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use ze::*;

ur::dl::symbols! {
    /// What the tests call.
    pub struct Api {
        required {
            zeInit: pfn::zeInit,
            zeDriverGet: pfn::zeDriverGet,
            zeDriverGetExtensionFunctionAddress: pfn::zeDriverGetExtensionFunctionAddress,
            zeDeviceGet: pfn::zeDeviceGet,
            zeDeviceGetStatus: pfn::zeDeviceGetStatus,
            zeDeviceGetSubDevices: pfn::zeDeviceGetSubDevices,
            zeDeviceGetProperties: pfn::zeDeviceGetProperties,
            zeContextCreate: pfn::zeContextCreate,
            zeContextDestroy: pfn::zeContextDestroy,
            zeMemAllocDevice: pfn::zeMemAllocDevice,
            zeMemAllocHost: pfn::zeMemAllocHost,
            zeMemFree: pfn::zeMemFree,
            zeMemGetAllocProperties: pfn::zeMemGetAllocProperties,
            zeMemGetAddressRange: pfn::zeMemGetAddressRange,
            zeCommandListCreate: pfn::zeCommandListCreate,
            zeCommandListCreateImmediate: pfn::zeCommandListCreateImmediate,
            zeCommandListClose: pfn::zeCommandListClose,
            zeCommandListDestroy: pfn::zeCommandListDestroy,
            zeCommandListAppendMemoryCopy: pfn::zeCommandListAppendMemoryCopy,
            zeCommandListAppendMemoryCopyRegion: pfn::zeCommandListAppendMemoryCopyRegion,
            zeCommandListAppendMemoryFill: pfn::zeCommandListAppendMemoryFill,
            zeCommandListAppendLaunchKernel: pfn::zeCommandListAppendLaunchKernel,
            zeDeviceReserveCacheExt: pfn::zeDeviceReserveCacheExt,
            zeImageCreate: pfn::zeImageCreate,
            zeImageDestroy: pfn::zeImageDestroy,
            zeSamplerCreate: pfn::zeSamplerCreate,
            zeSamplerDestroy: pfn::zeSamplerDestroy,
            zeCommandListAppendImageCopyRegion: pfn::zeCommandListAppendImageCopyRegion,
            zeCommandListAppendImageCopyToMemory: pfn::zeCommandListAppendImageCopyToMemory,
            zeCommandListAppendImageCopyFromMemory: pfn::zeCommandListAppendImageCopyFromMemory,
            zeCommandListAppendImageCopyToMemoryExt: pfn::zeCommandListAppendImageCopyToMemoryExt,
            zeCommandListAppendSignalEvent: pfn::zeCommandListAppendSignalEvent,
            zeCommandListAppendWaitOnEvents: pfn::zeCommandListAppendWaitOnEvents,
            zeCommandQueueCreate: pfn::zeCommandQueueCreate,
            zeCommandQueueDestroy: pfn::zeCommandQueueDestroy,
            zeCommandQueueExecuteCommandLists: pfn::zeCommandQueueExecuteCommandLists,
            zeFenceCreate: pfn::zeFenceCreate,
            zeFenceDestroy: pfn::zeFenceDestroy,
            zeFenceHostSynchronize: pfn::zeFenceHostSynchronize,
            zeEventPoolCreate: pfn::zeEventPoolCreate,
            zeEventPoolDestroy: pfn::zeEventPoolDestroy,
            zeEventCreate: pfn::zeEventCreate,
            zeEventDestroy: pfn::zeEventDestroy,
            zeEventHostSignal: pfn::zeEventHostSignal,
            zeEventHostSynchronize: pfn::zeEventHostSynchronize,
            zeEventQueryStatus: pfn::zeEventQueryStatus,
            zeEventQueryKernelTimestamp: pfn::zeEventQueryKernelTimestamp,
            zeVirtualMemReserve: pfn::zeVirtualMemReserve,
            zeVirtualMemFree: pfn::zeVirtualMemFree,
            zeVirtualMemMap: pfn::zeVirtualMemMap,
            zeVirtualMemUnmap: pfn::zeVirtualMemUnmap,
            zePhysicalMemCreate: pfn::zePhysicalMemCreate,
            zePhysicalMemDestroy: pfn::zePhysicalMemDestroy,
            zeModuleCreate: pfn::zeModuleCreate,
            zeModuleDestroy: pfn::zeModuleDestroy,
            zeModuleGetNativeBinary: pfn::zeModuleGetNativeBinary,
            zeModuleGetKernelNames: pfn::zeModuleGetKernelNames,
            zeKernelCreate: pfn::zeKernelCreate,
            zeKernelDestroy: pfn::zeKernelDestroy,
            zeKernelSetArgumentValue: pfn::zeKernelSetArgumentValue,
            zeKernelSetGroupSize: pfn::zeKernelSetGroupSize,
            zeKernelGetProperties: pfn::zeKernelGetProperties,
        }
        optional {
            zeCommandListHostSynchronize: pfn::zeCommandListHostSynchronize,
            zeCommandListImmediateAppendCommandListsExp: pfn::zeCommandListImmediateAppendCommandListsExp,
            zeCommandListAppendLaunchKernelWithArguments: pfn::zeCommandListAppendLaunchKernelWithArguments,
            zeCommandListGetNextCommandIdExp: pfn::zeCommandListGetNextCommandIdExp,
            zeCommandListUpdateMutableCommandsExp: pfn::zeCommandListUpdateMutableCommandsExp,
            zeCommandListBeginGraphCaptureExt: pfn::zeCommandListBeginGraphCaptureExt,
            zeCommandListEndGraphCaptureExt: pfn::zeCommandListEndGraphCaptureExt,
            zeGraphInstantiateExt: pfn::zeGraphInstantiateExt,
            zeGraphIsEmptyExt: pfn::zeGraphIsEmptyExt,
            zeGraphDestroyExt: pfn::zeGraphDestroyExt,
            zeExecutableGraphDestroyExt: pfn::zeExecutableGraphDestroyExt,
            zeCommandListAppendGraphExt: pfn::zeCommandListAppendGraphExt,
            zeCommandListUpdateMutableCommandSignalEventExp: pfn::zeCommandListUpdateMutableCommandSignalEventExp,
        }
    }
}

/// The type of zexCounterBasedEventCreate2, which no loader exports.
pub type CounterBasedCreate = pfn::zeEventCounterBasedCreate;

/// A name of a function, called with arguments; the code that it returns.
macro_rules! call {
    ($client:expr, $name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: the tests keep the interface's rules, or ask for the error.
        unsafe { ($client.api.$name)($($arg),*) }
    };
}

/// Expects success.
macro_rules! good {
    ($client:expr, $name:ident($($arg:expr),* $(,)?)) => {
        assert_eq!(call!($client, $name($($arg),*)), ZE_RESULT_SUCCESS, stringify!($name))
    };
}

pub(crate) use {call, good};

pub struct Client {
    pub api: Api,
    pub driver: ze_driver_handle_t,
    pub device: ze_device_handle_t,
    pub context: ze_context_handle_t,
}

pub const NONE: ze_event_handle_t = ze_event_handle_t::NULL;

impl Client {
    pub fn open(library: &Path) -> Self {
        let name = library.to_str().expect("a folder's name is text");
        let api = Api::load(&[name]).expect("the library has the functions");
        let mut client = Self {
            api,
            driver: ze_driver_handle_t::NULL,
            device: ze_device_handle_t::NULL,
            context: ze_context_handle_t::NULL,
        };
        good!(client, zeInit(0));
        let mut count = 1;
        good!(client, zeDriverGet(&mut count, &mut client.driver));
        good!(
            client,
            zeDeviceGet(client.driver, &mut count, &mut client.device)
        );
        let desc = ze_context_desc_t::default();
        good!(
            client,
            zeContextCreate(client.driver, &desc, &mut client.context)
        );
        client
    }

    pub fn close(self) {
        good!(self, zeContextDestroy(self.context));
    }

    pub fn device_memory(&self, bytes: usize) -> *mut c_void {
        let mut start = null_mut();
        let desc = ze_device_mem_alloc_desc_t::default();
        good!(
            self,
            zeMemAllocDevice(self.context, &desc, bytes, 64, self.device, &mut start)
        );
        start
    }

    pub fn host_memory<T: Copy>(&self, values: &[T]) -> *mut c_void {
        let mut start = null_mut();
        let desc = ze_host_mem_alloc_desc_t::default();
        good!(
            self,
            zeMemAllocHost(self.context, &desc, size_of_val(values), 64, &mut start)
        );
        // SAFETY: the allocation has the values' size.
        unsafe {
            start
                .cast::<T>()
                .copy_from_nonoverlapping(values.as_ptr(), values.len())
        };
        start
    }

    pub fn free(&self, all: &[*mut c_void]) {
        for start in all {
            good!(self, zeMemFree(self.context, *start));
        }
    }

    pub fn immediate(&self) -> ze_command_list_handle_t {
        let mut list = ze_command_list_handle_t::NULL;
        let desc = ze_command_queue_desc_t {
            flags: ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
            mode: ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..Default::default()
        };
        good!(
            self,
            zeCommandListCreateImmediate(self.context, self.device, &desc, &mut list)
        );
        list
    }

    pub fn copy(
        &self,
        list: ze_command_list_handle_t,
        to: *mut c_void,
        from: *mut c_void,
        bytes: usize,
        signal: ze_event_handle_t,
    ) {
        good!(
            self,
            zeCommandListAppendMemoryCopy(list, to, from, bytes, signal, 0, null_mut())
        );
    }

    pub fn wait(&self, list: ze_command_list_handle_t, mut event: ze_event_handle_t) {
        good!(self, zeCommandListAppendWaitOnEvents(list, 1, &mut event));
    }

    /// Waits for all of a list: by its own function where the loader has it, else by an event.
    pub fn finish(&self, list: ze_command_list_handle_t) {
        if let Some(synchronize) = self.api.zeCommandListHostSynchronize {
            // SAFETY: a live list.
            assert_eq!(unsafe { synchronize(list, u64::MAX) }, ZE_RESULT_SUCCESS);
            return;
        }
        let (pool, events) = self.events(0, 1);
        good!(self, zeCommandListAppendSignalEvent(list, events[0]));
        good!(self, zeEventHostSynchronize(events[0], u64::MAX));
        self.destroy_events(pool, &events);
    }

    pub fn events(
        &self,
        flags: ze_event_pool_flags_t,
        count: u32,
    ) -> (ze_event_pool_handle_t, Vec<ze_event_handle_t>) {
        let mut pool = ze_event_pool_handle_t::NULL;
        let flags = flags | ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
        let desc = ze_event_pool_desc_t {
            flags,
            count,
            ..Default::default()
        };
        good!(
            self,
            zeEventPoolCreate(self.context, &desc, 0, null_mut(), &mut pool)
        );
        let one = |index| {
            let mut event = NONE;
            let desc = ze_event_desc_t {
                index,
                ..Default::default()
            };
            good!(self, zeEventCreate(pool, &desc, &mut event));
            event
        };
        (pool, (0..count).map(one).collect())
    }

    pub fn destroy_events(&self, pool: ze_event_pool_handle_t, events: &[ze_event_handle_t]) {
        for event in events {
            good!(self, zeEventDestroy(*event));
        }
        good!(self, zeEventPoolDestroy(pool));
    }

    /// Creates counter-based events, by the driver's own function.
    pub fn counter_based(&self) -> impl Fn() -> ze_event_handle_t + '_ {
        let mut found = null_mut();
        let name = c"zexCounterBasedEventCreate2";
        good!(
            self,
            zeDriverGetExtensionFunctionAddress(self.driver, name.as_ptr(), &mut found)
        );
        // SAFETY: the function has this type.
        let create: CounterBasedCreate = unsafe { std::mem::transmute(found) };
        move || {
            let mut event = NONE;
            let desc = ze_event_counter_based_desc_t {
                flags: ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
                    | ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE,
                ..Default::default()
            };
            // SAFETY: live handles.
            let code = unsafe { create(self.context, self.device, &desc, &mut event) };
            assert_eq!(code, ZE_RESULT_SUCCESS);
            event
        }
    }

    /// A module from code, or the error.
    pub fn module(
        &self,
        format: ze_module_format_t,
        code: &[u8],
    ) -> Result<ze_module_handle_t, ze_result_t> {
        let mut module = ze_module_handle_t::NULL;
        let desc = ze_module_desc_t {
            format,
            inputSize: code.len(),
            pInputModule: code.as_ptr(),
            ..Default::default()
        };
        match call!(
            self,
            zeModuleCreate(self.context, self.device, &desc, &mut module, null_mut())
        ) {
            ZE_RESULT_SUCCESS => Ok(module),
            code => Err(code),
        }
    }

    pub fn kernel(
        &self,
        module: ze_module_handle_t,
        name: &CStr,
    ) -> Result<ze_kernel_handle_t, ze_result_t> {
        let mut kernel = ze_kernel_handle_t::NULL;
        let desc = ze_kernel_desc_t {
            pKernelName: name.as_ptr(),
            ..Default::default()
        };
        match call!(self, zeKernelCreate(module, &desc, &mut kernel)) {
            ZE_RESULT_SUCCESS => Ok(kernel),
            code => Err(code),
        }
    }

    /// Sets an argument. Returns the code.
    pub fn argument<T>(&self, kernel: ze_kernel_handle_t, index: u32, value: &T) -> ze_result_t {
        call!(
            self,
            zeKernelSetArgumentValue(kernel, index, size_of::<T>(), (&raw const *value).cast())
        )
    }

    pub fn launch(
        &self,
        list: ze_command_list_handle_t,
        kernel: ze_kernel_handle_t,
        groups: u32,
    ) -> ze_result_t {
        let counts = ze_group_count_t {
            groupCountX: groups,
            groupCountY: 1,
            groupCountZ: 1,
        };
        call!(
            self,
            zeCommandListAppendLaunchKernel(list, kernel, &counts, NONE, 0, null_mut())
        )
    }
}

/// Values in memory that the host reaches.
pub fn read<T: Copy>(start: *const c_void, count: usize) -> Vec<T> {
    // SAFETY: the tests read what they allocated, once commands are done.
    unsafe { std::slice::from_raw_parts(start.cast::<T>(), count) }.to_vec()
}

pub const NOWHERE: *const c_void = null();
