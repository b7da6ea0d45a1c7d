//! `arguments.rs`: calls with valid arguments, and calls that are wrong in one way each. A condition
//! of the specification becomes a call through `solve`; what it says in words only is listed.

use super::solve::{self, Choices, Values};
use crate::generate::expr::{self, Expr, Form, Leaf};
use crate::generate::rust;
use crate::model::{CType, Dir, ErrorCase, Function, Item, Own, Param, Spec};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub(super) const DOC: &str = "A valid call of each function, and one wrong call for each condition that the specification\n\
declares: everything else in the call is valid, so that only this can be the reason of the refusal.";

pub(super) fn arguments(spec: &Spec) -> Result<String> {
    let (mut calls, mut cases) = (String::new(), String::new());
    let (mut said, mut lacks) = (String::new(), String::new());
    let mut kinds = BTreeSet::new();
    let mut callbacks = BTreeMap::new();
    for function in spec.functions() {
        // The loader's own life is not for calls among others.
        if function.dispatch(spec).is_none() && function.table.is_none() {
            continue;
        }
        let maker = Maker::new(spec, function)?;
        maker.note(&mut kinds, &mut callbacks);
        let name = &function.name;
        if function.table.is_some() {
            let _ = writeln!(
                calls,
                "Call {{ function: {name:?}, may: &[{}], consumes: {}, made: &[{}], retains: {}, {} }},",
                maker.may(),
                maker.consumes(),
                maker.made(),
                maker.retains(),
                maker.body(&Overrides::new())
            );
        }
        for fault in maker.faults() {
            let _ = writeln!(
                cases,
                "Case {{ function: {name:?}, what: {:?}, codes: &[{}], {} }},",
                fault.what,
                fault.codes.join(", "),
                maker.body(&fault.overrides),
            );
        }
        for (case, overrides) in maker.lacks()? {
            let terms: String = case
                .lacking()
                .map(|(property, flag)| {
                    let bits =
                        flag.map_or("u64::MAX".to_owned(), |flag| format!("{flag}.0 as u64"));
                    format!("({property:?}, {property}, {bits}),")
                })
                .collect();
            let _ = writeln!(
                lacks,
                "Lack {{ what: {:?}, code: {}, terms: &[{terms}], {} }},",
                case.desc,
                result(&case.code),
                maker.body(&overrides)
            );
        }
        for (code, what) in maker.said() {
            let _ = writeln!(
                said,
                "Said {{ function: {name:?}, code: UR_RESULT_ERROR_{code}, what: {what:?} }},"
            );
        }
    }
    let variants: String = kinds
        .iter()
        .map(|kind| format!("{},", rust::object_name(kind)))
        .collect();
    let fields: String = kinds
        .iter()
        .map(|kind| format!("pub {}: {kind},", rust::object_stem(kind)))
        .collect();
    let arms: String = kinds
        .iter()
        .map(|kind| {
            format!(
                "Kind::{} => self.{}.cast(),",
                rust::object_name(kind),
                rust::object_stem(kind)
            )
        })
        .collect();
    let defaults: String = kinds
        .iter()
        .map(|kind| format!("{}: std::ptr::null_mut(),", rust::object_stem(kind)))
        .collect();
    let noops: String = callbacks.values().cloned().collect();
    Ok(format!(
        "#![allow(non_snake_case, unused_variables, clippy::unnecessary_cast, clippy::borrow_as_ptr)]
        use super::api::Api;
        use crate::status::Status;
        use std::ffi::{{c_char, c_void}};
        use ur::abi::*;
        /// Kinds of handle.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {{ {variants} }}
        /// One live handle of each kind that the device offers, and memory to point at.
        pub struct Valid {{ {fields} pub scratch: *mut c_void }}
        impl Valid {{
            /// No handles yet.
            pub fn new(scratch: *mut c_void) -> Self {{ Self {{ {defaults} scratch }} }}
            /// Memory for the argument at a position.
            pub fn at(&self, position: usize) -> *mut u8 {{
                self.scratch.cast::<u8>().wrapping_add(128 * position)
            }}
            /// The handle of that kind, or null.
            pub fn get(&self, kind: Kind) -> *mut c_void {{ match kind {{ {arms} }} }}
            /// Whether there is a handle of that kind.
            pub fn has(&self, kind: Kind) -> bool {{ !self.get(kind).is_null() }}
        }}
        /// A call whose arguments are all valid, as far as their types and conditions say.
        pub struct Call {{
            pub function: &'static str,
            /// Errors that the specification allows it all the same.
            pub may: &'static [ur_result_t],
            /// It ends something, so that no valid argument stays valid.
            pub consumes: bool,
            /// Handles that it makes, and the output that receives each.
            pub made: &'static [(Kind, usize)],
            /// The handle that gets one more reference.
            pub retains: Option<Kind>,
            /// Handles that it takes.
            pub needs: &'static [Kind],
            pub call: fn(&Api, &Valid) -> Status,
        }}
        /// A call that must be refused.
        pub struct Case {{
            pub function: &'static str,
            /// What is wrong with it.
            pub what: &'static str,
            /// The answers that are right.
            pub codes: &'static [ur_result_t],
            /// Handles without which the call would be wrong in a second way.
            pub needs: &'static [Kind],
            pub call: fn(&Api, &Valid) -> Status,
        }}
        /// A call that a device must refuse which lacks something.
        pub struct Lack {{
            /// As in `Said`.
            pub what: &'static str,
            pub code: ur_result_t,
            /// Properties of which the device has none of the bits.
            pub terms: &'static [(&'static str, ur_device_info_t, u64)],
            pub needs: &'static [Kind],
            pub call: fn(&Api, &Valid) -> Status,
        }}
        /// An error that the specification declares and that no generated call provokes.
        pub struct Said {{
            pub function: &'static str,
            pub code: ur_result_t,
            /// When it is returned.
            pub what: &'static str,
        }}
        /// Sizes that fit any range.
        const ONES: [usize; 3] = [1; 3];
        {noops}
        /// A valid call of each function of the tables.
        pub const CALLS: &[Call] = &[{calls}];
        /// All wrong calls, in the order of the specification.
        pub const CASES: &[Case] = &[{cases}];
        /// What devices refuse that lack something.
        pub const LACKS: &[Lack] = &[{lacks}];
        /// What only a test can provoke that knows more than types.
        pub const SAID: &[Said] = &[{said}];\n"
    ))
}

