//! The Debian packages: libraries in the architecture's folder, and the metadata for dpkg.
//!
//! One source makes three packages: what runs, what compilers need, and the book.

use super::about::Person;
use super::needs::Needs;
use super::notices::{self, Terms};
use super::{Machine, Package, bytes};
use crate::build;
use crate::layout::{Content, Item, Layout, Part, VERSION};
use anyhow::{Context as _, Result, bail, ensure};
use flate2::{Compression, GzBuilder};
use md5::{Digest as _, Md5};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source, and the package that runs.
const NAME: &str = "unified-runtime";
const REVISION: &str = "1";
/// The maintainer of a package without a packager's name. dpkg requires the field.
const NOBODY: &str = "Nobody yet <nobody@unified-runtime.invalid>";
/// 1980-01-01, unless SOURCE_DATE_EPOCH is set.
const EPOCH: u64 = 315_532_800;

/// What lintian takes for a fault and is none.
const OVERRIDES: &str = "\
# The crate libyaml-rs is libyaml translated to Rust, and no copy of the C library.
unified-runtime: embedded-library libyaml [usr/bin/ur-conformance]
# Some crates' files with the licence have another text than Debian's, and are kept as they are.
unified-runtime: copyright-file-contains-full-apache-2-license
";

/// One of the packages.
struct Binary {
    part: Part,
    name: &'static str,
    section: &'static str,
    /// The first line of the description, then the others as dpkg wants them.
    description: &'static str,
}

const BINARIES: [Binary; 3] = [
    Binary {
        part: Part::Runtime,
        name: NAME,
        section: "libs",
        description: "loader, adapters and tools beneath SYCL
 The C interface beneath Intel's SYCL runtime, with asynchronous allocation of
 memory on every backend: the loader, the adapters for Level Zero, CUDA, OpenCL,
 the native CPU and tests, and the programs ur-conformance, ur-env, urinfo,
 urreplay and urtrace.",
    },
    Binary {
        part: Part::Development,
        name: "unified-runtime-dev",
        section: "libdevel",
        description: "headers of the C interface beneath SYCL
 The headers of Unified Runtime, the files of pkg-config and CMake, the loader's
 name for linkers, and example programs.",
    },
    Binary {
        part: Part::Documentation,
        name: "unified-runtime-doc",
        section: "doc",
        description: "guides and reference of the C interface beneath SYCL
 The book of Unified Runtime as Markdown: guides, tools, the reference of the
 interface, its errors and variables, and the catalogue of conformance tests.",
    },
];

pub(super) fn layout(machine: &Machine) -> Layout {
    Layout {
        lib: format!("lib/{}", machine.triplet),
        prefix: Some("/usr"),
        links: true,
        zsh: "share/zsh/vendor-completions",
    }
}

/// Writes the packages. Returns their paths.
pub(super) fn write(package: &Package<'_>, items: Vec<Item>, out: &Path) -> Result<Vec<PathBuf>> {
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().context("SOURCE_DATE_EPOCH")?,
        Err(_) => EPOCH,
    };
    let mut parts: [Vec<Item>; BINARIES.len()] = Default::default();
    for mut item in items {
        item.path = format!("usr/{}", item.path);
        // Policy: man pages are compressed.
        if item.path.starts_with("usr/share/man/") {
            item.path.push_str(".gz");
        }
        let at = BINARIES.iter().position(|one| one.part == item.part);
        parts[at.context("a package for each part")?].push(item);
    }
    let mut paths = Vec::new();
    for (binary, items) in BINARIES.iter().zip(parts) {
        paths.push(binary.write(package, items, time, out)?);
    }
    Ok(paths)
}

