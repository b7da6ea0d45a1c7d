//! The Python wheel: the tree as package data, and its programs as commands of the environment, with their
//! man pages and completions where `man` and the shells look.

use super::needs::Needs;
use super::notices::{self, Terms};
use super::{Machine, Package, bytes};
use crate::docs::links;
use crate::layout::{Item, Layout, PROGRAMS, SEARCHED, VERSION};
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

const NAME: &str = "unified_runtime";
const SUMMARY: &str = "Unified Runtime: loader, adapters, headers and tools beneath SYCL";

/// From PyPI's list. The licence is a field of its own.
const CLASSIFIERS: [&str; 7] = [
    "Development Status :: 4 - Beta",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: C",
    "Programming Language :: Rust",
    "Topic :: Software Development :: Libraries",
];

/// The notices of all compiled-in crates, in Debian's format.
const COPYRIGHT: &str = "copyright";

const INIT: &str = include_str!("../../templates/package/__init__.py");
const COMMANDS: &str = include_str!("../../templates/package/_programs.py.j2");

/// Libraries that every system has, by PEP 600.
const ALLOWED: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
];

pub(super) fn layout() -> Layout {
    Layout {
        lib: "lib".into(),
        prefix: None,
        // pip extracts no links from zip archives.
        links: false,
        zsh: "share/zsh/site-functions",
    }
}

/// Writes the wheel. Returns its path.
pub(super) fn write(package: &Package<'_>, items: Vec<Item>, out: &Path) -> Result<PathBuf> {
    let tag = tag(package.machine, package.needs)?;
    let path = out.join(format!("{NAME}-{VERSION}-{tag}.whl"));
    let mut wheel = Wheel {
        zip: ZipWriter::new(File::create(&path)?),
        record: String::new(),
    };
    for item in &items {
        let is_searched = SEARCHED.iter().any(|folder| item.path.starts_with(folder));
        let path = match is_searched {
            // pip puts these below the environment's own folder.
            true => format!("{NAME}-{VERSION}.data/data/{}", item.path),
            false => format!("{NAME}/{}", item.path),
        };
        wheel.add(&path, item.executable, &bytes(item)?)?;
    }
    wheel.add(&format!("{NAME}/__init__.py"), false, INIT.as_bytes())?;
    let values = minijinja::context! { programs => PROGRAMS };
    let commands = minijinja::Environment::new().render_str(COMMANDS, values)? + "\n";
    wheel.add(&format!("{NAME}/_programs.py"), false, commands.as_bytes())?;
    let info = format!("{NAME}-{VERSION}.dist-info");
    let wheel_file = format!(
        "Wheel-Version: 1.0\nGenerator: cargo xtask package\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    for (name, text) in [
        ("METADATA", metadata(package)?),
        ("WHEEL", wheel_file),
        ("entry_points.txt", entry_points()),
    ] {
        wheel.add(&format!("{info}/{name}"), false, text.as_bytes())?;
    }
    for (name, text) in licences(package)? {
        wheel.add(&format!("{info}/licenses/{name}"), false, text.as_bytes())?;
    }
    wheel.finish(&format!("{info}/RECORD"))?;
    Ok(path)
}

/// The platform tag: the systems on which the binaries run.
fn tag(machine: &Machine, needs: &Needs) -> Result<String> {
    for library in &needs.libraries {
        if !ALLOWED.contains(&library.as_str()) && !library.starts_with("ld-linux") {
            bail!("not every system has {library}");
        }
    }
    let (major, minor) = needs.glibc.context("the binaries need no C library")?;
    Ok(format!(
        "py3-none-manylinux_{major}_{minor}_{}",
        machine.name
    ))
}

/// Our licence, and those of compiled-in crates.
fn licences(package: &Package<'_>) -> Result<[(&'static str, String); 3]> {
    let own = fs::read_to_string(package.root.join("LICENSE"))?;
    let library = fs::read_to_string(package.notices.library())?;
    Ok([
        ("LICENSE", own),
        (
            COPYRIGHT,
            package.notices.copyright(notices::LIBRARY, Terms::Here),
        ),
        (notices::LIBRARY, library),
    ])
}

/// Version 2.4 is the first with licence files (PEP 639).
fn metadata(package: &Package<'_>) -> Result<String> {
    let readme = fs::read_to_string(package.root.join("README.md"))?;
    let readme = links::lead(&readme, |target| package.about.file(target));
    let mut fields = package.about.fields();
    for classifier in CLASSIFIERS {
        let _ = writeln!(fields, "Classifier: {classifier}");
    }
    Ok(format!(
        "Metadata-Version: 2.4\nName: {}\nVersion: {VERSION}\nSummary: {SUMMARY}\n\
         Keywords: sycl,unified-runtime,level-zero,opencl,cuda,usm\n{fields}\
         License-Expression: {}\nLicense-File: LICENSE\nLicense-File: {COPYRIGHT}\n\
         License-File: {}\nRequires-Python: >=3.8\n\
         Description-Content-Type: text/markdown\n\n{readme}",
        NAME.replace('_', "-"),
        package.notices.expression(),
        notices::LIBRARY,
    ))
}

