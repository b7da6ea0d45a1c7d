//! Random programs over handles that are alive, dead, of another kind, or unknown. The layer must
//! answer as the reference counts require. No invalid handle may reach the adapter, which would
//! abort.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null;

use ur::abi::*;
use ur::object::Kind;

use crate::application::{Application, Strict, call, strict};
use crate::common::{loader, null as null_mut};

#[test]
fn nothing_bad_reaches_the_adapter() {
    for layers in ["UR_LAYER_FULL_VALIDATION", "UR_LAYER_LIFETIME_VALIDATION"] {
        strict(
            "layers::random::scenario",
            layers,
            &[("UR_LOG_VALIDATION", "level:quiet")],
        );
    }
}

#[test]
#[ignore = "runs in a child process"]
fn scenario() {
    for seed in 0..40 {
        let app = Application::init();
        let left = program(&app, seed);
        for (handle, (kind, references)) in left {
            for _ in 0..references {
                assert_eq!(
                    release(&app, kind, handle),
                    UR_RESULT_SUCCESS,
                    "seed {seed}"
                );
            }
        }
        app.end();
        assert_eq!(Strict::open().live(), 0, "seed {seed}");
    }
}

/// A small generator of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

type Handle = *mut c_void;

/// The number of the application's references, by handle.
type Owned = HashMap<Handle, (Kind, u32)>;

const KINDS: [Kind; 4] = [Kind::Queue, Kind::Event, Kind::Mem, Kind::Kernel];

fn program(app: &Application, seed: u64) -> Owned {
    let mut random = Random(seed);
    let mut owned = Owned::new();
    let noise = vec![0xa5a5_a5a5_a5a5_a5a5usize; 64];
    let mut known: Vec<Handle> = vec![
        app.context.cast(),
        app.device.cast(),
        noise.as_ptr().cast_mut().cast(),
        std::ptr::without_provenance_mut(1),
        std::ptr::without_provenance_mut(0xdead_0000),
    ];
    for step in 0..600 {
        let kind = KINDS[random.below(KINDS.len())];
        let handle = known[random.below(known.len())];
        let alive = owned.get(&handle).is_some_and(|(own, _)| *own == kind);
        let expected = if alive {
            UR_RESULT_SUCCESS
        } else {
            kind.invalid()
        };
        let (what, result) = match random.below(5) {
            0 => {
                let made = make(app, kind);
                assert!(
                    owned.insert(made, (kind, 1)).is_none(),
                    "seed {seed}, step {step}"
                );
                known.push(made);
                continue;
            }
            1 => ("release", release(app, kind, handle)),
            2 => ("retain", retain(app, kind, handle)),
            _ => ("use", touch(app, kind, handle, &mut random)),
        };
        assert_eq!(
            result, expected,
            "{what} of a {kind:?}, seed {seed}, step {step}"
        );
        if let (true, Some((_, references))) = (alive, owned.get_mut(&handle)) {
            match what {
                "retain" => *references += 1,
                "release" => *references -= 1,
                _ => {}
            }
        }
        owned.retain(|_, (_, references)| *references > 0);
    }
    owned
}

fn make(app: &Application, kind: Kind) -> Handle {
    match kind {
        Kind::Queue => app.queue(ur_queue_flags_t(0)).cast(),
        Kind::Event => app.event().cast(),
        Kind::Mem => app.buffer(64).cast(),
        _ => app.kernel().cast(),
    }
}

fn retain(app: &Application, kind: Kind, handle: Handle) -> ur_result_t {
    let all = app.all;
    match kind {
        Kind::Queue => call!(all, Queue.pfnRetain(handle.cast())),
        Kind::Event => call!(all, Event.pfnRetain(handle.cast())),
        Kind::Mem => call!(all, Mem.pfnRetain(handle.cast())),
        _ => call!(all, Kernel.pfnRetain(handle.cast())),
    }
}

fn release(app: &Application, kind: Kind, handle: Handle) -> ur_result_t {
    let all = app.all;
    match kind {
        Kind::Queue => call!(all, Queue.pfnRelease(handle.cast())),
        Kind::Event => call!(all, Event.pfnRelease(handle.cast())),
        Kind::Mem => call!(all, Mem.pfnRelease(handle.cast())),
        _ => call!(all, Kernel.pfnRelease(handle.cast())),
    }
}

/// A call that takes the handle as its first or a later argument.
fn touch(app: &Application, kind: Kind, handle: Handle, random: &mut Random) -> ur_result_t {
    let all = app.all;
    let mut host = 0u8;
    let to: *mut c_void = (&raw mut host).cast();
    match (kind, random.below(2)) {
        (Kind::Queue, 0) => call!(all, Queue.pfnFinish(handle.cast())),
        (Kind::Queue, _) => {
            call!(
                all,
                Enqueue.pfnEventsWait(handle.cast(), 0, null(), null_mut())
            )
        }
        (Kind::Event, 0) => call!(all, Event.pfnWait(1, &handle.cast())),
        (Kind::Event, _) => {
            let list: ur_event_handle_t = handle.cast();
            call!(all, Enqueue.pfnEventsWait(app.queue, 1, &list, null_mut()))
        }
        (Kind::Mem, _) => call!(
            all,
            Enqueue.pfnMemBufferRead(app.queue, handle.cast(), 0, 0, 1, to, 0, null(), null_mut())
        ),
        // SAFETY: the layer refuses invalid handles.
        (_, 0) => unsafe { (loader().urKernelSetArgLocal)(handle.cast(), 0, 8, null()) },
        (..) => {
            let size = 1usize;
            let kernel = handle.cast();
            call!(
                all,
                EnqueueExp.pfnKernelLaunchWithArgsExp(
                    app.queue,
                    kernel,
                    1,
                    null(),
                    &size,
                    null(),
                    0,
                    null(),
                    null(),
                    0,
                    null(),
                    null_mut()
                )
            )
        }
    }
}

#[test]
fn many_threads_at_once() {
    strict(
        "layers::random::scenario_threads",
        "UR_LAYER_FULL_VALIDATION",
        &[],
    );
}

/// Threads share a context and a queue. Each creates and releases objects of its own.
#[test]
#[ignore = "runs in a child process"]
fn scenario_threads() {
    let app = Application::init();
    let shared = (
        app.context.expose_provenance(),
        app.queue.expose_provenance(),
    );
    // strict.c has no locks, so that calls which change objects are serialised.
    let serial = std::sync::Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let all = crate::application::tables();
                let context = std::ptr::with_exposed_provenance_mut(shared.0);
                let queue: ur_queue_handle_t = std::ptr::with_exposed_provenance_mut(shared.1);
                for _ in 0..200 {
                    let serial = serial.lock().expect("no thread panicked");
                    let (mut event, mut memory) = (null_mut(), null_mut());
                    let flags = UR_MEM_FLAG_READ_WRITE;
                    let results = [
                        call!(all, Enqueue.pfnEventsWait(queue, 0, null(), &mut event)),
                        call!(
                            all,
                            Mem.pfnBufferCreate(context, flags, 64, null(), &mut memory)
                        ),
                        call!(all, Event.pfnWait(1, &event)),
                        call!(all, Event.pfnRelease(event)),
                        call!(all, Mem.pfnRelease(memory)),
                    ];
                    assert_eq!(results, [UR_RESULT_SUCCESS; 5]);
                    drop(serial);
                    // Calls that change nothing are made concurrently.
                    assert_eq!(call!(all, Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
                }
            });
        }
    });
    app.end();
}
