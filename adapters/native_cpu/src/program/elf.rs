//! The symbols that a shared object exports, read from its bytes. The object is checked first: the
//! dynamic linker trusts its input, and a broken object would end the process.

use std::ffi::CString;

use object::NativeEndian;
use object::elf::{
    self, FileHeader64, Machine, ProgramHeader64, STB_GLOBAL, STB_GNU_UNIQUE, STB_WEAK, STT_FUNC,
    STT_GNU_IFUNC, STT_OBJECT, STV_DEFAULT, STV_PROTECTED,
};
use object::read::StringTable;
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionTable, Sym as _};

type Header = FileHeader64<NativeEndian>;

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

/// The version in an object's header.
const VERSION: u32 = 1;

/// This machine. Where it is unknown the dynamic linker alone decides.
const MACHINE: Option<Machine> = if cfg!(target_arch = "x86_64") {
    Some(elf::EM_X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(elf::EM_AARCH64)
} else if cfg!(target_arch = "riscv64") {
    Some(elf::EM_RISCV)
} else {
    None
};

/// The exported symbols of a shared object for this machine. The error names what is wrong with it.
pub fn exports(object: &[u8]) -> Result<Vec<Symbol>, &'static str> {
    if !object.starts_with(&IDENT) || object.len() < size_of::<Header>() {
        return Err("no 64-bit ELF object");
    }
    let header = Header::parse(object).map_err(|_| "a broken header")?;
    if header.e_type(NativeEndian) != elf::ET_DYN {
        return Err("no shared object");
    }
    if MACHINE.is_some_and(|machine| header.e_machine(NativeEndian) != machine) {
        return Err("made for another machine");
    }
    if header.e_version(NativeEndian) != VERSION {
        return Err("of another version of ELF");
    }
    let segments = header.program_headers(NativeEndian, object);
    check_segments(object, segments.map_err(|_| "cut off")?)?;
    let sections = header.section_headers(NativeEndian, object);
    let sections = sections.map_err(|_| "cut off, or a broken section table")?;
    // The sections' names are of no use here.
    symbols(object, &SectionTable::new(sections, StringTable::default()))
}

/// Checks that every segment to be loaded lies within the file, since a missing rest would kill the
/// process that touches it, and that the dynamic linker finds its tables in such segments.
fn check_segments(
    object: &[u8],
    segments: &[ProgramHeader64<NativeEndian>],
) -> Result<(), &'static str> {
    let of = |wanted| {
        segments
            .iter()
            .filter(move |one| one.p_type(NativeEndian) == wanted)
    };
    for segment in of(elf::PT_LOAD) {
        segment.data(NativeEndian, object).map_err(|()| "cut off")?;
        if segment.p_filesz(NativeEndian) > segment.p_memsz(NativeEndian) {
            return Err("a segment with more bytes than memory");
        }
    }
    let loaded = |at: u64, bytes: u64| {
        of(elf::PT_LOAD).any(|segment| {
            let start = segment.p_vaddr(NativeEndian);
            let offset = at.checked_sub(start);
            let end = offset.and_then(|offset| offset.checked_add(bytes));
            end.is_some_and(|end| end <= segment.p_memsz(NativeEndian))
        })
    };
    for segment in of(elf::PT_DYNAMIC) {
        let wrong = "a broken dynamic section";
        if !loaded(segment.p_vaddr(NativeEndian), segment.p_memsz(NativeEndian)) {
            return Err(wrong);
        }
        let entries = segment.dynamic(NativeEndian, object);
        let entries = entries.ok().flatten().ok_or(wrong)?;
        let entries: Vec<(elf::DynamicTag, u64)> = entries
            .iter()
            .map(|entry| (entry.d_tag(NativeEndian), entry.d_val(NativeEndian)))
            .take_while(|(tag, _)| *tag != elf::DT_NULL)
            .collect();
        if !dynamic_fits(&entries, loaded) {
            return Err(wrong);
        }
    }
    Ok(())
}

/// Tables of the dynamic section: where each begins, and its size in bytes if an entry says it.
const TABLES: [(elf::DynamicTag, Option<elf::DynamicTag>); 12] = [
    (elf::DT_STRTAB, Some(elf::DT_STRSZ)),
    (elf::DT_RELA, Some(elf::DT_RELASZ)),
    (elf::DT_REL, Some(elf::DT_RELSZ)),
    (elf::DT_JMPREL, Some(elf::DT_PLTRELSZ)),
    (elf::DT_INIT_ARRAY, Some(elf::DT_INIT_ARRAYSZ)),
    (elf::DT_FINI_ARRAY, Some(elf::DT_FINI_ARRAYSZ)),
    (elf::DT_SYMTAB, None),
    (elf::DT_HASH, None),
    (elf::DT_GNU_HASH, None),
    (elf::DT_VERSYM, None),
    (elf::DT_VERNEED, None),
    (elf::DT_VERDEF, None),
];

/// Entries that are offsets into the string table.
const STRINGS: [elf::DynamicTag; 4] = [
    elf::DT_NEEDED,
    elf::DT_SONAME,
    elf::DT_RPATH,
    elf::DT_RUNPATH,
];

/// Whether all tables of a dynamic section are loaded, and all its strings in the string table.
fn dynamic_fits(entries: &[(elf::DynamicTag, u64)], loaded: impl Fn(u64, u64) -> bool) -> bool {
    let value = |wanted| {
        let found = entries.iter().find(|(tag, _)| *tag == wanted);
        found.map(|(_, value)| *value)
    };
    let tables = TABLES.iter().all(|&(start, bytes)| {
        let bytes = bytes.and_then(value).unwrap_or(1);
        value(start).is_none_or(|start| loaded(start, bytes))
    });
    let strings = value(elf::DT_STRSZ).unwrap_or(0);
    let mut offsets = entries.iter().filter(|(tag, _)| STRINGS.contains(tag));
    tables && offsets.all(|(_, offset)| *offset < strings)
}

/// The exported functions and variables.
fn symbols(
    object: &[u8],
    sections: &SectionTable<'_, Header>,
) -> Result<Vec<Symbol>, &'static str> {
    let broken = "a broken dynamic symbol table";
    let table = sections
        .symbols(NativeEndian, object, elf::SHT_DYNSYM)
        .map_err(|_| broken)?;
    if table.is_empty() {
        return Err("no dynamic symbol table");
    }
    let mut found = Vec::new();
    for symbol in table.iter() {
        let kind = match symbol.st_type() {
            STT_OBJECT => SymbolKind::Variable,
            // The linker chooses an indirect function when it loads the object.
            STT_FUNC | STT_GNU_IFUNC => SymbolKind::Function,
            _ => continue,
        };
        let exported = matches!(symbol.st_bind(), STB_GLOBAL | STB_WEAK | STB_GNU_UNIQUE)
            && matches!(symbol.st_visibility(), STV_DEFAULT | STV_PROTECTED)
            && !symbol.is_undefined(NativeEndian);
        if !exported {
            continue;
        }
        let name = table
            .symbol_name(NativeEndian, symbol)
            .map_err(|_| broken)?;
        let name = CString::new(name).map_err(|_| broken)?;
        if !matches!(name.to_bytes(), b"_init" | b"_fini" | b"") {
            let bytes = symbol.st_size(NativeEndian);
            found.push(Symbol {
                name,
                kind,
                bytes: usize::try_from(bytes).map_err(|_| broken)?,
            });
        }
    }
    Ok(found)
}
