//! Synchronous USM: kinds, alignment, sizes, alloc info, pools, and the commands on pointers.

use crate::fixture::Fixture;
use crate::generated::info::{USM_ALLOC_INFO, USM_POOL_INFO};
use crate::objects::{Context, Kind, Queue, Usm, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = Vec::new();
    type Check = fn(&Fixture, Kind) -> Done;
    let by_kind: [(&str, Check); 10] = [
        ("write_and_read", write_and_read),
        ("alignment", alignment),
        ("bad_alignment", bad_alignment),
        ("size_0", size_0),
        ("huge_size", huge_size),
        ("many_are_disjoint", many_are_disjoint),
        ("alloc_info", alloc_info),
        ("free_refused", free_refused),
        ("descriptors", descriptors),
        ("pool", pool),
    ];
    for (name, test) in by_kind {
        for kind in Kind::ALL {
            tests.push(Test::new("usm", format!("{kind}_{name}"), move |fixture| {
                kind.need(fixture)?;
                test(fixture, kind)
            }));
        }
    }
    for property in USM_ALLOC_INFO {
        let name = property.name.trim_start_matches("UR_USM_ALLOC_INFO_").to_lowercase();
        tests.push(Test::new("usm", format!("info_{name}"), |fixture| {
            let context = Context::new(fixture)?;
            let memory = context.usm(fixture, Kind::Device, 4096)?;
            let ask = |size, value, ret| {
                let name = ur_usm_alloc_info_t(property.value);
                fixture.ur.urUSMGetMemAllocInfo(context.raw, memory.ptr, name, size, value, ret)
            };
            let mut size = 0;
            if property.optional && ask(0, null_mut(), &mut size).code == UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION {
                return Ok(());
            }
            info::protocol(property, ask)
        }));
    }
    for property in USM_POOL_INFO {
        let name = property.name.trim_start_matches("UR_USM_POOL_INFO_").to_lowercase();
        tests.push(Test::new("usm_pool", format!("info_{name}"), |fixture| {
            let context = Context::new(fixture)?;
            let pool = SyncPool::new(fixture, &context)?;
            info::protocol(property, |size, value, ret| {
                fixture.ur.urUSMPoolGetInfo(pool.raw, ur_usm_pool_info_t(property.value), size, value, ret)
            })
        }));
    }
    tests.extend(crate::tests!["usm_pool"; pool_counts_references, pool_refused, pool_outlived_by_its_memory]);
    tests.extend(crate::tests!["usm";
        info_of_unknown_pointer, info_of_inner_pointer, host_memory_is_visible_everywhere, shared_memory_migrates,
        copy_between_kinds, copy_of_plain_memory, copy_refused, fill_patterns, fill_refused, fill_leaves_the_rest,
        fill_2d, copy_2d, fill_2d_refused, copy_2d_refused, prefetch, advise, blocking_copy, free_with_pending_work,
        context_copy, import_and_release, register_host_memory,
    ]);
    tests
}

fn write_and_read(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for size in [1, 3, 64, 4097, (1 << 20) + 5] {
        let memory = context.usm(fixture, kind, size)?;
        let data: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
        queue.write(memory.ptr, &data)?;
        check!(queue.read::<u8>(memory.ptr, size, &[])? == data, "{size} bytes came back changed");
    }
    Ok(())
}

fn alignment(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    for power in 0..=12 {
        let align = 1_u32 << power;
        let memory = Usm::new(&context, fixture.device, kind, 100, align, null_mut())?;
        check!(memory.ptr.addr().is_multiple_of(align as usize), "{:?} is not aligned to {align}", memory.ptr);
    }
    Ok(())
}

