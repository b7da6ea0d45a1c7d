//! Synchronous USM: kinds, alignment, sizes, allocation info, pools, and commands on pointers.

use crate::fixture::Fixture;
use crate::objects::{Context, Kind, Usm, info};
use crate::outcome::Done;
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    type Check = fn(&Fixture, Kind) -> Done;
    let by_kind: [(&str, Check); 11] = [
        ("write_and_read", write_and_read),
        ("alignment", alignment),
        ("large_alignment", large_alignment),
        ("invalid_alignment", invalid_alignment),
        ("size_0", size_0),
        ("huge_size", huge_size),
        ("many_are_disjoint", many_are_disjoint),
        ("alloc_info", alloc_info),
        ("free_refused", free_refused),
        ("descriptors", descriptors),
        ("invalid_descriptors", invalid_descriptors),
    ];
    let mut tests = Vec::new();
    for (name, test) in by_kind {
        for kind in Kind::ALL {
            tests.push(Test::new("usm", format!("{kind}_{name}"), move |fixture| {
                kind.need(fixture)?;
                test(fixture, kind)
            }));
        }
    }
    let allocated = |fixture: &Fixture| {
        let context = Context::new(fixture)?;
        let memory = context.usm(fixture, Kind::Device, 4096)?;
        Ok((memory, context))
    };
    tests.extend(info::tests(
        "usm",
        "info_",
        ur_usm_alloc_info_t::PROPERTIES,
        allocated,
        |f, (memory, context), name, size, value, ret| {
            let name = ur_usm_alloc_info_t(name);
            f.ur.urUSMGetMemAllocInfo(context.raw, memory.ptr, name, size, value, ret)
        },
    ));
    tests.extend(crate::tests!["usm";
        info_of_unknown_pointer, info_of_interior_pointer, host_memory_is_visible_everywhere,
        shared_memory_migrates, free_with_pending_work, context_copy, import_and_release,
        register_host_memory,
    ]);
    tests
}

/// Data written to USM is read back unchanged.
fn write_and_read(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for size in [1, 3, 64, 4097, (1 << 20) + 5] {
        let memory = context.usm(fixture, kind, size)?;
        let data: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
        queue.write(memory.ptr, &data)?;
        check!(
            queue.read::<u8>(memory.ptr, size, &[])? == data,
            "{size} bytes were read back changed"
        );
    }
    Ok(())
}

/// An allocation has the alignment that it asks for, from 1 to 4,096 bytes.
fn alignment(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    for power in 0..=12 {
        let align = 1_u32 << power;
        let memory = Usm::new(&context, fixture.device, kind, 100, align, null_mut())?;
        check!(
            memory.ptr.addr().is_multiple_of(align as usize),
            "{:?} is not aligned to {align}",
            memory.ptr
        );
    }
    Ok(())
}

/// An alignment from 8 KiB to 64 MiB is kept or refused.
fn large_alignment(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    for power in 13..=26 {
        let align = 1_u32 << power;
        let desc = ur_usm_desc_t {
            align,
            ..Default::default()
        };
        let mut ptr = null_mut();
        let status = kind.allocate(&context, fixture.device, &desc, null_mut(), 100, &mut ptr);
        if !status.is_ok() {
            status.fails_with(&[
                UR_RESULT_ERROR_INVALID_VALUE,
                UR_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
            ])?;
            continue;
        }
        check!(
            ptr.addr().is_multiple_of(align as usize),
            "{ptr:?} is not aligned to {align}"
        );
        fixture.ur.urUSMFree(context.raw, ptr).ok()?;
    }
    Ok(())
}

/// An alignment that is no power of two is refused.
fn invalid_alignment(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    for align in [3, 5, 24, 4095] {
        let desc = ur_usm_desc_t {
            align,
            ..Default::default()
        };
        let mut ptr = null_mut();
        let status = kind.allocate(&context, fixture.device, &desc, null_mut(), 64, &mut ptr);
        status.fails_with(&[
            UR_RESULT_ERROR_INVALID_VALUE,
            UR_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
        ])?;
        check!(ptr.is_null(), "a refused allocation wrote a pointer");
    }
    Ok(())
}

/// An allocation of 0 bytes is refused with `INVALID_USM_SIZE`.
fn size_0(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let mut ptr = null_mut();
    let status = kind.allocate(&context, fixture.device, null(), null_mut(), 0, &mut ptr);
    status.fails(UR_RESULT_ERROR_INVALID_USM_SIZE)
}

/// An allocation beyond all memory is refused and writes no pointer.
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

/// Live allocations do not overlap.
fn many_are_disjoint(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let mut blocks = Vec::new();
    for index in 0..200 {
        blocks.push(context.usm(fixture, kind, 1 + index * 37)?);
    }
    let mut ranges: Vec<(usize, usize)> = blocks
        .iter()
        .map(|block| (block.ptr.addr(), block.ptr.addr() + block.size))
        .collect();
    ranges.sort_unstable();
    check!(
        ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "two live allocations overlap"
    );
    Ok(())
}

