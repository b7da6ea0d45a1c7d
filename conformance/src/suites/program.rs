//! Programs and kernels: creation, properties and suggestions. Launches are in `launch`.

use crate::fixture::Fixture;
use crate::generated::info::{KERNEL_GROUP_INFO, KERNEL_INFO, KERNEL_SUB_GROUP_INFO, PROGRAM_BUILD_INFO, PROGRAM_INFO};
use crate::kernels::{ADD, ALL, IOTA};
use crate::objects::{Arg, Context, Kind, Program, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_eq};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["program";
        create_and_build, counts_references, belongs, create_refused, lists_kernels, build_info, compile_and_link,
        function_pointer, unknown_function, unknown_global, native_handle, specialization_constants, metadata,
    ];
    tests.extend(crate::tests!["kernel";
        kernel_create, kernel_unknown_name, kernel_counts_references, kernel_belongs, kernel_outlives_its_program,
        exec_info, suggested_local_size, cooperative_groups, kernel_native_handle,
    ]);
    for property in PROGRAM_INFO {
        let name = property.name.trim_start_matches("UR_PROGRAM_INFO_").to_lowercase();
        // The caller's own pointers lie in the buffer of the binaries: no usual property.
        if name != "binaries" {
            tests.push(Test::new("program", format!("info_{name}"), |fixture| {
                let program = Program::new(fixture, &Context::new(fixture)?)?;
                protocol(property, |size, value, ret| {
                    fixture.ur.urProgramGetInfo(program.raw, ur_program_info_t(property.value), size, value, ret)
                })
            }));
        }
    }
    for property in PROGRAM_BUILD_INFO {
        let name = property.name.trim_start_matches("UR_PROGRAM_BUILD_INFO_").to_lowercase();
        tests.push(Test::new("program", format!("build_info_{name}"), |fixture| {
            let program = Program::new(fixture, &Context::new(fixture)?)?;
            protocol(property, |size, value, ret| {
                let name = ur_program_build_info_t(property.value);
                fixture.ur.urProgramGetBuildInfo(program.raw, fixture.device, name, size, value, ret)
            })
        }));
    }
    for property in KERNEL_INFO {
        let name = property.name.trim_start_matches("UR_KERNEL_INFO_").to_lowercase();
        tests.push(Test::new("kernel", format!("info_{name}"), |fixture| {
            let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
            protocol(property, |size, value, ret| {
                fixture.ur.urKernelGetInfo(kernel.raw, ur_kernel_info_t(property.value), size, value, ret)
            })
        }));
    }
    for property in KERNEL_GROUP_INFO {
        let name = property.name.trim_start_matches("UR_KERNEL_GROUP_INFO_").to_lowercase();
        tests.push(Test::new("kernel", format!("group_info_{name}"), |fixture| {
            let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
            protocol(property, |size, value, ret| {
                let name = ur_kernel_group_info_t(property.value);
                fixture.ur.urKernelGetGroupInfo(kernel.raw, fixture.device, name, size, value, ret)
            })
        }));
    }
    for property in KERNEL_SUB_GROUP_INFO {
        let name = property.name.trim_start_matches("UR_KERNEL_SUB_GROUP_INFO_").to_lowercase();
        tests.push(Test::new("kernel", format!("sub_group_info_{name}"), |fixture| {
            let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
            protocol(property, |size, value, ret| {
                let name = ur_kernel_sub_group_info_t(property.value);
                fixture.ur.urKernelGetSubGroupInfo(kernel.raw, fixture.device, name, size, value, ret)
            })
        }));
    }
    tests
}

/// The size protocol, unless the property is optional and not there.
fn protocol(
    property: &crate::generated::info::Property,
    ask: impl Fn(usize, *mut std::ffi::c_void, *mut usize) -> crate::status::Status,
) -> Done {
    let mut size = 0;
    if property.optional && ask(0, null_mut(), &mut size).code == UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION {
        return Ok(());
    }
    info::protocol(property, ask)
}

fn create_and_build(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    fixture.ur.urProgramBuild(context.raw, program.raw, null()).ok()?;
    fixture.ur.urProgramBuild(context.raw, program.raw, c"".as_ptr()).ok()
}

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

