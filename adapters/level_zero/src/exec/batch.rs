//! Batches: the commands of a queue that asks for them go to a regular list, which is submitted whole.
//!
//! A command in a regular list costs less than one in an immediate list. The list is closed and appended to the lane's
//! immediate list, which keeps the order, once it is full or somebody needs it:
//!
//! | submitted by | where |
//! |---|---|
//! | the batch's last command | [`Batch::add`] |
//! | a flush of the queue | [`Batch::submit`] |
//! | a query, a wait or a wait of another lane for a marker of it | [`Event::raw`] |
//! | a command that no list can hold, a wait of the lane, the native handle | [`Stream::flush`] |
//! | the drop of a lane whose submissions failed so far | [`Batch::end`] |
//!
//! All markers of a batch are one event behind it. A submission that fails has got as far as its [`Progress`]; the next
//! one goes on from there, so that no command is lost.

use std::collections::VecDeque;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ur::object::{Object, Result};
use ur::stream::Work;
use ur::sync::{Mutex, rank};

use super::compiled::{self, appender};
use super::event::{Event, Kind};
use super::lane::Stream;
use super::list::List;
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::kernel::Code;
use crate::lz::*;
use crate::settings::Settings;

/// A lane's batches.
pub struct Batch {
    append: pfn::zeCommandListImmediateAppendCommandListsExp,
    /// Commands of a full batch.
    most: u32,
    /// Whether foreign code may use the lane's immediate list, from when on nothing is batched.
    is_over: AtomicBool,
    /// Whether a batch is not submitted. Only the lane's submitter sets it: while it reads false, the submitter needs no
    /// lock, and the immediate list is its own.
    is_pending: AtomicBool,
    state: Mutex<Batches, { rank::DRIVER }>,
}

#[derive(Default)]
struct Batches {
    pending: Option<Pending>,
    /// Submitted batches, the oldest first.
    submitted: VecDeque<Submitted>,
}

/// The commands that are not submitted.
struct Pending {
    list: List,
    /// The marker of all of them.
    end: Arc<Event>,
    count: u32,
    progress: Progress,
    keeps: Vec<Kept>,
}

/// How far a submission has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Closed,
    Appended,
}

struct Submitted {
    /// None once it is used again.
    list: Option<List>,
    end: Arc<Event>,
    _keeps: Vec<Kept>,
}

impl Submitted {
    /// The list of a complete batch, without commands. None if the driver cannot empty it.
    fn take_empty(&mut self) -> Option<List> {
        let list = self.list.as_ref()?;
        // SAFETY: a live regular list whose commands have ended.
        unsafe { call!(list.api, zeCommandListReset(list.raw)) }.ok()?;
        self.list.take()
    }
}

/// Takes the oldest batch, if it is complete.
fn take_complete(submitted: &mut VecDeque<Submitted>) -> Option<Submitted> {
    submitted.pop_front_if(|oldest| oldest.end.is_complete())
}

/// What the driver uses of a command until it is complete.
pub enum Kept {
    Nothing,
    Code(Arc<Code>),
    Work(Work<LevelZero>),
}

impl Kept {
    pub fn of(work: &Work<LevelZero>) -> Self {
        match work {
            Work::Launch(_) => Self::Work(work.clone()),
            _ => Self::Nothing,
        }
    }

    /// Whether it keeps nothing beside the one before.
    fn adds_nothing(&self, last: Option<&Self>) -> bool {
        match (self, last) {
            (Self::Nothing, _) => true,
            (Self::Code(own), Some(Self::Code(last))) => Arc::ptr_eq(own, last),
            _ => false,
        }
    }
}