fn bad_alignment(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    for align in [3, 5, 24, 4095] {
        let desc = ur_usm_desc_t { align, ..Default::default() };
        let mut ptr = null_mut();
        let status = kind.allocate(&context, fixture.device, &desc, null_mut(), 64, &mut ptr);
        status.fails_with(&[UR_RESULT_ERROR_INVALID_VALUE, UR_RESULT_ERROR_UNSUPPORTED_ALIGNMENT])?;
        check!(ptr.is_null(), "a refused allocation wrote a pointer");
    }
    Ok(())
}

fn size_0(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let mut ptr = null_mut();
    let status = kind.allocate(&context, fixture.device, null(), null_mut(), 0, &mut ptr);
    status.fails(UR_RESULT_ERROR_INVALID_USM_SIZE)
}

fn huge_size(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    for size in [usize::MAX, usize::MAX - 4096, 1 << 60] {
        let mut ptr = null_mut();
        let status = kind.allocate(&context, fixture.device, null(), null_mut(), size, &mut ptr);
        status.fails_with(&[
            UR_RESULT_ERROR_INVALID_USM_SIZE,
            UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
            UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
            UR_RESULT_ERROR_OUT_OF_RESOURCES,
        ])?;
        check!(ptr.is_null(), "a refused allocation wrote a pointer");
    }
    Ok(())
}

fn many_are_disjoint(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let mut blocks = Vec::new();
    for index in 0..200 {
        blocks.push(context.usm(fixture, kind, 1 + index * 37)?);
    }
    let mut ranges: Vec<(usize, usize)> = blocks.iter().map(|block| (block.ptr.addr(), block.ptr.addr() + block.size)).collect();
    ranges.sort_unstable();
    check!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two live allocations overlap");
    Ok(())
}

fn alloc_info(fixture: &Fixture, kind: Kind) -> Done {
    use crate::objects::alloc_info as get;
    let context = Context::new(fixture)?;
    let size = 12_345;
    let memory = context.usm(fixture, kind, size)?;
    check_eq!(get::<ur_usm_type_t>(&context, memory.ptr, UR_USM_ALLOC_INFO_TYPE)?, kind.usm_type(), "kind");
    check_eq!(get::<*mut c_void>(&context, memory.ptr, UR_USM_ALLOC_INFO_BASE_PTR)?, memory.ptr, "base");
    let found: usize = get(&context, memory.ptr, UR_USM_ALLOC_INFO_SIZE)?;
    check!(found >= size && found < size * 2, "size {found} of an allocation of {size}");
    let device: ur_device_handle_t = get(&context, memory.ptr, UR_USM_ALLOC_INFO_DEVICE)?;
    if kind != Kind::Host {
        check_eq!(device, fixture.device, "device");
    }
    Ok(())
}

fn free_refused(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let ur = fixture.ur;
    let pointer = context.usm(fixture, kind, 4096)?.into_raw();
    ur.urUSMFree(context.raw, pointer.wrapping_byte_add(64)).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    ur.urUSMFree(context.raw, pointer).ok()?;
    ur.urUSMFree(context.raw, pointer).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    let mut local = 0_u64;
    ur.urUSMFree(context.raw, (&raw mut local).cast()).fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)
}

