//! Values of arguments in conditions, and the search for values under which a condition holds.

use super::maker::{Maker, When};
use super::spelled::NULL;
use crate::generate::client::solve::{self, Choices, Values};
use crate::generate::expr::{Expr, Form, Leaf};
use crate::model::{CType, Item};

impl Maker<'_> {
    pub(super) fn choices(&self, condition: &Expr) -> Choices {
        let fixed = |leaf: &Leaf| {
            // A required pointer stays, and so does the handle that leads to the adapter.
            let param = self.function.params.iter().find(|p| p.name == leaf.name);
            leaf.form == Form::Pointer
                && param.is_some_and(|param| !param.optional && !param.nocheck)
        };
        Choices::of(condition, &|name| self.constant(name), &fixed)
    }

    pub(super) fn holds(&self, condition: &Expr, values: &Values) -> bool {
        let look = |name: &str| {
            if name.starts_with("UR_") {
                return self.constant(name);
            }
            values.get(name).or_else(|| self.usual.get(name)).copied()
        };
        condition.eval(&look).is_some_and(|value| value != 0)
    }

    fn constant(&self, name: &str) -> Option<u64> {
        self.spec.items().find_map(|item| {
            let values = match item {
                Item::Enum(found) => &found.values,
                Item::Flags(found) if found.mask == name => {
                    return Some(u64::from(found.undefined()));
                }
                Item::Flags(found) => &found.values,
                _ => return None,
            };
            let value = values.iter().find(|value| value.name == name)?;
            Some(u64::from(value.value))
        })
    }

    /// The value of a leaf in the valid call.
    pub(super) fn usual(&self, name: &str) -> Option<u64> {
        let root = name.split(['.', '[']).next()?;
        let param = self.function.params.iter().find(|p| p.name == root)?;
        if name.contains('[') {
            return Some(1);
        }
        let ty = param.c_type();
        if let Some((_, member)) = name.split_once('.') {
            let tag = self.spec.stype(&ty.base).filter(|_| member == "stype");
            return Some(match tag {
                Some(tag) => u64::from(tag.value),
                None if ty.base == "ur_rect_region_t" => 1,
                None => 0,
            });
        }
        let text = self.usual_text(param);
        if ty.pointers > 0 || self.spec.is_handle(&ty.base) || self.spec.is_callback(&ty.base) {
            return Some(u64::from(text != NULL));
        }
        let inner = text.trim_matches(['(', ')']);
        inner.parse().ok().or_else(|| self.constant(inner))
    }

    fn leaf_type(&self, name: &str) -> Option<CType> {
        let root = name.split(['.', '[']).next()?;
        let param = self.function.params.iter().find(|p| p.name == root)?;
        let ty = param.c_type();
        match name.split_once('.') {
            None => Some(ty),
            Some((_, member)) => {
                let members = &self.spec.struct_of(&ty.base)?.members;
                let member = members.iter().find(|found| found.name == member)?;
                Some(member.c_type())
            }
        }
    }

    pub(super) fn is_no_enumerator(&self, name: &str, value: u64) -> bool {
        let Some(ty) = self.leaf_type(name) else {
            return false;
        };
        self.spec.flags_of(&ty.base).is_none()
            && self.spec.enum_of(&ty.base).is_some_and(|found| {
                found
                    .values
                    .iter()
                    .all(|known| u64::from(known.value) != value)
            })
    }

    /// Values under which the condition holds, and none of the function's error conditions.
    pub(super) fn solved(&self, given: &Expr) -> Option<Values> {
        let alone = |values: &Values| {
            let values = with(&self.valid, values);
            let wrong = |when: &When<'_>| self.holds(&when.expr, &values);
            self.holds(given, &values) && !self.whens.iter().any(wrong)
        };
        let mut wider = self.choices(given);
        for when in &self.whens {
            wider.add(self.choices(&when.expr));
        }
        solve::solve(&self.choices(given), &alone).or_else(|| solve::solve(&wider, &alone))
    }
}

/// The first values, overridden by the second.
pub(super) fn with(first: &Values, second: &Values) -> Values {
    let mut all = first.clone();
    all.extend(second.clone());
    all
}
