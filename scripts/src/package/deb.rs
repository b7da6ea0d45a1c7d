//! The Debian package: libraries in the architecture's folder, and the metadata for dpkg.

use super::needs::Needs;
use super::notices::{self, Notices};
use super::{Machine, Package, SUMMARY, bytes};
use crate::layout::{Content, Item, Layout, VERSION};
use anyhow::{Context as _, Result, bail, ensure};
use flate2::{Compression, GzBuilder};
use md5::{Digest as _, Md5};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const NAME: &str = "unified-runtime";
const REVISION: &str = "1";
/// The maintainer of a package without a packager's name. dpkg requires the field.
const NOBODY: &str = "Nobody yet <nobody@unified-runtime.invalid>";
/// 1980-01-01, unless SOURCE_DATE_EPOCH is set.
const EPOCH: u64 = 315_532_800;

pub(super) fn layout(machine: &Machine) -> Layout {
    Layout {
        lib: format!("lib/{}", machine.triplet),
        prefix: Some("/usr"),
        links: true,
    }
}

/// Writes the package. Returns its path.
pub(super) fn write(package: &Package<'_>, items: Vec<Item>, out: &Path) -> Result<PathBuf> {
    let mut items = items;
    for item in &mut items {
        item.path = format!("usr/{}", item.path);
    }
    items.extend(documents(package.root, package.notices));
    items.sort_by(|one, other| one.path.cmp(&other.path));
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().context("SOURCE_DATE_EPOCH")?,
        Err(_) => EPOCH,
    };
    let (data, sums, size) = data(&items, time)?;
    let control = control(package, size)?;
    let control = archive(
        &[
            ("control", control.as_str()),
            ("md5sums", &sums),
            // Tells packages of programs that link to the loader which package has it.
            ("shlibs", &format!("libur_loader 0 {NAME} (>= {VERSION})\n")),
            ("triggers", "activate-noawait ldconfig\n"),
        ],
        time,
    )?;
    let path = out.join(format!(
        "{NAME}_{VERSION}-{REVISION}_{}.deb",
        package.machine.debian
    ));
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

fn documents(root: &Path, notices: &Notices) -> Vec<Item> {
    let folder = format!("usr/share/doc/{NAME}");
    let library = format!("{}.gz", notices::LIBRARY);
    let contents = [
        ("README.md", Content::Copy(root.join("README.md"))),
        ("changelog.gz", Content::Copy(root.join("CHANGELOG.md"))),
        ("copyright", Content::Text(notices.copyright(&library))),
        (&library, Content::Copy(notices.library().to_owned())),
    ];
    contents
        .into_iter()
        .map(|(name, content)| Item::new(format!("{folder}/{name}"), content))
        .collect()
}

fn control(package: &Package<'_>, bytes: u64) -> Result<String> {
    let architecture = package.machine.debian;
    let size = bytes.div_ceil(1024);
    let depends = depends(package.needs)?;
    let maintainer = match package.maintainer {
        Some(one) => format!("{} <{}>", one.name, one.mail),
        None => NOBODY.to_owned(),
    };
    Ok(format!(
        "Package: {NAME}
Version: {VERSION}-{REVISION}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Suggests: ocl-icd-libopencl1 | libopencl1, opencl-icd
Section: libs
Priority: optional
Description: {SUMMARY}
 The C interface beneath Intel's SYCL runtime, with asynchronous allocation of
 memory on every backend: the loader, the adapters for the native CPU, OpenCL
 and tests, the headers with pkg-config's and CMake's files, and the programs
 ur-conformance, ur-env, urinfo, urreplay and urtrace.
"
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
            vec![
                Item {
                    executable: true,
                    ..Item::new("bin/p", Content::Text("program".into()))
                },
                Item::new("lib/l.so", Content::Link("l.so.0".into())),
            ]
        };
        let needs = needs(&["libc.so.6"]);
        let package = super::super::tests::package(&needs);
        let make = || write(&package, items(), out.path()).unwrap();
        let path = make();
        let first = fs::read(&path).unwrap();
        assert_eq!(
            fs::read(make()).unwrap(),
            first,
            "the same tree, the same bytes"
        );
        let mut package = ar::Archive::new(first.as_slice());
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
        let control = entries(&parts[1].1);
        let find = |name: &str| &control.iter().find(|(path, ..)| path == name).unwrap().2;
        assert!(find("./control").contains("\nDepends: libc6 (>= 2.34)\n"));
        assert!(find("./control").contains(&format!("\nMaintainer: {NOBODY}\n")));
        // The sum of `program`.
        assert!(find("./md5sums").contains("a9c449d4fa44e9e5a41c574ae55ce4d9  usr/bin/p\n"));
        let data = entries(&parts[2].1);
        assert_eq!(data[0], ("./".into(), 0o755, String::new()));
        assert!(data.contains(&("./usr/bin/p".into(), 0o755, "program".into())));
        assert!(data.contains(&("./usr/lib/l.so".into(), 0o777, "l.so.0".into())));
        let doc = |name: &str| {
            let path = format!("./usr/share/doc/unified-runtime/{name}");
            data.iter()
                .find(|(own, ..)| *own == path)
                .map(|(.., text)| text)
        };
        assert!(
            doc("copyright")
                .unwrap()
                .starts_with("Format: https://www.debian.org/")
        );
        assert!(doc("COPYRIGHT-library.html.gz").is_some());
    }
}
