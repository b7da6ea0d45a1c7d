//! Fills: the driver's memset for patterns of one, two and four bytes, own kernels for others.
//!
//! A launch carries its pattern, so that a fill reads no host memory when it runs.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::{Pitched, Work};

use super::gpu::Gpu;
use crate::Cuda;
use crate::cu::sys::{CUDA_MEMSET_NODE_PARAMS_v1, CUfunction, CUmodule, CUstream};
use crate::cu::{Api, LAUNCH, RelaxedCapture, check, launch_of};

/// The kernels of `fill.cu`. The driver requires the zero behind them.
const PTX: &str = concat!(include_str!("fill.ptx"), "\0");

/// Work-items of a work-group.
pub const GROUP_ITEMS: u32 = 256;

/// Most work-groups of a launch, enough for any device. Each loops over its share.
const MAX_GROUPS: u64 = 1024;

/// Bytes of the longest pattern that a launch carries.
const MAX_PATTERN_BYTES: usize = 2048;

/// The loaded kernels.
pub struct Fills {
    module: CUmodule,
    sixteen: CUfunction,
    eight: CUfunction,
    words: CUfunction,
    bytes: CUfunction,
    mailbox: CUfunction,
}

impl Fills {
    fn load(api: &Api) -> Result<Self> {
        let mut module = null_mut();
        // SAFETY: the text ends in a zero, and there are no options.
        let code = unsafe {
            (api.cuModuleLoadDataEx)(&mut module, PTX.as_ptr().cast(), 0, null(), null())
        };
        check(api, code, "cuModuleLoadDataEx")?;
        let found = Self::find(api, module);
        if found.is_err() {
            // SAFETY: no kernel of the module was launched.
            unsafe { (api.cuModuleUnload)(module) };
        }
        found
    }

    fn find(api: &Api, module: CUmodule) -> Result<Self> {
        let find = |name: &CStr| {
            let mut function = null_mut();
            // SAFETY: the module is loaded, and the name is a C string.
            let code = unsafe { (api.cuModuleGetFunction)(&mut function, module, name.as_ptr()) };
            check(api, code, "cuModuleGetFunction").map(|()| function)
        };
        Ok(Self {
            module,
            sixteen: find(c"ur_fill_16")?,
            eight: find(c"ur_fill_8")?,
            words: find(c"ur_fill_words")?,
            bytes: find(c"ur_fill_bytes")?,
            mailbox: find(c"ur_fill_posted")?,
        })
    }

    /// The kernel that runs a mailbox's fills: see `mailbox`.
    pub fn mailbox(&self) -> CUfunction {
        self.mailbox
    }

    pub fn unload(self, api: &Api) {
        // SAFETY: the caller promises that no kernel of the module runs any more.
        unsafe { (api.cuModuleUnload)(self.module) };
    }
}

impl Gpu {
    pub fn fills(&self) -> Result<&Fills> {
        if let Some(fills) = self.fills.get() {
            return Ok(fills);
        }
        let _relaxed = RelaxedCapture::new(self.api);
        // Two threads may load the kernels at once. The second copy is unloaded.
        if let Err(second) = self.fills.set(Fills::load(self.api)?) {
            second.unload(self.api);
        }
        self.fills.get().ok_or(Error::unsupported())
    }
}

/// The shortest pattern of 1, 2, 4, 8 or 16 bytes whose repetition is this one, else this one.
pub fn shortest(pattern: &[u8]) -> &[u8] {
    let repeats = |size: &usize| {
        pattern.len().is_multiple_of(*size)
            && pattern
                .chunks_exact(*size)
                .all(|part| part == &pattern[..*size])
    };
    let size = [1, 2, 4, 8, 16].into_iter().find(repeats);
    &pattern[..size.unwrap_or(pattern.len())]
}

fn bytes_of<const N: usize>(pattern: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| pattern[at % pattern.len()])
}

/// The 32-bit word that repeats the pattern, if the driver's memset can fill these bytes with it. Patterns
/// of a byte or a word are the commonest, and a word is written as fast as a byte.
#[inline(always)]
pub fn word(dst: usize, pattern: &[u8], bytes: usize) -> Option<u32> {
    let word = if let Ok(word) = pattern.try_into() {
        u32::from_ne_bytes(word)
    } else if let [byte] = *pattern {
        u32::from_ne_bytes([byte; 4])
    } else {
        u32::from(u16::from_ne_bytes(pattern.try_into().ok()?)) * 0x0001_0001
    };
    let even = (dst | bytes).is_multiple_of(4) && bytes > 0;
    even.then_some(word)
}

