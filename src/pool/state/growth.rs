//! New memory: how much to ask the source for, in which pages, and what becomes of what it gives.

use super::{Attempt, State};
use crate::pool::policy::{self, Grain, Need};
use crate::pool::request::{Block, Request, Reuse};
use crate::pool::source::{Slab, SourceError};
use std::iter::successors;

/// A pool grows in pages of a size from so many of them on, and for requests of so many: each page has
/// its price, but pages are gathered with their like, so that more sizes sooner would make a large
/// request find too little of each, and what a request leaves of its last page is of less use.
const LARGE_FROM: u64 = 384;
const LARGE_FOR: u64 = 64;
/// Pages so many times larger than the least serve a request of whole ones however little the pool
/// holds: each page has its price, and nothing is left over.
const WHOLE_FROM: u64 = 16;

/// New memory, in large pages or in the source's own way.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    pub bytes: u64,
    pub large: Option<u64>,
}

/// What came of an answer to [`Step::Grow`](super::Step::Grow).
pub(crate) enum Grown {
    /// The request has its block.
    Served(Block),
    /// There may be room for it now, or not.
    Room,
    /// A slab to hand straight back.
    Unfit(Slab),
}

impl State {
    /// In the largest pages of which enough make up what there is already, and for which there is room.
    pub(super) fn growth(&self, need: &Need, attempt: &Attempt<'_>) -> Result<Growth, u64> {
        let committed = self.stats.figures.reserved + self.growing;
        let (tight, padded) = (attempt.tight, attempt.padded);
        let of = |grain| policy::growth(need, &self.config, grain, committed, tight, padded);
        let least = self.grain.granularity;
        let sizes = successors(self.grain.largest, |page| Some(page / 2));
        let larger = sizes.take_while(|page| *page > least && !tight);
        let fits = |page: &u64| {
            let whole = need.bytes.is_multiple_of(*page) && *page >= WHOLE_FROM * least;
            whole || *page <= committed / LARGE_FROM && *page <= need.bytes / LARGE_FOR
        };
        for page in larger.filter(fits) {
            let granularity = page;
            if let Ok(bytes) = of(Grain {
                granularity,
                ..self.grain
            }) {
                let large = Some(page);
                return Ok(Growth { bytes, large });
            }
        }
        of(self.grain).map(|bytes| Growth { bytes, large: None })
    }

    /// Takes in the source's answer to [`Step::Grow`](super::Step::Grow).
    pub fn grown(
        &mut self,
        asked: Growth,
        answer: Result<Slab, SourceError>,
        (need, request): (&Need, &Request<'_>),
        attempt: &mut Attempt<'_>,
    ) -> Grown {
        self.growing -= asked.bytes;
        let answer = answer.map(|slab| self.accept(asked, slab, need, attempt));
        let error = match answer {
            Ok(Grown::Unfit(_)) => SourceError::OutOfMemory,
            Err(error) => error,
            Ok(taken) => {
                attempt.grew = true;
                if attempt.spared {
                    self.moves.grew_instead();
                }
                if let Grown::Served(_) = taken {
                    self.serves(Reuse::Grown, request, attempt);
                }
                return taken;
            }
        };
        if error == SourceError::OutOfMemory && !attempt.tight {
            attempt.tight = true;
        } else {
            attempt.refused = Some(error);
        }
        answer.unwrap_or(Grown::Room)
    }

    /// What is as large as the request becomes its block at once: no need to file and to find it.
    fn accept(&mut self, asked: Growth, slab: Slab, need: &Need, attempt: &Attempt<'_>) -> Grown {
        let max = self.config.max_bytes.unwrap_or(u64::MAX);
        let room = max.saturating_sub(self.stats.figures.reserved + self.growing);
        if self.closed || !(asked.bytes..=room).contains(&slab.bytes) {
            return Grown::Unfit(slab);
        }
        let page = asked.large.or(self.store.offsets.page()).unwrap_or(0);
        let unit = self.config.min_align;
        let whole = slab.bytes == need.bytes && slab.base.is_multiple_of(need.align);
        let live = whole.then(|| self.store.add_live(slab, page, unit, need.requested));
        if let Some(taken) = live.flatten() {
            self.stats.reserve(slab.bytes);
            return Grown::Served(self.lend(taken, attempt));
        }
        if !self.store.add_slab(slab, page, unit, &[]) {
            return Grown::Unfit(slab);
        }
        self.stats.reserve(slab.bytes);
        Grown::Room
    }
}
