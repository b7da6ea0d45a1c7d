//! Two devices in one context: each other's memory, order, buffers, and peer access.
//!
//! Skipped where the platform has one device.

use super::buffer_map::{map, unmap};
use super::enqueue::{LONG, pending};
use super::launch::counts_up;
use crate::fixture::{Devices, Fixture, devices};
use crate::kernels::{ADD, IOTA, PAINT, REACH, SUM, TEXELS, VERIFY};
use crate::objects::image::{KINDS, Part, RGBA8, axes, desc};
use crate::objects::{Arg, Buffer, Context, Gate, Image, Kernel, Kind, Program, Queue, Usm, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_all, check_eq, check_items};
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["several_devices";
        device_order_is_the_callers, copy_between_devices, copies_both_ways_at_once, copy_without_a_queue,
        fills_of_every_pattern, asynchronous_memory_of_the_other, free_on_the_other_device,
        recorded_commands, events_order_across_devices, chain_alternates_devices, kernels_use_shared_and_host_memory,
        buffer_follows_kernels, buffer_read_by_both, buffer_commands_on_both, sub_buffers_on_both, buffer_mapped_on_both,
        images_on_both, kernels_use_images_on_both, image_over_host_on_both,
        buffers_over_host_on_both, memory_opened_on_the_other,
    ];
    tests.extend(crate::tests!["peer_access";
        info_of_a_pair, states, device_and_itself, commands_with_and_without, kernels_with_access,
        asynchronous_memory_with_access, access_for_other_contexts, atomics_with_access, pointers_with_access,
    ]);
    tests
}

const WORDS: usize = 1 << 16;
const BYTES: usize = 4 * WORDS;

/// Bytes of a copy that is worth several channels.
const MUCH: usize = 64 << 20;

/// A context over two devices of the platform, with an in-order queue on each.
struct Two {
    queues: [Queue; 2],
    context: Context,
    devices: [ur_device_handle_t; 2],
    _all: Devices,
}

impl Two {
    fn new(fixture: &Fixture) -> Result<Self, Stop> {
        Self::ordered(fixture, false)
    }

    /// With the device under test first, or last.
    fn ordered(fixture: &Fixture, last: bool) -> Result<Self, Stop> {
        let (ur, all) = (fixture.ur, all_devices(fixture)?);
        let mut devices = [fixture.device, other(fixture, &all)?];
        if last {
            devices.reverse();
        }
        let mut raw = null_mut();
        ur.urContextCreate(2, devices.as_ptr(), null(), &mut raw)
            .ok()?;
        let context = Context::adopt(ur, raw);
        let queue = |device| Queue::new(&context, device, ur_queue_flags_t(0));
        Ok(Self {
            queues: [queue(devices[0])?, queue(devices[1])?],
            context,
            devices,
            _all: all,
        })
    }

    fn usm(&self, at: usize, kind: Kind, bytes: usize) -> Result<Usm, Stop> {
        let device = self.devices[at];
        Usm::new(&self.context, device, kind, bytes, 0, null_mut())
    }

    /// Device memory of both.
    fn memory(&self, bytes: usize) -> Result<[Usm; 2], Stop> {
        Ok([
            self.usm(0, Kind::Device, bytes)?,
            self.usm(1, Kind::Device, bytes)?,
        ])
    }

    fn finish(&self) -> Done {
        self.queues[0].finish()?;
        self.queues[1].finish()
    }

    /// A kernel for each device.
    fn kernels(&self, fixture: &Fixture, name: &CStr) -> Result<[Kernel; 2], Stop> {
        let kernel = |device| -> Result<Kernel, Stop> {
            let program = Program::on(fixture, &self.context, device)?;
            program.kernel(name)
        };
        Ok([kernel(self.devices[0])?, kernel(self.devices[1])?])
    }
}

fn all_devices(fixture: &Fixture) -> Result<Devices, Stop> {
    devices(fixture.ur, fixture.platform, UR_DEVICE_TYPE_ALL)
}

fn other(fixture: &Fixture, all: &Devices) -> Result<ur_device_handle_t, Stop> {
    let other = all.iter().find(|device| **device != fixture.device);
    other
        .copied()
        .ok_or_else(|| Stop::skipped("the platform has one device"))
}

fn numbers(base: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|at| base.wrapping_add(at)).collect()
}

/// A context lists its devices in the order of its creation, and works in either order.
fn device_order_is_the_callers(fixture: &Fixture) -> Done {
    for last in [false, true] {
        let two = Two::ordered(fixture, last)?;
        let mut listed: [ur_device_handle_t; 2] = [null_mut(); 2];
        let (what, bytes) = (UR_CONTEXT_INFO_DEVICES, size_of_val(&listed));
        let out = listed.as_mut_ptr().cast();
        let (ur, raw) = (fixture.ur, two.context.raw);
        ur.urContextGetInfo(raw, what, bytes, out, null_mut())
            .ok()?;
        check_eq!(listed, two.devices, "devices of the context");
        let memory = two.memory(BYTES)?;
        for (at, queue) in two.queues.iter().enumerate() {
            queue.fill(memory[at].ptr, at as u32 + 1, BYTES, &[])?;
        }
        two.finish()?;
        for (at, queue) in two.queues.iter().enumerate() {
            queue.copy(memory[at].ptr, memory[1 - at].ptr, BYTES / 2, &[])?;
            queue.finish()?;
            let data = queue.read::<u32>(memory[at].ptr, WORDS, &[])?;
            check_all!(
                data[..WORDS / 2],
                2,
                "words that came from the second device"
            );
        }
    }
    Ok(())
}

