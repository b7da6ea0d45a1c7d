//! A native command list that commands are appended to: an immediate one, or one that is closed and submitted whole.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ur::object::{Object, Result};

use super::graph;
use crate::device::Device;
use crate::lz::*;

pub struct List {
    pub api: &'static Api,
    pub device: Arc<Object<Device>>,
    pub raw: ze_command_list_handle_t,
    /// Whether the driver keeps the order of the list's commands. If not, barriers do.
    pub is_in_order: bool,
    /// Whether the drop destroys the list.
    pub own: bool,
    /// The functions of captures, of a list that the driver can capture.
    pub graphs: Option<graph::Calls>,
    /// Fills since the driver was last asked to release their patterns.
    fills: AtomicU32,
    /// The question, of an immediate list.
    synchronize: Option<pfn::zeCommandListHostSynchronize>,
}

/// Fills between two questions, which cost about as much as a tenth of a fill.
const FILLS_PER_QUERY: u32 = 64;

impl List {
    pub fn immediate(
        api: &'static Api,
        device: &Object<Device>,
        raw: ze_command_list_handle_t,
        is_in_order: bool,
        own: bool,
    ) -> Self {
        Self {
            api,
            device: device.arc(),
            raw,
            is_in_order,
            own,
            graphs: graph::Calls::of(device).filter(|_| is_in_order),
            fills: AtomicU32::new(0),
            synchronize: api.zeCommandListHostSynchronize,
        }
    }

    /// A list that keeps its commands until it is destroyed.
    pub fn regular(
        api: &'static Api,
        device: &Object<Device>,
        raw: ze_command_list_handle_t,
    ) -> Self {
        let mut list = Self::immediate(api, device, raw, true, true);
        list.synchronize = None;
        list.graphs = None;
        list
    }

    /// Called behind every fill. The driver keeps a copy of each pattern, and releases those of complete fills only when
    /// the list itself is synchronized. Only the list's submitter may do that, as it changes the list.
    #[inline]
    pub fn filled(&self) -> Result<()> {
        // Submissions come one at a time.
        let fills = self.fills.load(Ordering::Relaxed).wrapping_add(1);
        self.fills.store(fills, Ordering::Relaxed);
        match self.synchronize {
            // A captured list cannot be waited for.
            Some(synchronize)
                if fills.is_multiple_of(FILLS_PER_QUERY) && !graph::is_captured(self) =>
            {
                // SAFETY: a live immediate list, whose submitter this is.
                match unsafe { synchronize(self.raw, 0) } {
                    ZE_RESULT_NOT_READY => Ok(()),
                    code => check(code, "zeCommandListHostSynchronize"),
                }
            }
            _ => Ok(()),
        }
    }

    /// Orders later commands behind the ones so far, where the driver does not by itself.
    #[inline(always)]
    pub fn keep_order(&self) -> Result<()> {
        match self.is_in_order {
            true => Ok(()),
            false => self.barrier(),
        }
    }

    fn barrier(&self) -> Result<()> {
        let none = ze_event_handle_t::NULL;
        let append = self.api.zeCommandListAppendBarrier;
        // SAFETY: a live list; no events are given.
        let code = unsafe { append(self.raw, none, 0, null_mut()) };
        check(code, "zeCommandListAppendBarrier")
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if self.own && !self.api.is_torn_down() {
            // SAFETY: the list is this one's, its commands have ended, and none can follow.
            unsafe { (self.api.zeCommandListDestroy)(self.raw) };
        }
    }
}
