//! A trace: each reuse in it is proved by the order that it tells, each miss explained.

use super::fixture::*;
use super::repeat::program;

/// One line of a trace.
struct Line<'a> {
    op: char,
    id: usize,
    after: Vec<(u64, u64)>,
    reuse: &'a str,
    rest: Vec<(&'a str, &'a str)>,
}

fn points(text: &str) -> Vec<(u64, u64)> {
    let point = |text: &str| {
        let (lane, epoch) = text.split_once('@').expect("a point");
        (
            lane.parse().expect("a lane"),
            epoch.parse().expect("an epoch"),
        )
    };
    text.split(',')
        .filter(|text| *text != "-")
        .map(point)
        .collect()
}

fn ids(text: &str) -> impl Iterator<Item = usize> {
    text.split(',').map(|id| id.parse().expect("an id"))
}

fn line(text: &str) -> Line<'_> {
    let words: Vec<&str> = text.split(' ').collect();
    Line {
        op: words[0].chars().next().expect("an operation"),
        id: words[1].parse().unwrap_or(usize::MAX),
        after: points(words[4]),
        reuse: words[5],
        rest: words[6..]
            .iter()
            .map(|word| word.split_once('=').expect("a pair"))
            .collect(),
    }
}

impl Line<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.rest
            .iter()
            .find(|(own, _)| *own == key)
            .map(|(_, value)| *value)
    }
}

fn covers(all: &[&[(u64, u64)]], point: &(u64, u64)) -> bool {
    let mut all = all.iter().copied().flatten();
    point.1 == 0 || all.any(|(lane, epoch)| *lane == point.0 && *epoch >= point.1)
}

#[test]
fn a_trace_proves_each_reuse_and_explains_each_miss() {
    let name = "trace::a_trace_proves_each_reuse_and_explains_each_miss";
    if is_child(name) {
        program(&Fixture::new(), false);
        return;
    }
    let folder = std::env::temp_dir().join(format!("ur-pools-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let pattern = folder.join("%p.trace");
    let pattern = pattern.to_str().expect("text");
    // What is complete is then in the trace too.
    let (out, _) = child(
        name,
        &[("UR_POOL_TRACE", pattern), ("UR_POOL_DETERMINISTIC", "1")],
    );
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder")
        .flatten()
        .collect();
    assert_eq!(files.len(), 1, "one process, one trace");
    let text = std::fs::read_to_string(files[0].path()).expect("the trace");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let mut deaths: Vec<Option<Vec<(u64, u64)>>> = Vec::new();
    let mut awaited: Vec<(u64, u64)> = Vec::new();
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    let (mut proved, mut explained) = (0, 0);
    for text in text.lines() {
        let line = line(text);
        let dead = |id: usize| {
            deaths[id]
                .as_ref()
                .unwrap_or_else(|| panic!("{id} lives: {text}"))
        };
        match line.op {
            'w' => awaited.extend(&line.after),
            'f' => {
                assert!(deaths[line.id].is_none(), "freed twice: {text}");
                deaths[line.id] = Some(line.after);
            }
            'a' => {
                assert_eq!(line.id, deaths.len());
                *counts.entry(line.reuse.to_owned()).or_default() += 1;
                for id in line.get("from").into_iter().flat_map(ids) {
                    let ordered = |point| covers(&[&line.after, &awaited], point);
                    assert!(
                        dead(id).iter().all(ordered),
                        "unordered: {text} after {:?}",
                        dead(id)
                    );
                    proved += 1;
                }
                if let Some(lacks) = line.get("lacks") {
                    let (wait, owners) = lacks.split_once(':').expect("a lack");
                    let wait = points(wait);
                    assert!(
                        wait.iter()
                            .any(|point| !covers(&[&line.after, &awaited], point)),
                        "{text}"
                    );
                    for id in ids(owners) {
                        let then = |point| covers(&[&line.after, &awaited, &wait], point);
                        assert!(
                            dead(id).iter().all(then),
                            "not enough: {text} for {:?}",
                            dead(id)
                        );
                        explained += 1;
                    }
                }
                deaths.push(None);
            }
            op => panic!("unknown operation {op}"),
        }
    }
    assert!(
        proved > 500 && explained > 0,
        "{proved} reuses, {explained} misses"
    );
    let report = out.split("report: ").nth(1).expect("a report");
    for (word, reuse) in [
        ("own ", "own"),
        ("ordered ", "ordered"),
        ("completed ", "completed"),
        ("grown ", "grown"),
    ] {
        let count = report
            .split(word)
            .nth(1)
            .and_then(|rest| rest.split([',', ';']).next());
        let traced = counts.get(reuse).copied().unwrap_or_default();
        assert_eq!(
            count,
            Some(traced.to_string().as_str()),
            "{reuse}: {report}"
        );
    }
}
