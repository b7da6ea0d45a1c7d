//! Checks that the declarations fit together. Each error begins with file and line.

use super::{CType, ErrorCase, Function, Group, Item, Param, Spec, Value};
use anyhow::{Context as _, Error, Result, anyhow};
use std::collections::{BTreeMap, BTreeSet};

/// The C types that need no declaration.
const BUILT_IN: [&str; 19] = [
    "void",
    "char",
    "bool",
    "int",
    "unsigned int",
    "unsigned char",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "size_t",
    "intptr_t",
    "uintptr_t",
    "float",
    "double",
];

/// A declaration in its file.
struct Place<'a> {
    group: &'a Group,
    name: &'a str,
}

impl Place<'_> {
    /// An error at the first line of the declaration that contains `part`.
    fn fault(&self, part: &str, message: &str) -> Error {
        let Self { group, name } = self;
        let line = group.line(name, part);
        anyhow!("spec/{}.yml:{line}: {name}: {message}", group.name)
    }

    fn ensure(&self, holds: bool, part: &str, message: impl Fn() -> String) -> Result<()> {
        match holds {
            true => Ok(()),
            false => Err(self.fault(part, &message())),
        }
    }
}

impl Group {
    /// The first line of the declaration that contains `part`, or its first line.
    fn line(&self, name: &str, part: &str) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let declares = |line: &&str| {
            let declared = line
                .strip_prefix("- ")
                .and_then(|line| line.split_once(": "));
            declared.is_some_and(|(_, declared)| declared.trim() == name)
        };
        let from = lines.iter().position(declares).unwrap_or(0);
        let below = lines.iter().enumerate().skip(from);
        let mut own = below.take_while(|(at, line)| *at == from || !line.starts_with("- "));
        let found = own.find(|(_, line)| line.contains(part));
        found.map_or(from, |(at, _)| at) + 1
    }
}

impl Item {
    fn name(&self) -> &str {
        match self {
            Self::Handle(found) => &found.name,
            Self::Typedef(found) => &found.name,
            Self::Enum(found) => &found.name,
            Self::Flags(found) => &found.name,
            Self::Struct(found) => &found.name,
            Self::Union(found) => &found.name,
            Self::Callback(found) => &found.name,
            Self::Macro(found) => &found.name,
            Self::Function(found) => &found.name,
        }
    }
}

/// Names that declarations may refer to.
struct Known<'a> {
    types: BTreeSet<&'a str>,
    /// The table of each function that `ddi.yml` lists.
    tables: BTreeMap<&'a str, &'a str>,
    /// The enumerators of `ur_function_t`.
    ids: BTreeSet<&'a str>,
}

impl Spec {
    /// An error about a function: `spec/queue.yml:12: urQueueCreate: message`. Its line contains `part`.
    pub fn fault(&self, function: &Function, part: &str, message: &str) -> Error {
        let name = &function.name;
        let declares = |group: &&Group| group.items.iter().any(|item| item.name() == name);
        match self.groups.iter().find(declares) {
            Some(group) => Place { group, name }.fault(part, message),
            None => anyhow!("{name}: {message}"),
        }
    }

    /// Fails with the first inconsistent declaration.
    pub(super) fn check(&self) -> Result<()> {
        let mut known = Known {
            types: BUILT_IN.into_iter().collect(),
            tables: BTreeMap::new(),
            ids: BTreeSet::new(),
        };
        for table in &self.tables {
            let slots = table.slots.iter();
            let slots = slots.map(|name| (name.as_str(), table.name.as_str()));
            known.tables.extend(slots);
        }
        let ids = self.enum_of("ur_function_t").context("no ur_function_t")?;
        let ids = ids.values.iter().map(|value| value.name.as_str());
        known.ids.extend(ids);
        let mut names = BTreeSet::new();
        for (place, item) in self.places() {
            place.ensure(names.insert(place.name), "", || "declared twice".into())?;
            if !matches!(item, Item::Macro(_) | Item::Function(_)) {
                known.types.insert(place.name);
            }
            if let Item::Flags(flags) = item {
                known.types.insert(&flags.bit);
            }
        }
        if let Some(missing) = known.tables.keys().find(|name| !names.contains(*name)) {
            return Err(anyhow!("spec/ddi.yml: no function {missing}"));
        }
        for (place, item) in self.places() {
            self.check_item(&known, &place, item)?;
        }
        Ok(())
    }

