//! Native modules: what the driver's compiler makes of SPIR-V, or loads of its own code.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::object::{Error, Object, Result};
use ur::sync::{Mutex, rank};

use crate::context::NativeContext;
use crate::device::Device;
use crate::exec;
use crate::lz::{self, *};

/// One piece of code.
#[derive(Clone)]
pub struct Input {
    pub code: Arc<[u8]>,
    /// SPIR-V, or the driver's own code.
    pub is_il: bool,
    /// The options that it was compiled with, where a link follows.
    pub options: CString,
    /// Values of specialization constants by their ids, each of up to 8 bytes.
    pub constants: Vec<(u32, [u8; 8])>,
}

impl Input {
    pub fn new(code: &[u8], is_il: bool) -> Self {
        Self {
            code: code.into(),
            is_il,
            options: CString::default(),
            constants: Vec::new(),
        }
    }
}

/// A native module, destroyed with its last user.
pub struct Module {
    pub context: Arc<NativeContext>,
    pub raw: ze_module_handle_t,
    handle: Arc<Handle>,
    /// The modules that bring what this one imports.
    linked: Mutex<Vec<Arc<Handle>>, { rank::LEAF }>,
    /// The driver's own code, once it was asked for.
    code: OnceLock<Vec<u8>>,
}

/// The driver's module. Modules that are linked with each other hold this of one another, and so form no cycle.
struct Handle {
    context: Arc<NativeContext>,
    raw: ze_module_handle_t,
    /// Whether the drop destroys the module: a foreign one may be its maker's.
    own: bool,
}

/// The driver's extension for a module of several inputs.
const LINK: &str = "ZE_experimental_module_program";

/// Without the option kernels reach 4 GiB of a buffer.
const LARGE_BUFFERS: &[u8] = b" -ze-opt-greater-than-4GB-buffer-required";

/// The options with that of large buffers. None if the user does not want larger ones than the driver's limit.
fn relaxed_options(device: &Device, options: &CStr) -> Option<CString> {
    if !exec::is_relaxed(device) {
        return None;
    }
    CString::new([options.to_bytes(), LARGE_BUFFERS].concat()).ok()
}

/// The constants of one input as the driver takes them, which borrow the input.
struct Constants {
    ids: Vec<u32>,
    values: Vec<*const c_void>,
}

impl Constants {
    fn of(input: &Input) -> Self {
        let ids = input.constants.iter().map(|(id, _)| *id).collect();
        let values = input
            .constants
            .iter()
            .map(|(_, value)| value.as_ptr().cast());
        Self {
            ids,
            values: values.collect(),
        }
    }

    fn native(&mut self) -> ze_module_constants_t {
        ze_module_constants_t {
            numConstants: self.ids.len() as u32,
            pConstantIds: self.ids.as_ptr(),
            pConstantValues: self.values.as_mut_ptr(),
        }
    }
}

impl Module {
    /// Builds one input, or links several. The log comes on success too.
    pub fn build(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        inputs: &[Input],
        options: &CStr,
    ) -> (Result<Arc<Self>>, Result<String>) {
        let relaxed = relaxed_options(device, options);
        let options = relaxed.as_deref().unwrap_or(options);
        match inputs {
            [] => (
                Err(Error::new(UR_RESULT_ERROR_INVALID_PROGRAM)),
                Ok(String::new()),
            ),
            // Some drivers fail on a description of several inputs that has one.
            [one] => {
                let mut constants = Constants::of(one);
                let constants = constants.native();
                let desc = ze_module_desc_t {
                    format: match one.is_il {
                        true => ZE_MODULE_FORMAT_IL_SPIRV,
                        false => ZE_MODULE_FORMAT_NATIVE,
                    },
                    inputSize: one.code.len(),
                    pInputModule: one.code.as_ptr(),
                    pBuildFlags: options.as_ptr(),
                    pConstants: match constants.numConstants {
                        0 => null(),
                        _ => &raw const constants,
                    },
                    ..Default::default()
                };
                Self::create(context, device, &desc)
            }
            several => Self::link(context, device, several, options),
        }
    }

