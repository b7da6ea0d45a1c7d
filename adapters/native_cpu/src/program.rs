//! Programs: loaded code for one or several devices. Nothing is compiled, so that a build succeeds at
//! once. A linked program has the code of all its inputs.

mod elf;
mod image;
mod memory;
mod metadata;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{Build, ProgramPart, program_info};
use ur::hal::{self, ProgramBuildInfo, ProgramInfo};
use ur::object::{Body, Error, Handles, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;
use ur::sync::{Mutex, MutexGuard};

pub use elf::exports;
pub use image::Image;
pub use metadata::Metadata;

use crate::Cpu;
use crate::device::Device;
use crate::exec::Function;
use crate::kernel::Kernel;

pub struct Program {
    context: Arc<Object<Context<Cpu>>>,
    parts: Vec<Part>,
    metadata: Metadata,
}

/// A kernel's function, and the image that holds it.
pub struct Code {
    pub function: Function,
    pub image: Arc<Image>,
}

/// The code of a program for one device.
struct Part {
    device: Arc<Object<Device>>,
    images: Vec<Arc<Image>>,
    build: Mutex<Build>,
}

impl Part {
    fn new(device: &Object<Device>, images: Vec<Arc<Image>>) -> Self {
        Self {
            device: device.arc(),
            images,
            // Machine code only needs to be loaded.
            build: Mutex::new(Build::none(UR_PROGRAM_BINARY_TYPE_EXECUTABLE)),
        }
    }

    fn build(&self) -> MutexGuard<'_, Build> {
        self.build.lock()
    }
}

impl ProgramPart<Cpu> for Part {
    fn device(&self) -> &Object<Device> {
        &self.device
    }

    /// Empty for a part that was linked of several shared objects.
    fn binary(&self) -> Result<Cow<'_, [u8]>> {
        Ok(match self.images.as_slice() {
            [one] => one.binary().into(),
            several if several.iter().all(|image| image.is_table()) => {
                let end = 2 * size_of::<usize>();
                let mut all = Vec::new();
                for table in several {
                    all.truncate(all.len().saturating_sub(end));
                    all.extend(table.binary());
                }
                all.into()
            }
            _ => Cow::default(),
        })
    }
}

impl Body for Program {
    const KIND: Kind = Kind::Program;
}

impl Program {
    /// `urProgramCreateWithBinary`.
    pub fn from_binaries(
        context: &Object<Context<Cpu>>,
        devices: Handles<'_, Device>,
        lengths: &[usize],
        binaries: &[*const u8],
        properties: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        // SAFETY: `urProgramCreateWithBinary` requires valid metadata entries.
        let metadata = unsafe { Metadata::read(properties) }?;
        let mut loaded: Vec<(*const u8, usize, Arc<Image>)> = Vec::new();
        let mut parts = Vec::new();
        for (device, (&bytes, &binary)) in devices.iter().zip(lengths.iter().zip(binaries)) {
            context.check_device(device)?;
            let same = loaded.iter().find(|one| (one.0, one.1) == (binary, bytes));
            let image = match same {
                Some((_, _, image)) => Arc::clone(image),
                // SAFETY: `urProgramCreateWithBinary` requires a binary of this length for the backend.
                None => Arc::new(unsafe { Image::load(binary, bytes) }?),
            };
            loaded.push((binary, bytes, Arc::clone(&image)));
            parts.push(Part::new(device, vec![image]));
        }
        Ok(hal::new::<Cpu, _>(Self {
            context: context.arc(),
            parts,
            metadata,
        }))
    }

    /// `urProgramCreateWithIL`
    pub fn from_il(
        _: &Object<Context<Cpu>>,
        _: &[u8],
        _: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        Err(Error::new(UR_RESULT_ERROR_COMPILER_NOT_AVAILABLE))
    }

    /// `urProgramDynamicLinkExp`. Checks the programs only: the system's linker resolves symbols when it loads a shared
    /// object.
    pub fn link_dynamically(
        context: &Object<Context<Cpu>>,
        programs: Handles<'_, Program>,
    ) -> Result<()> {
        programs
            .iter()
            .try_for_each(|program| program.check_context(context))
    }

