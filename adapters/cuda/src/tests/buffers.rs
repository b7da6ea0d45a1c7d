//! Buffers of a context over two devices.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU32;

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone, devices, ur};
use super::launching::{self, launch, memory_object};
use super::two_devices::*;
use super::workload::task;

const WORDS: usize = BYTES / 4;

/// A program with the scripted driver's kernels, for both devices.
struct Kernels {
    program: ur_program_handle_t,
    add: ur_kernel_handle_t,
    sum: ur_kernel_handle_t,
}

impl Kernels {
    fn new(two: &TwoDevices) -> Self {
        let text = b".version 8.0\0";
        let (mut program, mut lengths) = (null_mut(), [text.len(); 2]);
        let (mut codes, mut list) = ([text.as_ptr(); 2], two.devices);
        let (context, new) = (two.context, &mut program);
        let (list, lengths) = (list.as_mut_ptr(), lengths.as_mut_ptr());
        let codes = codes.as_mut_ptr();
        ok(ur!(Program.pfnCreateWithBinary(
            context,
            2,
            list,
            lengths,
            codes,
            null(),
            new
        )));
        ok(ur!(Program.pfnBuild(context, program, null())));
        let kernel = |name: &std::ffi::CStr| {
            let mut kernel = null_mut();
            ok(ur!(Kernel.pfnCreate(program, name.as_ptr(), &mut kernel)));
            kernel
        };
        Self {
            program,
            add: kernel(c"add"),
            sum: kernel(c"sum"),
        }
    }

    fn release(self) {
        ok(ur!(Kernel.pfnRelease(self.add)));
        ok(ur!(Kernel.pfnRelease(self.sum)));
        ok(ur!(Program.pfnRelease(self.program)));
    }

    /// Adds a number to each word of a buffer.
    fn add(&self, queue: ur_queue_handle_t, buffer: ur_mem_handle_t, number: u32) {
        let args = [
            memory_object(0, buffer, UR_MEM_FLAG_READ_WRITE),
            launching::number(1, &number),
        ];
        ok(launch(queue, self.add, 4, &args, &[], null_mut()));
    }

    /// Writes the sums of words to the first buffer.
    fn sum(&self, queue: ur_queue_handle_t, [to, one, two]: [ur_mem_handle_t; 3]) {
        let reads = UR_MEM_FLAG_READ_ONLY;
        let args = [
            memory_object(0, to, UR_MEM_FLAG_WRITE_ONLY),
            memory_object(1, one, reads),
            memory_object(2, two, reads),
        ];
        ok(launch(queue, self.sum, 4, &args, &[], null_mut()));
    }
}

fn buffer(two: &TwoDevices, data: Option<&mut [u32; WORDS]>) -> ur_mem_handle_t {
    let mut buffer = null_mut();
    let (flags, host) = match data {
        Some(data) => (
            UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER,
            data.as_mut_ptr().cast(),
        ),
        None => (ur_mem_flags_t(0), null_mut()),
    };
    let properties = ur_buffer_properties_t {
        pHost: host,
        ..Default::default()
    };
    let (flags, what) = (UR_MEM_FLAG_READ_WRITE | flags, &raw const properties);
    let what = if host.is_null() { null() } else { what };
    let (context, new) = (two.context, &mut buffer);
    ok(ur!(Mem.pfnBufferCreate(context, flags, BYTES, what, new)));
    buffer
}

fn write(queue: ur_queue_handle_t, buffer: ur_mem_handle_t, words: [u32; 4]) {
    let (from, none) = (words.as_ptr().cast(), null_mut());
    ok(ur!(Enqueue.pfnMemBufferWrite(
        queue,
        buffer,
        1,
        0,
        16,
        from,
        0,
        null(),
        none
    )));
}

fn read(queue: ur_queue_handle_t, buffer: ur_mem_handle_t) -> [u32; 4] {
    let (mut words, none) = ([0; 4], null_mut());
    let to = words.as_mut_ptr().cast();
    ok(ur!(Enqueue.pfnMemBufferRead(
        queue,
        buffer,
        1,
        0,
        16,
        to,
        0,
        null(),
        none
    )));
    words
}

fn release(buffers: &[ur_mem_handle_t]) {
    buffers
        .iter()
        .for_each(|buffer| ok(ur!(Mem.pfnRelease(*buffer))));
}

