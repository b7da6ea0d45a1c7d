//! Native handles: their references, and that a refused one stays its owner's.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use opencl_sys::*;
use ur::abi::*;
use ur::dl::{Binding, Library};

use super::fake_driver::{FakeDriver, adapter, alone, device, library, ur};

ur::dl::symbols! {
    /// OpenCL as its own client calls it.
    struct Client {
        required {
            clCreateUserEvent: unsafe extern "C" fn(cl_context, *mut cl_int) -> cl_event,
            clCreateCommandQueue: unsafe extern "C" fn(
                cl_context, cl_device_id, cl_command_queue_properties, *mut cl_int,
            ) -> cl_command_queue,
            clCreateBuffer: unsafe extern "C" fn(
                cl_context, cl_mem_flags, usize, *mut c_void, *mut cl_int,
            ) -> cl_mem,
            clReleaseEvent: unsafe extern "C" fn(cl_event) -> cl_int,
            clReleaseCommandQueue: unsafe extern "C" fn(cl_command_queue) -> cl_int,
            clReleaseMemObject: unsafe extern "C" fn(cl_mem) -> cl_int,
            clSetUserEventStatus: unsafe extern "C" fn(cl_event, cl_int) -> cl_int,
            clEnqueueMarkerWithWaitList: unsafe extern "C" fn(
                cl_command_queue, cl_uint, *const cl_event, *mut cl_event,
            ) -> cl_int,
        }
        optional {}
    }
}

struct Fixture {
    driver: FakeDriver,
    client: Client,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    native: cl_context,
    native_device: cl_device_id,
}

impl Fixture {
    fn new() -> Self {
        let driver = FakeDriver::open();
        let library = Library::open(library(), Binding::Usual).expect("the scripted library");
        let client = Client::from_library(library).expect("its functions");
        let device = device(adapter().expect("an adapter"));
        let (mut context, mut native, mut native_device) = (null_mut(), 0, 0);
        let codes = [
            ur!(Context.pfnCreate(1, &device, null(), &mut context)),
            ur!(Context.pfnGetNativeHandle(context, &mut native)),
            ur!(Device.pfnGetNativeHandle(device, &mut native_device)),
        ];
        assert_eq!(codes, [UR_RESULT_SUCCESS; 3]);
        Self {
            driver,
            client,
            context,
            device,
            native: native as cl_context,
            native_device: native_device as cl_device_id,
        }
    }

    fn end(self) {
        assert_eq!(ur!(Context.pfnRelease(self.context)), UR_RESULT_SUCCESS);
        self.driver.check_end("native handles");
    }
}

/// An owned native handle is released with the object. A borrowed or refused one stays its owner's.
fn owned_borrowed_and_refused(
    fixture: &Fixture,
    query: &str,
    make: impl Fn(&Client) -> *mut c_void,
    adopt: impl Fn(*mut c_void, bool) -> (ur_result_t, Option<*mut c_void>),
    end: impl Fn(*mut c_void) -> ur_result_t,
    release: unsafe extern "C" fn(*mut c_void) -> cl_int,
) {
    let before = fixture.driver.query().live;
    for owned in [true, false] {
        let native = make(&fixture.client);
        fixture.driver.fail_each(query, CL_OUT_OF_RESOURCES);
        let (code, made) = adopt(native, owned);
        assert_eq!((code, made), (UR_RESULT_ERROR_OUT_OF_RESOURCES, None));
        fixture.driver.check_live(before + 1, "refused");
        fixture.driver.reset();
        let (code, made) = adopt(native, owned);
        assert_eq!(code, UR_RESULT_SUCCESS);
        assert_eq!(made.map(&end), Some(UR_RESULT_SUCCESS));
        if !owned {
            fixture.driver.check_live(before + 1, "kept by its owner");
            // SAFETY: the owner's own reference.
            assert_eq!(unsafe { release(native) }, CL_SUCCESS);
        }
        fixture.driver.check_live(before, "gone");
    }
}

