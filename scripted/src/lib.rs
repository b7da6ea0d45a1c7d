//! What the test drivers of the adapters have in common: the `scripted` folders, whose calls fail by a script.
//!
//! | module | owns |
//! |---|---|
//! | `script` | the driver's side: which call fails, and what a test can see |
//! | `driver` | the test's side: an open driver |
//! | `alone` | tests in processes of their own, since an adapter looks for its driver once |
//! | `gate` | a host task that a test holds back |
//! | `table` | calls of an adapter's own table |
//!
//! Must never know a driver or an adapter.

mod alone;
mod driver;
mod gate;
mod script;
mod table;

pub use alone::{ALONE, alone, is_alone};
pub use driver::{Scripted, beside};
pub use gate::{close_gate, open_gate, pass_gate};
pub use script::{Answer, EACH, Fault, Faults, write_text};
pub use table::{adapter, devices};
