//! Programs: SPIR-V for all devices of a context, or the driver's own code for some. A build makes a native module for
//! each device.

mod module;
mod spirv;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;

use ur::abi::*;
use ur::hal::answers::{ProgramPart, program_info};
use ur::hal::metadata::{entries, name, sizes};
use ur::hal::{self, ProgramBuildInfo, ProgramInfo, checks};
use ur::object::{Body, Error, Handles, InfoOut, Kind, Object, Result, ensure};
use ur::stream::{Built, Context, Part as _, Parts};
use ur::sync::{Mutex, MutexGuard};

pub use module::Module;

use crate::LevelZero;
use crate::device::Device;
use crate::kernel::{Code, Kernel};
use module::Input;
use spirv::is_spirv;

type OfContext = Object<Context<LevelZero>>;

pub struct Program {
    /// The SPIR-V that the program was created with; none of a program of other origin.
    il: Option<Arc<[u8]>>,
    parts: Parts<LevelZero, Part>,
    metadata: Metadata,
}

/// The code of a program for one device.
struct Part {
    device: Arc<Object<Device>>,
    state: Mutex<PartState>,
}

struct PartState {
    inputs: Vec<Input>,
    built: Built<Module>,
}

impl ProgramPart<LevelZero> for Part {
    fn device(&self) -> &Object<Device> {
        &self.device
    }

    /// The driver's own code once the part is built, else what it was created with, unless that is SPIR-V.
    fn binary(&self) -> Result<Cow<'_, [u8]>> {
        let state = self.state();
        Ok(match (state.built.module(), state.inputs.as_slice()) {
            (Ok(module), _) => module.binary()?.to_vec().into(),
            (Err(_), [one]) if !one.is_il => one.code.to_vec().into(),
            _ => Cow::Borrowed(&[]),
        })
    }
}

impl ur::stream::Part<LevelZero> for Part {
    type Module = Module;

    fn built<R>(&self, read: impl FnOnce(&Built<Module>) -> R) -> R {
        read(&self.state().built)
    }
}