/// Repeats `pattern` over `bytes` at `dst`. The context is current.
pub fn linear(gpu: &Gpu, stream: CUstream, dst: usize, pattern: &[u8], bytes: usize) -> Result<()> {
    if bytes == 0 || pattern.is_empty() {
        return Ok(());
    }
    let pattern = shortest(pattern);
    let size = pattern.len();
    let (api, to) = (gpu.api, dst as u64);
    let even = dst.is_multiple_of(size) && bytes.is_multiple_of(size);
    // SAFETY: the caller keeps the range until the command has ended.
    let code = unsafe {
        match (size, even) {
            (1, _) => (api.cuMemsetD8Async)(to, pattern[0], bytes, stream),
            (2, true) => {
                let value = u16::from_ne_bytes(bytes_of(pattern));
                (api.cuMemsetD16Async)(to, value, bytes / 2, stream)
            }
            (4, true) => {
                let value = u32::from_ne_bytes(bytes_of(pattern));
                (api.cuMemsetD32Async)(to, value, bytes / 4, stream)
            }
            _ => return by_kernel(gpu, stream, dst, pattern, bytes),
        }
    };
    gpu.check_at(code, "cuMemsetAsync", &[dst])
}

/// A by-value parameter of the kernels.
#[repr(C, align(16))]
struct Parameter<const N: usize>([u8; N]);

fn by_kernel(gpu: &Gpu, stream: CUstream, dst: usize, pattern: &[u8], bytes: usize) -> Result<()> {
    let fills = gpu.fills()?;
    let whole = |unit: usize| dst.is_multiple_of(unit) && bytes.is_multiple_of(unit);
    let size = pattern.len();
    let count = |unit: usize| (bytes / unit) as u64;
    if 16 % size == 0 && whole(16) {
        let value = Parameter(bytes_of::<16>(pattern));
        launch(gpu, stream, fills.sixteen, dst, count(16), &value, None)
    } else if 8 % size == 0 && whole(8) {
        let value = Parameter(bytes_of::<8>(pattern));
        launch(gpu, stream, fills.eight, dst, count(8), &value, None)
    } else if size.is_multiple_of(4) && size <= 64 && whole(4) {
        let value = Parameter(bytes_of::<64>(pattern));
        let words = Some(size as u32 / 4);
        launch(gpu, stream, fills.words, dst, count(4), &value, words)
    } else if size <= MAX_PATTERN_BYTES {
        let value = Parameter(bytes_of::<MAX_PATTERN_BYTES>(pattern));
        launch(
            gpu,
            stream,
            fills.bytes,
            dst,
            bytes as u64,
            &value,
            Some(size as u32),
        )
    } else {
        by_doubling(gpu, stream, dst, pattern, bytes)
    }
}

/// Writes a long pattern once, in parts, and doubles the filled part until the range is full.
fn by_doubling(
    gpu: &Gpu,
    stream: CUstream,
    dst: usize,
    pattern: &[u8],
    bytes: usize,
) -> Result<()> {
    for (at, part) in pattern.chunks(MAX_PATTERN_BYTES).enumerate() {
        linear(gpu, stream, dst + at * MAX_PATTERN_BYTES, part, part.len())?;
    }
    let mut done = pattern.len();
    while done < bytes {
        let more = done.min(bytes - done);
        // SAFETY: both ranges lie within the caller's range and do not overlap.
        let code =
            unsafe { (gpu.api.cuMemcpyAsync)((dst + done) as u64, dst as u64, more, stream) };
        check(gpu.api, code, "cuMemcpyAsync")?;
        done += more;
    }
    Ok(())
}

fn launch<const N: usize>(
    gpu: &Gpu,
    stream: CUstream,
    function: CUfunction,
    dst: usize,
    count: u64,
    value: &Parameter<N>,
    length: Option<u32>,
) -> Result<()> {
    let length = length.unwrap_or_default();
    let params: [*mut c_void; 4] = [
        (&raw const dst).cast_mut().cast(),
        (&raw const count).cast_mut().cast(),
        std::ptr::from_ref(value).cast_mut().cast(),
        (&raw const length).cast_mut().cast(),
    ];
    let groups = count.div_ceil(u64::from(GROUP_ITEMS)).clamp(1, MAX_GROUPS) as u32;
    let config = launch_of([groups, 1, 1], [GROUP_ITEMS, 1, 1], stream);
    // SAFETY: function and stream are alive, and there are all of the function's parameters. The driver
    // ignores one more. The caller keeps the range until the command has ended.
    let code = unsafe { gpu.api.launch(&config, function, params.as_ptr(), null()) };
    check(gpu.api, code, LAUNCH)
}

