//! Errors that the specification declares in words.
//!
//! Each test provokes some of them and names them, so that the coverage counts them.

use crate::calls::{FUNCTIONS, UNCHANGED, Valid};
use crate::fixture::Fixture;
use crate::objects::{Buffer, CommandBuffer, Context, Kind, Program, Queue, Shape, Usm, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::Status;
use crate::{check, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["declared_errors";
        usm_commands_past_the_end, usm_2d_commands_past_the_end, context_copy_past_the_end,
        recorded_commands_past_the_end,
        buffer_copy_and_fill_past_the_end, buffer_rect_past_the_end, sub_buffer_past_the_end, handle_of_another_type, invalid_binary,
        unknown_build_options, build_failure,
    ];
    for kind in [Kind::Host, Kind::Device, Kind::Shared] {
        let name = format!("{kind:?}_allocation_limits").to_lowercase();
        tests.push(Test::new("declared_errors", name, move |fixture| {
            allocation_limits(fixture, kind)
        }));
    }
    tests
}

const SIZE: usize = 4096;
/// A size past any rounding of an allocation's size.
const BEYOND: usize = 64 << 20;
const INVALID_SIZE: ur_result_t = UR_RESULT_ERROR_INVALID_SIZE;

struct Setup {
    /// An allocation of `SIZE` bytes and one of `BEYOND` bytes.
    memory: [Usm; 2],
    queue: Queue,
    /// Last, so that it outlives the queue and the memory.
    context: Context,
}

impl Setup {
    /// Stops the test unless the loader checks bounds.
    ///
    /// An adapter alone does not: it would have to look up the allocation for every command.
    fn new(fixture: &Fixture) -> Result<Self, Stop> {
        let layers = std::env::var("UR_ENABLE_LAYERS").unwrap_or_default();
        let checks = ["UR_LAYER_BOUNDS_CHECKING", "UR_LAYER_FULL_VALIDATION"];
        if !layers.split(',').any(|layer| checks.contains(&layer)) {
            return Err(Stop::skipped("needs UR_LAYER_BOUNDS_CHECKING"));
        }
        let context = Context::new(fixture)?;
        let queue = context.in_order(fixture)?;
        let memory = [
            context.usm(fixture, Kind::Device, SIZE)?,
            context.usm(fixture, Kind::Device, BEYOND)?,
        ];
        Ok(Self {
            context,
            queue,
            memory,
        })
    }

    fn small(&self) -> *mut c_void {
        self.memory[0].ptr
    }

    fn large(&self) -> *mut c_void {
        self.memory[1].ptr
    }
}

/// USM commands past the end of an allocation are refused with `INVALID_SIZE`.
fn usm_commands_past_the_end(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (ur, q) = (fixture.ur, setup.queue.raw);
    let (small, large) = (setup.small(), setup.large());
    let word = 7_u32;
    let from = (&raw const word).cast();
    let none = null_mut();
    ur.urEnqueueUSMFill(q, small, 4, from, BEYOND, 0, null(), none)
        .fails_because(INVALID_SIZE, "beyond the end")?;
    ur.urEnqueueUSMMemcpy(q, 0, small, large, BEYOND, 0, null(), none)
        .fails_because(INVALID_SIZE, "beyond the end")?;
    ur.urEnqueueUSMMemcpy(q, 0, large, small, BEYOND, 0, null(), none)
        .fails_because(INVALID_SIZE, "beyond the end")?;
    let flags = ur_usm_migration_flags_t(0);
    ur.urEnqueueUSMPrefetch(q, small, BEYOND, flags, 0, null(), none)
        .fails_because(INVALID_SIZE, "beyond the end")?;
    ur.urEnqueueUSMAdvise(q, small, BEYOND, UR_USM_ADVICE_FLAG_DEFAULT, none)
        .fails_because(INVALID_SIZE, "beyond the end")
}

/// 2D USM commands past the end of an allocation are refused, or are unsupported.
fn usm_2d_commands_past_the_end(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (ur, q) = (fixture.ur, setup.queue.raw);
    let (small, large) = (setup.small(), setup.large());
    let (pitch, width, rows) = (SIZE, 64, BEYOND / SIZE);
    let byte = 7_u8;
    let from = (&raw const byte).cast();
    let none = null_mut();
    let fill = ur.urEnqueueUSMFill2D(q, small, pitch, 1, from, width, rows, 0, null(), none);
    if !fill.is_unsupported() {
        fill.fails_because(INVALID_SIZE, "beyond the end")?;
    }
    let copy = |dst, src| {
        ur.urEnqueueUSMMemcpy2D(q, 0, dst, pitch, src, pitch, width, rows, 0, null(), none)
    };
    let out_of = copy(large, small);
    if out_of.is_unsupported() {
        return fill.ok();
    }
    out_of.fails_because(INVALID_SIZE, "from `pSrc`")?;
    copy(small, large).fails_because(INVALID_SIZE, "from `pDst`")
}

/// `urUSMContextMemcpyExp` past the end of an allocation is refused.
fn context_copy_past_the_end(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (ur, context) = (fixture.ur, setup.context.raw);
    let copy = |dst, src| ur.urUSMContextMemcpyExp(context, dst, src, BEYOND);
    fixture.require(UR_DEVICE_INFO_USM_CONTEXT_MEMCPY_SUPPORT_EXP, || {
        copy(setup.small(), setup.large())
    })?;
    copy(setup.small(), setup.large()).fails_because(INVALID_SIZE, "beyond the end")?;
    copy(setup.large(), setup.small()).fails_because(INVALID_SIZE, "beyond the end")
}

/// A command buffer refuses USM commands past the end of an allocation.
fn recorded_commands_past_the_end(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let buffer = CommandBuffer::new(fixture, &setup.context, Shape::default())?;
    let (ur, b) = (fixture.ur, buffer.raw);
    let (small, large) = (setup.small(), setup.large());
    let word = 7_u32;
    let from = (&raw const word).cast();
    let (points, events, point): (*const u32, *const ur_event_handle_t, *mut u32) =
        (null(), null(), null_mut());
    let (event, command) = (null_mut(), null_mut());
    for (to, from) in [(small, large), (large, small)] {
        ur.urCommandBufferAppendUSMMemcpyExp(
            b, to, from, BEYOND, 0, points, 0, events, point, event, command,
        )
        .fails_because(INVALID_SIZE, "exceeds the allocation")?;
    }
    ur.urCommandBufferAppendUSMFillExp(
        b, small, from, 4, BEYOND, 0, points, 0, events, point, event, command,
    )
    .fails_because(INVALID_SIZE, "exceeds the allocation")?;
    let flags = ur_usm_migration_flags_t(0);
    ur.urCommandBufferAppendUSMPrefetchExp(
        b, small, BEYOND, flags, 0, points, 0, events, point, event, command,
    )
    .fails_because(INVALID_SIZE, "exceeds the allocation")?;
    let advice = UR_USM_ADVICE_FLAG_DEFAULT;
    ur.urCommandBufferAppendUSMAdviseExp(
        b, small, BEYOND, advice, 0, points, 0, events, point, event, command,
    )
    .fails_because(INVALID_SIZE, "exceeds the allocation")
}

struct Buffers {
    queue: Queue,
    small: Buffer,
    large: Buffer,
}

fn buffers(fixture: &Fixture) -> Result<Buffers, Stop> {
    let context = Context::new(fixture)?;
    Ok(Buffers {
        queue: context.in_order(fixture)?,
        small: context.buffer(SIZE)?,
        large: context.buffer(4 * SIZE)?,
    })
}

/// A copy or fill past the end of a buffer is refused with `INVALID_SIZE`.
fn buffer_copy_and_fill_past_the_end(fixture: &Fixture) -> Done {
    let Buffers {
        queue,
        small,
        large,
    } = buffers(fixture)?;
    let (ur, q, none) = (fixture.ur, queue.raw, null_mut());
    let copy = |from: &Buffer, to: &Buffer| {
        ur.urEnqueueMemBufferCopy(q, from.raw, to.raw, 0, 0, SIZE + 1, 0, null(), none)
    };
    copy(&small, &large).fails_because(INVALID_SIZE, "`srcOffset + size`")?;
    copy(&large, &small).fails_because(INVALID_SIZE, "`dstOffset + size`")?;
    let word = 7_u32;
    let from = (&raw const word).cast();
    ur.urEnqueueMemBufferFill(q, small.raw, from, 4, 4, SIZE, 0, null(), none)
        .fails_because(INVALID_SIZE, "`offset + size`")
}

/// A rectangle whose last row is past the end of a buffer is refused.
fn buffer_rect_past_the_end(fixture: &Fixture) -> Done {
    let Buffers {
        queue,
        small,
        large,
    } = buffers(fixture)?;
    let (ur, q, none) = (fixture.ur, queue.raw, null_mut());
    // Two rows, of which the small buffer holds one.
    let region = ur_rect_region_t {
        width: 8,
        height: 2,
        depth: 1,
    };
    let (zero, pitch) = (ur_rect_offset_t::default(), SIZE);
    let mut host = vec![0_u8; 4 * SIZE];
    let h = host.as_mut_ptr().cast::<c_void>();
    let small_box = "goes beyond the end";
    ur.urEnqueueMemBufferReadRect(
        q,
        small.raw,
        1,
        zero,
        zero,
        region,
        pitch,
        0,
        pitch,
        0,
        h,
        0,
        null(),
        none,
    )
    .fails_because(INVALID_SIZE, small_box)?;
    ur.urEnqueueMemBufferWriteRect(
        q,
        small.raw,
        1,
        zero,
        zero,
        region,
        pitch,
        0,
        pitch,
        0,
        h,
        0,
        null(),
        none,
    )
    .fails_because(INVALID_SIZE, small_box)?;
    let copy = |from: &Buffer, to: &Buffer| {
        ur.urEnqueueMemBufferCopyRect(
            q,
            from.raw,
            to.raw,
            zero,
            zero,
            region,
            pitch,
            0,
            pitch,
            0,
            0,
            null(),
            none,
        )
    };
    copy(&small, &large).fails_because(INVALID_SIZE, "`srcOrigin`")?;
    copy(&large, &small).fails_because(INVALID_SIZE, "`dstOrigin`")
}

/// A sub-buffer past the end of its buffer is refused.
fn sub_buffer_past_the_end(fixture: &Fixture) -> Done {
    let Buffers { small, .. } = buffers(fixture)?;
    let region = ur_buffer_region_t {
        size: SIZE + 1,
        ..Default::default()
    };
    let mut part = null_mut();
    let (flags, ty) = (UR_MEM_FLAG_READ_WRITE, UR_BUFFER_CREATE_TYPE_REGION);
    let status = fixture
        .ur
        .urMemBufferPartition(small.raw, flags, ty, &region, &mut part);
    status.fails_because(UR_RESULT_ERROR_INVALID_BUFFER_SIZE, "beyond the end")
}

/// An allocation of more than the largest size or with too large an alignment is refused.
fn allocation_limits(fixture: &Fixture, kind: Kind) -> Done {
    let context = Context::new(fixture)?;
    let max: u64 = fixture.device_info(UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE)?;
    let allocate = |desc, size, ptr: &mut *mut c_void| {
        kind.allocate(&context, fixture.device, desc, null_mut(), size, ptr)
    };
    let mut ptr = null_mut();
    let size = usize::try_from(max).unwrap_or(usize::MAX).saturating_add(1);
    let too_large = allocate(null(), size, &mut ptr);
    refused_or_exhausted(
        too_large,
        UR_RESULT_ERROR_INVALID_USM_SIZE,
        "UR_DEVICE_INFO_MAX_MEM_ALLOC_SIZE",
    )?;
    let desc = ur_usm_desc_t {
        align: 1 << 31,
        ..Default::default()
    };
    let too_aligned = allocate(&desc, 64, &mut ptr);
    if too_aligned.is_ok() {
        // The device supports any alignment.
        return fixture.ur.urUSMFree(context.raw, ptr).ok();
    }
    refused_or_exhausted(too_aligned, UR_RESULT_ERROR_INVALID_VALUE, "align")
}

/// Checks for the declared error, or for one that reports a lack of memory.
fn refused_or_exhausted(status: Status, code: ur_result_t, words: &str) -> Done {
    if status.code == code {
        return status.fails_because(code, words);
    }
    status.fails_with(&[
        code,
        UR_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
        UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        UR_RESULT_ERROR_OUT_OF_RESOURCES,
    ])
}

/// A function that takes a program refuses a handle of another type.
fn handle_of_another_type(fixture: &Fixture) -> Done {
    let functions = [
        "urProgramBuild",
        "urProgramCompile",
        "urProgramLink",
        "urProgramBuildExp",
        "urProgramCompileExp",
        "urProgramLinkExp",
        "urProgramDynamicLinkExp",
    ];
    let context = Context::new(fixture)?;
    let mut scratch = vec![0_u64; 8192];
    let valid = Valid {
        context: context.raw,
        device: fixture.device,
        program: context.raw.cast(),
        ..Valid::new(scratch.as_mut_ptr().cast())
    };
    for function in FUNCTIONS {
        if functions.contains(&function.name) {
            let status = function.call(fixture.ur, &valid, UNCHANGED);
            if !status.is_unsupported() {
                status.fails_because(UR_RESULT_ERROR_INVALID_PROGRAM, "a valid program")?;
            }
        }
    }
    Ok(())
}

/// A binary of nothing but an ELF header is refused at creation or at the build.
fn invalid_binary(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    // Only the first bytes are those of an ELF file.
    let mut data = [0_u8; 256];
    data[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let (mut device, mut size) = (fixture.device, data.len());
    let mut binary = data.as_ptr();
    let mut program = null_mut();
    let status = fixture.ur.urProgramCreateWithBinary(
        context.raw,
        1,
        &mut device,
        &mut size,
        &mut binary,
        null(),
        &mut program,
    );
    if status.is_ok() {
        // Some adapters check the binary at the build.
        let built = fixture.ur.urProgramBuild(context.raw, program, null());
        fixture.ur.urProgramRelease(program).ok()?;
        return built.refused();
    }
    status.fails_with(&[
        UR_RESULT_ERROR_INVALID_NATIVE_BINARY,
        UR_RESULT_ERROR_INVALID_BINARY,
    ])
}

/// A program that does not compile fails its build, reports the status and gives a log.
fn build_failure(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let ur = fixture.ur;
    let (devices, options) = ([fixture.device], null());
    let devices = devices.as_ptr().cast_mut();
    let flags = ur_exp_program_flags_t(0);
    let failure = UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE;
    let built = Program::broken(fixture, &context)?;
    ur.urProgramBuild(context.raw, built.raw, options)
        .fails_because(failure, "failed to build")?;
    let status: ur_program_build_status_t = info::value(|size, value, ret| {
        let (device, name) = (fixture.device, UR_PROGRAM_BUILD_INFO_STATUS);
        ur.urProgramGetBuildInfo(built.raw, device, name, size, value, ret)
    })?;
    check_eq!(
        status,
        UR_PROGRAM_BUILD_STATUS_ERROR,
        "status of a broken program"
    );
    let log = info::text(|size, value, ret| {
        let (device, name) = (fixture.device, UR_PROGRAM_BUILD_INFO_LOG);
        ur.urProgramGetBuildInfo(built.raw, device, name, size, value, ret)
    })?;
    check!(
        !log.is_empty(),
        "the build log of a broken program is empty"
    );
    let compiled = Program::broken(fixture, &context)?;
    let compile = ur.urProgramCompile(context.raw, compiled.raw, options);
    if !compile.is_unsupported() {
        compile.fails_because(failure, "failed to compile")?;
    }
    let built = Program::broken(fixture, &context)?;
    let build = ur.urProgramBuildExp(built.raw, 1, devices, flags, options);
    if !build.is_unsupported() {
        build.fails_because(failure, "failed to build")?;
    }
    let compiled = Program::broken(fixture, &context)?;
    let compile = ur.urProgramCompileExp(compiled.raw, 1, devices, flags, options);
    if !compile.is_unsupported() {
        compile.fails_because(failure, "failed to compile")?;
    }
    Ok(())
}

/// Unknown build options are ignored or fail with a declared error.
fn unknown_build_options(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    if !fixture.supports(UR_DEVICE_INFO_COMPILER_AVAILABLE)? {
        return Err(Stop::skipped("the device has no compiler"));
    }
    let program = Program::unbuilt(fixture, &context)?;
    let options = c"-no-such-option=at-all".as_ptr();
    let build = fixture.ur.urProgramBuild(context.raw, program.raw, options);
    let allowed = [
        UR_RESULT_SUCCESS,
        UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE,
        UR_RESULT_ERROR_INVALID_VALUE,
    ];
    if !allowed.contains(&build.code) {
        return build.fails_with(&allowed);
    }
    let program = Program::unbuilt(fixture, &context)?;
    let compile = fixture
        .ur
        .urProgramCompile(context.raw, program.raw, options);
    if !allowed.contains(&compile.code) {
        return compile.fails_with(&allowed);
    }
    Ok(())
}
