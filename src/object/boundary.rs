//! The one place where results go from Rust to C callers: what panics or is no result ends here.

use super::Result;
use crate::abi::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Runs the body of an entry point. A panic becomes `UNKNOWN`: it never unwinds into C. So does a
/// code outside of the enumeration, which a driver or a caller's callback may have given.
pub fn boundary(body: impl FnOnce() -> Result<()>) -> ur_result_t {
    match catch_unwind(AssertUnwindSafe(|| checked(body))) {
        Ok(Ok(())) => UR_RESULT_SUCCESS,
        Ok(Err(error)) => listed(error.code()),
        Err(_) => UR_RESULT_ERROR_UNKNOWN,
    }
}

/// The code itself if the enumeration has it.
#[cold]
fn listed(code: ur_result_t) -> ur_result_t {
    if code.name().is_some() {
        return code;
    }
    log::error!("{:#x} is no result of the interface", code.0);
    UR_RESULT_ERROR_UNKNOWN
}

/// Something of the calling thread's that is the caller's own, as a number.
type ThreadState = fn() -> usize;

static THREAD_STATE: OnceLock<ThreadState> = OnceLock::new();

/// Has debug builds look before and after every entry point, from now on: a call that leaves something
/// else there than it found panics in the end, so that it fails with `UNKNOWN`.
pub fn check_thread_state(state: ThreadState) {
    if cfg!(debug_assertions) {
        // The first stays: a library has one adapter.
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
    assert_eq!(state(), before, "a call changed what is its caller's");
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
        // What drivers use: OpenCL's are negative, CUDA's go on beyond ours, those of Level Zero are large.
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
