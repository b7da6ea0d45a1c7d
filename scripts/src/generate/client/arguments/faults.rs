//! Invalid calls: a null, a value out of range, a condition that holds, a device without a feature.

use super::maker::{Fault, Maker, When};
use super::spelled::NULL;
use super::values::with;
use super::{Overrides, result};
use crate::generate::client::solve::{self, Values};
use crate::model::{Dir, ErrorCase, Param};
use anyhow::{Context as _, Result};

impl<'a> Maker<'a> {
    /// Every way in which the arguments can be invalid.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for param in &self.function.params {
            self.nulls(param, &mut faults);
            faults.extend(self.null_first(param));
            self.ranges(param, &mut faults);
        }
        faults.extend((0..self.whens.len()).filter_map(|at| self.condition(at)));
        faults
    }

    /// Null for a parameter that requires a pointer or a handle.
    fn nulls(&self, param: &Param, faults: &mut Vec<Fault>) {
        let ty = param.c_type();
        let name = &param.name;
        let mut add = |what: &str, codes: &[&str], replaced: &[(&str, &str)]| {
            faults.push(Fault {
                what: format!("{name} {what}"),
                codes: codes.iter().map(|code| result(code)).collect(),
                overrides: replaced
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            });
        };
        let null = NULL;
        let count = param.count.as_deref().unwrap_or_default();
        let is_list = !count.is_empty() && param.dir == Dir::In && ty.pointers == 1;
        if self.is_wait_list(param) {
            let wrong = ["INVALID_EVENT_WAIT_LIST"];
            let (hole, some) = ("[null]", "[Event]");
            add(
                "null with a count of 1",
                &wrong,
                &[(count, "1"), (name, null)],
            );
            add(
                "given with a count of 0",
                &wrong,
                &[(count, "0"), (name, some)],
            );
            add("with a null event", &wrong, &[(count, "1"), (name, hole)]);
            return;
        }
        let by_condition = self
            .whens
            .iter()
            .any(|when| when.text.contains(&format!("{name} == null")));
        if param.nocheck || (param.optional && by_condition) {
            // Null is valid, or a condition says when it is not.
        } else if param.optional && is_list && self.is_only_list_of(count) {
            let codes: &[&str] = match self.spec.is_handle(&ty.base) {
                true => &["INVALID_NULL_HANDLE", "INVALID_NULL_POINTER"],
                false => &["INVALID_NULL_POINTER"],
            };
            add(
                "null with a count of 1",
                codes,
                &[(count, "1"), (name, null)],
            );
        } else if param.optional {
            // Null is valid.
        } else if self.spec.is_handle(&ty.base) && ty.pointers == 0 {
            add("null", &["INVALID_NULL_HANDLE"], &[(name, null)]);
        } else if ty.pointers > 0 {
            let leads = self.function.dispatch(self.spec);
            let leads = leads.is_some_and(|leader| leader.name == *name && is_list);
            let codes: &[&str] = if leads {
                &["INVALID_NULL_POINTER", "INVALID_NULL_HANDLE"]
            } else {
                &["INVALID_NULL_POINTER"]
            };
            add("null", codes, &[(name, null)]);
        } else if self.spec.is_callback(&ty.base) {
            add("null", &["INVALID_NULL_POINTER"], &[(name, null)]);
        }
        if is_list && !param.optional && self.spec.is_handle(&ty.base) {
            let hole = "[null]";
            // A loader reads the list that leads to the adapter, so it may report the error first.
            let codes: &[&str] = match name.as_str() {
                "phEventWaitList" => &["INVALID_NULL_HANDLE", "INVALID_EVENT_WAIT_LIST"],
                _ => &["INVALID_NULL_HANDLE"],
            };
            add("with a null handle", codes, &[(name, hole)]);
        }
    }

    /// A null function pointer with a value out of range beside it. The null is reported first.
    fn null_first(&self, param: &Param) -> Option<Fault> {
        let ty = param.c_type();
        if !self.spec.is_callback(&ty.base) || ty.pointers > 0 || param.optional {
            return None;
        }
        let (other, (what, value)) = self.function.params.iter().find_map(|other| {
            let ty = other.c_type();
            let wrong = (ty.pointers == 0).then(|| self.out_of_range(&ty.base))?;
            Some((&other.name, wrong?))
        })?;
        Some(Fault {
            what: format!("{} null, with {other} {what}", param.name),
            codes: vec![result("INVALID_NULL_POINTER")],
            overrides: [
                (param.name.clone(), NULL.to_owned()),
                (other.clone(), value),
            ]
            .into(),
        })
    }

    /// Whether no other list has this count, so that a changed count makes one list invalid.
    fn is_only_list_of(&self, count: &str) -> bool {
        let lists = self.function.params.iter();
        lists
            .filter(|list| list.count.as_deref() == Some(count))
            .count()
            == 1
    }

    /// Undefined enumerators and flags, as parameters and in structs behind pointers.
    fn ranges(&self, param: &Param, faults: &mut Vec<Fault>) {
        let ty = param.c_type();
        let mut add = |what: String, overrides: Overrides| {
            faults.push(Fault {
                what,
                codes: vec![result("INVALID_ENUMERATION")],
                overrides,
            });
        };
        if ty.pointers == 0 {
            if let Some((what, value)) = self.out_of_range(&ty.base) {
                let overrides = [(param.name.clone(), value)].into();
                add(format!("{} {what}", param.name), overrides);
            }
            return;
        }
        let pointed = self.spec.struct_of(&ty.base);
        let Some(found) = pointed.filter(|_| ty.pointers == 1 && param.dir == Dir::In) else {
            return;
        };
        for member in &found.members {
            let of = member.c_type();
            let checked = member.name != "stype" && !member.nocheck;
            if of.pointers > 0 || of.array.is_some() || !checked {
                continue;
            }
            if let Some((what, value)) = self.out_of_range(&of.base) {
                let leaf = format!("{}.{}", param.name, member.name);
                let values = with(&self.valid, &[(param.name.clone(), 1)].into());
                let text = self.pointer_to(param, &values, Some((&member.name, &value)));
                let mut overrides: Overrides = [(param.name.clone(), text)].into();
                // Elements of an empty list are not checked.
                overrides.extend(param.count.clone().map(|count| (count, "1".to_owned())));
                add(format!("{leaf} {what}"), overrides);
            }
        }
    }

    fn out_of_range(&self, base: &str) -> Option<(&'static str, String)> {
        if self.spec.enum_of(base).is_some() {
            return Some(("out of range", "0x7ffffff0".to_owned()));
        }
        let flags = self.spec.flags_of(base)?;
        let value = format!("(undefined {})", flags.mask);
        Some(("with an undefined bit", value))
    }

    /// A call for which a condition holds, no earlier condition does, and if possible no other one.
    pub(super) fn condition(&self, at: usize) -> Option<Fault> {
        let when = &self.whens[at];
        let alone = |values: &Values, others: &dyn Fn(usize) -> bool| {
            let values = with(&self.valid, values);
            let holds = |(index, other): (usize, &When<'_>)| {
                others(index) && self.holds(&other.expr, &values)
            };
            self.holds(&when.expr, &values) && !self.whens.iter().enumerate().any(holds)
        };
        let own = self.choices(&when.expr);
        // No change of the condition's own arguments suffices. Others are changed too.
        let mut wider = self.choices(&when.expr);
        for other in &self.whens {
            wider.add(self.choices(&other.expr));
        }
        let values = solve::solve(&own, &|values| alone(values, &|other| other != at))
            .or_else(|| solve::solve(&wider, &|values| alone(values, &|other| other != at)))
            .or_else(|| solve::solve(&own, &|values| alone(values, &|other| other < at)))
            .or_else(|| {
                let differs = |other: usize| other < at && self.whens[other].code != when.code;
                solve::solve(&own, &|values| alone(values, &differs))
            })?;
        let mut codes = vec![result(when.code)];
        // An undefined enumerator is refused before any condition.
        if values
            .iter()
            .any(|(name, value)| self.is_no_enumerator(name, *value))
        {
            codes.push(result("INVALID_ENUMERATION"));
        }
        Some(Fault {
            what: when.text.to_owned(),
            codes,
            overrides: self.overrides(&values),
        })
    }

    /// Valid calls that a device without a feature refuses.
    pub(super) fn lacks(&self) -> Result<Vec<(&'a ErrorCase, Overrides)>> {
        let mut all = Vec::new();
        for (case, given) in &self.givens {
            let values = match given {
                None => Values::new(),
                Some(given) => self
                    .solved(given)
                    .with_context(|| format!("{}: {}", self.function.name, case.desc))?,
            };
            all.push((*case, self.overrides(&values)));
        }
        Ok(all)
    }
}