/// Runs a test in each setting.
fn in_each_setting(name: &str, test: impl Fn(&FakeDriver, &TwoDevices, Setting)) {
    alone(name, || {
        let driver = FakeDriver::open();
        driver.devices(2);
        for setting in Setting::all() {
            let two = TwoDevices::new(&driver, setting);
            test(&driver, &two, setting);
            two.end(&driver);
        }
    });
}

/// Kernels and commands of both devices see what the other has written.
#[test]
fn devices_see_what_others_have_written() {
    let name = "tests::buffers::devices_see_what_others_have_written";
    in_each_setting(name, |_, two, setting| {
        let kernels = Kernels::new(two);
        let [one, other] = two.queues;
        let plain = buffer(two, None);
        write(one, plain, [1, 2, 3, 4]);
        let mut sum = 0;
        for (at, number) in [(0, 1), (1, 10), (1, 10), (0, 5), (1, 2), (0, 7), (0, 8)] {
            kernels.add(two.queues[at], plain, number);
            two.finish();
            sum += number;
            let wanted = [1, 2, 3, 4].map(|word| word + sum);
            for queue in two.queues {
                assert_eq!(read(queue, plain), wanted, "{setting:?} {at}");
            }
        }
        // A write of a part keeps the rest.
        write(other, plain, [0; 4]);
        kernels.add(one, plain, 1);
        two.finish();
        write(other, plain, [7; 4]);
        kernels.add(other, plain, 1);
        two.finish();
        assert_eq!(read(one, plain), [8; 4]);

        let mut data = [3; WORDS];
        let given = buffer(two, Some(&mut data));
        data = [0; WORDS];
        let target = buffer(two, None);
        for queue in [other, one, other] {
            kernels.sum(queue, [target, given, plain]);
            two.finish();
            assert_eq!([read(one, target), read(other, target)], [[11; 4]; 2]);
        }
        // A buffer that is an argument twice is one.
        kernels.sum(one, [given, given, plain]);
        two.finish();
        kernels.sum(other, [given, given, plain]);
        two.finish();
        assert_eq!(read(one, given), [19; 4]);
        assert_eq!(data[0], 0);
        release(&[plain, given, target]);
        kernels.release();
    });
}

/// A kernel reads a buffer where it is if its device reaches that. Else the driver copies it once.
#[test]
fn buffers_are_read_where_they_are() {
    let name = "tests::buffers::buffers_are_read_where_they_are";
    in_each_setting(name, |driver, two, setting| {
        let kernels = Kernels::new(two);
        let [one, other] = two.queues;
        let mut data = [3; WORDS];
        let (given, target) = (buffer(two, Some(&mut data)), buffer(two, None));
        let run = || {
            kernels.sum(other, [target, given, given]);
            two.finish();
        };
        let copies = if setting.links { [0, 0] } else { [1, 0] };
        let first = driver.calls("cuMemcpyPeerAsync", run);
        let second = driver.calls("cuMemcpyPeerAsync", run);
        assert_eq!([first, second], copies, "{setting:?}");
        assert_eq!(driver.calls("cuMemcpyAsync", run), 0);
        assert_eq!(read(one, target), [6; 4]);
        // A write moves it, once.
        let adds = || {
            kernels.add(other, given, 1);
            two.finish();
        };
        let plain = driver.calls("cuMemcpyAsync", adds);
        let peer = driver.calls("cuMemcpyPeerAsync", adds);
        assert_eq!([plain, peer], [u64::from(setting.links), 0]);
        // Now launches on that device take the short path again, which asks the driver nothing.
        assert_eq!(driver.calls("cuEventQuery", adds), 0);
        assert_eq!(read(one, given), [6; 4]);
        release(&[given, target]);
        kernels.release();
    });
}

/// Readers on several streams wait for the one copy that the first of them made.
#[test]
fn readers_wait_for_the_copy_of_the_first() {
    let name = "tests::buffers::readers_wait_for_the_copy_of_the_first";
    in_each_setting(name, |driver, two, setting| {
        let kernels = Kernels::new(two);
        let mut data = [3; WORDS];
        let given = buffer(two, Some(&mut data));
        let targets = [0, 1].map(|_| buffer(two, None));
        let flags = ur_queue_flags_t(0);
        let second = queue(two.context, two.devices[1], flags);
        let waits = driver.calls("cuStreamWaitEvent", || {
            kernels.sum(two.queues[1], [targets[0], given, given]);
            kernels.sum(second, [targets[1], given, given]);
        });
        assert_eq!(waits, u64::from(!setting.links), "{setting:?}");
        ok(ur!(Queue.pfnFinish(second)));
        two.finish();
        for target in targets {
            assert_eq!(read(two.queues[0], target), [6; 4]);
        }
        ok(ur!(Queue.pfnRelease(second)));
        release(&targets);
        release(&[given]);
        kernels.release();
    });
}

