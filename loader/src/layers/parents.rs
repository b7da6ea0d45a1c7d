//! Contexts, devices and queues by address, with what made each. Messages of the layers around name
//! them, as that on which memory was allocated.
//!
//! The innermost of the validation layers: what a call returned is known here before they see it. An
//! entry stays until a new object has its address; a device that is returned again keeps its first.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::checks::slice;

use super::maker::{Handle, Maker, Makers};
use super::wrappers::{COUNT, wrappers};
use super::{Layer, LayerContext};

static STATE: LazyLock<Mutex<KnownParents>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct KnownParents {
    makers: Makers,
    made: HashMap<usize, Maker>,
}

fn state() -> MutexGuard<'static, KnownParents> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context, device or queue with what made it, if that was seen.
pub fn of(address: usize) -> Handle {
    let maker = state().made.get(&address).copied();
    Handle { address, maker }
}

struct Parents;

pub fn make() -> Box<dyn Layer> {
    Box::new(Parents)
}

impl Layer for Parents {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        _: &[&'static str],
        _: &LayerContext,
    ) -> Result<(), ur_result_t> {
        *state() = KnownParents::default();
        wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        *state() = KnownParents::default();
    }
}

/// Records a new object. Null outputs are left out.
///
/// # Safety
/// The output is null, or points to a handle.
unsafe fn created(function: &'static str, output: *const *const c_void) {
    if output.is_null() {
        return;
    }
    // SAFETY: not null, and the caller guarantees a handle. Some adapters accept outputs that are not
    // aligned.
    let address = unsafe { output.read_unaligned() }.addr();
    let mut state = state();
    let maker = state.makers.made(function);
    state.made.insert(address, maker);
}

/// Records a list of devices. Those that are known keep what returned them first.
///
/// # Safety
/// The list is null or has `count` handles, of which some may be null.
unsafe fn listed(function: &'static str, list: *const *const c_void, count: usize) {
    if list.is_null() {
        return;
    }
    // SAFETY: not null, and the caller guarantees `count` handles.
    let Ok(list) = (unsafe { slice(list, count) }) else {
        return;
    };
    let mut state = state();
    for handle in list.iter().filter(|handle| !handle.is_null()) {
        let maker = state.makers.made(function);
        state.made.entry(handle.addr()).or_insert(maker);
    }
}

/// Whether an argument of this form receives a context, a queue or devices.
macro_rules! returns {
    ([$need:ident output Context $own:ident]) => {
        true
    };
    ([$need:ident output Queue $own:ident]) => {
        true
    };
    ([$need:ident output Device $own:ident]) => {
        true
    };
    ([$need:ident outputs Device $count:ident $own:ident $total:tt]) => {
        true
    };
    ($form:tt) => {
        false
    };
}

macro_rules! returning {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {
        /// The functions that this layer wraps, by number.
        const RETURNING: [bool; COUNT] = [$( $( false $( || returns!($form) )*, )* )*];
    };
}
ur::for_each_function! { returning }

const fn wants(number: usize) -> bool {
    RETURNING[number]
}

/// Has the number of devices written, even if the caller does not want it.
macro_rules! counted {
    ($count:ident [$need:ident outputs Device $room:ident $own:ident -]) => {};
    ($count:ident [$need:ident outputs Device $room:ident $own:ident $total:ident]) => {
        if $total.is_null() {
            $total = &raw mut $count;
        }
    };
    ($count:ident $form:tt) => {};
}

/// Records what a successful call wrote to an argument.
macro_rules! recorded {
    ($name:ident $arg:ident [$need:ident outputs Device $room:ident $own:ident $total:tt]) => {
        // SAFETY: the call succeeded, so that the adapter has written the list and its length.
        unsafe {
            let length = ($room as usize).min(length!($total $room) as usize);
            listed(stringify!($name), $arg.cast(), length);
        }
    };
    ($name:ident $arg:ident [$need:ident output Context $own:ident]) => {
        // SAFETY: the call succeeded, so that the adapter has written the handle.
        unsafe { created(stringify!($name), $arg.cast()) }
    };
    ($name:ident $arg:ident [$need:ident output Queue $own:ident]) => {
        // SAFETY: the call succeeded, so that the adapter has written the handle.
        unsafe { created(stringify!($name), $arg.cast()) }
    };
    ($name:ident $arg:ident [$need:ident output Device $own:ident]) => {
        // SAFETY: the call succeeded, so that the adapter has written the handle.
        unsafe { listed(stringify!($name), $arg.cast(), 1) }
    };
    ($name:ident $arg:ident $form:tt) => {};
}

/// The number of a list's elements that were written.
macro_rules! length {
    (- $room:ident) => {
        $room
    };
    ($total:ident $room:ident) => {
        $total.read_unaligned()
    };
}

/// The body of a function of this layer.
macro_rules! remembered {
    ($name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        let mut count = 0u32;
        $( counted!(count $form); )*
        // SAFETY: the caller's arguments are forwarded under the specification's contract. A count
        // that the caller does not want goes to a variable that outlives the call.
        let result = unsafe { $below($( $arg ),*) };
        if result == UR_RESULT_SUCCESS {
            $( recorded!($name $arg $form); )*
        }
        let _ = count;
        result
    }};
}
ur::for_each_function! { wrappers remembered }
