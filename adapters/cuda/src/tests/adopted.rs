//! Programs and kernels over the caller's modules and functions, and native handles of graphs.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::launching::{launch, number, pointer};
use super::test_context::TestContext;

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

/// A built program, its kernel, and the native handles of both.
struct Own {
    program: ur_program_handle_t,
    kernel: ur_kernel_handle_t,
    module: ur_native_handle_t,
    function: ur_native_handle_t,
}

fn own(test: &TestContext) -> Own {
    let (context, text) = (test.context, b".version 8.0");
    let (mut device, mut bytes, mut code) = (test.device, text.len(), text.as_ptr());
    let (mut program, mut kernel) = (null_mut(), null_mut());
    let (mut module, mut function) = (0, 0);
    ok(ur!(Program.pfnCreateWithBinary(
        context,
        1,
        &mut device,
        &mut bytes,
        &mut code,
        null(),
        &mut program
    )));
    ok(ur!(Program.pfnBuild(context, program, null())));
    ok(ur!(Kernel.pfnCreate(
        program,
        c"iota".as_ptr(),
        &mut kernel
    )));
    ok(ur!(Program.pfnGetNativeHandle(program, &mut module)));
    ok(ur!(Kernel.pfnGetNativeHandle(kernel, &mut function)));
    Own {
        program,
        kernel,
        module,
        function,
    }
}

/// Launches a kernel that writes numbers from one on, and returns the first two.
fn launched(test: &TestContext, kernel: ur_kernel_handle_t) -> [u32; 2] {
    let queue = test.queue(ur_queue_flags_t(0));
    let (global, first) = (8, 1_u32);
    let args = [pointer(0, test.memory), number(1, &first)];
    ok(launch(queue, kernel, global, &args, &[], null_mut()));
    ok(ur!(Queue.pfnFinish(queue)));
    ok(ur!(Queue.pfnRelease(queue)));
    // SAFETY: the context's memory is the host's, and the launch has ended.
    unsafe { test.memory.cast::<[u32; 2]>().read() }
}

#[test]
fn a_module_becomes_a_program() {
    alone("tests::adopted::a_module_becomes_a_program", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let own = own(&test);
        let (context, mut program, mut kernel) = (test.context, null_mut(), null_mut());
        let adopt = |native, program: &mut _| {
            ur!(Program.pfnCreateWithNativeHandle(native, context, null(), program))
        };
        assert_eq!(adopt(0, &mut program), UR_RESULT_ERROR_INVALID_PROGRAM);
        driver.fail_each("cuModuleGetGlobal", 400);
        assert_eq!(
            adopt(own.module, &mut program),
            UR_RESULT_ERROR_INVALID_VALUE
        );
        driver.reset();
        ok(adopt(own.module, &mut program));
        let built = ur!(Program.pfnBuild(context, program, null()));
        assert_eq!(built, UR_RESULT_ERROR_INVALID_OPERATION, "it has no code");
        ok(ur!(Kernel.pfnCreate(
            program,
            c"iota".as_ptr(),
            &mut kernel
        )));
        assert_eq!(launched(&test, kernel), [1, 2]);
        ok(ur!(Kernel.pfnRelease(kernel)));
        ok(ur!(Program.pfnRelease(program)));
        assert_eq!(
            launched(&test, own.kernel),
            [1, 2],
            "the module is still loaded"
        );
        ok(ur!(Kernel.pfnRelease(own.kernel)));
        ok(ur!(Program.pfnRelease(own.program)));
        test.end(&driver);
    });
}

#[test]
fn a_function_becomes_a_kernel() {
    alone("tests::adopted::a_function_becomes_a_kernel", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let (own, other) = (own(&test), own(&test));
        let (context, mut kernel) = (test.context, null_mut());
        let adopt = |native, program, kernel: &mut _| {
            ur!(Kernel.pfnCreateWithNativeHandle(native, context, program, null(), kernel))
        };
        let refused = adopt(0, own.program, &mut kernel);
        assert_eq!(refused, UR_RESULT_ERROR_INVALID_KERNEL);
        let refused = adopt(own.function, other.program, &mut kernel);
        assert_eq!(
            refused, UR_RESULT_ERROR_INVALID_PROGRAM,
            "of another module"
        );
        for program in [own.program, null_mut()] {
            ok(adopt(own.function, program, &mut kernel));
            let mut name = [0_u8; 5];
            let (what, to) = (UR_KERNEL_INFO_FUNCTION_NAME, name.as_mut_ptr().cast());
            ok(ur!(Kernel.pfnGetInfo(
                kernel,
                what,
                name.len(),
                to,
                null_mut()
            )));
            assert_eq!(&name, b"iota\0");
            assert_eq!(launched(&test, kernel), [1, 2]);
            ok(ur!(Kernel.pfnRelease(kernel)));
        }
        for call in ["cuFuncGetModule", "cuFuncGetName"] {
            driver.fail_each(call, 400);
            let refused = adopt(own.function, null_mut(), &mut kernel);
            assert_eq!(refused, UR_RESULT_ERROR_INVALID_VALUE, "{call}");
            driver.reset();
        }
        for own in [own, other] {
            ok(ur!(Kernel.pfnRelease(own.kernel)));
            ok(ur!(Program.pfnRelease(own.program)));
        }
        test.end(&driver);
    });
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// A graph of copies within the context's memory, and of a host task if `hosted`.
fn graph(test: &TestContext, copies: usize, hosted: bool) -> ur_exp_graph_handle_t {
    let queue = test.queue(ur_queue_flags_t(0));
    let (list, none, mut graph) = (null(), null_mut(), null_mut());
    ok(ur!(QueueExp.pfnBeginGraphCaptureExp(queue)));
    for at in 1..=copies {
        let (dst, src) = (test.at(64 * at), test.memory);
        ok(ur!(
            Enqueue.pfnUSMMemcpy(queue, 0, dst, src, 64, 0, list, none)
        ));
    }
    if hosted {
        let run = Some(nothing as _);
        ok(ur!(EnqueueExp.pfnHostTaskExp(
            queue,
            run,
            none.cast(),
            null(),
            0,
            list,
            none
        )));
    }
    ok(ur!(QueueExp.pfnEndGraphCaptureExp(queue, &mut graph)));
    ok(ur!(Queue.pfnRelease(queue)));
    graph
}

#[test]
fn graphs_have_native_handles() {
    alone("tests::adopted::graphs_have_native_handles", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        for (copies, hosted) in [(1, false), (3, false), (2, true)] {
            let (graph, mut executable) = (graph(&test, copies, hosted), null_mut());
            ok(ur!(GraphExp.pfnInstantiateGraphExp(graph, &mut executable)));
            let (mut first, mut second, mut ready) = (0, 0, 0);
            let codes = [
                ur!(GraphExp.pfnGetNativeHandleExp(graph, &mut first)),
                ur!(GraphExp.pfnGetNativeHandleExp(graph, &mut second)),
                ur!(GraphExp.pfnExecutableGraphGetNativeHandleExp(executable, &mut ready)),
            ];
            let want = match hosted {
                // The driver's graph has no host tasks of the adapter.
                true => UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
                false => UR_RESULT_SUCCESS,
            };
            assert_eq!(codes, [want; 3], "{copies} copies, {hosted}");
            assert_eq!(first, second, "made once");
            assert_eq!(first != 0 && ready != 0 && first != ready, !hosted);
            ok(ur!(GraphExp.pfnExecutableGraphDestroyExp(executable)));
            ok(ur!(GraphExp.pfnDestroyExp(graph)));
        }
        test.end(&driver);
    });
}
