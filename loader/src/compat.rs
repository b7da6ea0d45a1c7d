//! The six functions that 2026.2 dropped and `libsycl.so.9` of 2026.1 still imports:
//! `urKernelSetArg{Value,Local,Pointer,Sampler,MemObj}` and `urEnqueueKernelLaunch`.
//!
//! Owns their entry points and the intercepts that keep the rest of the interface consistent with
//! them. The loader stores each kernel's arguments and passes them at launch to the current
//! functions. Adapters are not involved. Arguments persist between launches, as they did in 2026.1.

mod arguments;

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use ur::abi::*;
use ur::object::{Error, Kind, Result, boundary, ensure};

use self::arguments::{Argument, Arguments, Opaque, Value};
use crate::entry::versioned;
use crate::layers::lifetime;
use crate::state::app_table;

pub use self::arguments::clear as clear_arguments;

/// The table that the intercepts call: the base table without them.
static NEXT: AtomicPtr<ur_dditable_t> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the table that the intercepts call.
pub fn set_next(next: &'static ur_dditable_t) {
    NEXT.store(std::ptr::from_ref(next).cast_mut(), Ordering::Release);
}

/// Installs the intercepts in the base table.
pub fn install(table: &mut ur_dditable_t) {
    table.Kernel.pfnCreate = Some(kernel_create);
    table.Kernel.pfnCreateWithNativeHandle = Some(kernel_create_with_native_handle);
    table.Kernel.pfnRetain = Some(kernel_retain);
    table.Kernel.pfnRelease = Some(kernel_release);
    table.Kernel.pfnGetSuggestedLocalWorkSize = Some(suggested_local_work_size);
    table.CommandBufferExp.pfnAppendKernelLaunchExp = Some(append_kernel_launch);
}