/// Every command on buffers works on any queue, on parts of buffers too.
#[test]
fn commands_use_buffers_of_any_device() {
    let name = "tests::buffers::commands_use_buffers_of_any_device";
    in_each_setting(name, |_, two, setting| {
        let kernels = Kernels::new(two);
        let [one, other] = two.queues;
        let none = null_mut();
        let [from, to] = [0, 1].map(|_| buffer(two, None));
        write(one, from, [1, 2, 3, 4]);
        // The one buffer is on the first device, the other on the second.
        write(other, to, [0; 4]);
        for queue in two.queues {
            write(other, to, [0; 4]);
            ok(ur!(Enqueue.pfnMemBufferCopy(
                queue,
                from,
                to,
                4,
                0,
                8,
                0,
                null(),
                none
            )));
            two.finish();
            assert_eq!(read(one, to), [2, 3, 0, 0], "{setting:?}");
            let number = 5_u32;
            let pattern = (&raw const number).cast();
            ok(ur!(Enqueue.pfnMemBufferFill(
                queue,
                to,
                pattern,
                4,
                8,
                4,
                0,
                null(),
                none
            )));
            two.finish();
            assert_eq!(read(one, to), [2, 3, 5, 0]);
            let origin = ur_rect_offset_t { x: 0, y: 0, z: 0 };
            let region = ur_rect_region_t {
                width: 4,
                height: 2,
                depth: 1,
            };
            ok(ur!(Enqueue.pfnMemBufferCopyRect(
                queue,
                from,
                to,
                origin,
                origin,
                region,
                8,
                0,
                4,
                0,
                0,
                null(),
                none
            )));
            two.finish();
            assert_eq!(read(one, to), [1, 3, 5, 0]);
            // USM of each device is the other end.
            for memory in [0, 1].map(|at| two.memory(at, false)) {
                ok(ur!(Enqueue.pfnMemBufferRead(
                    queue,
                    from,
                    0,
                    0,
                    16,
                    memory,
                    0,
                    null(),
                    none
                )));
                two.finish();
                ok(ur!(Enqueue.pfnMemBufferWrite(
                    queue,
                    to,
                    0,
                    0,
                    16,
                    memory,
                    0,
                    null(),
                    none
                )));
                two.finish();
                assert_eq!(read(other, to), [1, 2, 3, 4]);
                write(one, to, [0; 4]);
                two.free(memory);
            }
            map(queue, to);
            two.finish();
            assert_eq!(read(one, to), [0, 9, 0, 0]);
        }
        // A part begins at a word that no whole buffer's address is.
        let region = ur_buffer_region_t {
            origin: 4,
            size: 32,
            ..Default::default()
        };
        let kind = UR_BUFFER_CREATE_TYPE_REGION;
        let (flags, mut part) = (UR_MEM_FLAG_READ_WRITE, null_mut());
        ok(ur!(
            Mem.pfnBufferPartition(from, flags, kind, &region, &mut part)
        ));
        for (at, queue) in [other, one, other, other].into_iter().enumerate() {
            kernels.add(queue, part, 10);
            two.finish();
            let sum = 10 * (at as u32 + 1);
            assert_eq!(read(one, from), [1, 2 + sum, 3 + sum, 4 + sum]);
            assert_eq!(read(one, part)[..3], [2 + sum, 3 + sum, 4 + sum]);
        }
        write(one, part, [7; 4]);
        assert_eq!(read(other, from), [1, 7, 7, 7]);
        release(&[part, from, to]);
        kernels.release();
    });
}

/// Writes the second word of a buffer through a mapping.
fn map(queue: ur_queue_handle_t, buffer: ur_mem_handle_t) {
    let flags = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
    let (mut mapped, none) = (null_mut(), null_mut());
    ok(ur!(Enqueue.pfnMemBufferMap(
        queue,
        buffer,
        1,
        flags,
        0,
        16,
        0,
        null(),
        none,
        &mut mapped
    )));
    // SAFETY: the mapping has four words.
    unsafe { mapped.cast::<u32>().add(1).write(9) };
    ok(ur!(Enqueue.pfnMemUnmap(
        queue,
        buffer,
        mapped,
        0,
        null(),
        none
    )));
}