fn descriptors(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let location = ur_usm_alloc_location_desc_t { location: 0, ..Default::default() };
    let device = ur_usm_device_desc_t {
        pNext: (&raw const location).cast(),
        flags: UR_USM_DEVICE_MEM_FLAG_INITIAL_PLACEMENT | UR_USM_DEVICE_MEM_FLAG_WRITE_COMBINED,
        ..Default::default()
    };
    let host = ur_usm_host_desc_t { flags: UR_USM_HOST_MEM_FLAG_INITIAL_PLACEMENT, ..Default::default() };
    let chain = if kind == Kind::Host { (&raw const host).cast() } else { (&raw const device).cast() };
    let desc = ur_usm_desc_t { pNext: chain, hints: UR_USM_ADVICE_FLAG_SET_READ_MOSTLY, align: 256, ..Default::default() };
    let mut ptr = null_mut();
    kind.allocate(&context, fixture.device, &desc, null_mut(), 1024, &mut ptr).ok()?;
    fixture.ur.urUSMFree(context.raw, ptr).ok()?;
    let undefined = ur_usm_desc_t { hints: ur_usm_advice_flags_t(UR_USM_ADVICE_FLAGS_MASK), ..Default::default() };
    let mut none = null_mut();
    kind.allocate(&context, fixture.device, &undefined, null_mut(), 64, &mut none).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

/// A pool for synchronous allocations.
struct SyncPool {
    ur: &'static crate::generated::api::Api,
    raw: ur_usm_pool_handle_t,
}

impl SyncPool {
    fn new(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        let mut desc = ur_usm_pool_desc_t::default();
        let mut raw = null_mut();
        let ur = fixture.ur;
        fixture.require(UR_DEVICE_INFO_USM_POOL_SUPPORT, || ur.urUSMPoolCreate(context.raw, &mut desc, &mut raw))?;
        ur.urUSMPoolCreate(context.raw, &mut desc, &mut raw).ok()?;
        Ok(Self { ur, raw })
    }
}

impl Drop for SyncPool {
    fn drop(&mut self) {
        let _ = self.ur.urUSMPoolRelease(self.raw);
    }
}

fn pool(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let pool = SyncPool::new(fixture, &context)?;
    let queue = context.in_order(fixture)?;
    let memory = Usm::new(&context, fixture.device, kind, 10_000, 0, pool.raw)?;
    let of: ur_usm_pool_handle_t = crate::objects::alloc_info(&context, memory.ptr, UR_USM_ALLOC_INFO_POOL)?;
    check_eq!(of, pool.raw, "pool of an allocation");
    queue.write(memory.ptr, &[7_u8; 10_000])?;
    check!(queue.read::<u8>(memory.ptr, 10_000, &[])? == [7_u8; 10_000], "memory of a pool");
    Ok(())
}

fn pool_counts_references(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let pool = SyncPool::new(fixture, &context)?;
    let references = || {
        info::value::<u32>(|size, value, ret| {
            fixture.ur.urUSMPoolGetInfo(pool.raw, UR_USM_POOL_INFO_REFERENCE_COUNT, size, value, ret)
        })
    };
    check_eq!(references()?, 1, "references of a new pool");
    fixture.ur.urUSMPoolRetain(pool.raw).ok()?;
    check_eq!(references()?, 2, "references after a retain");
    fixture.ur.urUSMPoolRelease(pool.raw).ok()?;
    check_eq!(references()?, 1, "references after a release");
    let of: ur_context_handle_t = info::value(|size, value, ret| {
        fixture.ur.urUSMPoolGetInfo(pool.raw, UR_USM_POOL_INFO_CONTEXT, size, value, ret)
    })?;
    check_eq!(of, context.raw, "context of the pool");
    Ok(())
}

fn pool_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    drop(SyncPool::new(fixture, &context)?);
    let mut desc = ur_usm_pool_desc_t { flags: ur_usm_pool_flags_t(UR_USM_POOL_FLAGS_MASK), ..Default::default() };
    let mut raw = null_mut();
    fixture.ur.urUSMPoolCreate(context.raw, &mut desc, &mut raw).fails(UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    check!(raw.is_null(), "a refused urUSMPoolCreate wrote a handle");
    Ok(())
}

fn pool_outlived_by_its_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let pool = SyncPool::new(fixture, &context)?;
    let memory = Usm::new(&context, fixture.device, Kind::Device, 4096, 0, pool.raw)?;
    drop(pool);
    queue.write(memory.ptr, &[9_u8; 4096])?;
    check!(queue.read::<u8>(memory.ptr, 4096, &[])? == [9_u8; 4096], "memory of a released pool");
    Ok(())
}