/// A large copy between two devices arrives, on the queue of either.
fn copy_between_devices(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let memory = two.memory(MUCH)?;
    let data = numbers(7, MUCH / 4);
    two.queues[0].write(memory[0].ptr, &data)?;
    for queue in &two.queues {
        two.queues[1].fill(memory[1].ptr, 0_u32, MUCH, &[])?;
        two.finish()?;
        queue.copy(memory[1].ptr, memory[0].ptr, MUCH, &[])?;
        queue.finish()?;
        let back = two.queues[1].read::<u32>(memory[1].ptr, MUCH / 4, &[])?;
        check!(back == data, "the copy differs from its source");
    }
    Ok(())
}

/// Copies in both directions run at once and do not disturb each other.
fn copies_both_ways_at_once(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let (from, to) = (two.memory(MUCH)?, two.memory(MUCH)?);
    for (at, queue) in two.queues.iter().enumerate() {
        queue.fill(from[at].ptr, at as u32 + 1, MUCH, &[])?;
    }
    two.finish()?;
    for (at, queue) in two.queues.iter().enumerate() {
        queue.copy(to[at].ptr, from[1 - at].ptr, MUCH, &[])?;
    }
    two.finish()?;
    for (at, queue) in two.queues.iter().enumerate() {
        let data = queue.read::<u32>(to[at].ptr, MUCH / 4, &[])?;
        check_all!(data, 2 - at as u32, "words from the other device");
    }
    Ok(())
}

/// `urUSMContextMemcpyExp` copies between devices of the context.
fn copy_without_a_queue(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let memory = two.memory(BYTES)?;
    two.queues[0].fill(memory[0].ptr, 3_u32, BYTES, &[])?;
    two.queues[1].fill(memory[1].ptr, 4_u32, BYTES, &[])?;
    two.finish()?;
    let (ur, raw) = (fixture.ur, two.context.raw);
    ur.urUSMContextMemcpyExp(raw, memory[1].ptr, memory[0].ptr, BYTES / 2)
        .ok()?;
    let data = two.queues[1].read::<u32>(memory[1].ptr, WORDS, &[])?;
    check_all!(data[..WORDS / 2], 3, "copied words");
    check_all!(data[WORDS / 2..], 4, "words behind the copy");
    Ok(())
}

/// Fills of the other device's memory write every pattern, and nothing beside it.
fn fills_of_every_pattern(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let memory = two.memory(BYTES)?;
    let (own, far) = (&two.queues[0], &memory[1]);
    for size in [1, 2, 3, 4, 8, 12, 16, 64] {
        two.queues[1].fill(far.ptr, 0xee_u8, BYTES, &[])?;
        two.finish()?;
        let pattern: Vec<u8> = (1..=size as u8).collect();
        let (from, bytes) = (pattern.as_ptr().cast(), 5 * size);
        let (ur, list, none) = (fixture.ur, null(), null_mut());
        for at in [0, 256] {
            let to = far.ptr.wrapping_byte_add(at);
            ur.urEnqueueUSMFill(own.raw, to, size, from, bytes, 0, list, none)
                .ok()?;
        }
        own.finish()?;
        let data = two.queues[1].read::<u8>(far.ptr, 1024, &[])?;
        let wanted = pattern.iter().copied().cycle().take(bytes);
        let wanted: Vec<u8> = wanted.collect();
        check!(
            data[..bytes.min(256)] == wanted[..bytes.min(256)],
            "a fill with a pattern of {size} bytes"
        );
        check!(
            data[256..256 + bytes] == wanted,
            "a second fill with a pattern of {size} bytes"
        );
        check_all!(data[256 + bytes..], 0xee, "bytes behind a fill");
    }
    Ok(())
}

/// Asynchronous memory of one device is used by commands of the other one, behind its allocation's event.
fn asynchronous_memory_of_the_other(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let [own, other] = &two.queues;
    let block = other.alloc_current(Kind::Device, BYTES)?;
    let ready = other.marker(&[])?;
    let filled = own.fill(block.ptr, 5_u32, BYTES, &[&ready])?;
    let data = other.read::<u32>(block.ptr, WORDS, &[&filled])?;
    check_all!(data, 5, "words that the other device has filled");
    let near = own.alloc_current(Kind::Device, BYTES)?;
    let copied = own.copy(near.ptr, block.ptr, BYTES, &[])?;
    check_all!(own.read::<u32>(near.ptr, WORDS, &[])?, 5, "copied words");
    other.free(block, &[&copied])?;
    own.free(near, &[])?;
    two.finish()
}

