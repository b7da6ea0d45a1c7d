//! Parses traces: the lines of `UR_POOL_TRACE`, their first four columns, or MiniMalloc's CSV.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::Answer;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Alloc,
    Free,
    /// The host waits for points.
    Wait,
}

/// All commands of a lane up to an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub lane: u64,
    pub epoch: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    pub kind: Kind,
    pub id: u64,
    pub bytes: u64,
    /// The queue's number; none for the host.
    pub stream: Option<u64>,
    pub after: Vec<Point>,
    /// The time of the operation in nanoseconds, if it was recorded.
    pub ns: Option<u64>,
    /// How an allocation was served, if it was recorded.
    pub reuse: Option<String>,
    /// The points that the operation did not follow, and the ids of the blocks that it could then
    /// have reused.
    pub missing: Option<(Vec<Point>, Vec<u64>)>,
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub ops: Vec<Op>,
}

impl Trace {
    /// Reads a trace from a file, with all sizes multiplied by `scale`. A file without operations is an
    /// error: it is no recording.
    pub fn read(path: &Path, scale: u64) -> Answer<Self> {
        let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let raw = std::fs::read(path).map_err(|error| in_file(&error))?;
        let mut trace = Self::parse(raw).map_err(|error| in_file(&error))?;
        if trace.ops.is_empty() {
            return Err(in_file(&"no operations"));
        }
        for op in &mut trace.ops {
            op.bytes = op.bytes.saturating_mul(scale);
        }
        Ok(trace)
    }

    /// Parses the bytes of a file. An error if an id is allocated while it is live, or freed while
    /// it is not.
    pub fn parse(raw: Vec<u8>) -> Answer<Self> {
        let mut text = String::new();
        if raw.starts_with(&[0x1f, 0x8b]) {
            let read = GzDecoder::new(&raw[..]).read_to_string(&mut text);
            read.map_err(|error| error.to_string())?;
        } else {
            text = String::from_utf8(raw).map_err(|error| error.to_string())?;
        }
        match text.starts_with("id,") {
            true => intervals(&text),
            false => lines(&text),
        }
    }

    /// The maximum of live bytes, as requested.
    pub fn peak_live(&self) -> u64 {
        let (mut live, mut peak) = (0_u64, 0);
        for op in &self.ops {
            match op.kind {
                Kind::Alloc => live = live.saturating_add(op.bytes),
                Kind::Free => live = live.saturating_sub(op.bytes),
                Kind::Wait => {}
            }
            peak = peak.max(live);
        }
        peak
    }

    /// Removes the dependencies between queues. Blocks are then freed on the queues that use them.
    pub fn drop_dependencies(&mut self) {
        self.ops.retain(|op| op.kind != Kind::Wait);
        let mut alloc_queues = HashMap::new();
        for op in &mut self.ops {
            op.after.clear();
            match op.kind {
                Kind::Free => op.stream = alloc_queues.remove(&op.id).unwrap_or(op.stream),
                _ => {
                    alloc_queues.insert(op.id, op.stream);
                }
            }
        }
    }

    /// Appends frees of all blocks that are live at the end, in the order of their allocations and
    /// on their queues.
    pub fn free_all(&mut self) {
        let mut live = BTreeMap::new();
        for (at, op) in self.ops.iter().enumerate() {
            match op.kind {
                Kind::Alloc => drop(live.insert(op.id, at)),
                Kind::Free => drop(live.remove(&op.id)),
                Kind::Wait => {}
            }
        }
        let mut left: Vec<usize> = live.into_values().collect();
        left.sort_unstable();
        for at in left {
            let kind = Kind::Free;
            let op = self.ops[at].clone();
            self.ops.push(Op { kind, ..op });
        }
    }

    /// The numbers of all queues, in ascending order.
    pub fn streams(&self) -> Vec<u64> {
        let mut streams: Vec<u64> = self.ops.iter().filter_map(|op| op.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }
}

/// Parses the lines of `UR_POOL_TRACE`.
fn lines(text: &str) -> Answer<Trace> {
    let mut ops = Vec::new();
    let mut live = HashSet::new();
    for (number, text) in (1..).zip(text.lines()) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let op = line(text).ok_or_else(|| format!("line {number} cannot be read: {text}"))?;
        let Some(op) = op else { continue };
        let right = match op.kind {
            Kind::Alloc => live.insert(op.id),
            Kind::Free => live.remove(&op.id),
            Kind::Wait => true,
        };
        if !right {
            let what = match op.kind {
                Kind::Alloc => "makes what is live",
                _ => "frees what is not live",
            };
            return Err(format!("line {number} {what}: {text}"));
        }
        ops.push(op);
    }
    Ok(Trace { ops })
}

