//! Every generated shim, driven with random arguments over a backend that offers nothing: null and
//! foreign handles, handles of the wrong kind, lists with and without counts, any number for any
//! enum, flag or size. Nothing may crash, and whatever comes back is a result that C knows.
//!
//! Memory that is passed is readable and writable, as the interface asks; its content is zero, so
//! that embedded pointers are null and strings end.

#[rustfmt::skip]
#[allow(non_snake_case, clippy::undocumented_unsafe_blocks)]
#[path = "generated/sweep.rs"]
mod sweep;

use proptest::prelude::*;
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

/// Where the arguments of a call come from.
pub trait Source {
    /// A number for an enum, a flag set, a size or an index.
    fn number(&mut self) -> u64;
    /// How many elements a list has.
    fn count(&mut self) -> u32;
    /// A handle: null, of some kind, or of another adapter.
    fn handle(&mut self) -> *mut c_void;
    /// A list of at least as many handles as `count` gives, or null.
    fn list(&mut self) -> *mut c_void;
    /// Null, or readable and writable memory.
    fn memory(&mut self) -> *mut c_void;
}

/// Arguments by a list of random choices, used round and round.
struct Choices<'a> {
    choices: &'a [u32],
    at: usize,
    world: &'a mut World,
}

/// What arguments can point to.
struct World {
    handles: Vec<*mut c_void>,
    lists: Vec<[*mut c_void; 4]>,
    memory: Box<[u64]>,
}

/// Numbers at the edges of what fields hold.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    3,
    4,
    7,
    64,
    4096,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 60,
    u64::MAX,
];
const MOST: u32 = 4;

impl World {
    fn new() -> Self {
        let foreign_table: &'static ur_dditable_t = Box::leak(Box::default());
        let foreign: &'static [*const c_void; 8] =
            Box::leak(Box::new([std::ptr::from_ref(foreign_table).cast(); 8]));
        let mut handles = handles();
        handles.push(std::ptr::null_mut());
        handles.push(foreign.as_ptr().cast_mut().cast());
        let mut lists: Vec<_> = handles
            .iter()
            .map(|&handle| [handle; MOST as usize])
            .collect();
        lists.push([handles[0], handles[1], std::ptr::null_mut(), handles[3]]);
        Self {
            handles,
            lists,
            memory: vec![0; 1 << 13].into_boxed_slice(),
        }
    }
}

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
        self.pick(MOST as usize + 1) as u32
    }

    fn handle(&mut self) -> *mut c_void {
        let at = self.pick(self.world.handles.len());
        self.world.handles[at]
    }

    fn list(&mut self) -> *mut c_void {
        let at = self.pick(self.world.lists.len() + 1);
        self.world
            .lists
            .get_mut(at)
            .map_or(std::ptr::null_mut(), |list| list.as_mut_ptr().cast())
    }

    fn memory(&mut self) -> *mut c_void {
        if self.pick(4) == 0 {
            std::ptr::null_mut()
        } else {
            self.world.memory.as_mut_ptr().cast()
        }
    }
}

fn call(name: &str, call: sweep::Call, choices: &[u32], world: &mut World) -> ur_result_t {
    world.memory.fill(0);
    let mut source = Choices {
        choices,
        at: 0,
        world,
    };
    let table = <Null as hal::Exported>::table();
    let result = call(table, &mut source);
    result.unwrap_or_else(|| panic!("{name}: an adapter of ours has an empty slot"))
}

#[test]
fn every_function_refuses_nothing_at_all() {
    let mut world = World::new();
    assert_eq!(sweep::CALLS.len(), 241);
    let null = world.handles.len() as u32 - 2;
    for &(name, function) in sweep::CALLS {
        // The choice that makes every handle null, whatever it makes of the rest.
        let result = call(name, function, &[null], &mut world);
        let fine = name == "urAdapterGet";
        assert!(
            fine || result != UR_RESULT_SUCCESS,
            "{name} takes a null handle"
        );
    }
}

/// The handle kinds' own errors, and the errors of checks, are all that a shim may answer here.
#[test]
fn random_arguments_are_answered_by_a_result() {
    let mut world = World::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        ..ProptestConfig::default()
    });
    for &(name, function) in sweep::CALLS {
        let choices = proptest::collection::vec(any::<u32>(), 1..24);
        let world = std::cell::RefCell::new(&mut world);
        runner
            .run(&choices, |choices| {
                let result = call(name, function, &choices, &mut world.borrow_mut());
                prop_assert!(result.name().is_some(), "{name} answers {result:?}");
                prop_assert!(result != UR_RESULT_ERROR_UNKNOWN, "{name} panicked");
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
