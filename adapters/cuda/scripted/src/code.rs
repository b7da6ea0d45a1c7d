//! Modules and kernels.
//!
//! The adapter's own kernels, which repeat patterns, run. Some of ur-conformance's run, too. Every other name
//! except `missing` is a kernel without parameters that does nothing.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use crate::driver::*;
use crate::stream::Command;
use crate::strict::{Code, hold_idle, hold_loaded};

type Handle = *mut c_void;

const JIT_ERROR_LOG_BUFFER: c_int = 5;

/// The linker's message for any input.
const LINK_LOG: &CStr = c"error : Undefined reference to 'absent'";

/// Kernels over 32-bit words. Each work-item handles the word at its index. Numbers count up from a base.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Writes numbers.
    Iota,
    /// Adds one number to every word.
    Add,
    /// Adds two arrays of words.
    Sum,
    /// Counts the words that differ from the numbers.
    Verify,
    /// Writes the words of an image, which it takes as a surface or texture.
    Texels,
    /// Writes numbers to an image, which it takes as a surface.
    Paint,
}

impl Kernel {
    fn find(name: &str) -> Option<Self> {
        Some(match name {
            "iota" => Self::Iota,
            "add" => Self::Add,
            "sum" => Self::Sum,
            "verify" => Self::Verify,
            "texels" => Self::Texels,
            "paint" => Self::Paint,
            _ => return None,
        })
    }

