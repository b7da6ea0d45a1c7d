//! What programs with a native module for each device have in common: their parts, and how builds ended.
//!
//! Uses `context`, and the answers of `hal`. Must never know a code's format or how it becomes a module.

use crate::abi::*;
use crate::hal::answers::{Build, ProgramPart};
use crate::hal::{Backend, ProgramBuildInfo, checks};
use crate::object::{Error, Handles, InfoOut, Object, Result, ensure};
use crate::stream::{Context, Driver};
use std::ffi::CStr;
use std::ops::Deref;
use std::sync::Arc;

/// The last build for a device, and the module that it made.
pub struct Built<M> {
    pub build: Build,
    module: Option<Arc<M>>,
}

impl<M> Built<M> {
    /// Before the first build.
    pub fn none() -> Self {
        Self {
            build: Build::none(UR_PROGRAM_BINARY_TYPE_NONE),
            module: None,
        }
    }

    /// With a module that the user's own code has made.
    pub fn adopted(module: Arc<M>) -> Self {
        Self {
            build: Build {
                status: UR_PROGRAM_BUILD_STATUS_SUCCESS,
                ..Build::none(UR_PROGRAM_BINARY_TYPE_EXECUTABLE)
            },
            module: Some(module),
        }
    }

    /// Records how a build ended that makes a binary of this type, and returns its failure. `made` has no module if a
    /// later link makes it.
    pub fn end(
        &mut self,
        made: Result<Option<Arc<M>>>,
        binary: ur_program_binary_type_t,
        options: &CStr,
        log: Result<String>,
    ) -> Result<()> {
        let (status, binary) = match made {
            Ok(_) => (UR_PROGRAM_BUILD_STATUS_SUCCESS, binary),
            Err(_) => (UR_PROGRAM_BUILD_STATUS_ERROR, UR_PROGRAM_BINARY_TYPE_NONE),
        };
        self.build = Build {
            status,
            binary,
            options: options.into(),
            log,
        };
        self.module = None;
        self.module = made?;
        Ok(())
    }

    pub fn module(&self) -> Result<Arc<M>> {
        let none = Error::new(UR_RESULT_ERROR_INVALID_PROGRAM_EXECUTABLE);
        self.module.clone().ok_or(none)
    }
}

/// The code of a program for one device, with its last build.
pub trait Part<D: Driver>: ProgramPart<D> {
    type Module;

    /// Calls `read` with the last build.
    fn built<R>(&self, read: impl FnOnce(&Built<Self::Module>) -> R) -> R;

    fn module(&self) -> Result<Arc<Self::Module>> {
        self.built(Built::module)
    }
}

/// A kernel's code on each device that has it.
pub type Codes<D, C> = Vec<(Arc<Object<<D as Backend>::Device>>, Arc<C>)>;

/// The parts of a program, at most one for a device.
pub struct Parts<D: Driver, P> {
    context: Arc<Object<Context<D>>>,
    all: Vec<P>,
}

impl<D: Driver, P> Deref for Parts<D, P> {
    type Target = [P];

    fn deref(&self) -> &[P] {
        &self.all
    }
}

impl<D: Driver, P: Part<D>> Parts<D, P> {
    pub fn new(context: &Object<Context<D>>, all: Vec<P>) -> Self {
        let context = context.arc();
        Self { context, all }
    }

    /// The parts of `urProgramCreateWithBinary`: `make` makes one of each device's code.
    pub fn of_binaries(
        context: &Object<Context<D>>,
        devices: Handles<'_, D::Device>,
        lengths: &[usize],
        binaries: &[*const u8],
        make: impl Fn(&Object<D::Device>, &[u8]) -> P,
    ) -> Result<Self> {
        let mut all = Vec::new();
        for (device, (&bytes, &binary)) in devices.iter().zip(lengths.iter().zip(binaries)) {
            context.check_device(device)?;
            ensure(bytes > 0, UR_RESULT_ERROR_INVALID_SIZE)?;
            // SAFETY: `urProgramCreateWithBinary` requires binaries of these lengths.
            let code = unsafe { checks::slice(binary, bytes) }?;
            all.push(make(device, code));
        }
        Ok(Self::new(context, all))
    }

