//! Memory of one device used by commands of another one in the context: an unsupported feature, whatever the
//! command.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};
use super::test_context::TestContext;

const BYTES: usize = 4096;

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

struct Fixture {
    context: ur_context_handle_t,
    queue: ur_queue_handle_t,
    buffer: ur_mem_handle_t,
    commands: ur_exp_command_buffer_handle_t,
    host: *mut c_void,
}

const REGION: ur_rect_region_t = ur_rect_region_t {
    width: 8,
    height: 2,
    depth: 1,
};

const ORIGIN: ur_rect_offset_t = ur_rect_offset_t { x: 0, y: 0, z: 0 };

impl Fixture {
    /// The result of each command on that memory.
    fn answers(&self, memory: *mut c_void) -> Vec<(&'static str, ur_result_t)> {
        let (q, host, none) = (self.queue, self.host, null_mut());
        let (buffer, list, flat) = (self.buffer, null(), (ORIGIN, ORIGIN, REGION, 8, 0, 8, 0));
        let (inside, outside, region, row, slice, other_row, other_slice) = flat;
        let pattern = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        let from = pattern.as_ptr().cast();
        let (cb, to) = (self.commands, null_mut());
        vec![
            (
                "copy to",
                ur!(Enqueue.pfnUSMMemcpy(q, 0, memory, host, 64, 0, list, none)),
            ),
            (
                "copy from",
                ur!(Enqueue.pfnUSMMemcpy(q, 1, host, memory, 64, 0, list, none)),
            ),
            (
                "fill",
                ur!(Enqueue.pfnUSMFill(q, memory, 1, from, 64, 0, list, none)),
            ),
            (
                "fill of eight",
                ur!(Enqueue.pfnUSMFill(q, memory, 8, from, 64, 0, list, none)),
            ),
            (
                "fill of rows",
                ur!(Enqueue.pfnUSMFill2D(q, memory, 8, 1, from, 8, 2, 0, list, none)),
            ),
            (
                "rows to",
                ur!(Enqueue.pfnUSMMemcpy2D(q, 0, memory, 8, host, 8, 8, 2, 0, list, none)),
            ),
            (
                "rows from",
                ur!(Enqueue.pfnUSMMemcpy2D(q, 0, host, 8, memory, 8, 8, 2, 0, list, none)),
            ),
            (
                "read",
                ur!(Enqueue.pfnMemBufferRead(q, buffer, 0, 0, 64, memory, 0, list, none)),
            ),
            (
                "write",
                ur!(Enqueue.pfnMemBufferWrite(q, buffer, 0, 0, 64, memory, 0, list, none)),
            ),
            (
                "box read",
                ur!(Enqueue.pfnMemBufferReadRect(
                    q,
                    buffer,
                    0,
                    inside,
                    outside,
                    region,
                    row,
                    slice,
                    other_row,
                    other_slice,
                    memory,
                    0,
                    list,
                    none
                )),
            ),
            (
                "box write",
                ur!(Enqueue.pfnMemBufferWriteRect(
                    q,
                    buffer,
                    0,
                    inside,
                    outside,
                    region,
                    row,
                    slice,
                    other_row,
                    other_slice,
                    memory,
                    0,
                    list,
                    none
                )),
            ),
            (
                "recorded copy",
                ur!(CommandBufferExp.pfnAppendUSMMemcpyExp(
                    cb,
                    host,
                    memory,
                    64,
                    0,
                    null(),
                    0,
                    list,
                    to,
                    none,
                    null_mut()
                )),
            ),
            (
                "recorded fill",
                ur!(CommandBufferExp.pfnAppendUSMFillExp(
                    cb,
                    memory,
                    from,
                    1,
                    64,
                    0,
                    null(),
                    0,
                    list,
                    to,
                    none,
                    null_mut()
                )),
            ),
            (
                "recorded read",
                ur!(CommandBufferExp.pfnAppendMemBufferReadExp(
                    cb,
                    buffer,
                    0,
                    64,
                    memory,
                    0,
                    null(),
                    0,
                    list,
                    to,
                    none,
                    null_mut()
                )),
            ),
        ]
    }

    /// Checks the result of each command, several times.
    fn check(&self, memory: *mut c_void, code: ur_result_t, whose: &str) {
        for _ in 0..2 {
            for (name, answer) in self.answers(memory) {
                assert_eq!(answer, code, "{name} of {whose}");
            }
        }
        ok(ur!(Queue.pfnFinish(self.queue)));
    }
}

