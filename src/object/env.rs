//! Environment variables: reading, parsing, and reporting of invalid values.
//!
//! Owns the syntax of flags, words, numbers and lists. An unset or empty variable has its default.
//! An invalid one has its default as well and is reported with the accepted values. Each library
//! reports it once in a process, at any log level. Pure apart from [`Env::process`]; it must never
//! know what a variable is for.

use std::fmt;
use std::ops::RangeInclusive;

use super::log;

/// A source of variables and a sink for complaints: the process and its log, or those of a test.
pub struct Env<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    complain: &'a dyn Fn(&str),
}

impl<'a> Env<'a> {
    /// An environment that reads by `get` and reports by `complain`.
    pub fn new(get: &'a dyn Fn(&str) -> Option<String>, complain: &'a dyn Fn(&str)) -> Env<'a> {
        Env { get, complain }
    }

    /// The process's own variables.
    pub fn process() -> Env<'static> {
        Env {
            get: &|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()),
            complain: &log::once,
        }
    }

    /// Reports an invalid variable to the user.
    pub fn complain(&self, text: &str) {
        (self.complain)(text);
    }

    /// A variable's text; an empty one counts as unset.
    pub fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|text| !text.is_empty())
    }

    /// The value that `parse` returns for a variable; none if it is unset or invalid.
    ///
    /// The complaint about an invalid value has `accepted`, the valid texts, and `default`, the
    /// value that is used instead.
    pub fn read<T>(
        &self,
        name: &str,
        accepted: &str,
        default: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.text(name)?;
        let value = parse(&text);
        if value.is_none() {
            self.complain(&format!(
                "{name}: `{text}` is not understood; accepted: {accepted}; used instead: {default}"
            ));
        }
        value
    }

    /// A flag: `y`, `yes`, `t`, `true` and `1`, or their opposites, in any case.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        let default_text = if default { "1" } else { "0" };
        self.read(name, FLAGS, default_text, flag)
            .unwrap_or(default)
    }

    /// One of a few words, each with its value.
    pub fn word<T: Copy>(&self, name: &str, default: (&str, T), others: &[(&str, T)]) -> T {
        let words = || std::iter::once(&default).chain(others);
        let names: Vec<&str> = words().map(|(word, _)| *word).collect();
        let find = |text: &str| words().find(|(word, _)| *word == text);
        self.read(name, &names.join(", "), default.0, find)
            .map_or(default.1, |(_, value)| *value)
    }

    /// A whole number within a range. `default` describes the value used without one.
    pub fn number(&self, name: &str, range: RangeInclusive<usize>, default: &str) -> Option<usize> {
        let accepted = format!("a number from {} to {}", range.start(), range.end());
        self.read(name, &accepted, default, |text| {
            let number = text.trim().parse().ok()?;
            range.contains(&number).then_some(number)
        })
    }

    /// A list of items, with the syntax of [`list`].
    pub fn list(&self, name: &str) -> Option<Result<Vec<String>, ListError>> {
        self.text(name).map(|text| list(&text))
    }
}

/// The texts that [`flag`] accepts, for complaints.
pub const FLAGS: &str = "1, true, yes, 0, false, no";

/// The value of a flag's text; none if it is invalid.
pub fn flag(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is(&["y", "yes", "t", "true", "1"]) {
        Some(true)
    } else if is(&["n", "no", "f", "false", "0"]) {
        Some(false)
    } else {
        None
    }
}

/// A syntax error in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListError {
    /// Offset of the fault in bytes.
    pub at: usize,
    pub reason: &'static str,
}

impl fmt::Display for ListError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (at byte {})", self.reason, self.at)
    }
}

impl std::error::Error for ListError {}