    fn link(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        inputs: &[Input],
        options: &CStr,
    ) -> (Result<Arc<Self>>, Result<String>) {
        let able = device.platform().has_extension(LINK);
        if !able || !inputs.iter().all(|input| input.is_il) {
            return (Err(Error::unsupported()), Ok(String::new()));
        }
        let sizes: Vec<usize> = inputs.iter().map(|input| input.code.len()).collect();
        let mut codes: Vec<*const u8> = inputs.iter().map(|input| input.code.as_ptr()).collect();
        let flags: Vec<CString> = inputs
            .iter()
            .map(|input| {
                let both = [input.options.to_bytes(), b" ", options.to_bytes()].concat();
                CString::new(both).unwrap_or_default()
            })
            .collect();
        let mut flags: Vec<_> = flags.iter().map(|flags| flags.as_ptr()).collect::<Vec<_>>();
        let mut constants: Vec<Constants> = inputs.iter().map(Constants::of).collect();
        let natives: Vec<ze_module_constants_t> =
            constants.iter_mut().map(Constants::native).collect();
        let mut natives: Vec<*const ze_module_constants_t> =
            natives.iter().map(std::ptr::from_ref).collect();
        let mut program = ze_module_program_exp_desc_t {
            count: inputs.len() as u32,
            inputSizes: sizes.as_ptr(),
            pInputModules: codes.as_mut_ptr(),
            pBuildFlags: flags.as_mut_ptr(),
            pConstants: natives.as_mut_ptr(),
            ..Default::default()
        };
        let desc = ze_module_desc_t {
            format: ZE_MODULE_FORMAT_IL_SPIRV,
            ..ze_module_desc_t::chained((&raw mut program).cast())
        };
        Self::create(context, device, &desc)
    }

    fn create(
        context: &Arc<NativeContext>,
        device: &Object<Device>,
        desc: &ze_module_desc_t,
    ) -> (Result<Arc<Self>>, Result<String>) {
        let api = context.api;
        let (mut raw, mut log) = (ze_module_handle_t::NULL, Log::none(api));
        // SAFETY: the description and what it points to last for the call; there is room for both handles.
        let code = unsafe {
            (api.zeModuleCreate)(context.raw, device.raw(), desc, &mut raw, &mut log.raw)
        };
        let text = log.text();
        let module = check(code, "zeModuleCreate").map(|()| Self::new(context, raw, true));
        (module, text)
    }

    fn new(context: &Arc<NativeContext>, raw: ze_module_handle_t, own: bool) -> Arc<Self> {
        let handle = Handle {
            context: Arc::clone(context),
            raw,
            own,
        };
        Arc::new(Self {
            context: Arc::clone(context),
            raw,
            handle: Arc::new(handle),
            linked: Mutex::default(),
            code: OnceLock::new(),
        })
    }

    /// A foreign module; `own` if this destroys it.
    pub fn adopt(context: &Arc<NativeContext>, raw: usize, own: bool) -> Arc<Self> {
        let raw = ze_module_handle_t(std::ptr::with_exposed_provenance_mut(raw));
        Self::new(context, raw, own)
    }

    /// Whether the module imports symbols, each of which another module or itself brings.
    pub fn has_imports(&self) -> Result<bool> {
        let mut found = ze_module_properties_t::default();
        // SAFETY: a live module; the structure is writable and has its tag.
        unsafe { call!(self.api(), zeModuleGetProperties(self.raw, &mut found)) }?;
        Ok(found.flags & ZE_MODULE_PROPERTY_FLAG_IMPORTS != 0)
    }

    /// Resolves the imports of modules among all of them, in place. The log comes with an error too.
    pub fn link_dynamically(first: &Arc<Self>, others: &[Arc<Self>]) -> (Result<()>, Log) {
        let api = first.api();
        let modules: Vec<_> = std::iter::once(first).chain(others).collect();
        let mut raws: Vec<_> = modules.iter().map(|module| module.raw).collect();
        let mut log = Log::none(api);
        // SAFETY: live modules, and room for the log.
        let code = unsafe {
            (api.zeModuleDynamicLink)(raws.len() as u32, raws.as_mut_ptr(), &mut log.raw)
        };
        let linked = check(code, "zeModuleDynamicLink").and_then(|()| {
            for module in &modules {
                if !module.has_imports()? {
                    continue;
                }
                let others = modules.iter().filter(|other| !Arc::ptr_eq(other, module));
                let others = others.map(|other| Arc::clone(&other.handle));
                module.linked.lock().extend(others);
            }
            Ok(())
        });
        (linked, log)
    }

