//! Checks that the folders of src/stream do not depend on each other in a loop.
//!
//! Reads paths that begin with `crate::stream::`, outside tests. A name that src/stream/mod.rs re-exports
//! counts as its folder.

use super::{code_lines, rust_files};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Folders, each with the folders that it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Adds the loops of src/stream to `found`.
pub fn check(root: &Path, found: &mut Vec<String>) -> Result<()> {
    let dir = root.join("src/stream");
    let Ok(top) = fs::read_to_string(dir.join("mod.rs")) else {
        return Ok(());
    };
    let exported = exports(&top);
    let mut graph = Graph::new();
    for entry in fs::read_dir(&dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !path.is_dir() || matches!(&*name, "tests" | "testing") {
            continue;
        }
        let used = graph.entry(name.to_string()).or_default();
        for (_, text) in rust_files(&path)? {
            used.extend(imports(&text).map(|word| exported.get(&word).cloned().unwrap_or(word)));
        }
        used.remove(&*name);
    }
    found.extend(find_loop(&graph).map(|names| format!("src/stream: a loop of imports: {names}")));
    Ok(())
}

/// The folder of each name in `pub use folder::...::Name`.
fn exports(top: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for statement in code(top).split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else {
            continue;
        };
        let (folder, names) = path.split_once("::").unwrap_or((path, path));
        for name in words(names) {
            out.insert(name.to_owned(), folder.to_owned());
        }
    }
    out
}

/// The first names after `crate::stream::`, with each of those in braces.
fn imports(text: &str) -> impl Iterator<Item = String> {
    let text = code(
        text.split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or_default(),
    );
    let mut out = Vec::new();
    for rest in text.split("crate::stream::").skip(1) {
        match rest.strip_prefix('{').and_then(|list| list.split_once('}')) {
            Some((list, _)) => out.extend(words(list).map(str::to_owned)),
            None => out.extend(words(rest).next().map(str::to_owned)),
        }
    }
    out.into_iter()
}

/// The text without its comments.
fn code(text: &str) -> String {
    code_lines(text)
        .map(|(_, line)| line.to_owned() + "\n")
        .collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

/// One loop, as names in order.
fn find_loop(graph: &Graph) -> Option<String> {
    fn visit<'a>(
        graph: &'a Graph,
        at: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> bool {
        if let Some(begin) = way.iter().position(|name| *name == at) {
            way.drain(..begin);
            way.push(at);
            return true;
        }
        if !done.insert(at) {
            return false;
        }
        way.push(at);
        let found = graph
            .get(at)
            .is_some_and(|used| used.iter().any(|next| visit(graph, next, way, done)));
        if !found {
            way.pop();
        }
        found
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    let found = graph
        .keys()
        .any(|name| visit(graph, name, &mut way, &mut done));
    found.then(|| way.join(" -> "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_read_to_the_end_of_their_braces() {
        let text = "use crate::stream::{\n    Driver, Queue,\n};\n// crate::stream::no\nlet a = crate::stream::lane::f();\n#[cfg(test)]\nmod tests { use crate::stream::api; }\n";
        let found: Vec<_> = imports(text).collect();
        assert_eq!(found, ["Driver", "Queue", "lane"]);
        let of = exports("pub use driver::Driver;\npub use queue::graph::{Graph,\n Queue};\n");
        assert_eq!((&*of["Driver"], &*of["Queue"]), ("driver", "queue"));
    }

    #[test]
    fn a_loop_is_reported_and_a_diamond_is_none() {
        let graph = |edges: &[(&str, &str)]| {
            let mut graph = Graph::new();
            for (from, to) in edges {
                graph
                    .entry((*from).to_owned())
                    .or_default()
                    .insert((*to).to_owned());
            }
            graph
        };
        assert_eq!(
            find_loop(&graph(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])),
            None
        );
        let found = find_loop(&graph(&[("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")]));
        assert_eq!(found.as_deref(), Some("a -> b -> c -> a"));
    }
}