#[test]
fn memory_of_another_device_is_unsupported() {
    let name = "tests::other_devices::memory_of_another_device_is_unsupported";
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        let adapter = adapter();
        let all = devices(adapter);
        let (mut context, mut host) = (null_mut(), null_mut());
        ok(ur!(Context.pfnCreate(
            2,
            all.as_ptr(),
            null(),
            &mut context
        )));
        ok(ur!(USM.pfnHostAlloc(
            context,
            null(),
            null_mut(),
            BYTES,
            &mut host
        )));
        let places = [0, 1].map(|at: usize| {
            let (mut queue, mut buffer, mut commands) = (null_mut(), null_mut(), null_mut());
            ok(ur!(Queue.pfnCreate(context, all[at], null(), &mut queue)));
            let flags = UR_MEM_FLAG_READ_WRITE;
            ok(ur!(Mem.pfnBufferCreate(
                context,
                flags,
                BYTES,
                null(),
                &mut buffer
            )));
            let what = ur_exp_command_buffer_desc_t::default();
            let new = &mut commands;
            ok(ur!(
                CommandBufferExp.pfnCreateExp(context, all[at], &what, new)
            ));
            Fixture {
                context,
                queue,
                buffer,
                commands,
                host,
            }
        });
        let mut fixed = [null_mut(); 2];
        let mut ordered = [null_mut(); 2];
        for at in [0, 1] {
            let (pool, none, to) = (null_mut(), null_mut(), &mut fixed[at]);
            ok(ur!(USM.pfnDeviceAlloc(
                context,
                all[at],
                null(),
                pool,
                BYTES,
                to
            )));
            let (queue, to) = (places[at].queue, &mut ordered[at]);
            ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
                queue,
                pool,
                BYTES,
                null(),
                0,
                null(),
                to,
                none
            )));
            ok(ur!(Queue.pfnFinish(queue)));
        }
        for (at, fixture) in places.iter().enumerate() {
            let (own, other) = (at, 1 - at);
            for memory in [&fixed, &ordered] {
                fixture.check(memory[own], UR_RESULT_SUCCESS, "its own");
                fixture.check(
                    memory[other],
                    UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
                    "the other",
                );
                fixture.check(memory[own], UR_RESULT_SUCCESS, "its own again");
            }
            // Hints may have no effect.
            let (q, memory, none) = (fixture.queue, fixed[other], null_mut());
            let flags = ur_usm_migration_flags_t(0);
            ok(ur!(Enqueue.pfnUSMPrefetch(
                q,
                memory,
                64,
                flags,
                0,
                null(),
                none
            )));
            let advice = UR_USM_ADVICE_FLAG_SET_READ_MOSTLY;
            ok(ur!(Enqueue.pfnUSMAdvise(q, memory, 64, advice, none)));
        }
        let both = ur!(USMExp.pfnContextMemcpyExp(context, fixed[0], fixed[1], 64));
        assert_eq!(both, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        ok(ur!(
            USMExp.pfnContextMemcpyExp(context, fixed[1], ordered[1], 64)
        ));
        for (at, fixture) in places.iter().enumerate() {
            let (queue, none) = (fixture.queue, null_mut());
            ok(ur!(EnqueueExp.pfnUSMFreeExp(
                queue,
                none,
                ordered[at],
                0,
                null(),
                null_mut()
            )));
            ok(ur!(Queue.pfnFinish(queue)));
            ok(ur!(USM.pfnFree(fixture.context, fixed[at])));
            ok(ur!(CommandBufferExp.pfnReleaseExp(fixture.commands)));
            ok(ur!(Mem.pfnRelease(fixture.buffer)));
            ok(ur!(Queue.pfnRelease(queue)));
        }
        ok(ur!(USM.pfnFree(context, host)));
        ok(ur!(Context.pfnRelease(context)));
        ok(ur!(Adapter.pfnRelease(adapter)));
        driver.check_end("the end");
    });
}

/// The driver reports memory unknown to the adapter by refusing a command.
///
/// A command that it refuses for another reason keeps its error.
#[test]
fn the_driver_reports_other_memory() {
    let name = "tests::other_devices::the_driver_reports_other_memory";
    alone(name, || {
        let driver = FakeDriver::open();
        for anywhere in [false, true] {
            driver.anywhere(anywhere);
            let test_context = TestContext::new(BYTES);
            let (away, host) = (test_context.at(1024), test_context.memory);
            driver.elsewhere(away, 1024);
            let (queue, none) = (test_context.queue(Default::default()), null_mut());
            let pattern = [1_u8, 2, 3, 4];
            let from = pattern.as_ptr().cast();
            let answers = |memory| {
                [
                    ur!(Enqueue.pfnUSMMemcpy(queue, 0, memory, host, 64, 0, null(), none)),
                    ur!(Enqueue.pfnUSMMemcpy(queue, 0, host, memory, 64, 0, null(), none)),
                    ur!(Enqueue.pfnUSMFill(queue, memory, 1, from, 64, 0, null(), none)),
                    ur!(Enqueue.pfnUSMFill(queue, memory, 2, from, 62, 0, null(), none)),
                    ur!(Enqueue.pfnUSMFill(queue, memory, 4, from, 64, 0, null(), none)),
                    ur!(Enqueue.pfnUSMFill2D(queue, memory, 16, 1, from, 8, 2, 0, null(), none)),
                    ur!(Enqueue.pfnUSMMemcpy2D(
                        queue,
                        0,
                        memory,
                        8,
                        host,
                        8,
                        8,
                        2,
                        0,
                        null(),
                        none
                    )),
                    ur!(Enqueue.pfnUSMMemcpy2D(
                        queue,
                        0,
                        host,
                        8,
                        memory,
                        8,
                        8,
                        2,
                        0,
                        null(),
                        none
                    )),
                ]
            };
            assert_eq!(answers(test_context.at(2048)), [UR_RESULT_SUCCESS; 8]);
            assert_eq!(answers(away), [UR_RESULT_ERROR_UNSUPPORTED_FEATURE; 8]);
            driver.elsewhere(null_mut(), 0);
            driver.fail_each("cuMemcpyAsync", 1);
            let here = test_context.at(2048);
            let code = ur!(Enqueue.pfnUSMMemcpy(queue, 0, here, host, 64, 0, null(), none));
            assert_eq!(code, UR_RESULT_ERROR_INVALID_VALUE);
            driver.reset();
            ok(ur!(Queue.pfnFinish(queue)));
            ok(ur!(Queue.pfnRelease(queue)));
            test_context.end(&driver);
        }
    });
}
