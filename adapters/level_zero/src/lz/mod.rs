//! Level Zero: the loader's functions as found at run time, its errors, and lists that it fills.
//! Knows the interface and no object of Unified Runtime.

mod api;
pub mod by_address;
mod error;
mod imports;

pub use api::{Api, BindlessImages, ExternalSemaphores, Found};
pub use error::check;
pub use imports::{Holder, Import, Imports};
pub use ze::*;

use ur::object::Result;

/// Calls a function of the list and checks its result.
macro_rules! call {
    ($api:expr, $name:ident($($arg:expr),* $(,)?)) => {
        $crate::lz::check(($api.$name)($($arg),*), stringify!($name))
    };
}
pub(crate) use call;

/// Reads a list by the protocol of two calls: `ask` gets a count, and null or room for as many.
pub fn list<T: Clone>(empty: T, ask: impl Fn(&mut u32, *mut T) -> Result<()>) -> Result<Vec<T>> {
    let mut count = 0;
    ask(&mut count, std::ptr::null_mut())?;
    let mut all = vec![empty; count as usize];
    if count > 0 {
        ask(&mut count, all.as_mut_ptr())?;
        all.truncate(count as usize);
    }
    Ok(all)
}
