//! Memory that the driver reports as another device's, whose context the adapter has not retained.

use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::test_context::TestContext;

const BYTES: usize = 4096;

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
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