    fn places(&self) -> impl Iterator<Item = (Place<'_>, &Item)> {
        self.groups.iter().flat_map(|group| {
            let items = group.items.iter();
            items.map(move |item| {
                let name = item.name();
                (Place { group, name }, item)
            })
        })
    }

    fn check_item(&self, known: &Known<'_>, place: &Place<'_>, item: &Item) -> Result<()> {
        match item {
            Item::Handle(_) | Item::Macro(_) => Ok(()),
            Item::Typedef(found) => known.check_type(place, "type:", &found.ty),
            Item::Enum(found) => known.check_values(place, &found.values),
            Item::Flags(found) => known.check_values(place, &found.values),
            Item::Struct(found) => known.check_params(place, &found.members),
            Item::Union(found) => known.check_params(place, &found.members),
            Item::Callback(found) => {
                known.check_type(place, "returns:", &found.returns)?;
                known.check_params(place, &found.params)
            }
            Item::Function(function) => self.check_function(known, place, function),
        }
    }

    fn check_function(
        &self,
        known: &Known<'_>,
        place: &Place<'_>,
        function: &Function,
    ) -> Result<()> {
        let table = known.tables.get(function.name.as_str()).copied();
        place.ensure(table == function.table.as_deref(), "table:", || {
            format!("spec/ddi.yml has it in {}", table.unwrap_or("no table"))
        })?;
        place.ensure(known.ids.contains(function.id.as_str()), "id:", || {
            format!("unknown id {}", function.id)
        })?;
        known.check_params(place, &function.params)?;
        for case in &function.errors {
            self.check_case(place, case)?;
        }
        for code in &function.may {
            self.check_code(place, "may:", code)?;
        }
        Ok(())
    }

    fn check_case(&self, place: &Place<'_>, case: &ErrorCase) -> Result<()> {
        let part = format!("desc: {:?}", case.desc);
        self.check_code(place, &part, &case.code)?;
        place.ensure(case.when.is_none() || case.lacks.is_empty(), &part, || {
            "`when` and `lacks` exclude each other".into()
        })?;
        place.ensure(
            case.given.is_none() || !case.lacks.is_empty(),
            &part,
            || "`given` belongs to `lacks`".into(),
        )?;
        for (property, flag) in case.lacking() {
            self.check_lack(place, &part, property, flag)?;
        }
        Ok(())
    }

    fn check_lack(
        &self,
        place: &Place<'_>,
        part: &str,
        property: &str,
        flag: Option<&str>,
    ) -> Result<()> {
        let properties = self.enum_of("ur_device_info_t");
        let properties = properties.context("no ur_device_info_t")?;
        let among = |name: &str, values: &[Value]| values.iter().any(|value| value.name == name);
        place.ensure(among(property, &properties.values), part, || {
            format!("no property {property}")
        })?;
        let is_flag = |flag: &str| {
            self.items()
                .any(|item| matches!(item, Item::Flags(found) if among(flag, &found.values)))
        };
        place.ensure(flag.is_none_or(is_flag), part, || {
            format!("no flag {}", flag.unwrap_or_default())
        })
    }

    fn check_code(&self, place: &Place<'_>, part: &str, code: &str) -> Result<()> {
        let full = format!("UR_RESULT_ERROR_{code}");
        let results = self.enum_of("ur_result_t").context("no ur_result_t")?;
        let is_code = results.values.iter().any(|value| value.name == full);
        place.ensure(is_code, part, || format!("unknown error {code}"))
    }
}