/// Foreign code gets the address on the device that it names, with the buffer there.
#[test]
fn native_handles_are_those_of_a_device() {
    unsafe extern "C" fn count_up(queue: ur_queue_handle_t, data: *mut c_void) {
        let mut device: ur_device_handle_t = null_mut();
        let (what, bytes) = (UR_QUEUE_INFO_DEVICE, size_of::<usize>());
        let out = (&raw mut device).cast();
        ok(ur!(Queue.pfnGetInfo(queue, what, bytes, out, null_mut())));
        let mut address = 0;
        let new = &mut address;
        ok(ur!(Mem.pfnGetNativeHandle(data.cast(), device, new)));
        // A copy of the driver's may be pending on the stream.
        let mut stream = 0;
        ok(ur!(Queue.pfnGetNativeHandle(
            queue,
            null_mut(),
            &mut stream
        )));
        let word: *mut u32 = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the scripted driver's memory is the host's, and it has run the stream's commands.
        unsafe { *word += 1 };
    }
    let name = "tests::buffers::native_handles_are_those_of_a_device";
    in_each_setting(name, |_, two, setting| {
        let mut data = [3; WORDS];
        let given = buffer(two, Some(&mut data));
        let mut addresses = [0; 2];
        for at in [0, 1, 1, 0] {
            let (device, new) = (two.devices[at], &mut addresses[at]);
            ok(ur!(Mem.pfnGetNativeHandle(given, device, new)));
            let memory = std::ptr::with_exposed_provenance::<c_void>(addresses[at]);
            assert_eq!(bytes(memory), [3, 0, 0, 0], "{setting:?}");
        }
        assert_ne!(addresses[0], addresses[1]);
        for (at, sum) in [(0, 4), (1, 5), (1, 6), (0, 7)] {
            let (run, data) = (Some(count_up as _), given.cast());
            let (queue, list, none) = (two.queues[at], &raw const given, null_mut());
            ok(ur!(EnqueueExp.pfnNativeCommandExp(
                queue,
                run,
                data,
                1,
                list,
                null(),
                0,
                null(),
                none
            )));
            two.finish();
            assert_eq!(read(two.queues[1], given)[0], sum, "{setting:?}");
        }
        release(&[given]);
    });
}

/// Commands that the host defers, and recorded ones, find the buffer where it is when they run.
#[test]
fn later_commands_find_the_buffer() {
    let name = "tests::buffers::later_commands_find_the_buffer";
    in_each_setting(name, |_, two, setting| {
        let kernels = Kernels::new(two);
        let [one, other] = two.queues;
        let given = buffer(two, None);
        write(one, given, [1, 2, 3, 4]);
        kernels.add(one, given, 1);
        let count = AtomicU32::new(0);
        let (run, data) = (Some(task as _), (&raw const count).cast_mut().cast());
        let mut events = [null_mut(); 2];
        ok(ur!(EnqueueExp.pfnHostTaskExp(
            other,
            run,
            data,
            null(),
            0,
            null(),
            &mut events[0]
        )));
        kernels.add(other, given, 10);
        ok(ur!(Enqueue.pfnEventsWait(other, 0, null(), &mut events[1])));
        let none = null_mut();
        ok(ur!(Enqueue.pfnEventsWait(one, 1, &events[1], none)));
        kernels.add(one, given, 100);
        two.finish();
        assert_eq!(read(one, given), [112, 113, 114, 115], "{setting:?}");
        for event in events {
            ok(ur!(Event.pfnRelease(event)));
        }
        let what = ur_exp_command_buffer_desc_t {
            isInOrder: 1,
            ..Default::default()
        };
        let commands = two.devices.map(|device| {
            let (mut commands, context, none) = (null_mut(), two.context, null_mut());
            let new = &mut commands;
            ok(ur!(
                CommandBufferExp.pfnCreateExp(context, device, &what, new)
            ));
            let number = 1_u32;
            let pattern = (&raw const number).cast();
            for offset in [0, 4] {
                ok(ur!(CommandBufferExp.pfnAppendMemBufferFillExp(
                    commands,
                    given,
                    pattern,
                    4,
                    offset,
                    4,
                    0,
                    null(),
                    0,
                    null(),
                    null_mut(),
                    none,
                    null_mut()
                )));
            }
            ok(ur!(CommandBufferExp.pfnFinalizeExp(commands)));
            commands
        });
        for at in [0, 1, 1, 0] {
            kernels.add(two.queues[1 - at], given, 1);
            two.finish();
            let (queue, none) = (two.queues[at], null_mut());
            ok(ur!(EnqueueExp.pfnCommandBufferExp(
                queue,
                commands[at],
                0,
                null(),
                none
            )));
            two.finish();
            assert_eq!(read(one, given)[..2], [1, 1], "{setting:?}");
        }
        assert_eq!(read(one, given)[2..], [118, 119]);
        for commands in commands {
            ok(ur!(CommandBufferExp.pfnReleaseExp(commands)));
        }
        release(&[given]);
        kernels.release();
    });
}