/// A block that is freed on the other device's queue is reused on its own only behind that.
fn free_on_the_other_device(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let [own, other] = &two.queues;
    for round in 0..10_u32 {
        let bytes = 4 << 20;
        let block = own.alloc_current(Kind::Device, bytes)?;
        let filled = own.fill(block.ptr, round, bytes, &[])?;
        let copy = other.alloc_current(Kind::Device, bytes)?;
        other.copy(copy.ptr, block.ptr, bytes, &[&filled])?;
        let freed = other.free_event(block, &[])?;
        // This may be the same block, which the other device reads.
        let again = own.alloc_current(Kind::Device, bytes)?;
        own.fill(again.ptr, !round, bytes, &[])?;
        let data = other.read::<u32>(copy.ptr, bytes / 4, &[])?;
        check_all!(data, round, "words of round {round}");
        freed.wait()?;
        own.free(again, &[])?;
        other.free(copy, &[])?;
    }
    two.finish()
}

/// A command buffer of one device copies and fills memory of the other, each time it runs.
fn recorded_commands(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let memory = two.memory(BYTES)?;
    let (ur, none, list) = (fixture.ur, null_mut(), null());
    let what = ur_exp_command_buffer_desc_t {
        isInOrder: 1,
        ..Default::default()
    };
    let mut commands = null_mut();
    let (context, device) = (two.context.raw, two.devices[0]);
    ur.urCommandBufferCreateExp(context, device, &what, &mut commands)
        .ok()?;
    let run = || -> Done {
        let pattern = 6_u32;
        let from = (&raw const pattern).cast();
        let (near, far) = (memory[0].ptr, memory[1].ptr);
        ur.urCommandBufferAppendUSMFillExp(
            commands,
            far,
            from,
            4,
            BYTES,
            0,
            list,
            0,
            null(),
            none,
            null_mut(),
            null_mut(),
        )
        .ok()?;
        ur.urCommandBufferAppendUSMMemcpyExp(
            commands,
            near,
            far,
            BYTES,
            0,
            list,
            0,
            null(),
            none,
            null_mut(),
            null_mut(),
        )
        .ok()?;
        ur.urCommandBufferFinalizeExp(commands).ok()?;
        for _ in 0..3 {
            two.queues[0].fill(near, 0_u32, BYTES, &[])?;
            two.queues[1].fill(far, 0_u32, BYTES, &[])?;
            two.finish()?;
            let queue = two.queues[0].raw;
            ur.urEnqueueCommandBufferExp(queue, commands, 0, null(), null_mut())
                .ok()?;
            two.finish()?;
            let data = two.queues[0].read::<u32>(near, WORDS, &[])?;
            check_all!(data, 6, "words of the device's own memory");
        }
        Ok(())
    };
    let done = run();
    done.and(ur.urCommandBufferReleaseExp(commands).ok())
}

/// A command of one device waits for an event of the other, and the call that enqueues it does not.
fn events_order_across_devices(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let memory = two.memory(BYTES)?;
    let [own, other] = &two.queues;
    let gate = Gate::close(fixture, own)?;
    let filled = own.fill(memory[0].ptr, 8_u32, BYTES, &[])?;
    let copied = other.copy(memory[1].ptr, memory[0].ptr, BYTES, &[&filled])?;
    let back = own.copy(memory[0].ptr, memory[1].ptr, 64, &[&copied])?;
    for waiting in [&filled, &copied, &back] {
        pending(waiting, "a command behind the gate")?;
    }
    check!(!gate.is_open(), "the gate opened by itself");
    gate.open();
    check!(back.completes_within(LONG)?, "the last command");
    let data = other.read::<u32>(memory[1].ptr, WORDS, &[])?;
    check_all!(data, 8, "copied words");
    two.finish()
}

/// Numbers that go to and fro between devices grow by each kernel once.
fn chain_alternates_devices(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let add = two.kernels(fixture, ADD)?;
    let memory = two.memory(BYTES)?;
    let mut last = two.queues[0].fill(memory[0].ptr, 0_u32, BYTES, &[])?;
    for step in 0..40 {
        let (at, next) = (step % 2, 1 - step % 2);
        let (queue, own) = (&two.queues[at], &memory[at]);
        let args = [Arg::Pointer(own.ptr), Arg::of(&1_u32)];
        let added = queue.launch(&add[at], WORDS, &args, &[&last])?;
        last = two.queues[next].copy(memory[next].ptr, own.ptr, BYTES, &[&added])?;
    }
    let data = two.queues[0].read::<u32>(memory[0].ptr, WORDS, &[&last])?;
    check_all!(data, 40, "words after 40 kernels");
    two.finish()
}

/// Kernels of both devices use the context's host memory, and shared memory of either.
fn kernels_use_shared_and_host_memory(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let add = two.kernels(fixture, ADD)?;
    for kind in [Kind::Host, Kind::Shared] {
        for owner in [0, 1] {
            let memory = two.usm(owner, kind, BYTES)?;
            two.queues[owner].fill(memory.ptr, 1_u32, BYTES, &[])?;
            two.finish()?;
            for (at, queue) in two.queues.iter().enumerate() {
                let args = [Arg::Pointer(memory.ptr), Arg::of(&2_u32)];
                queue.launch(&add[at], WORDS, &args, &[])?;
                queue.finish()?;
            }
            check_all!(memory.host::<u32>(), 5, "words of {kind} memory");
        }
    }
    Ok(())
}

