//! Memory and events of several processes, and exportable memory.
//!
//! A second process of this program makes the objects, and the test opens them.

use crate::fixture::Fixture;
use crate::objects::{Context, Event, Gate, Kind, Queue, Usm, alloc_info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::second::{First, Second};
use crate::{check, check_all, check_eq};
use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["sharing";
        memory_of_another_process, freed_memory_stays, blobs_of_memory, physical_memory_of_another_process,
        event_of_another_process, events_without_blobs, exportable_memory,
    ]
}

/// Processes that open each other's memory that many times find the right data, and hold no more at the end.
const ROUNDS: usize = 1000;

/// Rounds before what a process holds is measured.
const WARM_UP: usize = 20;

/// Rounds after which the sizes of the blocks repeat.
const CYCLE: usize = 4;

/// The role that a test gives its second process.
pub fn second(role: &str, fixture: &Fixture, first: &First) -> Done {
    match role {
        "memory" => share_memory(fixture, first),
        "physical" => share_physical(fixture, first),
        "event" => share_event(fixture, first),
        _ => Err(Stop::failed(format!("no test has the role {role}"))),
    }
}

/// A blob of the adapter, and its bytes.
struct Blob {
    at: *mut c_void,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(at: *mut c_void, size: usize) -> Self {
        // SAFETY: a call that succeeded has returned an address of so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) };
        Self {
            at,
            bytes: bytes.to_vec(),
        }
    }
}

fn get(context: &Context, memory: *mut c_void) -> Result<Blob, Stop> {
    let (mut at, mut size) = (null_mut(), 0);
    let ur = context.ur;
    ur.urIPCGetMemHandleExp(context.raw, memory, &mut at, &mut size)
        .ok()?;
    Ok(Blob::new(at, size))
}

fn open(fixture: &Fixture, context: &Context, bytes: &[u8]) -> Result<*mut c_void, Stop> {
    let (at, mut memory) = (bytes.as_ptr().cast_mut().cast(), null_mut());
    let (device, ur) = (fixture.device, context.ur);
    ur.urIPCOpenMemHandleExp(context.raw, device, at, bytes.len(), &mut memory)
        .ok()?;
    Ok(memory)
}

fn close(context: &Context, memory: *mut c_void) -> Done {
    context.ur.urIPCCloseMemHandleExp(context.raw, memory).ok()
}

/// Stops the test unless memory can be shared.
fn need_memory(fixture: &Fixture, context: &Context) -> Done {
    let memory = context.usm(fixture, Kind::Device, 64)?;
    fixture.require(UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP, || {
        let (mut at, mut size) = (null_mut(), 0);
        let ur = fixture.ur;
        ur.urIPCGetMemHandleExp(context.raw, memory.ptr, &mut at, &mut size)
    })
}

/// Sizes of the shared blocks. Small ones begin within a page, large ones span several.
fn size(round: usize) -> usize {
    [1000, (3 << 20) + 512, 70_000, 5 << 20][round % CYCLE]
}

/// The first and the last bytes of memory.
fn ends(queue: &Queue, memory: *mut c_void, size: usize) -> Result<[u8; 2], Stop> {
    let last = memory.wrapping_byte_add(size - 1);
    let first: Vec<u8> = queue.read(memory, 1, &[])?;
    let last: Vec<u8> = queue.read(last, 1, &[])?;
    Ok([first[0], last[0]])
}

/// Number of open file descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn share_memory(fixture: &Fixture, first: &First) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let _neighbour = context.usm(fixture, Kind::Device, 4096)?;
    let mut open_files = None;
    for round in 0..ROUNDS {
        let memory = context.usm(fixture, Kind::Device, size(round))?;
        queue
            .fill(memory.ptr, round as u8, size(round), &[])?
            .wait()?;
        let blob = get(&context, memory.ptr)?;
        first.send(&blob.bytes);
        first.receive()?;
        let seen = ends(&queue, memory.ptr, size(round))?;
        check_eq!(
            seen,
            [!(round as u8); 2],
            "bytes that the other process wrote"
        );
        fixture.ur.urIPCPutMemHandleExp(context.raw, blob.at).ok()?;
        if round >= WARM_UP {
            let now = descriptors();
            let before = *open_files.get_or_insert(now);
            check!(
                now <= before,
                "{now} open files of the exporter, {before} before"
            );
        }
    }
    Ok(())
}

