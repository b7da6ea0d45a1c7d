//! Every allocation and free of this library as a line of text, in the order in which pools served
//! them: what `urreplay` runs again.
//!
//! ```text
//! a ID BYTES STREAM AFTER REUSE pool=N kind=K addr=X ns=T [from=ID,...] [lacks=AFTER:ID,...]
//! x ID BYTES STREAM AFTER -     pool=N kind=K ns=T [lacks=AFTER:ID,...]
//! f ID BYTES STREAM AFTER -     ns=T
//! w -  -     -1     AFTER -     ns=T
//! ```
//!
//! An allocation, one that failed, a free, a wait of the host. ID counts allocations from 0. STREAM is
//! the queue's number, -1 the host. AFTER is what the line comes after, for a free its death: for each
//! lane a point LANE@EPOCH, or `-`. Lanes and queues are numbered together as they appear, and an
//! in-order queue has its lane's number. REUSE says what the memory was: `own`, `ordered`, `completed`,
//! `waited`, `grown`; `from` whose memory it was before; `lacks` which dependency would have made whose
//! memory usable, where the pool grew, waited or failed. The first four columns are those of traces
//! recorded elsewhere.
//!
//! While it traces, a library's pools serve one request at a time.

use crate::object::log;
use crate::pool::{Block, DecisionTrace, Reuse, Slab};
use crate::stream::Kind;
use crate::stream::settings::Settings;
use crate::sync::{Mutex, MutexGuard, rank};
use crate::timeline::{Frontier, LaneId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Instant;

pub(crate) struct Trace {
    start: Instant,
    book: Mutex<Book, { rank::TRACE }>,
}

/// The names of lanes, queues and allocations.
struct Book {
    file: File,
    next: u64,
    /// By address. Several where a pool hands out parts of another's block.
    live: HashMap<u64, Vec<(u64, Block)>>,
    /// By address: where free memory ends, and whose it was last.
    dead: BTreeMap<u64, (u64, u64)>,
    numbers: HashMap<LaneId, usize>,
}

/// The right to write the next lines.
pub(crate) struct Entry<'a> {
    book: MutexGuard<'a, Book>,
    ns: u128,
    /// None: the host.
    stream: Option<LaneId>,
}

impl Trace {
    /// The trace that `UR_POOL_TRACE` asks for.
    pub fn get() -> Option<&'static Self> {
        static TRACE: OnceLock<Option<Trace>> = OnceLock::new();
        TRACE.get_or_init(Self::open).as_ref()
    }

    fn open() -> Option<Self> {
        let path = log::expand_path(Settings::get().trace.as_ref()?, "pool");
        match File::create(&path) {
            Ok(file) => Some(Self::over(file)),
            Err(error) => {
                log::once(&format!("UR_POOL_TRACE: cannot create `{path}`: {error}"));
                None
            }
        }
    }

    fn over(file: File) -> Self {
        let book = Book {
            file,
            next: 0,
            live: HashMap::new(),
            dead: BTreeMap::new(),
            numbers: HashMap::new(),
        };
        Self {
            start: Instant::now(),
            book: Mutex::new(book),
        }
    }

    /// Excludes all other pool calls until the entry is dropped.
    pub fn begin(&self, stream: Option<LaneId>) -> Entry<'_> {
        Entry {
            book: self.book.lock(),
            ns: self.start.elapsed().as_nanos(),
            stream,
        }
    }

    /// Records that the host has waited for this frontier.
    pub fn waited(&self, frontier: &Frontier) {
        if frontier.is_empty() {
            return;
        }
        let mut entry = self.begin(None);
        let after = entry.book.after(frontier);
        let ns = entry.ns;
        entry.write(&format!("w - - -1 {after} - ns={ns}\n"));
    }
}

