//! Calls every function with unchecked arguments. No call may crash, and every result must be in
//! the enumeration.

#[allow(non_snake_case)]
#[path = "../../../tests/sweep/mod.rs"]
mod sweep;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use proptest::prelude::*;
use ur::abi::*;
use ur::hal::Exported;
use ur_adapter_mock::Mock;

/// A source of a call's arguments.
pub trait Source {
    fn number(&mut self) -> u64;
    /// Any number, since the mock never dereferences it.
    fn size(&mut self) -> u64 {
        self.number()
    }
    fn count(&mut self) -> u32;
    fn handle(&mut self) -> *mut c_void;
    fn list(&mut self) -> *mut c_void;
    fn memory(&mut self) -> *mut c_void;
}

/// Arguments from a list of random choices, used cyclically.
struct Choices<'a> {
    choices: &'a [u32],
    at: usize,
    handles: &'a [*mut c_void],
    memory: &'a mut [u64],
}

const NUMBERS: [u64; 8] = [0, 1, 3, 64, 4096, 0x7fff_ffff, 1 << 60, u64::MAX];

impl Choices<'_> {
    fn pick(&mut self, of: usize) -> usize {
        let choice = self.choices[self.at % self.choices.len()];
        self.at += 1;
        choice as usize % of
    }
}

impl Source for Choices<'_> {
    fn number(&mut self) -> u64 {
        NUMBERS[self.pick(NUMBERS.len())]
    }

    fn count(&mut self) -> u32 {
        self.pick(5) as u32
    }

    fn handle(&mut self) -> *mut c_void {
        let at = self.pick(self.handles.len());
        self.handles[at]
    }

    /// Handles that are all null, made up, or of one kind.
    fn list(&mut self) -> *mut c_void {
        let handle = self.handle();
        let list = &mut self.memory[4096..4104];
        list.fill(handle.expose_provenance() as u64);
        list.as_mut_ptr().cast()
    }

    fn memory(&mut self) -> *mut c_void {
        if self.pick(4) == 0 {
            return std::ptr::null_mut();
        }
        self.memory.as_mut_ptr().cast()
    }
}

/// A live handle of each kind that is created from a context, and one that is no handle.
fn handles() -> Vec<*mut c_void> {
    let table = Mock::table();
    let mut handles = vec![
        std::ptr::null_mut(),
        std::ptr::without_provenance_mut(1),
        std::ptr::without_provenance_mut(4096),
    ];
    let (mut adapter, mut platform, mut device) = Default::default();
    let (mut context, mut queue, mut event) = Default::default();
    // SAFETY: every output is a variable of this test, and lists have one element.
    let results = unsafe {
        [
            table.Adapter.pfnGet.expect("filled")(1, &mut adapter, null_mut()),
            table.Platform.pfnGet.expect("filled")(adapter, 1, &mut platform, null_mut()),
            table.Device.pfnGet.expect("filled")(
                platform,
                UR_DEVICE_TYPE_ALL,
                1,
                &mut device,
                null_mut(),
            ),
            table.Context.pfnCreate.expect("filled")(1, &device, null(), &mut context),
            table.Queue.pfnCreate.expect("filled")(context, device, null(), &mut queue),
            table.Enqueue.pfnEventsWait.expect("filled")(queue, 0, null(), &mut event),
        ]
    };
    assert_eq!(results, [UR_RESULT_SUCCESS; 6]);
    handles.extend([adapter.cast(), platform.cast(), device.cast()]);
    handles.extend([context.cast(), queue.cast(), event.cast()]);
    handles
}

#[test]
fn unchecked_arguments_are_answered_by_a_result() {
    let mut memory = vec![0; 8192];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 48,
        ..ProptestConfig::default()
    });
    assert_eq!(sweep::CALLS.len(), 241);
    for &(name, call) in sweep::CALLS {
        let memory = std::cell::RefCell::new(&mut memory);
        let choices = proptest::collection::vec(any::<u32>(), 1..24);
        runner
            .run(&choices, |choices| {
                // Calls may release their handles, so that each gets new ones.
                let handles = handles();
                let mut memory = memory.borrow_mut();
                memory.fill(0);
                let mut source = Choices {
                    choices: &choices,
                    at: 0,
                    handles: &handles,
                    memory: &mut memory,
                };
                let result = call(Mock::table(), &mut source).expect("no slot is empty");
                prop_assert!(result.name().is_some(), "{name} answers {result:?}");
                prop_assert!(result != UR_RESULT_ERROR_UNKNOWN, "{name} panicked");
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
