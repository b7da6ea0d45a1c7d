//! Modules, which are the driver's loaded code, the images that they are loaded from, and build logs.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result};

use crate::cu::sys::{CUfunction, CUjit_option, CUjitInputType, CUlinkState, CUmodule};
use crate::cu::{Code, check, failure};
use crate::exec::Gpu;

/// Code in a form that the driver loads. The driver requires a zero behind PTX, which is text.
#[derive(Clone)]
pub struct Image {
    bytes: Arc<[u8]>,
    /// Bytes of the code, without the zero behind it.
    len: usize,
}

impl Image {
    pub fn new(bytes: &[u8]) -> Self {
        let own = bytes.iter().copied().chain([0]).collect();
        Self {
            bytes: own,
            len: bytes.len(),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether the code is machine code or a fat binary.
    fn is_binary(&self) -> bool {
        const ELF: &[u8] = b"\x7fELF";
        /// The first word of a fat binary.
        const FAT: &[u8] = &0xba55_ed50u32.to_le_bytes();
        self.bytes.starts_with(ELF) || self.bytes.starts_with(FAT)
    }

    fn kind(&self) -> CUjitInputType {
        match self.bytes {
            _ if !self.is_binary() => CUjitInputType::CU_JIT_INPUT_PTX,
            ref bytes if bytes.starts_with(b"\x7fELF") => CUjitInputType::CU_JIT_INPUT_CUBIN,
            _ => CUjitInputType::CU_JIT_INPUT_FATBINARY,
        }
    }

    /// Names of the kernels in PTX.
    fn entries(&self) -> Vec<String> {
        let Ok(text) = std::str::from_utf8(self.bytes()) else {
            return Vec::new();
        };
        let names = text.split(".entry").skip(1);
        let name = |rest: &str| {
            let rest = rest.trim_start();
            let end = rest.find(|letter: char| letter.is_whitespace() || letter == '(');
            rest[..end.unwrap_or(rest.len())].to_owned()
        };
        names.map(name).collect()
    }
}

/// The log of a build.
#[derive(Clone, Default)]
pub struct Log(pub String);

/// Capacity of a log.
const LOG_BYTES: usize = 16 << 10;

/// Options of the driver's compiler, and the buffers of its logs.
struct Jit {
    keys: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    /// The log of errors and the log of other messages.
    logs: [Vec<u8>; 2],
}

fn number(value: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(value)
}

impl Jit {
    fn new(options: &CStr) -> Self {
        use CUjit_option::*;
        let mut logs = [vec![0; LOG_BYTES], vec![0; LOG_BYTES]];
        let mut keys = vec![
            CU_JIT_ERROR_LOG_BUFFER,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_INFO_LOG_BUFFER,
            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = vec![
            logs[0].as_mut_ptr().cast(),
            number(LOG_BYTES),
            logs[1].as_mut_ptr().cast(),
            number(LOG_BYTES),
        ];
        if let Some(registers) = max_registers(options) {
            keys.push(CU_JIT_MAX_REGISTERS);
            values.push(number(registers));
        }
        Self { keys, values, logs }
    }

    fn count(&self) -> u32 {
        self.keys.len() as u32
    }

    fn log(&self) -> Log {
        let text = |bytes: &Vec<u8>| {
            let end = bytes.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
        };
        Log(self.logs.iter().map(text).collect())
    }
}

/// The number of the option `maxrregcount=N`, with or without dashes.
fn max_registers(options: &CStr) -> Option<usize> {
    let text = options.to_str().ok()?;
    let mut words = text.split_whitespace();
    let found = words.find_map(|word| {
        word.trim_start_matches('-')
            .strip_prefix("maxrregcount=")?
            .parse()
            .ok()
    });
    found.filter(|registers| *registers > 0)
}

/// Loaded code.
pub struct Module {
    gpu: Arc<Gpu>,
    raw: CUmodule,
    kernels: Vec<String>,
    /// Whether the module is unloaded with this.
    is_owned: bool,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Module {}

impl Module {
    /// Loads code. Returns the compiler's log in both cases.
    pub fn load(gpu: &Arc<Gpu>, image: &Image, options: &CStr) -> (Result<Arc<Self>>, Log) {
        let mut jit = Jit::new(options);
        let loaded = gpu.enter().and_then(|_current| {
            let (api, mut raw) = (gpu.api, null_mut());
            let load = api.cuModuleLoadDataEx;
            // SAFETY: the code ends in a zero, each option has a value, and the logs have `LOG_BYTES`.
            let code = unsafe {
                load(
                    &mut raw,
                    image.bytes.as_ptr().cast(),
                    jit.count(),
                    jit.keys.as_ptr(),
                    jit.values.as_mut_ptr(),
                )
            };
            check(api, code, "cuModuleLoadDataEx").map_err(|error| build_failure(image, error))?;
            let mut module = Self {
                gpu: Arc::clone(gpu),
                raw,
                kernels: Vec::new(),
                is_owned: true,
            };
            module.kernels = module.list().unwrap_or_else(|| image.entries());
            module.kernels.sort_unstable();
            Ok(Arc::new(module))
        });
        (loaded, jit.log())
    }

    /// A foreign module of the device's primary context, which `owned` unloads at the end.
    pub fn adopt(gpu: &Arc<Gpu>, raw: CUmodule, owned: bool) -> Result<Arc<Self>> {
        let _current = gpu.enter()?;
        let mut module = Self {
            gpu: Arc::clone(gpu),
            raw,
            kernels: Vec::new(),
            is_owned: false,
        };
        // The driver refuses what it knows to be no module; the answer itself does not matter.
        module.global(c"ur_no_such_variable")?;
        module.kernels = module.list().unwrap_or_default();
        module.kernels.sort_unstable();
        module.is_owned = owned;
        Ok(Arc::new(module))
    }

    /// The module of a function. None if the driver does not tell.
    pub fn of_function(gpu: &Gpu, function: CUfunction) -> Result<Option<CUmodule>> {
        let Some(find) = gpu.api.cuFuncGetModule else {
            return Ok(None);
        };
        let _current = gpu.enter()?;
        let mut module = null_mut();
        // SAFETY: `module` is writable, and the caller promises a live function.
        gpu.check(unsafe { find(&mut module, function) }, "cuFuncGetModule")?;
        Ok(Some(module))
    }

    /// The name of a function. None if the driver does not tell.
    pub fn name_of(gpu: &Gpu, function: CUfunction) -> Result<Option<CString>> {
        let Some(find) = gpu.api.cuFuncGetName else {
            return Ok(None);
        };
        let _current = gpu.enter()?;
        let mut name = null();
        // SAFETY: `name` is writable, and the caller promises a live function.
        gpu.check(unsafe { find(&mut name, function) }, "cuFuncGetName")?;
        if name.is_null() {
            return Ok(None);
        }
        // SAFETY: the driver returned a C string that lives as long as the module.
        Ok(Some(unsafe { CStr::from_ptr(name) }.to_owned()))
    }

    /// Names of all functions. None if the driver does not report them. The context is current.
    fn list(&self) -> Option<Vec<String>> {
        let api = self.gpu.api;
        let (count, list, name) = (
            api.cuModuleGetFunctionCount?,
            api.cuModuleEnumerateFunctions?,
            api.cuFuncGetName?,
        );
        let mut number = 0;
        // SAFETY: `self` owns the module.
        let status = unsafe { count(&mut number, self.raw) };
        let mut functions: Vec<CUfunction> = vec![null_mut(); number as usize];
        // SAFETY: `self` owns the module, and `functions` has room for `number` functions.
        let listed = unsafe { list(functions.as_mut_ptr(), number, self.raw) };
        if !status.is_success() || !listed.is_success() {
            return None;
        }
        let text = |function: &CUfunction| {
            let mut text = null();
            // SAFETY: the module is loaded, and the names of its functions live as long.
            unsafe {
                let status = name(&mut text, *function).is_success() && !text.is_null();
                status.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        functions.iter().map(text).collect()
    }

    pub fn raw(&self) -> CUmodule {
        self.raw
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub fn kernels(&self) -> &[String] {
        &self.kernels
    }

    /// A function by its name. None if there is no such function.
    pub fn function(&self, name: &CStr) -> Result<Option<CUfunction>> {
        if name.is_empty() {
            // The driver reports an empty name as an invalid value.
            return Ok(None);
        }
        let _current = self.gpu.enter()?;
        let mut function = null_mut();
        // SAFETY: `self` owns the module, and the name is a C string.
        let code =
            unsafe { (self.gpu.api.cuModuleGetFunction)(&mut function, self.raw, name.as_ptr()) };
        match code {
            Code::NOT_FOUND => Ok(None),
            code => check(self.gpu.api, code, "cuModuleGetFunction").map(|()| Some(function)),
        }
    }

    /// Address and size in bytes of a variable. None if there is no such variable.
    pub fn global(&self, name: &CStr) -> Result<Option<(usize, usize)>> {
        let _current = self.gpu.enter()?;
        let (mut addr, mut bytes) = (0, 0);
        let find = self.gpu.api.cuModuleGetGlobal;
        // SAFETY: `self` owns the module, and the name is a C string.
        match unsafe { find(&mut addr, &mut bytes, self.raw, name.as_ptr()) } {
            Code::NOT_FOUND => Ok(None),
            code => check(self.gpu.api, code, "cuModuleGetGlobal")
                .map(|()| Some((addr as usize, bytes))),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.is_owned {
            return;
        }
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: `self` owns the module, and the driver waits for its running kernels.
            let code = unsafe { (self.gpu.api.cuModuleUnload)(self.raw) };
            if !code.is_success() {
                log::debug!("cuModuleUnload failed with {}", code.0);
            }
        }
    }
}

/// The error of a failed load: a failed build of PTX, or code for another device.
fn build_failure(image: &Image, error: Error) -> Error {
    match error.code() {
        UR_RESULT_ERROR_INVALID_BINARY | UR_RESULT_ERROR_UNKNOWN if !image.is_binary() => {
            Error::new(UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE)
        }
        _ => error,
    }
}

/// Links several images to one. Returns the linker's log in both cases.
pub fn link(gpu: &Arc<Gpu>, images: &[Image], options: &CStr) -> (Result<Image>, Log) {
    let mut jit = Jit::new(options);
    let made = gpu.enter().and_then(|_current| {
        let (api, mut state) = (gpu.api, null_mut());
        let (keys, values) = (jit.keys.as_ptr(), jit.values.as_mut_ptr());
        // SAFETY: each option has a value, and options and logs outlive the linker.
        let code = unsafe { (api.cuLinkCreate)(jit.count(), keys, values, &mut state) };
        check(api, code, "cuLinkCreate")?;
        let linker = Linker { gpu, state };
        images.iter().try_for_each(|image| linker.add(image))?;
        linker.complete()
    });
    (made, jit.log())
}

struct Linker<'a> {
    gpu: &'a Gpu,
    state: CUlinkState,
}

impl Linker<'_> {
    fn add(&self, image: &Image) -> Result<()> {
        let add = self.gpu.api.cuLinkAddData;
        let data = image.bytes.as_ptr().cast();
        let name = c"".as_ptr();
        let bytes = image.bytes.len();
        // SAFETY: `self` owns the linker, the code has `bytes` bytes, and there are no options.
        let code = unsafe {
            add(
                self.state,
                image.kind(),
                data,
                bytes,
                name,
                0,
                null(),
                null(),
            )
        };
        self.check(code, "cuLinkAddData")
    }

    fn complete(&self) -> Result<Image> {
        let (mut data, mut bytes): (*mut c_void, usize) = (null_mut(), 0);
        // SAFETY: `self` owns the linker.
        let code = unsafe { (self.gpu.api.cuLinkComplete)(self.state, &mut data, &mut bytes) };
        self.check(code, "cuLinkComplete")?;
        // SAFETY: the driver keeps that many bytes until the linker is destroyed.
        Ok(Image::new(unsafe {
            std::slice::from_raw_parts(data.cast(), bytes)
        }))
    }

    fn check(&self, code: Code, call: &str) -> Result<()> {
        if code.is_success() {
            return Ok(());
        }
        let error = failure(self.gpu.api, code, call);
        Err(match error.code() {
            UR_RESULT_ERROR_INVALID_BINARY | UR_RESULT_ERROR_UNKNOWN => {
                Error::new(UR_RESULT_ERROR_PROGRAM_LINK_FAILURE)
            }
            _ => error,
        })
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the linker, and `link` keeps its context current.
        unsafe { (self.gpu.api.cuLinkDestroy)(self.state) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_in_text() {
        let image = Image::new(b".version 8.2\n.visible .entry one(\n.param)\n.entry two (");
        assert_eq!(image.entries(), ["one", "two"]);
        assert_eq!(image.bytes().last(), Some(&b'('));
        assert!(!image.is_binary() && Image::new(b"\x7fELF..").is_binary());
    }

    #[test]
    fn registers_are_an_option() {
        assert_eq!(max_registers(c"-O2 --maxrregcount=32"), Some(32));
        assert_eq!(max_registers(c"maxrregcount=x"), None);
        assert_eq!(max_registers(c""), None);
    }
}
