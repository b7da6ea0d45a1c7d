//! Every function of the tables, expanded from the list of functions. Each passes its parameter
//! struct and its default answer to `call`.
//!
//! The answers are rows of `ur::for_each_answer!`, unless [`answer_to`] names one by hand:
//!
//! ```text
//! PARAMS REFUSALS = ANSWER;
//! REFUSALS  { ERROR lacking [PROPERTY, PROPERTY & FLAG ...] given [ARG = FIELD ...] (CONDITION) }
//! ANSWER    nothing()                      success
//!           retain(FIELD KIND), release(FIELD KIND)
//!           query(FIELD KIND, FIELD ENUM, FIELD FIELD)   object, property, buffer's size and buffer
//!           make([ORIGIN ...] OUTPUT ...)  ORIGIN: a handle or list that a new object comes from
//! OUTPUT    handle(FIELD KIND), event(FIELD COMMAND), adopted(FIELD KIND NATIVE),
//!           value(FIELD 1), value(FIELD id TYPE), value(FIELD address HANDLE), value(FIELD default)
//! ```
//!
//! Unsafe blocks rest on the specification's contract: the caller passes pointers that are null, or
//! readable or writable as their parameter says.

#![allow(non_snake_case)]

use std::ffi::{c_char, c_void};

use ur::abi::*;
use ur::object::{InfoOut, Kind, Result, ensure};

use crate::call::call;
use crate::objects::{self, Origin};
use crate::{answers, info, make};

/// The answer to a call according to its row.
pub trait Answer: Sized {
    /// The refusal by a device that lacks a feature.
    ///
    /// # Safety
    /// Each member points to an argument, which meets the specification's contract.
    unsafe fn refuse(p: &Self) -> Result<()>;

    /// What the call does to handles and outputs.
    ///
    /// # Safety
    /// Each member points to an argument, which meets the specification's contract.
    unsafe fn answer(p: &Self) -> Result<()>;
}

/// Writes null to an output that must be null after a refusal.
macro_rules! clear {
    ($arg:ident [$need:ident output $kind:ident clear]) => {
        if !$arg.is_null() {
            // SAFETY: the specification has the caller pass an output that is null or writable.
            unsafe { $arg.write(std::ptr::null_mut()) }
        }
    };
    ($($other:tt)*) => {};
}

