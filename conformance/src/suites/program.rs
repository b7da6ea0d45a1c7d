//! Programs: creation, building, properties and metadata. The suite `kernel` covers kernels.

use crate::fixture::Fixture;
use crate::kernels::{ALL, IOTA, IOTA_SPECIAL};
use crate::objects::{Arg, Context, Kernel, Kind, Program, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_eq, check_items};
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["program";
        create_and_build, counts_references, reports_its_context_and_devices, create_refused, lists_kernels, build_info,
        queried_handles_can_be_retained, compile_and_link, link_refused, function_pointer, unknown_function, unknown_global, native_handle, adopted_native_handle,
        specialization_constants, metadata, dynamic_link_refused, dynamic_link,
    ];
    let program = |fixture: &Fixture| Program::new(fixture, &Context::new(fixture)?);
    tests.extend(info::tests(
        "program",
        "info_",
        ur_program_info_t::PROPERTIES,
        program,
        |f, program, name, size, value, ret| {
            f.ur.urProgramGetInfo(program.raw, ur_program_info_t(name), size, value, ret)
        },
    ));
    // The buffer of this query holds pointers of the caller, so the size protocol does not apply.
    tests.retain(|test| test.name != "info_binaries");
    let get_info: info::GetInfo<Program> = |f, program, name, size, value, ret| {
        let name = ur_program_build_info_t(name);
        f.ur.urProgramGetBuildInfo(program.raw, f.device, name, size, value, ret)
    };
    tests.extend(info::tests(
        "program",
        "build_info_",
        ur_program_build_info_t::PROPERTIES,
        program,
        get_info,
    ));
    tests
}

/// A program can be built, and built again with empty options.
fn create_and_build(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    fixture
        .ur
        .urProgramBuild(context.raw, program.raw, null())
        .ok()?;
    fixture
        .ur
        .urProgramBuild(context.raw, program.raw, c"".as_ptr())
        .ok()
}

