//! What programs release while commands use it. Commands are held back by the device or by the host meanwhile, and the
//! driver's aids tell of each object that is destroyed in use.

use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};

use scripted::{close_gate, open_gate, pass_gate};
use scripted_level_zero::{
    scripted_external_memory, scripted_semaphore, scripted_semaphore_count, scripted_semaphore_set,
};
use ur::abi::*;

use super::bindless::{
    INTO, ON_DEVICE, OPAQUE, RGBA8, TIMELINE, import, import_semaphore, nearest, number, owned,
};
use super::fake_driver::{alone, ur};
use super::reported::{Own, fill, ok, release};
use super::workload::{SIZE, Steps, arguments, host, iota};

/// What holds a queue back.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A wait of the device for another interface: what comes behind is submitted.
    Device,
    /// A host task on another queue: what comes behind is not submitted.
    Host,
}

/// A queue that is held back.
struct Held {
    own: Own,
    queue: ur_queue_handle_t,
    other: ur_queue_handle_t,
    semaphore: ur_exp_external_semaphore_handle_t,
    file: OwnedFd,
}

impl Held {
    fn new(by: By) -> Self {
        let own = Own::new();
        let [queue, other] = [0; 2].map(|device| own.queue(device, ur_queue_flags_t(0)));
        let file = owned(scripted_semaphore(true));
        let again = file.try_clone().expect("a second descriptor");
        let (code, semaphore) = import_semaphore((own.context, own.devices[0]), again, TIMELINE);
        ok(code);
        close_gate();
        match by {
            By::Device => ok(ur!(BindlessImagesExp.pfnWaitExternalSemaphoreExp(
                queue,
                semaphore,
                1,
                1,
                0,
                null(),
                null_mut()
            ))),
            By::Host => {
                let mut task = null_mut();
                let (run, none) = (Some(pass_gate as _), null_mut());
                ok(ur!(EnqueueExp.pfnHostTaskExp(
                    other,
                    run,
                    none,
                    null(),
                    0,
                    null(),
                    &mut task
                )));
                ok(ur!(Enqueue.pfnEventsWaitWithBarrier(
                    queue,
                    1,
                    &task,
                    null_mut()
                )));
                release(&[task]);
            }
        }
        Self {
            own,
            queue,
            other,
            semaphore,
            file,
        }
    }

    fn here(&self) -> (ur_context_handle_t, ur_device_handle_t) {
        (self.own.context, self.own.devices[0])
    }

    /// Lets the commands run.
    fn open(&self) {
        open_gate();
        scripted_semaphore_set(self.file.as_raw_fd(), 1);
        ok(ur!(Queue.pfnFinish(self.queue)));
    }

    fn end(self) {
        let (context, device) = self.here();
        let released =
            ur!(BindlessImagesExp.pfnReleaseExternalSemaphoreExp(context, device, self.semaphore));
        ok(released);
        self.own.end(&[self.queue, self.other]);
    }

    /// A launch of a kernel on memory, or on what has this number.
    fn launch(&self, kernel: ur_kernel_handle_t, with: *mut c_void) {
        let (zero, global, local, first) = (0_usize, 8_usize, 8_usize, 3_u32);
        let args = arguments(with, &first);
        ok(ur!(EnqueueExp.pfnKernelLaunchWithArgsExp(
            self.queue,
            kernel,
            1,
            &zero,
            &global,
            &local,
            2,
            args.as_ptr(),
            null(),
            0,
            null(),
            null_mut()
        )));
    }

    fn image(&self) -> usize {
        let ((context, device), mut image) = (self.here(), 0);
        ok(ur!(BindlessImagesExp.pfnImageAllocateExp(
            context, device, &RGBA8, &FLAT, &mut image
        )));
        image
    }

    fn free_image(&self, image: usize) {
        let (context, device) = self.here();
        ok(ur!(
            BindlessImagesExp.pfnImageFreeExp(context, device, image)
        ));
    }

    /// A copy of host memory to an image.
    fn copy(&self, image: usize) {
        let (from, to) = (host(30).cast(), number(image));
        let (desc, mut part) = (FLAT, whole());
        ok(ur!(BindlessImagesExp.pfnImageCopyExp(
            self.queue,
            from,
            to,
            &desc,
            &desc,
            &RGBA8,
            &RGBA8,
            &mut part,
            ON_DEVICE,
            INTO,
            0,
            null(),
            null_mut()
        )));
    }
}

const FLAT: ur_image_desc_t = ur_image_desc_t {
    stype: UR_STRUCTURE_TYPE_IMAGE_DESC,
    pNext: null(),
    r#type: UR_MEM_TYPE_IMAGE2D,
    width: 8,
    height: 4,
    depth: 0,
    arraySize: 0,
    rowPitch: 0,
    slicePitch: 0,
    numMipLevel: 1,
    numSamples: 0,
};

fn whole() -> ur_exp_image_copy_region_t {
    ur_exp_image_copy_region_t {
        copyExtent: ur_rect_region_t {
            width: 32,
            height: 4,
            depth: 1,
        },
        ..Default::default()
    }
}

