//! The contents of an installation: the one list for `cargo xtask install` and the packages.
//!
//! Owns names, links and generated texts. Writes no file.

use crate::build;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// The version in file names: the ABI's, with a patch level.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub const PROGRAMS: [&str; 5] = ["ur-conformance", "ur-env", "urinfo", "urreplay", "urtrace"];

const LOADER: &str = "libur_loader.so";

/// A library that only its adapter loads. It has one name.
pub const BESIDE: [(&str, &str); 1] = [("opencl", "libur_opencl_retain.so")];

/// The placement of libraries, and their other names.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Relative to the prefix.
    pub lib: String,
    /// The absolute prefix; none if the tree can be moved.
    pub prefix: Option<&'static str>,
    /// Whether symbolic links are possible.
    pub links: bool,
}

/// One file, by its path relative to the prefix.
#[derive(Debug)]
pub struct Item {
    pub path: String,
    pub content: Content,
    pub executable: bool,
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
        }
    }

    /// Every installed file, from the build results in `built`.
    pub fn items(&self, root: &Path, built: &Path) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        self.library(&mut items, built, LOADER);
        for adapter in build::adapters(root)? {
            self.library(&mut items, built, &format!("libur_adapter_{adapter}.so"));
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
        }
        tree(&mut items, &root.join("include"), "include")?;
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
            items.push(Item::new(bare, Content::Link(soname)));
            items.push(Item::new(file, Content::Link(full.clone())));
            file = format!("{}/{full}", self.lib);
        } else if name == LOADER {
            // A file that linkers read in place of a link.
            items.push(Item::new(bare, Content::Text(format!("INPUT({soname})\n"))));
        }
        let library = Content::Copy(built.join(name));
        items.push(Item::new(file, library));
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
            items.push(Item::new(path, Content::Text(text)));
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
        }
    }
}

fn tree(items: &mut Vec<Item>, from: &Path, to: &str) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let path = format!("{to}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            tree(items, &entry.path(), &path)?;
        } else {
            items.push(Item::new(path, Content::Copy(entry.path())));
        }
    }
    Ok(())
}
