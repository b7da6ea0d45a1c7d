//! Links of Markdown documents: that what they lead to is there, anchors included.
//!
//! Links to the network are not followed. Code, in blocks or in a line, has no links.

use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every Markdown file below a folder.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A line for each link that leads nowhere. Names in it are from `root`.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(root).unwrap_or(file).display();
        for (line, target) in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let place = match path {
                "" => file.clone(),
                path => file.with_file_name("").join(path),
            };
            if !place.exists() {
                broken.push(format!("{name}:{line}: {target}: no such file"));
            } else if !anchor.is_empty() && place.extension().is_some_and(|found| found == "md") {
                let text = fs::read_to_string(&place)?;
                if !anchors(&text).contains(anchor) {
                    broken.push(format!("{name}:{line}: {target}: no such heading"));
                }
            }
        }
    }
    Ok(broken)
}

/// A document of the repository's root as a page: links into the book lead to its pages, and links to
/// files of the repository, which the book does not have, become their names.
pub fn for_book(text: &str) -> String {
    rewrite(text, |link| match link.target.strip_prefix("docs/src/") {
        Some(page) => link.to(page),
        None if link.is_remote() => link.to(link.target),
        None => format!("`{}`", link.target),
    })
}

/// A document elsewhere: `place` gives a relative link its new target. A link without one becomes its label,
/// and an image disappears.
pub fn lead(text: &str, place: impl Fn(&str) -> Option<String>) -> String {
    rewrite(text, |link| match place(link.target) {
        _ if link.is_remote() => link.to(link.target),
        Some(target) => link.to(&target),
        None if link.image => String::new(),
        None => link.label.to_owned(),
    })
}

/// A link or an image as it stands in a text.
struct Link<'a> {
    image: bool,
    label: &'a str,
    target: &'a str,
}

impl Link<'_> {
    fn is_remote(&self) -> bool {
        self.target.contains("://") || self.target.starts_with("mailto:")
    }

    /// This link, with another target.
    fn to(&self, target: &str) -> String {
        let mark = if self.image { "!" } else { "" };
        format!("{mark}[{}]({target})", self.label)
    }
}

/// Replaces each link and image.
fn rewrite(text: &str, replace: impl Fn(&Link<'_>) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(middle) = rest.find("](") {
        let Some(length) = rest[middle..].find(')') else {
            break;
        };
        let end = middle + length;
        match rest[..middle].rfind('[') {
            Some(open) => {
                let image = rest[..open].ends_with('!');
                out.push_str(&rest[..open - usize::from(image)]);
                out.push_str(&replace(&Link {
                    image,
                    label: &rest[open + 1..middle],
                    target: &rest[middle + 2..end],
                }));
            }
            None => out.push_str(&rest[..=end]),
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out
}

/// The targets of links and images, each with its line from 1.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        let mut rest = text.as_str();
        while let Some(open) = rest.find("](") {
            rest = &rest[open + 2..];
            if let Some(end) = rest.find(')') {
                found.push((line, rest[..end].to_owned()));
            }
        }
    }
    found
}

/// Lines outside blocks of code, without what stands between backticks.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            let parts = line.split('`').enumerate();
            let outside = parts
                .filter(|(part, _)| part % 2 == 0)
                .map(|(_, text)| text);
            lines.push((at + 1, outside.collect::<Vec<_>>().join("`")));
        }
    }
    lines
}

/// The anchors of a document's headings, as mdBook and code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code && line.starts_with('#') {
            found.insert(anchor(line.trim_start_matches('#').trim()));
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|found| found.is_alphanumeric() || matches!(found, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::{anchor, check, for_book, lead, targets};
    use std::fs;

    #[test]
    fn code_has_no_links() {
        let text = "a [b](c.md) `[d](e.md)`\n```c\nf[0](g);\n```\n![h](i.svg)\n";
        assert_eq!(
            targets(text),
            [(1, "c.md".to_owned()), (5, "i.svg".to_owned())]
        );
    }

    #[test]
    fn headings_have_anchors() {
        assert_eq!(anchor("`ur-env` sets: what?"), "ur-env-sets-what");
    }

    #[test]
    fn links_that_lead_nowhere_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        fs::write(&page, "# One\n[a](#one) [b](#two) [c](gone.md)\n").unwrap();
        let broken = check(folder.path(), &[page]).unwrap();
        assert_eq!(
            broken,
            [
                "page.md:2: #two: no such heading",
                "page.md:2: gone.md: no such file"
            ]
        );
    }

    #[test]
    fn a_document_becomes_a_page() {
        let text = "[guide](docs/src/guides/order.md), [src](src/lib.rs), [net](https://x.y)";
        assert_eq!(
            for_book(text),
            "[guide](guides/order.md), `src/lib.rs`, [net](https://x.y)"
        );
    }

    #[test]
    fn a_document_is_led_elsewhere() {
        let text = "[a](docs/a.md), [`b`](b.rs) ![c](c.svg)[d](https://x.y)![e](docs/e.svg)";
        let under = |target: &str| Some(format!("in/{}", target.strip_prefix("docs/")?));
        assert_eq!(
            lead(text, under),
            "[a](in/a.md), `b` [d](https://x.y)![e](in/e.svg)"
        );
        assert_eq!(lead("[a](b", under), "[a](b");
    }
}
