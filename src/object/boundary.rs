//! The one panic guard between Rust and C callers.

use super::Result;
use crate::abi::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Runs the body of an entry point. A panic becomes `UNKNOWN`: it never unwinds into C.
pub fn boundary(body: impl FnOnce() -> Result<()>) -> ur_result_t {
    match catch_unwind(AssertUnwindSafe(|| watched(body))) {
        Ok(Ok(())) => UR_RESULT_SUCCESS,
        Ok(Err(error)) => error.code(),
        Err(_) => UR_RESULT_ERROR_UNKNOWN,
    }
}

/// Something of the calling thread's that is the caller's own, as a number.
type Look = fn() -> usize;

static LOOK: OnceLock<Look> = OnceLock::new();

/// Has debug builds look before and after every entry point, from now on: a call that leaves something
/// else there than it found panics in the end, so that it fails with `UNKNOWN`.
pub fn watch(look: Look) {
    if cfg!(debug_assertions) {
        // The first stays: a library has one adapter.
        let _ = LOOK.set(look);
    }
}

#[inline]
fn watched(body: impl FnOnce() -> Result<()>) -> Result<()> {
    let look = if cfg!(debug_assertions) {
        LOOK.get()
    } else {
        None
    };
    let Some(look) = look else { return body() };
    let before = look();
    let result = body();
    assert_eq!(look(), before, "a call changed what is its caller's");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_result() {
        assert_eq!(
            boundary(|| std::panic::resume_unwind(Box::new(()))),
            UR_RESULT_ERROR_UNKNOWN
        );
        assert_eq!(
            boundary(|| Err(UR_RESULT_ERROR_INVALID_SIZE.into())),
            UR_RESULT_ERROR_INVALID_SIZE
        );
        assert_eq!(boundary(|| Ok(())), UR_RESULT_SUCCESS);
    }
}
