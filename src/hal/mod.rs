//! The hardware abstraction layer: one trait for each object, and the C shims in front of them.
//!
//! Traits and shims are generated from spec/, a file an object; `shims` has what a row of them becomes.
//! This module has the shared parts: the absent object, the entry of the adapter itself, and the macro
//! that exports an adapter's 26 symbols. Uses `object` and `abi`; knows no backend.

pub mod answers;
#[rustfmt::skip]
mod generated;
mod info;
mod logger;
pub mod metadata;
mod ranges;
mod shims;

pub use crate::object::checks;
pub use generated::*;
pub use info::*;
pub use logger::{set_logger, set_logger_level};
pub use ranges::Ranges;
pub use shims::ddi;

use crate::abi::*;
use crate::object::{Body, Census, Object, Result, ensure};
use std::convert::Infallible;
use std::ffi::c_void;
use std::sync::Arc;

/// A backend with a dispatch table; [`export!`](crate::export) implements it.
pub trait Exported {
    /// The table that every handle of this adapter points to.
    fn table() -> &'static ur_dditable_t;
}

/// The body of an object that a backend does not have; it has no value.
pub struct Absent<const KIND: u32>(Infallible);

/// The function type of a callback type that may be null.
pub trait Unwrapped {
    type Fn;
}

impl<F> Unwrapped for Option<F> {
    type Fn = F;
}

/// Creates an object of this backend without API references.
pub fn new<B: Backend, T: Body>(body: T) -> Arc<Object<T>> {
    Object::new(B::table(), body)
}

/// `urAdapterGet`: writes the one adapter of a backend, or none without a driver.
///
/// `INVALID_SIZE` for a list without room.
///
/// # Safety
/// The list is null or has room for `room` handles; the total is null or writable.
pub unsafe fn adapter_get<B: Backend>(
    room: u32,
    list: *mut ur_adapter_handle_t,
    total: *mut u32,
) -> Result<()> {
    ensure(list.is_null() || room > 0, UR_RESULT_ERROR_INVALID_SIZE)?;
    let adapter = B::adapter()?;
    if let Some(adapter) = &adapter
        && !list.is_null()
    {
        // SAFETY: not null, and the caller guarantees room for at least one handle.
        unsafe { list.write(adapter.into_handle().cast()) };
        Census::expect_report();
    }
    if !total.is_null() {
        // SAFETY: not null, and the caller guarantees that it is writable.
        unsafe { total.write(u32::from(adapter.is_some())) };
    }
    Ok(())
}

/// The body of every `urGet*ProcAddrTable`: copies the part of the table at this offset.
///
/// Errors: `INVALID_NULL_POINTER`, `UNSUPPORTED_VERSION` for any but the current version,
/// `INVALID_VALUE` for a part beyond the table.
///
/// # Safety
/// `to` is null or writable for `bytes`, the size of the part at `offset` of `table`.
pub unsafe fn get_table(
    version: ur_api_version_t,
    table: &'static ur_dditable_t,
    offset: usize,
    bytes: usize,
    to: *mut c_void,
) -> Result<()> {
    ensure(!to.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    ensure(
        version == UR_API_VERSION_CURRENT,
        UR_RESULT_ERROR_UNSUPPORTED_VERSION,
    )?;
    ensure(
        offset + bytes <= size_of::<ur_dditable_t>(),
        UR_RESULT_ERROR_INVALID_VALUE,
    )?;
    // SAFETY: the caller guarantees a writable target of this size. The source lies within the
    // table, and does not overlap the target.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(table).byte_add(offset).cast::<u8>(),
            to.cast(),
            bytes,
        )
    };
    Ok(())
}

/// Defines a backend's table, and exports the 26 functions that a loader calls for its parts.
#[macro_export]
macro_rules! export {
    ($backend:ty) => {
        $crate::export!(@table $backend);
        $crate::export!(@all $backend);
    };
    // Exports the functions of an adapter that implements `Exported` itself.
    (@all $backend:ty) => {
        $crate::export!(@functions $backend;
            urGetAdapterProcAddrTable Adapter ur_adapter_dditable_t,
            urGetPlatformProcAddrTable Platform ur_platform_dditable_t,
            urGetContextProcAddrTable Context ur_context_dditable_t,
            urGetEventProcAddrTable Event ur_event_dditable_t,
            urGetEventExpProcAddrTable EventExp ur_event_exp_dditable_t,
            urGetProgramProcAddrTable Program ur_program_dditable_t,
            urGetProgramExpProcAddrTable ProgramExp ur_program_exp_dditable_t,
            urGetKernelProcAddrTable Kernel ur_kernel_dditable_t,
            urGetQueueProcAddrTable Queue ur_queue_dditable_t,
            urGetQueueExpProcAddrTable QueueExp ur_queue_exp_dditable_t,
            urGetSamplerProcAddrTable Sampler ur_sampler_dditable_t,
            urGetMemProcAddrTable Mem ur_mem_dditable_t,
            urGetPhysicalMemProcAddrTable PhysicalMem ur_physical_mem_dditable_t,
            urGetEnqueueProcAddrTable Enqueue ur_enqueue_dditable_t,
            urGetEnqueueExpProcAddrTable EnqueueExp ur_enqueue_exp_dditable_t,
            urGetUSMProcAddrTable USM ur_usm_dditable_t,
            urGetUSMExpProcAddrTable USMExp ur_usm_exp_dditable_t,
            urGetBindlessImagesExpProcAddrTable BindlessImagesExp ur_bindless_images_exp_dditable_t,
            urGetCommandBufferExpProcAddrTable CommandBufferExp ur_command_buffer_exp_dditable_t,
            urGetGraphExpProcAddrTable GraphExp ur_graph_exp_dditable_t,
            urGetIPCExpProcAddrTable IPCExp ur_ipc_exp_dditable_t,
            urGetMemoryExportExpProcAddrTable MemoryExportExp ur_memory_export_exp_dditable_t,
            urGetUsmP2PExpProcAddrTable UsmP2PExp ur_usm_p2p_exp_dditable_t,
            urGetVirtualMemProcAddrTable VirtualMem ur_virtual_mem_dditable_t,
            urGetDeviceProcAddrTable Device ur_device_dditable_t,
            urGetDeviceExpProcAddrTable DeviceExp ur_device_exp_dditable_t,
        );
    };
    (@table $backend:ty) => {
        impl $crate::hal::Exported for $backend {
            fn table() -> &'static $crate::abi::ur_dditable_t {
                static TABLE: $crate::abi::ur_dditable_t = $crate::hal::ddi::<$backend>();
                &TABLE
            }
        }
    };
    (@functions $backend:ty; $($symbol:ident $member:ident $part:ident,)*) => { $(
        /// Copies one part of the table, for a loader of the same version.
        ///
        /// # Safety
        /// The table is null or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(
            version: $crate::abi::ur_api_version_t,
            table: *mut $crate::abi::$part,
        ) -> $crate::abi::ur_result_t {
            $crate::object::boundary(|| {
                let offset = ::std::mem::offset_of!($crate::abi::ur_dditable_t, $member);
                let whole = <$backend as $crate::hal::Exported>::table();
                // SAFETY: the caller guarantees a table of this type, which is that of the part at
                // this offset.
                unsafe { $crate::hal::get_table(version, whole, offset, size_of::<$crate::abi::$part>(), table.cast()) }
            })
        }
    )* };
}
