//! The contents of an installation: the one list for `cargo xtask install` and the packages.
//!
//! Owns names, links and generated texts. Writes no file.

use crate::build;
use crate::docs::links;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version in file names: the ABI's, with a patch level.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub const PROGRAMS: [&str; 5] = ["ur-conformance", "ur-env", "urinfo", "urreplay", "urtrace"];

const LOADER: &str = "libur_loader.so";

/// Libraries for programs of others.
const INTEGRATIONS: [&str; 1] = ["libur_pytorch.so"];

/// A library that only its adapter loads. It has one name.
pub const BESIDE: [(&str, &str); 1] = [("opencl", "libur_opencl_retain.so")];

/// The documents of an installation.
pub const DOCUMENTS: &str = "share/doc/unified-runtime";

/// Folders that are installed whole: in the repository, in the installation, and the part that has them.
const FOLDERS: [(&str, &str, Part); 5] = [
    ("include", "include", Part::Development),
    ("integrations/rmm/include", "include", Part::Development),
    (
        "examples",
        "share/doc/unified-runtime/examples",
        Part::Development,
    ),
    (
        "conformance/expectations",
        "share/unified-runtime/expectations",
        Part::Runtime,
    ),
    (
        "docs/src/reference/schemas",
        "share/unified-runtime/schemas",
        Part::Runtime,
    ),
];

/// Folders that man and the shells search.
pub const SEARCHED: [&str; 4] = [
    "share/man",
    "share/bash-completion",
    "share/zsh",
    "share/fish",
];

/// The user of a file: Debian has a package for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Programs, and all that they need to run.
    Runtime,
    /// Compilers and their users.
    Development,
    /// Readers.
    Documentation,
}

/// The origin of an installation's files.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The repository.
    pub root: &'a Path,
    /// Libraries and programs. The programs are run for their man pages and completions.
    pub built: &'a Path,
    /// The book's pages, as `docs::assemble` writes them.
    pub book: &'a Path,
}

/// The placement of libraries, and their other names.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Relative to the prefix.
    pub lib: String,
    /// The absolute prefix; none if the tree can be moved.
    pub prefix: Option<&'static str>,
    /// Whether symbolic links are possible.
    pub links: bool,
    /// The folder of zsh's completions, relative to the prefix.
    pub zsh: &'static str,
}

/// One file, by its path relative to the prefix.
#[derive(Debug)]
pub struct Item {
    pub path: String,
    pub content: Content,
    pub executable: bool,
    pub part: Part,
}

#[derive(Debug)]
pub enum Content {
    Copy(PathBuf),
    Text(String),
    /// Relative to the link's folder.
    Link(String),
}

/// The files of pkg-config and CMake, relative to the libraries' folder.
const TEMPLATES: [(&str, &str); 3] = [
    (
        "pkgconfig/libur_loader.pc",
        include_str!("../templates/install/libur_loader.pc.j2"),
    ),
    (
        "cmake/unified-runtime/unified-runtime-config.cmake",
        include_str!("../templates/install/unified-runtime-config.cmake.j2"),
    ),
    (
        "cmake/unified-runtime/unified-runtime-config-version.cmake",
        include_str!("../templates/install/unified-runtime-config-version.cmake.j2"),
    ),
];

impl Layout {
    /// A prefix of its own, anywhere.
    pub fn tree() -> Self {
        Self {
            lib: "lib".into(),
            prefix: None,
            links: true,
            zsh: "share/zsh/site-functions",
        }
    }

    /// Every installed file.
    ///
    /// # Errors
    /// Fails if a source is missing, or a program does not print its man page and completions.
    pub fn items(&self, sources: Sources<'_>) -> Result<Vec<Item>> {
        let Sources { root, built, book } = sources;
        let mut items = Vec::new();
        self.library(&mut items, built, LOADER);
        for adapter in build::adapters(root)? {
            self.library(&mut items, built, &format!("libur_adapter_{adapter}.so"));
        }
        for name in INTEGRATIONS {
            self.library(&mut items, built, name);
        }
        for (_, name) in BESIDE {
            let library = Content::Copy(built.join(name));
            items.push(Item::new(format!("{}/{name}", self.lib), library));
        }
        if self.links {
            // For LD_LIBRARY_PATH. A whole library folder there would shadow other libraries of programs.
            let path = format!("{}/unified-runtime/{LOADER}.0", self.lib);
            items.push(Item::new(path, Content::Link(format!("../{LOADER}.0"))));
        }
        for program in PROGRAMS {
            let content = Content::Copy(built.join(program));
            items.push(Item {
                executable: true,
                ..Item::new(format!("bin/{program}"), content)
            });
            self.generated(&mut items, built, program)?;
        }
        for (from, to, part) in FOLDERS {
            tree(&mut items, &root.join(from), to, part)?;
        }
        // Markdown rather than HTML: it needs no mdBook, and equal trees make equal installations.
        let pages = format!("{DOCUMENTS}/book");
        tree(&mut items, book, &pages, Part::Documentation)?;
        items.push(readme(root)?);
        self.texts(&mut items)?;
        items.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(items)
    }

    /// The soname for programs, and the plain name for linkers.
    fn library(&self, items: &mut Vec<Item>, built: &Path, name: &str) {
        let bare = format!("{}/{name}", self.lib);
        let soname = format!("{name}.0");
        let mut file = format!("{bare}.0");
        if self.links {
            let full = format!("{name}.{VERSION}");
            items.push(Item {
                part: Part::Development,
                ..Item::new(bare, Content::Link(soname))
            });
            items.push(Item::new(file, Content::Link(full.clone())));
            file = format!("{}/{full}", self.lib);
        } else if name == LOADER {
            // A file that linkers read in place of a link.
            items.push(Item::new(bare, Content::Text(format!("INPUT({soname})\n"))));
        }
        let library = Content::Copy(built.join(name));
        items.push(Item::new(file, library));
    }