impl Part {
    fn new(device: &Object<Device>, inputs: Vec<Input>) -> Self {
        Self {
            device: device.arc(),
            state: Mutex::new(PartState {
                inputs,
                built: Built::none(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, PartState> {
        self.state.lock()
    }

    /// Makes the module. Kernels that were created before keep theirs. `failure` of `symbols` is the error for one that
    /// nothing brings.
    fn build(&self, context: &OfContext, options: &CStr, symbols: Symbols) -> Result<()> {
        let inputs = self.state().inputs.clone();
        // A program of a native handle has no code that could be built.
        ensure(!inputs.is_empty(), UR_RESULT_ERROR_INVALID_OPERATION)?;
        let native = &context.domain().state().native;
        let (built, log) = match is_whole(&inputs) {
            true => Module::build(native, &self.device, &inputs, options),
            false => broken(),
        };
        let (built, log) = match (built, symbols) {
            (Ok(module), Symbols::Resolved { failure }) => resolved(module, log, failure),
            (built, _) => (built, log),
        };
        let binary = UR_PROGRAM_BINARY_TYPE_EXECUTABLE;
        self.state()
            .built
            .end(built.map(Some), binary, options, log)
    }

    /// Keeps the options for a link: the driver compiles when it links.
    fn compile(&self, options: &CStr) -> Result<()> {
        let mut state = self.state();
        let is_il = !state.inputs.is_empty() && state.inputs.iter().all(|input| input.is_il);
        ensure(is_il, UR_RESULT_ERROR_INVALID_OPERATION)?;
        let (compiled, log) = match is_whole(&state.inputs) {
            true => (Ok(None), Ok(String::new())),
            false => broken(),
        };
        if compiled.is_ok() {
            for input in &mut state.inputs {
                input.options = options.into();
            }
        }
        let binary = UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT;
        state.built.end(compiled, binary, options, log)
    }
}

impl Body for Program {
    const KIND: Kind = Kind::Program;
}

impl Drop for Program {
    /// Commands may use variables of the native modules.
    fn drop(&mut self) {
        let modules = self.parts.iter().filter_map(|part| part.module().ok());
        let modules: Vec<_> = modules.collect();
        self.context().drop_after_use(modules);
    }
}

/// What becomes of symbols that a built module imports and that nothing brings.
#[derive(Clone, Copy)]
pub enum Symbols {
    /// The symbols stay for `urProgramDynamicLinkExp`.
    Open,
    /// The symbols are an error.
    Resolved { failure: ur_result_t },
}

impl Symbols {
    fn of(flags: ur_exp_program_flags_t, failure: ur_result_t) -> Self {
        match flags.contains(UR_EXP_PROGRAM_FLAG_ALLOW_UNRESOLVED_SYMBOLS) {
            true => Self::Open,
            false => Self::Resolved { failure },
        }
    }
}

/// The driver builds a module with open symbols. Linking it with itself tells of those.
fn resolved(
    module: Arc<Module>,
    log: Result<String>,
    failure: ur_result_t,
) -> (Result<Arc<Module>>, Result<String>) {
    match module.has_imports() {
        Ok(true) => {}
        Ok(false) => return (Ok(module), log),
        Err(error) => return (Err(error), log),
    }
    let (linked, found) = Module::link_dynamically(&module, &[]);
    let log = match (log, found.text()) {
        (Ok(log), Ok(found)) if !log.is_empty() => Ok(format!("{log}\n{found}")),
        (Ok(_), found) => found,
        (failed, _) => failed,
    };
    let failed = |error: Error| match error.code() {
        UR_RESULT_ERROR_PROGRAM_LINK_FAILURE => Error::new(failure),
        _ => error,
    };
    (linked.map(|()| module).map_err(failed), log)
}

/// Whether all SPIR-V has whole instructions.
fn is_whole(inputs: &[Input]) -> bool {
    let mut all = inputs.iter().filter(|input| input.is_il);
    all.all(|input| spirv::constants(&input.code).is_some())
}

/// The result and the log of a build of SPIR-V that is not whole.
fn broken<T>() -> (Result<T>, Result<String>) {
    let failed = Error::new(UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE);
    let log = "the SPIR-V ends within an instruction, or has one of no words";
    (Err(failed), Ok(log.to_owned()))
}

/// What a compiler says beside the code.
#[derive(Clone, Default)]
struct Metadata {
    /// The names of global variables by SYCL's ids.
    globals: HashMap<Vec<u8>, CString>,
    /// The largest groups that kernels' sources allow, by their names.
    groups: HashMap<Vec<u8>, GroupLimits>,
}

/// The largest group that a kernel's source allows: in each dimension, and in all. 0 for any.
#[derive(Clone, Copy, Default)]
pub struct GroupLimits {
    pub each: [usize; 3],
    pub items: usize,
}

impl Metadata {
    /// # Safety
    /// The entries, their names and the memory that they point to are readable for the call.
    unsafe fn read(properties: Option<&ur_program_properties_t>) -> Result<Self> {
        let wrong = Error::new(UR_RESULT_ERROR_INVALID_VALUE);
        let mut all = Self::default();
        // SAFETY: the caller promises readable entries.
        for entry in unsafe { entries(properties) }? {
            let bytes = &entry.bytes;
            let groups = &mut all.groups;
            match entry.tag.as_slice() {
                b"global_id_mapping" => {
                    let name = name(bytes).ok_or(wrong)?;
                    all.globals.insert(entry.subject, name);
                }
                b"max_work_group_size" => {
                    groups.entry(entry.subject).or_default().each = sizes(bytes).ok_or(wrong)?;
                }
                b"max_linear_work_group_size" => {
                    groups.entry(entry.subject).or_default().items = number(bytes).ok_or(wrong)?;
                }
                // Metadata for other backends.
                _ => {}
            }
        }
        Ok(all)
    }

    /// Adds the facts of another program.
    fn join(&mut self, other: &Self) {
        self.globals.extend(other.globals.clone());
        self.groups.extend(other.groups.clone());
    }
}

/// A number of four or eight bytes.
fn number(bytes: &[u8]) -> Option<usize> {
    let short = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize);
    let long = |bytes: &[u8]| usize::try_from(u64::from_ne_bytes(bytes.try_into().ok()?)).ok();
    short(bytes).or_else(|| long(bytes))
}

const NO_FLAGS: ur_exp_program_flags_t = ur_exp_program_flags_t(0);

impl Program {
    /// `urProgramCreateWithIL`
    pub fn from_il(
        context: &OfContext,
        il: &[u8],
        properties: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        ensure(!il.is_empty(), UR_RESULT_ERROR_INVALID_SIZE)?;
        ensure(is_spirv(il), UR_RESULT_ERROR_INVALID_BINARY)?;
        // SAFETY: `urProgramCreateWithIL` requires valid metadata entries.
        let metadata = unsafe { Metadata::read(properties) }?;
        let input = Input::new(il, true);
        let devices = context.devices().iter();
        let parts = devices.map(|device| Part::new(device, vec![input.clone()]));
        Ok(hal::new::<LevelZero, _>(Self {
            parts: Parts::new(context, parts.collect()),
            il: Some(input.code),
            metadata,
        }))
    }

    /// `urProgramCreateWithBinary`: the driver's own code, or SPIR-V as a device binary.
    pub fn from_binaries(
        context: &OfContext,
        devices: Handles<'_, Device>,
        lengths: &[usize],
        binaries: &[*const u8],
        properties: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        // SAFETY: `urProgramCreateWithBinary` requires valid metadata entries.
        let metadata = unsafe { Metadata::read(properties) }?;
        let make = |device: &Object<Device>, code: &[u8]| {
            Part::new(device, vec![Input::new(code, is_spirv(code))])
        };
        Ok(hal::new::<LevelZero, _>(Self {
            parts: Parts::of_binaries(context, devices, lengths, binaries, make)?,
            il: None,
            metadata,
        }))
    }

    /// `urProgramCreateWithNativeHandle`: a module of the context's first device.
    pub fn from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_program_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        ensure(native != 0, UR_RESULT_ERROR_INVALID_PROGRAM)?;
        let part = Part::new(&context.devices()[0], Vec::new());
        let native_context = &context.domain().state().native;
        part.state().built = Built::adopted(Module::adopt(native_context, native, owned));
        Ok(hal::new::<LevelZero, _>(Self {
            parts: Parts::new(context, vec![part]),
            il: None,
            metadata: Metadata::default(),
        }))
    }

    /// Links several programs to one and builds it.
    pub fn link(
        context: &OfContext,
        devices: Handles<'_, Device>,
        flags: ur_exp_program_flags_t,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Self>>> {
        let options = options.unwrap_or_default();
        let symbols = Symbols::of(flags, UR_RESULT_ERROR_PROGRAM_LINK_FAILURE);
        let mut metadata = Metadata::default();
        for program in programs.iter() {
            program.check_context(context)?;
            metadata.join(&program.metadata);
        }
        let parts = Parts::linked(context, devices.iter(), |device| {
            let own = programs.iter();
            let own = own.filter_map(|program| program.parts.find(device));
            let inputs: Vec<Input> = own.flat_map(|part| part.state().inputs.clone()).collect();
            if inputs.is_empty() {
                return Ok(None);
            }
            let part = Part::new(device, inputs);
            // The caller gets no program to query the log of.
            let linked = part.build(context, options, symbols);
            linked.map_err(|error| error.explained(part.state().built.build.text()))?;
            Ok(Some(part))
        })?;
        Ok(hal::new::<LevelZero, _>(Self {
            parts,
            il: None,
            metadata,
        }))
    }

    /// `urProgramDynamicLinkExp`: resolves the open symbols of built programs, device by device.
    pub fn link_dynamically(context: &OfContext, programs: Handles<'_, Program>) -> Result<()> {
        let invalid = UR_RESULT_ERROR_INVALID_PROGRAM;
        ensure(!programs.is_empty(), UR_RESULT_ERROR_INVALID_SIZE)?;
        for program in programs.iter() {
            program.check_context(context)?;
            let built = program.parts.iter().any(|part| part.module().is_ok());
            ensure(built, invalid)?;
        }
        for device in context.devices() {
            let modules = programs
                .iter()
                .filter_map(|one| one.parts.module(device).ok());
            let modules: Vec<_> = modules.collect();
            let Some((first, others)) = modules.split_first() else {
                continue;
            };
            let (linked, log) = Module::link_dynamically(first, others);
            linked.map_err(|error| error.explained(&log.text().unwrap_or_default()))?;
        }
        Ok(())
    }

    /// `urProgramBuild`: for all devices of the context.
    pub fn build_all(
        context: &OfContext,
        own: &Object<Self>,
        options: Option<&CStr>,
    ) -> Result<()> {
        own.check_context(context)?;
        own.build(context.each_device(), options, NO_FLAGS)
    }

    /// `urProgramCompile`: for all devices of the context.
    pub fn compile_all(
        context: &OfContext,
        own: &Object<Self>,
        options: Option<&CStr>,
    ) -> Result<()> {
        own.check_context(context)?;
        own.compile(context.each_device(), options)
    }

    fn build<'a>(
        &self,
        devices: impl Iterator<Item = &'a Object<Device>>,
        options: Option<&CStr>,
        flags: ur_exp_program_flags_t,
    ) -> Result<()> {
        let options = options.unwrap_or_default();
        let symbols = Symbols::of(flags, UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE);
        self.parts.for_each(devices, |part| {
            self.remake(part, || part.build(self.context(), options, symbols))
        })
    }

    fn compile<'a>(
        &self,
        devices: impl Iterator<Item = &'a Object<Device>>,
        options: Option<&CStr>,
    ) -> Result<()> {
        let options = options.unwrap_or_default();
        self.parts
            .for_each(devices, |part| self.remake(part, || part.compile(options)))
    }

    /// Replaces the module of a part, which commands may use.
    fn remake(&self, part: &Part, make: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = part.module().ok();
        let made = make();
        if let Some(before) = before {
            self.context().drop_after_use(before);
        }
        made
    }

    pub fn check_context(&self, context: &OfContext) -> Result<()> {
        self.parts.check_context(context)
    }

    pub fn context(&self) -> &Arc<OfContext> {
        self.parts.context()
    }

    /// The address of a function.
    pub fn function(&self, device: &Object<Device>, name: &CStr) -> Result<*mut c_void> {
        let module = self.parts.module(device)?;
        if let Some(found) = module.function(name)? {
            return Ok(found);
        }
        let names = module.kernel_names()?;
        let known = names
            .iter()
            .any(|known| known.as_bytes() == name.to_bytes());
        Err(Error::new(match known {
            true => UR_RESULT_ERROR_FUNCTION_ADDRESS_NOT_AVAILABLE,
            false => UR_RESULT_ERROR_INVALID_KERNEL_NAME,
        }))
    }

    /// Address and size in bytes of a global variable, by its name or by SYCL's id.
    pub fn global(&self, device: &Object<Device>, name: &CStr) -> Result<(usize, usize)> {
        let name = self
            .metadata
            .globals
            .get(name.to_bytes())
            .map_or(name, CString::as_c_str);
        let found = self.parts.module(device)?.global(name)?;
        found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))
    }

