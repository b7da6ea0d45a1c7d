//! Recorded commands as one closed command list, which a lane appends whole. That costs about as much as one launch.
//! Foreign code records native commands into such a list itself.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Object, Result};
use ur::stream::{Compiled, Driver as _, NativeRecord, Progress, Step, Timestamps, Work};
use ur::sync::{Mutex, rank};

use super::lane::{Lane, keeps_order};
use super::list::List;
use super::memory::is_usm;
use super::mutable::{self, Mutable};
use super::work::{self, Native};
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

pub struct CompiledList {
    list: List,
    append: pfn::zeCommandListImmediateAppendCommandListsExp,
    /// What the commands use.
    keeps: Mutex<Vec<Work<LevelZero>>, { rank::LEAF }>,
    /// The launches that may change.
    mutable: Option<Mutable>,
    context: Arc<NativeContext>,
}

/// The list as the engine submits it.
pub struct Submission(Arc<CompiledList>);

/// The driver's extension of `zeCommandListImmediateAppendCommandListsExp`.
const APPEND: &str = "ZE_experimental_immediate_command_list_append";

/// The least commands for which a list pays.
const MIN_COMMANDS: usize = 2;

/// Compiles commands from an index on: as many in a row as a list can hold.
pub fn compile(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    steps: &[Step<'_, LevelZero>],
    from: usize,
    updatable: bool,
) -> Option<(usize, Arc<dyn Compiled<LevelZero>>)> {
    let append = appender(context, device)?;
    let rest = steps.get(from..)?;
    let count = rest
        .iter()
        .take_while(|step| holds(context, step.work))
        .count();
    if count < MIN_COMMANDS {
        return None;
    }
    let works: Vec<_> = rest[..count].iter().map(|step| step.work.clone()).collect();
    let calls = updatable.then(|| mutable::Calls::of(device)).flatten();
    let list = CompiledList::make(context, device, append, works, calls)
        .inspect_err(|error| log::debug!("commands are not compiled: {:?}", error.code()))
        .ok()?;
    log::debug!("{count} recorded commands are one list");
    Some((count, Arc::new(Submission(Arc::new(list)))))
}

/// The function that appends a closed list. None if the driver has none, or if its lists do not keep the order.
pub(super) fn appender(
    context: &NativeContext,
    device: &Device,
) -> Option<pfn::zeCommandListImmediateAppendCommandListsExp> {
    let platform = device.platform();
    let able = platform.has_extension(APPEND) && keeps_order(platform);
    let append = context.api.zeCommandListImmediateAppendCommandListsExp;
    append.filter(|_| able)
}

/// A list that foreign code appends commands to. It is closed once it is a command.
struct Record(Arc<CompiledList>);

/// A new one.
pub fn record(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
) -> Result<Arc<dyn NativeRecord<LevelZero>>> {
    let append = appender(context, device).ok_or(Error::unsupported())?;
    let list = CompiledList::open(context, device, append, None)?;
    Ok(Arc::new(Record(Arc::new(list))))
}

impl NativeRecord<LevelZero> for Record {
    fn handle(&self) -> ur_native_handle_t {
        self.0.list.raw.0.expose_provenance()
    }

    fn work(&self) -> Result<Work<LevelZero>> {
        self.0.close()?;
        Ok(Work::Native(Native::Compiled(Arc::clone(&self.0))))
    }
}

/// Whether a list can hold a command. It would read plain memory of the host's when it runs, which the driver does not
/// promise for later. What a command needs to be prepared is known only when it is submitted.
pub(super) fn holds(context: &NativeContext, work: &Work<LevelZero>) -> bool {
    match work {
        Work::Copy { dst, src, .. } => is_usm(context, *dst) && is_usm(context, *src),
        Work::CopyRect { dst, src, .. } => is_usm(context, dst.addr) && is_usm(context, src.addr),
        Work::Fill { dst, .. } => is_usm(context, *dst),
        Work::FillRect { dst, .. } => is_usm(context, dst.addr),
        Work::Launch(launch) => !launch.has_preparation() && !launch.has_copies(),
        Work::Marker | Work::Prefetch { .. } | Work::Advise { .. } => true,
        Work::Native(_) => false,
    }
}

/// An open regular list that keeps the order, described by more structures.
pub(super) fn regular(
    context: &NativeContext,
    device: &Object<Device>,
    chain: *const c_void,
) -> Result<List> {
    let api = context.api;
    let desc = ze_command_list_desc_t {
        commandQueueGroupOrdinal: device.compute_ordinal()?,
        pNext: chain,
        flags: ZE_COMMAND_LIST_FLAG_IN_ORDER,
        ..Default::default()
    };
    let mut raw = ze_command_list_handle_t::NULL;
    // SAFETY: the description has its tag, its chain lasts for the call, and there is room for the handle.
    unsafe {
        call!(
            api,
            zeCommandListCreate(context.raw, device.raw(), &desc, &mut raw)
        )
    }?;
    Ok(List::regular(api, device, raw))
}

impl CompiledList {
    fn make(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        append: pfn::zeCommandListImmediateAppendCommandListsExp,
        works: Vec<Work<LevelZero>>,
        calls: Option<mutable::Calls>,
    ) -> Result<Self> {
        let mut own = Self::open(context, device, append, calls)?;
        for work in &works {
            if let Some(mutable) = &mut own.mutable {
                mutable.name(&own.list, work)?;
            }
            work::append(&own.list, ze_event_handle_t::NULL, work.clone())?;
        }
        own.close()?;
        own.keeps = Mutex::new(works);
        Ok(own)
    }

    /// An open list.
    fn open(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        append: pfn::zeCommandListImmediateAppendCommandListsExp,
        calls: Option<mutable::Calls>,
    ) -> Result<Self> {
        let mut changes = ze_mutable_command_list_exp_desc_t::default();
        let chain = match calls {
            Some(_) => (&raw mut changes).cast_const().cast(),
            None => null(),
        };
        Ok(Self {
            list: regular(context, device, chain)?,
            append,
            mutable: calls.map(Mutable::new),
            keeps: Mutex::default(),
            context: Arc::clone(context),
        })
    }

    fn close(&self) -> Result<()> {
        let list = &self.list;
        // SAFETY: a live regular list.
        unsafe { call!(list.api, zeCommandListClose(list.raw)) }
    }

    /// Appends all commands to a lane's list as one.
    pub fn append(&self, to: &List, signal: ze_event_handle_t) -> Result<()> {
        let mut raw = self.list.raw;
        // SAFETY: both lists are live, and this one is closed; no events are waited for.
        let code = unsafe { (self.append)(to.raw, 1, &mut raw, signal, 0, null_mut()) };
        check(code, "zeCommandListImmediateAppendCommandListsExp")?;
        to.keep_order()?;
        match &self.mutable {
            Some(mutable) => mutable.submitted(&self.context, to),
            None => Ok(()),
        }
    }
}

impl Compiled<LevelZero> for Submission {
    fn update(&self, at: usize, work: &Work<LevelZero>) -> bool {
        let own = &self.0;
        // A deferred submission holds the list.
        let (Some(mutable), 1) = (&own.mutable, Arc::strong_count(own)) else {
            return false;
        };
        let before = own.keeps.lock().get(at).cloned();
        let Some(before) = before else {
            return false;
        };
        let changed = mutable
            .update(&own.list, at, &before, work)
            .inspect_err(|error| log::debug!("a launch is recorded anew: {:?}", error.code()));
        if changed.is_ok()
            && let Some(own) = own.keeps.lock().get_mut(at)
        {
            *own = work.clone();
        }
        changed.is_ok()
    }

    fn submit(
        &self,
        lane: &Lane,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        let work = Work::Native(Native::Compiled(Arc::clone(&self.0)));
        LevelZero::submit(lane, epoch, work, timestamps)
    }
}