versioned! {
    /// Copies `argSize` bytes as the argument's value.
    ///
    /// Errors: `UNINITIALIZED`, `INVALID_NULL_HANDLE`, `INVALID_NULL_POINTER`,
    /// `INVALID_KERNEL_ARGUMENT_SIZE` for a size of 0 or above `isize::MAX`.
    ///
    /// # Safety
    /// The kernel is null or live; the value is null or has `argSize` readable bytes.
    fn urKernelSetArgValue(
        hKernel: ur_kernel_handle_t,
        argIndex: u32,
        argSize: usize,
        _pProperties: *const ur_kernel_arg_value_properties_t,
        pArgValue: *const c_void,
    ) {
        check_kernel("urKernelSetArgValue", hKernel)?;
        ensure(!pArgValue.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
        let fits = argSize > 0 && argSize <= isize::MAX.cast_unsigned();
        ensure(fits, UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE)?;
        // SAFETY: not null, and the caller guarantees `argSize` readable bytes.
        let bytes = unsafe { std::slice::from_raw_parts(pArgValue.cast::<u8>(), argSize) };
        set(hKernel, argIndex, Argument::Value(Value::new(bytes)))
    }

    /// Sets an argument to `argSize` bytes of local memory for each work-group. Errors:
    /// `UNINITIALIZED`, `INVALID_NULL_HANDLE`.
    ///
    /// # Safety
    /// The kernel is null or live.
    fn urKernelSetArgLocal(
        hKernel: ur_kernel_handle_t,
        argIndex: u32,
        argSize: usize,
        _pProperties: *const ur_kernel_arg_local_properties_t,
    ) {
        check_kernel("urKernelSetArgLocal", hKernel)?;
        set(hKernel, argIndex, Argument::Local(argSize))
    }

    /// Sets a USM pointer, which may be null. Errors: `UNINITIALIZED`, `INVALID_NULL_HANDLE`.
    ///
    /// # Safety
    /// The kernel is null or live.
    fn urKernelSetArgPointer(
        hKernel: ur_kernel_handle_t,
        argIndex: u32,
        _pProperties: *const ur_kernel_arg_pointer_properties_t,
        pArgValue: *const c_void,
    ) {
        check_kernel("urKernelSetArgPointer", hKernel)?;
        set(hKernel, argIndex, Argument::Pointer(Opaque(pArgValue.cast_mut())))
    }

    /// Sets a sampler. Errors: `UNINITIALIZED`, `INVALID_NULL_HANDLE` for a null kernel or sampler.
    ///
    /// # Safety
    /// The kernel is null or live.
    fn urKernelSetArgSampler(
        hKernel: ur_kernel_handle_t,
        argIndex: u32,
        _pProperties: *const ur_kernel_arg_sampler_properties_t,
        hArgValue: ur_sampler_handle_t,
    ) {
        check_kernel("urKernelSetArgSampler", hKernel)?;
        ensure(!hArgValue.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
        set(hKernel, argIndex, Argument::Sampler(Opaque(hArgValue.cast())))
    }

    /// Sets a buffer or image, which may be null. Access is read and write without properties.
    ///
    /// Errors: `UNINITIALIZED`, `INVALID_NULL_HANDLE` for a null kernel, `INVALID_ENUMERATION` for
    /// unknown access flags.
    ///
    /// # Safety
    /// The kernel is null or live; the properties are null or readable.
    fn urKernelSetArgMemObj(
        hKernel: ur_kernel_handle_t,
        argIndex: u32,
        pProperties: *const ur_kernel_arg_mem_obj_properties_t,
        hArgValue: ur_mem_handle_t,
    ) {
        check_kernel("urKernelSetArgMemObj", hKernel)?;
        // SAFETY: the caller guarantees that the properties are null or readable.
        let properties = unsafe { pProperties.as_ref() };
        let access = properties.map_or(UR_MEM_FLAG_READ_WRITE, |properties| properties.memoryAccess);
        ensure(access.0 & UR_MEM_FLAGS_MASK == 0, UR_RESULT_ERROR_INVALID_ENUMERATION)?;
        set(hKernel, argIndex, Argument::MemObj { handle: Opaque(hArgValue.cast()), access })
    }

    /// Launches a kernel with its stored arguments. Errors: those of
    /// `urEnqueueKernelLaunchWithArgsExp`.
    ///
    /// # Safety
    /// The arguments meet the contract of `urEnqueueKernelLaunchWithArgsExp`.
    fn urEnqueueKernelLaunch(
        hQueue: ur_queue_handle_t,
        hKernel: ur_kernel_handle_t,
        workDim: u32,
        pGlobalWorkOffset: *const usize,
        pGlobalWorkSize: *const usize,
        pLocalWorkSize: *const usize,
        launchPropList: *const ur_kernel_launch_ext_properties_t,
        numEventsInWaitList: u32,
        phEventWaitList: *const ur_event_handle_t,
        phEvent: *mut ur_event_handle_t,
    ) {
        let launch = app_table().and_then(|table| table.EnqueueExp.pfnKernelLaunchWithArgsExp);
        let launch = launch.ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
        ensure(!hQueue.is_null() && !hKernel.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
        with_list(arguments::of(hKernel).as_deref(), |count, list| {
            // SAFETY: the caller guarantees the contract of `urEnqueueKernelLaunchWithArgsExp`; the
            // list outlives the call.
            unsafe {
                launch(
                    hQueue, hKernel, workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize,
                    count, list, launchPropList, numEventsInWaitList, phEventWaitList, phEvent,
                )
            }
        })
    }
}

fn next() -> Result<&'static ur_dditable_t> {
    // SAFETY: null, or a table that is static or leaked.
    unsafe { NEXT.load(Ordering::Acquire).as_ref() }
        .ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))
}