fn info_of_unknown_pointer(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let local = Box::new(0_u64);
    let pointer = (&raw const *local).cast();
    let ty: ur_usm_type_t = crate::objects::alloc_info(&context, pointer, UR_USM_ALLOC_INFO_TYPE)?;
    check_eq!(ty, UR_USM_TYPE_UNKNOWN, "kind of plain memory");
    let freed = context.usm(fixture, Kind::Host, 4096)?.into_raw();
    fixture.ur.urUSMFree(context.raw, freed).ok()?;
    let ty: ur_usm_type_t = crate::objects::alloc_info(&context, freed, UR_USM_ALLOC_INFO_TYPE)?;
    check_eq!(ty, UR_USM_TYPE_UNKNOWN, "kind of freed memory");
    Ok(())
}

fn info_of_inner_pointer(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 10_000)?;
    for offset in [1, 4096, 9_999] {
        let inner = memory.ptr.wrapping_byte_add(offset);
        let base: *mut c_void = crate::objects::alloc_info(&context, inner, UR_USM_ALLOC_INFO_BASE_PTR)?;
        check_eq!(base, memory.ptr, "base of a pointer {offset} bytes into the allocation");
    }
    Ok(())
}

fn host_memory_is_visible_everywhere(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut memory = context.usm(fixture, Kind::Host, 4096)?;
    memory.host_mut::<u32>().fill(17);
    check!(queue.read::<u32>(memory.ptr, 1024, &[])?.iter().all(|word| *word == 17), "host writes");
    queue.fill(memory.ptr, 19_u32, 4096, &[])?.wait()?;
    check!(memory.host::<u32>().iter().all(|word| *word == 19), "device writes");
    Ok(())
}

fn shared_memory_migrates(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut memory = context.usm(fixture, Kind::Shared, 1 << 20)?;
    for round in 0..4_u32 {
        memory.host_mut::<u32>().fill(round);
        check!(queue.read::<u32>(memory.ptr, 1 << 18, &[])?.iter().all(|word| *word == round), "host writes");
        queue.fill(memory.ptr, round + 100, 1 << 20, &[])?.wait()?;
        check!(memory.host::<u32>().iter().all(|word| *word == round + 100), "device writes");
    }
    Ok(())
}

fn copy_between_kinds(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut tag = 1_u8;
    for from in Kind::ALL {
        for to in Kind::ALL {
            let (src, dst) = (context.usm(fixture, from, 10_000)?, context.usm(fixture, to, 10_000)?);
            queue.fill(src.ptr, tag, 10_000, &[])?;
            queue.fill(dst.ptr, 0_u8, 10_000, &[])?;
            // Odd offsets, so that nothing is aligned.
            queue.copy(dst.ptr.wrapping_byte_add(3), src.ptr.wrapping_byte_add(1), 9_001, &[])?;
            let data = queue.read::<u8>(dst.ptr, 10_000, &[])?;
            let copied = data.iter().enumerate().all(|(at, byte)| *byte == if (3..9_004).contains(&at) { tag } else { 0 });
            check!(copied, "a copy from {from} to {to} memory went wrong");
            tag += 1;
        }
    }
    Ok(())
}

fn copy_of_plain_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (from, mut to) = (vec![3_u16; 5_000], vec![0_u16; 5_000]);
    let dst = to.as_mut_ptr().cast();
    fixture.ur.urEnqueueUSMMemcpy(queue.raw, 1, dst, from.as_ptr().cast(), 10_000, 0, null(), null_mut()).ok()?;
    check!(to == from, "a copy between plain host memory went wrong");
    Ok(())
}

fn copy_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 128)?;
    let half = memory.ptr.wrapping_byte_add(64);
    let mut event = null_mut();
    let copy = |size, event| fixture.ur.urEnqueueUSMMemcpy(queue.raw, 0, half, memory.ptr, size, 0, null(), event);
    copy(0, &mut event).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check!(event.is_null(), "a refused command gave an event");
    Ok(())
}

