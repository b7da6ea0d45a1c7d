//! Modules and their build logs.
//!
//! A native binary is the module's SPIR-V with its constants and flags, behind a mark: the CPU's compiler is fast.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use ze::*;

use crate::cl::{self, Input, Program};
use crate::entry::{Answer, array, bytes_out, chained, fill, given, offer, put};
use crate::image::Uses;
use crate::object::Objects;
use crate::spirv::{self, Kernel};
use crate::{context, device, script, worker};

pub struct Module {
    pub device: usize,
    /// The launches of its kernels.
    pub uses: Uses,
    /// The variable [`VARIABLE`].
    variable: Box<[u64; 8]>,
    /// Set once nothing is left to link; none without OpenCL.
    program: OnceLock<Option<Program>>,
    pub kernels: Vec<(CString, Kernel)>,
    parts: Vec<Part>,
    imports: Vec<String>,
    exports: Vec<String>,
}

impl Module {
    /// The code; none without OpenCL. An error while imports are unresolved.
    pub fn program(&self) -> Answer<Option<&Program>> {
        let program = self
            .program
            .get()
            .ok_or(ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED)?;
        Ok(program.as_ref())
    }
}

pub struct Log {
    text: CString,
}

pub static MODULES: Objects<Module> = Objects::of("module");
pub static LOGS: Objects<Log> = Objects::of("build log");

/// The one variable of a module without OpenCL.
const VARIABLE: &CStr = c"scripted";

/// How a native binary begins.
const MARK: &[u8] = b"scripted binary\0";

/// One of the codes that a module is made from.
struct Part {
    spirv: Vec<u8>,
    constants: Vec<(u32, Vec<u8>)>,
    flags: String,
}