    /// A program with the code of all given programs.
    pub fn link(
        context: &Object<Context<Cpu>>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Self>>> {
        let mut metadata = Metadata::default();
        for program in programs.iter() {
            program.check_context(context)?;
            metadata.join(&program.metadata);
        }
        let mut parts = Vec::new();
        for device in devices.iter() {
            context.check_device(device)?;
            let images = programs.iter().filter_map(|program| program.part(device));
            let images = images
                .flat_map(|part| part.images.iter().cloned())
                .collect();
            parts.push(Part::new(device, images));
        }
        let linked = hal::new::<Cpu, _>(Self {
            context: context.arc(),
            parts,
            metadata,
        });
        linked.record_build(|_| true, UR_PROGRAM_BINARY_TYPE_EXECUTABLE, options);
        Ok(linked)
    }

    /// For all devices of the context.
    pub fn build_all(
        &self,
        context: &Object<Context<Cpu>>,
        binary: ur_program_binary_type_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        self.build(context, context.each_device(), binary, options)
    }

    fn build<'a>(
        &self,
        context: &Object<Context<Cpu>>,
        devices: impl Iterator<Item = &'a Object<Device>> + Clone,
        result: ur_program_binary_type_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        self.check_context(context)?;
        for device in devices.clone() {
            context.check_device(device)?;
        }
        let chosen = |own: &Object<Device>| devices.clone().any(|device| related(own, device));
        self.record_build(chosen, result, options);
        Ok(())
    }

    pub fn check_context(&self, context: &Object<Context<Cpu>>) -> Result<()> {
        ensure(
            std::ptr::eq(&*self.context, context),
            UR_RESULT_ERROR_INVALID_PROGRAM,
        )
    }

    fn record_build(
        &self,
        chosen: impl Fn(&Object<Device>) -> bool,
        binary: ur_program_binary_type_t,
        options: Option<&CStr>,
    ) {
        let build = Build {
            status: UR_PROGRAM_BUILD_STATUS_SUCCESS,
            options: options.unwrap_or_default().into(),
            ..Build::none(binary)
        };
        for part in self.parts.iter().filter(|part| chosen(&part.device)) {
            *part.build() = build.clone();
        }
    }

    pub fn context(&self) -> &Arc<Object<Context<Cpu>>> {
        &self.context
    }

    /// The part for a device: its own, that of a related device, or any. Any part's code runs on every
    /// device, since all are of one machine.
    fn part(&self, device: &Object<Device>) -> Option<&Part> {
        let own = self
            .parts
            .iter()
            .find(|part| std::ptr::eq(&*part.device, device));
        let near = || self.parts.iter().find(|part| related(&part.device, device));
        own.or_else(near).or(self.parts.first())
    }

    pub fn function(&self, device: &Object<Device>, name: &CStr) -> Result<Code> {
        let images = self.part(device).into_iter().flat_map(|part| &part.images);
        let mut found = images.filter_map(|image| {
            Some(Code {
                function: image.function(name)?,
                image: Arc::clone(image),
            })
        });
        found
            .next()
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL_NAME))
    }

    /// Address and size in bytes of a global variable, by its name or by SYCL's id.
    pub fn global(&self, device: &Object<Device>, name: &CStr) -> Result<(usize, usize)> {
        let name = self.metadata.global(name).unwrap_or(name);
        let mut images = self.part(device).into_iter().flat_map(|part| &part.images);
        let found = images.find_map(|image| image.global(name));
        found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
    }

    /// The names of all devices' kernels, each once.
    fn kernel_names(&self) -> Vec<String> {
        let mut names: Vec<&CStr> = Vec::new();
        for image in self.parts.iter().flat_map(|part| &part.images) {
            names.extend(image.kernel_names());
        }
        names.sort_unstable();
        names.dedup();
        let text = |name: &CStr| name.to_string_lossy().into_owned();
        names.into_iter().map(text).collect()
    }
}

fn related(one: &Object<Device>, other: &Object<Device>) -> bool {
    Device::is_part_of(one, other) || Device::is_part_of(other, one)
}

impl hal::Program<Cpu> for Program {
    fn get_info(this: &Object<Self>, what: ProgramInfo, out: InfoOut<'_>) -> Result<()> {
        let names = || Ok(this.kernel_names());
        program_info::<Cpu>(this, &this.context, &this.parts, names, what, out)
    }

    fn get_build_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: ProgramBuildInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        this.context.check_device(device)?;
        let part = this
            .part(device)
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))?;
        let build = part.build().clone();
        build.get_info(what, out)
    }

    fn kernel_create(this: &Object<Self>, name: &CStr) -> Result<Arc<Object<Kernel>>> {
        let codes: Vec<_> = this
            .parts
            .iter()
            .filter_map(|part| {
                Some((
                    Arc::clone(&part.device),
                    this.function(&part.device, name).ok()?,
                ))
            })
            .collect();
        ensure(!codes.is_empty(), UR_RESULT_ERROR_INVALID_KERNEL_NAME)?;
        Kernel::new(this, name, codes, &this.metadata)
    }

    fn build_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        this.build(
            &this.context,
            each(devices),
            UR_PROGRAM_BINARY_TYPE_EXECUTABLE,
            options,
        )
    }

    fn compile_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        this.build(
            &this.context,
            each(devices),
            UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
            options,
        )
    }
}

fn each<'a>(devices: Handles<'a, Device>) -> impl Iterator<Item = &'a Object<Device>> + Clone {
    let all: Vec<_> = devices.iter().collect();
    all.into_iter()
}
