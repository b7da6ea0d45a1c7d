//! What dispatches on a context or a queue but is no matter of the engine: the adapter's own.
//!
//! The engine implements the `hal` traits of contexts and queues for every driver, so an adapter
//! cannot; what it offers beyond goes here, under the same names and with the same parameters.

// Each list is expanded twice, as provided methods and as the calls that forward to them.
#![allow(unused_variables, clippy::too_many_arguments)]

use crate::abi::*;
use crate::hal::{ImageInfo, Unwrapped, VirtualMemGranularityInfo, VirtualMemInfo};
use crate::object::{Error, Handles, InfoOut, Object, Out, OutHandle, Result};
use crate::stream::{Context, Driver, Event, Queue};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

macro_rules! provided {
    ($of:ident; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => { $(
        $(#[$doc])*
        fn $name(this: &Object<$of<B>>, $($arg: $ty),*) -> Result<$ret> {
            Err(Error::unsupported())
        }
    )* };
}

macro_rules! forwarded {
    ($of:ident; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => { $(
        fn $name(this: &Object<Self>, $($arg: $ty),*) -> Result<$ret> {
            <B as $crate::stream::Hooks<B>>::$name(this, $($arg),*)
        }
    )* };
}

macro_rules! context_hooks {
    ($with:ident) => {
        $with! { Context;
            /// `urMemImageCreate`
            fn mem_image_create(flags: ur_mem_flags_t, image_format: &ur_image_format_t, image_desc: &ur_image_desc_t, host: *mut c_void) -> Arc<Object<B::Mem>>;
            /// `urMemBufferCreate`
            fn mem_buffer_create(flags: ur_mem_flags_t, size: usize, properties: Option<&ur_buffer_properties_t>) -> Arc<Object<B::Mem>>;
            /// `urMemBufferCreateWithNativeHandle`
            fn mem_buffer_create_with_native_handle(native_mem: ur_native_handle_t, properties: Option<&ur_mem_native_properties_t>) -> Arc<Object<B::Mem>>;
            /// `urMemImageCreateWithNativeHandle`
            fn mem_image_create_with_native_handle(native_mem: ur_native_handle_t, image_format: &ur_image_format_t, image_desc: &ur_image_desc_t, properties: Option<&ur_mem_native_properties_t>) -> Arc<Object<B::Mem>>;
            /// `urSamplerCreate`
            fn sampler_create(desc: &ur_sampler_desc_t) -> Arc<Object<B::Sampler>>;
            /// `urSamplerCreateWithNativeHandle`
            fn sampler_create_with_native_handle(native_sampler: ur_native_handle_t, properties: Option<&ur_sampler_native_properties_t>) -> Arc<Object<B::Sampler>>;
            /// `urVirtualMemGranularityGetInfo`
            fn virtual_mem_granularity_get_info(device: Option<&Object<B::Device>>, allocation_size: usize, prop_name: VirtualMemGranularityInfo, out: InfoOut<'_>) -> ();
            /// `urVirtualMemReserve`
            fn virtual_mem_reserve(start: *const c_void, size: usize) -> *mut c_void;
            /// `urVirtualMemFree`
            fn virtual_mem_free(start: *const c_void, size: usize) -> ();
            /// `urVirtualMemMap`
            fn virtual_mem_map(start: *const c_void, size: usize, physical_mem: &Object<B::PhysicalMem>, offset: usize, flags: ur_virtual_mem_access_flags_t) -> ();
            /// `urVirtualMemUnmap`
            fn virtual_mem_unmap(start: *const c_void, size: usize) -> ();
            /// `urVirtualMemSetAccess`
            fn virtual_mem_set_access(start: *const c_void, size: usize, flags: ur_virtual_mem_access_flags_t) -> ();
            /// `urVirtualMemGetInfo`
            fn virtual_mem_get_info(start: *const c_void, size: usize, prop_name: VirtualMemInfo, out: InfoOut<'_>) -> ();
            /// `urPhysicalMemCreate`
            fn physical_mem_create(device: &Object<B::Device>, size: usize, properties: Option<&ur_physical_mem_properties_t>) -> Arc<Object<B::PhysicalMem>>;
            /// `urProgramCreateWithIL`
            fn program_create_with_il(il: &[u8], properties: Option<&ur_program_properties_t>) -> Arc<Object<B::Program>>;
            /// `urProgramCreateWithBinary`
            fn program_create_with_binary(devices: Handles<'_, B::Device>, lengths: &[usize], binaries: &[*const u8], properties: Option<&ur_program_properties_t>) -> Arc<Object<B::Program>>;
            /// `urProgramBuild`
            fn program_build(program: &Object<B::Program>, options: Option<&CStr>) -> ();
            /// `urProgramCompile`
            fn program_compile(program: &Object<B::Program>, options: Option<&CStr>) -> ();
            /// `urProgramLink`
            fn program_link(programs: Handles<'_, B::Program>, options: Option<&CStr>) -> Arc<Object<B::Program>>;
            /// `urProgramCreateWithNativeHandle`
            fn program_create_with_native_handle(native_program: ur_native_handle_t, properties: Option<&ur_program_native_properties_t>) -> Arc<Object<B::Program>>;
            /// `urQueueCreateWithNativeHandle`
            fn queue_create_with_native_handle(native_queue: ur_native_handle_t, device: Option<&Object<B::Device>>, properties: Option<&ur_queue_native_properties_t>) -> Arc<Object<B::Queue>>;
            /// `urKernelCreateWithNativeHandle`
            fn kernel_create_with_native_handle(native_kernel: ur_native_handle_t, program: Option<&Object<B::Program>>, properties: Option<&ur_kernel_native_properties_t>) -> Arc<Object<B::Kernel>>;
            /// `urUSMPitchedAllocExp`
            fn usm_pitched_alloc_exp(device: &Object<B::Device>, usm_desc: Option<&ur_usm_desc_t>, pool: Option<&Object<B::UsmPool>>, width_in_bytes: usize, height: usize, element_size_bytes: usize) -> (*mut c_void, usize);
            /// `urBindlessImagesUnsampledImageHandleDestroyExp`
            fn bindless_images_unsampled_image_handle_destroy_exp(device: &Object<B::Device>, image: ur_exp_image_native_handle_t) -> ();
            /// `urBindlessImagesSampledImageHandleDestroyExp`
            fn bindless_images_sampled_image_handle_destroy_exp(device: &Object<B::Device>, image: ur_exp_image_native_handle_t) -> ();
            /// `urBindlessImagesImageAllocateExp`
            fn bindless_images_image_allocate_exp(device: &Object<B::Device>, image_format: &ur_image_format_t, image_desc: &ur_image_desc_t) -> ur_exp_image_mem_native_handle_t;
            /// `urBindlessImagesImageFreeExp`
            fn bindless_images_image_free_exp(device: &Object<B::Device>, image_mem: ur_exp_image_mem_native_handle_t) -> ();
            /// `urBindlessImagesUnsampledImageCreateExp`
            fn bindless_images_unsampled_image_create_exp(device: &Object<B::Device>, image_mem: ur_exp_image_mem_native_handle_t, image_format: &ur_image_format_t, image_desc: &ur_image_desc_t) -> ur_exp_image_native_handle_t;
            /// `urBindlessImagesSampledImageCreateExp`
            fn bindless_images_sampled_image_create_exp(device: &Object<B::Device>, image_mem: ur_exp_image_mem_native_handle_t, image_format: &ur_image_format_t, image_desc: &ur_image_desc_t, sampler_desc: &ur_sampler_desc_t) -> ur_exp_image_native_handle_t;
            /// `urBindlessImagesImageGetInfoExp`
            fn bindless_images_image_get_info_exp(image_mem: ur_exp_image_mem_native_handle_t, prop_name: ImageInfo, out: InfoOut<'_>) -> ();
            /// `urBindlessImagesGetImageMemoryHandleTypeSupportExp`
            fn bindless_images_get_image_memory_handle_type_support_exp(device: &Object<B::Device>, image_desc: &ur_image_desc_t, image_format: &ur_image_format_t, image_mem_handle_type: ur_exp_image_mem_type_t) -> ur_bool_t;
            /// `urBindlessImagesGetImageUnsampledHandleSupportExp`
            fn bindless_images_get_image_unsampled_handle_support_exp(device: &Object<B::Device>, image_desc: &ur_image_desc_t, image_format: &ur_image_format_t, image_mem_handle_type: ur_exp_image_mem_type_t) -> ur_bool_t;
            /// `urBindlessImagesGetImageSampledHandleSupportExp`
            fn bindless_images_get_image_sampled_handle_support_exp(device: &Object<B::Device>, image_desc: &ur_image_desc_t, image_format: &ur_image_format_t, image_mem_handle_type: ur_exp_image_mem_type_t) -> ur_bool_t;
            /// `urBindlessImagesMipmapGetLevelExp`
            fn bindless_images_mipmap_get_level_exp(device: &Object<B::Device>, image_mem: ur_exp_image_mem_native_handle_t, mipmap_level: u32) -> ur_exp_image_mem_native_handle_t;
            /// `urBindlessImagesMipmapFreeExp`
            fn bindless_images_mipmap_free_exp(device: &Object<B::Device>, mem: ur_exp_image_mem_native_handle_t) -> ();
            /// `urBindlessImagesImportExternalMemoryExp`
            fn bindless_images_import_external_memory_exp(device: &Object<B::Device>, size: usize, mem_handle_type: ur_exp_external_mem_type_t, external_mem_desc: &ur_exp_external_mem_desc_t) -> Arc<Object<B::ExternalMem>>;
            /// `urBindlessImagesMapExternalArrayExp`
            fn bindless_images_map_external_array_exp(device: &Object<B::Device>, image_format: &ur_image_format_t, image_desc: &ur_image_desc_t, external_mem: &Object<B::ExternalMem>) -> ur_exp_image_mem_native_handle_t;
            /// `urBindlessImagesMapExternalLinearMemoryExp`
            fn bindless_images_map_external_linear_memory_exp(device: &Object<B::Device>, offset: u64, size: u64, external_mem: &Object<B::ExternalMem>) -> *mut c_void;
            /// `urBindlessImagesReleaseExternalMemoryExp`
            fn bindless_images_release_external_memory_exp(device: &Object<B::Device>, external_mem: &Object<B::ExternalMem>) -> ();
            /// `urBindlessImagesFreeMappedLinearMemoryExp`
            fn bindless_images_free_mapped_linear_memory_exp(device: &Object<B::Device>, mem: *mut c_void) -> ();
            /// `urBindlessImagesImportExternalSemaphoreExp`
            fn bindless_images_import_external_semaphore_exp(device: &Object<B::Device>, sem_handle_type: ur_exp_external_semaphore_type_t, external_semaphore_desc: &ur_exp_external_semaphore_desc_t) -> Arc<Object<B::ExternalSemaphore>>;
            /// `urBindlessImagesReleaseExternalSemaphoreExp`
            fn bindless_images_release_external_semaphore_exp(device: &Object<B::Device>, external_semaphore: &Object<B::ExternalSemaphore>) -> ();
            /// `urProgramDynamicLinkExp`
            fn program_dynamic_link_exp(programs: Handles<'_, B::Program>) -> ();
            /// `urIPCGetMemHandleExp`
            fn ipc_get_mem_handle_exp(mem: *mut c_void, ipc_mem_handle_data: Out<'_, *mut c_void>, ipc_mem_handle_data_size_ret: Out<'_, usize>) -> ();
            /// `urIPCPutMemHandleExp`
            fn ipc_put_mem_handle_exp(ipc_mem_handle_data: *mut c_void) -> ();
            /// `urIPCOpenMemHandleExp`
            fn ipc_open_mem_handle_exp(device: &Object<B::Device>, ipc_mem_handle_data: &[u8]) -> *mut c_void;
            /// `urIPCCloseMemHandleExp`
            fn ipc_close_mem_handle_exp(mem: *mut c_void) -> ();
            /// `urIPCGetPhysMemHandleExp`
            fn ipc_get_phys_mem_handle_exp(phys_mem: &Object<B::PhysicalMem>) -> (*mut c_void, usize);
            /// `urIPCPutPhysMemHandleExp`
            fn ipc_put_phys_mem_handle_exp(ipc_phys_mem_handle_data: *const c_void) -> ();
            /// `urIPCOpenPhysMemHandleExp`
            fn ipc_open_phys_mem_handle_exp(device: &Object<B::Device>, ipc_phys_mem_handle_data: &[u8]) -> Arc<Object<B::PhysicalMem>>;
            /// `urIPCClosePhysMemHandleExp`
            fn ipc_close_phys_mem_handle_exp(phys_mem: &Object<B::PhysicalMem>) -> ();
            /// `urIPCPutEventHandleExp`
            fn ipc_put_event_handle_exp(ipc_event_handle_data: *mut c_void) -> ();
            /// `urIPCOpenEventHandleExp`
            fn ipc_open_event_handle_exp(ipc_event_handle_data: &[u8]) -> Arc<Object<B::Event>>;
            /// `urMemoryExportAllocExportableMemoryExp`
            fn memory_export_alloc_exportable_memory_exp(device: &Object<B::Device>, alignment: usize, size: usize, handle_type_to_export: ur_exp_external_mem_type_t) -> *mut c_void;
            /// `urMemoryExportFreeExportableMemoryExp`
            fn memory_export_free_exportable_memory_exp(device: &Object<B::Device>, mem: *mut c_void) -> ();
            /// `urMemoryExportExportMemoryHandleExp`
            fn memory_export_export_memory_handle_exp(device: &Object<B::Device>, handle_type_to_export: ur_exp_external_mem_type_t, mem: *mut c_void, mem_handle_ret: *mut c_void) -> ();
            /// `urProgramLinkExp`
            fn program_link_exp(devices: Handles<'_, B::Device>, flags: ur_exp_program_flags_t, programs: Handles<'_, B::Program>, options: Option<&CStr>) -> Arc<Object<B::Program>>;
            /// `urUSMHostAllocRegisterExp`
            fn usm_host_alloc_register_exp(host_mem: *mut c_void, size: usize, properties: Option<&ur_exp_usm_host_alloc_register_properties_t>) -> ();
            /// `urUSMHostAllocUnregisterExp`
            fn usm_host_alloc_unregister_exp(host_mem: *mut c_void) -> ();
            /// `urEventCreateExp`
            fn event_create_exp(device: &Object<B::Device>, event_desc: &ur_exp_event_desc_t) -> Arc<Object<B::Event>>;
        }
    };
}

macro_rules! queue_hooks {
    ($with:ident) => {
        $with! { Queue;
            /// `urEnqueueMemImageRead`
            fn mem_image_read(image: &Object<B::Mem>, blocking_read: bool, origin: ur_rect_offset_t, region: ur_rect_region_t, row_pitch: usize, slice_pitch: usize, dst: *mut c_void, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urEnqueueMemImageWrite`
            fn mem_image_write(image: &Object<B::Mem>, blocking_write: bool, origin: ur_rect_offset_t, region: ur_rect_region_t, row_pitch: usize, slice_pitch: usize, src: *mut c_void, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urEnqueueMemImageCopy`
            fn mem_image_copy(image_src: &Object<B::Mem>, image_dst: &Object<B::Mem>, src_origin: ur_rect_offset_t, dst_origin: ur_rect_offset_t, region: ur_rect_region_t, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urEnqueueReadHostPipe`
            fn read_host_pipe(program: &Object<B::Program>, pipe_symbol: &CStr, blocking: bool, dst: *mut c_void, size: usize, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urEnqueueWriteHostPipe`
            fn write_host_pipe(program: &Object<B::Program>, pipe_symbol: &CStr, blocking: bool, src: *mut c_void, size: usize, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urBindlessImagesImageCopyExp`
            fn bindless_images_image_copy_exp(src: *const c_void, dst: *mut c_void, src_image_desc: &ur_image_desc_t, dst_image_desc: &ur_image_desc_t, src_image_format: &ur_image_format_t, dst_image_format: &ur_image_format_t, copy_region: &ur_exp_image_copy_region_t, image_copy_flags: ur_exp_image_copy_flags_t, image_copy_input_types: ur_exp_image_copy_input_types_t, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urBindlessImagesWaitExternalSemaphoreExp`
            fn bindless_images_wait_external_semaphore_exp(semaphore: &Object<B::ExternalSemaphore>, has_wait_value: bool, wait_value: u64, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urBindlessImagesSignalExternalSemaphoreExp`
            fn bindless_images_signal_external_semaphore_exp(semaphore: &Object<B::ExternalSemaphore>, has_signal_value: bool, signal_value: u64, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
            /// `urEnqueueNativeCommandExp`
            fn native_command_exp(native_enqueue: <ur_exp_enqueue_native_command_function_t as Unwrapped>::Fn, data: *mut c_void, mem_list: Handles<'_, B::Mem>, properties: Option<&ur_exp_enqueue_native_command_properties_t>, event_wait_list: Handles<'_, B::Event>, event: OutHandle<'_, B::Event>) -> ();
        }
    };
}

pub(crate) use {context_hooks, forwarded, queue_hooks};

/// What an adapter may offer on the engine's objects. A method that it leaves out answers
/// `UNSUPPORTED_FEATURE`.
pub trait Hooks<B: Driver> {
    context_hooks!(provided);
    queue_hooks!(provided);

    /// `urContextGetNativeHandle`
    fn context_native_handle(this: &Object<Context<B>>) -> Result<ur_native_handle_t> {
        Err(Error::unsupported())
    }

    /// `urEventCreateWithNativeHandle`, of a handle that is not 0.
    fn event_create_with_native_handle(
        this: &Object<Context<B>>,
        native_event: ur_native_handle_t,
        properties: Option<&ur_event_native_properties_t>,
    ) -> Result<Arc<Object<Event<B>>>> {
        Err(Error::unsupported())
    }

    /// The queue that the command of an adopted event went to, where the backend knows one.
    fn queue_of_adopted(
        context: &Object<Context<B>>,
        marker: &B::Marker,
    ) -> Result<Option<Arc<Object<Queue<B>>>>> {
        Ok(None)
    }

    /// `urQueueGetNativeHandle`
    fn queue_native_handle(
        this: &Object<Queue<B>>,
        desc: Option<&ur_queue_native_desc_t>,
    ) -> Result<ur_native_handle_t> {
        Err(Error::unsupported())
    }

    /// `urEventGetNativeHandle`
    fn event_native_handle(this: &Object<Event<B>>) -> Result<ur_native_handle_t> {
        Err(Error::unsupported())
    }
}
