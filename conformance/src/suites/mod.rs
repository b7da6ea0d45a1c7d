//! The suites. Each lists its tests; a test is a function from a device to its outcome.

use crate::registry::Test;

/// Every test, in the order in which a run makes them.
pub fn all() -> Vec<Test> {
    Vec::new()
}
