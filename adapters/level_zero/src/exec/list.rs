//! A native command list that commands are appended to: an immediate one, or one that is closed and submitted whole.

use std::ptr::null_mut;
use std::sync::Arc;

use ur::object::{Object, Result};

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
}

impl List {
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
