//! What the tree does not say about the packages: their maintainer, authors and addresses.
//!
//! Everything comes from variables of the environment, and is left out where one is not set.

use anyhow::{Result, bail, ensure};
use std::fmt::Write as _;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    /// `DEBFULLNAME` and `DEBEMAIL`: the packager, who is not necessarily an author.
    pub maintainer: Option<Person>,
    /// `UR_PACKAGE_AUTHORS`: `NAME` or `NAME <MAIL>`, separated by commas.
    pub authors: Vec<Person>,
    /// `UR_PACKAGE_URLS`: `LABEL=URL`, separated by commas.
    pub urls: Vec<(String, String)>,
    /// `UR_PACKAGE_FILES`: the address of the repository's root, for links of README.
    pub files: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Person {
    pub name: String,
    pub mail: Option<String>,
}

impl About {
    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let list = |name| get(name).unwrap_or_default();
        let maintainer = match (get("DEBFULLNAME"), get("DEBEMAIL")) {
            (Some(name), Some(mail)) => Some(Person::new(&name, Some(&mail))?),
            _ => None,
        };
        let authors = items(&list("UR_PACKAGE_AUTHORS"))
            .map(Person::parse)
            .collect::<Result<_>>()?;
        let urls = items(&list("UR_PACKAGE_URLS"))
            .map(labelled)
            .collect::<Result<_>>()?;
        Ok(Self {
            maintainer,
            authors,
            urls,
            files: get("UR_PACKAGE_FILES")
                .map(|url| address(&url))
                .transpose()?,
        })
    }

    /// The address of a file of the repository.
    pub(super) fn file(&self, path: &str) -> Option<String> {
        let files = self.files.as_ref()?;
        Some(format!("{}/{path}", files.trim_end_matches('/')))
    }

    pub(super) fn homepage(&self) -> Option<&str> {
        let found = self.urls.iter().find(|(label, _)| label == "Homepage");
        found.map(|(_, url)| url.as_str())
    }

    /// Fields of a wheel's metadata.
    pub(super) fn fields(&self) -> String {
        let mut text = String::new();
        let all: Vec<&Person> = self.authors.iter().collect();
        people(&mut text, "Author", &all);
        let maintainers: Vec<&Person> = self.maintainer.iter().collect();
        people(&mut text, "Maintainer", &maintainers);
        for (label, url) in &self.urls {
            let _ = writeln!(text, "Project-URL: {label}, {url}");
        }
        text
    }
}

/// Two fields: one of people with addresses, and one of those without.
fn people(text: &mut String, field: &str, people: &[&Person]) {
    let (with, without): (Vec<&Person>, Vec<&Person>) =
        people.iter().partition(|one| one.mail.is_some());
    for (field, people) in [
        (field.to_owned(), without),
        (format!("{field}-email"), with),
    ] {
        let names: Vec<String> = people.iter().map(|one| one.to_string()).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "{field}: {}", names.join(", "));
        }
    }
}

impl Person {
    fn new(name: &str, mail: Option<&str>) -> Result<Self> {
        let plain = |text: &str| !text.is_empty() && !text.contains(['<', '>', ',', '\n']);
        let is_mail = |text: &str| plain(text) && text.contains('@') && !text.contains(' ');
        if !plain(name) || !mail.is_none_or(is_mail) {
            bail!("no name and address: {name:?} {mail:?}");
        }
        Ok(Self {
            name: name.to_owned(),
            mail: mail.map(str::to_owned),
        })
    }

    fn parse(text: &str) -> Result<Self> {
        match text.split_once('<') {
            Some((name, rest)) => Self::new(name.trim(), Some(rest.trim_end_matches('>'))),
            None => Self::new(text, None),
        }
    }
}

impl std::fmt::Display for Person {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.mail {
            Some(mail) => write!(f, "{} <{mail}>", self.name),
            None => f.write_str(&self.name),
        }
    }
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn labelled(text: &str) -> Result<(String, String)> {
    let Some((label, url)) = text.split_once('=') else {
        bail!("no LABEL=URL: {text:?}");
    };
    // A limit of Python's metadata.
    let plain = (1..=32).contains(&label.len()) && !label.contains(char::is_control);
    ensure!(plain, "no label of a URL: {label:?}");
    Ok((label.to_owned(), address(url)?))
}

fn address(text: &str) -> Result<String> {
    let known = ["https://", "http://"]
        .iter()
        .any(|start| text.starts_with(start));
    ensure!(
        known && !text.contains(char::is_whitespace),
        "no URL: {text:?}"
    );
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<About> {
        About::read(|name| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_invented() {
        let about = read(&[("DEBFULLNAME", "A B")]).unwrap();
        assert_eq!(about, About::default());
        assert_eq!((about.fields(), about.file("a.md")), (String::new(), None));
    }

    #[test]
    fn everything_that_is_given_is_a_field() {
        let about = read(&[
            ("DEBFULLNAME", "A B"),
            ("DEBEMAIL", "a@b.org"),
            ("UR_PACKAGE_AUTHORS", "C D <c@d.org>, E, F <f@g.org>"),
            (
                "UR_PACKAGE_URLS",
                "Homepage=https://x.org,Source=https://x.org/s?a=b",
            ),
            ("UR_PACKAGE_FILES", "https://x.org/s/"),
        ])
        .unwrap();
        assert_eq!(
            about.fields(),
            "Author: E\nAuthor-email: C D <c@d.org>, F <f@g.org>\n\
             Maintainer-email: A B <a@b.org>\n\
             Project-URL: Homepage, https://x.org\nProject-URL: Source, https://x.org/s?a=b\n"
        );
        assert_eq!(about.homepage(), Some("https://x.org"));
        assert_eq!(about.file("a.md").unwrap(), "https://x.org/s/a.md");
    }

    #[test]
    fn what_could_add_a_field_is_refused() {
        for (name, mail) in [
            ("", "a@b"),
            ("A", "b"),
            ("A\nDepends: x", "a@b"),
            ("A <", "a@b"),
        ] {
            let variables = [("DEBFULLNAME", name), ("DEBEMAIL", mail)];
            assert!(read(&variables).is_err(), "{name} {mail}");
        }
        for one in [
            ("UR_PACKAGE_AUTHORS", "A <b>"),
            ("UR_PACKAGE_AUTHORS", "A\nB: c"),
            ("UR_PACKAGE_URLS", "https://x.org"),
            ("UR_PACKAGE_URLS", "A=x.org"),
            ("UR_PACKAGE_URLS", "A=https://x.org\nB: c"),
            ("UR_PACKAGE_FILES", "/home"),
        ] {
            assert!(read(&[one]).is_err(), "{one:?}");
        }
    }
}