impl Binary {
    fn write(
        &self,
        package: &Package<'_>,
        mut items: Vec<Item>,
        time: u64,
        out: &Path,
    ) -> Result<PathBuf> {
        items.extend(self.documents(package, time)?);
        items.sort_by(|one, other| one.path.cmp(&other.path));
        let (data, sums, size) = data(&items, time)?;
        let control = self.control(package, size)?;
        let shlibs = shlibs(&items);
        let mut files = vec![("control", control.as_str()), ("md5sums", &sums)];
        if self.part == Part::Runtime {
            files.push(("shlibs", &shlibs));
            files.push(("triggers", "activate-noawait ldconfig\n"));
        }
        let control = archive(&files, time)?;
        let architecture = self.architecture(package);
        let file = format!("{}_{VERSION}-{REVISION}_{architecture}.deb", self.name);
        let path = out.join(file);
        let mut archive = ar::Builder::new(File::create(&path)?);
        for (name, data) in [
            ("debian-binary", b"2.0\n".as_slice()),
            ("control.tar.gz", &control),
            ("data.tar.gz", &data),
        ] {
            let mut header = ar::Header::new(name.as_bytes().to_vec(), data.len() as u64);
            header.set_mode(0o100_644);
            header.set_mtime(time);
            archive.append(&header, data)?;
        }
        archive.into_inner()?.sync_all()?;
        Ok(path)
    }

