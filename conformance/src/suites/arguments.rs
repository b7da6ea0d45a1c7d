//! Wrong arguments of every function.
//!
//! Each call of the generated table is wrong in one way. It must be refused with the code of the
//! specification. There is one test for each function, named after it.

use super::bindless::export;
use crate::calls::{Case, FUNCTIONS, Function, Kind, Valid};
use crate::fixture::Fixture;
use crate::kernels::{self, IOTA};
use crate::objects::{
    Arg, Buffer, CommandBuffer, Context, Event, Executable, Graph, Kernel, Pool, Program, Queue,
    Shape, With, captures,
};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::provoked;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let wrong = FUNCTIONS
        .iter()
        .filter(|function| !function.cases.is_empty());
    let test = |function: &'static Function| {
        Test::new("arguments", function.name, move |fixture| {
            check_function(fixture, function)
        })
    };
    wrong.map(test).collect()
}

/// Each wrong call of a function is refused with a code that the specification declares for it.
fn check_function(fixture: &Fixture, function: &'static Function) -> Done {
    let cases = function.cases.iter();
    let needs: Vec<Kind> = cases
        .flat_map(|case| function.needs(case.changes))
        .collect();
    let objects = Objects::new(fixture, &needs)?;
    let mut scratch = vec![0_u64; 8192];
    let valid = objects.valid(fixture, scratch.as_mut_ptr().cast());
    let cases = function.cases.iter();
    let possible: Vec<&Case> = cases
        .filter(|case| valid.has_all(&function.needs(case.changes)))
        .collect();
    if possible.is_empty() {
        return Err(Stop::skipped("no valid handle for the other arguments"));
    }
    let mut wrong = Vec::new();
    let mut unsupported = 0;
    for case in &possible {
        let status = function.call(fixture.ur, &valid, case.changes);
        if case.codes.contains(&status.code) {
            provoked(function.name, case.what);
        } else {
            unsupported += usize::from(status.is_unsupported());
            wrong.push(format!(
                "{}: {:?} instead of {:?}",
                case.what, status.code, case.codes
            ));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false if unsupported == possible.len() => Err(Stop::Unsupported {
            what: format!(
                "{} is refused before its arguments are looked at",
                function.name
            ),
            documented: false,
        }),
        false => Err(Stop::failed(wrong.join("; "))),
    }
}

/// One object of each kind that the device offers.
pub(super) struct Objects {
    config: ur_loader_config_handle_t,
    event: Event,
    queue: Queue,
    buffer: Buffer,
    pool: Option<Pool>,
    kernel: Option<Kernel>,
    program: Option<Program>,
    physical: ur_physical_mem_handle_t,
    sampler: ur_sampler_handle_t,
    command_buffer: Option<CommandBuffer>,
    command: ur_exp_command_buffer_command_handle_t,
    executable: Option<Executable>,
    /// The graph that `executable` was made from. It must outlive the executable.
    _captured: Option<Graph>,
    /// An empty graph, for captures.
    graph: Option<Graph>,
    external_mem: ur_exp_external_mem_handle_t,
    external_semaphore: ur_exp_external_semaphore_handle_t,
    device: ur_device_handle_t,
    pub(super) context: Context,
}

impl Objects {
    /// Makes the objects, and a program and a kernel only if `needs` lists them: they take a compiler.
    pub(super) fn new(fixture: &Fixture, needs: &[Kind]) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let queue = context.in_order(fixture)?;
        let event = queue.marker(&[])?;
        event.wait()?;
        let buffer = context.buffer(4096)?;
        let pool = Pool::new(fixture, &context).ok();
        let compile = [Kind::Program, Kind::Kernel, Kind::CommandBufferCommand]
            .iter()
            .any(|kind| needs.contains(kind));
        let program = match kernels::provider(fixture.backend).filter(|_| compile) {
            Some(_) => Some(Program::new(fixture, &context)?),
            None => None,
        };
        let kernel = program
            .as_ref()
            .map(|program| program.kernel(IOTA))
            .transpose()?;
        let (mut physical, mut sampler, mut config) = (null_mut(), null_mut(), null_mut());
        // An object that the device does not offer stays null.
        let _ = fixture.ur.urPhysicalMemCreate(
            context.raw,
            fixture.device,
            2 << 20,
            null(),
            &mut physical,
        );
        let _ =
            fixture
                .ur
                .urSamplerCreate(context.raw, &ur_sampler_desc_t::default(), &mut sampler);
        let _ = fixture.ur.urLoaderConfigCreate(&mut config);
        let (command_buffer, command) = recorded(fixture, &context, kernel.as_ref())?;
        let graph = Graph::new(fixture, &context).ok();
        let captured = graph.as_ref().and_then(|_| {
            let record = || queue.marker(&[]).map(drop);
            Graph::capture(&queue, record).ok()
        });
        let executable = captured.as_ref().and_then(|graph| graph.instantiate().ok());
        let (external_mem, external_semaphore) = external(fixture, &context)?;
        Ok(Self {
            config,
            event,
            queue,
            buffer,
            pool,
            kernel,
            program,
            physical,
            sampler,
            command_buffer,
            command,
            executable,
            _captured: captured,
            graph,
            external_mem,
            external_semaphore,
            device: fixture.device,
            context,
        })
    }

    /// Waits until no enqueued command can access a test's memory, and ends a capture that a call began.
    pub(super) fn settle(&self) -> Done {
        if self.graph.is_some() && captures(&self.queue)? {
            let ended = Graph::end(&self.queue)?;
            if self
                .graph
                .as_ref()
                .is_some_and(|graph| graph.raw == ended.raw)
            {
                // This set owns the graph already.
                std::mem::forget(ended);
            }
        }
        self.queue.finish()
    }

    pub(super) fn valid(&self, fixture: &Fixture, scratch: *mut std::ffi::c_void) -> Valid {
        Valid {
            loader_config: self.config,
            adapter: fixture.adapter,
            platform: fixture.platform,
            device: fixture.device,
            context: self.context.raw,
            queue: self.queue.raw,
            event: self.event.raw,
            mem: self.buffer.raw,
            usm_pool: self.pool.as_ref().map_or(null_mut(), |pool| pool.raw),
            program: self
                .program
                .as_ref()
                .map_or(null_mut(), |program| program.raw),
            kernel: self.kernel.as_ref().map_or(null_mut(), |kernel| kernel.raw),
            physical_mem: self.physical,
            sampler: self.sampler,
            command_buffer: self
                .command_buffer
                .as_ref()
                .map_or(null_mut(), |buffer| buffer.raw),
            command_buffer_command: self.command,
            graph: self.graph.as_ref().map_or(null_mut(), |graph| graph.raw),
            executable_graph: self
                .executable
                .as_ref()
                .map_or(null_mut(), |graph| graph.raw),
            external_mem: self.external_mem,
            external_semaphore: self.external_semaphore,
            ..Valid::new(scratch)
        }
    }
}

