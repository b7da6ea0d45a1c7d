//! Arguments as a call spells them, the valid ones and others in their place.

use super::Overrides;
use super::maker::Maker;
use super::values::with;
use crate::generate::client::solve::Values;
use crate::generate::rust;
use crate::model::{CType, Dir, Item, Own, Param};
use std::collections::BTreeSet;
use std::fmt::Write as _;

impl Maker<'_> {
    /// Arguments with these values, and what valid ones need.
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
    pub(super) fn pointer_to(
        &self,
        param: &Param,
        values: &Values,
        more: &[(String, String)],
    ) -> String {
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
    pub(super) fn body(&self, overrides: &Overrides) -> String {
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

    pub(super) fn is_wait_list(&self, param: &Param) -> bool {
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
    pub(super) fn usual_text(&self, param: &Param) -> String {
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
