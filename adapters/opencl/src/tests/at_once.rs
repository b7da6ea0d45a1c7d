//! Commands that the host runs itself on devices that share its memory, and the conditions that forbid it.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, Sender, channel};

use scripted_opencl::Shape;
use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, device, ur};

/// Bytes of a copy that the host makes, and of one that it leaves to the device.
const SMALL: usize = 64;
const LARGE: usize = 64 << 10;

struct Fixture {
    driver: FakeDriver,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
}

impl Fixture {
    fn new(shared_addresses: bool) -> Self {
        let driver = FakeDriver::open();
        driver.shape(Shape {
            shared_addresses,
            ..Shape::default()
        });
        let device = device(adapter().expect("an adapter"));
        let mut context = null_mut();
        let code = ur!(Context.pfnCreate(1, &device, null(), &mut context));
        assert_eq!(code, UR_RESULT_SUCCESS);
        Self {
            driver,
            context,
            device,
        }
    }

    fn queue(&self, flags: ur_queue_flags_t) -> ur_queue_handle_t {
        let properties = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let mut queue = null_mut();
        let code = ur!(Queue.pfnCreate(self.context, self.device, &properties, &mut queue));
        assert_eq!(code, UR_RESULT_SUCCESS);
        queue
    }

    /// Copies, and returns the number of OpenCL calls and the data in the target.
    fn copy(
        &self,
        queue: ur_queue_handle_t,
        bytes: usize,
        waits: &[ur_event_handle_t],
    ) -> (u64, Vec<u8>) {
        let (from, mut to) = (vec![7u8; bytes], vec![0u8; bytes]);
        self.driver.reset();
        let code = ur!(Enqueue.pfnUSMMemcpy(
            queue,
            0,
            to.as_mut_ptr().cast(),
            from.as_ptr().cast(),
            bytes,
            waits.len() as u32,
            if waits.is_empty() {
                null()
            } else {
                waits.as_ptr()
            },
            null_mut()
        ));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let calls = self.driver.query().calls;
        // Memory that the device may still write is left to the device.
        let seen = to.clone();
        std::mem::forget((from, to));
        (calls, seen)
    }

    fn finish(&self, queue: ur_queue_handle_t) {
        assert_eq!(ur!(Queue.pfnFinish(queue)), UR_RESULT_SUCCESS);
    }

    fn end(self, queues: &[ur_queue_handle_t]) {
        for queue in queues {
            assert_eq!(ur!(Queue.pfnRelease(*queue)), UR_RESULT_SUCCESS);
        }
        assert_eq!(ur!(Context.pfnRelease(self.context)), UR_RESULT_SUCCESS);
        self.driver.check_end("at the end");
    }
}

#[test]
fn an_idle_queue_copies_little_without_the_driver() {
    alone(
        "tests::at_once::an_idle_queue_copies_little_without_the_driver",
        &[],
        || {
            let fixture = Fixture::new(true);
            let queues = [0, UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE.0]
                .map(|flags| fixture.queue(ur_queue_flags_t(flags)));
            for queue in queues {
                // An out-of-order queue makes its first lane.
                fixture.copy(queue, SMALL, &[]);
                assert_eq!(fixture.copy(queue, SMALL, &[]), (0, vec![7; SMALL]));
                assert!(
                    fixture.copy(queue, LARGE, &[]).0 > 0,
                    "the driver copies much"
                );
            }
            // The completion of the long copy has not been observed.
            assert!(
                fixture.copy(queues[0], SMALL, &[]).0 > 0,
                "behind the driver's"
            );
            fixture.finish(queues[0]);
            assert_eq!(fixture.copy(queues[0], SMALL, &[]), (0, vec![7; SMALL]));
            fixture.end(&queues);
        },
    );
}

#[test]
fn times_and_other_memory_use_the_driver() {
    alone(
        "tests::at_once::times_and_other_memory_use_the_driver",
        &[],
        || {
            let fixture = Fixture::new(false);
            let queue = fixture.queue(ur_queue_flags_t(0));
            assert!(fixture.copy(queue, SMALL, &[]).0 > 0, "memory of its own");
            fixture.finish(queue);
            fixture.end(&[queue]);
        },
    );
}

unsafe extern "C" fn until_signalled(receiver: *mut c_void) {
    // SAFETY: the test waits for the task, so the receiver outlives it.
    let receiver = unsafe { &*receiver.cast::<Receiver<()>>() };
    receiver.recv().expect("the test tells");
}

#[test]
fn no_copy_runs_before_its_dependencies() {
    alone(
        "tests::at_once::no_copy_runs_before_its_dependencies",
        &[],
        || {
            let fixture = Fixture::new(true);
            let queues = [(); 2].map(|()| fixture.queue(ur_queue_flags_t(0)));
            let (report, receiver): (Sender<()>, Receiver<()>) = channel();
            let mut event = null_mut();
            let code = ur!(EnqueueExp.pfnHostTaskExp(
                queues[0],
                Some(until_signalled),
                (&raw const receiver).cast_mut().cast(),
                null(),
                0,
                null(),
                &mut event
            ));
            assert_eq!(code, UR_RESULT_SUCCESS);
            for (queue, waits) in [(queues[0], &[][..]), (queues[1], &[event])] {
                let (_, seen) = fixture.copy(queue, SMALL, waits);
                assert_eq!(seen, [0; SMALL], "not yet");
            }
            report.send(()).expect("the task listens");
            queues.into_iter().for_each(|queue| fixture.finish(queue));
            assert_eq!(
                fixture.copy(queues[1], SMALL, &[event]),
                (0, vec![7; SMALL])
            );
            assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
            fixture.end(&queues);
        },
    );
}