/// One operation. None if the line is malformed, `Some(None)` for an allocation that failed.
fn line(text: &str) -> Option<Option<Op>> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let kind = match *words.first()? {
        "a" => Kind::Alloc,
        "f" => Kind::Free,
        "w" => Kind::Wait,
        "x" => return Some(None),
        _ => return None,
    };
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let (id, bytes) = match kind {
        Kind::Wait => (0, 0),
        _ => (number(1)?, number(2)?),
    };
    let stream = match *words.get(3)? {
        "-1" => None,
        // A wait belongs to the host.
        _ if kind == Kind::Wait => return None,
        stream => Some(stream.parse().ok()?),
    };
    let value = |key: &str| {
        let mut pairs = words.iter().filter_map(|word| word.split_once('='));
        pairs.find(|(own, _)| *own == key).map(|(_, value)| value)
    };
    let reuse = words.get(5).filter(|word| **word != "-");
    let missing = match value("lacks") {
        Some(text) => {
            let (wait, owners) = text.split_once(':')?;
            let owners = owners.split(',').filter_map(|id| id.parse().ok());
            Some((points(wait)?, owners.collect()))
        }
        None => None,
    };
    Some(Some(Op {
        kind,
        id,
        bytes,
        stream,
        after: points(words.get(4).unwrap_or(&"-"))?,
        ns: value("ns").and_then(|ns| ns.parse().ok()),
        reuse: reuse.map(|word| (*word).to_owned()),
        missing,
    }))
}

fn points(text: &str) -> Option<Vec<Point>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let point = |text: &str| {
        let (lane, epoch) = text.split_once('@')?;
        Some(Point {
            lane: lane.parse().ok()?,
            epoch: epoch.parse().ok()?,
        })
    };
    text.split(',').map(point).collect()
}

/// Parses MiniMalloc's CSV, `id,lower,upper,size`: a buffer lives from `lower` until before
/// `upper`.
fn intervals(text: &str) -> Answer<Trace> {
    let mut header = text.lines().next().unwrap_or_default().split(',');
    let names: Vec<&str> = header.by_ref().collect();
    let column = |name: &str| names.iter().position(|own| *own == name);
    let columns = [column("lower"), column("upper"), column("size")];
    let [Some(lower), Some(upper), Some(size)] = columns else {
        return Err("its columns are not id, lower, upper, size".to_owned());
    };
    let mut moments: Vec<(u64, u8, u64, u64)> = Vec::new();
    for (id, row) in (0..).zip(text.lines().skip(1).filter(|row| !row.is_empty())) {
        let cells: Vec<&str> = row.split(',').collect();
        let cell = |at: usize| cells.get(at).and_then(|cell| cell.parse::<u64>().ok());
        let (Some(lower), Some(upper), Some(size)) = (cell(lower), cell(upper), cell(size)) else {
            return Err(format!("row {row} cannot be read"));
        };
        if lower >= upper {
            return Err(format!("row {row} ends before it begins"));
        }
        // Frees at a time precede allocations at that time.
        moments.push((lower, 1, id, size));
        moments.push((upper, 0, id, size));
    }
    moments.sort_unstable();
    let op = |(_, begins, id, bytes): (u64, u8, u64, u64)| Op {
        kind: if begins == 1 { Kind::Alloc } else { Kind::Free },
        id,
        bytes,
        stream: Some(0),
        after: Vec::new(),
        ns: None,
        reuse: None,
        missing: None,
    };
    Ok(Trace {
        ops: moments.into_iter().map(op).collect(),
    })
}

