//! `UR_LAYER_LEAK_CHECKING` and `UR_LAYER_LIFETIME_VALIDATION`: which handles the application has.
//!
//! Leak checking lists at teardown every handle that the application still has a reference to, and
//! where it got it. Lifetime validation does so too, and refuses handles that no adapter gave out or
//! that were released, with the error of their kind, before an adapter could touch them.
//!
//! Owns the registry of one initialisation; what each function uses, gives out and gives back is
//! generated. An object that one which is alive tells of (a queue its context) may be used without a
//! reference; that never counts as one.

mod registry;
mod stacks;

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ur::abi::*;
use ur::object::checks::slice;
use ur::object::log::Level;
use ur::object::{Kind, Result, chain};

use self::registry::{Leak, Record, Registry, Ticket, Trouble};
use super::{Layer, LayerContext, report};
use crate::generated::layers::lifetime as generated;

const OFF: u8 = 0;
/// Counts references.
const COUNTS: u8 = 1;
/// Counts references and refuses what is not alive.
const VETS: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(OFF);
static HANDLES: Registry = Registry::new();

struct Lifetime;

pub fn make() -> Box<dyn Layer> {
    Box::new(Lifetime)
}

impl Layer for Lifetime {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        names: &[&'static str],
        context: &LayerContext,
    ) -> std::result::Result<(), ur_result_t> {
        report::begin(context);
        HANDLES.clear();
        let leaks_only = names == ["UR_LAYER_LEAK_CHECKING"];
        MODE.store(if leaks_only { COUNTS } else { VETS }, Ordering::Release);
        generated::wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        MODE.store(OFF, Ordering::Release);
        tell(&HANDLES.clear());
        report::end();
    }
}

/// What is left at teardown.
fn tell(leaks: &[Leak]) {
    for leak in leaks {
        let Leak {
            kind,
            address,
            references,
            made,
            ..
        } = leak;
        let plural = if *references == 1 { "" } else { "s" };
        let mut text = format!(
            "leak: {} {address:#x} has {references} reference{plural}, made by {}",
            name(*kind),
            story(made)
        );
        for line in made
            .stack
            .iter()
            .flat_map(|stack| stack.lines(made.function))
        {
            text.push_str("\n    ");
            text.push_str(&line);
        }
        report::line(Level::Error, format_args!("{text}"));
    }
    match leaks.len() {
        0 => report::line(Level::Info, format_args!("no handle is leaked")),
        1 => report::line(Level::Error, format_args!("1 handle is leaked")),
        count => report::line(Level::Error, format_args!("{count} handles are leaked")),
    }
}

/// `urQueueCreate at main.cpp:7`.
fn story(record: &Record) -> String {
    match &record.place {
        Some(place) => format!("{} at {place}", record.function),
        None => record.function.to_owned(),
    }
}

/// As [`story`], and the frame that called.
fn story_with_caller(record: &Record) -> String {
    let caller = record
        .stack
        .as_ref()
        .and_then(|stack| stack.lines(record.function).into_iter().next());
    match caller {
        Some(caller) => format!("{}, in {caller}", story(record)),
        None => story(record),
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Adapter => "adapter",
        Kind::Platform => "platform",
        Kind::Device => "device",
        Kind::Context => "context",
        Kind::Event => "event",
        Kind::Program => "program",
        Kind::Kernel => "kernel",
        Kind::Queue => "queue",
        Kind::Sampler => "sampler",
        Kind::Mem => "memory object",
        Kind::PhysicalMem => "physical memory",
        Kind::UsmPool => "USM pool",
        Kind::ExternalMem => "external memory",
        Kind::ExternalSemaphore => "external semaphore",
        Kind::CommandBuffer => "command buffer",
        Kind::CommandBufferCommand => "command",
        Kind::Graph => "graph",
        Kind::ExecutableGraph => "executable graph",
    }
}

/// Whether a handle may be used; yes unless lifetime validation is on. For entry points that are no
/// table functions.
pub fn vet(function: &'static str, kind: Kind, handle: *const c_void) -> Result<()> {
    let call = Call::new(function);
    if call.vets() {
        call.uses(kind, handle)
    } else {
        Ok(())
    }
}

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
                    // SAFETY: as above.
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
    pub unsafe fn held(&self, kind: Kind, at: *const *const c_void) -> *const c_void {
        // SAFETY: the caller's promise.
        let held = unsafe { self.before(at) };
        if !held.is_null() && HANDLES.check(kind, held.addr()).is_ok() {
            return held;
        }
        std::ptr::null()
    }

    /// As [`Call::made`] after a success, unless the handle is the one that was held before.
    ///
    /// # Safety
    /// The pointer is null or has a handle.
    pub unsafe fn made_unless(&self, kind: Kind, at: *const *const c_void, held: *const c_void) {
        // SAFETY: the caller's promise.
        let made = unsafe { read(at) };
        if !made.is_null() && made != held {
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
    pub unsafe fn told(&self, kind: Kind, value: *const c_void, bytes: usize, by: By) {
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
            Ok(ticket) => Ok(Release(Some(ticket))),
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
                story_with_caller(made)
            ),
            Trouble::Dead { made, released } => {
                let end = match released {
                    Some(released) => {
                        format!(
                            "was released for the last time by {}",
                            story_with_caller(released)
                        )
                    }
                    None => "is gone with what it belonged to".to_owned(),
                };
                format!("{end}; made by {}", story_with_caller(made))
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
pub struct Release(Option<Ticket>);

impl Release {
    /// The adapter's answer.
    pub fn ended(self, result: ur_result_t) {
        if let Some(ticket) = &self.0
            && result != UR_RESULT_SUCCESS
        {
            HANDLES.restore(ticket);
        }
    }
}

#[cfg(test)]
mod tests;