#[test]
fn buffers() {
    alone("tests::handles::buffers", &[], || {
        let fixture = Fixture::new();
        let make = |client: &Client| {
            // SAFETY: a live context.
            unsafe { (client.clCreateBuffer)(fixture.native, 0, 64, null_mut(), null_mut()) }
        };
        let adopt = |native: *mut c_void, owned: bool| {
            let properties = ur_mem_native_properties_t {
                isNativeHandleOwned: u8::from(owned),
                ..Default::default()
            };
            let (native, mut made) = (native as ur_native_handle_t, null_mut());
            let code = ur!(Mem.pfnBufferCreateWithNativeHandle(
                native,
                fixture.context,
                &properties,
                &mut made
            ));
            (code, (!made.is_null()).then_some(made.cast()))
        };
        let end = |made: *mut c_void| ur!(Mem.pfnRelease(made.cast()));
        let release = fixture.client.clReleaseMemObject;
        owned_borrowed_and_refused(&fixture, "clGetMemObjectInfo", make, adopt, end, release);
        fixture.end();
    });
}

#[test]
fn queues() {
    alone("tests::handles::queues", &[], || {
        let fixture = Fixture::new();
        let make = |client: &Client| {
            let (context, device) = (fixture.native, fixture.native_device);
            // SAFETY: a live context and device.
            unsafe { (client.clCreateCommandQueue)(context, device, 0, null_mut()) }
        };
        let adopt = |native: *mut c_void, owned: bool| {
            let properties = ur_queue_native_properties_t {
                isNativeHandleOwned: u8::from(owned),
                ..Default::default()
            };
            let (native, mut made) = (native as ur_native_handle_t, null_mut());
            let code = ur!(Queue.pfnCreateWithNativeHandle(
                native,
                fixture.context,
                fixture.device,
                &properties,
                &mut made
            ));
            (code, (!made.is_null()).then_some(made.cast()))
        };
        let end = |made: *mut c_void| ur!(Queue.pfnRelease(made.cast()));
        let release = fixture.client.clReleaseCommandQueue;
        owned_borrowed_and_refused(&fixture, "clGetCommandQueueInfo", make, adopt, end, release);
        fixture.end();
    });
}

#[test]
fn events() {
    alone("tests::handles::events", &[], || {
        let fixture = Fixture::new();
        let make = |client: &Client| {
            // SAFETY: a live context, and then a live event, completed once.
            unsafe {
                let event = (client.clCreateUserEvent)(fixture.native, null_mut());
                (client.clSetUserEventStatus)(event, CL_COMPLETE);
                event
            }
        };
        let adopt = |native: *mut c_void, owned: bool| {
            let properties = ur_event_native_properties_t {
                isNativeHandleOwned: u8::from(owned),
                ..Default::default()
            };
            let (native, mut made) = (native as ur_native_handle_t, null_mut());
            let code = ur!(Event.pfnCreateWithNativeHandle(
                native,
                fixture.context,
                &properties,
                &mut made
            ));
            (code, (!made.is_null()).then_some(made.cast()))
        };
        let end = |made: *mut c_void| {
            let mut event: ur_event_handle_t = made.cast();
            assert_eq!(ur!(Event.pfnWait(1, &raw mut event)), UR_RESULT_SUCCESS);
            ur!(Event.pfnRelease(event))
        };
        let release = fixture.client.clReleaseEvent;
        owned_borrowed_and_refused(&fixture, "clGetEventInfo", make, adopt, end, release);
        fixture.end();
    });
}

