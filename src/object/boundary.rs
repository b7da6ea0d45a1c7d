//! The one panic guard between Rust and C callers.

use super::Result;
use crate::abi::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry point. A panic becomes `UNKNOWN`: it never unwinds into C.
pub fn boundary(body: impl FnOnce() -> Result<()>) -> ur_result_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => UR_RESULT_SUCCESS,
        Ok(Err(error)) => error.code(),
        Err(_) => UR_RESULT_ERROR_UNKNOWN,
    }
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