fn entry_points() -> String {
    let mut text = String::from("[console_scripts]\n");
    for program in PROGRAMS {
        let function = program.replace('-', "_");
        let _ = writeln!(text, "{program} = {NAME}._programs:{function}");
    }
    text
}

struct Wheel {
    zip: ZipWriter<File>,
    /// Paths with checksums and sizes, which pip verifies.
    record: String,
}

impl Wheel {
    fn add(&mut self, path: &str, executable: bool, data: &[u8]) -> Result<()> {
        let sum = URL_SAFE_NO_PAD.encode(Sha256::digest(data));
        writeln!(self.record, "{path},sha256={sum},{}", data.len())?;
        self.store(path, executable, data)
    }

    fn store(&mut self, path: &str, executable: bool, data: &[u8]) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            // The format's first day, so that the same tree makes the same bytes.
            .last_modified_time(DateTime::default())
            .unix_permissions(if executable { 0o755 } else { 0o644 });
        self.zip.start_file(path, options)?;
        self.zip.write_all(data)?;
        Ok(())
    }

    fn finish(mut self, path: &str) -> Result<()> {
        let record = format!("{}{path},,\n", self.record);
        self.store(path, false, record.as_bytes())?;
        self.zip.finish()?.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Content;
    use std::io::Read as _;

    fn needs(library: &str) -> Needs {
        Needs {
            libraries: [library.to_owned()].into(),
            glibc: Some((2, 34)),
        }
    }

    #[test]
    fn only_what_every_system_has() {
        let machine = &super::super::MACHINES[0];
        let found = tag(machine, &needs("libc.so.6")).unwrap();
        assert_eq!(found, "py3-none-manylinux_2_34_x86_64");
        assert!(tag(machine, &needs("libz.so.1")).is_err());
    }

    #[test]
    fn the_record_tells_of_every_file() {
        let out = tempfile::tempdir().unwrap();
        let items = vec![
            Item {
                executable: true,
                ..Item::new("bin/urinfo", Content::Text("program".into()))
            },
            Item::new("share/man/man1/urinfo.1", Content::Text("page".into())),
        ];
        let needs = needs("libc.so.6");
        let package = super::super::tests::package(&needs);
        let path = write(&package, items, out.path()).unwrap();
        let mut zip = zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
        let mut files = std::collections::BTreeMap::new();
        for at in 0..zip.len() {
            let mut file = zip.by_index(at).unwrap();
            let mut data = Vec::new();
            file.read_to_end(&mut data).unwrap();
            files.insert(file.name().unwrap().into_owned(), (file.unix_mode(), data));
        }
        assert_eq!(
            files["unified_runtime/bin/urinfo"],
            (Some(0o100_755), b"program".to_vec())
        );
        let page = format!("unified_runtime-{VERSION}.data/data/share/man/man1/urinfo.1");
        assert_eq!(files[&page].1, b"page");
        let info = |name: &str| {
            let data = &files[&format!("unified_runtime-{VERSION}.dist-info/{name}")].1;
            String::from_utf8(data.clone()).unwrap()
        };
        let text = info("METADATA");
        assert!(text.starts_with("Metadata-Version: 2.4\n"));
        assert!(
            !text.contains("](docs/") && !text.contains("Author"),
            "{text}"
        );
        let listed: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("License-File: "))
            .collect();
        assert_eq!(listed.len(), 3);
        for name in listed {
            assert!(info(&format!("licenses/{name}")).len() > 1000, "{name}");
        }
        let record = &files["unified_runtime-0.12.0.dist-info/RECORD"].1;
        let record = String::from_utf8(record.clone()).unwrap();
        assert_eq!(record.lines().count(), files.len());
        for line in record.lines() {
            let [path, sum, size] = line.splitn(3, ',').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let data = &files[path].1;
            if path.ends_with("/RECORD") {
                assert_eq!((sum, size), ("", ""));
            } else {
                let wanted = URL_SAFE_NO_PAD.encode(Sha256::digest(data));
                assert_eq!(sum, format!("sha256={wanted}"), "{path}");
                assert_eq!(size, data.len().to_string(), "{path}");
            }
        }
    }
}