/// Parses items separated by commas. An item with `,`, `:` or `;` needs single or double quotes.
pub fn list(text: &str) -> Result<Vec<String>, ListError> {
    let mut items = Vec::new();
    let mut rest = text;
    loop {
        let at = text.len() - rest.len();
        let fault = |at, reason| Err(ListError { at, reason });
        let (item, after) = match rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            Some(quote) => match rest[1..].split_once(quote) {
                Some(parts) => parts,
                None => return fault(at, "quote without its end"),
            },
            None => {
                let (item, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                if let Some(bad) = item.find([':', ';']) {
                    return fault(at + bad, "an item with `:` or `;` needs quotes");
                }
                (item, after)
            }
        };
        if item.is_empty() {
            return fault(at, "empty item");
        }
        items.push(item.to_owned());
        if after.is_empty() {
            return Ok(items);
        }
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => {
                return fault(
                    text.len() - after.len(),
                    "unexpected text after a quoted item",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::cell::RefCell;

    use super::{Env, flag, list};

    /// The result of a closure in an environment, and its complaints.
    fn within<T>(pairs: &[(&str, &str)], act: impl FnOnce(&Env<'_>) -> T) -> (T, Vec<String>) {
        let reported = RefCell::<Vec<String>>::default();
        let get = |name: &str| {
            let found = pairs.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let complain = |text: &str| reported.borrow_mut().push(text.to_owned());
        let value = act(&Env::new(&get, &complain));
        (value, reported.into_inner())
    }

    #[test]
    fn flags() {
        for text in ["y", "Y", "yes", "YES", "t", "T", "true", "True", "1"] {
            assert_eq!(flag(text), Some(true), "{text}");
        }
        for text in ["n", "N", "no", "NO", "f", "false", "False", "0"] {
            assert_eq!(flag(text), Some(false), "{text}");
        }
        for text in ["", "2", "on", "off", "yess", " 1"] {
            assert_eq!(flag(text), None, "{text}");
        }
    }

    #[test]
    fn invalid_values_are_reported_with_the_accepted_ones() {
        for default in [false, true] {
            let (value, reported) = within(&[("A", "maybe")], |env| env.flag("A", default));
            assert_eq!(value, default);
            let default_text = u8::from(default);
            assert_eq!(
                reported,
                [format!(
                    "A: `maybe` is not understood; accepted: 1, true, yes, 0, false, no; used instead: {default_text}"
                )]
            );
        }
        let word = |text| {
            within(&[("A", text)], |env| {
                env.word("A", ("b", 1), &[("a", 0), ("c", 2)])
            })
        };
        assert_eq!(word("a"), (0, vec![]));
        assert_eq!(word("b"), (1, vec![]));
        assert_eq!(word(""), (1, vec![]));
        let (value, reported) = word("C");
        assert_eq!(value, 1);
        assert_eq!(
            reported,
            ["A: `C` is not understood; accepted: b, a, c; used instead: b"]
        );
        let number = |text| within(&[("A", text)], |env| env.number("A", 1..=64, "8"));
        assert_eq!(number(" 64 "), (Some(64), vec![]));
        assert_eq!(number(""), (None, vec![]));
        for bad in ["0", "65", "-1", "1.5", "two", "0x10", "4 threads"] {
            let (value, reported) = number(bad);
            assert_eq!(value, None, "{bad}");
            assert_eq!(
                reported,
                [format!(
                    "A: `{bad}` is not understood; accepted: a number from 1 to 64; used instead: 8"
                )]
            );
        }
    }

    #[test]
    fn lists() {
        let ok = |text: &str| list(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(ok("a"), ["a"]);
        assert_eq!(ok("a,b,c"), ["a", "b", "c"]);
        assert_eq!(ok("/opt/x.so,'/a:b/c,d.so'"), ["/opt/x.so", "/a:b/c,d.so"]);
        assert_eq!(ok("\"it's\",x"), ["it's", "x"]);
        assert_eq!(ok("a'b"), ["a'b"]);
        #[rustfmt::skip]
        let bad = [("", 0), (",", 0), ("a,", 2), ("a,,b", 2), ("a:b", 1), ("a;b", 1), ("x,a:b", 3),
                   ("'a", 0), ("x,'a", 2), ("''", 0), ("'a'b", 3)];
        for (text, at) in bad {
            assert_eq!(list(text).expect_err(text).at, at, "{text}");
        }
    }

    #[test]
    fn an_empty_variable_is_unset() {
        let pairs = [("EMPTY", ""), ("FLAG", "yes"), ("LIST", "a,b")];
        let ((), reported) = within(&pairs, |env| {
            assert_eq!(env.text("EMPTY"), None);
            assert!(env.flag("EMPTY", true) && !env.flag("EMPTY", false));
            assert!(env.list("EMPTY").is_none());
            assert!(env.flag("FLAG", false));
            assert_eq!(
                env.list("LIST"),
                Some(Ok(vec!["a".to_owned(), "b".to_owned()]))
            );
            assert_eq!(env.text("NONE"), None);
        });
        assert_eq!(reported, Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn no_list_panics(text in any::<String>()) {
            if let Err(error) = list(&text) {
                prop_assert!(text.is_char_boundary(error.at));
            }
        }

        #[test]
        fn quoted_items_come_back(items in prop::collection::vec("[^\"]{1,8}", 1..5)) {
            let text = items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(",");
            prop_assert_eq!(list(&text), Ok(items));
        }
    }
}