/// Blocks of another process's pool have its data, and nothing grows in a thousand rounds.
fn memory_of_another_process(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_memory(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let mut second = Second::start(fixture, "memory")?;
    let mut files = None;
    // The device's free memory, once for all sizes.
    let mut free = Vec::new();
    for round in 0..ROUNDS {
        let bytes = second.receive()?;
        let memory = open(fixture, &context, &bytes)?;
        let again = open(fixture, &context, &bytes)?;
        check!(memory != again, "two opens have one address");
        // All bytes of some blocks of each size, and the ends of all.
        if round % 100 < 4 {
            let data: Vec<u8> = queue.read(again, size(round), &[])?;
            check_all!(data, round as u8, "bytes of round {round}");
        }
        let seen = ends(&queue, again, size(round))?;
        check_eq!(seen, [round as u8; 2], "ends of the block of a round");
        if round == 0 {
            let kind: ur_usm_type_t = alloc_info(&context, memory, UR_USM_ALLOC_INFO_TYPE)?;
            check_eq!(kind, UR_USM_TYPE_DEVICE, "type of opened memory");
            let found: usize = alloc_info(&context, memory, UR_USM_ALLOC_INFO_SIZE)?;
            check_eq!(found, size(0), "size of opened memory");
        }
        queue
            .fill(memory, !(round as u8), size(round), &[])?
            .wait()?;
        check_eq!(
            ends(&queue, again, size(round))?,
            [!(round as u8); 2],
            "bytes of a fill"
        );
        close(&context, memory)?;
        close(&context, again)?;
        if round >= WARM_UP {
            let now = descriptors();
            let before = *files.get_or_insert(now);
            check!(
                now <= before,
                "{now} open files of the opener, {before} before"
            );
            // While the other process waits for this one. Not every driver tells.
            let now = fixture.device_info::<u64>(UR_DEVICE_INFO_GLOBAL_MEM_FREE);
            free.extend(now.ok().filter(|_| round % CYCLE == 0));
        }
        second.send(&[1])?;
    }
    check!(
        !always_falls(&free),
        "{:?} bytes are free in the last rounds, {:?} in the first, and nearly each round has fewer than the one before",
        free.last(),
        free.first()
    );
    second.end()
}

/// Whether nearly each number is less than the one before: so does free memory fall if every cycle of sizes keeps a page.
///
/// Other processes use the device too. They take memory in some rounds and give it back in others, much of it at a
/// time.
fn always_falls(free: &[u64]) -> bool {
    let falls = free.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let steps = free.len().saturating_sub(1);
    steps > 0 && falls * 5 >= steps * 4
}

/// A freed block is nobody else's until its last handle was given back.
fn freed_memory_stays(fixture: &Fixture) -> Done {
    const BYTES: usize = 3 << 20;
    let context = Context::new(fixture)?;
    need_memory(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, BYTES)?.into_raw();
    queue.fill(memory, 7_u8, BYTES, &[])?.wait()?;
    let (one, two) = (get(&context, memory)?, get(&context, memory)?);
    let ur = fixture.ur;
    ur.urUSMFree(context.raw, memory).ok()?;
    ur.urUSMFree(context.raw, memory).refused()?;
    ur.urIPCPutMemHandleExp(context.raw, one.at).ok()?;
    let mut others = Vec::new();
    for _ in 0..8 {
        let other = context.usm(fixture, Kind::Device, BYTES)?;
        queue.fill(other.ptr, 9_u8, BYTES, &[])?;
        others.push(other);
    }
    queue.finish()?;
    let opened = open(fixture, &context, &two.bytes)?;
    let data: Vec<u8> = queue.read(opened, BYTES, &[])?;
    check_all!(data, 7, "bytes of exported memory after its free");
    close(&context, opened)?;
    ur.urIPCPutMemHandleExp(context.raw, two.at).ok()
}

/// Only whole blobs of allocations open, and only what was opened closes.
fn blobs_of_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_memory(fixture, &context)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let blob = get(&context, memory.ptr)?;
    let mut size = 0;
    ur.urIPCGetMemHandleExp(context.raw, memory.ptr, null_mut(), &mut size)
        .ok()?;
    check_eq!(size, blob.bytes.len(), "size of a blob");
    let inside = memory.ptr.wrapping_byte_add(8);
    ur.urIPCGetMemHandleExp(context.raw, inside, null_mut(), &mut size)
        .refused()?;
    let open_size = |size| {
        let mut opened = null_mut();
        let at = blob.bytes.as_ptr().cast_mut().cast();
        ur.urIPCOpenMemHandleExp(context.raw, device, at, size, &mut opened)
    };
    let words = "is not the size of such a blob";
    open_size(blob.bytes.len() - 1).fails_because(UR_RESULT_ERROR_INVALID_VALUE, words)?;
    ur.urIPCCloseMemHandleExp(context.raw, memory.ptr)
        .refused()?;
    ur.urIPCPutMemHandleExp(context.raw, blob.at).ok()?;
    ur.urIPCPutMemHandleExp(context.raw, blob.at).refused()?;
    open_size(blob.bytes.len()).refused()
}

