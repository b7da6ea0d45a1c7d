//! The C boundary: the only place where results pass from Rust to C callers. Panics and invalid
//! codes end here.

use super::Result;
use crate::abi::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Runs the body of an entry point and returns its result.
///
/// A panic becomes `UNKNOWN`, since it must not unwind into C. A code outside of the enumeration,
/// from a driver or a callback, becomes `UNKNOWN` as well.
pub fn boundary(body: impl FnOnce() -> Result<()>) -> ur_result_t {
    match catch_unwind(AssertUnwindSafe(|| checked(body))) {
        Ok(Ok(())) => UR_RESULT_SUCCESS,
        Ok(Err(error)) => listed(error.code()),
        Err(_) => UR_RESULT_ERROR_UNKNOWN,
    }
}

/// The code if the enumeration has it, else `UNKNOWN`.
#[cold]
fn listed(code: ur_result_t) -> ur_result_t {
    if code.name().is_some() {
        return code;
    }
    log::error!("{:#x} is no result of the interface", code.0);
    UR_RESULT_ERROR_UNKNOWN
}

/// Thread state that must be preserved (CUDA: the current context), for the debug check.
type ThreadState = fn() -> usize;

static THREAD_STATE: OnceLock<ThreadState> = OnceLock::new();

/// Makes debug builds compare this state before and after every entry point.
///
/// A call that changes the state panics at its end, and so fails with `UNKNOWN`.
pub fn check_thread_state(state: ThreadState) {
    if cfg!(debug_assertions) {
        // The first one stays: a library has one adapter.
        let _ = THREAD_STATE.set(state);
    }
}

#[inline]
fn checked(body: impl FnOnce() -> Result<()>) -> Result<()> {
    let state = if cfg!(debug_assertions) {
        THREAD_STATE.get()
    } else {
        None
    };
    let Some(state) = state else { return body() };
    let before = state();
    let result = body();
    assert_eq!(state(), before, "a call changed its caller's thread state");
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

    #[test]
    fn results_are_those_of_the_enumeration() {
        let leave = |code| boundary(|| Err(ur_result_t(code).into()));
        for known in ur_result_t::ALL {
            let same = match known {
                &UR_RESULT_SUCCESS => UR_RESULT_ERROR_UNKNOWN,
                known => *known,
            };
            assert_eq!(leave(known.0), same);
        }
        let beside = ur_result_t::ALL
            .iter()
            .flat_map(|known| [known.0.wrapping_sub(1), known.0.wrapping_add(1)]);
        // Codes of drivers: OpenCL's are negative, CUDA's exceed the enumeration, Level Zero's are
        // large.
        let drivers = [
            (-1001_i32).cast_unsigned(),
            700,
            0x7800_0004,
            0x7fff_ffff,
            u32::MAX,
        ];
        for code in beside.chain(drivers) {
            let result = leave(code);
            let is_known = ur_result_t(code).name().is_some();
            assert!(result.name().is_some(), "{code:#x} left");
            assert!(
                is_known || result == UR_RESULT_ERROR_UNKNOWN,
                "{code:#x} became {result:?}"
            );
        }
    }
}