/// A buffer that kernels of both devices change in turn has what all of them have written.
fn buffer_follows_kernels(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let add = two.kernels(fixture, ADD)?;
    let buffer = two.context.buffer(BYTES)?;
    buffer.write(&two.queues[0], 0, &numbers(0, WORDS))?;
    let mut base = 0;
    for at in [1, 0, 0, 1, 1, 0, 1] {
        let (queue, amount) = (&two.queues[at], at as u32 + 10);
        let args = [Arg::Buffer(&buffer), Arg::of(&amount)];
        queue.launch(&add[at], WORDS, &args, &[])?;
        queue.finish()?;
        base += amount;
        for reader in &two.queues {
            let data = buffer.read::<u32>(reader, 0, WORDS)?;
            check!(counts_up(&data, base), "the buffer after {amount} more");
        }
    }
    Ok(())
}

/// Kernels of both devices read one buffer at the same time.
fn buffer_read_by_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let sum = two.kernels(fixture, SUM)?;
    let given = Buffer::copied(&two.context, &mut numbers(3, WORDS))?;
    let results = two.memory(BYTES)?;
    for (at, queue) in two.queues.iter().enumerate() {
        let result = Arg::Pointer(results[at].ptr);
        let args = [result, Arg::Buffer(&given), Arg::Buffer(&given)];
        queue.launch(&sum[at], WORDS, &args, &[])?;
    }
    two.finish()?;
    for (at, queue) in two.queues.iter().enumerate() {
        let data = queue.read::<u32>(results[at].ptr, WORDS, &[])?;
        let wanted = (0..WORDS as u32).map(|at| 2 * (3 + at));
        check!(data.into_iter().eq(wanted), "sums of device {at}");
    }
    Ok(())
}

/// Copies, fills, reads and writes of buffers work on the queue of any device.
fn buffer_commands_on_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let add = two.kernels(fixture, ADD)?;
    let (ur, list, none) = (fixture.ur, null(), null_mut());
    for home in [0, 1] {
        let [from, to] = [two.context.buffer(BYTES)?, two.context.buffer(BYTES)?];
        from.write(&two.queues[home], 0, &numbers(1, WORDS))?;
        to.write(&two.queues[1 - home], 0, &vec![0_u32; WORDS])?;
        // A kernel gives each buffer to a device.
        for (at, buffer) in [(home, &from), (1 - home, &to)] {
            let args = [Arg::Buffer(buffer), Arg::of(&1_u32)];
            two.queues[at].launch(&add[at], WORDS, &args, &[])?;
        }
        two.finish()?;
        for queue in &two.queues {
            let half = BYTES / 2;
            ur.urEnqueueMemBufferCopy(queue.raw, from.raw, to.raw, 0, half, half, 0, list, none)
                .ok()?;
            let pattern = 9_u32;
            let what = (&raw const pattern).cast();
            ur.urEnqueueMemBufferFill(queue.raw, to.raw, what, 4, 0, half, 0, list, none)
                .ok()?;
            queue.finish()?;
            for reader in &two.queues {
                let data = to.read::<u32>(reader, 0, WORDS)?;
                check_all!(data[..WORDS / 2], 9, "filled words");
                check!(counts_up(&data[WORDS / 2..], 2), "copied words");
            }
            to.write(queue, 4, &[7_u32])?;
            check_eq!(
                to.read::<u32>(&two.queues[home], 0, 3)?,
                [9, 7, 9],
                "words around a written one"
            );
        }
    }
    Ok(())
}

/// Sub-buffers are parts of one buffer on both devices.
fn sub_buffers_on_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let add = two.kernels(fixture, ADD)?;
    let buffer = two.context.buffer(BYTES)?;
    buffer.write(&two.queues[0], 0, &vec![0_u32; WORDS])?;
    let half = BYTES / 2;
    let parts = [buffer.part(0, half)?, buffer.part(half, half)?];
    for round in 0..4 {
        for (at, part) in parts.iter().enumerate() {
            let device = (at + round) % 2;
            let amount = at as u32 + 1;
            let args = [Arg::Buffer(part), Arg::of(&amount)];
            let queue = &two.queues[device];
            queue.launch(&add[device], WORDS / 2, &args, &[])?;
            queue.finish()?;
        }
    }
    for queue in &two.queues {
        let data = buffer.read::<u32>(queue, 0, WORDS)?;
        check_all!(data[..WORDS / 2], 4, "words of the first part");
        check_all!(data[WORDS / 2..], 8, "words of the second part");
    }
    Ok(())
}