fn fill_patterns(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for pattern_size in [1, 2, 3, 4, 5, 8, 12, 16, 31, 64, 128, 256, 1000] {
        let pattern: Vec<u8> = (0..pattern_size).map(|at| (at + pattern_size) as u8).collect();
        let size = pattern_size * 97;
        let memory = context.usm(fixture, Kind::Device, size)?;
        let filled = queue.event(|event| {
            let from = pattern.as_ptr().cast();
            fixture.ur.urEnqueueUSMFill(queue.raw, memory.ptr, pattern_size, from, size, 0, null(), event)
        })?;
        // The pattern belongs to the caller again.
        let kept = pattern.clone();
        drop(pattern);
        filled.wait()?;
        let data = queue.read::<u8>(memory.ptr, size, &[])?;
        check!(data.chunks(pattern_size).all(|chunk| chunk == kept), "a pattern of {pattern_size} bytes");
    }
    Ok(())
}

fn fill_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 64)?;
    let pattern = [0_u8; 128];
    for (pattern_size, size) in [(0, 64), (4, 0), (128, 64), (4, 63)] {
        let from = pattern.as_ptr().cast();
        let status = fixture.ur.urEnqueueUSMFill(queue.raw, memory.ptr, pattern_size, from, size, 0, null(), null_mut());
        status.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    Ok(())
}

fn fill_leaves_the_rest(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    queue.fill(memory.ptr, 1_u8, 4096, &[])?;
    queue.fill(memory.ptr.wrapping_byte_add(1001), 2_u8, 999, &[])?;
    let data = queue.read::<u8>(memory.ptr, 4096, &[])?;
    let right = data.iter().enumerate().all(|(at, byte)| *byte == if (1001..2000).contains(&at) { 2 } else { 1 });
    check!(right, "a fill touched bytes beside its range");
    Ok(())
}

const PITCH: usize = 256;
const ROWS: usize = 20;

fn context_says(fixture: &Fixture, context: &Context, property: ur_context_info_t) -> Result<bool, Stop> {
    let answer: ur_bool_t =
        info::value(|size, value, ret| fixture.ur.urContextGetInfo(context.raw, property, size, value, ret))?;
    Ok(answer != 0)
}

/// What a 2D command has to leave: `inside` in the first `width` bytes of the first `height` rows.
fn check_rows(queue: &Queue, memory: &Usm, (width, height): (usize, usize), inside: u8, outside: u8) -> Done {
    let data = queue.read::<u8>(memory.ptr, PITCH * ROWS, &[])?;
    for (row, bytes) in data.chunks(PITCH).enumerate() {
        for (column, byte) in bytes.iter().enumerate() {
            let want = if row < height && column < width { inside } else { outside };
            check_eq!(*byte, want, "byte {column} of row {row}");
        }
    }
    Ok(())
}

fn fill_2d(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, PITCH * ROWS)?;
    let pattern = [5_u8; 4];
    let fill = |event| {
        let from = pattern.as_ptr().cast();
        fixture.ur.urEnqueueUSMFill2D(queue.raw, memory.ptr, PITCH, 4, from, 100, 13, 0, null(), event)
    };
    if !context_says(fixture, &context, UR_CONTEXT_INFO_USM_FILL2D_SUPPORT)? {
        let status = fill(null_mut());
        status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        return Err(Stop::Unsupported { what: status.to_string(), documented: true });
    }
    queue.fill(memory.ptr, 0_u8, PITCH * ROWS, &[])?;
    let event = queue.event(fill)?;
    check_eq!(event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?, UR_COMMAND_USM_FILL_2D, "command type");
    check_rows(&queue, &memory, (100, 13), 5, 0)
}