/// Physical memory of a few granules, and their bytes.
fn physical(
    fixture: &Fixture,
    context: &Context,
    flags: ur_physical_mem_flags_t,
) -> Result<(ur_physical_mem_handle_t, usize), Stop> {
    let (ur, device) = (fixture.ur, fixture.device);
    let what = UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM;
    let granule: usize = crate::objects::info::value(|size, value, ret| {
        ur.urVirtualMemGranularityGetInfo(context.raw, device, 1, what, size, value, ret)
    })?;
    let properties = ur_physical_mem_properties_t {
        flags,
        ..Default::default()
    };
    let (bytes, mut memory) = (3 * granule, null_mut());
    ur.urPhysicalMemCreate(context.raw, device, bytes, &properties, &mut memory)
        .ok()?;
    Ok((memory, bytes))
}

/// Maps physical memory and calls `look` with its address.
fn mapped(
    context: &Context,
    memory: ur_physical_mem_handle_t,
    bytes: usize,
    look: impl FnOnce(*mut c_void) -> Done,
) -> Done {
    let (ur, mut start) = (context.ur, null_mut());
    ur.urVirtualMemReserve(context.raw, null(), bytes, &mut start)
        .ok()?;
    let access = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE;
    ur.urVirtualMemMap(context.raw, start, bytes, memory, 0, access)
        .ok()?;
    look(start)?;
    ur.urVirtualMemUnmap(context.raw, start, bytes).ok()?;
    ur.urVirtualMemFree(context.raw, start, bytes).ok()
}

fn share_physical(fixture: &Fixture, first: &First) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let ur = fixture.ur;
    let (memory, bytes) = physical(fixture, &context, UR_PHYSICAL_MEM_FLAG_ENABLE_IPC)?;
    let (mut at, mut size) = (null_mut(), 0);
    mapped(&context, memory, bytes, |start| {
        queue.fill(start, 3_u8, bytes, &[])?.wait()?;
        ur.urIPCGetPhysMemHandleExp(context.raw, memory, &mut at, &mut size)
            .ok()?;
        first.send(&Blob::new(at, size).bytes);
        first.receive()?;
        let data: Vec<u8> = queue.read(start, bytes, &[])?;
        check_all!(data, 4, "bytes that the other process wrote");
        Ok(())
    })?;
    ur.urIPCPutPhysMemHandleExp(context.raw, at).ok()?;
    ur.urIPCPutPhysMemHandleExp(context.raw, at).refused()?;
    ur.urPhysicalMemRelease(memory).ok()
}

/// Physical memory of another process is mapped and used as the process's own.
fn physical_memory_of_another_process(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let ur = fixture.ur;
    let property = UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP;
    let (mut at, mut size) = (null_mut(), 0);
    if !fixture.supports(property)? && !fixture.supports(UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT)? {
        return Err(Stop::skipped("the device has no physical memory"));
    }
    let (private, bytes) = physical(fixture, &context, ur_physical_mem_flags_t(0))?;
    let get = |memory, at: &mut _, size: &mut _| {
        ur.urIPCGetPhysMemHandleExp(context.raw, memory, at, size)
    };
    let required = fixture.require(property, || get(private, &mut at, &mut size));
    let words = "created without `UR_PHYSICAL_MEM_FLAG_ENABLE_IPC`";
    let refused = required.and_then(|()| {
        get(private, &mut at, &mut size).fails_because(UR_RESULT_ERROR_INVALID_ARGUMENT, words)
    });
    ur.urPhysicalMemRelease(private).ok()?;
    refused?;
    let mut second = Second::start(fixture, "physical")?;
    let blob = second.receive()?;
    let open = |size, memory: &mut _| {
        let at = blob.as_ptr().cast();
        ur.urIPCOpenPhysMemHandleExp(context.raw, fixture.device, at, size, memory)
    };
    let mut memory = null_mut();
    let words = "is not the size of such a blob";
    open(blob.len() - 1, &mut memory).fails_because(UR_RESULT_ERROR_INVALID_VALUE, words)?;
    open(blob.len(), &mut memory).ok()?;
    mapped(&context, memory, bytes, |at| {
        let data: Vec<u8> = queue.read(at, bytes, &[])?;
        check_all!(data, 3, "bytes of the other process");
        queue.fill(at, 4_u8, bytes, &[])?.wait()
    })?;
    ur.urIPCClosePhysMemHandleExp(context.raw, memory).ok()?;
    second.send(&[1])?;
    second.end()
}

