//! Recorded commands as one closed command list, which a lane appends whole. That costs about as much as one launch.

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Object, Result, ensure};
use ur::stream::{Compiled, Driver as _, Progress, Step, Timestamps, Work};

use super::lane::{Lane, keeps_order};
use super::list::List;
use super::memory::is_usm;
use super::work::{self, Native};
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

pub struct CompiledList {
    list: List,
    append: pfn::zeCommandListImmediateAppendCommandListsExp,
    /// What the commands use.
    _keeps: Vec<Work<LevelZero>>,
    _context: Arc<NativeContext>,
}

/// The list as the engine submits it.
pub struct Submission(Arc<CompiledList>);

/// The driver's extension of `zeCommandListImmediateAppendCommandListsExp`.
const APPEND: &str = "ZE_experimental_immediate_command_list_append";

/// The least commands for which a list pays.
const LEAST: usize = 2;

/// Compiles commands from an index on: as many in a row as a list can hold.
pub fn compile(
    context: &Arc<NativeContext>,
    device: &Object<Device>,
    steps: &[Step<'_, LevelZero>],
    from: usize,
) -> Option<(usize, Arc<dyn Compiled<LevelZero>>)> {
    let append = context.api.zeCommandListImmediateAppendCommandListsExp?;
    let platform = device.platform();
    let able = platform.has_extension(APPEND) && keeps_order(platform);
    let rest = steps.get(from..)?;
    let count = rest
        .iter()
        .take_while(|step| holds(context, step.work))
        .count();
    if !able || count < LEAST {
        return None;
    }
    let works: Vec<_> = rest[..count].iter().map(|step| step.work.clone()).collect();
    let list = CompiledList::make(context, device, append, works)
        .inspect_err(|error| log::debug!("commands are not compiled: {:?}", error.code()))
        .ok()?;
    log::debug!("{count} recorded commands are one list");
    Some((count, Arc::new(Submission(Arc::new(list)))))
}

/// Whether a list can hold a command. It would read plain memory of the host's when it runs, which the driver does not
/// promise for later. What a command needs to be prepared is known only when it is submitted.
fn holds(context: &NativeContext, work: &Work<LevelZero>) -> bool {
    match work {
        Work::Copy { dst, src, .. } => is_usm(context, *dst) && is_usm(context, *src),
        Work::CopyRect { dst, src, .. } => is_usm(context, dst.addr) && is_usm(context, src.addr),
        Work::Fill { dst, .. } => is_usm(context, *dst),
        Work::FillRect { dst, .. } => is_usm(context, dst.addr),
        Work::Launch(launch) => !launch.has_preparation(),
        Work::Marker | Work::Prefetch { .. } | Work::Advise { .. } => true,
        Work::Native(_) => false,
    }
}

impl CompiledList {
    fn make(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        append: pfn::zeCommandListImmediateAppendCommandListsExp,
        works: Vec<Work<LevelZero>>,
    ) -> Result<Self> {
        let api = context.api;
        let group = device.facts.compute_group();
        ensure(group.is_some(), UR_RESULT_ERROR_INVALID_DEVICE)?;
        let desc = ze_command_list_desc_t {
            commandQueueGroupOrdinal: group.map_or(0, |(ordinal, _)| ordinal),
            flags: ZE_COMMAND_LIST_FLAG_IN_ORDER,
            ..Default::default()
        };
        let mut raw = ze_command_list_handle_t::NULL;
        // SAFETY: the description has its tag, and there is room for the handle.
        unsafe {
            call!(
                api,
                zeCommandListCreate(context.raw, device.raw(), &desc, &mut raw)
            )
        }?;
        let list = List::regular(api, device, raw);
        for work in &works {
            work::append(&list, ze_event_handle_t::NULL, work.clone())?;
        }
        // SAFETY: a live regular list.
        unsafe { call!(api, zeCommandListClose(raw)) }?;
        Ok(Self {
            list,
            append,
            _keeps: works,
            _context: Arc::clone(context),
        })
    }

    /// Appends all commands to a lane's list as one.
    pub fn append(&self, to: &List, signal: ze_event_handle_t) -> Result<()> {
        let mut raw = self.list.raw;
        // SAFETY: both lists are live, and this one is closed; no events are waited for.
        let code = unsafe { (self.append)(to.raw, 1, &mut raw, signal, 0, null_mut()) };
        check(code, "zeCommandListImmediateAppendCommandListsExp")?;
        to.keep_order()
    }
}

impl Compiled<LevelZero> for Submission {
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