/// The answer of a function: by hand, else that of its row.
#[rustfmt::skip]
macro_rules! answer_to {
    (urAdapterGet $p:ident) => { answers::adapter_get($p) };
    (urAdapterGetLastError $p:ident) => { answers::adapter_get_last_error($p) };
    (urAdapterSetLoggerCallback $p:ident) => { answers::adapter_set_logger_callback($p) };
    (urAdapterSetLoggerCallbackLevel $p:ident) => { answers::adapter_set_logger_callback_level($p) };
    (urPlatformGet $p:ident) => { answers::platform_get($p) };
    (urPlatformGetNativeHandle $p:ident) => { answers::platform_get_native_handle($p) };
    (urPlatformGetApiVersion $p:ident) => { answers::platform_get_api_version($p) };
    (urPlatformGetBackendOption $p:ident) => { answers::platform_get_backend_option($p) };
    (urContextSetExtendedDeleter $p:ident) => { answers::context_set_extended_deleter($p) };
    (urEventSetCallback $p:ident) => { answers::event_set_callback($p) };
    (urProgramGetFunctionPointer $p:ident) => { answers::program_get_function_pointer($p) };
    (urProgramGetGlobalVariablePointer $p:ident) => { answers::program_get_global_variable_pointer($p) };
    (urKernelCreate $p:ident) => { answers::kernel_create($p) };
    (urKernelGetSuggestedLocalWorkSize $p:ident) => { answers::kernel_get_suggested_local_work_size($p) };
    (urKernelGetSuggestedLocalWorkSizeWithArgs $p:ident) => { answers::kernel_get_suggested_local_work_size_with_args($p) };
    (urKernelSuggestMaxCooperativeGroupCount $p:ident) => { answers::kernel_suggest_max_cooperative_group_count($p) };
    (urQueueCreate $p:ident) => { answers::queue_create($p) };
    (urQueueBeginGraphCaptureExp $p:ident) => { answers::queue_begin_graph_capture_exp($p) };
    (urQueueBeginCaptureIntoGraphExp $p:ident) => { answers::queue_begin_capture_into_graph_exp($p) };
    (urQueueEndGraphCaptureExp $p:ident) => { answers::queue_end_graph_capture_exp($p) };
    (urQueueIsGraphCaptureEnabledExp $p:ident) => { answers::queue_is_graph_capture_enabled_exp($p) };
    (urQueueGetGraphExp $p:ident) => { answers::queue_get_graph_exp($p) };
    (urSamplerCreate $p:ident) => { answers::sampler_create($p) };
    (urMemBufferCreate $p:ident) => { answers::mem_buffer_create($p) };
    (urPhysicalMemCreate $p:ident) => { answers::physical_mem_create($p) };
    (urEnqueueMemBufferMap $p:ident) => { answers::enqueue_mem_buffer_map($p) };
    (urEnqueueMemUnmap $p:ident) => { answers::enqueue_mem_unmap($p) };
    (urEnqueueUSMDeviceAllocExp $p:ident) => { answers::enqueue_usm_device_alloc_exp($p) };
    (urEnqueueUSMSharedAllocExp $p:ident) => { answers::enqueue_usm_shared_alloc_exp($p) };
    (urEnqueueUSMHostAllocExp $p:ident) => { answers::enqueue_usm_host_alloc_exp($p) };
    (urEnqueueUSMFreeExp $p:ident) => { answers::enqueue_usm_free_exp($p) };
    (urEnqueueHostTaskExp $p:ident) => { answers::enqueue_host_task_exp($p) };
    (urEnqueueNativeCommandExp $p:ident) => { answers::enqueue_native_command_exp($p) };
    (urUSMHostAlloc $p:ident) => { answers::usm_host_alloc($p) };
    (urUSMDeviceAlloc $p:ident) => { answers::usm_device_alloc($p) };
    (urUSMSharedAlloc $p:ident) => { answers::usm_shared_alloc($p) };
    (urUSMFree $p:ident) => { answers::usm_free($p) };
    (urUSMGetMemAllocInfo $p:ident) => { answers::usm_get_mem_alloc_info($p) };
    (urUSMPoolDestroyExp $p:ident) => { answers::usm_pool_destroy_exp($p) };
    (urUSMPoolGetDefaultDevicePoolExp $p:ident) => { answers::usm_pool_get_default_device_pool_exp($p) };
    (urUSMPoolSetInfoExp $p:ident) => { answers::usm_pool_set_info_exp($p) };
    (urUSMPoolSetDevicePoolExp $p:ident) => { answers::usm_pool_set_device_pool_exp($p) };
    (urUSMPoolGetDevicePoolExp $p:ident) => { answers::usm_pool_get_device_pool_exp($p) };
    (urUSMPitchedAllocExp $p:ident) => { answers::usm_pitched_alloc_exp($p) };
    (urBindlessImagesMapExternalLinearMemoryExp $p:ident) => { answers::bindless_images_map_external_linear_memory_exp($p) };
    (urBindlessImagesFreeMappedLinearMemoryExp $p:ident) => { answers::bindless_images_free_mapped_linear_memory_exp($p) };
    (urCommandBufferAppendNativeCommandExp $p:ident) => { answers::command_buffer_append_native_command_exp($p) };
    (urGraphDestroyExp $p:ident) => { answers::graph_destroy_exp($p) };
    (urGraphExecutableGraphDestroyExp $p:ident) => { answers::graph_executable_graph_destroy_exp($p) };
    (urGraphGetIdExp $p:ident) => { answers::graph_get_id_exp($p) };
    (urGraphSetDestructionCallbackExp $p:ident) => { answers::graph_set_destruction_callback_exp($p) };
    (urIPCGetMemHandleExp $p:ident) => { answers::ipc_get_mem_handle_exp($p) };
    (urIPCOpenMemHandleExp $p:ident) => { answers::ipc_open_mem_handle_exp($p) };
    (urIPCCloseMemHandleExp $p:ident) => { answers::ipc_close_mem_handle_exp($p) };
    (urIPCGetPhysMemHandleExp $p:ident) => { answers::ipc_get_phys_mem_handle_exp($p) };
    (urIPCClosePhysMemHandleExp $p:ident) => { answers::ipc_close_phys_mem_handle_exp($p) };
    (urIPCGetEventHandleExp $p:ident) => { answers::ipc_get_event_handle_exp($p) };
    (urMemoryExportAllocExportableMemoryExp $p:ident) => { answers::memory_export_alloc_exportable_memory_exp($p) };
    (urMemoryExportFreeExportableMemoryExp $p:ident) => { answers::memory_export_free_exportable_memory_exp($p) };
    (urMemoryExportExportMemoryHandleExp $p:ident) => { answers::memory_export_export_memory_handle_exp($p) };
    (urVirtualMemReserve $p:ident) => { answers::virtual_mem_reserve($p) };
    (urVirtualMemFree $p:ident) => { answers::virtual_mem_free($p) };
    (urDeviceGet $p:ident) => { answers::device_get($p) };
    (urDevicePartition $p:ident) => { answers::device_partition($p) };
    (urDeviceGetGlobalTimestamps $p:ident) => { answers::device_get_global_timestamps($p) };
    ($name:ident $p:ident) => { Answer::answer($p) };
}

