//! The mock adapter: answers every function of the interface without a backend. For tests of
//! programs that call the interface.
//!
//! A call succeeds and returns new handles, real memory and plausible properties. Commands complete
//! at once and do nothing. A test changes this by callbacks (`control`, include/ur_mock.h), or
//! without code by a script (`script`):
//!
//! | variable | meaning |
//! |---|---|
//! | `UR_MOCK_SCRIPT` | a script, or `@` and the name of a file that contains one |
//! | `UR_LOG_MOCK` | logging |
//!
//! The mock implements the tables directly instead of `hal`. It checks no argument: that is the
//! validation layer's part, and callbacks must see every argument unchanged. Handles and memory are
//! looked up before they are used, so that a test may pass any value.
//!
//! ```text
//! functions ──> call: count, script, before, replace or answer, after
//!                            │
//!              answers (by hand) or make (by rows) ──> objects, memory, info
//! ```
//!
//! Uses `ur::abi`, `ur::object` and the export macro of `ur::hal`. Must never know a loader.

mod answers;
mod call;
mod control;
mod functions;
mod info;
mod make;
mod memory;
mod objects;
pub mod script;

use ur::abi::ur_dditable_t;
use ur::hal::Exported;

/// The type that the tables are exported for.
pub struct Mock;

impl Exported for Mock {
    fn table() -> &'static ur_dditable_t {
        &functions::TABLE
    }
}

ur::export!(@all Mock);
