//! One call: the handles that it uses, returns and releases, as the walk over its arguments finds
//! them.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ur::abi::*;
use ur::object::checks::slice;
use ur::object::log::Level;
use ur::object::{Kind, Result, chain};

use super::registry::{CallSite, HandleError, Origin, PendingRelease};
use super::{HANDLES, MADE, MEMORY, MODE, OFF, VALIDATES, caller, name, named, report, stacks};
use crate::layers::maker::Maker;
use crate::layers::memory::{Allocation, Ended, PendingFree, Returned};
use crate::layers::wrappers::NAMES;

/// One call of a table function.
pub struct Call {
    function: &'static str,
    /// None for a function outside of the tables, which makes nothing.
    number: Option<usize>,
    mode: u8,
}

/// The object whose query returned a handle without a reference.
type By = (Kind, *const c_void);

impl Call {
    #[inline]
    pub fn new(number: usize) -> Call {
        Call {
            function: NAMES[number],
            number: Some(number),
            mode: MODE.load(Ordering::Acquire),
        }
    }

    /// A call of a function outside of the tables.
    pub fn outside(function: &'static str) -> Call {
        Call {
            function,
            number: None,
            mode: MODE.load(Ordering::Acquire),
        }
    }

    /// Whether dead and unknown handles are refused.
    #[inline]
    pub fn validates(&self) -> bool {
        self.mode == VALIDATES
    }

    /// Whether the call's outputs must be recorded: it succeeded and the layer is on.
    #[inline]
    pub fn succeeded(&self, result: ur_result_t) -> bool {
        self.mode != OFF && result == UR_RESULT_SUCCESS
    }

    /// This call's function, stack and source location.
    fn call_site(&self) -> CallSite {
        CallSite {
            function: self.function,
            stack: Some(stacks::capture()),
            place: report::location().map(Arc::from),
        }
    }

    /// Counts one more handle of this call's function. The origin is made only if it is recorded.
    fn made(&self) -> impl Fn() -> Origin {
        let function = self.function;
        let nth = self.number.map_or(0, |number| MADE.add(number));
        move || Origin {
            maker: Maker { function, nth },
            site: self.call_site(),
        }
    }

    /// The call site of a release. Only lifetime validation reports it, so that leak checking skips
    /// the stack.
    fn release_site(&self) -> CallSite {
        if self.validates() {
            return self.call_site();
        }
        CallSite {
            function: self.function,
            stack: None,
            place: None,
        }
    }

    /// Fails if the call may not use this handle. Null handles pass: other checks are for them.
    pub fn uses(&self, kind: Kind, handle: *const c_void) -> Result<()> {
        if handle.is_null() {
            return Ok(());
        }
        HANDLES
            .check(kind, handle.addr())
            .map_err(|error| self.refuse(kind, handle, error).into())
    }

    /// Fails if the call may not use one of these handles.
    ///
    /// # Safety
    /// The list is null or has that many readable elements.
    pub unsafe fn uses_list(
        &self,
        kind: Kind,
        list: *const *const c_void,
        count: usize,
    ) -> Result<()> {
        if list.is_null() {
            return Ok(());
        }
        // SAFETY: not null, and the caller guarantees `count` readable elements.
        let list = unsafe { slice(list, count) }?;
        list.iter().try_for_each(|handle| self.uses(kind, *handle))
    }

