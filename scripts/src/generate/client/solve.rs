//! Finds values of arguments that make one condition true and leave the others false.
//!
//! The search is exhaustive over a few values of a few arguments. It knows nothing of Rust text.

use crate::generate::expr::{Expr, Form, Leaf};
use std::collections::{BTreeMap, BTreeSet};

/// Values by the name of the leaf: `size`, `pUSMDesc.align`, `pGlobalWorkSize[0]`. A pointer is 0 for null,
/// else 1.
pub type Values = BTreeMap<String, u64>;

/// Numbers to try: edges, an odd one, and one that is large for a single element.
const NUMBERS: [u64; 7] = [0, 1, 2, 3, 4, 5, 65];

/// The leaves that may change, each with the values to try.
pub struct Choices(Vec<(String, Vec<u64>)>);

impl Choices {
    /// The choices of a condition's leaves. Leaves for which `fixed` holds are left out.
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

    /// Adds the choices of another condition.
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

/// Limit on the arguments that are changed at once.
const MAX_CHANGES: usize = 3;

/// The values with the fewest changes under which `goal` holds.
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
