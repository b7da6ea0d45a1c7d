//! A context over two devices, with a queue on each, in any of the settings that a host may have.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};

pub const BYTES: usize = 4096;

/// A command that must succeed.
pub fn ok(code: ur_result_t) {
    assert_eq!(code, UR_RESULT_SUCCESS);
}

/// What devices of a host have.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub links: bool,
    pub pages: bool,
    /// Whether the second device is the context's first.
    pub turned: bool,
}

impl Setting {
    /// Devices with links, in their order.
    pub fn linked(pages: bool) -> Self {
        Self {
            links: true,
            pages,
            turned: false,
        }
    }

    pub fn all() -> Vec<Self> {
        let both = [true, false];
        let mut all = Vec::new();
        for links in both {
            for pages in both {
                let each = both.map(|turned| Self {
                    links,
                    pages,
                    turned,
                });
                all.extend(each);
            }
        }
        all
    }
}

/// Fails each call of the driver once, alone in a process, with links between two devices and without. `run` is
/// false if all calls succeeded and the data is wrong. It makes more than `least` calls.
pub fn each_call_fails(name: &str, least: u64, run: fn() -> bool) {
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for links in [true, false] {
            driver.peers(links);
            let (mut nth, mut met) = (0, true);
            while met {
                nth += 1;
                driver.fail(nth, if nth % 2 == 0 { 2 } else { 999 });
                let right = run();
                met = driver.query().met;
                driver.check_end(&format!("call {nth}, links {links}"));
                assert!(right, "call {nth}, links {links}: {}", driver.report());
            }
            assert!(nth > least, "{nth} calls");
        }
    });
}

pub struct TwoDevices {
    pub adapter: ur_adapter_handle_t,
    /// In the context's order.
    pub devices: [ur_device_handle_t; 2],
    pub context: ur_context_handle_t,
    pub queues: [ur_queue_handle_t; 2],
}

impl TwoDevices {
    /// The driver must have two devices.
    pub fn new(driver: &FakeDriver, setting: Setting) -> Self {
        driver.peers(setting.links);
        driver.pages(setting.pages);
        let adapter = adapter();
        let all = devices(adapter);
        let devices = match setting.turned {
            true => [all[1], all[0]],
            false => [all[0], all[1]],
        };
        let mut context = null_mut();
        let (list, new) = (devices.as_ptr(), &mut context);
        ok(ur!(Context.pfnCreate(2, list, null(), new)));
        let queues = devices.map(|device| queue(context, device, ur_queue_flags_t(0)));
        Self {
            adapter,
            devices,
            context,
            queues,
        }
    }

    /// Memory of a device: synchronous, or asynchronous from the queue's pool.
    pub fn memory(&self, at: usize, ordered: bool) -> *mut c_void {
        let (mut memory, none) = (null_mut(), null_mut());
        let to = &mut memory;
        match ordered {
            true => ok(ur!(EnqueueExp.pfnUSMDeviceAllocExp(
                self.queues[at],
                none,
                BYTES,
                null(),
                0,
                null(),
                to,
                null_mut()
            ))),
            false => {
                let (context, device) = (self.context, self.devices[at]);
                let pool = null_mut();
                ok(ur!(USM.pfnDeviceAlloc(
                    context,
                    device,
                    null(),
                    pool,
                    BYTES,
                    to
                )));
            }
        }
        self.finish();
        memory
    }

    pub fn free(&self, memory: *mut c_void) {
        ok(ur!(USM.pfnFree(self.context, memory)));
    }

    pub fn finish(&self) {
        self.queues
            .iter()
            .for_each(|queue| ok(ur!(Queue.pfnFinish(*queue))));
    }

    /// Sets all bytes on the device's own queue.
    pub fn set(&self, at: usize, memory: *mut c_void, byte: u8) {
        fill(self.queues[at], memory, &[byte], BYTES);
        self.finish();
    }

    pub fn release(self) {
        self.queues
            .iter()
            .for_each(|queue| ok(ur!(Queue.pfnRelease(*queue))));
        ok(ur!(Context.pfnRelease(self.context)));
        ok(ur!(Adapter.pfnRelease(self.adapter)));
    }

    /// Releases everything and checks that no driver object is left.
    pub fn end(self, driver: &FakeDriver) {
        self.release();
        driver.check_end("the end");
    }
}

pub fn queue(
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    flags: ur_queue_flags_t,
) -> ur_queue_handle_t {
    let what = ur_queue_properties_t {
        flags,
        ..Default::default()
    };
    let mut queue = null_mut();
    ok(ur!(Queue.pfnCreate(context, device, &what, &mut queue)));
    queue
}

pub fn fill(queue: ur_queue_handle_t, memory: *mut c_void, pattern: &[u8], bytes: usize) {
    let (from, none) = (pattern.as_ptr().cast(), null_mut());
    let size = pattern.len();
    ok(ur!(Enqueue.pfnUSMFill(
        queue,
        memory,
        size,
        from,
        bytes,
        0,
        null(),
        none
    )));
}

pub fn copy(queue: ur_queue_handle_t, dst: *mut c_void, src: *const c_void, bytes: usize) {
    let none = null_mut();
    ok(ur!(Enqueue.pfnUSMMemcpy(
        queue,
        0,
        dst,
        src,
        bytes,
        0,
        null(),
        none
    )));
}

/// The first bytes of memory that no command uses any more.
pub fn bytes<const N: usize>(memory: *const c_void) -> [u8; N] {
    // SAFETY: the scripted driver's memory is the host's, and the test's memory has that size.
    unsafe { memory.cast::<[u8; N]>().read() }
}