    /// The specialization constants of all SPIR-V of the program.
    fn constants(&self) -> Vec<spirv::Constant> {
        let inputs = self
            .parts
            .iter()
            .flat_map(|part| part.state().inputs.clone());
        let of = inputs.filter(|input| input.is_il);
        of.filter_map(|input| spirv::constants(&input.code))
            .flatten()
            .collect()
    }

    fn kernel_names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for module in self.parts.iter().filter_map(|part| part.module().ok()) {
            names.extend(module.kernel_names()?);
        }
        // The driver's own kernel, which holds functions that others call by address.
        names.retain(|name| name != "Intel_Symbol_Table_Void_Program");
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

impl hal::Program<LevelZero> for Program {
    fn get_info(this: &Object<Self>, what: ProgramInfo, out: InfoOut<'_>) -> Result<()> {
        if let (ProgramInfo::Il, Some(il)) = (&what, &this.il) {
            return out.slice(il);
        }
        if let ProgramInfo::NumKernels | ProgramInfo::KernelNames = what {
            let built = this.parts.iter().any(|part| part.module().is_ok());
            ensure(built, UR_RESULT_ERROR_INVALID_PROGRAM_EXECUTABLE)?;
        }
        let names = || this.kernel_names();
        program_info::<LevelZero>(this, this.context(), &this.parts, names, what, out)
    }