/// Arguments in other words than valid ones, by parameter.
type Overrides = BTreeMap<String, String>;

/// One way to be wrong.
struct Fault {
    what: String,
    codes: Vec<String>,
    overrides: Overrides,
}

/// A condition of the specification.
struct When<'a> {
    code: &'a str,
    text: &'a str,
    expr: Expr,
}

/// Writes calls of one function.
struct Maker<'a> {
    spec: &'a Spec,
    function: &'a Function,
    whens: Vec<When<'a>>,
    /// What the arguments must be for a device to refuse for want of something.
    givens: Vec<(&'a ErrorCase, Option<Expr>)>,
    /// The usual values of what conditions are about.
    usual: Values,
    /// What valid arguments need beyond these, so that no condition holds.
    valid: Values,
}

impl<'a> Maker<'a> {
    fn new(spec: &'a Spec, function: &'a Function) -> Result<Self> {
        let mut maker = Self {
            spec,
            function,
            whens: Vec::new(),
            givens: Vec::new(),
            usual: Values::new(),
            valid: Values::new(),
        };
        for case in &function.errors {
            if let Some(text) = &case.when {
                let expr = expr::parse(spec, function, text)?;
                let code = &case.code;
                maker.whens.push(When { code, text, expr });
            }
            if !case.lacks.is_empty() {
                let given = case.given.as_deref();
                let given = given.map(|text| expr::parse(spec, function, text));
                maker.givens.push((case, given.transpose()?));
            }
        }
        let givens = maker.givens.iter().filter_map(|(_, given)| given.as_ref());
        let conditions = maker.whens.iter().map(|when| &when.expr).chain(givens);
        let leaves = conditions.flat_map(|condition| condition.leaves());
        let usual = leaves.filter_map(|(_, name)| Some((name.clone(), maker.usual(&name)?)));
        maker.usual = usual.collect();
        for when in &maker.whens {
            let found = solve::solve(&maker.choices(&when.expr), &|values| {
                let values = with(&maker.valid, values);
                maker
                    .whens
                    .iter()
                    .all(|when| !maker.holds(&when.expr, &values))
            });
            if let Some(values) = found {
                maker.valid = with(&maker.valid, &values);
                break;
            }
        }
        Ok(maker)
    }

