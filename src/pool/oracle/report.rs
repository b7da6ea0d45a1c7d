//! What became of a script, and the language of expectations about it.

use super::fake::FakeProvider;
use super::script::Script;
use crate::pool::{Block, Pool, PoolError};
use std::sync::Arc;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The pool grew for it.
    Grew,
    /// Memory that no earlier block had.
    Fresh,
    /// Memory of an earlier block.
    Reused,
    Failed(PoolError),
    Freed,
    Unknown,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub how: How,
    pub block: Option<Block>,
    /// Lanes that have to be waited for.
    pub waits: usize,
    /// Lanes that the host had to wait for.
    pub blocks: usize,
}

/// What became of a script.
#[derive(Debug)]
pub struct Report {
    pub outcomes: Vec<Outcome>,
    pub pool: Pool<Arc<FakeProvider>>,
    pub provider: Arc<FakeProvider>,
    /// Allocations that a lane served from its own cache.
    pub cached: u64,
}

impl Report {
    /// Says where another run of the script answered otherwise.
    pub(super) fn agrees(&self, script: &Script, other: &Self) -> Result<(), String> {
        let both = self.outcomes.iter().zip(&other.outcomes);
        if let Some((at, (one, two))) = both.enumerate().find(|(_, (one, two))| one != two) {
            let name = script.name(at);
            return Err(format!("{one:?}, and {two:?} once more, at {name}"));
        }
        let counted = |report: &Self| (report.pool.counters(), report.cached);
        match counted(self) == counted(other) {
            true => Ok(()),
            false => Err(format!("{:?}, then {:?}", counted(self), counted(other))),
        }
    }

    /// Whether a claim of [`check`](super::check)'s language holds; the error is what was found.
    pub fn holds(&self, script: &Script, claim: &str) -> Result<(), String> {
        let words: Vec<&str> = claim
            .split([' ', ','])
            .filter(|word| !word.is_empty())
            .collect();
        let at = |name: &str| script.find(name).ok_or_else(|| format!("no step {name}"));
        let outcome = &self.outcomes[at(words.first().ok_or("an empty claim")?)?];
        let same = |other: &str, inside: bool| -> Result<bool, String> {
            let other = self.outcomes[at(other)?].block;
            let (Some(new), Some(old)) = (outcome.block, other) else {
                return Ok(false);
            };
            let starts = new.addr == old.addr;
            let lies = old.addr <= new.addr && new.addr + new.bytes <= old.addr + old.bytes;
            Ok(outcome.how == How::Reused && if inside { lies } else { starts })
        };
        let blocked = |lanes: &str| lanes.parse() == Ok(outcome.blocks);
        let (words, blocked) = match &words[..] {
            [words @ .., "blocks", lanes] => (words, blocked(lanes)),
            words => (words, blocked("0")),
        };
        let held = match words[1..] {
            _ if !blocked => false,
            ["grows"] => outcome.how == How::Grew,
            ["served"] => outcome.block.is_some(),
            ["fresh"] => outcome.how == How::Fresh,
            ["exhausted"] => matches!(outcome.how, How::Failed(PoolError::Exhausted { .. })),
            ["unknown"] => outcome.how == How::Unknown,
            ["=", other, "no", "wait"] => same(other, false)? && outcome.waits == 0,
            ["=", other] => same(other, false)? && outcome.waits == 0,
            ["=", other, "waits"] => same(other, false)? && outcome.waits > 0,
            ["in", other] => same(other, true)? && outcome.waits == 0,
            ["in", other, "waits"] => same(other, true)? && outcome.waits > 0,
            _ => return Err("a claim in no known form".into()),
        };
        if held {
            Ok(())
        } else {
            Err(format!("found {outcome:?}"))
        }
    }
}
