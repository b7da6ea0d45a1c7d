//! Programs: PTX, machine code or fat binaries for one or several devices. A build loads them.

mod metadata;
mod module;

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{ProgramPart, program_info};
use ur::hal::{self, ProgramBuildInfo, ProgramInfo};
use ur::object::{Body, Error, Handles, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Built, Context, Part as _, Parts};
use ur::sync::Mutex;

pub use metadata::GroupRules;
pub use module::Module;

use crate::Cuda;
use crate::cu::sys::CUfunction;
use crate::device::Device;
use crate::kernel::{Code, Kernel};
use metadata::Metadata;
use module::{Image, link};

type OfContext = Object<Context<Cuda>>;

pub struct Program {
    parts: Parts<Cuda, Part>,
    metadata: Metadata,
}

/// The code of a program for one device.
struct Part {
    device: Arc<Object<Device>>,
    image: Image,
    loaded: Mutex<Built<Module>>,
}

impl ProgramPart<Cuda> for Part {
    fn device(&self) -> &Object<Device> {
        &self.device
    }

    fn binary(&self) -> Result<Cow<'_, [u8]>> {
        Ok(self.image.bytes().into())
    }
}

impl ur::stream::Part<Cuda> for Part {
    type Module = Module;

    fn built<R>(&self, read: impl FnOnce(&Built<Module>) -> R) -> R {
        read(&self.loaded.lock())
    }
}

impl Part {
    fn new(device: &Object<Device>, image: Image) -> Self {
        Self {
            device: device.arc(),
            image,
            loaded: Mutex::new(Built::none()),
        }
    }

    /// Loads the code. Kernels that were created before keep their code.
    fn load(&self, binary: ur_program_binary_type_t, options: &CStr) -> Result<()> {
        // A program of a native handle has no code that could be built.
        let has_code = !self.image.bytes().is_empty();
        ensure(has_code, UR_RESULT_ERROR_INVALID_OPERATION)?;
        let (loaded, log) = Module::load(&self.device.gpu()?, &self.image, options);
        let loaded = loaded.map(Some);
        self.loaded.lock().end(loaded, binary, options, Ok(log.0))
    }
}

impl Body for Program {
    const KIND: Kind = Kind::Program;
}

impl Drop for Program {
    /// Commands may use variables of the modules.
    fn drop(&mut self) {
        let modules = self.parts.iter().filter_map(|part| part.module().ok());
        let modules: Vec<_> = modules.collect();
        self.context().drop_after_use(modules);
    }
}

impl Program {
    /// `urProgramCreateWithIL`
    pub fn from_il(
        _: &OfContext,
        il: &[u8],
        _: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        ensure(!il.is_empty(), UR_RESULT_ERROR_INVALID_SIZE)?;
        Err(Error::new(UR_RESULT_ERROR_COMPILER_NOT_AVAILABLE))
    }

    /// `urProgramCreateWithBinary`
    pub fn from_binaries(
        context: &OfContext,
        devices: Handles<'_, Device>,
        lengths: &[usize],
        binaries: &[*const u8],
        properties: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        // SAFETY: `urProgramCreateWithBinary` requires valid metadata entries.
        let metadata = unsafe { Metadata::read(properties) }?;
        let make = |device: &Object<Device>, code: &[u8]| Part::new(device, Image::new(code));
        let parts = Parts::of_binaries(context, devices, lengths, binaries, make)?;
        Ok(hal::new::<Cuda, _>(Self { parts, metadata }))
    }