fn event(fixture: &Fixture, context: &Context, flags: ur_exp_event_flags_t) -> Result<Event, Stop> {
    let desc = ur_exp_event_desc_t {
        flags,
        ..Default::default()
    };
    let (ur, mut raw) = (fixture.ur, null_mut());
    ur.urEventCreateExp(context.raw, fixture.device, &desc, &mut raw)
        .ok()?;
    Ok(Event::adopt(ur, raw))
}

const EVENT_ROUNDS: u8 = 5;

fn share_event(fixture: &Fixture, first: &First) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let ur = fixture.ur;
    let shared = event(fixture, &context, UR_EXP_EVENT_FLAG_IPC_EXP)?;
    let (mut at, mut size) = (null_mut(), 0);
    ur.urIPCGetEventHandleExp(shared.raw, &mut at, &mut size)
        .ok()?;
    first.send(&Blob::new(at, size).bytes);
    for _ in 0..EVENT_ROUNDS {
        first.receive()?;
        let gate = Gate::close(fixture, &queue)?;
        let mut own = shared.raw;
        ur.urEnqueueEventsWaitWithBarrierExt(queue.raw, null(), 0, null(), &mut own)
            .ok()?;
        check!(
            !shared.is_complete()?,
            "the event is complete before its command"
        );
        first.send(&[]);
        first.receive()?;
        gate.open();
        shared.wait()?;
        queue.finish()?;
        first.send(&[]);
    }
    // Another process has it still.
    first.receive()?;
    ur.urIPCPutEventHandleExp(context.raw, at).ok()?;
    ur.urIPCPutEventHandleExp(context.raw, at).refused()
}

/// Commands wait for an event of another process each time that it is signalled.
fn event_of_another_process(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let ur = fixture.ur;
    need_events(fixture, &context)?;
    let mut second = Second::start(fixture, "event")?;
    let blob = second.receive()?;
    let open = |size, event: &mut _| {
        ur.urIPCOpenEventHandleExp(context.raw, blob.as_ptr().cast(), size, event)
    };
    let mut raw = null_mut();
    let words = "is not the size of such a blob";
    open(blob.len() - 1, &mut raw).fails_because(UR_RESULT_ERROR_INVALID_VALUE, words)?;
    open(blob.len(), &mut raw).ok()?;
    let opened = Event::adopt(ur, raw);
    let (mut at, mut size) = (null_mut(), 0);
    let words = "was itself opened from another process";
    ur.urIPCGetEventHandleExp(opened.raw, &mut at, &mut size)
        .fails_because(UR_RESULT_ERROR_INVALID_EVENT, words)?;
    let mut memory = context.usm(fixture, Kind::Host, 64)?;
    memory.host_mut::<u8>().fill(0);
    for round in 1..=EVENT_ROUNDS {
        second.send(&[1])?;
        second.receive()?;
        check!(
            !opened.is_complete()?,
            "round {round}: complete before its command"
        );
        let filled = queue.fill(memory.ptr, round, 64, &[&opened])?;
        check!(
            !filled.is_complete()?,
            "a command does not wait for the event"
        );
        check_all!(host_bytes(&memory), round - 1, "bytes before the event");
        second.send(&[1])?;
        second.receive()?;
        opened.wait()?;
        filled.wait()?;
        check_all!(host_bytes(&memory), round, "bytes after the event");
        check!(
            opened.is_complete()?,
            "the event is not complete after a wait"
        );
    }
    drop(opened);
    second.send(&[1])?;
    second.end()
}

fn host_bytes(memory: &Usm) -> Vec<u8> {
    memory.host::<u8>().to_vec()
}

