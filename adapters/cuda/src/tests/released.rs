//! What programs release while commands use it. Commands are held back by the device or by the host meanwhile, and the
//! driver destroys nothing before their end.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::{null, null_mut};

use scripted::{close_gate, open_gate, pass_gate};
use ur::abi::*;

use super::bindless::{self, INTO, RGBA8, TO_DEVICE, copy, image, region};
use super::external::{self, OPAQUE, TIMELINE, import, import_semaphore, place};
use super::fake_driver::{FakeDriver, alone, ur};
use super::launching::{self, launch, pointer};
use super::test_context::{TestContext, built};

fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

/// What holds a queue back.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A wait of the device for another interface: what comes behind is submitted.
    Device,
    /// A host task: what comes behind is not submitted.
    Host,
}

/// A queue that is held back.
struct Held<'a> {
    driver: &'a FakeDriver,
    test: TestContext,
    queue: ur_queue_handle_t,
    semaphore: ur_exp_external_semaphore_handle_t,
    file: OwnedFd,
}

const BYTES: usize = 4096;

impl<'a> Held<'a> {
    fn new(driver: &'a FakeDriver, by: By) -> Self {
        let test = TestContext::new(BYTES);
        let queue = test.queue(ur_queue_flags_t(0));
        let file = driver.semaphore(true);
        let again = file.try_clone().expect("a second descriptor");
        let semaphore = import_semaphore(place(&test), again, TIMELINE).expect("a semaphore");
        close_gate();
        match by {
            By::Device => external::end(&[external::wait(queue, semaphore, Some(1), &[])]),
            By::Host => {
                let (run, none) = (Some(pass_gate as _), null_mut());
                ok(ur!(EnqueueExp.pfnHostTaskExp(
                    queue,
                    run,
                    none,
                    null(),
                    0,
                    null(),
                    null_mut()
                )));
            }
        }
        Self {
            driver,
            test,
            queue,
            semaphore,
            file,
        }
    }

    fn program(&self) -> ur_program_handle_t {
        let text = b".version 8.0\n.visible .global .align 8 .b8 ur_variable[16] = {1, 2};\n\0";
        built(self.test.context, self.test.device, text)
    }

    /// Calls of a function that destroys, while `release` runs.
    fn destroyed(&self, name: &str, release: impl FnOnce()) -> u64 {
        self.driver.calls(name, release)
    }
}

/// Runs a test in a process of its own, with commands held back either way.
fn held(name: &str, run: impl Fn(&Held<'_>)) {
    alone(&format!("tests::released::{name}"), || {
        let driver = FakeDriver::open();
        for by in [By::Device, By::Host] {
            println!("{by:?}");
            let all = Held::new(&driver, by);
            run(&all);
            open_gate();
            driver.set_semaphore(&all.file, 1);
            ok(ur!(Queue.pfnFinish(all.queue)));
            ok(external::release_semaphore(place(&all.test), all.semaphore));
            ok(ur!(Queue.pfnRelease(all.queue)));
            all.test.end(&driver);
        }
    });
}

#[test]
fn image_memory_serves_its_copies() {
    held("image_memory_serves_its_copies", |all| {
        let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 1);
        let own = bindless::allocate(&all.test, &RGBA8, &desc).expect("memory");
        let (from, whole) = (all.test.at(0), region([0; 3], [0; 3], [8, 4, 1]));
        let ends = ((from.expose_provenance(), &desc), (own, &desc));
        ok(copy(all.queue, ends.0, ends.1, &whole, (TO_DEVICE, INTO)));
        let free = || ok(bindless::free(&all.test, own));
        assert_eq!(all.destroyed("cuArrayDestroy", free), 0);
    });
}

#[test]
fn a_mipmap_serves_copies_of_its_levels() {
    held("a_mipmap_serves_copies_of_its_levels", |all| {
        let desc = image(UR_MEM_TYPE_IMAGE2D, [8, 4, 0], 3);
        let own = bindless::allocate(&all.test, &RGBA8, &desc).expect("memory");
        let ((context, device), mut level) = (place(&all.test), 0);
        ok(ur!(
            BindlessImagesExp.pfnMipmapGetLevelExp(context, device, own, 1, &mut level)
        ));
        let small = image(UR_MEM_TYPE_IMAGE2D, [4, 2, 0], 1);
        let (from, whole) = (all.test.at(0), region([0; 3], [0; 3], [4, 2, 1]));
        let ends = ((from.expose_provenance(), &small), (level, &small));
        ok(copy(all.queue, ends.0, ends.1, &whole, (TO_DEVICE, INTO)));
        let free = || ok(bindless::free_mipmap(&all.test, own));
        assert_eq!(all.destroyed("cuMipmappedArrayDestroy", free), 0);
    });
}