fn belongs(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    check_eq!(program.get::<ur_context_handle_t>(UR_PROGRAM_INFO_CONTEXT)?, context.raw, "context of the program");
    check_eq!(program.get::<u32>(UR_PROGRAM_INFO_NUM_DEVICES)?, 1, "number of devices of the program");
    let devices = info::list::<usize>(|size, value, ret| {
        fixture.ur.urProgramGetInfo(program.raw, UR_PROGRAM_INFO_DEVICES, size, value, ret)
    })?;
    check_eq!(devices, [fixture.device.addr()], "devices of the program");
    Ok(())
}

fn create_refused(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    drop(Program::unbuilt(fixture, &context)?);
    let (mut device, mut size, mut data) = (fixture.device, 8, [0_u8; 64]);
    let mut binary: *const u8 = data.as_mut_ptr();
    let mut raw = null_mut();
    let create = |count, device: *mut ur_device_handle_t, size: *mut usize, binary: *mut *const u8, properties, raw| {
        fixture.ur.urProgramCreateWithBinary(context.raw, count, device, size, binary, properties, raw)
    };
    create(0, &mut device, &mut size, &mut binary, null(), &mut raw).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    let counted = ur_program_properties_t { count: 1, ..Default::default() };
    create(1, &mut device, &mut size, &mut binary, &counted, &mut raw).fails(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let entry = ur_program_metadata_t::default();
    let uncounted = ur_program_properties_t { pMetadatas: &entry, ..Default::default() };
    create(1, &mut device, &mut size, &mut binary, &uncounted, &mut raw).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    let il = fixture.ur.urProgramCreateWithIL(context.raw, data.as_ptr().cast(), 0, null(), &mut raw);
    il.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    check!(raw.is_null(), "a refused creation wrote a handle");
    Ok(())
}

fn lists_kernels(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let names = info::text(|size, value, ret| {
        fixture.ur.urProgramGetInfo(program.raw, UR_PROGRAM_INFO_KERNEL_NAMES, size, value, ret)
    })?;
    let mut found: Vec<&str> = names.split(';').collect();
    found.sort_unstable();
    let mut want: Vec<&str> = ALL.iter().filter_map(|name| name.to_str().ok()).collect();
    want.sort_unstable();
    check_eq!(found, want, "names of the kernels");
    check_eq!(program.get::<usize>(UR_PROGRAM_INFO_NUM_KERNELS)?, ALL.len(), "number of kernels");
    Ok(())
}

fn build_info(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    let status = || {
        info::value::<ur_program_build_status_t>(|size, value, ret| {
            let name = UR_PROGRAM_BUILD_INFO_STATUS;
            fixture.ur.urProgramGetBuildInfo(program.raw, fixture.device, name, size, value, ret)
        })
    };
    fixture.ur.urProgramBuild(context.raw, program.raw, null()).ok()?;
    check_eq!(status()?, UR_PROGRAM_BUILD_STATUS_SUCCESS, "build status");
    let binary: ur_program_binary_type_t = info::value(|size, value, ret| {
        let name = UR_PROGRAM_BUILD_INFO_BINARY_TYPE;
        fixture.ur.urProgramGetBuildInfo(program.raw, fixture.device, name, size, value, ret)
    })?;
    check_eq!(binary, UR_PROGRAM_BINARY_TYPE_EXECUTABLE, "binary type of a built program");
    Ok(())
}

fn compile_and_link(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    fixture.ur.urProgramCompile(context.raw, program.raw, null()).ok()?;
    let mut raw = std::ptr::dangling_mut();
    fixture.ur.urProgramLink(context.raw, 0, &program.raw, null(), &mut raw).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    raw = null_mut();
    fixture.ur.urProgramLink(context.raw, 1, &program.raw, null(), &mut raw).ok()?;
    check!(!raw.is_null(), "urProgramLink gave no program");
    let linked = Program::adopt(fixture.ur, raw);
    linked.kernel(IOTA)?;
    Ok(())
}

fn function_pointer(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let mut pointer = null_mut();
    let status = fixture.ur.urProgramGetFunctionPointer(fixture.device, program.raw, IOTA.as_ptr(), &mut pointer);
    if status.code != UR_RESULT_ERROR_FUNCTION_ADDRESS_NOT_AVAILABLE && !status.is_unsupported() {
        status.ok()?;
        check!(!pointer.is_null(), "the address of a kernel is null");
    }
    Ok(())
}

fn unknown_function(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let mut pointer = null_mut();
    let name = c"no_such_kernel".as_ptr();
    let status = fixture.ur.urProgramGetFunctionPointer(fixture.device, program.raw, name, &mut pointer);
    status.fails_with(&[UR_RESULT_ERROR_INVALID_KERNEL_NAME, UR_RESULT_ERROR_UNSUPPORTED_FEATURE])
}

fn unknown_global(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let (mut size, mut pointer) = (0, null_mut());
    let name = c"no_such_variable".as_ptr();
    let find = |size, pointer| {
        fixture.ur.urProgramGetGlobalVariablePointer(fixture.device, program.raw, name, size, pointer)
    };
    fixture.require(UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT, || find(&mut size, &mut pointer))?;
    let (mut size, mut pointer) = (0, null_mut());
    find(&mut size, &mut pointer).fails_with(&[UR_RESULT_ERROR_INVALID_VALUE, UR_RESULT_ERROR_INVALID_GLOBAL_NAME])
}

fn specialization_constants(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::unbuilt(fixture, &context)?;
    let value = 7_u32;
    let constant = ur_specialization_constant_info_t { id: 12_345, size: 4, pValue: (&raw const value).cast() };
    let set = |count| fixture.ur.urProgramSetSpecializationConstants(program.raw, count, &constant);
    fixture.require(UR_DEVICE_INFO_PROGRAM_SET_SPECIALIZATION_CONSTANTS, || set(1))?;
    set(0).fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    set(1).fails(UR_RESULT_ERROR_INVALID_SPEC_ID)
}

fn metadata(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    drop(Program::unbuilt(fixture, &context)?);
    let provider = crate::kernels::provider(fixture.backend).ok_or_else(|| Stop::skipped("no test kernels"))?;
    let crate::kernels::Source::Binary { data, mut size } = provider.source();
    // A required work-group size as DPC++ writes it: the number of bits, then the numbers.
    let mut required = [64_u32, 0, 4, 1];
    let entries = [
        ur_program_metadata_t {
            pName: c"iota@reqd_work_group_size".as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY,
            size: 16,
            value: ur_program_metadata_value_t { pData: required.as_mut_ptr().cast() },
        },
        ur_program_metadata_t {
            pName: c"something else".as_ptr(),
            r#type: UR_PROGRAM_METADATA_TYPE_UINT32,
            size: 4,
            value: ur_program_metadata_value_t { data32: 1 },
        },
    ];
    let properties = ur_program_properties_t { count: 2, pMetadatas: entries.as_ptr(), ..Default::default() };
    let (mut device, mut binary, mut raw) = (fixture.device, data.cast::<u8>(), null_mut());
    let ur = fixture.ur;
    ur.urProgramCreateWithBinary(context.raw, 1, &mut device, &mut size, &mut binary, &properties, &mut raw).ok()?;
    let program = Program::adopt(ur, raw);
    ur.urProgramBuild(context.raw, program.raw, null()).ok()?;
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
        ur.urEnqueueKernelLaunchWithArgsExp(q, k, 1, null(), &global, &local, 2, args.as_ptr(), null(), 0, null(), null_mut())
    };
    launch(4).ok()?;
    launch(8).fails(UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE)?;
    queue.finish()
}