/// Stops the test unless events can be shared.
fn need_events(fixture: &Fixture, context: &Context) -> Done {
    let property = UR_DEVICE_INFO_IPC_EVENT_SUPPORT_EXP;
    fixture.require(property, || {
        let desc = ur_exp_event_desc_t {
            flags: UR_EXP_EVENT_FLAG_IPC_EXP,
            ..Default::default()
        };
        let (device, mut raw) = (fixture.device, null_mut());
        fixture
            .ur
            .urEventCreateExp(context.raw, device, &desc, &mut raw)
    })
}

/// An event that was not created for it has no blob.
fn events_without_blobs(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need_events(fixture, &context)?;
    let own = event(fixture, &context, ur_exp_event_flags_t(0))?;
    let marker = context.in_order(fixture)?.marker(&[])?;
    for event in [&own, &marker] {
        let (mut at, mut size) = (null_mut(), 0);
        let words = "created without `UR_EXP_EVENT_FLAG_IPC_EXP`";
        fixture
            .ur
            .urIPCGetEventHandleExp(event.raw, &mut at, &mut size)
            .fails_because(UR_RESULT_ERROR_INVALID_EVENT, words)?;
    }
    Ok(())
}

/// Exportable memory is used as any device memory, and has a descriptor for each export.
fn exportable_memory(fixture: &Fixture) -> Done {
    const BYTES: usize = 100_000;
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let kind = UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;
    let mut memory = null_mut();
    let alloc = |align, bytes, memory: &mut _| {
        let context = context.raw;
        ur.urMemoryExportAllocExportableMemoryExp(context, device, align, bytes, kind, memory)
    };
    let property = UR_DEVICE_INFO_MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP;
    fixture.require(property, || alloc(0, BYTES, &mut memory))?;
    alloc(3, BYTES, &mut memory).fails(UR_RESULT_ERROR_UNSUPPORTED_ALIGNMENT)?;
    alloc(0, 0, &mut memory).fails(UR_RESULT_ERROR_INVALID_USM_SIZE)?;
    let words = "greater than `UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE`";
    alloc(0, usize::MAX, &mut memory).fails_because(UR_RESULT_ERROR_UNSUPPORTED_SIZE, words)?;
    alloc(4096, BYTES, &mut memory).ok()?;
    check!(
        memory.addr().is_multiple_of(4096),
        "{memory:?} is not aligned"
    );
    queue.fill(memory, 5_u8, BYTES, &[])?;
    let data: Vec<u8> = queue.read(memory, BYTES, &[])?;
    check_all!(data, 5, "bytes of a fill");
    let found: ur_usm_type_t = alloc_info(&context, memory, UR_USM_ALLOC_INFO_TYPE)?;
    check_eq!(found, UR_USM_TYPE_DEVICE, "type of exportable memory");
    let mut files = Vec::new();
    for _ in 0..2 {
        let mut number: c_int = -1;
        let to = (&raw mut number).cast();
        ur.urMemoryExportExportMemoryHandleExp(context.raw, device, kind, memory, to)
            .ok()?;
        check!(number >= 0, "descriptor {number}");
        // SAFETY: exported just now, for the caller.
        files.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    ur.urMemoryExportFreeExportableMemoryExp(context.raw, device, memory)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::always_falls;

    const MIB: u64 = 1 << 20;
    const ALL: u64 = 80 << 30;

    /// Free memory over the rounds: `kept` bytes more are used in each, and what `others` use.
    fn free(kept: u64, others: impl Fn(u64) -> u64) -> Vec<u64> {
        (0..245).map(|at| ALL - at * kept - others(at)).collect()
    }

    #[test]
    fn a_page_that_each_cycle_keeps_is_seen() {
        assert!(always_falls(&free(2 * MIB, |_| 0)));
        // Others take and give back gigabytes now and then.
        let others = |at: u64| at / 20 % 2 * 4096 * MIB;
        assert!(always_falls(&free(2 * MIB, others)));
        let ends = |at: u64| (245 - at) / 30 * 1024 * MIB;
        assert!(always_falls(&free(2 * MIB, ends)), "free memory rises");
    }

    #[test]
    fn what_others_take_is_no_leak() {
        assert!(!always_falls(&[]) && !always_falls(&[ALL]));
        assert!(!always_falls(&free(0, |_| 0)));
        // They begin, and stay.
        assert!(!always_falls(&free(0, |at| at / 30 * 1024 * MIB)));
        // They come and go all the time.
        assert!(!always_falls(&free(0, |at| at * at * 7919 % 61
            * 100
            * MIB)));
        // They take a little in each round, and end from time to time.
        assert!(!always_falls(&free(0, |at| at % 4 * 2 * MIB)));
    }
}