    fn api(&self) -> &'static Api {
        self.context.api
    }

    pub fn kernel_names(&self) -> Result<Vec<String>> {
        let names = lz::list(null(), |count, all| {
            // SAFETY: `all` is null or has room for `count` names.
            unsafe { call!(self.api(), zeModuleGetKernelNames(self.raw, count, all)) }
        })?;
        let name = |name: &*const _| {
            // SAFETY: the driver's names are C strings that live as long as the module.
            unsafe { CStr::from_ptr(*name) }
                .to_string_lossy()
                .into_owned()
        };
        Ok(names.iter().map(name).collect())
    }

    /// The driver's own code, which a program can be made of again. A caller asks for its size and then for as many
    /// bytes, so that both answers come from one.
    pub fn binary(&self) -> Result<&[u8]> {
        if let Some(code) = self.code.get() {
            return Ok(code);
        }
        let code = self.read_binary()?;
        Ok(self.code.get_or_init(|| code))
    }

    fn read_binary(&self) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: a null buffer asks for the size.
        unsafe {
            call!(
                self.api(),
                zeModuleGetNativeBinary(self.raw, &mut bytes, null_mut())
            )
        }?;
        let mut code = vec![0; bytes];
        // SAFETY: the buffer has the size that the driver reported.
        unsafe {
            call!(
                self.api(),
                zeModuleGetNativeBinary(self.raw, &mut bytes, code.as_mut_ptr())
            )
        }?;
        code.truncate(bytes);
        Ok(code)
    }

    /// Address and size in bytes of a global variable. None if there is none of this name.
    pub fn global(&self, name: &CStr) -> Result<Option<(usize, usize)>> {
        let (mut bytes, mut start) = (0, null_mut());
        let query = self.api().zeModuleGetGlobalPointer;
        // SAFETY: a C string, and room for both answers.
        match unsafe { query(self.raw, name.as_ptr(), &mut bytes, &mut start) } {
            // The others are answers of a module that has no variables at all, the last of an old driver.
            ZE_RESULT_ERROR_INVALID_GLOBAL_NAME
            | ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
            | ZE_RESULT_ERROR_INVALID_ARGUMENT => Ok(None),
            code => {
                check(code, "zeModuleGetGlobalPointer")?;
                Ok(Some((start.expose_provenance(), bytes)))
            }
        }
    }

    /// The address of a function. None if there is none of this name.
    pub fn function(&self, name: &CStr) -> Result<Option<*mut c_void>> {
        let mut start = null_mut();
        let query = self.api().zeModuleGetFunctionPointer;
        // SAFETY: a C string, and room for the answer.
        match unsafe { query(self.raw, name.as_ptr(), &mut start) } {
            ZE_RESULT_ERROR_INVALID_FUNCTION_NAME | ZE_RESULT_ERROR_UNSUPPORTED_FEATURE => Ok(None),
            code => check(code, "zeModuleGetFunctionPointer").map(|()| Some(start)),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let api = self.context.api;
        if self.own && !api.is_torn_down() {
            // SAFETY: the module is this one's; its kernels and the modules that it is linked with hold it.
            unsafe { (api.zeModuleDestroy)(self.raw) };
        }
    }
}

/// A log of the driver's, destroyed with this.
pub struct Log {
    api: &'static Api,
    /// Null if there is none.
    raw: ze_module_build_log_handle_t,
}

impl Log {
    fn none(api: &'static Api) -> Self {
        let raw = ze_module_build_log_handle_t::NULL;
        Self { api, raw }
    }

    pub fn text(&self) -> Result<String> {
        if self.raw.is_null() {
            return Ok(String::new());
        }
        let (api, mut bytes) = (self.api, 0);
        // SAFETY: a null buffer asks for the size.
        unsafe {
            call!(
                api,
                zeModuleBuildLogGetString(self.raw, &mut bytes, null_mut())
            )
        }?;
        let mut text = vec![0u8; bytes];
        if text.is_empty() {
            return Ok(String::new());
        }
        let room = text.as_mut_ptr().cast();
        // SAFETY: the buffer has the size that the driver reported.
        unsafe { call!(api, zeModuleBuildLogGetString(self.raw, &mut bytes, room)) }?;
        let end = text.iter().position(|byte| *byte == 0);
        Ok(String::from_utf8_lossy(&text[..end.unwrap_or(text.len())]).into_owned())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !self.raw.is_null() && !self.api.is_torn_down() {
            // SAFETY: the log is this one's, and is not used again.
            unsafe { (self.api.zeModuleBuildLogDestroy)(self.raw) };
        }
    }
}