    /// Handle kinds and callbacks that valid arguments mention.
    fn note(&self, kinds: &mut BTreeSet<String>, callbacks: &mut BTreeMap<String, String>) {
        for param in &self.function.params {
            let ty = param.c_type();
            if self.spec.is_handle(&ty.base) {
                kinds.insert(ty.base);
            } else if let Some(Item::Callback(found)) = self
                .spec
                .items()
                .find(|item| matches!(item, Item::Callback(found) if found.name == ty.base))
            {
                let returns = match rust::ty(&found.returns).as_str() {
                    "()" => (String::new(), "{}".to_owned()),
                    other => (format!(" -> {other}"), "{ Default::default() }".to_owned()),
                };
                let noop = format!(
                    "unsafe extern \"C\" fn noop_{}({}){} {}\n",
                    found.name,
                    rust::params(&found.params),
                    returns.0,
                    returns.1
                );
                callbacks.insert(found.name.clone(), noop);
            }
        }
    }

    fn position(&self, param: &Param) -> usize {
        let mut params = self.function.params.iter();
        params
            .position(|other| other.name == param.name)
            .unwrap_or(0)
    }

    /// What it may answer to valid arguments: what is declared without a condition.
    fn may(&self) -> String {
        let in_words = self
            .function
            .errors
            .iter()
            .filter(|case| case.when.is_none());
        let codes: BTreeSet<&str> = in_words
            .map(|case| case.code.as_str())
            .chain(self.function.may.iter().map(String::as_str))
            .collect();
        let codes: Vec<String> = codes.into_iter().map(result).collect();
        codes.join(", ")
    }

    fn consumes(&self) -> bool {
        let words = [
            "Release",
            "Destroy",
            "Free",
            "Close",
            "Put",
            "Unregister",
            "Unmap",
        ];
        let stem = self.function.stem();
        self.function
            .params
            .iter()
            .any(|param| param.own == Some(Own::Release))
            || words.iter().any(|word| stem.contains(word))
    }

    fn made(&self) -> String {
        let made = self.function.params.iter().filter(|param| {
            let ty = param.c_type();
            let wanted = !self.usual_text(param).contains("null_mut()");
            self.spec.is_handle(&ty.base)
                && ty.pointers == 1
                && param.dir != Dir::In
                && param.own != Some(Own::Lend)
                && wanted
        });
        made.map(|param| {
            let kind = rust::object_name(&param.c_type().base);
            format!("(Kind::{kind}, {}),", self.position(param))
        })
        .collect()
    }

    fn retains(&self) -> String {
        let mut params = self.function.params.iter();
        let gains = params.find(|param| param.own == Some(Own::Retain));
        gains.map_or("None".to_owned(), |param| {
            format!("Some(Kind::{})", rust::object_name(&param.c_type().base))
        })
    }

