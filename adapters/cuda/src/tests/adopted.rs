//! Programs, kernels and buffers over the caller's modules, functions and memory, and native handles of graphs.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::foreign::Foreign;
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
    let (program, kernel) = test.kernel(c"iota");
    let (mut module, mut function) = (0, 0);
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

static CALLED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn counts(_: *mut c_void) {
    CALLED.fetch_add(1, Ordering::Relaxed);
}

/// Sets the context's memory.
fn fill(test: &TestContext, byte: u8) {
    // SAFETY: memory of that size, which no pending command uses.
    unsafe { test.memory.cast::<u8>().write_bytes(byte, 4096) };
}

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
        let run = Some(counts as _);
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
        let foreign = Foreign::new();
        let stream = foreign.stream();
        for (copies, hosted) in [(1, false), (3, false), (2, true)] {
            fill(&test, 0);
            // SAFETY: the first bytes of the context's memory, which the graph copies.
            unsafe { test.memory.cast::<u8>().write_bytes(9, 64) };
            let (graph, mut executable) = (graph(&test, copies, hosted), null_mut());
            ok(ur!(GraphExp.pfnInstantiateGraphExp(graph, &mut executable)));
            let (mut first, mut second, mut ready) = (0, 0, 0);
            let codes = [
                ur!(GraphExp.pfnGetNativeHandleExp(graph, &mut first)),
                ur!(GraphExp.pfnGetNativeHandleExp(graph, &mut second)),
                ur!(GraphExp.pfnExecutableGraphGetNativeHandleExp(executable, &mut ready)),
            ];
            assert_eq!(codes, [UR_RESULT_SUCCESS; 3], "{copies} copies, {hosted}");
            assert_eq!(first, second, "made once");
            assert!(first != 0 && ready != 0 && first != ready);
            let called = CALLED.swap(0, Ordering::Relaxed);
            foreign.run_made(ready, stream);
            // SAFETY: the context's memory is the host's, and the graph has ended.
            let last = unsafe { test.at(64 * copies).cast::<u8>().read() };
            let calls = CALLED.load(Ordering::Relaxed);
            assert_eq!((called, calls, last), (0, u32::from(hosted), 9));
            fill(&test, 3);
            ok(ur!(GraphExp.pfnExecutableGraphDestroyExp(executable)));
            ok(ur!(GraphExp.pfnDestroyExp(graph)));
        }
        foreign.destroy(stream);
        foreign.end_use();
        test.end(&driver);
    });
}

/// A buffer over memory, its size, and what its first bytes are after they were set by a command.
fn buffer_over(
    test: &TestContext,
    native: usize,
    owned: bool,
) -> Result<(ur_mem_handle_t, usize, u8), ur_result_t> {
    let (context, mut buffer) = (test.context, null_mut());
    let what = ur_mem_native_properties_t {
        isNativeHandleOwned: owned.into(),
        ..Default::default()
    };
    match ur!(Mem.pfnBufferCreateWithNativeHandle(native, context, &what, &mut buffer)) {
        UR_RESULT_SUCCESS => {}
        code => return Err(code),
    }
    let (mut size, mut again) = (0_usize, 0);
    let to = (&raw mut size).cast();
    ok(ur!(Mem.pfnGetInfo(
        buffer,
        UR_MEM_INFO_SIZE,
        size_of::<usize>(),
        to,
        null_mut()
    )));
    ok(ur!(Mem.pfnGetNativeHandle(buffer, test.device, &mut again)));
    assert_eq!(again, native);
    let queue = test.queue(ur_queue_flags_t(0));
    let (byte, list, none) = (7_u8, null(), null_mut());
    let from = (&raw const byte).cast();
    ok(ur!(Enqueue.pfnMemBufferFill(
        queue, buffer, from, 1, 0, size, 0, list, none
    )));
    ok(ur!(Queue.pfnFinish(queue)));
    ok(ur!(Queue.pfnRelease(queue)));
    let start: *const u8 = std::ptr::with_exposed_provenance(native);
    // SAFETY: the fake driver's memory is the host's, and the fill has ended.
    Ok((buffer, size, unsafe { start.add(size - 1).read() }))
}

#[test]
fn memory_becomes_a_buffer() {
    alone("tests::adopted::memory_becomes_a_buffer", || {
        let driver = FakeDriver::open();
        let test = TestContext::new(4096);
        let foreign = Foreign::new();
        let invalid = Some(UR_RESULT_ERROR_INVALID_VALUE);
        let release = |buffer| ok(ur!(Mem.pfnRelease(buffer)));
        // The driver's own memory, and USM of the context.
        let own = foreign.alloc(4096);
        let (mut usm, device) = (null_mut(), test.device);
        let none = null_mut();
        ok(ur!(USM.pfnDeviceAlloc(
            test.context,
            device,
            null(),
            none,
            1000,
            &mut usm
        )));
        let usm = usm.expose_provenance();
        for (native, bytes) in [(own, 4096), (own + 96, 4000), (usm, 1000), (usm + 8, 992)] {
            let (buffer, size, byte) = buffer_over(&test, native, false).expect("a buffer");
            assert_eq!((size, byte), (bytes, 7));
            release(buffer);
        }
        // Memory that nobody knows, that was freed, or that is not the driver's to free.
        for (native, owned) in [(0, false), (1 << 20, false), (own + 96, true), (usm, true)] {
            assert_eq!(
                buffer_over(&test, native, owned).err(),
                invalid,
                "{native:x}"
            );
        }
        ok(ur!(USM.pfnFree(
            test.context,
            std::ptr::with_exposed_provenance_mut(usm)
        )));
        assert_eq!(buffer_over(&test, usm, false).err(), invalid);
        let given = foreign.alloc(64);
        let (buffer, size, byte) = buffer_over(&test, given, true).expect("a buffer");
        assert_eq!((size, byte), (64, 7));
        release(buffer);
        foreign.free(own);
        foreign.end_use();
        // The buffer has freed the memory that it was given.
        test.end(&driver);
    });
}
