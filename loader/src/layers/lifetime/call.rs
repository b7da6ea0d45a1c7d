//! One call as the walk over its arguments tells it: handles that it uses, gives out and gives back.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ur::abi::*;
use ur::object::checks::slice;
use ur::object::log::Level;
use ur::object::{Kind, Result, chain};

use super::registry::{PendingRelease, Record, Trouble};
use super::{HANDLES, MODE, OFF, VETS, name, origin_with_caller, report, stacks};

/// One call of a table function.
pub struct Call {
    function: &'static str,
    mode: u8,
}

/// Who lends a handle.
type By = (Kind, *const c_void);

impl Call {
    #[inline]
    pub fn new(function: &'static str) -> Call {
        let mode = MODE.load(Ordering::Acquire);
        Call { function, mode }
    }

    #[inline]
    pub fn vets(&self) -> bool {
        self.mode == VETS
    }

    /// The call succeeded, and what is there to be noted may be.
    #[inline]
    pub fn gave(&self, result: ur_result_t) -> bool {
        self.mode != OFF && result == UR_RESULT_SUCCESS
    }

    fn record(&self) -> Record {
        Record {
            function: self.function,
            stack: Some(stacks::here()),
            place: report::location().map(Arc::from),
        }
    }

    /// As [`Call::record`], of an end: only told of when a dead handle is used.
    fn last_record(&self) -> Record {
        if self.vets() {
            return self.record();
        }
        Record {
            function: self.function,
            stack: None,
            place: None,
        }
    }