fn native_handle(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    let mut native = 0;
    let status = fixture.ur.urProgramGetNativeHandle(program.raw, &mut native);
    if status.is_unsupported() { Ok(()) } else { status.ok() }
}

fn kernel_create(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    for name in ALL {
        let kernel = program.kernel(name)?;
        let found = info::text(|size, value, ret| {
            fixture.ur.urKernelGetInfo(kernel.raw, UR_KERNEL_INFO_FUNCTION_NAME, size, value, ret)
        })?;
        check_eq!(Some(found.as_str()), name.to_str().ok(), "name of the kernel");
    }
    Ok(())
}

fn kernel_unknown_name(fixture: &Fixture) -> Done {
    let program = Program::new(fixture, &Context::new(fixture)?)?;
    for name in [c"no_such_kernel", c"", c"iot", c"iota "] {
        let mut raw = null_mut();
        fixture.ur.urKernelCreate(program.raw, name.as_ptr(), &mut raw).fails(UR_RESULT_ERROR_INVALID_KERNEL_NAME)?;
        check!(raw.is_null(), "a refused urKernelCreate wrote a handle");
    }
    Ok(())
}

fn kernel_counts_references(fixture: &Fixture) -> Done {
    let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
    let references = || kernel.get::<u32>(UR_KERNEL_INFO_REFERENCE_COUNT);
    check_eq!(references()?, 1, "references of a new kernel");
    let second = kernel.share()?;
    check_eq!(references()?, 2, "references after a retain");
    drop(second);
    check_eq!(references()?, 1, "references after a release");
    Ok(())
}

