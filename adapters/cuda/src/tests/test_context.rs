//! A context on the first device, with memory that the host can access.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, device, ur};

pub struct TestContext {
    adapter: ur_adapter_handle_t,
    pub device: ur_device_handle_t,
    pub context: ur_context_handle_t,
    pub memory: *mut c_void,
}

impl TestContext {
    pub fn new(bytes: usize) -> Self {
        let adapter = adapter();
        let device = device(adapter);
        let (mut context, mut memory) = (null_mut(), null_mut());
        let code = ur!(Context.pfnCreate(1, &device, null(), &mut context));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let code = ur!(USM.pfnHostAlloc(context, null(), null_mut(), bytes, &mut memory));
        assert_eq!(code, UR_RESULT_SUCCESS);
        Self {
            adapter,
            device,
            context,
            memory,
        }
    }

    pub fn queue(&self, flags: ur_queue_flags_t) -> ur_queue_handle_t {
        let what = ur_queue_properties_t {
            flags,
            ..Default::default()
        };
        let (context, device, mut queue) = (self.context, self.device, null_mut());
        let code = ur!(Queue.pfnCreate(context, device, &what, &mut queue));
        assert_eq!(code, UR_RESULT_SUCCESS);
        queue
    }

    /// A kernel of the scripted driver, and its program.
    pub fn kernel(&self, name: &CStr) -> (ur_program_handle_t, ur_kernel_handle_t) {
        let (program, mut kernel) = (built(self.context, self.device, PLAIN), null_mut());
        let code = ur!(Kernel.pfnCreate(program, name.as_ptr(), &mut kernel));
        assert_eq!(code, UR_RESULT_SUCCESS);
        (program, kernel)
    }

    /// The address this many bytes into the memory.
    pub fn at(&self, bytes: usize) -> *mut c_void {
        self.memory.wrapping_byte_add(bytes)
    }

    pub fn release(self) {
        let code = ur!(USM.pfnFree(self.context, self.memory));
        assert_eq!(code, UR_RESULT_SUCCESS);
        assert_eq!(ur!(Context.pfnRelease(self.context)), UR_RESULT_SUCCESS);
        assert_eq!(ur!(Adapter.pfnRelease(self.adapter)), UR_RESULT_SUCCESS);
    }

    /// Releases everything and checks that no driver object is left.
    pub fn end(self, driver: &FakeDriver) {
        self.release();
        driver.check_end("the end");
    }
}

/// The text of a program whose kernels the scripted driver knows.
pub const PLAIN: &[u8] = b".version 8.0\0";

/// A program of one device that is not built.
pub fn made(
    context: ur_context_handle_t,
    mut device: ur_device_handle_t,
    text: &[u8],
) -> ur_program_handle_t {
    let (mut bytes, mut code, mut program) = (text.len(), text.as_ptr(), null_mut());
    let made = ur!(Program.pfnCreateWithBinary(
        context,
        1,
        &mut device,
        &mut bytes,
        &mut code,
        null(),
        &mut program
    ));
    assert_eq!(made, UR_RESULT_SUCCESS);
    program
}

/// A program that is built for one device.
pub fn built(
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    text: &[u8],
) -> ur_program_handle_t {
    let program = made(context, device, text);
    let code = ur!(Program.pfnBuild(context, program, null()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    program
}

/// The stream of a queue. Its native handle is given out from now on.
pub fn stream_of(queue: ur_queue_handle_t) -> usize {
    let mut native = 0;
    let code = ur!(Queue.pfnGetNativeHandle(queue, null_mut(), &mut native));
    assert_eq!(code, UR_RESULT_SUCCESS);
    native
}