    /// The address and the size in bytes of each variable.
    fn parameters(self) -> &'static [(usize, usize)] {
        match self {
            Self::Iota | Self::Add | Self::Paint => &[(0, 8), (8, 4)],
            Self::Texels => &[(0, 8), (8, 8)],
            Self::Sum => &[(0, 8), (8, 8), (16, 8)],
            Self::Verify => &[(0, 8), (8, 4), (16, 8)],
        }
    }

    /// The input or output of a kernel, at its start.
    pub fn touches(self, [one, two, three]: [usize; 3]) -> Vec<usize> {
        match self {
            Self::Iota | Self::Add | Self::Paint => vec![one],
            Self::Texels => vec![one, two],
            Self::Sum => vec![one, two, three],
            Self::Verify => vec![one, three],
        }
    }

    /// The argument that is a surface or texture.
    fn image(self) -> Option<usize> {
        match self {
            Self::Paint => Some(0),
            Self::Texels => Some(1),
            _ => None,
        }
    }

    /// # Safety
    /// Each address has the given number of words.
    pub unsafe fn run(self, [one, two, three]: [usize; 3], items: usize) {
        let at = |start: usize, item: usize| -> *mut u32 {
            std::ptr::with_exposed_provenance_mut(start + 4 * item)
        };
        for item in 0..items {
            // SAFETY: the caller passes memory that every item lies in.
            unsafe {
                let own = at(one, item);
                let number = (two as u32).wrapping_add(item as u32);
                match self {
                    Self::Iota | Self::Paint => own.write(number),
                    Self::Texels => own.write(at(two, item).read()),
                    Self::Add => own.write(own.read().wrapping_add(two as u32)),
                    Self::Sum => {
                        own.write(at(two, item).read().wrapping_add(at(three, item).read()));
                    }
                    Self::Verify if own.read() == number => {}
                    Self::Verify => {
                        let wrong = std::sync::atomic::AtomicU32::from_ptr(at(three, 0));
                        wrong.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *const Handle,
) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.acts("cuModuleLoadDataEx") {
        return code;
    }
    // SAFETY: text that ends with a NUL.
    let text = unsafe { CStr::from_ptr(image) }.to_bytes();
    let broken = text.windows(8).any(|word| word == b"nothing;");
    if broken || !text.starts_with(b".version") {
        let text = c"no such instruction";
        for at in 0..count as usize {
            // SAFETY: the list has the given number of options. Option 5 is the error buffer, which has room.
            unsafe {
                if *options.add(at) == 5 {
                    let log = (*values.add(at)).cast::<c_char>();
                    text.as_ptr().copy_to(log, text.count_bytes() + 1);
                }
            }
        }
        // `CUDA_ERROR_INVALID_PTX`.
        return 218;
    }
    let name = driver.name();
    for (own, bytes) in variables_of(&String::from_utf8_lossy(text)) {
        driver.variables.insert((name, own), bytes);
    }
    driver.modules.insert(name, ());
    // SAFETY: room for a handle, as for all outputs here.
    unsafe { module.write(std::ptr::without_provenance_mut(name)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.called("cuModuleUnload") {
        return code;
    }
    driver.variables.retain(|(own, _), _| *own != module.addr());
    match driver.modules.remove(&module.addr()) {
        Some(()) => SUCCESS,
        None => code(driver.broken("a module unloaded twice")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuModuleGetFunction") {
        return code;
    }
    if !driver.modules.contains_key(&module.addr()) {
        return code(driver.broken("a function of a dead module"));
    }
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    if name == "missing" || name.ends_with("_with_offset") {
        return NOT_FOUND;
    }
    let handle = driver.name();
    driver.functions.insert(handle, name);
    driver.modules_of.insert(handle, module.addr());
    // SAFETY: the caller's output has room for a handle.
    unsafe { function.write(std::ptr::without_provenance_mut(handle)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, function: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuFuncGetName") {
        return code;
    }
    let Some(text) = driver.functions.get(&function.addr()).cloned() else {
        return code(driver.broken("the name of what is no function"));
    };
    // Names live as long as their modules; few tests ask.
    let text = CString::new(text).expect("no zero within").into_raw();
    // SAFETY: the caller's output has room for an address.
    unsafe { name.write(text) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetModule(module: *mut Handle, function: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuFuncGetModule") {
        return code;
    }
    let Some(own) = driver.modules_of.get(&function.addr()) else {
        return code(driver.broken("the module of what is no function"));
    };
    // SAFETY: the caller's output has room for a handle.
    unsafe { module.write(std::ptr::without_provenance_mut(*own)) };
    SUCCESS
}

/// Parses `.visible .global .align A .b8 NAME[BYTES] = {VALUES};`.
fn variables_of(text: &str) -> Vec<(String, Box<[u8]>)> {
    let lines = text.lines();
    let lines = lines.filter_map(|line| line.trim().strip_prefix(".visible .global"));
    let variable = |line: &str| {
        let (head, rest) = line.split_once('[')?;
        let (size, rest) = rest.split_once(']')?;
        let name = head.split_whitespace().last()?.to_owned();
        let mut bytes = vec![0; size.parse().ok()?];
        let values = rest.trim_matches([' ', '=', '{', '}', ';']).split(',');
        for (byte, value) in bytes.iter_mut().zip(values) {
            *byte = value.trim().parse().unwrap_or_default();
        }
        Some((name, bytes.into_boxed_slice()))
    };
    lines.filter_map(variable).collect()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    addr: *mut u64,
    bytes: *mut usize,
    module: Handle,
    name: *const c_char,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuModuleGetGlobal") {
        return code;
    }
    if !driver.modules.contains_key(&module.addr()) {
        return code(driver.broken("a variable of a dead module"));
    }
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let Some(found) = driver.variables.get(&(module.addr(), name.into_owned())) else {
        return NOT_FOUND;
    };
    // SAFETY: the caller's outputs have room for an address and a size, or are null.
    unsafe {
        addr.write(found.as_ptr().expose_provenance() as u64);
        bytes.write(found.len());
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    count: c_uint,
    keys: *const c_int,
    values: *const Handle,
    _: *mut Handle,
) -> u32 {
    let code = hold().acts("cuLinkCreate").unwrap_or(INVALID_VALUE);
    for at in 0..count as usize {
        // SAFETY: the list has the given number of options. The buffer's size is another option and larger than this.
        unsafe {
            if keys.add(at).read() == JIT_ERROR_LOG_BUFFER {
                let log = LINK_LOG.to_bytes_with_nul();
                let buffer = values.add(at).read() as *mut u8;
                buffer.copy_from_nonoverlapping(log.as_ptr(), log.len());
            }
        }
    }
    code
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkAddData_v2() -> u32 {
    INVALID_VALUE
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkComplete() -> u32 {
    INVALID_VALUE
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLinkDestroy() -> u32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, what: c_int, _: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuFuncGetAttribute") {
        return code;
    }
    // SAFETY: the caller's output has room for a number. Attribute 0 is the largest work-group.
    unsafe { value.write(if what == 0 { 1024 } else { 0 }) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(_: Handle, _: c_int, _: c_int) -> u32 {
    hold().acts("cuFuncSetAttribute").unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetCacheConfig(_: Handle, _: c_int) -> u32 {
    hold().acts("cuFuncSetCacheConfig").unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetParamInfo(
    function: Handle,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> u32 {
    let driver = hold();
    let kernel = driver.functions.get(&function.addr());
    let kernel = kernel.and_then(|name| Kernel::find(name));
    let known = kernel.and_then(|kernel| kernel.parameters().get(index));
    let Some((at, size)) = known else {
        return INVALID_VALUE;
    };
    // SAFETY: the caller's outputs have room for a number each.
    unsafe {
        offset.write(*at);
        bytes.write(*size);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    groups: *mut c_int,
    _: Handle,
    _: c_int,
    _: usize,
) -> u32 {
    // SAFETY: the caller's output has room for a number.
    unsafe { groups.write(2) };
    let mut driver = hold();
    driver
        .acts("cuOccupancyMaxActiveBlocksPerMultiprocessor")
        .unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxPotentialBlockSize(
    groups: *mut c_int,
    items: *mut c_int,
    _: Handle,
    _: Handle,
    _: usize,
    _: c_int,
) -> u32 {
    // SAFETY: the caller's outputs have room for a number each.
    unsafe {
        groups.write(8);
        items.write(512);
    }
    let mut driver = hold();
    driver
        .acts("cuOccupancyMaxPotentialBlockSize")
        .unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    _: c_uint,
    stream: Handle,
    params: *const Handle,
    extra: *const Handle,
) -> u32 {
    launch(
        "cuLaunchKernel",
        function,
        [gx, gy, gz, x, y, z],
        stream,
        (params, extra),
    )
}

/// The configuration of the driver's newer launch function.
#[repr(C)]
pub struct Config {
    sizes: [c_uint; 6],
    local: c_uint,
    stream: Handle,
    attributes: Handle,
    count: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const Config,
    function: Handle,
    params: *const Handle,
    extra: *const Handle,
) -> u32 {
    // SAFETY: the caller passes a live description.
    let config = unsafe { &*config };
    launch(
        "cuLaunchKernelEx",
        function,
        config.sizes,
        config.stream,
        (params, extra),
    )
}

fn launch(
    name: &'static str,
    function: Handle,
    sizes: [c_uint; 6],
    stream: Handle,
    (params, extra): (*const Handle, *const Handle),
) -> u32 {
    let mut driver = hold_loaded(stream, Code::Function(function.addr()));
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs(name, own) {
        return code;
    }
    match made(&mut driver, function, params, extra, items_of(sizes)) {
        Ok(Some(command)) => code(driver.submit(stream.addr(), command)),
        Ok(None) => SUCCESS,
        Err(code) => code,
    }
}

/// The number of work-items of a launch.
pub fn items_of(sizes: [c_uint; 6]) -> usize {
    sizes.iter().map(|size| *size as usize).product()
}

/// The command that a launch adds to its stream; `None` for a kernel that does nothing.
pub fn made(
    driver: &mut FakeDriver,
    function: Handle,
    params: *const Handle,
    extra: *const Handle,
    items: usize,
) -> Result<Option<Command>, u32> {
    let Some(name) = driver.functions.get(&function.addr()).cloned() else {
        return driver.broken("a launch of no function");
    };
    if let Some(kernel) = Kernel::find(&name) {
        let mut args = [0; 3];
        for (index, (arg, (at, bytes))) in args.iter_mut().zip(kernel.parameters()).enumerate() {
            let mut number = [0; 8];
            // SAFETY: the parameters lie in the buffer at the second pointer of `extra`, or each at its own
            // address.
            unsafe {
                let from = match extra.is_null() {
                    true => (*params.add(index)).cast::<u8>(),
                    false => (*extra.add(1)).cast::<u8>().add(*at),
                };
                from.copy_to(number.as_mut_ptr(), *bytes);
            }
            *arg = usize::from_ne_bytes(number);
        }
        if let Some(at) = kernel.image() {
            match driver.texels_of(args[at]) {
                Some((start, bytes)) if bytes >= 4 * items => args[at] = start,
                Some(_) => return driver.broken("a launch beyond an image"),
                None => return driver.broken("a launch with an image that is none"),
            }
        }
        return Ok(Some(Command::Run {
            kernel,
            args,
            items,
        }));
    }
    if name == "ur_fill_posted" {
        // SAFETY: that kernel takes an address and a number.
        let (mailbox, launch) = unsafe {
            (
                (*params).cast::<usize>().read(),
                (*params.add(1)).cast::<u32>().read(),
            )
        };
        return Ok(Some(Command::Posted { mailbox, launch }));
    }
    let Some(unit) = name.strip_prefix("ur_fill_") else {
        return Ok(None);
    };
    // SAFETY: the adapter's kernels take an address, a count, the pattern and its length.
    let (dst, count, pattern, length) = unsafe {
        let length = (*params.add(3)).cast::<u32>().read() as usize;
        (
            (*params).cast::<usize>().read(),
            (*params.add(1)).cast::<usize>().read(),
            (*params.add(2)).cast::<u8>(),
            length,
        )
    };
    let (unit, bytes) = match unit {
        "16" => (16, 16),
        "8" => (8, 8),
        "words" => (4, length * 4),
        _ => (1, length),
    };
    // SAFETY: the pattern parameter of the kernel has that many bytes.
    let pattern = unsafe { std::slice::from_raw_parts(pattern, bytes) }.to_vec();
    Ok(Some(Command::Fill {
        dst,
        pattern,
        bytes: count * unit,
    }))
}