fn copy_2d(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (src, dst) = (context.usm(fixture, Kind::Device, 128 * ROWS)?, context.usm(fixture, Kind::Device, PITCH * ROWS)?);
    let copy = |event| {
        let ur = fixture.ur;
        ur.urEnqueueUSMMemcpy2D(queue.raw, 0, dst.ptr, PITCH, src.ptr, 128, 101, 17, 0, null(), event)
    };
    if !context_says(fixture, &context, UR_CONTEXT_INFO_USM_MEMCPY2D_SUPPORT)? {
        let status = copy(null_mut());
        status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        return Err(Stop::Unsupported { what: status.to_string(), documented: true });
    }
    queue.fill(src.ptr, 7_u8, 128 * ROWS, &[])?;
    queue.fill(dst.ptr, 1_u8, PITCH * ROWS, &[])?;
    let event = queue.event(copy)?;
    check_eq!(event.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?, UR_COMMAND_USM_MEMCPY_2D, "command type");
    check_rows(&queue, &dst, (101, 17), 7, 1)
}

fn fill_2d_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 4096)?;
    let pattern = [0_u8; 64];
    // pitch, pattern size, width, height
    for (pitch, pattern_size, width, height) in
        [(0, 1, 8, 8), (7, 1, 8, 8), (64, 0, 8, 8), (64, 3, 9, 9), (64, 64, 4, 4), (64, 1, 0, 8), (64, 1, 8, 0), (64, 8, 3, 3)]
    {
        let from = pattern.as_ptr().cast();
        let status = fixture.ur.urEnqueueUSMFill2D(
            queue.raw, memory.ptr, pitch, pattern_size, from, width, height, 0, null(), null_mut(),
        );
        status.fails_with(&[UR_RESULT_ERROR_INVALID_SIZE, UR_RESULT_ERROR_UNSUPPORTED_FEATURE])?;
    }
    Ok(())
}

fn copy_2d_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let (src, dst) = (context.usm(fixture, Kind::Device, 4096)?, context.usm(fixture, Kind::Device, 4096)?);
    // destination pitch, source pitch, width, height
    for (dst_pitch, src_pitch, width, height) in [(0, 64, 8, 8), (64, 0, 8, 8), (7, 64, 8, 8), (64, 7, 8, 8), (64, 64, 8, 0)] {
        let status = fixture.ur.urEnqueueUSMMemcpy2D(
            queue.raw, 0, dst.ptr, dst_pitch, src.ptr, src_pitch, width, height, 0, null(), null_mut(),
        );
        status.fails_with(&[UR_RESULT_ERROR_INVALID_SIZE, UR_RESULT_ERROR_UNSUPPORTED_FEATURE])?;
    }
    Ok(())
}

fn prefetch(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 1 << 20)?;
    queue.fill(memory.ptr, 5_u8, 1 << 20, &[])?;
    for flags in [ur_usm_migration_flags_t(0), UR_USM_MIGRATION_FLAG_HOST_TO_DEVICE, UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST] {
        let ur = fixture.ur;
        queue.event(|event| ur.urEnqueueUSMPrefetch(queue.raw, memory.ptr, 1 << 20, flags, 0, null(), event))?.wait()?;
    }
    let empty = fixture.ur.urEnqueueUSMPrefetch(queue.raw, memory.ptr, 0, ur_usm_migration_flags_t(0), 0, null(), null_mut());
    empty.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check!(memory.host::<u8>().iter().all(|byte| *byte == 5), "a prefetch changed the memory");
    Ok(())
}

fn advise(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 1 << 20)?;
    queue.fill(memory.ptr, 6_u8, 1 << 20, &[])?;
    for &(bit, _) in ur_usm_advice_flags_t::BITS {
        let advice = ur_usm_advice_flags_t(bit);
        let ur = fixture.ur;
        queue.event(|event| ur.urEnqueueUSMAdvise(queue.raw, memory.ptr, 1 << 20, advice, event))?.wait()?;
    }
    fixture.ur.urEnqueueUSMAdvise(queue.raw, memory.ptr, 0, UR_USM_ADVICE_FLAG_DEFAULT, null_mut()).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check!(memory.host::<u8>().iter().all(|byte| *byte == 6), "advice changed the memory");
    Ok(())
}