impl Entry<'_> {
    /// Records a request, and its block if it was served.
    pub fn alloc(
        &mut self,
        pool: u64,
        kind: Kind,
        bytes: usize,
        block: Option<Block>,
        decision: &DecisionTrace,
    ) {
        let id = self.book.next;
        self.book.next += 1;
        let op = if block.is_some() { 'a' } else { 'x' };
        let mut line = self.start(op, id, bytes as u64, &decision.order);
        let reuse = match decision.reuse {
            None => "-",
            Some(Reuse::OwnLane) => "own",
            Some(Reuse::Ordered) => "ordered",
            Some(Reuse::Completed) => "completed",
            Some(Reuse::Waited) => "waited",
            Some(Reuse::Grown) => "grown",
        };
        let kind = match kind {
            Kind::Host => "host",
            Kind::Device => "device",
            Kind::Shared => "shared",
        };
        let _ = write!(line, " {reuse} pool={pool} kind={kind}");
        // Before the block changes whose memory it is.
        let lack = decision.missing.as_ref().map(|lack| {
            let owners = self.book.owners(&lack.pieces);
            format!(" lacks={}:{owners}", self.book.after(&lack.wait))
        });
        if let Some(block) = block {
            let range = block.range();
            let from = self.book.owners(&[range]);
            self.book.bury(range, None);
            let live = self.book.live.entry(block.addr).or_default();
            live.push((id, block));
            let _ = write!(line, " addr={:#x} ns={}", block.addr, self.ns);
            if from != "-" {
                let _ = write!(line, " from={from}");
            }
        } else {
            let _ = write!(line, " ns={}", self.ns);
        }
        line.push_str(&lack.unwrap_or_default());
        line.push('\n');
        self.write(&line);
    }

    /// Records the free of the block at this address.
    pub fn free(&mut self, addr: u64, death: &Frontier) {
        let Some((id, block)) = self.book.live.get_mut(&addr).and_then(Vec::pop) else {
            return;
        };
        let range = Slab::new(addr, block.bytes);
        self.book.bury(range, Some(id));
        let line = self.start('f', id, block.requested, death);
        let ns = self.ns;
        self.write(&format!("{line} - ns={ns}\n"));
    }

    /// The columns up to AFTER.
    fn start(&mut self, op: char, id: u64, bytes: u64, after: &Frontier) -> String {
        let stream = match self.stream {
            Some(lane) => self.book.number(lane).to_string(),
            None => "-1".to_owned(),
        };
        let after = self.book.after(after);
        format!("{op} {id} {bytes} {stream} {after}")
    }

    /// Whole lines in one write each, so that they survive a crash.
    fn write(&mut self, line: &str) {
        // A trace that cannot be written has nobody to report to.
        let _ = self.book.file.write_all(line.as_bytes());
    }
}

impl Book {
    fn number(&mut self, lane: LaneId) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(lane).or_insert(next)
    }

    fn after(&mut self, frontier: &Frontier) -> String {
        let points = frontier.points();
        let points: Vec<String> = points
            .map(|point| format!("{}@{}", self.number(point.lane()), point.epoch))
            .collect();
        listed(&points)
    }

    /// The last owner of this memory.
    fn owners(&self, pieces: &[Slab]) -> String {
        let mut ids: Vec<u64> = Vec::new();
        for piece in pieces {
            let below = self.dead.range(..piece.base).next_back();
            let below = below.filter(|(_, (end, _))| *end > piece.base);
            let within = self.dead.range(piece.base..piece.end());
            ids.extend(below.into_iter().chain(within).map(|(_, (_, id))| *id));
        }
        ids.sort_unstable();
        ids.dedup();
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        listed(&ids)
    }

    /// Sets the last owner of a range, or that it is live.
    fn bury(&mut self, range: Slab, owner: Option<u64>) {
        let below = self.dead.range(..range.base).next_back();
        if let Some((&start, &(end, id))) = below.filter(|(_, (end, _))| *end > range.base) {
            self.dead.insert(start, (range.base, id));
            if end > range.end() {
                self.dead.insert(range.end(), (end, id));
            }
        }
        let inside = self.dead.extract_if(range.base..range.end(), |_, _| true);
        let last = inside.last().filter(|(_, (end, _))| *end > range.end());
        if let Some((_, rest)) = last {
            self.dead.insert(range.end(), rest);
        }
        if let Some(id) = owner {
            self.dead.insert(range.base, (range.end(), id));
        }
    }
}

fn listed(parts: &[String]) -> String {
    match parts {
        [] => "-".to_owned(),
        parts => parts.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(base: u64, end: u64) -> Slab {
        let bytes = end - base;
        Slab { base, bytes }
    }

    #[test]
    fn memory_remembers_whose_it_was() {
        let null = File::create("/dev/null").expect("is there");
        let trace = Trace::over(null);
        let mut book = trace.book.lock();
        book.bury(range(0, 100), Some(1));
        book.bury(range(100, 200), Some(2));
        assert_eq!(book.owners(&[range(50, 150)]), "1,2");
        book.bury(range(50, 150), None);
        assert_eq!(book.owners(&[range(50, 150)]), "-");
        assert_eq!(book.owners(&[range(0, 200)]), "1,2");
        // Both ends of a range remain when its middle is removed.
        book.bury(range(160, 170), Some(3));
        let one = |start| book.owners(&[range(start, start + 1)]);
        let found = [49, 50, 149, 150, 160, 170, 199, 200].map(one);
        assert_eq!(found, ["1", "-", "-", "2", "3", "2", "2", "-"]);
    }
}