impl Known<'_> {
    fn check_type(&self, place: &Place<'_>, part: &str, ty: &str) -> Result<()> {
        let base = CType::parse(ty).base;
        place.ensure(self.types.contains(base.as_str()), part, || {
            format!("unknown type `{base}`")
        })
    }

    fn check_values(&self, place: &Place<'_>, values: &[Value]) -> Result<()> {
        let mut names = BTreeSet::new();
        for value in values {
            let part = format!("name: {}", value.name);
            place.ensure(names.insert(&value.name), &part, || {
                format!("{} stands here twice", value.name)
            })?;
            if let Some(ty) = &value.ty {
                self.check_type(place, &part, ty)?;
            }
        }
        Ok(())
    }

    /// Checks the types of parameters or members, and their references to one another.
    fn check_params(&self, place: &Place<'_>, params: &[Param]) -> Result<()> {
        let mut names = BTreeSet::new();
        for param in params {
            let part = format!("name: {},", param.name);
            place.ensure(names.insert(param.name.as_str()), &part, || {
                format!("{} stands here twice", param.name)
            })?;
        }
        for param in params {
            let part = format!("name: {},", param.name);
            self.check_type(place, &part, &param.ty)?;
            let named = param.count.iter().chain(param.info.iter().flatten());
            for named in named.chain(&param.tag) {
                place.ensure(names.contains(named.as_str()), &part, || {
                    format!("{} names unknown {named}", param.name)
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DdiOrder, parse};
    use super::*;

    const HEAD: &str = "name: x\ntitle: t\nversion: v\ndesc: d\nthreads: t\nordering: o\nitems:\n";

    const ITEMS: &str = "\
- enum: ur_function_t
  desc: d
  values:
  - {name: UR_FUNCTION_X, value: 1, desc: d}
- enum: ur_result_t
  desc: d
  values:
  - {name: UR_RESULT_ERROR_INVALID_SIZE, value: 1, desc: d}
- struct: ur_pair_t
  desc: d
  members:
  - {name: first, type: size_t, desc: d}
- function: urX
  table: T
  id: UR_FUNCTION_X
  desc: d
  params:
  - {name: size, type: size_t, desc: d}
  - {name: pPair, type: \"const ur_pair_t *\", count: size, desc: d}
  errors:
  - {code: INVALID_SIZE, when: \"size == 0\", desc: \"none\"}
";

    /// The error that one changed text causes.
    fn error(old: &str, new: &str) -> String {
        assert!(ITEMS.contains(old), "{old}");
        let text = format!("{HEAD}{}", ITEMS.replacen(old, new, 1));
        let mut group: Group = match parse(&text) {
            Ok(group) => group,
            Err((line, error)) => return format!("{}: {error}", line.expect("a line")),
        };
        group.text = text;
        let order = "groups: [x]\ntables:\n- {name: T, struct: t, slots: [urX]}\n";
        let order: DdiOrder = parse(order).expect("an order");
        let spec = Spec {
            groups: vec![group],
            tables: order.tables,
        };
        spec.check().expect_err("a fault").to_string()
    }

    #[test]
    fn a_misspelt_field_is_refused_with_its_line() {
        for (old, new, line, field) in [
            (
                "size_t, desc: d}\n  - {name: pPair",
                "size_t, dsc: d}\n  - {name: pPair",
                25,
                "dsc",
            ),
            ("  id:", "  idd:", 22, "idd"),
            (
                "value: 1, desc: d}\n- enum",
                "valu: 1, desc: d}\n- enum",
                11,
                "valu",
            ),
            ("when:", "wenn:", 28, "wenn"),
        ] {
            let error = error(old, new);
            let unknown = format!("unknown field `{field}`");
            assert!(error.starts_with(&format!("{line}: ")), "{error}");
            assert!(error.contains(&unknown), "{error}");
        }
        let kind = error("- struct:", "- structure:");
        assert!(kind.contains("unknown variant `structure`"), "{kind}");
    }

    #[test]
    fn an_unknown_type_is_refused_with_its_line() {
        let parameter = error("const ur_pair_t *", "const ur_pear_t *");
        assert_eq!(parameter, "spec/x.yml:26: urX: unknown type `ur_pear_t`");
        let member = error("first, type: size_t", "first, type: sise_t");
        assert_eq!(member, "spec/x.yml:19: ur_pair_t: unknown type `sise_t`");
    }

    #[test]
    fn what_names_nothing_is_refused_with_its_line() {
        for (old, new, expected) in [
            (
                "count: size",
                "count: sizes",
                "26: urX: pPair names unknown sizes",
            ),
            (
                "code: INVALID_SIZE",
                "code: INVALID_SISE",
                "28: urX: unknown error INVALID_SISE",
            ),
            (
                "id: UR_FUNCTION_X",
                "id: UR_FUNCTION_Y",
                "22: urX: unknown id UR_FUNCTION_Y",
            ),
            (
                "name: pPair",
                "name: size",
                "25: urX: size stands here twice",
            ),
            ("table: T", "table: U", "21: urX: spec/ddi.yml has it in T"),
            (
                "- struct: ur_pair_t",
                "- struct: ur_result_t",
                "12: ur_result_t: declared twice",
            ),
        ] {
            assert_eq!(error(old, new), format!("spec/x.yml:{expected}"));
        }
    }
}