    fn get_build_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: ProgramBuildInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        this.parts.build_info(device, what, out)
    }

    fn set_specialization_constants(
        this: &Object<Self>,
        constants: &[ur_specialization_constant_info_t],
    ) -> Result<()> {
        let known = this.constants();
        let mut values = Vec::new();
        for constant in constants {
            let own = known.iter().find(|own| own.id == constant.id);
            let own = own.ok_or(Error::new(UR_RESULT_ERROR_INVALID_SPEC_ID))?;
            let mut value = [0; 8];
            let fits = constant.size == own.bytes && own.bytes <= value.len();
            let fits = fits && !constant.pValue.is_null();
            ensure(fits, UR_RESULT_ERROR_INVALID_VALUE)?;
            // SAFETY: `urProgramSetSpecializationConstants` requires values of these sizes.
            let bytes = unsafe { checks::slice(constant.pValue.cast::<u8>(), constant.size) }?;
            value[..bytes.len()].copy_from_slice(bytes);
            values.push((constant.id, value));
        }
        for part in this.parts.iter() {
            let mut state = part.state();
            for input in state.inputs.iter_mut().filter(|input| input.is_il) {
                for (id, value) in &values {
                    input.constants.retain(|(own, _)| own != id);
                    input.constants.push((*id, *value));
                }
            }
        }
        Ok(())
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.parts.first_module()?.raw.0.expose_provenance())
    }

    fn kernel_create(this: &Object<Self>, name: &CStr) -> Result<Arc<Object<Kernel>>> {
        let find =
            |module: &Arc<Module>, device: &Object<Device>| Code::find(module, &device.arc(), name);
        let codes = this.parts.codes(find)?;
        let limits = this.metadata.groups.get(name.to_bytes()).copied();
        Ok(Kernel::new(this, name, codes, limits.unwrap_or_default()))
    }

    fn build_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        flags: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        this.build(devices.iter(), options, flags)
    }

    fn compile_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        this.compile(devices.iter(), options)
    }
}