/// An adopted event reports the queue over its command queue.
///
/// If there is none, the adapter makes one that lives as long as the event. An event without a command
/// reports no queue.
#[test]
fn queues_of_events() {
    alone("tests::handles::queues_of_events", &[], || {
        let fixture = Fixture::new();
        let (client, context) = (&fixture.client, fixture.context);
        let adopt = |native: cl_event| {
            let mut made = null_mut();
            let native = native as ur_native_handle_t;
            let code = ur!(Event.pfnCreateWithNativeHandle(native, context, null(), &mut made));
            assert_eq!(code, UR_RESULT_SUCCESS);
            made
        };
        let queue_of = |event: ur_event_handle_t| {
            let mut queue: ur_queue_handle_t = null_mut();
            let (what, to) = (UR_EVENT_INFO_COMMAND_QUEUE, (&raw mut queue).cast());
            let size = size_of::<ur_queue_handle_t>();
            let code = ur!(Event.pfnGetInfo(event, what, size, to, null_mut()));
            assert_eq!(code, UR_RESULT_SUCCESS);
            queue
        };
        let native_of = |queue: ur_queue_handle_t| {
            let mut native = 0;
            let code = ur!(Queue.pfnGetNativeHandle(queue, null_mut(), &mut native));
            assert_eq!(code, UR_RESULT_SUCCESS);
            native as cl_command_queue
        };
        let marked = |queue: cl_command_queue| {
            let mut event = null_mut();
            // SAFETY: a live queue, no list, room for a handle.
            let code =
                unsafe { (client.clEnqueueMarkerWithWaitList)(queue, 0, null(), &mut event) };
            assert_eq!(code, CL_SUCCESS);
            event
        };
        let before = fixture.driver.query().live;
        // SAFETY: a live context and device.
        let (native, user) = unsafe {
            let (context, device) = (fixture.native, fixture.native_device);
            (
                (client.clCreateCommandQueue)(context, device, 0, null_mut()),
                (client.clCreateUserEvent)(fixture.native, null_mut()),
            )
        };
        let (first, second) = (marked(native), marked(native));
        let events = [adopt(first), adopt(second), adopt(user)];
        assert_eq!(queue_of(events[2]), null_mut());
        let made = queue_of(events[0]);
        assert_eq!(native_of(made), native);
        assert_eq!([queue_of(events[0]), queue_of(events[1])], [made; 2]);
        // A queue made over it meanwhile is reported as well.
        let (mut own, device) = (null_mut(), fixture.device);
        let code = ur!(Queue.pfnCreate(context, device, null(), &mut own));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let third = marked(native_of(own));
        let last = adopt(third);
        assert_eq!(queue_of(last), own);
        // SAFETY: the client's own references; the event is completed once.
        unsafe {
            assert_eq!((client.clSetUserEventStatus)(user, CL_COMPLETE), CL_SUCCESS);
            assert_eq!((client.clReleaseCommandQueue)(native), CL_SUCCESS);
            for event in [first, second, third, user] {
                assert_eq!((client.clReleaseEvent)(event), CL_SUCCESS);
            }
        }
        assert_eq!(queue_of(events[1]), made, "kept by its events");
        for event in events.into_iter().chain([last]) {
            assert_eq!(ur!(Event.pfnWait(1, &event)), UR_RESULT_SUCCESS);
            assert_eq!(ur!(Event.pfnRelease(event)), UR_RESULT_SUCCESS);
        }
        assert_eq!(ur!(Queue.pfnRelease(own)), UR_RESULT_SUCCESS);
        fixture.driver.check_live(before, "gone");
        fixture.end();
    });
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test owns the counter and waits for the call.
    unsafe { *data.cast::<u32>() += 1 };
}

/// A driver without command buffers takes no native commands.
#[test]
fn no_command_buffers() {
    alone("tests::handles::no_command_buffers", &[], || {
        let fixture = Fixture::new();
        let what = ur_exp_command_buffer_desc_t::default();
        let (context, device, mut buffer) = (fixture.context, fixture.device, null_mut());
        let code = ur!(CommandBufferExp.pfnCreateExp(context, device, &what, &mut buffer));
        assert_eq!(code, UR_RESULT_SUCCESS);
        let (mut calls, mut native) = (0_u32, 0);
        for child in [null_mut(), buffer] {
            let code = ur!(CommandBufferExp.pfnAppendNativeCommandExp(
                buffer,
                Some(count),
                (&raw mut calls).cast(),
                child,
                0,
                null(),
                null_mut()
            ));
            assert_eq!(code, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        }
        let code = ur!(CommandBufferExp.pfnGetNativeHandleExp(buffer, &mut native));
        assert_eq!(code, UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        assert_eq!((calls, native), (0, 0));
        let code = ur!(CommandBufferExp.pfnReleaseExp(buffer));
        assert_eq!(code, UR_RESULT_SUCCESS);
        fixture.end();
    });
}
