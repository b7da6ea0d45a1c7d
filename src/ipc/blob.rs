//! The bytes that one process sends to another.

use crate::abi::{UR_RESULT_ERROR_INVALID_VALUE, ur_backend_t};
use crate::object::{Error, Result, ensure};

/// What a blob is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Subject {
    Memory = 1,
    Physical = 2,
    Event = 3,
}

/// What a blob is for, and the backend that can open it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    pub backend: ur_backend_t,
    pub subject: Subject,
}

impl Kind {
    fn tag(self) -> [u8; 4] {
        let backend = self.backend.0;
        (backend << 16 | u32::from(self.subject as u16)).to_le_bytes()
    }
}

/// Begins every blob. Changes with the blob's contents and with the service's messages.
const MAGIC: [u8; 8] = *b"urshare\x01";

const HEAD_BYTES: usize = 12;

/// Bytes of the key of an export.
pub const KEY_BYTES: usize = 16;

/// Names an export of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportName {
    /// The process, as its own system calls number it.
    pub process: u32,
    /// The number of the service in the process.
    pub service: u64,
    pub export: u64,
    /// A secret: only who has the blob may open it.
    pub key: [u8; KEY_BYTES],
}

const NAME_BYTES: usize = 4 + 8 + 8 + KEY_BYTES;

/// A blob: its kind, and contents of a size that depends on the kind.
pub fn write(kind: Kind, contents: &[u8]) -> Box<[u8]> {
    [&MAGIC, &kind.tag()[..], contents].concat().into()
}

/// The contents of a blob of this kind with so many bytes. `INVALID_VALUE` if it is none.
pub fn read<const BYTES: usize>(kind: Kind, blob: &[u8]) -> Result<[u8; BYTES]> {
    let own = blob.starts_with(&MAGIC) && blob[MAGIC.len()..].starts_with(&kind.tag());
    ensure(own, UR_RESULT_ERROR_INVALID_VALUE)?;
    let contents = blob.get(HEAD_BYTES..).unwrap_or_default().try_into();
    contents.map_err(|_| Error::new(UR_RESULT_ERROR_INVALID_VALUE))
}

impl ExportName {
    /// The name of no export: a blob of the right size.
    pub const NONE: Self = Self {
        process: 0,
        service: 0,
        export: 0,
        key: [0; KEY_BYTES],
    };

    pub fn write(&self, kind: Kind) -> Box<[u8]> {
        let mut contents = Vec::with_capacity(NAME_BYTES);
        contents.extend(self.process.to_le_bytes());
        contents.extend(self.service.to_le_bytes());
        contents.extend(self.export.to_le_bytes());
        contents.extend(self.key);
        write(kind, &contents)
    }

    pub fn read(kind: Kind, blob: &[u8]) -> Result<Self> {
        let contents = read::<NAME_BYTES>(kind, blob)?;
        let mut rest = &contents[..];
        Ok(Self {
            process: u32::from_le_bytes(take(&mut rest)),
            service: u64::from_le_bytes(take(&mut rest)),
            export: u64::from_le_bytes(take(&mut rest)),
            key: take(&mut rest),
        })
    }
}

/// The first bytes of `rest`, which has as many. They leave it.
pub fn take<const BYTES: usize>(rest: &mut &[u8]) -> [u8; BYTES] {
    let (first, behind) = rest.split_first_chunk().unwrap_or((&[0; BYTES], &[]));
    *rest = behind;
    *first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{UR_BACKEND_CUDA, UR_BACKEND_LEVEL_ZERO};

    fn of(backend: ur_backend_t, subject: Subject) -> Kind {
        Kind { backend, subject }
    }

    #[test]
    fn a_blob_is_read_as_what_it_is_for() {
        let name = ExportName {
            process: 7,
            service: u64::MAX - 1,
            export: 3,
            key: *b"0123456789abcdef",
        };
        let memory = of(UR_BACKEND_CUDA, Subject::Memory);
        let blob = name.write(memory);
        assert_eq!(blob.len(), 48);
        assert_eq!(ExportName::read(memory, &blob), Ok(name));
        let invalid = Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        assert_eq!(
            ExportName::read(of(UR_BACKEND_CUDA, Subject::Physical), &blob),
            invalid
        );
        let foreign = of(UR_BACKEND_LEVEL_ZERO, Subject::Memory);
        assert_eq!(ExportName::read(foreign, &blob), invalid);
        assert_eq!(ExportName::read(memory, &blob[..47]), invalid);
        assert_eq!(
            ExportName::read(memory, &[&blob[..], &[0]].concat()),
            invalid
        );
        assert_eq!(ExportName::read(memory, &[]), invalid);
        let mut other = blob.clone();
        other[7] += 1;
        assert_eq!(ExportName::read(memory, &other), invalid, "another version");
    }
}