/// Fails unless the loader is initialised and the kernel can be used.
fn check_kernel(function: &'static str, kernel: ur_kernel_handle_t) -> Result<()> {
    ensure(app_table().is_some(), UR_RESULT_ERROR_UNINITIALIZED)?;
    ensure(!kernel.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
    lifetime::check_handle(function, Kind::Kernel, kernel.cast())
}

fn set(kernel: ur_kernel_handle_t, index: u32, argument: Argument) -> Result<()> {
    arguments::set(kernel, index, argument, || references_of(kernel));
    Ok(())
}

/// The kernel's reference count, or 1 if the adapter cannot report it.
fn references_of(kernel: ur_kernel_handle_t) -> u32 {
    let mut count = 1u32;
    if let Ok(Some(get_info)) = next().map(|table| table.Kernel.pfnGetInfo) {
        let value = (&raw mut count).cast();
        let what = UR_KERNEL_INFO_REFERENCE_COUNT;
        // SAFETY: the entry points require a live kernel; `count` has the size of this property.
        let result =
            unsafe { get_info(kernel, what, size_of::<u32>(), value, std::ptr::null_mut()) };
        if result != UR_RESULT_SUCCESS {
            count = 1;
        }
    }
    count
}

/// Calls `launch` with the arguments as a list; with 0 and null if there are none.
fn with_list(
    arguments: Option<&Arguments>,
    launch: impl FnOnce(u32, *const ur_exp_kernel_arg_properties_t) -> ur_result_t,
) -> Result<()> {
    let list = arguments.map(Arguments::list).unwrap_or_default();
    let start = if list.is_empty() {
        std::ptr::null()
    } else {
        list.as_ptr()
    };
    let count = u32::try_from(list.len());
    let count = count.map_err(|_| Error::new(UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX))?;
    done(launch(count, start))
}

fn done(result: ur_result_t) -> Result<()> {
    if result == UR_RESULT_SUCCESS {
        Ok(())
    } else {
        Err(Error::new(result))
    }
}

/// The function of a table's slot. `UNINITIALIZED` if the adapter left it null.
fn slot<F>(function: Option<F>) -> Result<F> {
    function.ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))
}

#[allow(non_snake_case)]
unsafe extern "C" fn kernel_create(
    hProgram: ur_program_handle_t,
    pKernelName: *const c_char,
    phKernel: *mut ur_kernel_handle_t,
) -> ur_result_t {
    boundary(|| {
        let create = slot(next()?.Kernel.pfnCreate)?;
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        done(unsafe { create(hProgram, pKernelName, phKernel) })?;
        // SAFETY: null, or a handle that the adapter has written.
        unsafe { phKernel.as_ref() }
            .copied()
            .into_iter()
            .for_each(arguments::created);
        Ok(())
    })
}

#[allow(non_snake_case)]
unsafe extern "C" fn kernel_create_with_native_handle(
    hNativeKernel: ur_native_handle_t,
    hContext: ur_context_handle_t,
    hProgram: ur_program_handle_t,
    pProperties: *const ur_kernel_native_properties_t,
    phKernel: *mut ur_kernel_handle_t,
) -> ur_result_t {
    boundary(|| {
        let create = slot(next()?.Kernel.pfnCreateWithNativeHandle)?;
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        done(unsafe { create(hNativeKernel, hContext, hProgram, pProperties, phKernel) })?;
        // SAFETY: null, or a handle that the adapter has written.
        unsafe { phKernel.as_ref() }
            .copied()
            .into_iter()
            .for_each(arguments::created);
        Ok(())
    })
}

#[allow(non_snake_case)]
unsafe extern "C" fn kernel_retain(hKernel: ur_kernel_handle_t) -> ur_result_t {
    boundary(|| {
        let retain = slot(next()?.Kernel.pfnRetain)?;
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        done(unsafe { retain(hKernel) })?;
        arguments::retained(hKernel);
        Ok(())
    })
}

#[allow(non_snake_case)]
unsafe extern "C" fn kernel_release(hKernel: ur_kernel_handle_t) -> ur_result_t {
    boundary(|| {
        let release = slot(next()?.Kernel.pfnRelease)?;
        // Release first: after the call another kernel may have the address.
        arguments::released(hKernel);
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        done(unsafe { release(hKernel) })
    })
}

