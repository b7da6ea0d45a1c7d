//! What the event of a recorded command stands for: the command's present execution.
//!
//! | state | when |
//! |---|---|
//! | unsubmitted | its recording was not submitted since the event was made |
//! | awaited | the same, and something waits for it: a point that the host signals stands for it |
//! | submitted | the present execution's reach; each submission puts its own in place |
//! | failed | the present submission failed before it came to this command |
//!
//! The lock is a leaf. Whoever moves a state on calls the engine only after letting it go.

use super::engine::{HostPoint, enter};
use super::event::Times;
use super::reach::{Reach, Reached};
use super::{Domain, Driver};
use crate::abi::UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS;
use crate::object::{Error, Result};
use crate::timeline::Frontier;
use std::sync::{Arc, Mutex};

pub(crate) struct Signal<D: Driver> {
    /// The recording and its command.
    pub recording: u64,
    pub node: u32,
    domain: Arc<Domain<D>>,
    state: Mutex<State<D>>,
}

enum State<D: Driver> {
    Unsubmitted,
    Awaited(HostPoint<D>),
    Submitted(Reached, Option<Times>),
    Failed,
}

impl<D: Driver> Signal<D> {
    pub fn new(domain: &Arc<Domain<D>>, recording: u64, node: u32) -> Self {
        Self {
            recording,
            node,
            domain: Arc::clone(domain),
            state: Mutex::new(State::Unsubmitted),
        }
    }

    /// How far the present execution reaches; none before the first.
    pub fn present(&self) -> Result<Option<Reached>> {
        match &*enter(&self.state) {
            State::Unsubmitted | State::Awaited(_) => Ok(None),
            State::Submitted(reach, _) => Ok(Some(reach.clone())),
            State::Failed => Err(Error::new(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS)),
        }
    }

    /// How far the present execution reaches, or will when there is one.
    pub fn reach(&self) -> Result<Reached> {
        if let Some(reach) = self.present()? {
            return Ok(reach);
        }
        let fresh = self.domain.engine().host_point(&self.domain)?;
        let mut state = enter(&self.state);
        if let State::Unsubmitted = *state {
            *state = State::Awaited(fresh);
        }
        match &*state {
            State::Awaited(point) => {
                let point = Frontier::from(point.point.clone());
                Ok(Reached::new(Reach {
                    done: point.clone(),
                    order: point,
                    own: true,
                    ..Reach::default()
                }))
            }
            State::Submitted(reach, _) => Ok(reach.clone()),
            State::Unsubmitted | State::Failed => {
                Err(Error::new(UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS))
            }
        }
    }

    pub fn times(&self) -> Option<Times> {
        match &*enter(&self.state) {
            State::Submitted(_, times) => times.clone(),
            _ => None,
        }
    }

    /// Stands for this execution from now on; none: it failed.
    pub fn stand_for(&self, execution: Option<(Reached, Option<Times>)>) {
        let next = match execution {
            Some((reach, times)) => State::Submitted(reach, times),
            None => State::Failed,
        };
        let done = match &next {
            State::Submitted(reach, _) => Reach::clone(reach),
            _ => Reach::default(),
        };
        let before = std::mem::replace(&mut *enter(&self.state), next);
        let State::Awaited(point) = before else {
            return;
        };
        let engine = self.domain.engine();
        if let Err(error) = engine.when(done, move |failure| point.end(failure)) {
            log::error!(
                "a recorded command's event completes early: {:?}",
                error.code()
            );
        }
    }
}