    /// The man page of a program, and its completions.
    fn generated(&self, items: &mut Vec<Item>, built: &Path, program: &str) -> Result<()> {
        for (form, path) in [
            ("man", format!("share/man/man1/{program}.1")),
            (
                "bash",
                format!("share/bash-completion/completions/{program}"),
            ),
            ("zsh", format!("{}/_{program}", self.zsh)),
            (
                "fish",
                format!("share/fish/vendor_completions.d/{program}.fish"),
            ),
        ] {
            let mut command = Command::new(built.join(program));
            let text = build::output(command.arg(format!("--generate={form}")))?;
            items.push(Item::new(path, Content::Text(text)));
        }
        Ok(())
    }

    fn texts(&self, items: &mut Vec<Item>) -> Result<()> {
        let minor = VERSION.rsplit_once('.').map_or(VERSION, |(minor, _)| minor);
        // From pkgconfig/ and cmake/unified-runtime/ to the prefix.
        let up = |depth: usize| vec![".."; self.lib.split('/').count() + depth].join("/");
        let prefix = match self.prefix {
            Some(prefix) => prefix.to_owned(),
            None => format!("${{pcfiledir}}/{}", up(1)),
        };
        for (path, template) in TEMPLATES {
            let values = minijinja::context! {
                prefix => &prefix, lib => &self.lib, up => up(2), version => VERSION, minor
            };
            let text = minijinja::Environment::new().render_str(template, values)? + "\n";
            let path = format!("{}/{path}", self.lib);
            items.push(Item {
                part: Part::Development,
                ..Item::new(path, Content::Text(text))
            });
        }
        Ok(())
    }
}

impl Item {
    pub fn new(path: impl Into<String>, content: Content) -> Self {
        Self {
            path: path.into(),
            content,
            executable: false,
            part: Part::Runtime,
        }
    }
}

/// README, whose links lead to the installed pages of the book.
fn readme(root: &Path) -> Result<Item> {
    let text = fs::read_to_string(root.join("README.md"))?;
    let text = links::lead(&text, |target| {
        let page = target.strip_prefix("docs/src/")?;
        Some(format!("book/{page}"))
    });
    let path = format!("{DOCUMENTS}/README.md");
    Ok(Item::new(path, Content::Text(text)))
}

fn tree(items: &mut Vec<Item>, from: &Path, to: &str, part: Part) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let path = format!("{to}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            tree(items, &entry.path(), &path, part)?;
        } else {
            items.push(Item {
                part,
                ..Item::new(path, Content::Copy(entry.path()))
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn each_file_has_a_place_and_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let built = folder.path();
        for program in PROGRAMS {
            let path = built.join(program);
            fs::write(&path, format!("#!/bin/sh\necho {program} \"$@\"\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let book = folder.path().join("book");
        fs::create_dir(&book).unwrap();
        fs::write(book.join("SUMMARY.md"), "").unwrap();
        let sources = Sources {
            root: &crate::repository(),
            built,
            book: &book,
        };
        let list = Layout::tree().items(sources).unwrap();
        let items: BTreeMap<&str, &Item> =
            list.iter().map(|item| (item.path.as_str(), item)).collect();
        assert_eq!(items.len(), list.len(), "a path for each file");
        for (path, part) in [
            ("bin/urinfo", Part::Runtime),
            ("lib/libur_loader.so.0", Part::Runtime),
            ("lib/libur_loader.so", Part::Development),
            ("lib/unified-runtime/libur_loader.so.0", Part::Runtime),
            ("lib/pkgconfig/libur_loader.pc", Part::Development),
            ("lib/libur_pytorch.so.0", Part::Runtime),
            ("include/ur_memory_resource.hpp", Part::Development),
            ("include/unified-runtime/ur_api.h", Part::Development),
            (
                "share/doc/unified-runtime/examples/common.h",
                Part::Development,
            ),
            ("lib/libur_adapter_level_zero.so.0", Part::Runtime),
            ("share/unified-runtime/expectations/cuda.yml", Part::Runtime),
            (
                "share/unified-runtime/expectations/level_zero.yml",
                Part::Runtime,
            ),
            (
                "share/doc/unified-runtime/book/SUMMARY.md",
                Part::Documentation,
            ),
            ("share/doc/unified-runtime/README.md", Part::Runtime),
        ] {
            assert_eq!(items[path].part, part, "{path}");
        }
        for (path, text) in [
            ("share/man/man1/urinfo.1", "urinfo --generate=man\n"),
            (
                "share/bash-completion/completions/ur-env",
                "ur-env --generate=bash\n",
            ),
            (
                "share/zsh/site-functions/_urtrace",
                "urtrace --generate=zsh\n",
            ),
            (
                "share/fish/vendor_completions.d/urreplay.fish",
                "urreplay --generate=fish\n",
            ),
        ] {
            let Content::Text(found) = &items[path].content else {
                panic!("{path} is generated");
            };
            assert_eq!(found, text, "{path}");
        }
        let Content::Text(readme) = &items["share/doc/unified-runtime/README.md"].content else {
            panic!("README has its links changed");
        };
        assert!(readme.contains("](book/start/sycl.md)") && !readme.contains("](docs/"));
    }
}