/// Passes the stored arguments along, since local memory may change the suggestion.
#[allow(non_snake_case)]
unsafe extern "C" fn suggested_local_work_size(
    hKernel: ur_kernel_handle_t,
    hQueue: ur_queue_handle_t,
    numWorkDim: u32,
    pGlobalWorkOffset: *const usize,
    pGlobalWorkSize: *const usize,
    pSuggestedLocalWorkSize: *mut usize,
) -> ur_result_t {
    boundary(|| {
        if let Some(arguments) = arguments::of(hKernel) {
            let suggest = slot(next()?.Kernel.pfnGetSuggestedLocalWorkSizeWithArgs)?;
            let result = with_list(Some(&*arguments), |count, list| {
                // SAFETY: the caller's arguments are forwarded under the specification's contract;
                // the list outlives the call.
                unsafe {
                    suggest(
                        hKernel,
                        hQueue,
                        numWorkDim,
                        pGlobalWorkOffset,
                        pGlobalWorkSize,
                        count,
                        list,
                        pSuggestedLocalWorkSize,
                    )
                }
            });
            // An adapter without this function may answer the query without arguments.
            if result != Err(Error::unsupported()) {
                return result;
            }
        }
        let suggest = slot(next()?.Kernel.pfnGetSuggestedLocalWorkSize)?;
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        done(unsafe {
            suggest(
                hKernel,
                hQueue,
                numWorkDim,
                pGlobalWorkOffset,
                pGlobalWorkSize,
                pSuggestedLocalWorkSize,
            )
        })
    })
}

#[allow(non_snake_case)]
unsafe extern "C" fn append_kernel_launch(
    hCommandBuffer: ur_exp_command_buffer_handle_t,
    hKernel: ur_kernel_handle_t,
    workDim: u32,
    pGlobalWorkOffset: *const usize,
    pGlobalWorkSize: *const usize,
    pLocalWorkSize: *const usize,
    numKernelAlternatives: u32,
    phKernelAlternatives: *mut ur_kernel_handle_t,
    numSyncPointsInWaitList: u32,
    pSyncPointWaitList: *const ur_exp_command_buffer_sync_point_t,
    numEventsInWaitList: u32,
    phEventWaitList: *const ur_event_handle_t,
    pSyncPoint: *mut ur_exp_command_buffer_sync_point_t,
    phEvent: *mut ur_event_handle_t,
    phCommand: *mut ur_exp_command_buffer_command_handle_t,
) -> ur_result_t {
    boundary(|| {
        if let Some(arguments) = arguments::of(hKernel) {
            let append = slot(next()?.CommandBufferExp.pfnAppendKernelLaunchWithArgsExp)?;
            return with_list(Some(&*arguments), |count, list| {
                // SAFETY: the caller's arguments are forwarded under the specification's contract;
                // the list outlives the call.
                unsafe {
                    append(
                        hCommandBuffer,
                        hKernel,
                        workDim,
                        pGlobalWorkOffset,
                        pGlobalWorkSize,
                        pLocalWorkSize,
                        count,
                        list,
                        numKernelAlternatives,
                        phKernelAlternatives,
                        numSyncPointsInWaitList,
                        pSyncPointWaitList,
                        numEventsInWaitList,
                        phEventWaitList,
                        pSyncPoint,
                        phEvent,
                        phCommand,
                    )
                }
            });
        }
        let append = slot(next()?.CommandBufferExp.pfnAppendKernelLaunchExp)?;
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        done(unsafe {
            append(
                hCommandBuffer,
                hKernel,
                workDim,
                pGlobalWorkOffset,
                pGlobalWorkSize,
                pLocalWorkSize,
                numKernelAlternatives,
                phKernelAlternatives,
                numSyncPointsInWaitList,
                pSyncPointWaitList,
                numEventsInWaitList,
                phEventWaitList,
                pSyncPoint,
                phEvent,
                phCommand,
            )
        })
    })
}