/// The numbers of images that kernels take.
#[test]
fn images_serve_their_kernels() {
    held("images_serve_their_kernels", |all| {
        let desc = image(UR_MEM_TYPE_IMAGE1D, [8, 0, 0], 1);
        let own = bindless::allocate(&all.test, &RGBA8, &desc).expect("memory");
        let surface = bindless::unsampled(&all.test, own, &desc).expect("an image");
        let texture = bindless::sampled(&all.test, own, &desc).expect("an image");
        let (program, mut kernels, value) = (all.program(), [null_mut(); 2], 3_u32);
        for (kernel, name) in kernels.iter_mut().zip([c"paint", c"texels"]) {
            ok(ur!(Kernel.pfnCreate(program, name.as_ptr(), kernel)));
        }
        let number = |of: usize| std::ptr::with_exposed_provenance_mut(of);
        let paint = [pointer(0, number(surface)), launching::number(1, &value)];
        ok(launch(all.queue, kernels[0], 8, &paint, &[], null_mut()));
        let read = [pointer(0, all.test.at(0)), pointer(1, number(texture))];
        ok(launch(all.queue, kernels[1], 8, &read, &[], null_mut()));
        let end = || ok(bindless::end_sampled(&all.test, texture));
        assert_eq!(all.destroyed("cuTexObjectDestroy", end), 0);
        let end = || ok(bindless::end_unsampled(&all.test, surface));
        assert_eq!(all.destroyed("cuSurfObjectDestroy", end), 0);
        let free = || ok(bindless::free(&all.test, own));
        assert_eq!(all.destroyed("cuArrayDestroy", free), 0);
        for kernel in kernels {
            ok(ur!(Kernel.pfnRelease(kernel)));
        }
        let end = || ok(ur!(Program.pfnRelease(program)));
        assert_eq!(all.destroyed("cuModuleUnload", end), 0);
    });
}

#[test]
fn a_mapping_serves_its_commands() {
    held("a_mapping_serves_its_commands", |all| {
        let here = place(&all.test);
        let file = all.driver.external_memory(BYTES);
        let memory = import(here, file, BYTES, OPAQUE).expect("memory");
        let at = external::map(here, memory, 0, BYTES as u64).expect("a mapping");
        fill(all.queue, at);
        let end = || {
            ok(external::free(here, at));
            ok(external::release(here, memory));
        };
        assert_eq!(all.destroyed("cuMemFree", end), 0);
        assert_eq!(all.driver.query().broken, 0, "{}", all.driver.report());
    });
}

fn fill(queue: ur_queue_handle_t, at: *mut c_void) {
    let (byte, none) = (7_u8, null_mut());
    let from = (&raw const byte).cast();
    ok(ur!(Enqueue.pfnUSMFill(
        queue,
        at,
        1,
        from,
        BYTES,
        0,
        null(),
        none
    )));
}

#[test]
fn a_semaphore_serves_its_commands() {
    held("a_semaphore_serves_its_commands", |all| {
        let here = place(&all.test);
        let semaphore = import_semaphore(here, all.driver.semaphore(true), TIMELINE);
        let semaphore = semaphore.expect("a semaphore");
        external::end(&[external::signal(all.queue, semaphore, Some(5), &[])]);
        let end = || ok(external::release_semaphore(here, semaphore));
        assert_eq!(all.destroyed("cuDestroyExternalSemaphore", end), 0);
    });
}

#[test]
fn exportable_memory_serves_its_commands() {
    held("exportable_memory_serves_its_commands", |all| {
        let ((context, device), mut at) = (place(&all.test), null_mut());
        ok(ur!(MemoryExportExp.pfnAllocExportableMemoryExp(
            context, device, 0, BYTES, OPAQUE, &mut at
        )));
        fill(all.queue, at);
        let end = || {
            ok(ur!(
                MemoryExportExp.pfnFreeExportableMemoryExp(context, device, at)
            ));
        };
        assert_eq!(all.destroyed("cuMemUnmap", end), 0);
    });
}

/// A copy to a program's variable, and a new build of the program.
#[test]
fn a_program_serves_its_variables() {
    held("a_program_serves_its_variables", |all| {
        let program = all.program();
        let (from, name) = (all.test.at(0), c"ur_variable".as_ptr());
        let (blocks, none) = (false as _, null_mut());
        let write = || {
            ok(ur!(Enqueue.pfnDeviceGlobalVariableWrite(
                all.queue,
                program,
                name,
                blocks,
                8,
                0,
                from,
                0,
                null(),
                none
            )));
        };
        write();
        let build = || ok(ur!(Program.pfnBuild(all.test.context, program, null())));
        assert_eq!(all.destroyed("cuModuleUnload", build), 0);
        write();
        let end = || ok(ur!(Program.pfnRelease(program)));
        assert_eq!(all.destroyed("cuModuleUnload", end), 0);
    });
}

/// Memory that another process could have allocated.
#[test]
fn opened_memory_serves_its_commands() {
    held("opened_memory_serves_its_commands", |all| {
        let ((context, device), none) = (place(&all.test), null_mut());
        let [mut memory, mut data, mut at] = [null_mut(); 3];
        let mut size = 0;
        ok(ur!(USM.pfnDeviceAlloc(
            context,
            device,
            null(),
            none,
            BYTES,
            &mut memory
        )));
        ok(ur!(
            IPCExp.pfnGetMemHandleExp(context, memory, &mut data, &mut size)
        ));
        ok(ur!(
            IPCExp.pfnOpenMemHandleExp(context, device, data, size, &mut at)
        ));
        fill(all.queue, at);
        let end = || ok(ur!(IPCExp.pfnCloseMemHandleExp(context, at)));
        assert_eq!(all.destroyed("cuMemUnmap", end), 0);
        ok(ur!(IPCExp.pfnPutMemHandleExp(context, data)));
        ok(ur!(USM.pfnFree(context, memory)));
    });
}
