//! Filters of names: patterns with `*` and `?`. Patterns after `!` exclude.
//!
//! Pure functions over text.

/// A filter of names. A name matches if a pattern matches it, or if there is none, and no pattern
/// after `!` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    included: Vec<String>,
    excluded: Vec<String>,
}

impl Patterns {
    pub fn new(list: impl IntoIterator<Item = String>) -> Patterns {
        let mut patterns = Patterns::default();
        for item in list {
            match item.strip_prefix('!') {
                Some(item) => patterns.excluded.push(item.to_owned()),
                None => patterns.included.push(item),
            }
        }
        patterns
    }

    /// Whether there is no pattern, so that every name matches.
    pub fn is_empty(&self) -> bool {
        self.included.is_empty() && self.excluded.is_empty()
    }

    /// Whether a name passes the filter.
    pub fn matches(&self, name: &str) -> bool {
        let fits = |pattern: &String| fits(pattern.as_bytes(), name.as_bytes());
        (self.included.is_empty() || self.included.iter().any(fits))
            && !self.excluded.iter().any(fits)
    }
}

/// Matches `*` with any text and `?` with one byte. It backtracks to the last `*` only, so that the
/// time is at most the product of the lengths.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    let mut star = None;
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[next] => {
                at += 1;
                next += 1;
            }
            _ => match star {
                Some((place, from)) => {
                    star = Some((place, from + 1));
                    at = place + 1;
                    next = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_match() {
        let check = |list: &[&str], name: &str, admitted: bool| {
            let patterns = Patterns::new(list.iter().map(|&item| item.to_owned()));
            assert_eq!(patterns.matches(name), admitted, "{list:?} {name}");
        };
        check(&[], "urQueueCreate", true);
        check(&["urQueueCreate"], "urQueueCreate", true);
        check(&["urQueue"], "urQueueCreate", false);
        check(&["urQueue*"], "urQueueCreate", true);
        check(&["*Create"], "urQueueCreate", true);
        check(&["*Create"], "urQueueCreateWithNativeHandle", false);
        check(&["ur*Cre*e"], "urQueueCreate", true);
        check(&["urQueueC?eate"], "urQueueCreate", true);
        check(&["urQueueCreate?"], "urQueueCreate", false);
        check(&["urEvent*", "urQueue*"], "urQueueCreate", true);
        check(&["urQueue*", "!*Create"], "urQueueCreate", false);
        check(&["!*Create"], "urQueueCreate", false);
        check(&["!*Create"], "urQueueRelease", true);
        check(&["*"], "", true);
        check(&["?"], "", false);
    }

    proptest! {
        #[test]
        fn a_star_fits_around_every_part(name in "[a-c]{0,12}", from in 0_usize..12, to in 0_usize..12) {
            let (from, to) = (from.min(name.len()), to.min(name.len()));
            let part = &name[from.min(to)..to.max(from)];
            let part = format!("*{}*", part);
            prop_assert!(fits(part.as_bytes(), name.as_bytes()));
            let more = format!("{part}x");
            prop_assert!(!fits(more.as_bytes(), name.as_bytes()));
        }
    }
}
