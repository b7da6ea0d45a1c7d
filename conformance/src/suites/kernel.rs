//! Kernels: creation, properties, settings and suggestions. Launches are in `launch`.

use crate::fixture::Fixture;
use crate::kernels::{ADD, ALL, IOTA, REACH};
use crate::objects::{Arg, Context, Kernel, Kind, Program, Usm, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["kernel";
        create, unknown_name, counts_references, reports_its_context_and_program, pending_launch_keeps_kernel, exec_info, memory_behind_pointers,
        suggested_local_size, cooperative_groups, native_handle,
    ];
    let kernel = |fixture: &Fixture| Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA);
    tests.extend(info::tests(
        "kernel",
        "info_",
        ur_kernel_info_t::PROPERTIES,
        kernel,
        |f, kernel, name, size, value, ret| {
            f.ur.urKernelGetInfo(kernel.raw, ur_kernel_info_t(name), size, value, ret)
        },
    ));
    let get_info: info::GetInfo<Kernel> = |f, kernel, name, size, value, ret| {
        let name = ur_kernel_group_info_t(name);
        f.ur.urKernelGetGroupInfo(kernel.raw, f.device, name, size, value, ret)
    };
    tests.extend(info::tests(
        "kernel",
        "group_info_",
        ur_kernel_group_info_t::PROPERTIES,
        kernel,
        get_info,
    ));
    let get_info: info::GetInfo<Kernel> = |f, kernel, name, size, value, ret| {
        let name = ur_kernel_sub_group_info_t(name);
        f.ur.urKernelGetSubGroupInfo(kernel.raw, f.device, name, size, value, ret)
    };
    tests.extend(info::tests(
        "kernel",
        "sub_group_info_",
        ur_kernel_sub_group_info_t::PROPERTIES,
        kernel,
        get_info,
    ));
    tests
}

/// A kernel can be made for each name in its program and reports that name.
fn create(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    for name in ALL {
        let kernel = program.kernel(name)?;
        let found = info::text(|size, value, ret| {
            fixture
                .ur
                .urKernelGetInfo(kernel.raw, UR_KERNEL_INFO_FUNCTION_NAME, size, value, ret)
        })?;
        check_eq!(
            Some(found.as_str()),
            name.to_str().ok(),
            "name of the kernel"
        );
    }
    Ok(())
}

/// An unknown kernel name is refused with `INVALID_KERNEL_NAME`.
fn unknown_name(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    for name in [c"no_such_kernel", c"", c"iot", c"iota "] {
        let mut raw = null_mut();
        fixture
            .ur
            .urKernelCreate(program.raw, name.as_ptr(), &mut raw)
            .fails(UR_RESULT_ERROR_INVALID_KERNEL_NAME)?;
        check!(raw.is_null(), "a refused urKernelCreate wrote a handle");
    }
    Ok(())
}

/// A retain and a release of a kernel change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
    let references = || kernel.get::<u32>(UR_KERNEL_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new kernel");
    let second = kernel.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

/// A kernel reports its context and its program.
fn reports_its_context_and_program(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let kernel = program.kernel(IOTA)?;
    check_eq!(
        kernel.get::<ur_context_handle_t>(UR_KERNEL_INFO_CONTEXT)?,
        context.raw,
        "context of the kernel"
    );
    check_eq!(
        kernel.get::<ur_program_handle_t>(UR_KERNEL_INFO_PROGRAM)?,
        program.raw,
        "program of the kernel"
    );
    Ok(())
}

/// A pending launch keeps its released kernel and program.
fn pending_launch_keeps_kernel(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    queue.fill(memory.ptr, 1_u32, 400, &[])?;
    queue.launch(
        &kernel,
        100,
        &[Arg::Pointer(memory.ptr), Arg::of(&2_u32)],
        &[],
    )?;
    drop(kernel);
    check_all!(
        queue.read::<u32>(memory.ptr, 100, &[])?,
        3,
        "words of a kernel released before it ran"
    );
    Ok(())
}

/// Each kind of kernel execution information is accepted.
fn exec_info(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Shared, 64)?;
    let set = |name, size, value| {
        fixture
            .ur
            .urKernelSetExecInfo(kernel.raw, name, size, null(), value)
    };
    let yes: ur_bool_t = 1;
    set(
        UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS,
        1,
        (&raw const yes).cast(),
    )
    .ok()?;
    set(
        UR_KERNEL_EXEC_INFO_USM_PTRS,
        8,
        (&raw const memory.ptr).cast(),
    )
    .ok()?;
    let cache = UR_KERNEL_CACHE_CONFIG_LARGE_SLM;
    set(
        UR_KERNEL_EXEC_INFO_CACHE_CONFIG,
        4,
        (&raw const cache).cast(),
    )
    .ok()
}

