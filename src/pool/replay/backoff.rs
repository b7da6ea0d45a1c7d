//! How long to let be what was tried for nothing: twice as long each time.

use crate::pool::options::MAX_BACKOFF_LEVEL;

/// How often something is to be let pass before what came to nothing is tried again: the laps of a lane
/// after plans of which none was completed, or its misses after records of which no plan was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    level: u32,
    left: u32,
}

impl Patience {
    /// Whether the next one is to be let pass.
    pub fn lacks(&self) -> bool {
        self.left > 0
    }

    /// The same, and lets it pass.
    pub fn waits(&mut self) -> bool {
        let waits = self.left > 0;
        self.left = self.left.saturating_sub(1);
        waits
    }

    /// What was tried has ended, or could not be.
    pub fn learn(&mut self, served: bool) {
        match served {
            true => *self = Self::default(),
            false => {
                self.level = (self.level + 1).min(MAX_BACKOFF_LEVEL);
                self.left = 1 << self.level;
            }
        }
    }
}