    /// `urProgramCreateWithNativeHandle`: a loaded module of the driver, of the context's first device.
    pub fn from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_program_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        ensure(native != 0, UR_RESULT_ERROR_INVALID_PROGRAM)?;
        let device = &context.devices()[0];
        let raw = std::ptr::with_exposed_provenance_mut(native);
        let module = Module::adopt(&device.gpu()?, raw, owned)?;
        // The driver gives no code back.
        let part = Part::new(device, Image::new(&[]));
        *part.loaded.lock() = Built::adopted(module);
        Ok(hal::new::<Cuda, _>(Self {
            parts: Parts::new(context, vec![part]),
            metadata: Metadata::default(),
        }))
    }

    /// `urKernelCreateWithNativeHandle`: a function of the driver. Without a program, one is made of its
    /// module.
    pub fn kernel_from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        program: Option<&Object<Self>>,
        _: Option<&ur_kernel_native_properties_t>,
    ) -> Result<Arc<Object<Kernel>>> {
        ensure(native != 0, UR_RESULT_ERROR_INVALID_KERNEL)?;
        let raw: CUfunction = std::ptr::with_exposed_provenance_mut(native);
        let gpu = context.devices()[0].gpu()?;
        let module = Module::of_function(&gpu, raw)?;
        let program = match (program, module) {
            (Some(program), _) => program.arc(),
            (None, Some(module)) => Self::from_native(context, module.expose_provenance(), None)?,
            // The driver does not tell the module of a function.
            (None, None) => return Err(Error::unsupported()),
        };
        program.check_context(context)?;
        let name = Module::name_of(&gpu, raw)?.ok_or(Error::unsupported())?;
        let own = |part: &&Part| {
            let loaded = part.module();
            loaded.is_ok_and(|own| module.is_none_or(|module| std::ptr::eq(own.raw(), module)))
        };
        let part = program.parts.iter().find(own);
        let part = part.ok_or(Error::new(UR_RESULT_ERROR_INVALID_PROGRAM))?;
        let code = Code::of(&part.module()?, raw, &name)?;
        let codes = vec![(Arc::clone(&part.device), Arc::new(code))];
        Ok(Kernel::new(
            &program,
            &name,
            codes,
            program.metadata.rules(&name),
        ))
    }

    /// Links several programs to one and loads it.
    pub fn link(
        context: &OfContext,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Self>>> {
        let options = options.unwrap_or_default();
        let mut metadata = Metadata::default();
        for program in programs.iter() {
            program.check_context(context)?;
            metadata.join(&program.metadata);
        }
        let parts = Parts::linked(context, devices.iter(), |device| {
            let own = programs.iter();
            let own = own.filter_map(|program| program.parts.find(device));
            let images: Vec<Image> = own.map(|part| part.image.clone()).collect();
            let image = match images.as_slice() {
                [] => return Ok(None),
                [one] => one.clone(),
                several => {
                    let (linked, log) = link(&device.gpu()?, several, options);
                    linked.map_err(|error| error.explained(&log.0))?
                }
            };
            let part = Part::new(device, image);
            // The caller gets no program to query the log of.
            part.load(UR_PROGRAM_BINARY_TYPE_EXECUTABLE, options)
                .map_err(|error| error.explained(part.loaded.lock().build.text()))?;
            Ok(Some(part))
        })?;
        Ok(hal::new::<Cuda, _>(Self { parts, metadata }))
    }

    /// Loads the code for all devices of the context.
    pub fn build_all(
        &self,
        context: &OfContext,
        binary: ur_program_binary_type_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        self.check_context(context)?;
        self.build(context.each_device(), binary, options)
    }

    /// Loads the code for those of the devices that the program has code for.
    fn build<'a>(
        &self,
        devices: impl Iterator<Item = &'a Object<Device>>,
        binary: ur_program_binary_type_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        let options = options.unwrap_or_default();
        self.parts.for_each(devices, |part| {
            let before = part.module().ok();
            let loaded = part.load(binary, options);
            // Commands may use variables of it.
            if let Some(before) = before {
                self.context().drop_after_use(before);
            }
            loaded
        })
    }

    pub fn check_context(&self, context: &OfContext) -> Result<()> {
        self.parts.check_context(context)
    }

    pub fn context(&self) -> &Arc<OfContext> {
        self.parts.context()
    }

    /// The driver's handle of a kernel.
    pub fn function(&self, device: &Object<Device>, name: &CStr) -> Result<CUfunction> {
        let found = self.parts.module(device)?.function(name)?;
        found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL_NAME))
    }

    /// Address and size in bytes of a global variable, by its name or by SYCL's id.
    pub fn global(&self, device: &Object<Device>, name: &CStr) -> Result<(usize, usize)> {
        let name = self.metadata.global(name).unwrap_or(name);
        let found = self.parts.module(device)?.global(name)?;
        found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
    }

    /// The names of all loaded kernels, each once. A kernel's variant for launches with an offset is a part
    /// of the kernel.
    fn kernel_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for part in self.parts.iter() {
            if let Ok(module) = part.module() {
                names.extend_from_slice(module.kernels());
            }
        }
        names.sort_unstable();
        names.dedup();
        let all = names.clone();
        names.retain(|name| {
            let base = name.strip_suffix("_with_offset").map(str::to_owned);
            base.is_none_or(|base| all.binary_search(&base).is_err())
        });
        names
    }
}

impl hal::Program<Cuda> for Program {
    fn get_info(this: &Object<Self>, what: ProgramInfo, out: InfoOut<'_>) -> Result<()> {
        let names = || Ok(this.kernel_names());
        program_info::<Cuda>(this, this.context(), &this.parts, names, what, out)
    }

    fn get_build_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: ProgramBuildInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        this.parts.build_info(device, what, out)
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.parts.first_module()?.raw().expose_provenance())
    }

    fn kernel_create(this: &Object<Self>, name: &CStr) -> Result<Arc<Object<Kernel>>> {
        let codes = this.parts.codes(|module, _| Code::find(module, name))?;
        Ok(Kernel::new(this, name, codes, this.metadata.rules(name)))
    }

    fn build_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        this.build(devices.iter(), UR_PROGRAM_BINARY_TYPE_EXECUTABLE, options)
    }

    fn compile_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        let binary = UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT;
        this.build(devices.iter(), binary, options)
    }
}