fn blocking_copy(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.out_of_order(fixture)?;
    let (src, dst) = (context.usm(fixture, Kind::Device, 4 << 20)?, context.usm(fixture, Kind::Host, 4 << 20)?);
    let filled = queue.fill(src.ptr, 8_u8, 4 << 20, &[])?;
    fixture.ur.urEnqueueUSMMemcpy(queue.raw, 1, dst.ptr, src.ptr, 4 << 20, 1, &filled.raw, null_mut()).ok()?;
    check!(dst.host::<u8>().iter().all(|byte| *byte == 8), "a blocking copy returned early");
    Ok(())
}

/// A block freed while commands still use it does not serve another allocation before they end.
fn free_with_pending_work(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let size = 1 << 20;
    let result = context.usm(fixture, Kind::Host, size)?;
    let memory = context.usm(fixture, Kind::Host, size)?;
    let gate = crate::objects::Gate::close(fixture, &queue)?;
    queue.fill(memory.ptr, 0xaa_u8, size, &[])?;
    queue.copy(result.ptr, memory.ptr, size, &[])?;
    gate.open_after(std::time::Duration::from_millis(50));
    // May block until the commands have ended.
    fixture.ur.urUSMFree(context.raw, memory.into_raw()).ok()?;
    let mut other = context.usm(fixture, Kind::Host, size)?;
    other.host_mut::<u8>().fill(0xbb);
    queue.finish()?;
    check!(other.host::<u8>().iter().all(|byte| *byte == 0xbb), "pending work wrote into a new allocation");
    check!(result.host::<u8>().iter().all(|byte| *byte == 0xaa), "a new allocation wrote into memory still in use");
    Ok(())
}

fn context_copy(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (mut src, dst) = (context.usm(fixture, Kind::Host, 4096)?, context.usm(fixture, Kind::Host, 4096)?);
    let copy = |size| fixture.ur.urUSMContextMemcpyExp(context.raw, dst.ptr, src.ptr, size);
    fixture.require(UR_DEVICE_INFO_USM_CONTEXT_MEMCPY_SUPPORT_EXP, || copy(64))?;
    copy(0).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    src.host_mut::<u8>().fill(4);
    fixture.ur.urUSMContextMemcpyExp(context.raw, dst.ptr, src.ptr, 4096).ok()?;
    check!(dst.host::<u8>().iter().all(|byte| *byte == 4), "a copy in the context went wrong");
    Ok(())
}

fn import_and_release(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let mut plain = vec![1_u8; 1 << 16];
    let pointer = plain.as_mut_ptr().cast();
    fixture.ur.urUSMImportExp(context.raw, pointer, plain.len()).ok()?;
    fixture.ur.urUSMReleaseExp(context.raw, pointer).ok()?;
    check!(plain.iter().all(|byte| *byte == 1), "importing changed the memory");
    Ok(())
}

/// Whole pages, as registration may want them.
#[repr(align(4096))]
struct Pages([u8; 1 << 14]);

fn register_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut pages = Box::new(Pages([1; 1 << 14]));
    let pointer: *mut c_void = pages.0.as_mut_ptr().cast();
    let ur = fixture.ur;
    let register = |size| ur.urUSMHostAllocRegisterExp(context.raw, pointer, size, null());
    fixture.require(UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP, || register(1 << 14))?;
    register(0).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    register(1 << 14).ok()?;
    queue.fill(pointer, 2_u8, 1 << 14, &[])?.wait()?;
    ur.urUSMHostAllocUnregisterExp(context.raw, pointer).ok()?;
    ur.urUSMHostAllocUnregisterExp(context.raw, pointer).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    check!(pages.0.iter().all(|byte| *byte == 2), "commands on registered memory");
    Ok(())
}
