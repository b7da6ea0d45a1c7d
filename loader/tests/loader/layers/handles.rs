//! Leak checking and lifetime validation.

use std::ffi::c_void;
use std::ptr::null;

use ur::abi::*;

use crate::application::{Application, Strict, call, strict};
use crate::common::{loader, null as null_mut};

const OK: ur_result_t = UR_RESULT_SUCCESS;

#[test]
fn leaks_are_listed_with_their_origin() {
    let log = strict(
        "layers::handles::scenario_leaks",
        "UR_LAYER_LEAK_CHECKING",
        &[],
    );
    let leaks: Vec<&str> = log.lines().filter(|line| line.contains("leak: ")).collect();
    assert_eq!(leaks.len(), 2, "{log}");
    assert!(
        leaks[0].contains("leak: queue 0x")
            && leaks[0].ends_with(", 2nd of urQueueCreate, has 2 references"),
        "{log}"
    );
    assert!(
        leaks[1].contains("leak: event 0x")
            && leaks[1].ends_with(", 1st of urEnqueueEventsWait, has 1 reference"),
        "{log}"
    );
    let place = "    loader::layers::handles::leave_a_queue";
    assert!(
        log.contains(place),
        "no frame of the application first:\n{log}"
    );
    assert!(log.contains("]: leaked: 2 handles\n"), "{log}");
    assert!(
        log.contains("urEventRelease: event 0x") && log.contains("was not returned by any adapter"),
        "{log}"
    );
}

