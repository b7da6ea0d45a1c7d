//! Launches through the driver's two launch functions.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::test_context::{TestContext, stream_of};
use crate::cu::{Api, Code, launch_of};

const ITEMS: usize = 24;

/// Launches a kernel that writes the numbers from `first` on, and reads them.
fn numbers(
    api: &Api,
    test_context: &TestContext,
    queue: ur_queue_handle_t,
    first: u32,
) -> Vec<u32> {
    let (mut context, mut module, mut function) = (null_mut(), null_mut(), null_mut());
    let (to, text) = (test_context.memory, c".version 8.0");
    let params: [*mut c_void; 2] = [
        (&raw const to).cast_mut().cast(),
        (&raw const first).cast_mut().cast(),
    ];
    let stream = std::ptr::without_provenance_mut(stream_of(queue));
    let config = launch_of([2, 3, 1], [2, 1, 2], stream);
    // SAFETY: room for each handle; a live stream and function, and the function's parameters.
    let codes = unsafe {
        [
            (api.cuDevicePrimaryCtxRetain)(&mut context, 0),
            (api.cuCtxPushCurrent)(context),
            (api.cuModuleLoadDataEx)(&mut module, text.as_ptr().cast(), 0, null(), null()),
            (api.cuModuleGetFunction)(&mut function, module, c"iota".as_ptr()),
            api.launch(&config, function, params.as_ptr(), null()),
            (api.cuStreamSynchronize)(stream),
            (api.cuModuleUnload)(module),
            (api.cuCtxPopCurrent)(&mut context),
            (api.cuDevicePrimaryCtxRelease)(0),
        ]
    };
    assert_eq!(codes, [Code::SUCCESS; 9]);
    // SAFETY: the memory has this many numbers, and no command writes them any more.
    unsafe { std::slice::from_raw_parts(to.cast::<u32>(), ITEMS) }.to_vec()
}

#[test]
fn an_older_driver_launches_the_same_kernels() {
    alone(
        "tests::launch::an_older_driver_launches_the_same_kernels",
        || {
            let driver = FakeDriver::open();
            let test_context = TestContext::new(4096);
            let queue = test_context.queue(Default::default());
            let mut api = Api::find().expect("the scripted driver");
            for (first, called) in [(7, "cuLaunchKernelEx"), (100, "cuLaunchKernel")] {
                let calls = driver.calls(called, || {
                    let want: Vec<u32> = (first..).take(ITEMS).collect();
                    assert_eq!(numbers(&api, &test_context, queue, first), want, "{called}");
                });
                assert_eq!(calls, 1, "{called}");
                api.cuLaunchKernelEx = None;
            }
            assert_eq!(ur!(Queue.pfnRelease(queue)), UR_RESULT_SUCCESS);
            test_context.end(&driver);
        },
    );
}