/// A mapping on the queue of either device shows the buffer, and its changes are seen by both.
fn buffer_mapped_on_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let add = two.kernels(fixture, ADD)?;
    let buffer = two.context.buffer(BYTES)?;
    buffer.write(&two.queues[0], 0, &numbers(0, WORDS))?;
    let (ur, none) = (fixture.ur, null_mut());
    let mut base = 0;
    for (at, queue) in two.queues.iter().enumerate() {
        let flags = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
        let mut mapped = null_mut();
        ur.urEnqueueMemBufferMap(
            queue.raw,
            buffer.raw,
            1,
            flags,
            0,
            BYTES,
            0,
            null(),
            none,
            &mut mapped,
        )
        .ok()?;
        // SAFETY: the mapping has that many bytes until it is ended.
        let words = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u32>(), WORDS) };
        check!(counts_up(words, base), "mapped words");
        words.iter_mut().for_each(|word| *word += 5);
        ur.urEnqueueMemUnmap(queue.raw, buffer.raw, mapped, 0, null(), null_mut())
            .ok()?;
        queue.finish()?;
        let device = 1 - at;
        let args = [Arg::Buffer(&buffer), Arg::of(&1_u32)];
        two.queues[device].launch(&add[device], WORDS, &args, &[])?;
        two.finish()?;
        base += 6;
        let data = buffer.read::<u32>(queue, 0, WORDS)?;
        check!(counts_up(&data, base), "words after the mapping");
    }
    Ok(())
}

/// Buffers over host memory are that memory for commands of both devices, in maps and after the release.
fn buffers_over_host_on_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let add = two.kernels(fixture, ADD)?;
    // Two buffers that share a page: a driver may register one of them only.
    let mut memory = numbers(0, 2 * WORDS);
    let at = memory.as_ptr().addr();
    let (one, other) = memory.split_at_mut(WORDS + 8);
    let rest = other.len();
    let write = UR_MEM_FLAG_READ_WRITE;
    let buffers = [
        (Buffer::over(&two.context, write, one)?, WORDS + 8, at),
        (
            Buffer::over(&two.context, write, other)?,
            rest,
            at + 4 * (WORDS + 8),
        ),
    ];
    let mut base = 0;
    for (device, queue) in two.queues.iter().enumerate() {
        for (buffer, words, at) in &buffers {
            let first = ((*at - memory.as_ptr().addr()) / 4) as u32;
            let part = buffer.part(0, 4 * words)?;
            for given in [buffer, &part] {
                let args = [Arg::Buffer(given), Arg::of(&1_u32)];
                queue.launch(&add[device], *words, &args, &[])?;
                queue.finish()?;
            }
            // The other device's queue shows what the kernels have written.
            let far = &two.queues[1 - device];
            let both = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
            let mapped = map(far, buffer, both, 0, 4 * words)?;
            check_eq!(mapped.addr(), *at, "address of a map");
            // SAFETY: the mapping has that many bytes until it is ended.
            let shown = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u32>(), *words) };
            check!(counts_up(shown, first + base + 2), "mapped words");
            shown.iter_mut().for_each(|word| *word += 5);
            unmap(far, buffer, mapped)?;
            far.finish()?;
            let args = [Arg::Buffer(buffer), Arg::of(&1_u32)];
            queue.launch(&add[device], *words, &args, &[])?;
            queue.finish()?;
            let read = buffer.read::<u32>(far, 0, *words)?;
            check!(counts_up(&read, first + base + 8), "words read");
        }
        base += 8;
    }
    two.finish()?;
    drop(buffers);
    check!(counts_up(&memory, base), "words after the release");
    Ok(())
}

/// Memory of a device opens on another one where that has access, in a context of both and in one of its own.
/// Elsewhere it is refused.
fn memory_opened_on_the_other(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let (ur, [home, user]) = (fixture.ur, two.devices);
    if !fixture.supports(UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP)? {
        return Err(Stop::skipped("the device shares no memory"));
    }
    let iota = two.kernels(fixture, IOTA)?;
    let memory = two.usm(0, Kind::Device, BYTES)?;
    let (mut blob, mut size) = (null_mut(), 0);
    ur.urIPCGetMemHandleExp(two.context.raw, memory.ptr, &mut blob, &mut size)
        .ok()?;
    let access = peer_info(fixture, [user, home], ACCESS)? == 1;
    let mut opened = null_mut();
    let code = ur.urIPCOpenMemHandleExp(two.context.raw, user, blob, size, &mut opened);
    let has_access = match access {
        true => code.ok().is_ok(),
        false => code.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE).is_err(),
    };
    if has_access {
        for (at, queue) in two.queues.iter().enumerate() {
            let base = 100 * (at as u32 + 1);
            queue.launch(
                &iota[at],
                WORDS,
                &[Arg::Pointer(opened), Arg::of(&base)],
                &[],
            )?;
            queue.finish()?;
            let data = two.queues[0].read::<u32>(memory.ptr, WORDS, &[])?;
            check!(counts_up(&data, base), "words that device {at} has written");
            queue.fill(opened, 7_u32, BYTES / 2, &[])?;
            queue.copy(opened.wrapping_byte_add(BYTES / 2), opened, BYTES / 2, &[])?;
            queue.finish()?;
            let data = two.queues[0].read::<u32>(memory.ptr, WORDS, &[])?;
            check_all!(data, 7, "words that device {at} has filled and copied");
        }
        ur.urIPCCloseMemHandleExp(two.context.raw, opened).ok()?;
        // A context without the device that holds the memory.
        let mut raw = null_mut();
        ur.urContextCreate(1, &user, null(), &mut raw).ok()?;
        let alone = Context::adopt(ur, raw);
        ur.urIPCOpenMemHandleExp(alone.raw, user, blob, size, &mut opened)
            .ok()?;
        let queue = Queue::new(&alone, user, ur_queue_flags_t(0))?;
        queue.fill(opened, 8_u32, BYTES, &[])?;
        queue.finish()?;
        let data = two.queues[0].read::<u32>(memory.ptr, WORDS, &[])?;
        check_all!(data, 8, "words that another context has filled");
        ur.urIPCCloseMemHandleExp(alone.raw, opened).ok()?;
    }
    ur.urIPCPutMemHandleExp(two.context.raw, blob).ok()
}