    /// What can be wrong with the arguments.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for param in &self.function.params {
            self.nulls(param, &mut faults);
            self.ranges(param, &mut faults);
        }
        faults.extend((0..self.whens.len()).filter_map(|at| self.condition(at)));
        faults
    }

    /// Null where something must be.
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
        let null = "std::ptr::null_mut()";
        let count = param.count.as_deref().unwrap_or_default();
        let is_list = !count.is_empty() && param.dir == Dir::In && ty.pointers == 1;
        if self.is_wait_list(param) {
            let wrong = ["INVALID_EVENT_WAIT_LIST"];
            let hole = "[std::ptr::null_mut::<c_void>()].as_ptr()";
            let some = "std::ptr::addr_of!(valid.event)";
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
            // Null is a value, or a condition says when it is none.
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
            // Null is a value.
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
            add("null", &["INVALID_NULL_POINTER"], &[(name, "None")]);
        }
        if is_list && !param.optional && self.spec.is_handle(&ty.base) {
            let hole = "[std::ptr::null_mut::<c_void>()].as_ptr()";
            // In the list that leads to the adapter a loader may find it before anyone else.
            let codes: &[&str] = match name.as_str() {
                "phEventWaitList" => &["INVALID_NULL_HANDLE", "INVALID_EVENT_WAIT_LIST"],
                _ => &["INVALID_NULL_HANDLE"],
            };
            add("with a null handle", codes, &[(name, hole)]);
        }
    }

    /// Whether no other list has the same count, so that to change it makes nothing else wrong.
    fn is_only_list_of(&self, count: &str) -> bool {
        let lists = self.function.params.iter();
        lists
            .filter(|list| list.count.as_deref() == Some(count))
            .count()
            == 1
    }

    /// Enumerations and flags that have no such value, by value and in a structure pointed to.
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
            if of.pointers > 0 || of.array.is_some() || member.name == "stype" {
                continue;
            }
            if let Some((what, value)) = self.out_of_range(&of.base) {
                let leaf = format!("{}.{}", param.name, member.name);
                let values = with(&self.valid, &[(param.name.clone(), 1)].into());
                let text = self.pointer_to(param, &values, &[(member.name.clone(), value)]);
                let mut overrides: Overrides = [(param.name.clone(), text)].into();
                // An empty list is not looked at.
                overrides.extend(param.count.clone().map(|count| (count, "1".to_owned())));
                add(format!("{leaf} {what}"), overrides);
            }
        }
    }

    fn out_of_range(&self, base: &str) -> Option<(&'static str, String)> {
        if self.spec.enum_of(base).is_some() {
            return Some(("out of range", format!("{base}(0x7ffffff0)")));
        }
        let flags = self.spec.flags_of(base)?;
        let value = format!("{}({})", flags.name, flags.mask);
        Some(("with an undefined bit", value))
    }

    /// A call for which a condition holds, none before it, and if possible none at all besides.
    fn condition(&self, at: usize) -> Option<Fault> {
        let when = &self.whens[at];
        let alone = |values: &Values, others: &dyn Fn(usize) -> bool| {
            let values = with(&self.valid, values);
            let holds = |(index, other): (usize, &When<'_>)| {
                others(index) && self.holds(&other.expr, &values)
            };
            self.holds(&when.expr, &values) && !self.whens.iter().enumerate().any(holds)
        };
        let own = self.choices(&when.expr);
        // Where it cannot be had alone, other arguments may have to give way.
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
        // A value that no enumerator has is refused as such, before any condition.
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

    /// Calls that a device refuses which lacks something, and nothing else is wrong with them.
    fn lacks(&self) -> Result<Vec<(&'a ErrorCase, Overrides)>> {
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

    /// Arguments for which this holds, and no condition of the function.
    fn solved(&self, given: &Expr) -> Option<Values> {
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

    fn is_no_enumerator(&self, name: &str, value: u64) -> bool {
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

    /// What the specification declares in words only, or in a condition that has no solution.
    fn said(&self) -> Vec<(&str, &str)> {
        let in_words = self
            .function
            .errors
            .iter()
            .filter(|case| case.when.is_none());
        let in_words = in_words.map(|case| (case.code.as_str(), case.desc.as_str()));
        let unsolved = (0..self.whens.len()).filter(|at| {
            // One that is about required pointers only is what their null checks say.
            !self.choices(&self.whens[*at].expr).is_empty() && self.condition(*at).is_none()
        });
        in_words
            .chain(unsolved.map(|at| (self.whens[at].code, self.whens[at].text)))
            .collect()
    }

    fn choices(&self, condition: &Expr) -> Choices {
        let fixed = |leaf: &Leaf| {
            // What must be there is there; what leads to the adapter is a handle of it.
            let param = self.function.params.iter().find(|p| p.name == leaf.name);
            leaf.form == Form::Pointer
                && param.is_some_and(|param| !param.optional && !param.nocheck)
        };
        Choices::of(condition, &|name| self.constant(name), &fixed)
    }

    fn holds(&self, condition: &Expr, values: &Values) -> bool {
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

    /// The value of a leaf in a call with valid arguments.
    fn usual(&self, name: &str) -> Option<u64> {
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
            return Some(u64::from(!text.contains("null_mut()")));
        }
        let inner = text
            .split_once('(')
            .map_or(text.as_str(), |(_, inner)| inner);
        let inner = inner.trim_end_matches(')');
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

    /// Arguments with these values, and what valid ones need.
    fn overrides(&self, values: &Values) -> Overrides {
        let values = with(&self.valid, values);
        let roots: BTreeSet<&str> = values
            .keys()
            .filter_map(|name| name.split(['.', '[']).next())
            .collect();
        let params = self.function.params.iter();
        params
            .filter(|param| roots.contains(param.name.as_str()))
            .map(|param| (param.name.clone(), self.text(param, &values)))
            .collect()
    }

    /// An argument whose parts have these values.
    fn text(&self, param: &Param, values: &Values) -> String {
        let ty = param.c_type();
        let inside = format!("{}.", param.name);
        let has_members = values.keys().any(|name| name.starts_with(&inside));
        let elements = values
            .keys()
            .any(|name| name.starts_with(&format!("{}[", param.name)));
        match values.get(&param.name) {
            Some(0) if ty.pointers > 0 || self.spec.is_handle(&ty.base) => {
                "std::ptr::null_mut()".to_owned()
            }
            _ if elements => {
                let element = |at: usize| {
                    let name = format!("{}[{at}]", param.name);
                    values.get(&name).copied().unwrap_or(1).to_string()
                };
                format!(
                    "[{}usize, {}, {}].as_ptr()",
                    element(0),
                    element(1),
                    element(2)
                )
            }
            _ if has_members && ty.pointers > 0 => self.pointer_to(param, values, &[]),
            _ if has_members => {
                let members = self.members(&ty.base, &inside, values);
                format!("{} {{ {members} ..{} }}", ty.base, self.usual_text(param))
            }
            Some(_) if ty.pointers > 0 || self.spec.is_handle(&ty.base) => self.given(param),
            Some(value) => self.scalar(&ty, *value),
            None => self.usual_text(param),
        }
    }

    /// A pointer to a structure whose members have these values.
    fn pointer_to(&self, param: &Param, values: &Values, more: &[(String, String)]) -> String {
        let ty = param.c_type();
        let mut members = self.members(&ty.base, &format!("{}.", param.name), values);
        for (member, value) in more {
            let _ = write!(members, "{}: {value},", rust::ident(member));
        }
        let base = &ty.base;
        let whole = match members.is_empty() {
            true => format!("{base}::default()"),
            false => format!("{base} {{ {members} ..Default::default() }}"),
        };
        let writable = if ty.is_const { "" } else { ".cast_mut()" };
        format!("std::ptr::from_ref(&{whole}){writable}")
    }

    fn members(&self, base: &str, inside: &str, values: &Values) -> String {
        let mut out = String::new();
        for (name, value) in values {
            let Some(member) = name.strip_prefix(inside) else {
                continue;
            };
            let members = self.spec.struct_of(base).map(|found| &found.members);
            let found = members.and_then(|all| all.iter().find(|found| found.name == member));
            let Some(found) = found else { continue };
            let ty = found.c_type();
            let text = match *value {
                0 if ty.pointers > 0 || self.spec.is_handle(&ty.base) => {
                    "std::ptr::null_mut()".to_owned()
                }
                _ if ty.pointers == 0 && self.spec.is_handle(&ty.base) => {
                    format!("valid.{}", rust::object_stem(&ty.base))
                }
                _ if ty.pointers > 0 => {
                    format!("valid.at(0) as {}", rust::ty(&found.ty))
                }
                value => self.scalar(&ty, value),
            };
            let _ = write!(out, "{}: {text},", rust::ident(member));
        }
        out
    }

    fn scalar(&self, ty: &CType, value: u64) -> String {
        match self.spec.flags_of(&ty.base) {
            Some(flags) => format!("{}({value})", flags.name),
            None if self.spec.enum_of(&ty.base).is_some() => format!("{}({value})", ty.base),
            None => value.to_string(),
        }
    }

    /// Something valid where null would be valid too.
    fn given(&self, param: &Param) -> String {
        let ty = param.c_type();
        let field = rust::object_stem(&ty.base);
        match (self.spec.is_handle(&ty.base), ty.pointers, param.dir) {
            (true, 0, _) => format!("valid.{field}"),
            (true, 1, Dir::In) => format!("std::ptr::addr_of!(valid.{field})"),
            _ => format!("valid.at({})", self.position(param)),
        }
    }

    /// `needs` and `call` of a call with these arguments replaced.
    fn body(&self, overrides: &Overrides) -> String {
        let mut all = self.overrides(&Values::new());
        all.extend(overrides.clone());
        let needs: Vec<String> = self
            .needs(&all)
            .iter()
            .map(|kind| format!("Kind::{kind}"))
            .collect();
        format!(
            "needs: &[{}], call: |ur, valid| ur.{}({})",
            needs.join(", "),
            self.function.name,
            self.call(&all)
        )
    }

    fn is_wait_list(&self, param: &Param) -> bool {
        param.optional
            && param.count.is_some()
            && param.c_type().base == "ur_event_handle_t"
            && param.dir == Dir::In
    }

    /// Handle kinds that a call with these arguments replaced still takes.
    fn needs(&self, overrides: &Overrides) -> BTreeSet<String> {
        let taken = self.function.params.iter().filter(|param| {
            let ty = param.c_type();
            let by_value = ty.pointers == 0 || (param.count.is_some() && param.dir == Dir::In);
            self.spec.is_handle(&ty.base)
                && by_value
                && !param.optional
                && !overrides.contains_key(&param.name)
        });
        let mut kinds: BTreeSet<String> = taken
            .map(|param| rust::object_name(&param.c_type().base))
            .collect();
        let mentioned = self.spec.handles().filter(|handle| {
            let field = format!("valid.{}", rust::object_stem(&handle.name));
            overrides.values().any(|text| {
                text.match_indices(&field).any(|(at, _)| {
                    let end = text[at + field.len()..].chars().next();
                    end.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
                })
            })
        });
        kinds.extend(mentioned.map(|handle| rust::object_name(&handle.name)));
        kinds
    }

    fn call(&self, overrides: &Overrides) -> String {
        let arguments = self
            .function
            .params
            .iter()
            .map(|param| match overrides.get(&param.name) {
                Some(text) if param.c_type().pointers > 0 => {
                    format!("{text} as {}", rust::ty(&param.ty))
                }
                Some(text) => text.clone(),
                None => self.usual_text(param),
            });
        arguments.collect::<Vec<_>>().join(", ")
    }

    /// A valid value of a parameter.
    fn usual_text(&self, param: &Param) -> String {
        let ty = param.c_type();
        let base = ty.base.as_str();
        let counts_list = |list: &&Param| list.count.as_deref() == Some(&param.name);
        if self.spec.is_handle(base) {
            let field = rust::object_stem(base);
            return match (ty.pointers, param.optional, param.dir) {
                (0, true, _) => "std::ptr::null_mut()".into(),
                (0, false, _) => format!("valid.{field}"),
                (_, true, _) => "std::ptr::null_mut()".into(),
                (_, false, Dir::In) => format!(
                    "std::ptr::addr_of!(valid.{field}) as {}",
                    rust::ty(&param.ty)
                ),
                _ => format!("valid.at({}).cast()", self.position(param)),
            };
        }
        if base == "size_t" && ty.is_const && ty.pointers > 0 && !param.optional {
            return "ONES.as_ptr()".into();
        }
        if ty.pointers > 0 {
            let is_struct = self.spec.struct_of(base).is_some() && ty.pointers == 1;
            return if param.optional && param.dir == Dir::In {
                "std::ptr::null_mut()".into()
            } else if is_struct && param.dir == Dir::In {
                self.pointer_to(param, &Values::new(), &[])
            } else if base == "char" && ty.is_const && ty.pointers == 1 {
                "c\"\".as_ptr()".into()
            } else {
                format!(
                    "valid.at({}) as {}",
                    self.position(param),
                    rust::ty(&param.ty)
                )
            };
        }
        if self.spec.is_callback(base) {
            return format!("Some(noop_{base})");
        }
        if let Some(found) = self.spec.enum_of(base) {
            return found
                .values
                .first()
                .map_or_else(|| format!("{base}(0)"), |value| value.name.clone());
        }
        if let Some(found) = self.spec.flags_of(base) {
            return format!("{}(0)", found.name);
        }
        if base == "ur_rect_region_t" {
            return "ur_rect_region_t { width: 1, height: 1, depth: 1 }".into();
        }
        if self.is_struct(base) {
            return format!("{base}::default()");
        }
        let mut lists = self.function.params.iter().filter(counts_list);
        let counts = lists.clone().next().is_some();
        match counts.then(|| lists.all(|list| list.optional)) {
            Some(true) => "0".into(),
            Some(false) => "1".into(),
            None if base == "bool" || base == "ur_bool_t" || param.nocheck => "0".into(),
            None => self.number(param, &ty),
        }
    }

    fn is_struct(&self, base: &str) -> bool {
        self.spec.items().any(|item| match item {
            Item::Struct(found) => found.name == base,
            Item::Union(found) => found.name == base,
            _ => false,
        })
    }

    fn number(&self, param: &Param, ty: &CType) -> String {
        let is_info_size = self
            .function
            .params
            .iter()
            .filter_map(|param| param.info.as_ref())
            .any(|info| info.get(1) == Some(&param.name));
        match ty.base.as_str() {
            _ if is_info_size => "64".into(),
            "float" | "double" => "1.0".into(),
            _ if param.own == Some(Own::Release) => "0".into(),
            _ => "1".into(),
        }
    }
}

fn result(code: &str) -> String {
    format!("UR_RESULT_ERROR_{code}")
}

/// The first values, with the second in place of theirs.
fn with(first: &Values, second: &Values) -> Values {
    let mut all = first.clone();
    all.extend(second.clone());
    all
}