impl Batch {
    /// None if the driver cannot append a closed list, or if each command is waited for anyway.
    pub fn of(context: &NativeContext, device: &Device) -> Option<Self> {
        let settings = Settings::get();
        let append = appender(context, device).filter(|_| !settings.synchronous);
        if append.is_none() {
            log::debug!("a queue does not batch its commands: the driver cannot append a list");
        }
        Some(Self {
            append: append?,
            most: settings.batch_size,
            is_over: AtomicBool::new(false),
            is_pending: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Whether commands are batched from now on.
    #[inline]
    pub fn takes_commands(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Ends batching for good. Called by the lane's submitter, which submits the last batch next.
    pub fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Adds a command of the lane's submitter: what `append` appends to the list that it is given. After an error a part
    /// of it may be in the batch, and after one of the batch's submission all of it.
    pub fn add(
        &self,
        stream: &Arc<Stream>,
        kept: impl FnOnce() -> Kept,
        append: impl FnOnce(&List) -> Result<()>,
    ) -> Result<()> {
        // Dropped without the lock.
        let mut complete = [None, None];
        let mut state = self.state.lock();
        // A list that is closed takes no command.
        if let Some(pending) = &state.pending
            && pending.progress != Progress::Open
        {
            self.submit_locked(stream, &mut state)?;
        }
        let Batches { pending, submitted } = &mut *state;
        let pending = match pending {
            Some(pending) => pending,
            none => {
                // One list is used again, and a second one goes: after a burst they become fewer.
                complete = [(); 2].map(|()| take_complete(submitted));
                let list = complete[0].as_mut().and_then(Submitted::take_empty);
                none.insert(Pending::new(stream, list)?)
            }
        };
        self.is_pending.store(true, Ordering::Release);
        pending.count += 1;
        let kept = kept();
        if !kept.adds_nothing(pending.keeps.last()) {
            pending.keeps.push(kept);
        }
        append(&pending.list)?;
        if pending.count >= self.most {
            self.submit_locked(stream, &mut state)?;
        }
        drop(state);
        drop(complete);
        Ok(())
    }

    /// The marker of a batch that is not submitted.
    pub fn marker(&self) -> Option<Arc<Event>> {
        if !self.is_pending.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        state.pending.as_ref().map(|own| Arc::clone(&own.end))
    }

    /// Submits what is not submitted. Any thread may call it.
    pub fn submit(&self, stream: &Stream) -> Result<()> {
        match self.is_pending.load(Ordering::Acquire) {
            true => self.submit_locked(stream, &mut self.state.lock()),
            false => Ok(()),
        }
    }

    fn submit_locked(&self, stream: &Stream, state: &mut Batches) -> Result<()> {
        let Some(own) = &mut state.pending else {
            return Ok(());
        };
        let (api, to) = (stream.list.api, &stream.list);
        let mut raw = own.list.raw;
        if own.progress == Progress::Open {
            // SAFETY: a live regular list.
            unsafe { call!(api, zeCommandListClose(raw)) }?;
            own.progress = Progress::Closed;
        }
        if own.progress == Progress::Closed {
            let none = ze_event_handle_t::NULL;
            // SAFETY: both lists are live, and this one is closed; no events are given.
            let code = unsafe { (self.append)(to.raw, 1, &mut raw, none, 0, null_mut()) };
            check(code, "zeCommandListImmediateAppendCommandListsExp")?;
            own.progress = Progress::Appended;
        }
        stream.stamp(&own.end)?;
        if let Some(Pending {
            list, end, keeps, ..
        }) = state.pending.take()
        {
            state.submitted.push_back(Submitted {
                list: Some(list),
                end,
                _keeps: keeps,
            });
        }
        self.is_pending.store(false, Ordering::Release);
        Ok(())
    }

    /// Called before the lists go. A batch that nobody could submit is tried once more, and waited for.
    pub fn end(&self, stream: &Stream) {
        let Some(end) = self.marker() else {
            return;
        };
        let ended = self.submit(stream).and_then(|()| end.block());
        if let Err(error) = ended {
            log::error!("commands of a queue are lost: {:?}", error.code());
        }
    }
}

impl Pending {
    /// A new batch, in an empty list.
    fn new(stream: &Arc<Stream>, list: Option<List>) -> Result<Self> {
        let (context, device): (_, &Object<Device>) = (&stream.context, &stream.list.device);
        let list = match list {
            Some(list) => list,
            None => compiled::regular(context, device, null())?,
        };
        let end = Event::new(context, device, Kind::Marker)?.behind(stream);
        Ok(Self {
            list,
            end: Arc::new(end),
            count: 0,
            progress: Progress::Open,
            keeps: Vec::new(),
        })
    }
}
