//! A buffer over the host's memory (`UR_MEM_FLAG_USE_HOST_POINTER`) that is a copy of it:
//!
//! | the copy | until |
//! |---|---|
//! | is not made: the host's memory is current | the first command with the buffer, which makes the copy first |
//! | equals the host's memory | a command that may write the buffer |
//! | may be newer than the host's memory | the last release, which copies it back |

use super::{Use, Uses};
use crate::object::Result;
use crate::sync::{Mutex, rank};

pub struct HostCopy {
    /// Address of the host's memory.
    pub host: usize,
    /// Locked while bytes are copied between the two.
    copying: Mutex<(), { rank::DRIVER }>,
}

impl HostCopy {
    pub fn of(host: usize) -> Self {
        Self {
            host,
            copying: Mutex::default(),
        }
    }

    /// Prepares the copy for a command. `read` copies the host's memory, before the first command.
    pub fn begin(&self, uses: &Uses, with: Use, read: impl FnOnce() -> Result<()>) -> Result<()> {
        if uses.has(with) {
            return Ok(());
        }
        let _copying = self.copying.lock();
        if !uses.has(Use::Reads) {
            read()?;
        }
        uses.add(with);
        Ok(())
    }

    /// Brings the host's memory up to date, if the copy may be newer: `write` copies it back. All use is over.
    pub fn end(&self, uses: &Uses, write: impl FnOnce() -> Result<()>) {
        let _copying = self.copying.lock();
        if uses.has(Use::Writes)
            && let Err(error) = write()
        {
            log::error!("what a buffer holds is lost: {:?}", error.code());
        }
    }
}