/// A kernel that the program says to use other memory than its arguments' reaches all kinds of it by addresses in memory,
/// allocated before the kernel and after it.
fn memory_behind_pointers(fixture: &Fixture) -> Done {
    const WORDS: usize = 64;
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let program = Program::new(fixture, &context)?;
    let each_kind = || -> Result<Vec<Usm>, Stop> {
        let mut memory = Vec::new();
        for kind in [Kind::Device, Kind::Host, Kind::Shared] {
            if kind.is_there(fixture)? {
                memory.push(context.usm(fixture, kind, 4 * WORDS)?);
            }
        }
        Ok(memory)
    };
    let before = each_kind()?;
    let kernel = program.kernel(REACH)?;
    kernel.use_any_memory()?;
    let after = each_kind()?;
    let block = queue.alloc_current(Kind::Device, 4 * WORDS)?;
    let usm = before.iter().chain(&after).map(|own| own.ptr);
    let all: Vec<_> = usm.chain([block.ptr]).collect();
    let addresses = context.usm(fixture, Kind::Device, 8 * WORDS)?;
    for (number, start) in (1_u32..).zip(&all) {
        queue.fill(*start, number, 4 * WORDS, &[])?;
        let words = |at: usize| start.wrapping_byte_add(4 * at).expose_provenance() as u64;
        let list: Vec<u64> = (0..WORDS).map(words).collect();
        queue.write(addresses.ptr, &list)?;
        let args = [Arg::Pointer(addresses.ptr), Arg::of(&100_u32)];
        queue.launch(&kernel, WORDS, &args, &[])?;
    }
    for (number, start) in (1_u32..).zip(&all) {
        let words = queue.read::<u32>(*start, WORDS, &[])?;
        check_all!(words, 100 + number, "words of allocation {number}");
    }
    queue.free(block, &[])?;
    queue.finish()
}

/// The suggested work-group size divides the global size and fits the device's limit.
fn suggested_local_size(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(IOTA)?;
    let largest: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    for global in [[1, 1, 1], [1024, 1, 1], [64, 32, 1], [7, 5, 3], [997, 1, 1]] {
        let mut local = [0; 3];
        let offset = [0; 3];
        let status = fixture.ur.urKernelGetSuggestedLocalWorkSize(
            kernel.raw,
            queue.raw,
            3,
            offset.as_ptr(),
            global.as_ptr(),
            local.as_mut_ptr(),
        );
        status.ok()?;
        let divides = local
            .iter()
            .zip(&global)
            .all(|(local, global)| *local > 0 && global % local == 0);
        check!(
            divides,
            "the suggested size {local:?} does not divide {global:?}"
        );
        check!(
            local.iter().product::<usize>() <= largest,
            "the suggested size {local:?} is larger than {largest}"
        );
        let mut with_args = [0; 3];
        let status = fixture.ur.urKernelGetSuggestedLocalWorkSizeWithArgs(
            kernel.raw,
            queue.raw,
            3,
            offset.as_ptr(),
            global.as_ptr(),
            0,
            null(),
            with_args.as_mut_ptr(),
        );
        status.ok()?;
        check!(
            with_args.iter().all(|local| *local > 0),
            "the suggested size for {global:?} with arguments is {with_args:?}"
        );
    }
    Ok(())
}

/// The cooperative group count is positive, or unsupported without that launch capability.
fn cooperative_groups(fixture: &Fixture) -> Done {
    let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
    let local = [1, 1, 1];
    let mut count = 0;
    let get_info = |dimensions, count| {
        let ur = fixture.ur;
        ur.urKernelSuggestMaxCooperativeGroupCount(
            kernel.raw,
            fixture.device,
            dimensions,
            local.as_ptr(),
            0,
            count,
        )
    };
    let able: ur_kernel_launch_properties_flags_t =
        fixture.device_info(UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES)?;
    if !able.contains(UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE) {
        let status = get_info(1, &mut count);
        status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        return Err(Stop::Unsupported {
            what: status.to_string(),
            documented: true,
        });
    }
    get_info(1, &mut count).ok()?;
    check!(count > 0, "the cooperative group count is 0");
    get_info(0, &mut count).fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
    get_info(4, &mut count).fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)
}

/// A kernel gives its native handle or reports that it has none.
fn native_handle(fixture: &Fixture) -> Done {
    let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
    let mut native = 0;
    let status = fixture.ur.urKernelGetNativeHandle(kernel.raw, &mut native);
    if status.is_unsupported() {
        Ok(())
    } else {
        status.ok()
    }
}