    /// The parts of a linked program: `make` returns none for a device that no input has code for.
    pub fn linked<'a>(
        context: &Object<Context<D>>,
        devices: impl Iterator<Item = &'a Object<D::Device>>,
        make: impl Fn(&Object<D::Device>) -> Result<Option<P>>,
    ) -> Result<Self> {
        let mut all = Vec::new();
        for device in devices {
            context.check_device(device)?;
            all.extend(make(device)?);
        }
        ensure(!all.is_empty(), UR_RESULT_ERROR_INVALID_PROGRAM)?;
        Ok(Self::new(context, all))
    }

    pub fn context(&self) -> &Arc<Object<Context<D>>> {
        &self.context
    }

    pub fn check_context(&self, context: &Object<Context<D>>) -> Result<()> {
        let own = std::ptr::eq(&*self.context, context);
        ensure(own, UR_RESULT_ERROR_INVALID_PROGRAM)
    }

    /// The code for a device, or for the device that it is a part of.
    pub fn find(&self, device: &Object<D::Device>) -> Option<&P> {
        let mut all = self.all.iter();
        let own = all.find(|part| std::ptr::eq(part.device(), device));
        own.or_else(|| self.find(&*D::parent(device)?))
    }

    /// The last module of a device.
    pub fn module(&self, device: &Object<D::Device>) -> Result<Arc<P::Module>> {
        let none = Error::new(UR_RESULT_ERROR_INVALID_DEVICE);
        self.find(device).ok_or(none)?.module()
    }

    /// The last module of the first device: the program's native handle is its.
    pub fn first_module(&self) -> Result<Arc<P::Module>> {
        let none = Error::new(UR_RESULT_ERROR_INVALID_PROGRAM);
        self.all.first().ok_or(none)?.module()
    }

    /// Calls `each` with the part of each of the devices that the program has code for, once.
    pub fn for_each<'a>(
        &self,
        devices: impl Iterator<Item = &'a Object<D::Device>>,
        each: impl Fn(&P) -> Result<()>,
    ) -> Result<()> {
        let mut done: Vec<&P> = Vec::new();
        for device in devices {
            self.context.check_device(device)?;
            let found = self.find(device);
            let is_done = |part: &P| done.iter().any(|own| std::ptr::eq(*own, part));
            if let Some(part) = found.filter(|part| !is_done(part)) {
                each(part)?;
                done.push(part);
            }
        }
        Ok(())
    }

    /// `urProgramGetBuildInfo`
    pub fn build_info(
        &self,
        device: &Object<D::Device>,
        what: ProgramBuildInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        self.context.check_device(device)?;
        let none = Error::new(UR_RESULT_ERROR_INVALID_DEVICE);
        let part = self.find(device).ok_or(none)?;
        let build = part.built(|built| built.build.clone());
        build.get_info(what, out)
    }

    /// A kernel's code on each device whose module has it, by `find`. `INVALID_PROGRAM_EXECUTABLE` if no module was
    /// made, `INVALID_KERNEL_NAME` if none has it.
    pub fn codes<C>(
        &self,
        find: impl Fn(&Arc<P::Module>, &Object<D::Device>) -> Result<Option<C>>,
    ) -> Result<Codes<D, C>> {
        let mut codes = Vec::new();
        let mut is_built = false;
        for part in &self.all {
            let Ok(module) = part.module() else { continue };
            is_built = true;
            if let Some(code) = find(&module, part.device())? {
                codes.push((part.device().arc(), Arc::new(code)));
            }
        }
        ensure(is_built, UR_RESULT_ERROR_INVALID_PROGRAM_EXECUTABLE)?;
        ensure(!codes.is_empty(), UR_RESULT_ERROR_INVALID_KERNEL_NAME)?;
        Ok(codes)
    }
}