/// An open command buffer with a launch that has a handle. It is never submitted.
fn recorded(
    fixture: &Fixture,
    context: &Context,
    kernel: Option<&Kernel>,
) -> Result<
    (
        Option<CommandBuffer>,
        ur_exp_command_buffer_command_handle_t,
    ),
    Stop,
> {
    let shape = Shape {
        updatable: true,
        ..Shape::default()
    };
    let Ok(buffer) = CommandBuffer::new(fixture, context, shape) else {
        return Ok((None, null_mut()));
    };
    let args = [Arg::Pointer(null()), Arg::of(&0_u32)];
    let launch = |kernel| buffer.launch(kernel, 1, &args, With::handle()).ok();
    let command = kernel.and_then(launch).map(|made| made.command);
    Ok((Some(buffer), command.unwrap_or(null_mut())))
}

/// Imported memory and an imported semaphore.
///
/// The memory is the device's own, if it exports any. For the rest there is no file descriptor to import, so that only a
/// device that accepts any descriptor gives a handle.
fn external(
    fixture: &Fixture,
    context: &Context,
) -> Result<
    (
        ur_exp_external_mem_handle_t,
        ur_exp_external_semaphore_handle_t,
    ),
    Stop,
> {
    let (ur, device) = (fixture.ur, fixture.device);
    let (mut memory, mut semaphore) = (null_mut(), null_mut());
    if fixture.supports(UR_DEVICE_INFO_EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP)? {
        let (ty, mut desc) = (
            UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD,
            ur_exp_external_mem_desc_t::default(),
        );
        let exported = export(fixture, context, 4096).ok().flatten();
        let file = exported.as_ref().and_then(|own| own.file.try_clone().ok());
        let mut chained = ur_exp_file_descriptor_t {
            fd: file.as_ref().map_or(-1, |file| file.as_raw_fd()),
            ..Default::default()
        };
        if file.is_some() {
            desc.pNext = (&raw mut chained).cast();
        }
        let status = ur.urBindlessImagesImportExternalMemoryExp(
            context.raw,
            device,
            4096,
            ty,
            &mut desc,
            &mut memory,
        );
        if status.is_ok() {
            // The driver took it over.
            let _ = file.map(OwnedFd::into_raw_fd);
        }
    }
    if fixture.supports(UR_DEVICE_INFO_EXTERNAL_SEMAPHORE_IMPORT_SUPPORT_EXP)? {
        let (ty, mut desc) = (
            UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD,
            ur_exp_external_semaphore_desc_t::default(),
        );
        let _ = ur.urBindlessImagesImportExternalSemaphoreExp(
            context.raw,
            device,
            ty,
            &mut desc,
            &mut semaphore,
        );
    }
    Ok((memory, semaphore))
}

impl Drop for Objects {
    fn drop(&mut self) {
        let (ur, context, device) = (self.context.ur, self.context.raw, self.device);
        if !self.external_mem.is_null() {
            let _ = ur.urBindlessImagesReleaseExternalMemoryExp(context, device, self.external_mem);
        }
        if !self.external_semaphore.is_null() {
            let semaphore = self.external_semaphore;
            let _ = ur.urBindlessImagesReleaseExternalSemaphoreExp(context, device, semaphore);
        }
        if !self.physical.is_null() {
            let _ = self.context.ur.urPhysicalMemRelease(self.physical);
        }
        if !self.sampler.is_null() {
            let _ = self.context.ur.urSamplerRelease(self.sampler);
        }
        if !self.config.is_null() {
            let _ = self.context.ur.urLoaderConfigRelease(self.config);
        }
    }
}