    fn architecture(&self, package: &Package<'_>) -> &'static str {
        match self.part {
            Part::Runtime | Part::Development => package.machine.debian,
            Part::Documentation => "all",
        }
    }

    /// What policy asks of every package: its copyright and its changelogs.
    fn documents(&self, package: &Package<'_>, time: u64) -> Result<Vec<Item>> {
        let folder = format!("usr/share/doc/{}", self.name);
        let changes = Content::Copy(package.root.join("CHANGELOG.md"));
        let own = Content::Text(changelog(package, time)?);
        let mut contents = vec![("changelog.gz", changes), ("changelog.Debian.gz", own)];
        let library = format!("{}.gz", notices::LIBRARY);
        match self.part {
            Part::Runtime => {
                let text = package.notices.copyright(&library, Terms::System);
                contents.push(("copyright", Content::Text(text)));
                let library_notices = package.notices.library().to_owned();
                contents.push((&library, Content::Copy(library_notices)));
            }
            // Policy permits a link into a package of the same source that this one depends on.
            Part::Development => {
                return Ok(vec![Item::new(folder, Content::Link(NAME.to_owned()))]);
            }
            Part::Documentation => {
                let text = package.notices.own_copyright(Terms::System);
                contents.push(("copyright", Content::Text(text)));
            }
        }
        let item = |(name, content)| Item::new(format!("{folder}/{name}"), content);
        let mut items: Vec<Item> = contents.into_iter().map(item).collect();
        if self.part == Part::Runtime {
            let path = format!("usr/share/lintian/overrides/{NAME}");
            items.push(Item::new(path, Content::Text(OVERRIDES.to_owned())));
        }
        Ok(items)
    }

    fn control(&self, package: &Package<'_>, bytes: u64) -> Result<String> {
        let mut fields = vec![("Package", self.name.to_owned())];
        if self.name != NAME {
            fields.push(("Source", NAME.to_owned()));
        }
        fields.push(("Version", format!("{VERSION}-{REVISION}")));
        fields.push(("Architecture", self.architecture(package).to_owned()));
        fields.push(("Maintainer", maintainer(package)));
        fields.push(("Installed-Size", bytes.div_ceil(1024).to_string()));
        match self.part {
            Part::Runtime => {
                fields.push(("Depends", depends(package.needs)?));
                let drivers = "libze1, libze-intel-gpu1 | intel-opencl-icd, \
                    ocl-icd-libopencl1 | libopencl1, opencl-icd";
                fields.push(("Suggests", format!("{drivers}, {NAME}-doc")));
            }
            Part::Development => {
                let same = format!("{NAME} (= {VERSION}-{REVISION})");
                fields.push(("Depends", same));
                fields.push(("Suggests", "pkgconf | pkg-config, cmake".to_owned()));
            }
            Part::Documentation => {}
        }
        fields.push(("Section", self.section.to_owned()));
        fields.push(("Priority", "optional".to_owned()));
        if let Some(url) = package.about.homepage() {
            fields.push(("Homepage", url.to_owned()));
        }
        fields.push(("Description", self.description.to_owned()));
        Ok(fields
            .iter()
            .fold(String::new(), |mut text, (name, value)| {
                let _ = writeln!(text, "{name}: {value}");
                text
            }))
    }
}

/// The libraries by soname and version, with the package that has them: for packages of programs that link
/// to them.
fn shlibs(items: &[Item]) -> String {
    let names = items.iter().filter_map(|item| {
        let (_, file) = item.path.rsplit_once('/')?;
        file.strip_suffix(".so.0")
    });
    let names: BTreeSet<&str> = names.collect();
    let line = |name: &str| format!("{name} 0 {NAME} (>= {VERSION})\n");
    names.into_iter().map(line).collect()
}

fn maintainer(package: &Package<'_>) -> String {
    let named = package.about.maintainer.as_ref().map(Person::to_string);
    named.unwrap_or_else(|| NOBODY.to_owned())
}

/// The changelog of the packaging. changelog.gz has what changed in the software.
fn changelog(package: &Package<'_>, time: u64) -> Result<String> {
    let mut date = Command::new("date");
    let date = build::output(date.args(["--utc", "--rfc-email", "--date", &format!("@{time}")]))?;
    Ok(format!(
        "{NAME} ({VERSION}-{REVISION}) unstable; urgency=medium\n\n  \
         * Packages made by `cargo xtask package`.\n\n -- {}  {date}",
        maintainer(package)
    ))
}

/// The packages of these libraries.
fn depends(needs: &Needs) -> Result<String> {
    let mut packages = BTreeSet::new();
    for library in &needs.libraries {
        let (name, _) = library.split_once(".so").unwrap_or((library, ""));
        packages.insert(match name {
            "libc" | "libm" | "libdl" | "libpthread" | "librt" => match needs.glibc {
                Some((major, minor)) => format!("libc6 (>= {major}.{minor})"),
                None => "libc6".to_owned(),
            },
            name if name.starts_with("ld-linux") => continue,
            "libgcc_s" => "libgcc-s1".to_owned(),
            _ => bail!("no package is known for {library}"),
        });
    }
    Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
}

/// The archive of the files, their checksums, and their total size.
fn data(items: &[Item], time: u64) -> Result<(Vec<u8>, String, u64)> {
    let mut tar = Tar::new(time);
    let (mut sums, mut size) = (String::new(), 0);
    let mut folders = BTreeSet::from([String::new()]);
    for item in items {
        for (at, _) in item.path.match_indices('/') {
            folders.insert(format!("{}/", &item.path[..at]));
        }
    }
    for folder in &folders {
        tar.add(folder, tar::EntryType::Directory, 0o755, &[], None)?;
    }
    for item in items {
        if let Content::Link(to) = &item.content {
            tar.add(&item.path, tar::EntryType::Symlink, 0o777, &[], Some(to))?;
            continue;
        }
        let mut data = bytes(item)?;
        if item.path.ends_with(".gz") {
            data = gzip(&data)?;
        }
        let mode = if item.executable { 0o755 } else { 0o644 };
        tar.add(&item.path, tar::EntryType::Regular, mode, &data, None)?;
        size += data.len() as u64;
        writeln!(sums, "{}  {}", hex(&Md5::digest(&data)), item.path)?;
    }
    Ok((tar.finish()?, sums, size))
}

fn archive(files: &[(&str, &str)], time: u64) -> Result<Vec<u8>> {
    let mut tar = Tar::new(time);
    tar.add("", tar::EntryType::Directory, 0o755, &[], None)?;
    for (name, text) in files {
        tar.add(name, tar::EntryType::Regular, 0o644, text.as_bytes(), None)?;
    }
    tar.finish()
}

/// A compressed archive of files that belong to root and share one date.
struct Tar {
    builder: tar::Builder<Vec<u8>>,
    time: u64,
}

impl Tar {
    fn new(time: u64) -> Self {
        Self {
            builder: tar::Builder::new(Vec::new()),
            time,
        }
    }