    /// A handle that the call uses. A null one is not this layer's matter.
    pub fn uses(&self, kind: Kind, handle: *const c_void) -> Result<()> {
        if handle.is_null() {
            return Ok(());
        }
        HANDLES
            .check(kind, handle.addr())
            .map_err(|trouble| self.refuse(kind, handle, trouble).into())
    }

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
        // SAFETY: the caller's promise.
        let list = unsafe { slice(list, count) }?;
        list.iter().try_for_each(|handle| self.uses(kind, *handle))
    }

    /// Objects among a kernel's arguments.
    ///
    /// # Safety
    /// The list is null or has that many readable elements, whose tags are right.
    pub unsafe fn uses_arguments(
        &self,
        list: *const ur_exp_kernel_arg_properties_t,
        count: usize,
    ) -> Result<()> {
        if list.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        for argument in unsafe { slice(list, count) }? {
            match argument.r#type {
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    // SAFETY: the type says which member is meant.
                    let memory = unsafe { argument.value.memObjTuple.hMem };
                    self.uses(Kind::Mem, memory.cast())?;
                }
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => {
                    // SAFETY: the type says which member is meant.
                    let sampler = unsafe { argument.value.sampler };
                    self.uses(Kind::Sampler, sampler.cast())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Objects in the updates of a command buffer.
    ///
    /// # Safety
    /// The list is null or has that many readable elements, with readable lists of their own.
    pub unsafe fn uses_updates(
        &self,
        list: *const ur_exp_command_buffer_update_kernel_launch_desc_t,
        count: usize,
    ) -> Result<()> {
        if list.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        for update in unsafe { slice(list, count) }? {
            self.uses(Kind::CommandBufferCommand, update.hCommand.cast())?;
            self.uses(Kind::Kernel, update.hNewKernel.cast())?;
            if update.pNewMemObjArgList.is_null() {
                continue;
            }
            // SAFETY: the caller's promise.
            let memory =
                unsafe { slice(update.pNewMemObjArgList, update.numNewMemObjArgs as usize) }?;
            for argument in memory {
                self.uses(Kind::Mem, argument.hNewMemObjArg.cast())?;
            }
        }
        Ok(())
    }

    /// The device of a pool over memory of the caller's.
    ///
    /// # Safety
    /// The chain is null or consists of readable structs with the right tags.
    pub unsafe fn uses_pool_desc(&self, desc: *const ur_usm_pool_desc_t) -> Result<()> {
        // SAFETY: the caller's promise.
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

    /// What stands where a handle is to be put.
    ///
    /// # Safety
    /// The pointer is null or readable, though perhaps never written.
    #[inline]
    pub unsafe fn before(&self, to: *const *const c_void) -> *const c_void {
        if self.mode == OFF || to.is_null() || !to.is_aligned() {
            return std::ptr::null();
        }
        // SAFETY: the caller's promise. The value is only compared with what is there later.
        unsafe { to.read_volatile() }
    }

    /// The application got a reference with its new handle.
    ///
    /// # Safety
    /// The pointer is null or readable; after a success it has the handle.
    pub unsafe fn made(
        &self,
        kind: Kind,
        at: *const *const c_void,
        before: *const c_void,
        result: ur_result_t,
    ) {
        // Adapters warn so, too: then the output was written.
        let warned = result == UR_RESULT_ERROR_ADAPTER_SPECIFIC;
        if self.mode == OFF || !(warned || result == UR_RESULT_SUCCESS) {
            return;
        }
        // SAFETY: the caller's promise.
        let made = unsafe { read(at) };
        let given = !warned || made != before;
        if given && !made.is_null() {
            HANDLES.made(kind, made.addr(), || self.record());
        }
    }

    /// A handle of the caller's in an output that may hold one.
    ///
    /// # Safety
    /// As for [`Call::before`].
    pub unsafe fn previous_output(&self, kind: Kind, at: *const *const c_void) -> *const c_void {
        // SAFETY: the caller's promise.
        let previous_output = unsafe { self.before(at) };
        if !previous_output.is_null() && HANDLES.check(kind, previous_output.addr()).is_ok() {
            return previous_output;
        }
        std::ptr::null()
    }

    /// As [`Call::made`] after a success, unless the handle is the one that was held before.
    ///
    /// # Safety
    /// The pointer is null or has a handle.
    pub unsafe fn made_unless(
        &self,
        kind: Kind,
        at: *const *const c_void,
        previous_output: *const c_void,
    ) {
        // SAFETY: the caller's promise.
        let made = unsafe { read(at) };
        if !made.is_null() && made != previous_output {
            HANDLES.made(kind, made.addr(), || self.record());
        }
    }

    /// The application got a handle without a reference.
    ///
    /// # Safety
    /// The pointer is null or has a handle, or null.
    pub unsafe fn lent(&self, kind: Kind, at: *const *const c_void, by: By) {
        // SAFETY: the caller's promise.
        let handle = unsafe { read(at) };
        self.lends(kind, handle, by);
    }

    /// A list of handles, each with a reference, or lent.
    ///
    /// # Safety
    /// The list is null or has that many handles; some may be null.
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
        // SAFETY: the caller's promise.
        let Ok(list) = (unsafe { slice(list, count) }) else {
            return;
        };
        for &handle in list.iter().filter(|handle| !handle.is_null()) {
            match lender {
                Some(by) => self.lends(kind, handle, by),
                None => HANDLES.made(kind, handle.addr(), || self.record()),
            }
        }
    }

    /// Handles that are the value of a property.
    ///
    /// # Safety
    /// The value is null or has that many readable bytes.
    pub unsafe fn queried(&self, kind: Kind, value: *const c_void, bytes: usize, by: By) {
        if value.is_null() {
            return;
        }
        for at in 0..bytes / size_of::<*const c_void>() {
            // SAFETY: within the bytes that the caller promises.
            let handle = unsafe { value.cast::<*const c_void>().add(at).read_unaligned() };
            self.lends(kind, handle, by);
        }
    }

    fn lends(&self, kind: Kind, handle: *const c_void, (holder, by): By) {
        if !handle.is_null() {
            // An object keeps what it was made from; of its equals it only knows.
            let lender = (holder != kind).then(|| by.addr());
            HANDLES.lent(kind, handle.addr(), lender, || self.record());
        }
    }

    /// A retain that succeeded.
    pub fn retained(&self, kind: Kind, handle: *const c_void) {
        HANDLES.retained(kind, handle.addr(), || self.record());
    }

    /// A release that is about to happen.
    pub fn release(
        &self,
        kind: Kind,
        handle: *const c_void,
    ) -> std::result::Result<Release, ur_result_t> {
        if self.mode == OFF || handle.is_null() {
            return Ok(Release(None));
        }
        match HANDLES.release(kind, handle.addr(), || self.last_record()) {
            Ok(pending) => Ok(Release(Some(pending))),
            Err(trouble) if self.vets() => Err(self.refuse(kind, handle, trouble)),
            Err(trouble) => {
                self.say(kind, handle, &trouble);
                Ok(Release(None))
            }
        }
    }

    fn refuse(&self, kind: Kind, handle: *const c_void, trouble: Trouble) -> ur_result_t {
        self.say(kind, handle, &trouble);
        kind.invalid()
    }

    #[cold]
    fn say(&self, kind: Kind, handle: *const c_void, trouble: &Trouble) {
        let what = format!("{}: {} {handle:p}", self.function, name(kind));
        let why = match trouble {
            Trouble::Unknown => "was not given out by any adapter".to_owned(),
            Trouble::OtherKind(other) => format!("is a handle of another kind: {}", name(*other)),
            Trouble::Borrowed { made } => format!(
                "is released, but the application has no reference to it; known by {}",
                origin_with_caller(made)
            ),
            Trouble::Dead { made, released } => {
                let end = match released {
                    Some(released) => {
                        format!(
                            "was released for the last time by {}",
                            origin_with_caller(released)
                        )
                    }
                    None => "is gone with what it belonged to".to_owned(),
                };
                format!("{end}; made by {}", origin_with_caller(made))
            }
        };
        report::finding(Level::Error, format_args!("{what} {why}"));
    }
}

/// # Safety
/// The pointer is null or readable.
unsafe fn read(at: *const *const c_void) -> *const c_void {
    if at.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller's promise.
    unsafe { at.read_unaligned() }
}

/// A release under way.
pub struct Release(Option<PendingRelease>);

impl Release {
    /// The adapter's answer.
    pub fn ended(self, result: ur_result_t) {
        if let Some(pending) = &self.0
            && result != UR_RESULT_SUCCESS
        {
            HANDLES.restore(pending);
        }
    }
}
