//! Addresses to numbers, in order: what starts at an address, and what starts last before one.
//!
//! A radix tree of four levels of 64 over multiples of a unit, below a map that hardly ever changes:
//! a look, an entry or its end costs a few dozen instructions however many there are.

use std::collections::BTreeMap;

const LEVELS: u32 = 4;
const BITS: u32 = 6;

#[derive(Debug)]
struct Node {
    /// Which of `below` there are.
    present: u64,
    /// Nodes of the next level; at the last one, the values.
    below: [u32; 64],
}

impl Node {
    const EMPTY: Node = Node {
        present: 0,
        below: [0; 64],
    };

    fn has(&self, at: usize) -> bool {
        self.present >> at & 1 == 1
    }
}

#[derive(Debug)]
pub(crate) struct Starts {
    /// The unit's logarithm.
    shift: u32,
    /// The trees, by the part of a key above them.
    roots: BTreeMap<u64, u32>,
    /// The one looked for last: mostly there is no other.
    recent: (u64, u32),
    nodes: Vec<Node>,
    spare: Vec<u32>,
}

impl Starts {
    /// For multiples of `unit`, a power of two.
    pub fn new(unit: u64) -> Self {
        Self {
            shift: unit.trailing_zeros(),
            roots: BTreeMap::new(),
            recent: (u64::MAX, 0),
            nodes: Vec::new(),
            spare: Vec::new(),
        }
    }

    #[inline]
    pub fn get(&self, addr: u64) -> Option<u32> {
        let key = addr >> self.shift;
        if key << self.shift != addr {
            return None;
        }
        let mut at = self.root(key)?;
        for level in (0..LEVELS).rev() {
            let node = &self.nodes[at as usize];
            let place = digit(key, level);
            if !node.has(place) {
                return None;
            }
            at = node.below[place];
        }
        Some(at)
    }

    /// What starts last at or before an address.
    pub fn before(&self, addr: u64) -> Option<u32> {
        let key = addr >> self.shift;
        let (top, root) = self.roots.range(..=key >> (LEVELS * BITS)).next_back()?;
        let within = (*top == key >> (LEVELS * BITS)).then_some(key);
        let found = self.last(*root, LEVELS - 1, within);
        found.or_else(|| {
            let (_, root) = self.roots.range(..*top).next_back()?;
            self.last(*root, LEVELS - 1, None)
        })
    }

    /// The last value below a node, up to a key.
    fn last(&self, node: u32, level: u32, upto: Option<u64>) -> Option<u32> {
        let node = &self.nodes[node as usize];
        let mut present = node.present;
        if let Some(key) = upto {
            let place = digit(key, level);
            if level > 0
                && node.has(place)
                && let Some(found) = self.last(node.below[place], level - 1, upto)
            {
                return Some(found);
            }
            let own = u64::from(level == 0);
            present &= (own << place).wrapping_add((1 << place) - 1);
        }
        let place = present.checked_ilog2()? as usize;
        match level {
            0 => Some(node.below[place]),
            _ => self.last(node.below[place], level - 1, None),
        }
    }

    /// There is nothing at the address yet, which is a multiple of the unit.
    pub fn insert(&mut self, addr: u64, value: u32) {
        let key = addr >> self.shift;
        let mut at = match self.root(key) {
            Some(root) => root,
            None => {
                let root = self.node();
                self.roots.insert(key >> (LEVELS * BITS), root);
                root
            }
        };
        self.recent = (key >> (LEVELS * BITS), at);
        for level in (1..LEVELS).rev() {
            let place = digit(key, level);
            if !self.nodes[at as usize].has(place) {
                let new = self.node();
                self.nodes[at as usize].below[place] = new;
                self.nodes[at as usize].present |= 1 << place;
            }
            at = self.nodes[at as usize].below[place];
        }
        let leaf = &mut self.nodes[at as usize];
        leaf.below[digit(key, 0)] = value;
        leaf.present |= 1 << digit(key, 0);
    }

    pub fn remove(&mut self, addr: u64) -> Option<u32> {
        let key = addr >> self.shift;
        if key << self.shift != addr {
            return None;
        }
        let mut value = self.root(key)?;
        let mut path = [0; LEVELS as usize];
        for level in (0..LEVELS).rev() {
            path[level as usize] = value;
            let node = &self.nodes[value as usize];
            if !node.has(digit(key, level)) {
                return None;
            }
            value = node.below[digit(key, level)];
        }
        for (level, at) in (0..LEVELS).zip(path) {
            let node = &mut self.nodes[at as usize];
            node.present &= !(1 << digit(key, level));
            if node.present != 0 {
                return Some(value);
            }
            self.spare.push(at);
        }
        self.roots.remove(&(key >> (LEVELS * BITS)));
        self.recent = (u64::MAX, 0);
        Some(value)
    }

    #[inline]
    fn root(&self, key: u64) -> Option<u32> {
        let top = key >> (LEVELS * BITS);
        if self.recent.0 == top {
            return Some(self.recent.1);
        }
        self.roots.get(&top).copied()
    }

    /// An empty one: what is spare was emptied before.
    fn node(&mut self) -> u32 {
        self.spare.pop().unwrap_or_else(|| {
            self.nodes.push(Node::EMPTY);
            (self.nodes.len() - 1) as u32
        })
    }
}

/// The part of a key that chooses within a node of this level.
#[inline]
fn digit(key: u64, level: u32) -> usize {
    (key >> (level * BITS)) as usize & 63
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::oracle::Rng;

    #[test]
    fn starts_are_an_ordered_map() {
        let mut rng = Rng::new(11);
        for unit in [1, 64, 256] {
            let (mut starts, mut map) = (Starts::new(unit), BTreeMap::new());
            for step in 0..20_000 {
                // Far apart, in the last places of trees, and side by side.
                let far = [0, 1 << 26, (1 << 24) - 8, 1 << 40][rng.below(4) as usize];
                let addr = unit * (far + rng.below(16) * [1, 64, 4096][rng.below(3) as usize]);
                let probe = addr + rng.below(4 * unit);
                let before = map.range(..=probe).next_back().map(|(_, value)| *value);
                assert_eq!(starts.before(probe), before);
                assert_eq!(starts.get(probe), map.get(&probe).copied());
                match map.remove(&addr) {
                    Some(value) => assert_eq!(starts.remove(addr), Some(value)),
                    None => {
                        assert_eq!(starts.remove(addr), None);
                        starts.insert(addr, step);
                        map.insert(addr, step);
                    }
                }
            }
        }
    }
}
