//! Every generated shim, called with random arguments over a backend without abilities.
//!
//! The arguments include null and foreign handles, handles of the wrong kind, lists with wrong counts, and
//! any number for an enum, a flag or a size. No call may crash, and each must return a result that C knows.

#[allow(dead_code)]
mod arguments;

use arguments::{ArgumentSource, CALLS, Call};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::ffi::c_void;
use std::sync::Arc;
use ur::abi::*;
use ur::hal::{self, Backend};
use ur::object::{Body, Kind, Object, Result};

/// A backend whose objects have no abilities.
struct Null;

struct Bare<const KIND: u32>;

macro_rules! bare {
    ($($name:ident)*) => {
        $(
            impl Body for Bare<{ Kind::$name as u32 }> {
                const KIND: Kind = Kind::$name;
            }
            impl hal::$name<Null> for Bare<{ Kind::$name as u32 }> {}
        )*
        impl Backend for Null {
            $(type $name = Bare<{ Kind::$name as u32 }>;)*
            const BACKEND: ur_backend_t = UR_BACKEND_UNKNOWN;
            fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
                Ok(None)
            }
        }
        /// One handle of each kind.
        fn handles() -> Vec<*mut c_void> {
            vec![$(Object::immortal(<Null as hal::Exported>::table(), Bare::<{ Kind::$name as u32 }>).into_handle_forever()),*]
        }
    };
}

bare! {
    Adapter Platform Device Context Event Program Kernel Queue Sampler Mem PhysicalMem UsmPool
    ExternalMem ExternalSemaphore CommandBuffer CommandBufferCommand Graph ExecutableGraph
}

ur::export!(@table Null);

trait Forever {
    fn into_handle_forever(self) -> *mut c_void;
}

impl<T: Body> Forever for Arc<Object<T>> {
    fn into_handle_forever(self) -> *mut c_void {
        let handle = self.handle();
        std::mem::forget(self);
        handle
    }
}

fn call(name: &str, call: Call, choices: &[u32], source: &mut ArgumentSource) -> ur_result_t {
    let result = source.call(<Null as hal::Exported>::table(), call, choices);
    result.unwrap_or_else(|| panic!("{name}: an adapter of ours has an empty slot"))
}

#[test]
fn every_function_refuses_nothing_at_all() {
    let mut source = ArgumentSource::new(handles());
    assert_eq!(CALLS.len(), 241);
    let null = source.null();
    for &(name, function) in CALLS {
        // The choice that makes every handle null.
        let result = call(name, function, &[null], &mut source);
        let fine = name == "urAdapterGet";
        assert!(
            fine || result != UR_RESULT_SUCCESS,
            "{name} takes a null handle"
        );
    }
}

/// The errors that a shim may return here: those of the handle kinds and of the argument checks.
#[test]
fn random_arguments_are_answered_by_a_result() {
    let mut source = ArgumentSource::new(handles());
    let config = ProptestConfig {
        cases: 64,
        ..ProptestConfig::default()
    };
    let mut calls = 0;
    for &(name, function) in CALLS {
        let choices = proptest::collection::vec(any::<u32>(), 1..24);
        let source = std::cell::RefCell::new(&mut source);
        let calls = std::cell::RefCell::new(&mut calls);
        // One runner for each function, since a runner counts its cases over all runs.
        TestRunner::new(config.clone())
            .run(&choices, |choices| {
                **calls.borrow_mut() += 1;
                let result = call(name, function, &choices, &mut source.borrow_mut());
                prop_assert!(result.name().is_some(), "{name} answers {result:?}");
                prop_assert!(result != UR_RESULT_ERROR_UNKNOWN, "{name} panicked");
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(calls >= 241 * 64, "{calls}");
}