#[inline(never)]
fn leave_a_queue(app: &Application) -> ur_queue_handle_t {
    app.queue(ur_queue_flags_t(0))
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_leaks() {
    let app = Application::init();
    let queue = leave_a_queue(&app);
    assert_eq!(call!(app.all, Queue.pfnRetain(queue)), OK);
    let mut context: ur_context_handle_t = null_mut();
    let result = call!(
        app.all,
        Queue.pfnGetInfo(
            queue,
            UR_QUEUE_INFO_CONTEXT,
            8,
            (&raw mut context).cast(),
            null_mut()
        )
    );
    assert_eq!(
        (result, context),
        (OK, app.context),
        "asked, not referenced"
    );
    app.event();
    // Leak checking reports the error and forwards the call.
    let released = call!(app.all, Event.pfnRelease(null_mut()));
    assert_eq!(released, UR_RESULT_ERROR_INVALID_NULL_HANDLE);
    let object = non_handle();
    let released = call!(app.all, Event.pfnRelease(object.as_ptr().cast_mut().cast()));
    assert_eq!(released, UR_RESULT_ERROR_UNINITIALIZED, "its table is null");
    app.end();
}

#[test]
fn memory_that_is_never_freed_is_a_leak() {
    let log = strict(
        "layers::handles::scenario_memory",
        "UR_LAYER_LEAK_CHECKING",
        &[],
    );
    let leaks: Vec<&str> = log.lines().filter(|line| line.contains("leak: ")).collect();
    let expected = [
        (
            "leak: never freed: 48 bytes of device memory at 0x",
            ", 1st of urUSMDeviceAlloc, on device 0x",
        ),
        (
            "leak: never freed: 64 bytes of device memory at 0x",
            ", 3rd of urUSMDeviceAlloc, on device 0x",
        ),
        (
            "leak: never freed: 32 bytes of shared memory at 0x",
            ", 1st of urEnqueueUSMSharedAllocExp, on queue 0x",
        ),
    ];
    assert_eq!(leaks.len(), expected.len(), "{log}");
    for (leak, (start, maker)) in leaks.iter().zip(expected) {
        let is_it = leak.contains(start) && leak.contains(maker);
        assert!(is_it && leak.contains(" in context 0x"), "{leak}\n{log}");
    }
    let place = "    loader::layers::handles::leave_memory";
    assert!(log.contains(place), "no frame of the application:\n{log}");
    assert!(
        log.contains("]: leaked: 3 allocations (144 bytes)\n"),
        "{log}"
    );
}

#[inline(never)]
fn leave_memory(app: &Application) -> *mut c_void {
    app.usm(64)
}

/// Memory that is freed in each way, and memory that is not. strict.c returns the address of freed
/// memory for the next allocation of its size.
#[test]
#[ignore = "runs in a child process"]
fn scenario_memory() {
    let app = Application::init();
    let all = app.all;
    let (pool, none) = (null_mut(), null_mut());
    let mut context = null_mut();
    let made = call!(all, Context.pfnCreate(1, &app.device, null(), &mut context));
    assert_eq!(made, OK);
    let mut orphan = null_mut();
    let results = [
        call!(
            all,
            USM.pfnDeviceAlloc(context, app.device, null(), pool, 48, &mut orphan)
        ),
        call!(all, Context.pfnRelease(context)),
    ];
    assert_eq!(results, [OK; 2]);

    let freed = app.usm(64);
    assert_eq!(call!(all, USM.pfnFree(app.context, freed)), OK);
    let kept = leave_memory(&app);
    assert_eq!(kept, freed, "an address that comes again");
    // A free that the adapter refuses frees nothing.
    Strict::open().fail_release();
    let refused = call!(all, USM.pfnFree(app.context, kept));
    assert_eq!(refused, UR_RESULT_ERROR_OUT_OF_RESOURCES);

    let alloc = |size| {
        let mut block = null_mut();
        let (properties, list) = (null(), null());
        let made = call!(
            all,
            EnqueueExp
                .pfnUSMSharedAllocExp(app.queue, pool, size, properties, 0, list, &mut block, none)
        );
        assert_eq!(made, OK);
        block
    };
    alloc(32);
    let block = alloc(128);
    let freed = call!(
        all,
        EnqueueExp.pfnUSMFreeExp(app.queue, pool, block, 0, null(), none)
    );
    assert_eq!(freed, OK);
    app.end();
}

/// Memory that is no handle, with null in place of a table.
fn non_handle() -> [usize; 8] {
    [0; 8]
}

#[test]
fn a_program_without_leaks_gets_no_report() {
    for layers in ["UR_LAYER_LEAK_CHECKING", "UR_LAYER_FULL_VALIDATION"] {
        let log = strict("layers::handles::scenario_clean", layers, &[]);
        assert!(!log.contains("<VALIDATION>"), "{log}");
    }
    let log = strict(
        "layers::handles::scenario_clean",
        "UR_LAYER_LEAK_CHECKING",
        &[("UR_LOG_VALIDATION", "level:info")],
    );
    assert_eq!(log.matches("nothing is leaked").count(), 2, "{log}");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_clean() {
    // Runs twice: the second initialisation starts without handles.
    for _ in 0..2 {
        let app = Application::init();
        let event = app.event();
        // The list is longer than the number of devices, and has no count.
        let mut list = [null_mut::<ur_device_handle_t_>().cast(); 3];
        let any = UR_DEVICE_TYPE_ALL;
        let results = [
            call!(
                app.all,
                Device.pfnGet(app.platform, any, 3, list.as_mut_ptr(), null_mut())
            ),
            call!(app.all, Device.pfnRelease(list[0])),
            call!(app.all, Event.pfnRetain(event)),
            call!(app.all, Event.pfnRelease(event)),
            call!(app.all, Event.pfnRelease(event)),
        ];
        assert_eq!(results, [OK; 5]);
        app.end();
        assert_eq!(Strict::open().live(), 0);
    }
}

#[test]
fn dead_and_unknown_handles_are_refused() {
    let log = strict(
        "layers::handles::scenario_dead",
        "UR_LAYER_LIFETIME_VALIDATION",
        &[],
    );
    for part in [
        "urQueueFinish: queue 0x",
        ", 2nd of urQueueCreate in ",
        ", was released for the last time by urQueueRelease in loader::layers::handles::scenario_dead",
        "urEnqueueEventsWait: event 0x",
        "urQueueGetInfo: queue 0x",
        "was not returned by any adapter",
        "urQueueGetInfo: context 0x",
        ", 1st of urContextCreate in loader::",
        ", is passed as a handle of another kind: queue",
        "is released, but the application has no reference to it",
        "urKernelSetArgLocal: kernel 0x",
        "urEnqueueKernelLaunchWithArgsExp: memory object 0x",
    ] {
        assert!(log.contains(part), "{part} is not in\n{log}");
    }
    assert!(!log.contains("leaked"), "{log}");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_dead() {
    let app = Application::init();
    let all = app.all;
    let (dead, event) = (app.queue(ur_queue_flags_t(0)), app.event());
    assert_eq!(call!(all, Queue.pfnRelease(dead)), OK);
    let finish = |queue| call!(all, Queue.pfnFinish(queue));
    assert_eq!(finish(dead), UR_RESULT_ERROR_INVALID_QUEUE);
    assert_eq!(
        call!(all, Queue.pfnRelease(dead)),
        UR_RESULT_ERROR_INVALID_QUEUE
    );
    assert_eq!(
        call!(all, Queue.pfnRetain(dead)),
        UR_RESULT_ERROR_INVALID_QUEUE
    );

    // Dead handles in a list, and as an argument after a live queue.
    assert_eq!(call!(all, Event.pfnRelease(event)), OK);
    let wait = call!(all, Enqueue.pfnEventsWait(app.queue, 1, &event, null_mut()));
    assert_eq!(wait, UR_RESULT_ERROR_INVALID_EVENT);

    // An unknown handle, a pointer to zeros, and a handle of another kind.
    let unknown = non_handle();
    let mut size = 0;
    let mut query = |queue: *const c_void| {
        let info = UR_QUEUE_INFO_CONTEXT;
        call!(
            all,
            Queue.pfnGetInfo(queue.cast_mut().cast(), info, 0, null_mut(), &mut size)
        )
    };
    for queue in [
        unknown.as_ptr().cast(),
        std::ptr::without_provenance(8),
        std::ptr::without_provenance(usize::MAX),
        app.context.cast_const().cast(),
    ] {
        assert_eq!(query(queue), UR_RESULT_ERROR_INVALID_QUEUE);
    }

    lent(&app);
    failed_release(&app);
    kernels(&app);
    app.end();
}

/// A handle without a reference is alive as long as the object whose query returned it.
fn lent(app: &Application) {
    let all = app.all;
    let queue = app.queue(ur_queue_flags_t(0));
    let mut event = null_mut();
    let results = [
        call!(all, Enqueue.pfnEventsWait(queue, 0, null(), &mut event)),
        call!(all, Queue.pfnRelease(queue)),
    ];
    assert_eq!(results, [OK; 2]);
    let finish = |queue| call!(all, Queue.pfnFinish(queue));
    assert_eq!(finish(queue), UR_RESULT_ERROR_INVALID_QUEUE, "not told yet");
    let mut queried: ur_queue_handle_t = null_mut();
    let what = UR_EVENT_INFO_COMMAND_QUEUE;
    let to = (&raw mut queried).cast();
    let query = call!(all, Event.pfnGetInfo(event, what, 8, to, null_mut()));
    assert_eq!((query, queried), (OK, queue));
    assert_eq!(finish(queried), OK);
    assert_eq!(
        call!(all, Queue.pfnRelease(queried)),
        UR_RESULT_ERROR_INVALID_QUEUE,
        "the reference is not the application's"
    );
    assert_eq!(call!(all, Queue.pfnRetain(queried)), OK);
    assert_eq!(call!(all, Queue.pfnRelease(queried)), OK);
    assert_eq!(finish(queried), OK);
    assert_eq!(call!(all, Event.pfnRelease(event)), OK);
    assert_eq!(finish(queried), UR_RESULT_ERROR_INVALID_QUEUE);
}

/// A release that the adapter refuses does not count.
fn failed_release(app: &Application) {
    let all = app.all;
    let event = app.event();
    Strict::open().fail_release();
    let results = [
        call!(all, Event.pfnRelease(event)),
        call!(all, Event.pfnWait(1, &event)),
        call!(all, Event.pfnRelease(event)),
        call!(all, Event.pfnWait(1, &event)),
    ];
    let failed = UR_RESULT_ERROR_OUT_OF_RESOURCES;
    assert_eq!(results, [failed, OK, OK, UR_RESULT_ERROR_INVALID_EVENT]);
}

/// Functions outside of the tables, and objects among a kernel's arguments.
fn kernels(app: &Application) {
    let all = app.all;
    let kernel = app.kernel();
    let memory = app.buffer(64);
    let argument = ur_exp_kernel_arg_properties_t {
        r#type: UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ,
        size: 8,
        value: ur_exp_kernel_arg_value_t {
            memObjTuple: ur_exp_kernel_arg_mem_obj_tuple_t {
                hMem: memory,
                flags: UR_MEM_FLAG_READ_WRITE,
            },
        },
        ..ur_exp_kernel_arg_properties_t::default()
    };
    let launch = || {
        let size = 1;
        call!(
            all,
            EnqueueExp.pfnKernelLaunchWithArgsExp(
                app.queue,
                kernel,
                1,
                null(),
                &size,
                null(),
                1,
                &argument,
                null(),
                0,
                null(),
                null_mut()
            )
        )
    };
    assert_eq!(launch(), OK);
    assert_eq!(call!(all, Mem.pfnRelease(memory)), OK);
    assert_eq!(launch(), UR_RESULT_ERROR_INVALID_MEM_OBJECT);
    let set = || {
        // SAFETY: the layer refuses invalid handles.
        unsafe { (loader().urKernelSetArgLocal)(kernel, 0, 8, null()) }
    };
    assert_eq!(set(), OK);
    assert_eq!(call!(all, Kernel.pfnRelease(kernel)), OK);
    assert_eq!(set(), UR_RESULT_ERROR_INVALID_KERNEL);
}

#[test]
fn messages_have_the_applications_location() {
    let log = strict("layers::handles::scenario_place", "", &[]);
    for part in [
        "(called at main.sycl:42:7 in submit)",
        ", 2nd of urQueueCreate at main.sycl:42:7 in submit, was released for the last time by \
         urQueueRelease at main.sycl:42:7 in submit",
        ", 1st of urEnqueueEventsWait at main.sycl:42:7 in submit, has 1 reference",
        ", 1st of urEnqueueUSMSharedAllocExp, on queue 0x",
        " at main.sycl:50:7 in submit\n",
        "race: urEnqueueUSMFill (command 1 of queue 0x",
        ") at main.sycl:50:7 in submit allocates 64 bytes at 0x",
        " (it returned no event) (called at main.sycl:51:7 in submit)",
    ] {
        assert!(log.contains(part), "{part} is not in\n{log}");
    }
}

unsafe extern "C" fn place(line: *mut c_void) -> ur_code_location_t {
    ur_code_location_t {
        functionName: c"submit".as_ptr(),
        sourceFile: c"main.sycl".as_ptr(),
        // SAFETY: the scenario passes a pointer to a number.
        lineNumber: unsafe { *line.cast::<u32>() },
        columnNumber: 7,
    }
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_place() {
    let loader = loader();
    let mut line = 42u32;
    let mut config = null_mut();
    // SAFETY: the configuration is live until its release; the callback's argument outlives the
    // teardown.
    let results = unsafe {
        [
            (loader.urLoaderConfigCreate)(&mut config),
            (loader.urLoaderConfigEnableLayer)(config, c"UR_LAYER_FULL_VALIDATION".as_ptr()),
            (loader.urLoaderConfigSetCodeLocationCallback)(
                config,
                Some(place),
                (&raw mut line).cast(),
            ),
            (loader.urLoaderInit)(ur_device_init_flags_t(0), config),
            (loader.urLoaderConfigRelease)(config),
        ]
    };
    assert_eq!(results, [OK; 5]);
    let app = Application::new();
    let queue = app.queue(ur_queue_flags_t(0));
    assert_eq!(call!(app.all, Queue.pfnRelease(queue)), OK);
    assert_eq!(
        call!(app.all, Queue.pfnFinish(queue)),
        UR_RESULT_ERROR_INVALID_QUEUE
    );
    app.event();
    race(&app, &raw mut line);
    app.end();
}

/// Allocates on one queue in line 50, and fills the memory on another queue in line 51.
fn race(app: &Application, line: *mut u32) {
    let all = app.all;
    let other = app.queue(ur_queue_flags_t(0));
    let (mut block, none) = (null_mut(), null_mut());
    let (pool, properties, list, pattern) = (null_mut(), null(), null(), 0u8);
    let pattern: *const c_void = (&raw const pattern).cast();
    let at = |number| {
        // SAFETY: the caller's variable, which the callback reads on this thread only.
        unsafe { line.write(number) }
    };
    at(50);
    let made = call!(
        all,
        EnqueueExp.pfnUSMSharedAllocExp(app.queue, pool, 64, properties, 0, list, &mut block, none)
    );
    at(51);
    let filled = call!(
        all,
        Enqueue.pfnUSMFill(other, block, 1, pattern, 64, 0, null(), none)
    );
    at(52);
    let results = [made, filled, call!(all, Queue.pfnRelease(other))];
    assert_eq!(results, [OK; 3]);
}
