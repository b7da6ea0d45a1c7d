//! The symbols that a shared object exports, read from its bytes. The object is checked first: the
//! dynamic linker trusts its input, and a broken object would end the process.

use std::ffi::{CStr, CString};

/// An exported function or variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: CString,
    pub kind: SymbolKind,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    Function,
    Variable,
}

/// The first bytes of an object for this machine: 64 bits, of its byte order, version 1.
pub const IDENT: [u8; 7] = [
    0x7f,
    b'E',
    b'L',
    b'F',
    2,
    if cfg!(target_endian = "little") { 1 } else { 2 },
    1,
];

#[cfg(target_arch = "x86_64")]
const MACHINE: Option<u16> = Some(62);
#[cfg(target_arch = "aarch64")]
const MACHINE: Option<u16> = Some(183);
#[cfg(target_arch = "riscv64")]
const MACHINE: Option<u16> = Some(243);
/// Elsewhere the dynamic linker alone decides.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
const MACHINE: Option<u16> = None;

const HEADER_BYTES: usize = 64;
const TYPE_DYNAMIC: u16 = 3;
const SEGMENT_LOAD: u32 = 1;
const SECTION_DYNSYM: u32 = 11;
const SYMBOL_BYTES: usize = 24;

/// The exported symbols of a shared object for this machine. The error names what is wrong with it.
pub fn exports(object: &[u8]) -> Result<Vec<Symbol>, &'static str> {
    let file = Reader(object);
    if !object.starts_with(&IDENT) || object.len() < HEADER_BYTES {
        return Err("no 64-bit ELF object");
    }
    if file.u16(16) != Some(TYPE_DYNAMIC) {
        return Err("no shared object");
    }
    if MACHINE.is_some_and(|machine| file.u16(18) != Some(machine)) {
        return Err("made for another machine");
    }
    segments_fit(file).ok_or("cut off")?;
    let symbols = symbol_table(file).ok_or("no dynamic symbol table")?;
    symbols.ok_or("a broken dynamic symbol table")
}

/// Whether every segment to be loaded lies within the file. A missing rest would kill the process
/// that touches it.
fn segments_fit(file: Reader<'_>) -> Option<()> {
    let (start, each, count) = (file.word(32)?, file.u16(54)?, file.u16(56)?);
    for index in 0..usize::from(count) {
        let at = start.checked_add(index * usize::from(each))?;
        let (offset, bytes) = (
            file.word(at.checked_add(8)?)?,
            file.word(at.checked_add(32)?)?,
        );
        if file.u32(at)? == SEGMENT_LOAD {
            file.part(offset, bytes)?;
        }
    }
    Some(())
}

/// The table's symbols. The inner `None` stands for a broken table.
fn symbol_table(file: Reader<'_>) -> Option<Option<Vec<Symbol>>> {
    let (start, each, count) = (file.word(40)?, file.u16(58)?, file.u16(60)?);
    let section = |index: usize| {
        let at = start.checked_add(index * usize::from(each))?;
        file.part(at, 64).map(Reader)
    };
    let mut sections = (0..usize::from(count)).filter_map(section);
    let table = sections.find(|one| one.u32(4) == Some(SECTION_DYNSYM))?;
    let contents = |section: Reader<'_>| file.part(section.word(24)?, section.word(32)?);
    let names = table
        .u32(40)
        .and_then(|index| contents(section(index as usize)?));
    let entries = contents(table);
    Some(
        names
            .zip(entries)
            .and_then(|(names, entries)| symbols(entries, names)),
    )
}

/// The exported functions and variables. `None` if an entry is broken.
fn symbols(entries: &[u8], names: &[u8]) -> Option<Vec<Symbol>> {
    let mut found = Vec::new();
    for entry in entries.chunks_exact(SYMBOL_BYTES) {
        let fields = Reader(entry);
        let (info, other, section) = (entry[4], entry[5], fields.u16(6)?);
        let kind = match info & 0xf {
            1 => SymbolKind::Variable,
            // Type 10 is a function that the linker chooses when it loads the object.
            2 | 10 => SymbolKind::Function,
            _ => continue,
        };
        let exported =
            matches!(info >> 4, 1 | 2 | 10) && matches!(other & 3, 0 | 3) && section != 0;
        if !exported {
            continue;
        }
        let name = CStr::from_bytes_until_nul(names.get(fields.u32(0)? as usize..)?).ok()?;
        if !matches!(name.to_bytes(), b"_init" | b"_fini" | b"") {
            found.push(Symbol {
                name: name.into(),
                kind,
                bytes: fields.word(16)?,
            });
        }
    }
    Some(found)
}

/// Reads numbers of this machine's byte order within bounds.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn part(self, at: usize, bytes: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(bytes)?)
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.part(at, N)?.try_into().ok()
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn word(self, at: usize) -> Option<usize> {
        self.array(at)
            .map(u64::from_ne_bytes)
            .and_then(|word| usize::try_from(word).ok())
    }
}