/// Runs a test in a process of its own, with commands held back either way. `enqueue` enqueues them and releases what
/// they use; `check` looks after their end.
fn held(name: &str, enqueue: impl Fn(&Held), check: impl Fn(&Held)) {
    alone(&format!("tests::released::{name}"), || {
        for by in [By::Device, By::Host] {
            let all = Held::new(by);
            enqueue(&all);
            assert_eq!(
                all.own.driver.query().broken,
                0,
                "{by:?}: {}",
                all.own.driver.report()
            );
            all.open();
            check(&all);
            all.end();
        }
    });
}

#[test]
fn image_memory_serves_its_copies() {
    held(
        "image_memory_serves_its_copies",
        |all| {
            let image = all.image();
            all.copy(image);
            all.free_image(image);
        },
        |_| {},
    );
}

/// The numbers of images that kernels take.
#[test]
fn images_serve_their_kernels() {
    let made = |all: &Held| {
        let ((context, device), memory) = (all.here(), all.image());
        let (how, mut sampled, mut plain) = (nearest(), 0, 0);
        ok(ur!(BindlessImagesExp.pfnSampledImageCreateExp(
            context,
            device,
            memory,
            &RGBA8,
            &FLAT,
            &how,
            &mut sampled
        )));
        ok(ur!(BindlessImagesExp.pfnUnsampledImageCreateExp(
            context, device, memory, &RGBA8, &FLAT, &mut plain
        )));
        let (program, kernel) = iota(&mut Steps::default(), context);
        for image in [sampled, plain] {
            all.launch(kernel, number(image));
        }
        ok(ur!(
            BindlessImagesExp.pfnSampledImageHandleDestroyExp(context, device, sampled)
        ));
        ok(ur!(
            BindlessImagesExp.pfnUnsampledImageHandleDestroyExp(context, device, plain)
        ));
        all.free_image(memory);
        ok(ur!(Kernel.pfnRelease(kernel)));
        ok(ur!(Program.pfnRelease(program)));
    };
    held("images_serve_their_kernels", made, |_| {});
}

#[test]
fn a_mapping_serves_its_commands() {
    held(
        "a_mapping_serves_its_commands",
        |all| {
            let (context, device) = all.here();
            let file = owned(scripted_external_memory(SIZE));
            let (code, memory) = import((context, device), file, SIZE, OPAQUE);
            ok(code);
            let mut at = null_mut();
            ok(ur!(BindlessImagesExp.pfnMapExternalLinearMemoryExp(
                context,
                device,
                0,
                SIZE as u64,
                memory,
                &mut at
            )));
            release(&[fill(all.queue, at, 7, &[])]);
            ok(ur!(
                BindlessImagesExp.pfnFreeMappedLinearMemoryExp(context, device, at)
            ));
            ok(ur!(
                BindlessImagesExp.pfnReleaseExternalMemoryExp(context, device, memory)
            ));
        },
        |_| {},
    );
}

#[test]
fn a_semaphore_serves_its_commands() {
    let file = std::cell::RefCell::new(None);
    held(
        "a_semaphore_serves_its_commands",
        |all| {
            let (context, device) = all.here();
            let own = owned(scripted_semaphore(true));
            let again = own.try_clone().expect("a second descriptor");
            let (code, semaphore) = import_semaphore((context, device), again, TIMELINE);
            ok(code);
            ok(ur!(BindlessImagesExp.pfnSignalExternalSemaphoreExp(
                all.queue,
                semaphore,
                1,
                5,
                0,
                null(),
                null_mut()
            )));
            ok(ur!(BindlessImagesExp.pfnReleaseExternalSemaphoreExp(
                context, device, semaphore
            )));
            file.replace(Some(own));
        },
        |_| {
            let file = file.take().expect("a descriptor");
            assert_eq!(scripted_semaphore_count(file.as_raw_fd()), 5);
        },
    );
}

/// A kernel that was launched, and its program.
#[test]
fn a_kernel_serves_its_launches() {
    held(
        "a_kernel_serves_its_launches",
        |all| {
            let memory = all.own.device_memory(0, SIZE);
            let (program, kernel) = iota(&mut Steps::default(), all.own.context);
            all.launch(kernel, memory);
            ok(ur!(Kernel.pfnRelease(kernel)));
            ok(ur!(Program.pfnRelease(program)));
            all.own.free(&[memory]);
        },
        |_| {},
    );
}

/// A write of a program's variable.
fn write(all: &Held, program: ur_program_handle_t) {
    let (name, from, blocks) = (c"scripted", host(30).cast(), false as _);
    ok(ur!(Enqueue.pfnDeviceGlobalVariableWrite(
        all.queue,
        program,
        name.as_ptr(),
        blocks,
        8,
        0,
        from,
        0,
        null(),
        null_mut()
    )));
}

#[test]
fn a_program_serves_its_variables() {
    held(
        "a_program_serves_its_variables",
        |all| {
            let (program, kernel) = iota(&mut Steps::default(), all.own.context);
            ok(ur!(Kernel.pfnRelease(kernel)));
            write(all, program);
            ok(ur!(Program.pfnRelease(program)));
        },
        |_| {},
    );
}

