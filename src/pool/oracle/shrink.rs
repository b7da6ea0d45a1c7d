//! Makes a failing program short enough to read.

use super::script::{Script, Step};

/// Drops steps, then waits and uses, while `fails` still says so.
pub fn shrink(script: &Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut best = Script::new(script.setup, script.steps.clone());
    loop {
        let before = best.steps.len();
        let mut width = (before / 2).max(1);
        loop {
            let mut at = 0;
            while at < best.steps.len() {
                let shorter = without(&best, at..(at + width).min(best.steps.len()));
                if fails(&shorter) {
                    best = shorter;
                } else {
                    at += width;
                }
            }
            if width == 1 {
                break;
            }
            width /= 2;
        }
        thin(&mut best, &fails);
        if best.steps.len() == before {
            return best;
        }
    }
}

/// Drops what wait lists and uses can do without.
fn thin(best: &mut Script, fails: &impl Fn(&Script) -> bool) {
    for at in 0..best.steps.len() {
        for list in 0..2 {
            let mut item = 0;
            loop {
                let mut thinner = Script::new(best.setup, best.steps.clone());
                let steps = match (&mut thinner.steps[at], list) {
                    (Step::Run { uses, .. }, 1) => uses,
                    (
                        Step::Alloc { after, .. }
                        | Step::Free { after, .. }
                        | Step::Run { after, .. }
                        | Step::Barrier { after, .. },
                        0,
                    ) => after,
                    _ => break,
                };
                if item >= steps.len() {
                    break;
                }
                steps.remove(item);
                if fails(&thinner) {
                    *best = thinner;
                } else {
                    item += 1;
                }
            }
        }
    }
}

/// The script without some steps, and without whatever cannot be said without them.
fn without(script: &Script, gone: std::ops::Range<usize>) -> Script {
    let mut map: Vec<Option<usize>> = Vec::with_capacity(script.steps.len());
    let mut steps = Vec::new();
    for (at, step) in script.steps.iter().enumerate() {
        let moved = |old: &usize| map[*old];
        let all = |list: &[usize]| -> Vec<usize> { list.iter().filter_map(moved).collect() };
        let mut new = step.clone();
        let mut keep = !gone.contains(&at);
        match &mut new {
            Step::Free { block, after, .. } => {
                *after = all(after);
                match moved(block) {
                    Some(to) => *block = to,
                    None => keep = false,
                }
            }
            Step::Wait(event) => match moved(event) {
                Some(to) => *event = to,
                None => keep = false,
            },
            Step::Run { uses, after, .. } => {
                *uses = all(uses);
                *after = all(after);
            }
            Step::Alloc { after, .. } | Step::Barrier { after, .. } => *after = all(after),
            _ => {}
        }
        map.push(keep.then_some(steps.len()));
        if keep {
            steps.push(new);
        }
    }
    Script::new(script.setup, steps)
}