/// An allocation reports its kind, base, size and device.
fn alloc_info(fixture: &Fixture, kind: Kind) -> Done {
    use crate::objects::alloc_info as get;
    let context = Context::new(fixture)?;
    let size = 12_345;
    let memory = context.usm(fixture, kind, size)?;
    check_eq!(
        get::<ur_usm_type_t>(&context, memory.ptr, UR_USM_ALLOC_INFO_TYPE)?,
        kind.usm_type(),
        "kind"
    );
    check_eq!(
        get::<*mut c_void>(&context, memory.ptr, UR_USM_ALLOC_INFO_BASE_PTR)?,
        memory.ptr,
        "base"
    );
    let found: usize = get(&context, memory.ptr, UR_USM_ALLOC_INFO_SIZE)?;
    check!(
        found >= size && found < size * 2,
        "size {found} of an allocation of {size}"
    );
    let device: ur_device_handle_t = get(&context, memory.ptr, UR_USM_ALLOC_INFO_DEVICE)?;
    if kind != Kind::Host {
        check_eq!(device, fixture.device, "device");
    }
    Ok(())
}

/// A free of an interior, already freed or unknown pointer is refused.
fn free_refused(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let ur = fixture.ur;
    let pointer = context.usm(fixture, kind, 4096)?.into_raw();
    ur.urUSMFree(context.raw, pointer.wrapping_byte_add(64))
        .fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    ur.urUSMFree(context.raw, pointer).ok()?;
    ur.urUSMFree(context.raw, pointer)
        .fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
    let mut local = 0_u64;
    ur.urUSMFree(context.raw, (&raw mut local).cast())
        .fails(UR_RESULT_ERROR_INVALID_MEM_OBJECT)
}

/// Hints, placement flags and alignments in the descriptor chain are accepted.
fn descriptors(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let location = ur_usm_alloc_location_desc_t {
        location: 0,
        ..Default::default()
    };
    let device = ur_usm_device_desc_t {
        pNext: (&raw const location).cast(),
        flags: UR_USM_DEVICE_MEM_FLAG_INITIAL_PLACEMENT | UR_USM_DEVICE_MEM_FLAG_WRITE_COMBINED,
        ..Default::default()
    };
    let host = ur_usm_host_desc_t {
        flags: UR_USM_HOST_MEM_FLAG_INITIAL_PLACEMENT,
        ..Default::default()
    };
    let chain = if kind == Kind::Host {
        (&raw const host).cast()
    } else {
        (&raw const device).cast()
    };
    let desc = ur_usm_desc_t {
        pNext: chain,
        hints: UR_USM_ADVICE_FLAG_SET_READ_MOSTLY,
        align: 256,
        ..Default::default()
    };
    let mut ptr = null_mut();
    kind.allocate(&context, fixture.device, &desc, null_mut(), 1024, &mut ptr)
        .ok()?;
    fixture.ur.urUSMFree(context.raw, ptr).ok()?;
    let undefined = ur_usm_desc_t {
        hints: ur_usm_advice_flags_t(UR_USM_ADVICE_FLAGS_MASK),
        ..Default::default()
    };
    let mut none = null_mut();
    kind.allocate(
        &context,
        fixture.device,
        &undefined,
        null_mut(),
        64,
        &mut none,
    )
    .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}

/// Unknown structures in the descriptor chain and undefined flags are refused.
fn invalid_descriptors(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let refused = |chain: *const c_void, error| {
        let desc = ur_usm_desc_t {
            pNext: chain,
            ..Default::default()
        };
        let mut ptr = null_mut();
        let status = kind.allocate(&context, fixture.device, &desc, null_mut(), 64, &mut ptr);
        status.fails(error)?;
        check!(ptr.is_null(), "a refused allocation wrote a pointer");
        Ok(())
    };
    let stranger = ur_usm_pool_limits_desc_t::default();
    refused((&raw const stranger).cast(), UR_RESULT_ERROR_INVALID_VALUE)?;
    let behind = ur_usm_device_desc_t {
        pNext: (&raw const stranger).cast(),
        ..Default::default()
    };
    refused((&raw const behind).cast(), UR_RESULT_ERROR_INVALID_VALUE)?;
    let device = ur_usm_device_desc_t {
        flags: ur_usm_device_mem_flags_t(1 << 31),
        ..Default::default()
    };
    refused(
        (&raw const device).cast(),
        UR_RESULT_ERROR_INVALID_ENUMERATION,
    )?;
    let host = ur_usm_host_desc_t {
        flags: ur_usm_host_mem_flags_t(1 << 31),
        ..Default::default()
    };
    refused(
        (&raw const host).cast(),
        UR_RESULT_ERROR_INVALID_ENUMERATION,
    )
}