    /// Fails if a kernel argument has an object that the call may not use.
    ///
    /// # Safety
    /// The list is null or has `count` readable elements, each with the right type tag.
    pub unsafe fn uses_arguments(
        &self,
        list: *const ur_exp_kernel_arg_properties_t,
        count: usize,
    ) -> Result<()> {
        if list.is_null() {
            return Ok(());
        }
        // SAFETY: not null, and the caller guarantees `count` readable elements.
        for argument in unsafe { slice(list, count) }? {
            match argument.r#type {
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    // SAFETY: the caller guarantees that the tag names the union's member.
                    let memory = unsafe { argument.value.memObjTuple.hMem };
                    self.uses(Kind::Mem, memory.cast())?;
                }
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => {
                    // SAFETY: the caller guarantees that the tag names the union's member.
                    let sampler = unsafe { argument.value.sampler };
                    self.uses(Kind::Sampler, sampler.cast())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if an update of a command buffer has an object that the call may not use.
    ///
    /// # Safety
    /// The list is null or has `count` readable elements, with readable lists of their own.
    pub unsafe fn uses_updates(
        &self,
        list: *const ur_exp_command_buffer_update_kernel_launch_desc_t,
        count: usize,
    ) -> Result<()> {
        if list.is_null() {
            return Ok(());
        }
        // SAFETY: not null, and the caller guarantees `count` readable elements.
        for update in unsafe { slice(list, count) }? {
            self.uses(Kind::CommandBufferCommand, update.hCommand.cast())?;
            self.uses(Kind::Kernel, update.hNewKernel.cast())?;
            if update.pNewMemObjArgList.is_null() {
                continue;
            }
            // SAFETY: not null, and the caller guarantees that the element's list is readable.
            let memory =
                unsafe { slice(update.pNewMemObjArgList, update.numNewMemObjArgs as usize) }?;
            for argument in memory {
                self.uses(Kind::Mem, argument.hNewMemObjArg.cast())?;
            }
        }
        Ok(())
    }

    /// Fails if the description of a pool over the caller's memory has a device that the call may
    /// not use.
    ///
    /// # Safety
    /// The chain is null or consists of readable structs, each with the right type tag.
    pub unsafe fn uses_pool_desc(&self, desc: *const ur_usm_pool_desc_t) -> Result<()> {
        // SAFETY: the caller guarantees a readable chain with the right type tags.
        let buffer = unsafe {
            chain::find::<ur_usm_pool_buffer_desc_t>(
                desc.cast(),
                UR_STRUCTURE_TYPE_USM_POOL_BUFFER_DESC,
            )
        };
        buffer.map_or(Ok(()), |buffer| {
            self.uses(Kind::Device, buffer.device.cast())
        })
    }

    /// The value of a handle output before the call.
    ///
    /// # Safety
    /// The pointer is null or readable, perhaps uninitialised.
    #[inline]
    pub unsafe fn before(&self, to: *const *const c_void) -> *const c_void {
        if self.mode == OFF || to.is_null() || !to.is_aligned() {
            return std::ptr::null();
        }
        // SAFETY: the caller guarantees a readable pointer. The value is only compared with a later
        // one.
        unsafe { to.read_volatile() }
    }

    /// Records a new handle with its reference.
    ///
    /// # Safety
    /// The pointer is null or readable. After a success it points to the handle.
    pub unsafe fn created(
        &self,
        kind: Kind,
        at: *const *const c_void,
        before: *const c_void,
        result: ur_result_t,
    ) {
        // Adapters report a warning with this error, and may have written the output.
        let warned = result == UR_RESULT_ERROR_ADAPTER_SPECIFIC;
        if self.mode == OFF || !(warned || result == UR_RESULT_SUCCESS) {
            return;
        }
        // SAFETY: the caller guarantees a null or readable pointer.
        let created = unsafe { read(at) };
        let given = !warned || created != before;
        if given && !created.is_null() {
            HANDLES.created(kind, created.addr(), self.made());
        }
    }

    /// The handle in an output that may hold one of the caller's; null if it is no live handle.
    ///
    /// # Safety
    /// The pointer is null or readable, perhaps uninitialised.
    pub unsafe fn previous_output(&self, kind: Kind, at: *const *const c_void) -> *const c_void {
        // SAFETY: the caller guarantees a null or readable pointer.
        let previous_output = unsafe { self.before(at) };
        if !previous_output.is_null() && HANDLES.check(kind, previous_output.addr()).is_ok() {
            return previous_output;
        }
        std::ptr::null()
    }

    /// Records a new handle after a success, unless it is the one that the output held before the
    /// call.
    ///
    /// # Safety
    /// The pointer is null or points to a handle.
    pub unsafe fn created_unless(
        &self,
        kind: Kind,
        at: *const *const c_void,
        previous_output: *const c_void,
    ) {
        // SAFETY: the caller guarantees a pointer that is null or points to a handle.
        let created = unsafe { read(at) };
        if !created.is_null() && created != previous_output {
            HANDLES.created(kind, created.addr(), self.made());
        }
    }

    /// Records a handle that the application got without a reference.
    ///
    /// # Safety
    /// The pointer is null, or points to a handle or null.
    pub unsafe fn lent(&self, kind: Kind, at: *const *const c_void, by: By) {
        // SAFETY: the caller guarantees a null or readable pointer.
        let handle = unsafe { read(at) };
        self.lends(kind, handle, by);
    }

    /// Records a list of handles. Each has a reference, unless a lender is named.
    ///
    /// # Safety
    /// The list is null or has `count` handles, of which some may be null.
    pub unsafe fn filled(
        &self,
        kind: Kind,
        list: *const *const c_void,
        count: usize,
        lender: Option<By>,
    ) {
        if list.is_null() {
            return;
        }
        // SAFETY: not null, and the caller guarantees `count` handles.
        let Ok(list) = (unsafe { slice(list, count) }) else {
            return;
        };
        for &handle in list.iter().filter(|handle| !handle.is_null()) {
            match lender {
                Some(by) => self.lends(kind, handle, by),
                None => HANDLES.created(kind, handle.addr(), self.made()),
            }
        }
    }

    /// Records the handles in a property's value, which have no references.
    ///
    /// # Safety
    /// The value is null or has `bytes` readable bytes.
    pub unsafe fn queried(&self, kind: Kind, value: *const c_void, bytes: usize, by: By) {
        if value.is_null() {
            return;
        }
        for at in 0..bytes / size_of::<*const c_void>() {
            // SAFETY: the element lies in the bytes that the caller guarantees.
            let handle = unsafe { value.cast::<*const c_void>().add(at).read_unaligned() };
            self.lends(kind, handle, by);
        }
    }

    fn lends(&self, kind: Kind, handle: *const c_void, (holder, by): By) {
        if !handle.is_null() {
            // An object keeps its parents alive, but not objects of its own kind.
            let lender = (holder != kind).then(|| by.addr());
            HANDLES.lent(kind, handle.addr(), lender, self.made());
        }
    }

    /// Records a successful retain.
    pub fn retained(&self, kind: Kind, handle: *const c_void) {
        HANDLES.retained(kind, handle.addr(), self.made());
    }

    /// Records a release before the adapter is called. [`Release::ended`] must follow with the
    /// result.
    ///
    /// Errors: that of the handle's kind, if lifetime validation refuses the handle.
    pub fn release(
        &self,
        kind: Kind,
        handle: *const c_void,
    ) -> std::result::Result<Release, ur_result_t> {
        if self.mode == OFF || handle.is_null() {
            return Ok(Release(None));
        }
        match HANDLES.release(kind, handle.addr(), || self.release_site()) {
            Ok(pending) => Ok(Release(Some(pending))),
            Err(error) if self.validates() => Err(self.refuse(kind, handle, error)),
            Err(error) => {
                self.report(kind, handle, &error);
                Ok(Release(None))
            }
        }
    }

    /// Records memory that the call returned.
    ///
    /// # Safety
    /// The call succeeded, and its queue is live.
    pub unsafe fn allocated(&self, returned: &Returned) {
        let table = super::roles::BELOW.table();
        // SAFETY: the caller guarantees both.
        if let Some(allocation) = unsafe { Allocation::read(returned, table) } {
            MEMORY.allocated(self.function, allocation, self.call_site());
        }
    }

    /// Records a free before the adapter is called. [`Free::ended`] must follow with the result.
    pub fn frees(&self, ended: Ended) -> Free {
        Free(match self.mode {
            OFF => None,
            _ => MEMORY.freed(ended),
        })
    }

    fn refuse(&self, kind: Kind, handle: *const c_void, error: HandleError) -> ur_result_t {
        self.report(kind, handle, &error);
        kind.invalid()
    }

    #[cold]
    fn report(&self, kind: Kind, handle: *const c_void, error: &HandleError) {
        let address = handle.addr();
        let text = match error {
            HandleError::Unknown => {
                format!(
                    "{} {address:#x} was not returned by any adapter",
                    name(kind)
                )
            }
            HandleError::OtherKind {
                kind: other,
                created,
            } => {
                let handle = named(*other, address, created);
                format!(
                    "{handle}, is passed as a handle of another kind: {}",
                    name(kind)
                )
            }
            HandleError::Borrowed { created } => format!(
                "{}, is released, but the application has no reference to it",
                named(kind, address, created)
            ),
            HandleError::Dead { created, released } => {
                let handle = named(kind, address, created);
                match released {
                    Some(released) => format!(
                        "{handle}, was released for the last time by {}{}",
                        released.function,
                        caller(released)
                    ),
                    None => format!("{handle}, ended with the objects that returned it"),
                }
            }
        };
        report::finding(Level::Error, format_args!("{}: {text}", self.function));
    }
}

/// Reads a handle; null through a null pointer.
///
/// # Safety
/// The pointer is null or readable.
unsafe fn read(at: *const *const c_void) -> *const c_void {
    if at.is_null() {
        return std::ptr::null();
    }
    // SAFETY: not null, and the caller guarantees a readable pointer.
    unsafe { at.read_unaligned() }
}

/// A release whose adapter call is in progress.
pub struct Release(Option<PendingRelease>);

impl Release {
    /// Ends the release with the adapter's result. A failed release is undone.
    pub fn ended(self, result: ur_result_t) {
        let Some(pending) = &self.0 else { return };
        if result != UR_RESULT_SUCCESS {
            HANDLES.restore(pending);
        } else if let Some(context) = pending.last_of_context() {
            MEMORY.context_released(context);
        }
    }
}

/// A free whose adapter call is in progress.
pub struct Free(Option<PendingFree<CallSite>>);

impl Free {
    /// Ends the free with the adapter's result. A failed free is undone.
    pub fn ended(self, result: ur_result_t) {
        if let Some(pending) = self.0
            && result != UR_RESULT_SUCCESS
        {
            MEMORY.restore(pending);
        }
    }
}
