//! Launches of a closed list that are changed in place, where the driver has such lists.
//!
//! A list that runs must not change. So each submission leaves a marker behind it, and a change is refused until the
//! last one is complete: the engine then records the commands anew.

use std::sync::Arc;

use ur::object::{Error, Result};
use ur::stream::Work;
use ur::sync::{Mutex, rank};

use super::event::{Event, Kind};
use super::list::List;
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

/// What may change of a launch.
const FLAGS: ze_mutable_command_exp_flags_t = ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET;

/// The driver's extension.
const EXTENSION: &str = "ZE_experimental_mutable_command_list";

/// The functions. A loader has both or none.
#[derive(Clone, Copy)]
pub struct Calls {
    name: pfn::zeCommandListGetNextCommandIdExp,
    update: pfn::zeCommandListUpdateMutableCommandsExp,
}

impl Calls {
    /// None if launches of lists on the device cannot change.
    pub fn of(device: &Device) -> Option<Self> {
        let api = device.api();
        let able =
            device.platform().has_extension(EXTENSION) && device.facts.mutable & FLAGS == FLAGS;
        let name = api.zeCommandListGetNextCommandIdExp.filter(|_| able)?;
        let update = api.zeCommandListUpdateMutableCommandsExp?;
        Some(Self { name, update })
    }
}

/// The launches of a list that may change.
pub struct Mutable {
    calls: Calls,
    /// The driver's name of each command; none of one that is no launch.
    names: Vec<Option<u64>>,
    /// The last submission.
    last: Mutex<Option<Arc<Event>>, { rank::LEAF }>,
}

impl Mutable {
    pub fn new(calls: Calls) -> Self {
        Self {
            calls,
            names: Vec::new(),
            last: Mutex::default(),
        }
    }

    /// Names the command that is appended next.
    pub fn name(&mut self, list: &List, work: &Work<LevelZero>) -> Result<()> {
        let name = match work {
            Work::Launch(launch) if !launch.is_empty() => {
                let desc = ze_mutable_command_id_exp_desc_t {
                    flags: FLAGS,
                    ..Default::default()
                };
                let mut name = 0;
                // SAFETY: a live open list, a description with its tag, and room for the answer.
                let code = unsafe { (self.calls.name)(list.raw, &desc, &mut name) };
                check(code, "zeCommandListGetNextCommandIdExp")?;
                Some(name)
            }
            _ => None,
        };
        self.names.push(name);
        Ok(())
    }

    /// Called behind each submission of the list.
    pub fn submitted(&self, context: &Arc<NativeContext>, to: &List) -> Result<()> {
        let event = Event::new(context, &to.device, Kind::Marker)?;
        // SAFETY: a live list and a live event of the same context.
        unsafe { call!(to.api, zeCommandListAppendSignalEvent(to.raw, event.raw)) }?;
        event.is_appended();
        to.keep_order()?;
        // The event before is dropped without the lock.
        let before = self.last.lock().replace(Arc::new(event));
        drop(before);
        Ok(())
    }

    fn is_idle(&self) -> Result<bool> {
        let last = self.last.lock().clone();
        last.map_or(Ok(true), |event| event.is_done())
    }

    /// Changes a launch to another one of the same kernel. An error, also if the list is in use or the commands are
    /// others, leaves the list to be made anew.
    pub fn update(
        &self,
        list: &List,
        at: usize,
        old: &Work<LevelZero>,
        new: &Work<LevelZero>,
    ) -> Result<()> {
        let unable = Error::unsupported();
        let name = self.names.get(at).copied().flatten().ok_or(unable)?;
        let (Work::Launch(old), Work::Launch(new)) = (old, new) else {
            return Err(unable);
        };
        if !new.is_alike(old) || !self.is_idle()? {
            return Err(unable);
        }
        new.describe_change(name, |chain| {
            let desc = ze_mutable_commands_exp_desc_t::chained(chain.cast_mut());
            // SAFETY: a live list that is not in use; the chain lasts for the call.
            let code = unsafe { (self.calls.update)(list.raw, &desc) };
            check(code, "zeCommandListUpdateMutableCommandsExp")
        })?;
        // SAFETY: a live regular list. It is closed after each change.
        unsafe { call!(list.api, zeCommandListClose(list.raw)) }
    }
}