/// A pointer that is no live allocation has the type `UNKNOWN`.
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

/// A pointer into an allocation reports its base.
fn info_of_interior_pointer(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let memory = context.usm(fixture, Kind::Shared, 10_000)?;
    for offset in [1, 4096, 9_999] {
        let inner = memory.ptr.wrapping_byte_add(offset);
        let base: *mut c_void =
            crate::objects::alloc_info(&context, inner, UR_USM_ALLOC_INFO_BASE_PTR)?;
        check_eq!(
            base,
            memory.ptr,
            "base of a pointer {offset} bytes into the allocation"
        );
    }
    Ok(())
}

/// Host memory carries data between the host and the device in both directions.
fn host_memory_is_visible_everywhere(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut memory = context.usm(fixture, Kind::Host, 4096)?;
    memory.host_mut::<u32>().fill(17);
    check_all!(
        queue.read::<u32>(memory.ptr, 1024, &[])?,
        17,
        "words read after host writes"
    );
    queue.fill(memory.ptr, 19_u32, 4096, &[])?.wait()?;
    check_all!(
        memory.host::<u32>(),
        19,
        "words seen by the host after device writes"
    );
    Ok(())
}

/// Shared memory carries data between the host and the device in both directions.
fn shared_memory_migrates(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut memory = context.usm(fixture, Kind::Shared, 1 << 20)?;
    for round in 0..4_u32 {
        memory.host_mut::<u32>().fill(round);
        check_all!(
            queue.read::<u32>(memory.ptr, 1 << 18, &[])?,
            round,
            "words read after host writes"
        );
        queue.fill(memory.ptr, round + 100, 1 << 20, &[])?.wait()?;
        check_all!(
            memory.host::<u32>(),
            round + 100,
            "words seen by the host after device writes"
        );
    }
    Ok(())
}

/// A block freed while commands use it serves no other allocation before they end.
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
    // The free may block until the commands have ended.
    fixture.ur.urUSMFree(context.raw, memory.into_raw()).ok()?;
    let mut other = context.usm(fixture, Kind::Host, size)?;
    other.host_mut::<u8>().fill(0xbb);
    queue.finish()?;
    check_all!(
        other.host::<u8>(),
        0xbb,
        "bytes of a new allocation after pending work"
    );
    check_all!(
        result.host::<u8>(),
        0xaa,
        "bytes of the freed block, copied by pending work"
    );
    Ok(())
}

/// `urUSMContextMemcpyExp` copies within its context and refuses a size of 0.
fn context_copy(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let (mut src, dst) = (
        context.usm(fixture, Kind::Host, 4096)?,
        context.usm(fixture, Kind::Host, 4096)?,
    );
    let copy = |size| {
        fixture
            .ur
            .urUSMContextMemcpyExp(context.raw, dst.ptr, src.ptr, size)
    };
    fixture.require(UR_DEVICE_INFO_USM_CONTEXT_MEMCPY_SUPPORT_EXP, || copy(64))?;
    copy(0).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    src.host_mut::<u8>().fill(4);
    fixture
        .ur
        .urUSMContextMemcpyExp(context.raw, dst.ptr, src.ptr, 4096)
        .ok()?;
    check_all!(dst.host::<u8>(), 4, "bytes of a copy in the context");
    Ok(())
}

/// Importing and releasing host memory leaves its data unchanged.
fn import_and_release(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let mut plain = vec![1_u8; 1 << 16];
    let pointer = plain.as_mut_ptr().cast();
    fixture
        .ur
        .urUSMImportExp(context.raw, pointer, plain.len())
        .ok()?;
    fixture.ur.urUSMReleaseExp(context.raw, pointer).ok()?;
    check_all!(plain, 1, "bytes after an import and a release");
    Ok(())
}

/// Whole pages, since a driver may register only those.
#[repr(align(4096))]
struct Pages([u8; 1 << 14]);

/// Registered host memory takes commands, and a second unregistration is refused.
fn register_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut pages = Box::new(Pages([1; 1 << 14]));
    let pointer: *mut c_void = pages.0.as_mut_ptr().cast();
    let ur = fixture.ur;
    let register = |size| ur.urUSMHostAllocRegisterExp(context.raw, pointer, size, null());
    fixture.require(UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP, || {
        register(1 << 14)
    })?;
    register(0).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    register(1 << 14).ok()?;
    queue.fill(pointer, 2_u8, 1 << 14, &[])?.wait()?;
    ur.urUSMHostAllocUnregisterExp(context.raw, pointer).ok()?;
    ur.urUSMHostAllocUnregisterExp(context.raw, pointer)
        .fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    check_all!(pages.0, 2, "bytes of registered memory after a fill");
    Ok(())
}
