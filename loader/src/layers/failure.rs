//! The effect of a finding on the process: `UR_VALIDATION_ON_FINDING`.
//!
//! | value | effect of an error |
//! |---|---|
//! | `continue` | none |
//! | `exit` | the process ends as usual, and its status is [`STATUS`] in place of 0 |
//! | `abort` | the process stops in the call, by `SIGABRT` |
//!
//! The status is changed by a destructor of this library. It runs after the functions that
//! `atexit` registered and after the destructors of libraries that use the loader, which may tear
//! the loader down. Owns the variable; must never know what was found.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ur::dl::{Binding, Library};
use ur::object::env::Env;

use crate::discovery::own_path;

/// Exit status of a process with a finding, in place of 0.
pub const STATUS: c_int = 66;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Continue,
    Exit,
    Abort,
}

static EFFECT: OnceLock<Effect> = OnceLock::new();

/// The process that had a finding; 0 without one. A forked child has none of its parent's.
static FOUND_IN: AtomicU32 = AtomicU32::new(0);

/// Whether the process is ending with status 0.
static EXITS_WITH_0: AtomicBool = AtomicBool::new(false);

/// Reads the variable, once in a process.
pub fn begin() {
    let effect = || {
        let effect = read(&Env::process());
        if effect == Effect::Exit {
            watch_exit();
        }
        effect
    };
    EFFECT.get_or_init(effect);
}

fn read(env: &Env<'_>) -> Effect {
    let others = [("exit", Effect::Exit), ("abort", Effect::Abort)];
    let default = ("continue", Effect::Continue);
    env.word("UR_VALIDATION_ON_FINDING", default, &others)
}

/// Has the chosen effect of an error, after its message.
pub fn found() {
    match EFFECT.get() {
        Some(Effect::Abort) => std::process::abort(),
        Some(Effect::Exit) => FOUND_IN.store(std::process::id(), Ordering::Relaxed),
        Some(Effect::Continue) | None => {}
    }
}

unsafe extern "C" {
    /// Of the GNU C library: has `function` called with the exit status when the process ends.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Observes the process's exit status. The library stays loaded, since the observer is in it.
fn watch_exit() {
    let own = own_path().and_then(|path| Library::open(path, Binding::Usual).ok());
    let Some(own) = own else {
        ur::object::log::once("UR_VALIDATION_ON_FINDING: `exit` has no effect in this process");
        return;
    };
    own.keep_loaded();
    // SAFETY: the function stays loaded. If the registration fails, the status is not changed.
    unsafe { on_exit(exits, std::ptr::null_mut()) };
}

extern "C" fn exits(status: c_int, _: *mut c_void) {
    EXITS_WITH_0.store(status == 0, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    let found = FOUND_IN.load(Ordering::Relaxed) == std::process::id();
    if found && EXITS_WITH_0.load(Ordering::Relaxed) {
        // SAFETY: `fflush` accepts null, which means all streams; `_exit` has no conditions.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(STATUS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_effect_is_one_of_three_words() {
        let effect = |value: Option<&str>| {
            let faults = RefCell::<Vec<String>>::default();
            let complain = |text: &str| faults.borrow_mut().push(text.to_owned());
            let get = |_: &str| value.map(str::to_owned);
            let effect = read(&Env::new(&get, &complain));
            (effect, faults.into_inner().len())
        };
        assert_eq!(effect(None), (Effect::Continue, 0));
        assert_eq!(effect(Some("continue")), (Effect::Continue, 0));
        assert_eq!(effect(Some("exit")), (Effect::Exit, 0));
        assert_eq!(effect(Some("abort")), (Effect::Abort, 0));
        assert_eq!(effect(Some("1")), (Effect::Continue, 1));
    }
}
