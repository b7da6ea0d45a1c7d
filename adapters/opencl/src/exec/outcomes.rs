//! How a queue's commands ended.
//!
//! Some drivers run a command whose dependency failed. So the status of every command is queried once.

use std::collections::VecDeque;

use ur::object::Result;
use ur::sync::{Mutex, MutexGuard};

use super::Position;
use super::marker::{is_running, outcome};
use crate::cl::EventRef;

/// The commands of one queue that were not seen to end, and the failures of the others.
pub(super) struct Outcomes {
    /// Whether each command depends on the one before.
    pub chained: bool,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    commands: VecDeque<Command>,
    /// With `chained`: the number of the first failed command.
    failed: Option<u64>,
    /// Without `chained`: the epochs of the failed commands that were not reported.
    unreported: Vec<u64>,
}

struct Command {
    at: u64,
    epoch: u64,
    what: Watched,
}

/// The status to query for a command.
#[derive(Clone)]
pub(super) enum Watched {
    Command(EventRef),
    /// A wait of the command's: a driver may run the command although the wait fails.
    Wait(Position),
}

impl Watched {
    fn outcome(&self) -> Option<Result<()>> {
        match self {
            Self::Command(event) => outcome(event),
            Self::Wait(position) => position.outcome(),
        }
    }

    pub fn is_running(&self) -> Result<bool> {
        match self {
            Self::Command(event) => is_running(event),
            Self::Wait(position) => position.is_running(),
        }
    }
}

impl Outcomes {
    pub fn new(chained: bool) -> Self {
        Self {
            chained,
            pending: Mutex::default(),
        }
    }

    /// Adds the command with number `at`. The caller adds them in the order of their numbers.
    pub fn watch(&self, at: u64, epoch: u64, what: Watched) {
        self.pending()
            .commands
            .push_back(Command { at, epoch, what });
    }

    /// Whether a command up to number `upto` failed that the next one depends on.
    pub fn has_failed(&self, upto: u64) -> bool {
        let mut pending = self.pending();
        self.query(&mut pending, upto);
        pending.failed.is_some_and(|at| at <= upto)
    }

    /// The epochs of the failed commands that were not reported yet: see `Driver::failed`.
    pub fn unreported(&self) -> Vec<u64> {
        let mut pending = self.pending();
        self.query(&mut pending, u64::MAX);
        std::mem::take(&mut pending.unreported)
    }

    fn query(&self, pending: &mut Pending, upto: u64) {
        while let Some(first) = pending.commands.front()
            && first.at <= upto
            && let Some(ended) = first.what.outcome()
        {
            let (at, epoch) = (first.at, first.epoch);
            match ended.is_err() {
                true if self.chained => {
                    pending.failed.get_or_insert(at);
                }
                true => pending.unreported.push(epoch),
                false => {}
            }
            pending.commands.pop_front();
        }
    }

    /// The commands up to this epoch that were not seen to end.
    pub fn running(&self, epoch: u64) -> Vec<Watched> {
        let pending = self.pending();
        let upto = pending
            .commands
            .iter()
            .take_while(|command| command.epoch <= epoch);
        upto.map(|command| command.what.clone()).collect()
    }

    /// Forgets the failures of ended commands. Whether there was one.
    pub fn recover(&self) -> bool {
        self.has_failed(u64::MAX);
        self.pending().failed.take().is_some()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }
}