/// What the device can do with the memory of another one.
fn peer_info(
    fixture: &Fixture,
    [from, to]: [ur_device_handle_t; 2],
    what: ur_exp_peer_info_t,
) -> Result<i32, Stop> {
    let ur = fixture.ur;
    info::value(|size, value, ret| {
        ur.urUsmP2PPeerAccessGetInfoExp(from, to, what, size, value, ret)
    })
}

const ACCESS: ur_exp_peer_info_t = UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT;
const ATOMICS: ur_exp_peer_info_t = UR_EXP_PEER_INFO_UR_PEER_ATOMICS_SUPPORT;

/// Two devices, the first of which can have access to the second. Skipped if it cannot.
fn linked(fixture: &Fixture) -> Result<Two, Stop> {
    let two = Two::new(fixture)?;
    let refusal = || enable(fixture, two.devices);
    fixture.require(UR_DEVICE_INFO_USM_P2P_SUPPORT_EXP, refusal)?;
    match peer_info(fixture, two.devices, ACCESS)? {
        0 => Err(Stop::skipped("the two devices have no link")),
        _ => Ok(two),
    }
}

fn enable(fixture: &Fixture, [from, to]: [ur_device_handle_t; 2]) -> Status {
    fixture.ur.urUsmP2PEnablePeerAccessExp(from, to)
}

fn disable(fixture: &Fixture, [from, to]: [ur_device_handle_t; 2]) -> Status {
    fixture.ur.urUsmP2PDisablePeerAccessExp(from, to)
}

/// Runs a part of a test with access enabled, which it is not afterwards.
fn with_access(
    fixture: &Fixture,
    pair: [ur_device_handle_t; 2],
    run: impl FnOnce() -> Done,
) -> Done {
    enable(fixture, pair).ok()?;
    let done = run();
    done.and(disable(fixture, pair).ok())
}

/// Each property of a pair is 0 or 1, in both directions, and atomics need access.
fn info_of_a_pair(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let [one, other] = two.devices;
    for pair in [[one, other], [other, one]] {
        let access = peer_info(fixture, pair, ACCESS)?;
        let atomics = peer_info(fixture, pair, ATOMICS)?;
        check!([0, 1].contains(&access), "access is {access}");
        check!([0, 1].contains(&atomics), "atomics are {atomics}");
        check!(atomics <= access, "atomics without access");
    }
    Ok(())
}

/// Access is enabled once and disabled once, each direction for itself. Without a link it is refused.
fn states(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    let [one, other] = two.devices;
    let refusal = || enable(fixture, [one, other]);
    fixture.require(UR_DEVICE_INFO_USM_P2P_SUPPORT_EXP, refusal)?;
    if peer_info(fixture, [one, other], ACCESS)? == 0 {
        enable(fixture, [one, other]).refused()?;
        return disable(fixture, [one, other]).refused();
    }
    for pair in [[one, other], [other, one]] {
        let turned = [pair[1], pair[0]];
        for _ in 0..2 {
            disable(fixture, pair).refused()?;
            enable(fixture, pair).ok()?;
            enable(fixture, pair).refused()?;
            disable(fixture, turned).refused()?;
            disable(fixture, pair).ok()?;
        }
    }
    Ok(())
}

/// A device gets no access to itself, which it has.
fn device_and_itself(fixture: &Fixture) -> Done {
    let pair = [fixture.device; 2];
    fixture.require(UR_DEVICE_INFO_USM_P2P_SUPPORT_EXP, || enable(fixture, pair))?;
    enable(fixture, pair).refused()?;
    disable(fixture, pair).refused()
}

/// Commands work on the other device's memory before access is enabled, while it is, and afterwards.
fn commands_with_and_without(fixture: &Fixture) -> Done {
    let two = linked(fixture)?;
    let memory = two.memory(BYTES)?;
    let [own, other] = &two.queues;
    let run = |number: u32| -> Done {
        own.fill(memory[1].ptr, number, BYTES, &[])?;
        own.copy(memory[0].ptr, memory[1].ptr, BYTES, &[])?;
        own.finish()?;
        let data = own.read::<u32>(memory[0].ptr, WORDS, &[])?;
        check_all!(data, number, "words of round {number}");
        other.fill(memory[0].ptr, !number, BYTES, &[])?;
        other.finish()?;
        let data = own.read::<u32>(memory[0].ptr, WORDS, &[])?;
        check_all!(data, !number, "words that the other device has filled");
        Ok(())
    };
    for round in 0..3 {
        run(3 * round)?;
        with_access(fixture, two.devices, || run(3 * round + 1))?;
        run(3 * round + 2)?;
    }
    Ok(())
}