impl Part {
    fn input(&self) -> Input<'_> {
        Input {
            spirv: &self.spirv,
            constants: &self.constants,
            flags: &self.flags,
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

fn take_number(from: &mut &[u8]) -> Option<usize> {
    let bytes = take(from, 8)?.try_into().ok()?;
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = take_number(from)?;
    take(from, count)
}

fn pack(parts: &[Part]) -> Vec<u8> {
    let mut out = MARK.to_vec();
    for part in parts {
        put_bytes(&mut out, &part.spirv);
        put_bytes(&mut out, part.flags.as_bytes());
        out.extend_from_slice(&(part.constants.len() as u64).to_le_bytes());
        for (id, value) in &part.constants {
            put_bytes(&mut out, &id.to_le_bytes());
            put_bytes(&mut out, value);
        }
    }
    out
}

fn unpack(mut from: &[u8]) -> Option<Vec<Part>> {
    if take(&mut from, MARK.len())? != MARK {
        return None;
    }
    let mut parts = Vec::new();
    while !from.is_empty() {
        let spirv = take_bytes(&mut from)?.to_vec();
        let flags = String::from_utf8_lossy(take_bytes(&mut from)?).into_owned();
        let mut constants = Vec::new();
        for _ in 0..take_number(&mut from)? {
            let id = u32::from_le_bytes(take_bytes(&mut from)?.try_into().ok()?);
            constants.push((id, take_bytes(&mut from)?.to_vec()));
        }
        parts.push(Part {
            spirv,
            constants,
            flags,
        });
    }
    Some(parts)
}

/// The caller's text, empty for null.
///
/// # Safety
/// The pointer is null or a C string.
unsafe fn text(from: *const c_char) -> String {
    match from.is_null() {
        true => String::new(),
        // SAFETY: as the caller promises.
        false => unsafe { CStr::from_ptr(from) }
            .to_string_lossy()
            .into_owned(),
    }
}

/// # Safety
/// The code, flags and constants are readable as the interface has them.
unsafe fn part(
    code: *const u8,
    bytes: usize,
    flags: *const c_char,
    constants: *const ze_module_constants_t,
) -> Answer<(Part, spirv::Module)> {
    // SAFETY: as the caller promises.
    let code = unsafe { array(code, bytes) }?.to_vec();
    let read = spirv::read(&code).ok_or(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)?;
    let mut values = Vec::new();
    // SAFETY: as the caller promises.
    if let Some(given) = unsafe { constants.as_ref() } {
        let count = given.numConstants as usize;
        // SAFETY: as the caller promises.
        let (ids, all) = unsafe {
            (
                array(given.pConstantIds, count)?,
                array(given.pConstantValues.cast_const(), count)?,
            )
        };
        for (id, value) in ids.iter().zip(all) {
            // A constant that the module does not have is not set.
            let Some(size) = read.constants.get(id) else {
                continue;
            };
            // SAFETY: a value has the size of its constant.
            values.push((*id, unsafe { array(value.cast::<u8>(), *size) }?.to_vec()));
        }
    }
    let part = Part {
        spirv: code,
        constants: values,
        // SAFETY: as the caller promises.
        flags: unsafe { text(flags) },
    };
    Ok((part, read))
}

/// # Safety
/// The description is as the interface has it.
unsafe fn parts(desc: &ze_module_desc_t) -> Answer<Vec<(Part, spirv::Module)>> {
    // SAFETY: as the caller promises.
    unsafe {
        match desc.format {
            ZE_MODULE_FORMAT_NATIVE => {
                let bytes = array(desc.pInputModule, desc.inputSize)?;
                let all = unpack(bytes).ok_or(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY)?;
                let read = |part: Part| {
                    let read =
                        spirv::read(&part.spirv).ok_or(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY)?;
                    Ok((part, read))
                };
                all.into_iter().map(read).collect()
            }
            ZE_MODULE_FORMAT_IL_SPIRV => {
                match chained::<ze_module_program_exp_desc_t>(desc.pNext) {
                    None => Ok(vec![part(
                        desc.pInputModule,
                        desc.inputSize,
                        desc.pBuildFlags,
                        desc.pConstants,
                    )?]),
                    Some(all) => {
                        let count = all.count as usize;
                        let sizes = array(all.inputSizes, count)?;
                        let codes = array(all.pInputModules.cast_const(), count)?;
                        let flags = array(all.pBuildFlags.cast_const(), count).unwrap_or(&[]);
                        let constants = array(all.pConstants.cast_const(), count).unwrap_or(&[]);
                        let one = |index: usize| {
                            let flags = flags.get(index).copied().unwrap_or(ptr::null());
                            let constants = constants.get(index).copied().unwrap_or(ptr::null());
                            part(codes[index], sizes[index], flags, constants)
                        };
                        (0..count).map(one).collect()
                    }
                }
            }
            _ => Err(ZE_RESULT_ERROR_INVALID_ENUMERATION),
        }
    }
}

/// A module, or the log of what failed. A module that needs symbols of another one is not linked yet.
fn build(device: usize, all: Vec<(Part, spirv::Module)>) -> Result<(Module, String), String> {
    let mut kernels = Vec::new();
    let mut parts = Vec::new();
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    for (part, read) in all {
        kernels.extend(read.kernels);
        imports.extend(read.imports);
        exports.extend(read.exports);
        parts.push(part);
    }
    imports.retain(|name| !exports.contains(name));
    let named = |(name, kernel)| Some((CString::new(name).ok()?, kernel));
    let kernels = kernels.into_iter().filter_map(named).collect();
    let inputs: Vec<_> = parts.iter().map(Part::input).collect();
    let mut log = String::new();
    let program = match cl::get() {
        // The compiler itself brings some of the symbols.
        Some(cl) => match Program::build(cl, &inputs) {
            Ok((program, text)) => {
                imports.clear();
                log = text;
                OnceLock::from(Some(program))
            }
            Err(text) if imports.is_empty() => return Err(text),
            Err(text) => {
                let compiled = inputs.iter().try_for_each(|one| Program::compile(cl, one));
                compiled.map_err(|_| text)?;
                OnceLock::new()
            }
        },
        None if imports.is_empty() => OnceLock::from(None),
        None => OnceLock::new(),
    };
    Ok((
        Module {
            device,
            uses: Uses::default(),
            variable: Box::default(),
            program,
            kernels,
            parts,
            imports,
            exports,
        },
        log,
    ))
}

/// Links the modules that are not yet. Returns the log of what failed.
fn link(modules: &[Arc<Module>]) -> Result<(), String> {
    let exports: Vec<_> = modules.iter().flat_map(|one| &one.exports).collect();
    for module in modules.iter().filter(|one| one.program.get().is_none()) {
        let lacks = module.imports.iter().find(|name| !exports.contains(name));
        if let Some(name) = lacks {
            return Err(format!("unresolved symbol {name}"));
        }
        let others = modules.iter().filter(|one| !Arc::ptr_eq(one, module));
        let all = std::iter::once(module).chain(others);
        let inputs: Vec<_> = all
            .flat_map(|one| one.parts.iter().map(Part::input))
            .collect();
        let program = match cl::get() {
            Some(cl) => Some(Program::build(cl, &inputs)?.0),
            None => None,
        };
        // Another thread's link is as good.
        let _ = module.program.set(program);
    }
    Ok(())
}

fn log_of(text: String) -> ze_module_build_log_handle_t {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    ze_module_build_log_handle_t(LOGS.add(|_| Log { text }))
}

pub fn get(module: ze_module_handle_t) -> Answer<Arc<Module>> {
    MODULES.get(module.0)
}

entries! {
    fn zeModuleCreate(
        context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_module_desc_t,
        out: *mut ze_module_handle_t, log: *mut ze_module_build_log_handle_t,
    ) {
        context::check_both(context, device)?;
        let desc = given(desc)?;
        given(out)?;
        let device = device::index(device)?;
        script::device_present(device)?;
        let read = parts(desc).map_err(|code| (code, "no code of a module".to_owned()));
        let built = read.and_then(|all| build(device, all).map_err(|text| (ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, text)));
        match built {
            Ok((module, text)) => {
                if !log.is_null() {
                    log.write(log_of(text));
                }
                put(out, ze_module_handle_t(MODULES.add(|_| module)))
            }
            Err((code, text)) => {
                if !log.is_null() {
                    log.write(log_of(text));
                }
                Err(code)
            }
        }
    }

    fn zeModuleDestroy(module: ze_module_handle_t) {
        let own = MODULES.remove(module.0)?;
        own.uses.check_over("module", own.device);
        let (start, bytes) = (own.variable.as_ptr().addr(), size_of_val(&*own.variable));
        if worker::uses(start, bytes) {
            script::broken("a module is destroyed whose variable a command uses".into());
        }
        Ok(())
    }

    fn zeModuleBuildLogDestroy(log: ze_module_build_log_handle_t) {
        LOGS.remove(log.0).map(drop)
    }

    fn zeModuleBuildLogGetString(
        log: ze_module_build_log_handle_t, size: *mut usize, out: *mut c_char,
    ) {
        bytes_out(size, out, LOGS.get(log.0)?.text.as_bytes_with_nul())
    }

    fn zeModuleDynamicLink(
        count: u32, modules: *mut ze_module_handle_t, log: *mut ze_module_build_log_handle_t,
    ) {
        let all = array(modules, count as usize)?.iter().map(|one| get(*one));
        let linked = link(&all.collect::<Answer<Vec<_>>>()?);
        if !log.is_null() {
            log.write(log_of(linked.clone().err().unwrap_or_default()));
        }
        linked.map_err(|_| ZE_RESULT_ERROR_MODULE_LINK_FAILURE)
    }

    fn zeModuleGetNativeBinary(module: ze_module_handle_t, size: *mut usize, out: *mut u8) {
        bytes_out(size, out, &pack(&get(module)?.parts))
    }

    fn zeModuleGetKernelNames(module: ze_module_handle_t, count: *mut u32, names: *mut *const c_char) {
        fill(count, names, &get(module)?.kernels, |to, (name, _)| *to = name.as_ptr())
    }

    fn zeModuleGetProperties(module: ze_module_handle_t, out: *mut ze_module_properties_t) {
        let own = get(module)?;
        given(out)?;
        (*out).flags = if !own.imports.is_empty() { ZE_MODULE_PROPERTY_FLAG_IMPORTS } else { 0 };
        Ok(())
    }

    fn zeModuleGetGlobalPointer(
        module: ze_module_handle_t, name: *const c_char, size: *mut usize, out: *mut *mut c_void,
    ) {
        let own = get(module)?;
        given(name)?;
        let name = CStr::from_ptr(name);
        let found = match own.program()? {
            Some(program) => program.variable(name),
            None => (name == VARIABLE).then(|| {
                let start = own.variable.as_ptr().expose_provenance();
                (ptr::with_exposed_provenance_mut(start), size_of_val(&*own.variable))
            }),
        };
        let (start, bytes) = found.ok_or(ZE_RESULT_ERROR_INVALID_GLOBAL_NAME)?;
        offer(size, bytes);
        offer(out, start);
        Ok(())
    }

    fn zeModuleGetFunctionPointer(
        module: ze_module_handle_t, name: *const c_char, out: *mut *mut c_void,
    ) {
        let own = get(module)?;
        given(name)?;
        let program = own.program()?.ok_or(ZE_RESULT_ERROR_INVALID_FUNCTION_NAME)?;
        put(out, program.function(CStr::from_ptr(name)).ok_or(ZE_RESULT_ERROR_INVALID_FUNCTION_NAME)?)
    }
}
