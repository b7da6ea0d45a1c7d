//! Events: waits and queries.

use super::{info, owned};
use crate::outcome::{Done, Stop};
use std::time::{Duration, Instant};
use ur::abi::*;

owned!(
    /// The event of one command.
    Event, ur_event_handle_t, urEventRetain, urEventRelease
);

impl Event {
    #[track_caller]
    pub fn wait(&self) -> Done {
        self.ur.urEventWait(1, &self.raw).ok()
    }

    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_event_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| self.ur.urEventGetInfo(self.raw, property, size, value, ret))
    }

    #[track_caller]
    pub fn status(&self) -> Result<ur_event_status_t, Stop> {
        self.get(UR_EVENT_INFO_COMMAND_EXECUTION_STATUS)
    }

    #[track_caller]
    pub fn is_complete(&self) -> Result<bool, Stop> {
        Ok(self.status()? == UR_EVENT_STATUS_COMPLETE)
    }

    /// Whether the event completes within a time, without a wait that might never end.
    #[track_caller]
    pub fn completes_within(&self, time: Duration) -> Result<bool, Stop> {
        let end = Instant::now() + time;
        loop {
            if self.is_complete()? {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// A time of the event's command, in nanoseconds.
    #[track_caller]
    pub fn time(&self, property: ur_profiling_info_t) -> Result<u64, Stop> {
        info::value(|size, value, ret| {
            self.ur
                .urEventGetProfilingInfo(self.raw, property, size, value, ret)
        })
    }
}

/// The handles of a wait list. An empty list has the null address that the interface requires.
pub struct WaitList(Vec<ur_event_handle_t>);

impl WaitList {
    pub fn new(events: &[&Event]) -> Self {
        Self(events.iter().map(|event| event.raw).collect())
    }

    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn pointer(&self) -> *const ur_event_handle_t {
        if self.0.is_empty() {
            std::ptr::null()
        } else {
            self.0.as_ptr()
        }
    }
}
