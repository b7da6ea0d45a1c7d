//! Transitive reduction of the order of recorded commands: an edge that other edges imply is left
//! out. A backend's cost is by the edge: 20,000 commands, each behind the 64 before it, took CUDA
//! 12 s.
//!
//! An exact reduction (Aho, Garey and Ullman, 1972) takes quadratic time. This one takes time
//! linear in the edges and leaves out an edge in two cases. First, each command knows its
//! predecessors among the last [`WINDOW_COMMANDS`] in a bit set: shorter edges are reduced exactly.
//! Second, commands that each follow the one before form chains: a command that follows one command
//! of a chain follows all earlier ones.

/// Number of previous commands in a command's bit set.
const WINDOW_COMMANDS: usize = 256;

const WORDS: usize = WINDOW_COMMANDS / 64;

/// Transitive predecessors: bit `n` is the command `n + 1` before.
#[derive(Clone, Copy, Default)]
struct Predecessors([u64; WORDS]);

impl Predecessors {
    fn has(&self, distance: usize) -> bool {
        let at = distance - 1;
        at < WINDOW_COMMANDS && self.0[at / 64] >> (at % 64) & 1 != 0
    }

    /// Adds the command at this distance, and all of its predecessors.
    fn add(&mut self, distance: usize, other: &Self) {
        if distance > WINDOW_COMMANDS {
            return;
        }
        let at = distance - 1;
        self.0[at / 64] |= 1 << (at % 64);
        let (words, bits) = (distance / 64, distance % 64);
        for to in words..WORDS {
            let from = to - words;
            self.0[to] |= other.0[from] << bits;
            if bits > 0 && from > 0 {
                self.0[to] |= other.0[from - 1] >> (64 - bits);
            }
        }
    }
}

/// A chain, and a position in it.
#[derive(Clone, Copy)]
struct Link {
    chain: usize,
    place: usize,
}

/// The commands so far.
#[derive(Default)]
pub(crate) struct Reduction {
    before: Vec<Predecessors>,
    links: Vec<Link>,
    /// The last position of each chain.
    ends: Vec<usize>,
    /// For each chain: the position up to which the current command follows it, and the command
    /// that wrote this.
    followed: Vec<(usize, usize)>,
}

impl Reduction {
    /// Adds the next command, with its predecessors ascending in `after`. Leaves the edges that are
    /// needed.
    pub fn reduce(&mut self, after: &mut Vec<u32>) {
        let own = self.links.len();
        debug_assert!(
            after.is_sorted_by(|one, next| one < next)
                && after.last().is_none_or(|last| (*last as usize) < own),
            "predecessors come before the command, each once"
        );
        let mut before = Predecessors::default();
        // Only later commands imply a command, so the last one is first.
        let mut kept = after.len();
        for at in (0..after.len()).rev() {
            let other = after[at] as usize;
            let Link { chain, place } = self.links[other];
            let (up_to, noted) = self.followed[chain];
            if noted == own && place <= up_to {
                continue;
            }
            self.followed[chain] = (place, own);
            if before.has(own - other) {
                continue;
            }
            before.add(own - other, &self.before[other]);
            kept -= 1;
            after[kept] = after[at];
        }
        after.drain(..kept);
        self.push(before, after);
    }

    /// Appends the command to a chain that ends with a predecessor, or begins a chain.
    fn push(&mut self, before: Predecessors, after: &[u32]) {
        let links = after.iter().map(|other| self.links[*other as usize]);
        let mut ends = links.filter(|link| self.ends[link.chain] == link.place);
        let link = match ends.next_back() {
            Some(Link { chain, place }) => {
                let place = place + 1;
                Link { chain, place }
            }
            None => {
                self.ends.push(0);
                self.followed.push((0, usize::MAX));
                let chain = self.ends.len() - 1;
                Link { chain, place: 0 }
            }
        };
        self.ends[link.chain] = link.place;
        self.links.push(link);
        self.before.push(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::oracle::Rng;

    /// The remaining edges.
    fn reduced(all: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let mut reduction = Reduction::default();
        let mut all = all.to_vec();
        all.iter_mut().for_each(|after| reduction.reduce(after));
        all
    }

    fn edges(all: &[Vec<u32>]) -> usize {
        all.iter().map(Vec::len).sum()
    }

    /// Transitive predecessors of each command.
    fn closure(all: &[Vec<u32>]) -> Vec<Vec<bool>> {
        let mut closed: Vec<Vec<bool>> = Vec::new();
        for after in all {
            let mut own = vec![false; all.len()];
            for other in after {
                let other = *other as usize;
                own[other] = true;
                let other = own.iter_mut().zip(&closed[other]);
                other.for_each(|(own, other)| *own |= other);
            }
            closed.push(own);
        }
        closed
    }

    /// Commands with random predecessors among the last `far` before each.
    fn random(rng: &mut Rng, count: u32, far: u32, max: u64) -> Vec<Vec<u32>> {
        let after = |own: u32| {
            let near = own.min(far);
            let picks = if near > 0 { rng.below(max + 1) } else { 0 };
            let one = |_| own - 1 - rng.below(near.into()) as u32;
            let mut after: Vec<u32> = (0..picks).map(one).collect();
            after.sort_unstable();
            after.dedup();
            after
        };
        (0..count).map(after).collect()
    }

    #[test]
    fn the_order_stays() {
        let mut rng = Rng::new(1);
        for far in [1, 3, 63, 64, 65, 127, 128, 255, 256, 257, 400] {
            for max in [1, 2, 5, 70] {
                let all = random(&mut rng, 600, far, max);
                let less = reduced(&all);
                assert_eq!(closure(&less), closure(&all), "{far} {max}");
                let kept =
                    |(less, all): (&Vec<u32>, &Vec<u32>)| less.iter().all(|at| all.contains(at));
                assert!(less.iter().zip(&all).all(kept), "{far} {max}");
            }
        }
    }

    #[test]
    fn within_the_window_no_edge_is_left_that_another_implies() {
        let mut rng = Rng::new(2);
        for far in [2, 40, 200, WINDOW_COMMANDS as u32] {
            let all = random(&mut rng, 500, far, 9);
            let closed = closure(&all);
            let needed = |after: &Vec<u32>| {
                let implied =
                    |at: &&u32| after.iter().any(|by| closed[*by as usize][**at as usize]);
                after.iter().filter(|at| !implied(at)).copied().collect()
            };
            let exact: Vec<Vec<u32>> = all.iter().map(needed).collect();
            assert_eq!(reduced(&all), exact, "{far}");
        }
    }

    #[test]
    fn a_chain_has_one_edge_a_command() {
        let behind =
            |many: u32| (0..20_000).map(move |own: u32| (own.saturating_sub(many)..own).collect());
        for many in [1, 64, 300] {
            let all: Vec<Vec<u32>> = behind(many).collect();
            assert_eq!(edges(&reduced(&all)), all.len() - 1, "{many}");
        }
    }

    /// Parallel chains, then a command after all of them, and one after distant members.
    #[test]
    fn what_a_chain_implies_may_be_far_back() {
        const SIDE: u32 = 4;
        let mut all: Vec<Vec<u32>> = (0..4000)
            .map(|own: u32| own.checked_sub(SIDE).into_iter().collect())
            .collect();
        let before = edges(&all);
        all.push((0..4000).collect());
        all.push(vec![0, 1, 2, 3, 2000, 4000]);
        let less = reduced(&all);
        assert_eq!(less[4000], [3996, 3997, 3998, 3999]);
        assert_eq!(edges(&less), before + SIDE as usize + 3 + 1);
    }
}
