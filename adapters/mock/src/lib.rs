//! The mock adapter: every function of the interface answers, and nothing is behind it. For tests of
//! programs that call the interface.
//!
//! A call succeeds, hands out fresh handles, real memory and plausible properties; commands complete
//! at once and do nothing. What a call shall do instead is said by callbacks (`control`,
//! include/ur_mock.h), or without any code by a script (`script`):
//!
//! | variable | meaning |
//! |---|---|
//! | `UR_MOCK_SCRIPT` | a script, or `@` and the name of a file that holds one |
//! | `UR_LOG_MOCK` | logging |
//!
//! It stands directly behind the tables, not on `hal`: it judges no argument, since what a wrong one
//! means is for the validation layer to say, and callbacks must see every argument as it came. Handles
//! and memory are looked up before they are touched, so that a test may pass what it likes.
//!
//! ```text
//! functions ──> call: count, script, before, replace or answer, after
//!                            │
//!              answers (by hand) or make (generated) ──> objects, memory, info
//! ```
//!
//! Uses `ur::abi`, `ur::object` and the export macro of `ur::hal`. Must never know a loader.

mod answers;
mod call;
mod control;
mod functions;
#[rustfmt::skip]
mod generated;
mod info;
mod make;
mod memory;
mod objects;
pub mod script;

use ur::abi::ur_dditable_t;
use ur::hal::Exported;

/// What the tables are exported for.
pub struct Mock;

impl Exported for Mock {
    fn table() -> &'static ur_dditable_t {
        &functions::TABLE
    }
}

ur::export!(@all Mock);
