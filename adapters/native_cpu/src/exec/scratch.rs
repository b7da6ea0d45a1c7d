//! Memory that one thread keeps for the work-groups it runs, one after the other.

/// Local memory that a work-group can have, in bytes.
pub const LOCAL_BYTES: usize = 256 * 1024;

/// Alignment of each block of local memory: that of the widest vector.
pub const LOCAL_ALIGN_BYTES: usize = 128;

#[repr(C, align(128))]
struct Line {
    _bytes: [u8; LOCAL_ALIGN_BYTES],
}

/// One work-group's local memory. Its bytes are never ours to read.
#[derive(Default)]
pub struct Scratch {
    lines: Vec<Line>,
}

impl Scratch {
    /// Makes room for [`LOCAL_BYTES`]; pages cost nothing until a kernel touches them. `None` if
    /// the system has no memory left.
    pub fn new() -> Option<Self> {
        let mut scratch = Self::default();
        scratch.provide().then_some(scratch)
    }

    /// Makes room if there is none yet.
    pub fn provide(&mut self) -> bool {
        let lines = LOCAL_BYTES / LOCAL_ALIGN_BYTES;
        self.lines.capacity() >= lines || self.lines.try_reserve_exact(lines).is_ok()
    }

    /// Address of the first byte.
    pub fn address(&mut self) -> usize {
        self.lines.as_mut_ptr().expose_provenance()
    }
}