/// A kernel reads and writes the other device's memory while access is enabled.
fn kernels_with_access(fixture: &Fixture) -> Done {
    let two = linked(fixture)?;
    let [iota, verify] = [IOTA, VERIFY].map(|name| two.kernels(fixture, name));
    let (iota, verify) = (iota?, verify?);
    let memory = two.memory(BYTES)?;
    let count = two.usm(0, Kind::Host, 4)?;
    two.queues[0].fill(count.ptr, 0_u32, 4, &[])?;
    with_access(fixture, two.devices, || {
        let (queue, far) = (&two.queues[0], Arg::Pointer(memory[1].ptr));
        queue.launch(&iota[0], WORDS, &[far, Arg::of(&5_u32)], &[])?;
        let args = [
            Arg::Pointer(memory[1].ptr),
            Arg::of(&5_u32),
            Arg::Pointer(count.ptr),
        ];
        queue.launch(&verify[0], WORDS, &args, &[])?;
        queue.finish()
    })?;
    check_eq!(count.host::<u32>()[0], 0, "wrong words");
    let data = two.queues[1].read::<u32>(memory[1].ptr, WORDS, &[])?;
    check!(counts_up(&data, 5), "what the kernel has written");
    Ok(())
}

/// A kernel that uses other memory than its arguments' reaches the other device's by addresses in memory while access is
/// enabled, allocated before that or after it.
fn pointers_with_access(fixture: &Fixture) -> Done {
    const REACHED: usize = 64;
    let two = linked(fixture)?;
    let reach = two.kernels(fixture, REACH)?;
    reach[0].use_any_memory()?;
    let [own, other] = &two.queues;
    let addresses = two.usm(0, Kind::Device, 8 * REACHED)?;
    let before = two.usm(1, Kind::Device, BYTES)?;
    with_access(fixture, two.devices, || {
        let after = two.usm(1, Kind::Device, BYTES)?;
        for memory in [&before, &after] {
            other.fill(memory.ptr, 1_u32, BYTES, &[])?;
            other.finish()?;
            let start = memory.ptr.expose_provenance();
            let list: Vec<u64> = (0..REACHED).map(|at| (start + 4 * at) as u64).collect();
            own.write(addresses.ptr, &list)?;
            let args = [Arg::Pointer(addresses.ptr), Arg::of(&2_u32)];
            own.launch(&reach[0], REACHED, &args, &[])?;
            own.finish()?;
            let data = other.read::<u32>(memory.ptr, WORDS, &[])?;
            check_all!(
                data[..REACHED],
                3,
                "words that the other device's kernel has reached"
            );
            check_all!(data[REACHED..], 1, "the remaining words");
        }
        Ok(())
    })
}

/// Asynchronous memory is accessible while access is enabled, allocated before or after.
fn asynchronous_memory_with_access(fixture: &Fixture) -> Done {
    let two = linked(fixture)?;
    let iota = two.kernels(fixture, IOTA)?;
    let [own, other] = &two.queues;
    let before = other.alloc_current(Kind::Device, BYTES)?;
    other.finish()?;
    with_access(fixture, two.devices, || {
        let after = other.alloc_current(Kind::Device, MUCH)?;
        let ready = other.marker(&[])?;
        for block in [before, after] {
            let args = [Arg::Pointer(block.ptr), Arg::of(&6_u32)];
            let written = own.launch(&iota[0], WORDS, &args, &[&ready])?;
            let data = other.read::<u32>(block.ptr, WORDS, &[&written])?;
            check!(counts_up(&data, 6), "what the kernel has written");
        }
        other.free(after, &[])?;
        two.finish()
    })?;
    other.free(before, &[])?;
    two.finish()
}

/// Enabled access holds for memory of a context that the accessing device does not belong to.
fn access_for_other_contexts(fixture: &Fixture) -> Done {
    let two = linked(fixture)?;
    let (ur, mut raw) = (fixture.ur, null_mut());
    ur.urContextCreate(1, &two.devices[1], null(), &mut raw)
        .ok()?;
    let alone = Context::adopt(ur, raw);
    let owner = Queue::new(&alone, two.devices[1], ur_queue_flags_t(0))?;
    let memory = Usm::new(&alone, two.devices[1], Kind::Device, BYTES, 0, null_mut())?;
    owner.fill(memory.ptr, 1_u32, BYTES, &[])?;
    owner.finish()?;
    let add = two.kernels(fixture, ADD)?;
    with_access(fixture, two.devices, || {
        let args = [Arg::Pointer(memory.ptr), Arg::of(&2_u32)];
        two.queues[0].launch(&add[0], WORDS, &args, &[])?;
        two.finish()
    })?;
    let data = owner.read::<u32>(memory.ptr, WORDS, &[])?;
    check_all!(data, 3, "words that the other device's kernel has changed");
    Ok(())
}