macro_rules! entries {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident: $ty:ty = $mutability:tt $field:ident $role:tt ),*
        )
    )* } )*) => {
        $($(
            unsafe extern "C" fn $name($(mut $arg: $ty),*) -> ur_result_t {
                $(clear! { $arg $role })*
                let mut params = $params { $($field: &raw mut $arg),* };
                // SAFETY: `params` and the arguments are variables of this frame; the caller's
                // arguments meet the specification's contract.
                unsafe {
                    call(number::$name, &raw mut params, |p| {
                        Answer::refuse(p)?;
                        answer_to!($name p)
                    })
                }
            }
        )*)*

        /// The names of all functions, by the index that `call` takes.
        pub const NAMES: [&str; [$($(stringify!($name)),*),*].len()] = [$($(stringify!($name)),*),*];

        /// The mock's own table, to which its handles point.
        pub static TABLE: ur_dditable_t = ur_dditable_t {
            $($table: $struct { $($slot: Some($name)),* }),*
        };
    };
}
macro_rules! answers {
    ($($params:ident $({ $($refusal:tt)* })* = $answer:ident($($row:tt)*);)*) => {$(
        impl Answer for $params {
            #[allow(
                non_snake_case,
                unused_parens,
                unused_unsafe,
                unused_variables,
                clippy::double_parens,
                clippy::unnecessary_cast,
                reason = "conditions name arguments as C does, and most calls have none"
            )]
            unsafe fn refuse(p: &Self) -> Result<()> {
                // SAFETY: the caller guarantees that the arguments meet the specification's
                // contract.
                unsafe { $(refuse!(p $($refusal)*);)* }
                Ok(())
            }

            #[allow(
                non_snake_case,
                unused_parens,
                unused_unsafe,
                clippy::double_parens,
                clippy::unnecessary_cast,
                reason = "not every answer needs a pointer"
            )]
            unsafe fn answer(p: &Self) -> Result<()> {
                // SAFETY: the caller guarantees that the arguments meet the specification's
                // contract.
                unsafe { answer!(p $answer $($row)*) }
            }
        }
    )*};
}