#[test]
fn a_program_is_built_anew_beside_its_commands() {
    held(
        "a_program_is_built_anew_beside_its_commands",
        |all| {
            let (program, kernel) = iota(&mut Steps::default(), all.own.context);
            ok(ur!(Kernel.pfnRelease(kernel)));
            write(all, program);
            ok(ur!(Program.pfnBuild(all.own.context, program, null())));
            write(all, program);
            ok(ur!(Program.pfnCompile(all.own.context, program, null())));
            ok(ur!(Program.pfnRelease(program)));
        },
        |_| {},
    );
}

/// Memory of the driver's that a buffer owns.
#[test]
fn an_adopted_buffer_serves_its_commands() {
    held(
        "an_adopted_buffer_serves_its_commands",
        |all| {
            let (context, device) = all.here();
            let (mut natives, mut buffer) = ([0; 2], null_mut());
            ok(ur!(Context.pfnGetNativeHandle(context, &mut natives[0])));
            ok(ur!(Device.pfnGetNativeHandle(device, &mut natives[1])));
            let memory = all.own.driver.device_memory(natives[0], natives[1], SIZE);
            let properties = ur_mem_native_properties_t {
                isNativeHandleOwned: true as _,
                ..Default::default()
            };
            ok(ur!(Mem.pfnBufferCreateWithNativeHandle(
                memory,
                context,
                &properties,
                &mut buffer
            )));
            let (from, none) = (host(30).cast(), null_mut());
            ok(ur!(Enqueue.pfnMemBufferFill(
                all.queue,
                buffer,
                from,
                1,
                0,
                SIZE,
                0,
                null(),
                none
            )));
            ok(ur!(Mem.pfnRelease(buffer)));
        },
        |_| {},
    );
}

#[test]
fn exportable_memory_serves_its_commands() {
    held(
        "exportable_memory_serves_its_commands",
        |all| {
            let ((context, device), mut at) = (all.here(), null_mut());
            ok(ur!(MemoryExportExp.pfnAllocExportableMemoryExp(
                context, device, 0, SIZE, OPAQUE, &mut at
            )));
            release(&[fill(all.queue, at, 7, &[])]);
            ok(ur!(
                MemoryExportExp.pfnFreeExportableMemoryExp(context, device, at)
            ));
        },
        |_| {},
    );
}

/// Memory that another process could have allocated.
#[test]
fn opened_memory_serves_its_commands() {
    held(
        "opened_memory_serves_its_commands",
        |all| {
            let (context, device) = all.here();
            let memory = all.own.device_memory(0, SIZE);
            let (mut data, mut size, mut at) = (null_mut(), 0, null_mut());
            ok(ur!(
                IPCExp.pfnGetMemHandleExp(context, memory, &mut data, &mut size)
            ));
            ok(ur!(
                IPCExp.pfnOpenMemHandleExp(context, device, data, size, &mut at)
            ));
            release(&[fill(all.queue, at, 7, &[])]);
            ok(ur!(IPCExp.pfnCloseMemHandleExp(context, at)));
            ok(ur!(IPCExp.pfnPutMemHandleExp(context, data)));
            all.own.free(&[memory]);
        },
        |_| {},
    );
}

/// A captured list takes no marker, so that nobody can wait for its commands. They must not fail for that.
#[test]
fn a_release_beside_a_capture_harms_no_command() {
    let name = "tests::released::a_release_beside_a_capture_harms_no_command";
    alone(name, || {
        let all = Held::new(By::Device);
        let mut list = 0;
        ok(ur!(Queue.pfnGetNativeHandle(
            all.queue,
            null_mut(),
            &mut list
        )));
        let (program, kernel) = iota(&mut Steps::default(), all.own.context);
        let memory = all.own.device_memory(0, SIZE);
        // Without an event, which would have a marker.
        all.launch(kernel, memory);
        all.own.driver.reset();
        all.own.driver.captured(list, || {
            ok(ur!(Kernel.pfnRelease(kernel)));
            ok(ur!(Program.pfnRelease(program)));
        });
        let destroyed = || {
            let counts = all.own.driver.counts();
            counts.get("zeModuleDestroy").copied().unwrap_or(0)
        };
        assert_eq!(destroyed(), 0);
        all.open();
        assert_eq!(destroyed(), 2, "behind a wait, on both devices");
        all.own.free(&[memory]);
        all.end();
    });
}

/// An event that other processes may wait for.
#[test]
fn a_shared_event_serves_its_signal() {
    held(
        "a_shared_event_serves_its_signal",
        |all| {
            let ((context, device), mut event) = (all.here(), null_mut());
            let desc = ur_exp_event_desc_t {
                flags: UR_EXP_EVENT_FLAG_IPC_EXP,
                ..Default::default()
            };
            ok(ur!(
                EventExp.pfnCreateExp(context, device, &desc, &mut event)
            ));
            let mut signalled = event;
            ok(ur!(Enqueue.pfnEventsWaitWithBarrierExt(
                all.queue,
                null(),
                0,
                null(),
                &mut signalled
            )));
            release(&[event]);
        },
        |_| {},
    );
}