/// For each operation the indices of earlier operations that it must wait for: those of its points
/// on other queues.
pub fn dependencies(trace: &Trace) -> Vec<Vec<usize>> {
    let mut lanes: HashMap<u64, Vec<(u64, usize)>> = HashMap::new();
    let mut out = Vec::with_capacity(trace.ops.len());
    for (at, op) in trace.ops.iter().enumerate() {
        let own = |point: &&Point| Some(point.lane) == op.stream;
        let before = |point: &Point| {
            let ops = lanes.get(&point.lane)?;
            let upto = ops.partition_point(|(epoch, _)| *epoch <= point.epoch);
            ops.get(upto.checked_sub(1)?).map(|(_, at)| *at)
        };
        let foreign = op.after.iter().filter(|point| !own(point));
        let mut waits: Vec<usize> = foreign.filter_map(before).collect();
        waits.retain(|other| op.stream.is_none() || trace.ops[*other].stream != op.stream);
        waits.sort_unstable();
        waits.dedup();
        out.push(waits);
        if op.kind != Kind::Wait && op.stream.is_some() {
            // Without a point on its own queue, an operation is recorded on all lanes that it follows.
            let of_lane = op.after.iter().find(own);
            let places = of_lane.map_or(&op.after[..], std::slice::from_ref);
            for point in places {
                let ops = lanes.entry(point.lane).or_default();
                let last = ops.last().map_or(0, |(epoch, _)| *epoch);
                ops.push((point.epoch.max(last), at));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_lengths_are_read() {
        let text = "a 0 64 1\nf 0 64 1\n\
                    a 1 128 2 2@7,1@3 grown pool=1 kind=device addr=0x10 ns=5 lacks=1@4,3@1:0\n\
                    x 2 1 2 - - pool=1 kind=device ns=6\nw - - -1 2@9 - ns=7\n";
        let trace = lines(text).expect("it can be read");
        assert_eq!(trace.ops.len(), 4);
        let op = &trace.ops[2];
        let point = |lane, epoch| Point { lane, epoch };
        assert_eq!(
            (op.after.clone(), op.ns),
            (vec![point(2, 7), point(1, 3)], Some(5))
        );
        assert_eq!(op.reuse.as_deref(), Some("grown"));
        assert_eq!(op.missing, Some((vec![point(1, 4), point(3, 1)], vec![0])));
        assert_eq!((trace.ops[3].kind, trace.ops[3].stream), (Kind::Wait, None));
        assert_eq!((trace.peak_live(), trace.streams()), (128, vec![1, 2]));
        let malformed = ["b 0 1 2", "a x 1 2", "a 0 1", "a 0 1 2 3", "w - - 1"];
        let dead = ["f 0 1 2", "a 0 1 2\na 0 1 2", "a 0 1 2\nf 0 1 2\nf 0 1 2"];
        for malformed in malformed.into_iter().chain(dead) {
            assert!(lines(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn intervals_become_allocations_and_frees() {
        let trace =
            intervals("id,lower,upper,size\nb1,0,2,10\nb2,2,3,20\n").expect("it can be read");
        let order: Vec<_> = trace.ops.iter().map(|op| (op.kind, op.id)).collect();
        use Kind::{Alloc, Free};
        assert_eq!(order, [(Alloc, 0), (Free, 0), (Alloc, 1), (Free, 1)]);
        assert_eq!(trace.peak_live(), 20);
        for malformed in ["id,lower\n", "id,lower,upper,size\nb1,2,2,10\n"] {
            assert!(intervals(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn without_dependencies_blocks_die_at_home() {
        let text = "a 0 1 1 - grown\nf 0 1 2 1@4,2@1 -\nw - - -1 2@2 -\n";
        let mut trace = lines(text).expect("it can be read");
        trace.drop_dependencies();
        let left: Vec<_> = trace
            .ops
            .iter()
            .map(|op| (op.stream, op.after.len()))
            .collect();
        assert_eq!(left, [(Some(1), 0), (Some(1), 0)]);
    }

    #[test]
    fn what_comes_after_another_queue_waits_for_it() {
        let text = "a 0 1 1 1@2 grown\nf 0 1 1 1@4 -\na 1 1 2 1@4,2@1 ordered\n\
                    a 2 1 2 1@3,2@2 grown\nw - - -1 2@2 -\n";
        let trace = lines(text).expect("it can be read");
        let none = Vec::<usize>::new;
        assert_eq!(
            dependencies(&trace),
            [none(), none(), vec![1], vec![0], vec![3]]
        );
    }
}
