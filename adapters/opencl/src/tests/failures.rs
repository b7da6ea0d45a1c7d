//! Commands that fail when their turn comes, at any place, on either kind of queue: every failure is
//! told, once by a wait that covers it, and by the events of what depends on it.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use opencl_sys::CL_OUT_OF_RESOURCES;
use ur::abi::*;

use super::stage::{Stage, adapter, alone, device, ur};

const COUNT: usize = 5;
const BYTES: usize = 64 << 10;
const FAILED: ur_result_t = UR_RESULT_ERROR_IN_EVENT_LIST_EXEC_STATUS;

struct Scene {
    stage: Stage,
    device: ur_device_handle_t,
    context: ur_context_handle_t,
    queue: ur_queue_handle_t,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Scene {
    fn new(flags: ur_queue_flags_t) -> Self {
        let stage = Stage::open();
        stage.calm();
        let device = device(adapter().expect("an adapter"));
        let (mut context, mut queue) = (null_mut(), null_mut());
        let code = ur!(Context.pfnCreate(1, &device, null(), &mut context));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let properties = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let code = ur!(Queue.pfnCreate(context, device, &properties, &mut queue));
        assert_eq!(code, UR_RESULT_SUCCESS);
        Self {
            stage,
            device,
            context,
            queue,
            from: vec![7; BYTES],
            to: vec![0; COUNT * BYTES],
        }
    }

    /// Copies to one place, as a command; its event if that is wanted.
    fn copy(&mut self, at: usize, wanted: bool) -> Option<ur_event_handle_t> {
        let mut event = null_mut();
        let code = ur!(Enqueue.pfnUSMMemcpy(
            self.queue,
            0,
            self.to[at * BYTES..].as_mut_ptr().cast::<c_void>(),
            self.from.as_ptr().cast(),
            BYTES,
            0,
            null(),
            if wanted { &mut event } else { null_mut() }
        ));
        assert_eq!(code, UR_RESULT_SUCCESS);
        wanted.then_some(event)
    }

    fn ran(&self, at: usize) -> bool {
        self.to[at * BYTES] == 7
    }

    fn end(self) {
        assert_eq!(ur!(Queue.pfnRelease(self.queue)), UR_RESULT_SUCCESS);
        assert_eq!(ur!(Context.pfnRelease(self.context)), UR_RESULT_SUCCESS);
        self.stage.check_end("at the end");
    }
}

/// What the driver runs is over by the time that the next command is given to it.
#[test]
fn a_failed_command_is_told_at_any_place() {
    alone(
        "tests::failures::a_failed_command_is_told_at_any_place",
        &[],
        || {
            let flags = [
                ur_queue_flags_t(0),
                UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
            ];
            for (flags, wanted) in flags
                .into_iter()
                .flat_map(|one| [(one, true), (one, false)])
            {
                for place in 0..COUNT {
                    for by_device in [false, true] {
                        one(flags, wanted, place, by_device);
                    }
                }
            }
        },
    );
}

fn one(flags: ur_queue_flags_t, wanted: bool, place: usize, by_device: bool) {
    let in_order = flags == ur_queue_flags_t(0);
    let what = format!("in order {in_order}, an event {wanted}, {place}, device {by_device}");
    let mut scene = Scene::new(flags);
    scene
        .stage
        .fail_command(place as u64 + 1, CL_OUT_OF_RESOURCES);
    let events: Vec<_> = (0..COUNT).filter_map(|at| scene.copy(at, wanted)).collect();
    let (queue, device) = (scene.queue, scene.device);
    let wait = || match by_device {
        true => ur!(DeviceExp.pfnWaitExp(device)),
        false => ur!(Queue.pfnFinish(queue)),
    };
    assert_eq!(wait(), FAILED, "{what}");
    assert_eq!(wait(), UR_RESULT_SUCCESS, "{what}");
    for at in 0..COUNT {
        let right = if in_order { at < place } else { at != place };
        assert_eq!(scene.ran(at), right, "{at}: {what}");
        if let Some(event) = events.get(at) {
            let code = ur!(Event.pfnWait(1, event));
            assert_eq!(code == UR_RESULT_SUCCESS, right, "{at}: {what}");
        }
    }
    scene.to.fill(0);
    scene.copy(0, false);
    assert_eq!(wait(), UR_RESULT_SUCCESS, "{what}");
    assert!(scene.ran(0), "{what}");
    for event in events {
        assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
    }
    scene.end();
}
