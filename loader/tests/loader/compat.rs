//! The functions that 2026.2 dropped, over an adapter that has only current functions.

use std::ffi::CStr;

use ur::abi::*;

use crate::common::{Fake, Loader, build_adapter, child, directory, loader, null};

#[test]
fn arguments_set_one_by_one_reach_the_launch() {
    let adapter = build_adapter(&directory("compat").join("a.so"), &[]);
    let variables = [
        ("UR_ADAPTERS_FORCE_LOAD", adapter.as_str()),
        ("TEST_ADAPTER", &adapter),
    ];
    child("compat::scenario_launch", &variables);
    child("compat::scenario_lifetime", &variables);
    child("compat::scenario_bad_arguments", &variables);
    child("compat::scenario_threads", &variables);
}

struct Fixture {
    loader: &'static Loader,
    fake: Fake,
}

impl Fixture {
    fn start() -> Fixture {
        let loader = loader();
        assert_eq!(loader.init(), UR_RESULT_SUCCESS);
        let fake = Fake::open(&std::env::var("TEST_ADAPTER").expect("set by the parent"));
        assert_eq!(loader.adapters(1).1.len(), 1);
        Fixture { loader, fake }
    }

    fn kernel(&self, name: &CStr) -> ur_kernel_handle_t {
        let mut kernel = std::ptr::null_mut();
        let program = self.fake.queue().cast();
        // SAFETY: adapter.c accepts any object with a table as a program.
        let result = unsafe { (self.loader.urKernelCreate)(program, name.as_ptr(), &mut kernel) };
        assert_eq!(result, UR_RESULT_SUCCESS);
        kernel
    }

    fn value(&self, kernel: ur_kernel_handle_t, index: u32, bytes: &[u8]) {
        // SAFETY: the size is that of `bytes`.
        let result = unsafe {
            (self.loader.urKernelSetArgValue)(
                kernel,
                index,
                bytes.len(),
                std::ptr::null(),
                bytes.as_ptr().cast(),
            )
        };
        assert_eq!(result, UR_RESULT_SUCCESS);
    }

