//! Host pipes. No driver in the tests supports them.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use opencl_sys::{CL_INVALID_OPERATION, CL_INVALID_VALUE};
use scripted_opencl::Shape;
use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, device, ur};

const PIPE: &CStr = c"a pipe";

/// A queue and a program, released on drop.
struct Fixture {
    context: ur_context_handle_t,
    queue: ur_queue_handle_t,
    program: ur_program_handle_t,
}

impl Fixture {
    fn new() -> Self {
        let device = device(adapter().expect("an adapter"));
        let (mut context, mut queue, mut program) = (null_mut(), null_mut(), null_mut());
        let codes = [
            ur!(Context.pfnCreate(1, &device, null(), &mut context)),
            ur!(Queue.pfnCreate(context, device, null(), &mut queue)),
            ur!(Program.pfnCreateWithIL(context, PIPE.as_ptr().cast(), 4, null(), &mut program)),
        ];
        assert_eq!(codes, [UR_RESULT_SUCCESS; 3]);
        Self {
            context,
            queue,
            program,
        }
    }

    fn write(
        &self,
        data: &[u8],
        blocking: bool,
        waits: &[ur_event_handle_t],
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let list = if waits.is_empty() {
            null()
        } else {
            waits.as_ptr()
        };
        ur!(Enqueue.pfnWriteHostPipe(
            self.queue,
            self.program,
            PIPE.as_ptr(),
            u8::from(blocking),
            data.as_ptr().cast_mut().cast(),
            data.len(),
            waits.len() as u32,
            list,
            event
        ))
    }

    fn read(
        &self,
        data: &mut [u8],
        waits: &[ur_event_handle_t],
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let list = if waits.is_empty() {
            null()
        } else {
            waits.as_ptr()
        };
        ur!(Enqueue.pfnReadHostPipe(
            self.queue,
            self.program,
            PIPE.as_ptr(),
            1,
            data.as_mut_ptr().cast(),
            data.len(),
            waits.len() as u32,
            list,
            event
        ))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let codes = [
            ur!(Program.pfnRelease(self.program)),
            ur!(Queue.pfnRelease(self.queue)),
            ur!(Context.pfnRelease(self.context)),
        ];
        assert_eq!(codes, [UR_RESULT_SUCCESS; 3]);
    }
}

fn command_type(event: ur_event_handle_t) -> ur_command_t {
    let mut command = ur_command_t(0);
    let (to, size) = ((&raw mut command).cast(), size_of::<ur_command_t>());
    let what = UR_EVENT_INFO_COMMAND_TYPE;
    let code = ur!(Event.pfnGetInfo(event, what, size, to, null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    command
}

#[test]
fn pipes_keep_the_order_of_bytes() {
    alone("tests::pipes::pipes_keep_the_order_of_bytes", &[], || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new();
        let (mut first, mut second) = (null_mut(), null_mut());
        let written = [
            fixture.write(&[1, 2, 3], false, &[], &mut first),
            fixture.write(&[4, 5], true, &[first], &mut second),
        ];
        assert_eq!(written, [UR_RESULT_SUCCESS; 2]);
        assert_eq!(command_type(first), UR_COMMAND_WRITE_HOST_PIPE);
        let (mut out, mut event) = ([0; 5], null_mut());
        assert_eq!(
            fixture.read(&mut out, &[second], &mut event),
            UR_RESULT_SUCCESS
        );
        assert_eq!(
            out,
            [1, 2, 3, 4, 5],
            "a blocking read has the data when it returns"
        );
        assert_eq!(command_type(event), UR_COMMAND_READ_HOST_PIPE);
        for event in [first, second, event] {
            assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
        }
        drop(fixture);
        driver.check_end("pipes");
    });
}

#[test]
fn a_pipe_that_fails_is_an_error() {
    alone("tests::pipes::a_pipe_that_fails_is_an_error", &[], || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new();
        driver.fail_each("clEnqueueWriteHostPipeINTEL", CL_INVALID_VALUE);
        let code = fixture.write(&[1], true, &[], null_mut());
        assert_eq!(code, UR_RESULT_ERROR_INVALID_VALUE);
        driver.fail_each("clEnqueueReadHostPipeINTEL", CL_INVALID_OPERATION);
        let code = fixture.read(&mut [0], &[], null_mut());
        assert_eq!(code, UR_RESULT_ERROR_INVALID_OPERATION);
        driver.reset();
        assert_eq!(ur!(Queue.pfnFinish(fixture.queue)), UR_RESULT_SUCCESS);
        drop(fixture);
        driver.check_end("pipes that fail");
    });
}

#[test]
fn without_the_extension_pipes_are_unsupported() {
    let name = "tests::pipes::without_the_extension_pipes_are_unsupported";
    alone(name, &[], || {
        let driver = FakeDriver::open();
        driver.shape(Shape {
            no_extensions: true,
            ..Shape::default()
        });
        let fixture = Fixture::new();
        let codes = [
            fixture.write(&[1], true, &[], null_mut()),
            fixture.read(&mut [0], &[], null_mut()),
        ];
        assert_eq!(codes, [UR_RESULT_ERROR_UNSUPPORTED_FEATURE; 2]);
    });
}