    fn add(
        &mut self,
        path: &str,
        kind: tar::EntryType,
        mode: u32,
        data: &[u8],
        link: Option<&str>,
    ) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        // Paths in dpkg's archives begin with `./`, which `set_path` would remove.
        let name = format!("./{path}");
        let field = header.as_gnu_mut().context("a GNU header")?;
        ensure!(name.len() < field.name.len(), "{name} is too long a path");
        field.name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_size(data.len() as u64);
        if let Some(link) = link {
            header.set_link_name(link)?;
        }
        header.set_cksum();
        self.builder.append(&header, data)?;
        Ok(())
    }

    fn finish(self) -> Result<Vec<u8>> {
        gzip(&self.builder.into_inner()?)
    }
}

fn gzip(data: &[u8]) -> Result<Vec<u8>> {
    let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
    out.write_all(data)?;
    Ok(out.finish()?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::DOCUMENTS;
    use std::fs;
    use std::io::Read as _;

    fn needs(libraries: &[&str]) -> Needs {
        Needs {
            libraries: libraries.iter().map(|&name| name.to_owned()).collect(),
            glibc: Some((2, 34)),
        }
    }

    #[test]
    fn dependencies() {
        let found = depends(&needs(&[
            "libc.so.6",
            "libm.so.6",
            "libgcc_s.so.1",
            "ld-linux-x86-64.so.2",
        ]));
        assert_eq!(found.unwrap(), "libc6 (>= 2.34), libgcc-s1");
        assert!(depends(&needs(&["libz.so.1"])).is_err());
    }

    fn entries(gzipped: &[u8]) -> Vec<(String, u32, String)> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(gzipped));
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let mode = entry.header().mode().unwrap();
            let link = entry.link_name_bytes();
            let mut data = link.map_or(Vec::new(), |link| link.into_owned());
            entry.read_to_end(&mut data).unwrap();
            let text = String::from_utf8_lossy(&data).into_owned();
            (path, mode, text)
        };
        archive.entries().unwrap().map(read).collect()
    }

    #[test]
    fn what_is_written_can_be_read() {
        let out = tempfile::tempdir().unwrap();
        let items = || {
            let text = |text: &str| Content::Text(text.into());
            let of = |part, item| Item { part, ..item };
            vec![
                Item {
                    executable: true,
                    ..Item::new("bin/p", text("program"))
                },
                Item::new("share/man/man1/p.1", text(".TH p 1\n")),
                of(
                    Part::Development,
                    Item::new("lib/l.so", Content::Link("l.so.0".into())),
                ),
                of(
                    Part::Documentation,
                    Item::new(format!("{DOCUMENTS}/book/a.md"), text("# A\n")),
                ),
            ]
        };
        let needs = needs(&["libc.so.6"]);
        let package = super::super::tests::package(&needs);
        let make = || {
            let paths = write(&package, items(), out.path()).unwrap();
            let read = |path: &PathBuf| fs::read(path).unwrap();
            let files: Vec<_> = paths.iter().map(read).collect();
            (paths, files)
        };
        let (paths, files) = make();
        assert_eq!(make().1, files, "the same tree, the same bytes");
        let names = paths.iter().map(|path| path.file_name().unwrap());
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                "unified-runtime_0.12.0-1_amd64.deb",
                "unified-runtime-dev_0.12.0-1_amd64.deb",
                "unified-runtime-doc_0.12.0-1_all.deb"
            ]
        );
        let [(control, data), (dev_control, dev), (doc_control, doc)] =
            [0, 1, 2].map(|at| opened(&files[at]));
        let find = |name: &str| text(&control, name);
        assert!(find("./control").contains("\nDepends: libc6 (>= 2.34)\n"));
        assert!(find("./control").contains(&format!("\nMaintainer: {NOBODY}\n")));
        // The sum of `program`.
        assert!(find("./md5sums").contains("a9c449d4fa44e9e5a41c574ae55ce4d9  usr/bin/p\n"));
        let sum_of_page = hex(&Md5::digest(gzip(b".TH p 1\n").unwrap()));
        assert!(find("./md5sums").contains(&format!("{sum_of_page}  usr/share/man/man1/p.1.gz\n")));
        assert_eq!(data[0], ("./".into(), 0o755, String::new()));
        assert!(data.contains(&("./usr/bin/p".into(), 0o755, "program".into())));
        assert!(
            !data
                .iter()
                .any(|(path, ..)| path.contains("l.so") || path.ends_with(".md"))
        );
        let copyright = text(&data, "./usr/share/doc/unified-runtime/copyright");
        assert!(copyright.starts_with("Format: https://www.debian.org/"));
        text(
            &data,
            "./usr/share/doc/unified-runtime/COPYRIGHT-library.html.gz",
        );

        let same = "\nDepends: unified-runtime (= 0.12.0-1)\n";
        assert!(text(&dev_control, "./control").contains(same));
        assert!(dev.contains(&("./usr/lib/l.so".into(), 0o777, "l.so.0".into())));
        let folder = "./usr/share/doc/unified-runtime-dev";
        assert!(dev.contains(&(folder.into(), 0o777, "unified-runtime".into())));

        let control = text(&doc_control, "./control");
        assert!(control.contains("\nArchitecture: all\n") && !control.contains("Depends"));
        assert_eq!(
            text(&doc, "./usr/share/doc/unified-runtime/book/a.md"),
            "# A\n"
        );
        let copyright = text(&doc, "./usr/share/doc/unified-runtime-doc/copyright");
        assert!(!copyright.contains("crates/"));
    }

    fn text<'a>(files: &'a [(String, u32, String)], path: &str) -> &'a str {
        let found = files.iter().find(|(own, ..)| own == path);
        &found.unwrap_or_else(|| panic!("{path}")).2
    }

    type Files = Vec<(String, u32, String)>;

    /// The files of a package's two archives.
    fn opened(package: &[u8]) -> (Files, Files) {
        let mut package = ar::Archive::new(package);
        let mut parts = Vec::new();
        while let Some(entry) = package.next_entry() {
            let mut entry = entry.unwrap();
            let mut data = Vec::new();
            entry.read_to_end(&mut data).unwrap();
            parts.push((
                String::from_utf8_lossy(entry.header().identifier()).into_owned(),
                data,
            ));
        }
        let names: Vec<_> = parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        (entries(&parts[1].1), entries(&parts[2].1))
    }

    #[test]
    fn each_library_has_a_package() {
        let link = |path: &str| Item::new(path, Content::Link(String::new()));
        let items = [
            link("usr/lib/libb.so.0"),
            link("usr/lib/liba.so.0"),
            link("usr/lib/x/liba.so.0"),
            link("usr/lib/libb.so.0.12.0"),
        ];
        assert_eq!(
            shlibs(&items),
            "liba 0 unified-runtime (>= 0.12.0)\nlibb 0 unified-runtime (>= 0.12.0)\n"
        );
    }

    #[test]
    fn the_changelog_is_dated() {
        let needs = needs(&["libc.so.6"]);
        let package = super::super::tests::package(&needs);
        assert_eq!(
            changelog(&package, EPOCH).unwrap(),
            format!(
                "unified-runtime (0.12.0-1) unstable; urgency=medium\n\n  * Packages made by \
                 `cargo xtask package`.\n\n -- {NOBODY}  Tue, 01 Jan 1980 00:00:00 +0000\n"
            )
        );
    }
}