    fn launch(&self, kernel: ur_kernel_handle_t) -> String {
        let size = 7;
        // SAFETY: adapter.c accepts any object with a table as a queue.
        let result = unsafe {
            (self.loader.urEnqueueKernelLaunch)(
                self.fake.queue(),
                kernel,
                1,
                std::ptr::null(),
                &size,
                std::ptr::null(),
                std::ptr::null(),
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
        assert_eq!(result, UR_RESULT_SUCCESS);
        self.fake.last_launch()
    }

    fn append(&self, kernel: ur_kernel_handle_t) -> (String, u32) {
        let (size, mut point) = (7, 0);
        // SAFETY: adapter.c accepts any object with a table as a command buffer.
        let result = unsafe {
            (self.loader.urCommandBufferAppendKernelLaunchExp)(
                self.fake.queue().cast(),
                kernel,
                1,
                null(),
                &size,
                null(),
                0,
                null(),
                0,
                null(),
                0,
                null(),
                &mut point,
                null(),
                null(),
            )
        };
        assert_eq!(result, UR_RESULT_SUCCESS);
        (self.fake.last_launch(), point)
    }

    fn suggest(&self, kernel: ur_kernel_handle_t, global: usize) -> (String, usize) {
        let mut local = 0;
        // SAFETY: the sizes have one dimension.
        let result = unsafe {
            (self.loader.urKernelGetSuggestedLocalWorkSize)(
                kernel,
                self.fake.queue(),
                1,
                std::ptr::null(),
                &global,
                &mut local,
            )
        };
        assert_eq!(result, UR_RESULT_SUCCESS);
        (self.fake.last_launch(), local)
    }
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_launch() {
    let fixture = Fixture::start();
    let kernel = fixture.kernel(c"k0");
    assert_eq!(
        fixture.launch(kernel),
        "launch k0 0 null:",
        "a kernel may have no argument"
    );
    assert_eq!(
        fixture.append(kernel),
        ("plain append k0 0 null:".to_owned(), 41)
    );
    assert_eq!(
        fixture.suggest(kernel, 7),
        ("plain suggest k0 0 null:".to_owned(), 1)
    );

    let mut bytes = [1, 2, 3];
    fixture.value(kernel, 4, &bytes);
    bytes.fill(9);
    let loader = fixture.loader;
    let read_only = ur_kernel_arg_mem_obj_properties_t {
        memoryAccess: UR_MEM_FLAG_READ_ONLY,
        ..ur_kernel_arg_mem_obj_properties_t::default()
    };
    let address = std::ptr::without_provenance_mut::<u8>;
    // SAFETY: the kernel is live; adapter.c dereferences no other handle.
    let results = unsafe {
        [
            (loader.urKernelSetArgPointer)(kernel, 0, std::ptr::null(), address(0xab00).cast()),
            (loader.urKernelSetArgPointer)(kernel, 3, std::ptr::null(), null()),
            (loader.urKernelSetArgLocal)(kernel, 2, 4096, std::ptr::null()),
            (loader.urKernelSetArgSampler)(kernel, 5, std::ptr::null(), address(0x5a).cast()),
            (loader.urKernelSetArgMemObj)(kernel, 1, std::ptr::null(), address(0xee).cast()),
            (loader.urKernelSetArgMemObj)(kernel, 6, &read_only, address(0xef).cast()),
        ]
    };
    assert_eq!(results, [UR_RESULT_SUCCESS; 6]);
    let all = "k0 7: p0=ab00 m1=ee/1 l2=4096 p3=0 v4=010203 s5=5a m6=ef/4";
    assert_eq!(fixture.launch(kernel), format!("launch {all}"));
    assert_eq!(
        fixture.launch(kernel),
        format!("launch {all}"),
        "arguments persist"
    );
    fixture.value(kernel, 4, &[7; 17]);
    let all = all.replace("010203", &"07".repeat(17));
    assert_eq!(fixture.append(kernel), (format!("append {all}"), 42));
    assert_eq!(fixture.suggest(kernel, 7), (format!("suggest {all}"), 2));
    assert_eq!(
        fixture.suggest(kernel, 99),
        ("plain suggest k0 0 null:".to_owned(), 1)
    );
    let other = fixture.kernel(c"k1");
    assert_eq!(fixture.append(other).0, "plain append k1 0 null:");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_lifetime() {
    let fixture = Fixture::start();
    let retain = fixture.loader.urKernelRetain;
    let release = fixture.loader.urKernelRelease;
    let kernel = fixture.kernel(c"k0");
    let other = fixture.kernel(c"k1");
    // SAFETY: the kernel has as many references as are released.
    unsafe {
        // References from before the first argument count as well.
        assert_eq!(retain(kernel), UR_RESULT_SUCCESS);
        fixture.value(kernel, 0, &[1]);
        fixture.value(other, 0, &[2]);
        assert_eq!(retain(kernel), UR_RESULT_SUCCESS);
        assert_eq!(release(kernel), UR_RESULT_SUCCESS);
        assert_eq!(release(kernel), UR_RESULT_SUCCESS);
        assert_eq!(fixture.launch(kernel), "launch k0 1: v0=01");
        assert_eq!(release(kernel), UR_RESULT_SUCCESS);
    }
    // adapter.c never frees objects, so that the dead kernel can be launched.
    assert_eq!(fixture.launch(kernel), "launch k0 0 null:");
    assert_eq!(fixture.launch(other), "launch k1 1: v0=02");
    // A new kernel has no arguments, even if the kernel before it was never released.
    assert_eq!(fixture.kernel(c"k1"), other);
    assert_eq!(fixture.launch(other), "launch k1 0 null:");
    // Arguments end with the loader's teardown.
    fixture.value(other, 0, &[3]);
    assert_eq!(fixture.loader.tear_down(), UR_RESULT_SUCCESS);
    assert_eq!(fixture.loader.init(), UR_RESULT_SUCCESS);
    assert_eq!(fixture.launch(other), "launch k1 0 null:");
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_bad_arguments() {
    let fixture = Fixture::start();
    let loader = fixture.loader;
    let kernel = fixture.kernel(c"k0");
    let byte = 0u8;
    let value = (&raw const byte).cast();
    let bad_flags = ur_kernel_arg_mem_obj_properties_t {
        memoryAccess: ur_mem_flags_t(UR_MEM_FLAGS_MASK),
        ..ur_kernel_arg_mem_obj_properties_t::default()
    };
    let queue = fixture.fake.queue();
    let launch = loader.urEnqueueKernelLaunch;
    // SAFETY: pointers are null or readable, handles null or live.
    unsafe {
        #[rustfmt::skip]
        let results = [
            ((loader.urKernelSetArgValue)(null(), 0, 1, null(), value), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            ((loader.urKernelSetArgValue)(kernel, 0, 1, null(), null()), UR_RESULT_ERROR_INVALID_NULL_POINTER),
            ((loader.urKernelSetArgValue)(kernel, 0, 0, null(), value), UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE),
            ((loader.urKernelSetArgValue)(kernel, 0, usize::MAX, null(), value), UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE),
            ((loader.urKernelSetArgLocal)(null(), 0, 1, null()), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            ((loader.urKernelSetArgPointer)(null(), 0, null(), value), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            ((loader.urKernelSetArgSampler)(null(), 0, null(), null()), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            ((loader.urKernelSetArgSampler)(kernel, 0, null(), null()), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            ((loader.urKernelSetArgMemObj)(null(), 0, null(), null()), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            ((loader.urKernelSetArgMemObj)(kernel, 0, &bad_flags, null()), UR_RESULT_ERROR_INVALID_ENUMERATION),
            (launch(null(), kernel, 1, null(), &7, null(), null(), 0, null(), null()), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (launch(queue, null(), 1, null(), &7, null(), null(), 0, null(), null()), UR_RESULT_ERROR_INVALID_NULL_HANDLE),
            (launch(queue, kernel, 1, null(), null(), null(), null(), 0, null(), null()), UR_RESULT_ERROR_INVALID_NULL_POINTER),
        ];
        for (at, (result, expected)) in results.into_iter().enumerate() {
            assert_eq!(result, expected, "call {at}");
        }
    }
    assert_eq!(
        fixture.launch(kernel),
        "launch k0 0 null:",
        "an error sets nothing"
    );
}

#[test]
#[ignore = "runs in a child process"]
fn scenario_threads() {
    let fixture = Fixture::start();
    let kernel = fixture.kernel(c"k0").expose_provenance();
    let address = || std::ptr::with_exposed_provenance_mut::<ur_kernel_handle_t_>(kernel);
    let loader = fixture.loader;
    std::thread::scope(|scope| {
        for index in 0..8u32 {
            scope.spawn(move || {
                for size in 1..200usize {
                    // SAFETY: the kernel lives until the threads have ended.
                    let result = unsafe {
                        (loader.urKernelSetArgLocal)(address(), index, size, std::ptr::null())
                    };
                    assert_eq!(result, UR_RESULT_SUCCESS);
                }
            });
        }
    });
    let locals: String = (0..8).map(|index| format!(" l{index}=199")).collect();
    assert_eq!(fixture.launch(address()), format!("launch k0 8:{locals}"));
}
