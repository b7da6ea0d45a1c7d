//! One function with its conditions, from which calls are made.

use super::spelled::NULL;
use super::values::with;
use super::{Overrides, result};
use crate::generate::client::solve::{self, Values};
use crate::generate::expr::{self, Expr};
use crate::generate::rust;
use crate::model::{Dir, ErrorCase, Function, Own, Spec};
use anyhow::Result;
use std::collections::BTreeSet;

/// One invalid call.
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) codes: Vec<String>,
    pub(super) overrides: Overrides,
}

/// A condition of the specification.
pub(super) struct When<'a> {
    pub(super) code: &'a str,
    pub(super) text: &'a str,
    pub(super) expr: Expr,
}

/// Makes the calls of one function.
pub(super) struct Maker<'a> {
    pub(super) spec: &'a Spec,
    pub(super) function: &'a Function,
    pub(super) whens: Vec<When<'a>>,
    /// Cases that a device without a feature refuses, with the condition on the arguments.
    pub(super) givens: Vec<(&'a ErrorCase, Option<Expr>)>,
    /// Usual values of the leaves in the conditions.
    pub(super) usual: Values,
    /// Changes to the usual values under which no condition holds.
    pub(super) valid: Values,
}

impl<'a> Maker<'a> {
    pub(super) fn new(spec: &'a Spec, function: &'a Function) -> Result<Self> {
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

    /// The properties of the function in its row, besides arguments.
    pub(super) fn attributes(&self) -> Vec<String> {
        if self.function.table.is_none() {
            return vec!["in_tables: false".to_owned()];
        }
        let mut all = Vec::new();
        let (may, made) = (self.may(), self.made());
        if !may.is_empty() {
            all.push(format!("may: &[{may}]"));
        }
        if self.consumes() {
            all.push("consumes: true".to_owned());
        }
        if !made.is_empty() {
            all.push(format!("made: &[{made}]"));
        }
        all.extend(
            self.retains()
                .map(|kind| format!("retains: Some(Kind::{kind})")),
        );
        all
    }

    /// Errors that a valid call may return: those without a condition.
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
        let params = self.function.params.iter().enumerate();
        let made = params.filter(|(_, param)| {
            let ty = param.c_type();
            let wanted = self.usual_text(param) != NULL;
            self.spec.is_handle(&ty.base)
                && ty.pointers == 1
                && param.dir != Dir::In
                && param.own != Some(Own::Lend)
                && wanted
        });
        let made = made.map(|(position, param)| {
            let kind = rust::object_name(&param.c_type().base);
            format!("(Kind::{kind}, {position})")
        });
        made.collect::<Vec<_>>().join(", ")
    }

    fn retains(&self) -> Option<String> {
        let mut params = self.function.params.iter();
        let gains = params.find(|param| param.own == Some(Own::Retain));
        gains.map(|param| rust::object_name(&param.c_type().base))
    }

    /// Errors that are declared in words only, or by a condition without a solution.
    pub(super) fn said(&self) -> Vec<(&str, &str)> {
        let in_words = self
            .function
            .errors
            .iter()
            .filter(|case| case.when.is_none());
        let in_words = in_words.map(|case| (case.code.as_str(), case.desc.as_str()));
        let unsolved = (0..self.whens.len()).filter(|at| {
            // A condition on required pointers only repeats their null checks.
            !self.choices(&self.whens[*at].expr).is_empty() && self.condition(*at).is_none()
        });
        in_words
            .chain(unsolved.map(|at| (self.whens[at].code, self.whens[at].text)))
            .collect()
    }
}
