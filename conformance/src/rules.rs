//! The rule that a test checks, as a sentence: the first of its function's documentation, or the sentence of the
//! table that makes the test. `build.rs` collects the documentation.

use std::borrow::Cow;

/// The documentation of a source file.
struct Source {
    /// The name of the file.
    stem: &'static str,
    /// Suites whose tests the file may hold.
    suites: &'static [&'static str],
    /// The first sentence about the file.
    head: Option<&'static str>,
    /// Functions by name, each with its first sentence.
    functions: &'static [(&'static str, &'static str)],
}

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Suites that have a test for each function or property, with the rule of all their tests.
const UNIFORM: [(&str, &str); 3] = [
    (
        "arguments",
        "Each wrong argument that the specification names is refused with its error, and changes nothing.",
    ),
    (
        "every_function",
        "The function is in its table, and answers as the specification says or lacks the feature.",
    ),
    (
        "device_info",
        "The property's size is that of its type, and its value is plausible.",
    ),
];

/// Kinds of memory and of images that a test's name may begin with, where one function is a test for each.
const KINDS: [&str; 8] = [
    "device_",
    "shared_",
    "host_",
    "image1d_array_",
    "image2d_array_",
    "image1d_",
    "image2d_",
    "image3d_",
];

/// What is queried: the beginnings of the names of tests that tables of properties make.
const QUERIED: [&str; 13] = [
    "info_",
    "config_info_",
    "group_info_",
    "sub_group_info_",
    "build_info_",
    "physical_info_",
    "sampler_",
    "image_",
    "granularity_",
    "addresses_",
    "profiling_",
    "peer_",
    "current_",
];

/// The rule of a test. None if nothing states it.
pub fn of(suite: &str, name: &str) -> Option<Cow<'static, str>> {
    if let Some((_, rule)) = UNIFORM.iter().find(|(uniform, _)| *uniform == suite) {
        return Some(Cow::Borrowed(rule));
    }
    documented(suite, name)
        .map(Cow::Borrowed)
        .or_else(|| of_property(name).map(Cow::Owned))
}

/// What a suite is about, from the head of the file of its name, else of the first of its files.
pub fn head(suite: &str) -> Option<&'static str> {
    let own = SOURCES.iter().find(|source| source.stem == suite);
    let head = own.and_then(|source| source.head);
    head.or_else(|| files(suite).find_map(|source| source.head))
}

fn files(suite: &str) -> impl Iterator<Item = &'static Source> {
    SOURCES
        .iter()
        .filter(move |source| source.suites.contains(&suite))
}

impl Source {
    fn sentence(&self, function: &str) -> Option<&'static str> {
        let mut functions = self.functions.iter();
        functions
            .find(|(name, _)| *name == function)
            .map(|(_, sentence)| *sentence)
    }
}

/// The sentence of a test's function: of one in the suite's own files, else of the only one with that name.
fn documented(suite: &str, name: &str) -> Option<&'static str> {
    let plain = KINDS.iter().find_map(|kind| name.strip_prefix(kind));
    [Some(name), plain].into_iter().flatten().find_map(|name| {
        let own = files(suite).find_map(|source| source.sentence(name));
        let mut elsewhere = SOURCES.iter().filter_map(|source| source.sentence(name));
        let only = elsewhere.next().filter(|_| elsewhere.next().is_none());
        own.or(only)
    })
}

/// The rule of a test that a table of properties makes.
fn of_property(name: &str) -> Option<String> {
    let property = QUERIED
        .iter()
        .find_map(|queried| name.strip_prefix(queried))?;
    Some(format!(
        "The property `{property}` has the documented type and size, and a plausible value."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_a_rule() {
        let all = crate::suites::all();
        let missing: Vec<_> = all
            .iter()
            .filter(|test| of(test.suite, &test.name).is_none())
            .map(crate::registry::Test::full_name)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn rules_of_each_kind() {
        let cases = [
            (
                ("launch", "arguments_in_any_order"),
                "A launch may list its arguments in any order.",
            ),
            (
                ("queries", "peer_ur_peer_access_support"),
                "The property `ur_peer_access_support` has the documented type and size, and a plausible value.",
            ),
            (("arguments", "urQueueCreate"), UNIFORM[0].1),
            (
                ("usm", "shared_alloc_info"),
                "An allocation reports its kind, base, size and device.",
            ),
        ];
        for ((suite, name), rule) in cases {
            assert_eq!(of(suite, name).as_deref(), Some(rule), "{suite}::{name}");
        }
        assert_eq!(head("launch"), Some("Kernel launches with real data."));
        assert_eq!(head("async_limits"), Some("The maximum size of a pool."));
    }
}