fn kernel_belongs(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let kernel = program.kernel(IOTA)?;
    check_eq!(kernel.get::<ur_context_handle_t>(UR_KERNEL_INFO_CONTEXT)?, context.raw, "context of the kernel");
    check_eq!(kernel.get::<ur_program_handle_t>(UR_KERNEL_INFO_PROGRAM)?, program.raw, "program of the kernel");
    Ok(())
}

fn kernel_outlives_its_program(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(ADD)?;
    let memory = context.usm(fixture, Kind::Device, 400)?;
    queue.fill(memory.ptr, 1_u32, 400, &[])?;
    queue.launch(&kernel, 100, &[Arg::Pointer(memory.ptr), Arg::of(&2_u32)], &[])?;
    drop(kernel);
    check!(queue.read::<u32>(memory.ptr, 100, &[])?.iter().all(|word| *word == 3), "a kernel released before it ran");
    Ok(())
}

fn exec_info(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(IOTA)?;
    let memory = context.usm(fixture, Kind::Shared, 64)?;
    let set = |name, size, value| fixture.ur.urKernelSetExecInfo(kernel.raw, name, size, null(), value);
    let yes: ur_bool_t = 1;
    set(UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS, 1, (&raw const yes).cast()).ok()?;
    set(UR_KERNEL_EXEC_INFO_USM_PTRS, 8, (&raw const memory.ptr).cast()).ok()?;
    let cache = UR_KERNEL_CACHE_CONFIG_LARGE_SLM;
    set(UR_KERNEL_EXEC_INFO_CACHE_CONFIG, 4, (&raw const cache).cast()).ok()
}

fn suggested_local_size(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let kernel = Program::new(fixture, &context)?.kernel(IOTA)?;
    let largest: usize = fixture.device_info(UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE)?;
    for global in [[1, 1, 1], [1024, 1, 1], [64, 32, 1], [7, 5, 3], [997, 1, 1]] {
        let mut local = [0; 3];
        let offset = [0; 3];
        let status = fixture.ur.urKernelGetSuggestedLocalWorkSize(
            kernel.raw, queue.raw, 3, offset.as_ptr(), global.as_ptr(), local.as_mut_ptr(),
        );
        status.ok()?;
        let divides = local.iter().zip(&global).all(|(local, global)| *local > 0 && global % local == 0);
        check!(divides, "{local:?} is suggested for {global:?}");
        check!(local.iter().product::<usize>() <= largest, "{local:?} is larger than {largest}");
    }
    Ok(())
}

fn cooperative_groups(fixture: &Fixture) -> Done {
    let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
    let local = [1, 1, 1];
    let mut count = 0;
    let ask = |dimensions, count| {
        let ur = fixture.ur;
        ur.urKernelSuggestMaxCooperativeGroupCount(kernel.raw, fixture.device, dimensions, local.as_ptr(), 0, count)
    };
    let able: ur_kernel_launch_properties_flags_t = fixture.device_info(UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES)?;
    if !able.contains(UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE) {
        let status = ask(1, &mut count);
        status.fails(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        return Err(Stop::Unsupported { what: status.to_string(), documented: true });
    }
    ask(1, &mut count).ok()?;
    check!(count > 0, "no work-group can be launched cooperatively");
    ask(0, &mut count).fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
    ask(4, &mut count).fails(UR_RESULT_ERROR_INVALID_WORK_DIMENSION)
}

fn kernel_native_handle(fixture: &Fixture) -> Done {
    let kernel = Program::new(fixture, &Context::new(fixture)?)?.kernel(IOTA)?;
    let mut native = 0;
    let status = fixture.ur.urKernelGetNativeHandle(kernel.raw, &mut native);
    if status.is_unsupported() { Ok(()) } else { status.ok() }
}