/// The work-items of a kernel count in a word of the other device atomically, where the pair has atomics.
fn atomics_with_access(fixture: &Fixture) -> Done {
    let two = linked(fixture)?;
    if peer_info(fixture, two.devices, ATOMICS)? == 0 {
        return Err(Stop::skipped(
            "the two devices have no atomics between them",
        ));
    }
    let verify = two.kernels(fixture, VERIFY)?;
    let memory = two.usm(0, Kind::Device, BYTES)?;
    two.queues[0].fill(memory.ptr, u32::MAX, BYTES, &[])?;
    let count = two.usm(1, Kind::Device, 4)?;
    two.queues[1].fill(count.ptr, 0_u32, 4, &[])?;
    two.finish()?;
    with_access(fixture, two.devices, || {
        // Every word differs, so that each work-item counts.
        let args = [
            Arg::Pointer(memory.ptr),
            Arg::of(&1_u32),
            Arg::Pointer(count.ptr),
        ];
        two.queues[0].launch(&verify[0], WORDS, &args, &[])?;
        two.finish()
    })?;
    let counted = two.queues[1].read::<u32>(count.ptr, 1, &[])?;
    check_eq!(counted, [WORDS as u32], "counted words");
    Ok(())
}

/// A kernel of one device writes an image, and kernels of both read it at once, in turns.
fn kernels_use_images_on_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    Image::need(fixture, &two.context)?;
    let kernels = |device| -> Result<[Kernel; 2], Stop> {
        let program = Program::of_images(fixture, &two.context, device)?;
        Ok([program.kernel(PAINT)?, program.kernel(TEXELS)?])
    };
    let kernels = [kernels(two.devices[0])?, kernels(two.devices[1])?];
    let format = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
        channelType: UR_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32,
    };
    let width = 40;
    let what = desc(UR_MEM_TYPE_IMAGE1D, [width, 1, 1]);
    let image = Image::new(&two.context, &format, &what)?;
    let memory = two.memory(16 * width)?;
    for round in 0..4_u32 {
        let writer = round as usize % 2;
        let base = 1000 * round + 7;
        let args = [Arg::Image(&image), Arg::of(&base)];
        let painted = two.queues[writer].launch(&kernels[writer][0], 4 * width, &args, &[])?;
        let mut read = Vec::new();
        for (at, queue) in two.queues.iter().enumerate() {
            let args = [Arg::Pointer(memory[at].ptr), Arg::Image(&image)];
            read.push(queue.launch(&kernels[at][1], 4 * width, &args, &[&painted])?);
        }
        for (queue, memory) in two.queues.iter().zip(&memory) {
            let words: Vec<u32> = queue.read(memory.ptr, 4 * width, &[])?;
            check_items!(
                words,
                base..base + 4 * width as u32,
                "words of round {round}"
            );
        }
        read.iter().try_for_each(|event| event.wait())?;
    }
    two.finish()
}

/// What the second device writes to an image over the host's memory is there after the last release.
fn image_over_host_on_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    Image::need(fixture, &two.context)?;
    let sizes = [16, 8, 1];
    let what = desc(UR_MEM_TYPE_IMAGE2D, sizes);
    let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_USE_HOST_POINTER;
    let mut memory = two.context.usm(fixture, Kind::Host, 4 * 16 * 8)?;
    memory.host_mut::<u8>().fill(7);
    let host = memory.host_mut::<u8>().as_mut_ptr().cast();
    let image = Image::with(&two.context, flags, &RGBA8, &what, host)?;
    for (at, queue) in two.queues.iter().enumerate() {
        let part = Part::packed([at, 0, 0], [1; 3]);
        image.write(queue, part, &[100 + at as u8; 4])?;
        two.finish()?;
    }
    drop(image);
    let got = &memory.host::<u8>()[..12];
    let want = [100, 100, 100, 100, 101, 101, 101, 101, 7, 7, 7, 7];
    check_items!(got.iter().copied(), want, "the host's memory");
    Ok(())
}

/// Images are written, copied and read in turns on both devices.
fn images_on_both(fixture: &Fixture) -> Done {
    let two = Two::new(fixture)?;
    Image::need(fixture, &two.context)?;
    let [one, other] = &two.queues;
    for kind in KINDS {
        let sizes = [31, 9, 4];
        let region = axes(kind, sizes);
        let all = Part::packed([0; 3], region);
        let (src, mut bytes) = Image::counted(&two.context, one, kind, sizes)?;
        let dst = Image::new(&two.context, &RGBA8, &desc(kind, sizes))?;
        for (round, (queue, next)) in [(other, one), (one, other)].into_iter().enumerate() {
            let pixel = [round as u8 + 100; 4];
            src.write(queue, Part::packed([round + 3, 0, 0], [1; 3]), &pixel)?;
            bytes[4 * (round + 3)..][..4].copy_from_slice(&pixel);
            let place = ([0; 3], [0; 3], region);
            let copied = queue.event(|event| src.try_copy(queue, &dst, place, &[], event))?;
            let mut got = vec![0_u8; bytes.len()];
            let to = got.as_mut_ptr().cast();
            let read = next.event(|event| dst.try_read(next, all, to, &[&copied], event))?;
            read.wait()?;
            check_items!(got, bytes.clone(), "{kind:?} in round {round}");
        }
    }
    Ok(())
}
