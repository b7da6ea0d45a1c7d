//! Finds values for the arguments of a call that make one condition of the specification true and
//! leave the others alone: by trying few values on few arguments.
//!
//! Knows nothing of Rust text; `arguments` turns values into arguments.

use crate::generate::expr::{Expr, Form, Leaf};
use std::collections::{BTreeMap, BTreeSet};

/// Values of leaves, by their name in conditions: `size`, `pUSMDesc.align`, `pGlobalWorkSize[0]`. Of
/// a pointer, 0 is null and 1 is not.
pub type Values = BTreeMap<String, u64>;

/// Numbers that are worth a try: edges, an odd one, and one that is large for a single element.
const NUMBERS: [u64; 7] = [0, 1, 2, 3, 4, 5, 65];

/// What can be changed, and to what.
pub struct Choices(Vec<(String, Vec<u64>)>);

impl Choices {
    /// Those of the leaves in a condition. `fixed` leaves stay as they are.
    pub fn of(
        condition: &Expr,
        constant: &dyn Fn(&str) -> Option<u64>,
        fixed: &dyn Fn(&Leaf) -> bool,
    ) -> Self {
        let constants: BTreeSet<u64> = condition
            .constants()
            .iter()
            .filter_map(|name| constant(name))
            .collect();
        let all = constants.iter().fold(0, |all, value| all | value);
        let mut choices: Vec<(String, Vec<u64>)> = Vec::new();
        for (leaf, name) in condition.leaves() {
            if (fixed(leaf) && !name.contains('['))
                || choices.iter().any(|(known, _)| *known == name)
            {
                continue;
            }
            let values = match leaf.form {
                Form::Pointer if !name.contains('[') => vec![0, 1],
                Form::Number | Form::Pointer => NUMBERS.to_vec(),
                Form::Enumerated => {
                    let beyond = constants.iter().map(|value| value + 1);
                    let mut values: Vec<u64> = constants.iter().copied().chain([all, 0]).collect();
                    values.extend(beyond);
                    values
                }
            };
            choices.push((name, values));
        }
        Self(choices)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// With those of another condition.
    pub fn add(&mut self, other: Self) {
        for (name, values) in other.0 {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.extend(values),
                None => self.0.push((name, values)),
            }
        }
        for (_, values) in &mut self.0 {
            let mut seen = BTreeSet::new();
            values.retain(|value| seen.insert(*value));
        }
    }
}

/// More arguments than these are never changed at once.
const MAX_CHANGES: usize = 3;

/// The fewest changes with which `goal` holds.
pub fn solve(choices: &Choices, goal: &dyn Fn(&Values) -> bool) -> Option<Values> {
    (0..=choices.0.len().min(MAX_CHANGES))
        .find_map(|changes| search(&choices.0, changes, &mut Values::new(), goal))
}

fn search(
    rest: &[(String, Vec<u64>)],
    changes: usize,
    chosen: &mut Values,
    goal: &dyn Fn(&Values) -> bool,
) -> Option<Values> {
    if changes == 0 {
        return goal(chosen).then(|| chosen.clone());
    }
    let ((name, values), rest) = rest.split_first()?;
    for &value in values {
        chosen.insert(name.clone(), value);
        if let Some(found) = search(rest, changes - 1, chosen, goal) {
            return Some(found);
        }
    }
    chosen.remove(name);
    search(rest, changes, chosen, goal)
}
