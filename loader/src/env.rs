//! The environment's values: how they are read and what their texts mean.
//!
//! Owns the syntax of flags and lists that the reference's variables use. Pure apart from
//! [`Env::process`]; it must never know what a variable is for.

use std::fmt;

/// Where variables come from: the process, or a test's table.
pub struct Env<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Env<'a> {
    pub fn new(get: &'a dyn Fn(&str) -> Option<String>) -> Env<'a> {
        Env { get }
    }

    /// The process's own variables.
    pub fn process() -> Env<'static> {
        Env {
            get: &|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()),
        }
    }

    /// A variable's text; an empty one counts as unset.
    pub fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|text| !text.is_empty())
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).map(|text| is_true(&text))
    }

    pub fn list(&self, name: &str) -> Option<Result<Vec<String>, ListError>> {
        self.text(name).map(|text| list(&text))
    }
}

/// `y`, `yes`, `t`, `true` and `1`, in any case, are true; everything else is false.
pub fn is_true(text: &str) -> bool {
    ["y", "yes", "t", "true", "1"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(text))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListError {
    /// Offset in bytes of what is wrong.
    pub at: usize,
    pub reason: &'static str,
}

impl fmt::Display for ListError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (at byte {})", self.reason, self.at)
    }
}

impl std::error::Error for ListError {}

/// Items separated by commas. One that holds `,`, `:` or `;` stands in single or double quotes.
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

    use super::{Env, is_true, list};

    #[test]
    fn flags() {
        for text in ["y", "Y", "yes", "YES", "t", "T", "true", "True", "1"] {
            assert!(is_true(text), "{text}");
        }
        for text in ["", "0", "n", "no", "false", "2", "on", "yess", " 1"] {
            assert!(!is_true(text), "{text}");
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
        let get = |name: &str| match name {
            "EMPTY" => Some(String::new()),
            "FLAG" => Some("yes".to_owned()),
            "LIST" => Some("a,b".to_owned()),
            _ => None,
        };
        let env = Env::new(&get);
        assert_eq!(env.text("EMPTY"), None);
        assert_eq!(env.flag("EMPTY"), None);
        assert!(env.list("EMPTY").is_none());
        assert_eq!(env.flag("FLAG"), Some(true));
        assert_eq!(env.flag("LIST"), Some(false));
        assert_eq!(
            env.list("LIST"),
            Some(Ok(vec!["a".to_owned(), "b".to_owned()]))
        );
        assert_eq!(env.text("NONE"), None);
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
