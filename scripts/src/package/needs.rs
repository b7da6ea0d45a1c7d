//! The system requirements of binaries: libraries by name, and the newest symbol version of the C library.

use anyhow::{Context as _, Result};
use object::Endianness;
use object::elf::DT_NEEDED;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use std::collections::BTreeSet;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub libraries: BTreeSet<String>,
    /// Major and minor version; none if no versioned symbol is used.
    pub glibc: Option<(u32, u32)>,
}

impl Needs {
    /// Adds the requirements of a binary.
    pub fn add(&mut self, data: &[u8]) -> Result<()> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        let endian = file.endian();
        let sections = file.elf_header().sections(endian, data)?;
        let dynamic = sections.dynamic(endian, data)?;
        let (entries, link) = dynamic.context("is linked statically")?;
        let strings = sections.strings(endian, data, link)?;
        for entry in entries {
            if entry.tag(endian) == DT_NEEDED {
                let name = entry.string(endian, strings)?;
                self.libraries
                    .insert(String::from_utf8_lossy(name).into_owned());
            }
        }
        let Some((mut files, link)) = sections.gnu_verneed(endian, data)? else {
            return Ok(());
        };
        let strings = sections.strings(endian, data, link)?;
        while let Some((_, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                let name = version.name(endian, strings)?;
                self.glibc = self.glibc.max(glibc(&String::from_utf8_lossy(name)));
            }
        }
        Ok(())
    }
}

/// `GLIBC_2.34`, `GLIBC_2.2.5`.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix("GLIBC_")?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(glibc("GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc("GLIBC_2.2.5"), Some((2, 2)));
        for other in ["GCC_3.3.1", "GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR"] {
            assert_eq!(glibc(other), None, "{other}");
        }
    }

    #[test]
    fn of_this_very_test() {
        let mut needs = Needs::default();
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        needs.add(&own).unwrap();
        assert!(needs.libraries.contains("libc.so.6"), "{needs:?}");
        assert!(needs.glibc >= Some((2, 17)), "{needs:?}");
        assert!(needs.add(b"text").is_err());
    }
}