/// Each call of the driver fails once while a buffer moves between devices.
#[test]
fn each_call_fails_while_buffers_move() {
    let name = "tests::buffers::each_call_fails_while_buffers_move";
    each_call_fails(name, 30, to_and_fro);
}

/// Moves a buffer to the second device and back. False if all calls succeeded and the data is wrong.
fn to_and_fro() -> bool {
    let adapter = adapter();
    let all = devices(adapter);
    let (mut context, mut program, mut kernel) = (null_mut(), null_mut(), null_mut());
    let (mut buffer, mut queues) = (null_mut(), [null_mut(); 2]);
    let mut failed = ur!(Context.pfnCreate(2, all.as_ptr(), null(), &mut context)).0;
    let text = b".version 8.0\0";
    let (mut lengths, mut codes, mut list) = ([text.len(); 2], [text.as_ptr(); 2], all);
    if failed == 0 {
        let (list, lengths) = (list.as_mut_ptr(), lengths.as_mut_ptr());
        let (codes, new) = (codes.as_mut_ptr(), &mut program);
        failed |= ur!(Program.pfnCreateWithBinary(context, 2, list, lengths, codes, null(), new)).0;
        for at in [0, 1] {
            failed |= ur!(Queue.pfnCreate(context, list_at(list, at), null(), &mut queues[at])).0;
        }
        let flags = UR_MEM_FLAG_READ_WRITE;
        failed |= ur!(Mem.pfnBufferCreate(context, flags, BYTES, null(), &mut buffer)).0;
    }
    if failed == 0 {
        failed |= ur!(Program.pfnBuild(context, program, null())).0;
        failed |= ur!(Kernel.pfnCreate(program, c"add".as_ptr(), &mut kernel)).0;
    }
    let mut right = true;
    if failed == 0 {
        let (words, mut back, none) = ([1_u32, 2, 3, 4], [0_u32; 4], null_mut());
        let from = words.as_ptr().cast();
        failed |=
            ur!(Enqueue.pfnMemBufferWrite(queues[0], buffer, 1, 0, 16, from, 0, null(), none)).0;
        let mut sum = 0;
        for at in [1, 0, 1] {
            let args = [
                memory_object(0, buffer, UR_MEM_FLAG_READ_WRITE),
                launching::number(1, &5),
            ];
            let code = launch(queues[at], kernel, 4, &args, &[], none);
            sum += if code == UR_RESULT_SUCCESS { 5 } else { 0 };
            let code = ur!(Queue.pfnFinish(queues[at]));
            failed |= code.0;
        }
        let to = back.as_mut_ptr().cast();
        failed |= ur!(Enqueue.pfnMemBufferRead(queues[0], buffer, 1, 0, 16, to, 0, null(), none)).0;
        right = failed != 0 || back == words.map(|word| word + sum);
    }
    if !kernel.is_null() {
        let _ = ur!(Kernel.pfnRelease(kernel));
    }
    if !program.is_null() {
        let _ = ur!(Program.pfnRelease(program));
    }
    for queue in queues.into_iter().filter(|queue| !queue.is_null()) {
        let _ = ur!(Queue.pfnFinish(queue));
        let _ = ur!(Queue.pfnRelease(queue));
    }
    if !buffer.is_null() {
        let _ = ur!(Mem.pfnRelease(buffer));
    }
    if !context.is_null() {
        let _ = ur!(Context.pfnRelease(context));
    }
    ok(ur!(Adapter.pfnRelease(adapter)));
    right
}

fn list_at(list: *const ur_device_handle_t, at: usize) -> ur_device_handle_t {
    // SAFETY: a list of two devices.
    unsafe { list.add(at).read() }
}