/// Repeats `pattern` over each row of `region` (bytes, rows, slices). The context is current.
pub fn rect(
    gpu: &Gpu,
    stream: CUstream,
    dst: Pitched,
    pattern: &[u8],
    region: [usize; 3],
) -> Result<()> {
    let [width, height, depth] = region;
    if width == 0 || height == 0 || pattern.is_empty() {
        return Ok(());
    }
    if dst.row_pitch == width && height > 1 && width.is_multiple_of(pattern.len()) {
        let each = |slice: usize| {
            let at = dst.addr + slice * dst.slice_pitch;
            linear(gpu, stream, at, pattern, width * height)
        };
        return (0..depth).try_for_each(each);
    }
    let pattern = shortest(pattern);
    let size = pattern.len();
    let even = [dst.addr, dst.row_pitch, dst.slice_pitch, width];
    let even = even.iter().all(|number| number.is_multiple_of(size));
    for slice in 0..depth {
        let at = dst.addr + slice * dst.slice_pitch;
        if even && size <= 4 {
            plane(gpu, stream, at, dst.row_pitch, pattern, [width, height])?;
        } else {
            let each = |row: usize| linear(gpu, stream, at + row * dst.row_pitch, pattern, width);
            (0..height).try_for_each(each)?;
        }
    }
    Ok(())
}

/// Fills one plane of rows by the driver's memset.
fn plane(
    gpu: &Gpu,
    stream: CUstream,
    at: usize,
    pitch: usize,
    pattern: &[u8],
    [width, height]: [usize; 2],
) -> Result<()> {
    let (api, to) = (gpu.api, at as u64);
    // SAFETY: the caller keeps the rows until the command has ended.
    let code = unsafe {
        match pattern.len() {
            1 => (api.cuMemsetD2D8Async)(to, pitch, pattern[0], width, height, stream),
            2 => {
                let value = u16::from_ne_bytes(bytes_of(pattern));
                (api.cuMemsetD2D16Async)(to, pitch, value, width / 2, height, stream)
            }
            4 => {
                let value = u32::from_ne_bytes(bytes_of(pattern));
                (api.cuMemsetD2D32Async)(to, pitch, value, width / 4, height, stream)
            }
            _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
        }
    };
    gpu.check_at(code, "cuMemsetD2DAsync", &[at])
}

/// The driver's description of a fill of at least a byte. None unless its memset can do it in one plane.
pub fn described(work: &Work<Cuda>) -> Option<CUDA_MEMSET_NODE_PARAMS_v1> {
    let (dst, pattern, [width, height]) = match work {
        Work::Fill {
            dst,
            pattern,
            bytes,
        } => {
            let line = Pitched {
                addr: *dst,
                row_pitch: *bytes,
                slice_pitch: *bytes,
            };
            (line, pattern, [*bytes, 1])
        }
        Work::FillRect {
            dst,
            pattern,
            region: [width, height, 1],
        } => (*dst, pattern, [*width, *height]),
        _ => return None,
    };
    if width == 0 || height == 0 || pattern.is_empty() {
        return None;
    }
    let pattern = shortest(pattern);
    let size = pattern.len();
    // The pitch of a single row is ignored.
    let pitch = if height == 1 { 0 } else { dst.row_pitch };
    let even = [dst.addr, pitch, width];
    let even = even.iter().all(|number| number.is_multiple_of(size));
    let value = match size {
        1 => u32::from(pattern[0]),
        2 => u32::from(u16::from_ne_bytes(bytes_of(pattern))),
        4 => u32::from_ne_bytes(bytes_of(pattern)),
        _ => return None,
    };
    even.then_some(CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: dst.addr as u64,
        pitch,
        value,
        elementSize: size as u32,
        width: width / size,
        height,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_patterns_are_short_ones() {
        assert_eq!(shortest(&[7; 16]), [7]);
        assert_eq!(shortest(&[1, 2, 1, 2]), [1, 2]);
        assert_eq!(shortest(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(shortest(&[0, 0, 0, 1, 0, 0, 0, 1]), [0, 0, 0, 1]);
    }
}
