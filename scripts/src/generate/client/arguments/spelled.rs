//! The text of arguments in the table, for valid and invalid calls.

use super::Overrides;
use super::maker::Maker;
use super::values::with;
use crate::generate::client::solve::Values;
use crate::generate::rust;
use crate::model::{CType, Dir, Item, Own, Param};
use std::collections::BTreeSet;

pub(super) const NULL: &str = "null";
const MEMORY: &str = "memory";

impl Maker<'_> {
    /// The texts for these values, and for the changes that a valid call needs.
    pub(super) fn overrides(&self, values: &Values) -> Overrides {
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

    /// The text of an argument from the values of its leaves.
    fn text(&self, param: &Param, values: &Values) -> String {
        let ty = param.c_type();
        let inside = format!("{}.", param.name);
        let has_members = values.keys().any(|name| name.starts_with(&inside));
        let elements = values
            .keys()
            .any(|name| name.starts_with(&format!("{}[", param.name)));
        match values.get(&param.name) {
            Some(0) if ty.pointers > 0 || self.spec.is_handle(&ty.base) => NULL.to_owned(),
            _ if elements => {
                let element = |at: usize| {
                    let name = format!("{}[{at}]", param.name);
                    values.get(&name).copied().unwrap_or(1)
                };
                format!("[{}, {}, {}]", element(0), element(1), element(2))
            }
            _ if has_members && ty.pointers > 0 => self.pointer_to(param, values, None),
            _ if has_members => {
                let mut all = self.usual_members(&ty.base);
                all.extend(self.members(&ty.base, &inside, values));
                structure(&ty.base, &all)
            }
            Some(_) if ty.pointers > 0 || self.spec.is_handle(&ty.base) => self.given(param),
            Some(value) => value.to_string(),
            None => self.usual_text(param),
        }
    }

    /// A pointer to a struct, from the values of its members.
    pub(super) fn pointer_to(
        &self,
        param: &Param,
        values: &Values,
        more: Option<(&str, &str)>,
    ) -> String {
        let base = param.c_type().base;
        let mut members = self.members(&base, &format!("{}.", param.name), values);
        members.extend(more.map(|(member, value)| (member.to_owned(), value.to_owned())));
        structure(&format!("&{base}"), &members)
    }

    /// The members of a struct by value in a valid call.
    fn usual_members(&self, base: &str) -> Overrides {
        let sides: &[&str] = match base {
            "ur_rect_region_t" => &["width", "height", "depth"],
            _ => &[],
        };
        let one = |side: &&str| ((*side).to_owned(), "1".to_owned());
        sides.iter().map(one).collect()
    }

    fn members(&self, base: &str, inside: &str, values: &Values) -> Overrides {
        let mut out = Overrides::new();
        for (name, value) in values {
            let Some(member) = name.strip_prefix(inside) else {
                continue;
            };
            let members = self.spec.struct_of(base).map(|found| &found.members);
            let found = members.and_then(|all| all.iter().find(|found| found.name == member));
            let Some(found) = found else { continue };
            let ty = found.c_type();
            let text = match *value {
                0 if ty.pointers > 0 || self.spec.is_handle(&ty.base) => NULL.to_owned(),
                _ if ty.pointers == 0 && self.spec.is_handle(&ty.base) => {
                    rust::object_name(&ty.base)
                }
                _ if ty.pointers > 0 => MEMORY.to_owned(),
                value => value.to_string(),
            };
            out.insert(member.to_owned(), text);
        }
        out
    }

    /// A valid text that is not null, for a parameter that may be null.
    fn given(&self, param: &Param) -> String {
        let ty = param.c_type();
        let kind = rust::object_name(&ty.base);
        match (self.spec.is_handle(&ty.base), ty.pointers, param.dir) {
            (true, 0, _) => kind,
            (true, 1, Dir::In) => format!("[{kind}]"),
            _ => MEMORY.to_owned(),
        }
    }

    /// The changes to usual values that a valid call needs.
    pub(super) fn valid_arguments(&self) -> Overrides {
        self.overrides(&Values::new())
    }

    /// The text of a parameter in the valid call.
    pub(super) fn argument(&self, param: &Param, valid: &Overrides) -> String {
        let usual = || self.usual_text(param);
        valid.get(&param.name).cloned().unwrap_or_else(usual)
    }

    /// The texts that differ from the valid call's.
    pub(super) fn changes(&self, overrides: &Overrides, valid: &Overrides) -> String {
        let params = self.function.params.iter();
        let changed = params.filter_map(|param| {
            let other = overrides.get(&param.name)?;
            let name = rust::ident(&param.name);
            (*other != self.argument(param, valid)).then(|| format!("{name} = {other}"))
        });
        format!("({})", changed.collect::<Vec<_>>().join(", "))
    }

    pub(super) fn is_wait_list(&self, param: &Param) -> bool {
        param.optional
            && param.count.is_some()
            && param.c_type().base == "ur_event_handle_t"
            && param.dir == Dir::In
    }

    /// The usual text of a parameter.
    pub(super) fn usual_text(&self, param: &Param) -> String {
        let ty = param.c_type();
        let base = ty.base.as_str();
        let counts_list = |list: &&Param| list.count.as_deref() == Some(&param.name);
        if self.spec.is_handle(base) {
            let kind = rust::object_name(base);
            return match (ty.pointers, param.optional, param.dir) {
                (_, true, _) => NULL.into(),
                (0, false, _) => kind,
                (_, false, Dir::In) => format!("[{kind}]"),
                _ => MEMORY.into(),
            };
        }
        if base == "size_t" && ty.is_const && ty.pointers > 0 && !param.optional {
            return "[1, 1, 1]".into();
        }
        if ty.pointers > 0 {
            let is_struct = self.spec.struct_of(base).is_some() && ty.pointers == 1;
            return if param.optional && param.dir == Dir::In {
                NULL.into()
            } else if is_struct && param.dir == Dir::In {
                self.pointer_to(param, &Values::new(), None)
            } else if base == "char" && ty.is_const && ty.pointers == 1 {
                "text".into()
            } else {
                MEMORY.into()
            };
        }
        if self.spec.is_callback(base) {
            return format!("(callback {base})");
        }
        if let Some(found) = self.spec.enum_of(base) {
            let first = found.values.first();
            return first.map_or_else(|| "0".to_owned(), |value| format!("({})", value.name));
        }
        if self.spec.flags_of(base).is_some() {
            return "0".into();
        }
        if self.is_struct(base) {
            return structure(base, &self.usual_members(base));
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
            _ if param.own == Some(Own::Release) => "0".into(),
            _ => "1".into(),
        }
    }
}

/// A struct with these members. The others have the values of the type's default.
fn structure(base: &str, members: &Overrides) -> String {
    let members = members.iter();
    let members = members.map(|(member, value)| format!("{} = {value}", rust::ident(member)));
    let members: Vec<String> = members.collect();
    match members.is_empty() {
        true => format!("{{{base}}}"),
        false => format!("{{{base} {}}}", members.join(", ")),
    }
}