macro_rules! refuse {
    ($p:ident $error:ident lacking [$($property:ident $(& $flag:ident)?),*]) => {
        refuse!(
            $p $error lacking [$($property $(& $flag)?),*] given [] (true)
        )
    };
    (
        $p:ident $error:ident lacking [$($property:ident $(& $flag:ident)?),*]
        given [$($arg:ident = $field:ident),*] $given:tt
    ) => {{
        $(let $arg = *$p.$field;)*
        let refused = $given
            && info::lacks(&[$(
                (stringify!($property), u64::MAX $(& u64::from($flag.0))?)
            ),*]);
        ensure(!refused, $error)?;
    }};
}

macro_rules! answer {
    ($p:ident nothing) => {{
        let _ = $p;
        Ok(())
    }};
    ($p:ident retain $handle:ident $kind:ident) => {{
        objects::known(*$p.$handle, Kind::$kind)?.retain();
        Ok(())
    }};
    ($p:ident release $handle:ident $kind:ident) => {
        objects::release(*$p.$handle, Kind::$kind)
    };
    ($p:ident query $of:ident $kind:ident, $name:ident $properties:ident, - $buffer:ident) => {{
        let out = InfoOut::new(None, *$p.$buffer, *$p.ppPropSizeRet);
        let kind = Kind::$kind;
        info::answer(*$p.$of, kind, $properties::PROPERTIES, (*$p.$name).0, out)
    }};
    ($p:ident query $of:ident $kind:ident, $name:ident $properties:ident, $size:ident $buffer:ident) => {{
        let out = InfoOut::new(Some(*$p.$size), *$p.$buffer, *$p.ppPropSizeRet);
        let kind = Kind::$kind;
        info::answer(*$p.$of, kind, $properties::PROPERTIES, (*$p.$name).0, out)
    }};
    ($p:ident make [$($origin:ident $($more:ident)*),*] $($output:ident($($row:tt)*))*) => {{
        let origin = Origin::default();
        $(let origin = origin!($p origin $origin $($more)*);)*
        $(output!($p origin $output $($row)*);)*
        let _ = origin;
        Ok(())
    }};
}

macro_rules! origin {
    ($p:ident $origin:ident $handle:ident $kind:ident) => {
        $origin.with(*$p.$handle, Kind::$kind)
    };
    ($p:ident $origin:ident $list:ident $count:ident $kind:ident) => {
        $origin.list(*$p.$list, *$p.$count, Kind::$kind)
    };
}

macro_rules! output {
    ($p:ident $origin:ident handle $to:ident $kind:ident) => {
        make::handle(*$p.$to, Kind::$kind, &$origin)
    };
    ($p:ident $origin:ident event $to:ident $command:ident) => {
        make::event(*$p.$to, $command, &$origin)
    };
    ($p:ident $origin:ident adopted $to:ident $kind:ident $native:ident) => {
        make::adopted(*$p.$to, Kind::$kind, *$p.$native, &$origin)
    };
    ($p:ident $origin:ident value $to:ident default) => {
        make::value(*$p.$to, Default::default())
    };
    ($p:ident $origin:ident value $to:ident $value:literal) => {
        make::value(*$p.$to, $value)
    };
    ($p:ident $origin:ident value $to:ident id $Number:ident) => {
        make::value(*$p.$to, objects::next_id() as $Number)
    };
    ($p:ident $origin:ident value $to:ident address $handle:ident) => {
        make::value(*$p.$to, (*$p.$handle).expose_provenance())
    };
}

macro_rules! kinds {
    ($($of:ident $kind:ident;)*) => {
        /// The kinds of handle, by their C type.
        pub const KINDS: &[(&str, Kind)] = &[$((stringify!($of), Kind::$kind)),*];
    };
}

ur::for_each_function! { entries }
ur::for_each_answer! { answers }
ur::for_each_handle! { kinds }