/// A retain and a release of a program change its reference count by one.
fn counts_references(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let references = || program.get::<u32>(UR_PROGRAM_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new program");
    let second = program.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

/// A program reports its context and its devices.
fn reports_its_context_and_devices(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    check_eq!(
        program.get::<ur_context_handle_t>(UR_PROGRAM_INFO_CONTEXT)?,
        context.raw,
        "context of the program"
    );
    check_eq!(
        program.get::<u32>(UR_PROGRAM_INFO_NUM_DEVICES)?,
        1,
        "number of devices of the program"
    );
    let devices = info::list::<usize>(|size, value, ret| {
        fixture
            .ur
            .urProgramGetInfo(program.raw, UR_PROGRAM_INFO_DEVICES, size, value, ret)
    })?;
    check_eq!(devices, [fixture.device.addr()], "devices of the program");
    Ok(())
}

/// A program is refused without devices, with inconsistent metadata, or from empty code.
fn create_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    drop(Program::unbuilt(fixture, &context)?);
    let (mut device, mut size, mut data) = (fixture.device, 8, [0_u8; 64]);
    let mut binary: *const u8 = data.as_mut_ptr();
    let mut raw = null_mut();
    let create = |count,
                  device: *mut ur_device_handle_t,
                  size: *mut usize,
                  binary: *mut *const u8,
                  properties,
                  raw| {
        fixture.ur.urProgramCreateWithBinary(
            context.raw,
            count,
            device,
            size,
            binary,
            properties,
            raw,
        )
    };
    create(0, &mut device, &mut size, &mut binary, null(), &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    let counted = ur_program_properties_t {
        count: 1,
        ..Default::default()
    };
    create(1, &mut device, &mut size, &mut binary, &counted, &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let entry = ur_program_metadata_t::default();
    let uncounted = ur_program_properties_t {
        pMetadatas: &entry,
        ..Default::default()
    };
    create(1, &mut device, &mut size, &mut binary, &uncounted, &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    let il =
        fixture
            .ur
            .urProgramCreateWithIL(context.raw, data.as_ptr().cast(), 0, null(), &mut raw);
    il.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check!(raw.is_null(), "a refused creation wrote a handle");
    Ok(())
}

/// A program lists the names and the number of its kernels.
fn lists_kernels(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let names = info::text(|size, value, ret| {
        fixture
            .ur
            .urProgramGetInfo(program.raw, UR_PROGRAM_INFO_KERNEL_NAMES, size, value, ret)
    })?;
    let mut found: Vec<&str> = names.split(';').collect();
    found.sort_unstable();
    let mut want: Vec<&str> = ALL.iter().filter_map(|name| name.to_str().ok()).collect();
    want.sort_unstable();
    check_eq!(found, want, "names of the kernels");
    check_eq!(
        program.get::<usize>(UR_PROGRAM_INFO_NUM_KERNELS)?,
        ALL.len(),
        "number of kernels"
    );
    Ok(())
}

/// A built program reports success and an executable binary.
fn build_info(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    let status = || {
        info::value::<ur_program_build_status_t>(|size, value, ret| {
            let name = UR_PROGRAM_BUILD_INFO_STATUS;
            fixture
                .ur
                .urProgramGetBuildInfo(program.raw, fixture.device, name, size, value, ret)
        })
    };
    fixture
        .ur
        .urProgramBuild(context.raw, program.raw, null())
        .ok()?;
    check_eq!(status()?, UR_PROGRAM_BUILD_STATUS_SUCCESS, "build status");
    let binary: ur_program_binary_type_t = info::value(|size, value, ret| {
        let name = UR_PROGRAM_BUILD_INFO_BINARY_TYPE;
        fixture
            .ur
            .urProgramGetBuildInfo(program.raw, fixture.device, name, size, value, ret)
    })?;
    check_eq!(
        binary,
        UR_PROGRAM_BINARY_TYPE_EXECUTABLE,
        "binary type of a built program"
    );
    Ok(())
}

/// Compiled programs link to a program with their kernels.
fn compile_and_link(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    fixture
        .ur
        .urProgramCompile(context.raw, program.raw, null())
        .ok()?;
    let mut raw = std::ptr::dangling_mut();
    fixture
        .ur
        .urProgramLink(context.raw, 0, &program.raw, null(), &mut raw)
        .fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    raw = null_mut();
    fixture
        .ur
        .urProgramLink(context.raw, 1, &program.raw, null(), &mut raw)
        .ok()?;
    check!(!raw.is_null(), "urProgramLink gave no program");
    let linked = Program::adopt(fixture.ur, raw);
    linked.kernel(IOTA)?;
    Ok(())
}

const OPEN: ur_exp_program_flags_t = UR_EXP_PROGRAM_FLAG_ALLOW_UNRESOLVED_SYMBOLS;

fn build_for(
    fixture: &Fixture,
    program: &Program,
    flags: ur_exp_program_flags_t,
    options: &CStr,
) -> Status {
    let mut device = fixture.device;
    let ur = fixture.ur;
    ur.urProgramBuildExp(program.raw, 1, &mut device, flags, options.as_ptr())
}

fn link_dynamically(context: &Context, programs: &[&Program]) -> Status {
    let all: Vec<_> = programs.iter().map(|program| program.raw).collect();
    let ur = context.ur;
    ur.urProgramDynamicLinkExp(context.raw, all.len() as u32, all.as_ptr())
}

/// Stops the test unless the device links dynamically.
fn need_dynamic_link(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    fixture.require(UR_DEVICE_INFO_DYNAMIC_LINK_SUPPORT_EXP, || {
        link_dynamically(&context, &[&program])
    })
}

/// An open symbol is an error of a build, unless it is allowed, and of a link that does not resolve it.
fn dynamic_link_refused(fixture: &Fixture) -> Done {
    need_dynamic_link(fixture)?;
    let context = Context::new(fixture)?;
    let (closed, function, options) = Program::halves(fixture, &context)?;
    let failed = UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE;
    let none = ur_exp_program_flags_t(0);
    build_for(fixture, &closed, none, c"").fails(failed)?;
    let (open, ..) = Program::halves(fixture, &context)?;
    let invalid = UR_RESULT_ERROR_INVALID_PROGRAM;
    link_dynamically(&context, &[&open]).fails(invalid)?;
    build_for(fixture, &open, OPEN, c"").ok()?;
    let failed = UR_RESULT_ERROR_PROGRAM_LINK_FAILURE;
    link_dynamically(&context, &[&open]).fails(failed)?;
    link_dynamically(&context, &[]).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    let other = Context::new(fixture)?;
    link_dynamically(&other, &[&open]).fails(invalid)?;
    build_for(fixture, &function, OPEN, options).ok()?;
    link_dynamically(&context, &[&open, &function]).ok()?;
    open.kernel(IOTA).map(drop)
}

/// A kernel calls the function of another program, which may be released.
fn dynamic_link(fixture: &Fixture) -> Done {
    need_dynamic_link(fixture)?;
    let context = Context::new(fixture)?;
    let (program, function, options) = Program::halves(fixture, &context)?;
    build_for(fixture, &program, OPEN, c"").ok()?;
    build_for(fixture, &function, OPEN, options).ok()?;
    link_dynamically(&context, &[&function, &program]).ok()?;
    let kernel = program.kernel(IOTA)?;
    let queue = context.in_order(fixture)?;
    let numbers = context.usm(fixture, Kind::Host, 400)?;
    let run = || -> Done {
        queue.fill(numbers.ptr, 0_u8, 400, &[])?;
        let args = [Arg::Pointer(numbers.ptr), Arg::of(&3_u32)];
        queue.launch(&kernel, 100, &args, &[])?;
        queue.finish()?;
        check_items!(numbers.host::<u32>().to_vec(), 10..110, "linked kernel");
        Ok(())
    };
    run()?;
    drop(function);
    run()
}

/// Handles from a query are valid while the queried object lives.
fn queried_handles_can_be_retained(fixture: &Fixture) -> Done {
    let ur = fixture.ur;
    let kernel = {
        let context = Context::new(fixture)?;
        Program::new(fixture, &context)?.kernel(IOTA)?
    };
    let of_kernel = |what, size, value, ret| ur.urKernelGetInfo(kernel.raw, what, size, value, ret);
    let program: ur_program_handle_t =
        info::value(|size, value, ret| of_kernel(UR_KERNEL_INFO_PROGRAM, size, value, ret))?;
    let own: ur_context_handle_t =
        info::value(|size, value, ret| of_kernel(UR_KERNEL_INFO_CONTEXT, size, value, ret))?;
    ur.urContextRetain(own).ok()?;
    ur.urContextRelease(own).ok()?;
    let of_program = |what, size, value, ret| ur.urProgramGetInfo(program, what, size, value, ret);
    let devices: u32 =
        info::value(|size, value, ret| of_program(UR_PROGRAM_INFO_NUM_DEVICES, size, value, ret))?;
    ur.urProgramRetain(program).ok()?;
    ur.urProgramRelease(program).ok()?;
    let context: ur_context_handle_t =
        info::value(|size, value, ret| of_program(UR_PROGRAM_INFO_CONTEXT, size, value, ret))?;
    check_eq!(
        context,
        own,
        "context of a program, compared with its kernel's"
    );
    ur.urContextRetain(context).ok()?;
    ur.urContextRelease(context).ok()?;
    let mut list: Vec<ur_device_handle_t> = vec![null_mut(); devices as usize];
    let bytes = size_of_val(&*list);
    of_program(
        UR_PROGRAM_INFO_DEVICES,
        bytes,
        list.as_mut_ptr().cast(),
        null_mut(),
    )
    .ok()?;
    for device in list {
        ur.urDeviceRetain(device).ok()?;
        ur.urDeviceRelease(device).ok()?;
    }
    Ok(())
}

/// A link with wrong arguments fails and leaves a null program.
///
/// If a link itself fails, the adapter's last error says why.
fn link_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    let foreign = Program::unbuilt(fixture, &Context::new(fixture)?)?;
    let ur = fixture.ur;
    let (device, none) = (fixture.device, null_mut());
    let both = |count: u32, programs: *const ur_program_handle_t| {
        let (mut plain, mut chosen) = (std::ptr::dangling_mut(), std::ptr::dangling_mut());
        let flags = ur_exp_program_flags_t(0);
        let all = ur.urProgramLink(context.raw, count, programs, null(), &mut plain);
        let mut devices = [device];
        let some = ur.urProgramLinkExp(
            context.raw,
            1,
            devices.as_mut_ptr(),
            flags,
            count,
            programs,
            null(),
            &mut chosen,
        );
        [(all, plain), (some, chosen)]
    };
    let programs = [program.raw, none];
    for (count, list) in [
        (0, programs.as_ptr()),
        (1, null()),
        (2, programs.as_ptr()),
        (1, &foreign.raw),
    ] {
        for (status, made) in both(count, list) {
            status.refused()?;
            check!(
                made.is_null(),
                "a refused link wrote {made:p}, expected null"
            );
        }
    }
    // Undefined flags, and a null context.
    let mut made = std::ptr::dangling_mut();
    let mut devices = [device];
    let flags = ur_exp_program_flags_t(1 << 31);
    ur.urProgramLinkExp(
        context.raw,
        1,
        devices.as_mut_ptr(),
        flags,
        1,
        &program.raw,
        null(),
        &mut made,
    )
    .refused()?;
    check!(
        made.is_null(),
        "a refused link wrote {made:p}, expected null"
    );
    made = std::ptr::dangling_mut();
    ur.urProgramLink(none.cast(), 1, &program.raw, null(), &mut made)
        .refused()?;
    check!(
        made.is_null(),
        "a refused link wrote {made:p}, expected null"
    );
    // An adapter may or may not link a program that was not compiled. If it does not, it reports why.
    for (status, made) in both(1, &program.raw) {
        if status.is_ok() {
            drop(Program::adopt(ur, made));
            continue;
        }
        check!(
            made.is_null(),
            "a failed link wrote {made:p}, expected null"
        );
        if status.code == UR_RESULT_ERROR_PROGRAM_LINK_FAILURE {
            let (mut message, mut code) = (null(), 0);
            ur.urAdapterGetLastError(fixture.adapter, &mut message, &mut code)
                .ok()?;
            // SAFETY: the string is valid until this thread's next failure.
            let reported = !message.is_null() && !unsafe { CStr::from_ptr(message) }.is_empty();
            check!(reported, "the last error does not say why a link failed");
        }
    }
    Ok(())
}

/// The address of a kernel is not null, or is unavailable.
fn function_pointer(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let mut pointer = null_mut();
    let status = fixture.ur.urProgramGetFunctionPointer(
        fixture.device,
        program.raw,
        IOTA.as_ptr(),
        &mut pointer,
    );
    if status.code != UR_RESULT_ERROR_FUNCTION_ADDRESS_NOT_AVAILABLE && !status.is_unsupported() {
        status.ok()?;
        check!(!pointer.is_null(), "the address of a kernel is null");
    }
    Ok(())
}

/// An unknown function name is refused.
fn unknown_function(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let mut pointer = null_mut();
    let name = c"no_such_kernel".as_ptr();
    let status =
        fixture
            .ur
            .urProgramGetFunctionPointer(fixture.device, program.raw, name, &mut pointer);
    status.fails_with(&[
        UR_RESULT_ERROR_INVALID_KERNEL_NAME,
        UR_RESULT_ERROR_UNSUPPORTED_FEATURE,
    ])
}

/// An unknown global variable is refused.
fn unknown_global(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let (mut size, mut pointer) = (0, null_mut());
    let name = c"no_such_variable".as_ptr();
    let find = |size, pointer| {
        fixture.ur.urProgramGetGlobalVariablePointer(
            fixture.device,
            program.raw,
            name,
            size,
            pointer,
        )
    };
    fixture.require(UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT, || {
        find(&mut size, &mut pointer)
    })?;
    let (mut size, mut pointer) = (0, null_mut());
    find(&mut size, &mut pointer).fails_with(&[
        UR_RESULT_ERROR_INVALID_VALUE,
        UR_RESULT_ERROR_INVALID_GLOBAL_NAME,
    ])
}

/// A specialization constant takes effect at the next build, and a wrong id or size is refused.
fn specialization_constants(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    let value = 7_u32;
    let constant = ur_specialization_constant_info_t {
        id: 12_345,
        size: 4,
        pValue: (&raw const value).cast(),
    };
    let set = |count| {
        fixture
            .ur
            .urProgramSetSpecializationConstants(program.raw, count, &constant)
    };
    fixture.require(UR_DEVICE_INFO_PROGRAM_SET_SPECIALIZATION_CONSTANTS, || {
        set(1)
    })?;
    set(0).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    set(1).fails(UR_RESULT_ERROR_INVALID_SPEC_ID)?;
    specialized(fixture, &context, &program)
}

/// A constant takes a value of its own size, and the next build applies it.
fn specialized(fixture: &Fixture, context: &Context, program: &Program) -> Done {
    let ur = fixture.ur;
    // Eight bytes are readable, though the constant has four.
    let value = [1000_u32, 0];
    let set = |size, value| {
        let constant = ur_specialization_constant_info_t {
            id: IOTA_SPECIAL,
            size,
            pValue: value,
        };
        ur.urProgramSetSpecializationConstants(program.raw, 1, &constant)
    };
    let at = (&raw const value).cast();
    for (size, value, words) in [
        (8, at, "does not match that of its constant"),
        (4, null(), "is none that its constant can take"),
    ] {
        set(size, value).fails_because(UR_RESULT_ERROR_INVALID_VALUE, words)?;
    }
    set(4, at).ok()?;
    ur.urProgramBuild(context.raw, program.raw, null()).ok()?;
    let (kernel, queue) = (program.kernel(IOTA)?, context.in_order(fixture)?);
    let memory = context.usm(fixture, Kind::Device, 256)?;
    queue.launch(
        &kernel,
        64,
        &[Arg::Pointer(memory.ptr), Arg::of(&5_u32)],
        &[],
    )?;
    let data: Vec<u32> = queue.read(memory.ptr, 64, &[])?;
    check_items!(
        data.iter().copied(),
        1005..1069,
        "words of iota with its constant set to 1000"
    );
    Ok(())
}

/// The work-group size that metadata requires is reported, and no other size is accepted.
fn metadata(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    drop(Program::unbuilt(fixture, &context)?);
    let provider = crate::kernels::provider(fixture.backend)
        .ok_or_else(|| Stop::skipped("no provider has kernels for this backend"))?;
    let crate::kernels::Source::Binary { data, size } = provider.source(true) else {
        return Err(Stop::skipped(
            "intermediate code itself states its required work-group size",
        ));
    };
    // A required work-group size after eight bytes that are no data: DPC++ keeps a size in bits there.
    for before in [[64, 0], [0, 0], [u32::MAX, 7]] {
        let [low, high] = before;
        requires(fixture, &context, (data, size), [low, high, 4, 1])?;
    }
    Ok(())
}

/// Makes a program with metadata that requires work-groups of four.
fn requires(
    fixture: &Fixture,
    context: &Context,
    (data, mut size): (*const c_void, usize),
    mut required: [u32; 4],
) -> Done {
    let entries = [
        ur_program_metadata_t {
            pName: c"iota@reqd_work_group_size".as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY,
            size: 16,
            value: ur_program_metadata_value_t {
                pData: required.as_mut_ptr().cast(),
            },
        },
        ur_program_metadata_t {
            pName: c"something else".as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_UINT32,
            size: 4,
            value: ur_program_metadata_value_t { data32: 1 },
        },
    ];
    let properties = ur_program_properties_t {
        count: 2,
        pMetadatas: entries.as_ptr(),
        ..Default::default()
    };
    let (mut device, mut binary, mut raw) = (fixture.device, data.cast::<u8>(), null_mut());
    let ur = fixture.ur;
    ur.urProgramCreateWithBinary(
        context.raw,
        1,
        &mut device,
        &mut size,
        &mut binary,
        &properties,
        &mut raw,
    )
    .ok()?;
    let program = Program::adopt(ur, raw);
    ur.urProgramBuild(context.raw, program.raw, null()).ok()?;
    required_size_is_kept(fixture, context, &program)
}

/// The required work-group size is reported, and no other size is accepted.
fn required_size_is_kept(fixture: &Fixture, context: &Context, program: &Program) -> Done {
    let ur = fixture.ur;
    let kernel = program.kernel(IOTA)?;
    let size: [usize; 3] = info::value(|size, value, ret| {
        let name = UR_KERNEL_GROUP_INFO_COMPILE_WORK_GROUP_SIZE;
        ur.urKernelGetGroupInfo(kernel.raw, fixture.device, name, size, value, ret)
    })?;
    check_eq!(size, [4, 1, 1], "required work-group size");
    let queue = context.in_order(fixture)?;
    let memory = context.usm(fixture, Kind::Device, 256)?;
    let base = 1_u32;
    let args = Arg::properties(&[Arg::Pointer(memory.ptr), Arg::of(&base)]);
    let launch = |local: usize| {
        let (q, k, global) = (queue.raw, kernel.raw, 64);
        ur.urEnqueueKernelLaunchWithArgsExp(
            q,
            k,
            1,
            null(),
            &global,
            &local,
            2,
            args.as_ptr(),
            null(),
            0,
            null(),
            null_mut(),
        )
    };
    launch(4).ok()?;
    launch(8).fails(UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
    queue.finish()
}

/// A program and a kernel made of native handles are those of the program that gave the handles.
fn adopted_native_handle(fixture: &Fixture) -> Done {
    let (ur, context) = (fixture.ur, Context::new(fixture)?);
    let own = Program::new(fixture, &context)?;
    let own_kernel = own.kernel(IOTA)?;
    let (mut native, mut function, mut raw) = (0, 0, null_mut());
    let status = ur.urProgramGetNativeHandle(own.raw, &mut native);
    if status.is_unsupported() {
        ur.urProgramCreateWithNativeHandle(native, context.raw, null(), &mut raw)
            .refused()?;
        return Err(Stop::skipped("the backend has no native programs"));
    }
    status.ok()?;
    ur.urProgramCreateWithNativeHandle(native, context.raw, null(), &mut raw)
        .ok()?;
    let adopted = Program::adopt(ur, raw);
    let same = adopted.kernel(IOTA)?;
    ur.urKernelGetNativeHandle(own_kernel.raw, &mut function)
        .ok()?;
    let mut kernel = null_mut();
    let program = adopted.raw;
    ur.urKernelCreateWithNativeHandle(function, context.raw, program, null(), &mut kernel)
        .ok()?;
    let foreign = Kernel::adopt(ur, kernel);
    let name = |kernel: &Kernel| {
        info::text(|size, value, ret| {
            let what = UR_KERNEL_INFO_FUNCTION_NAME;
            ur.urKernelGetInfo(kernel.raw, what, size, value, ret)
        })
    };
    check_eq!(
        name(&same)?,
        name(&own_kernel)?,
        "name of an adopted program's kernel"
    );
    check_eq!(
        name(&foreign)?,
        name(&own_kernel)?,
        "name of an adopted kernel"
    );
    Ok(())
}

/// A program gives its native handle or reports that it has none.
fn native_handle(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let mut native = 0;
    let status = fixture
        .ur
        .urProgramGetNativeHandle(program.raw, &mut native);
    if status.is_unsupported() {
        Ok(())
    } else {
        status.ok()
    }
}
