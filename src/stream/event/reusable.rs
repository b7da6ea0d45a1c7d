//! Events apart from any command: reusable ones, which barriers and timestamps signal again and again, and
//! ones opened from another process, which signals them.
//!
//! | event | state |
//! |---|---|
//! | reusable, never signalled | complete |
//! | reusable | that of the last command that signalled it |
//! | opened | each query and wait asks the backend, since the other process may have signalled it again |

use super::{Event, EventOwner, EventSource, Native};
use crate::abi::*;
use crate::hal;
use crate::object::{Error, Object, Result};
use crate::stream::engine::dependencies::{Dependencies, EventDependencies};
use crate::stream::event::execution::RecordedExecution;
use crate::stream::{Context, Driver};
use crate::sync::Mutex;
use crate::timeline::Frontier;
use std::sync::{Arc, OnceLock};

pub(crate) struct Reusable {
    pub execution: RecordedExecution,
    flags: ur_exp_event_flags_t,
}

impl<D: Driver> Event<D> {
    /// `urEventCreateExp`
    pub(crate) fn reusable(
        context: &Object<Context<D>>,
        device: &Object<D::Device>,
        desc: &ur_exp_event_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        context.domain().engine().check()?;
        context.check_device(device)?;
        let flags = desc.flags;
        let shared = match flags.contains(UR_EXP_EVENT_FLAG_IPC_EXP) {
            true => Some(D::shared_event(context.domain(), device)?),
            false => None,
        };
        let own = Reusable {
            execution: RecordedExecution::new(0, 0),
            flags,
        };
        let mut event = Self::made(
            EventOwner::Context(context.arc()),
            UR_COMMAND_EVENTS_WAIT_WITH_BARRIER,
            EventSource::Reusable(Box::new(own)),
        );
        if let Some(marker) = shared {
            *event.native = OnceLock::from(Native::of(marker));
        }
        let event = hal::new::<D, _>(event);
        context.domain().add_reusable(&event);
        Ok(event)
    }

    /// An event that another process signals.
    pub fn open_shared(
        context: &Object<Context<D>>,
        marker: D::Marker,
    ) -> Result<Arc<Object<Self>>> {
        context.domain().engine().check()?;
        let mut event = Self::made(
            EventOwner::Context(context.arc()),
            UR_COMMAND_ENQUEUE_NATIVE_EXP,
            EventSource::Opened,
        );
        *event.native = OnceLock::from(Native::of(marker));
        Ok(hal::new::<D, _>(event))
    }

    /// The native event that other processes can open. `INVALID_EVENT` if the event was not created for
    /// that.
    pub fn shared_marker(&self) -> Result<&D::Marker> {
        let own = matches!(*self.source, EventSource::Reusable(_));
        let native = self.native.get().filter(|_| own);
        let native = native.ok_or(Error::new(UR_RESULT_ERROR_INVALID_EVENT))?;
        Ok(&native.marker)
    }

    /// Whether the commands that signal it keep their times.
    pub(crate) fn keeps_times(&self) -> bool {
        let profiled = UR_EXP_EVENT_FLAG_ENABLE_PROFILING;
        matches!(&*self.source, EventSource::Reusable(own) if own.flags.contains(profiled))
    }

    /// The dependencies of an opened event, as the other process signalled it last.
    pub(super) fn opened(&self) -> Result<EventDependencies> {
        let Some(native) = self.native.get() else {
            return Ok(EventDependencies::default());
        };
        if D::is_done(&native.marker)? {
            return Ok(EventDependencies::default());
        }
        let current = native.opened.lock().as_ref().map(|own| own.point.clone());
        let point = match current.filter(|point| !point.is_done()) {
            Some(point) => point,
            None => {
                // The engine's lock is not taken under that of the event.
                let fresh = self.engine().foreign_point(native.marker.clone());
                let mut opened = native.opened.lock();
                match opened.as_ref().filter(|own| !own.point.is_done()) {
                    // Another thread was first.
                    Some(own) => {
                        let point = own.point.clone();
                        drop(opened);
                        drop(fresh);
                        point
                    }
                    None => {
                        let point = fresh.point.clone();
                        let done = opened.replace(fresh);
                        drop(opened);
                        drop(done);
                        point
                    }
                }
            }
        };
        let point = Frontier::from(point);
        Ok(Dependencies {
            done: point.clone(),
            order: point,
            own: true,
            ..Dependencies::default()
        }
        .into())
    }
}

impl<D: Driver> Native<D> {
    /// A native object that the event has from its creation on.
    fn of(marker: D::Marker) -> Box<Self> {
        Box::new(Self {
            marker,
            foreign: None,
            captured: std::sync::atomic::AtomicBool::new(false),
            opened: Mutex::default(),
            queue: OnceLock::new(),
        })
    }
}
