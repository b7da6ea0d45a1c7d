//! The driver's calls for one piece of work.

use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::Result;
use ur::stream::{Pitched, Work};

use super::compiled::CompiledList;
use super::graph::Graph;
use super::lane::Stream;
use super::list::List;
use crate::LevelZero;
use crate::image::ImageCopy;
use crate::lz::*;
use crate::mem::WriteBack;

/// A command that only this backend has.
#[derive(Clone)]
pub enum Native {
    WriteBack(WriteBack),
    Compiled(Arc<CompiledList>),
    Image(Arc<ImageCopy>),
    /// Called with the list.
    Call(Arc<Run>),
    Graph(Arc<Graph>),
}

type Run = dyn Fn(&List) -> Result<()> + Send + Sync;

impl Native {
    pub fn call(run: impl Fn(&List) -> Result<()> + Send + Sync + 'static) -> Self {
        Self::Call(Arc::new(run))
    }

    /// The command, which keeps something until its submission.
    pub fn keeping(self, kept: Arc<impl Send + Sync + 'static>) -> Self {
        Self::call(move |list| {
            let _ = &kept;
            append(list, NO_EVENT, Work::Native(self.clone()))
        })
    }
}

const NO_EVENT: ze_event_handle_t = ze_event_handle_t::NULL;

/// Whether [`append`] makes one command of the work, which can signal an event itself.
pub fn is_one_command(work: &Work<LevelZero>) -> bool {
    match work {
        Work::Copy { dst, src, bytes } => *bytes > 0 && dst != src,
        Work::Fill { pattern, bytes, .. } => *bytes > 0 && pattern.len().is_power_of_two(),
        Work::Launch(launch) => !launch.is_empty(),
        Work::Native(Native::WriteBack(back)) => back.bytes > 0,
        Work::Native(Native::Compiled(_) | Native::Graph(_)) => true,
        _ => false,
    }
}

/// Prepares what work uses for its commands, which a lane appends next.
pub fn prepare(lane: &Stream, work: &Work<LevelZero>) -> Result<()> {
    match work {
        Work::Launch(launch) => launch.prepare(lane),
        Work::Native(Native::Image(copy)) => copy.prepare(lane),
        _ => Ok(()),
    }
}

/// Appends the commands of work that signals nothing to a list.
pub fn append_plain(to: &List, work: Work<LevelZero>) -> Result<()> {
    append(to, NO_EVENT, work)
}

/// Appends the commands of work to a list. `signal` is signalled by the one command of [`is_one_command`].
pub fn append(to: &List, signal: ze_event_handle_t, work: Work<LevelZero>) -> Result<()> {
    match work {
        Work::Marker => Ok(()),
        Work::Copy { dst, src, bytes } => copy(to, signal, dst, src, bytes),
        Work::CopyRect { dst, src, region } => copy_rect(to, dst, src, region),
        Work::Fill {
            dst,
            pattern,
            bytes,
        } => fill(to, signal, dst, &pattern, bytes),
        Work::FillRect {
            dst,
            pattern,
            region,
        } => fill_rect(to, dst, &pattern, region),
        Work::Prefetch {
            addr,
            bytes,
            to_host,
        } => prefetch(to, addr, bytes, to_host),
        Work::Advise {
            addr,
            bytes,
            advice,
        } => advise(to, addr, bytes, advice),
        Work::Launch(launch) => launch.append(to, signal),
        Work::Native(Native::WriteBack(back)) => copy(to, signal, back.dst, back.src, back.bytes),
        Work::Native(Native::Compiled(all)) => all.append(to, signal),
        Work::Native(Native::Image(copy)) => copy.append(to),
        Work::Native(Native::Call(run)) => {
            run(to)?;
            to.keep_order()
        }
        Work::Native(Native::Graph(all)) => all.append(to, signal),
    }
}

fn at<T>(addr: usize) -> *mut T {
    with_exposed_provenance_mut(addr)
}

#[inline(always)]
pub fn copy(
    to: &List,
    signal: ze_event_handle_t,
    dst: usize,
    src: usize,
    bytes: usize,
) -> Result<()> {
    if bytes == 0 || dst == src {
        return Ok(());
    }
    let append = to.api.zeCommandListAppendMemoryCopy;
    let src: *const c_void = with_exposed_provenance(src);
    // SAFETY: the caller keeps both ranges until the command has ended; no events are waited for.
    let code = unsafe { append(to.raw, at(dst), src, bytes, signal, 0, null_mut()) };
    check(code, "zeCommandListAppendMemoryCopy")?;
    to.keep_order()
}

/// One command of the list: a pattern whose length is a power of two.
fn fill_one(
    to: &List,
    signal: ze_event_handle_t,
    dst: usize,
    pattern: &[u8],
    bytes: usize,
) -> Result<()> {
    let append = to.api.zeCommandListAppendMemoryFill;
    let (start, length) = (pattern.as_ptr().cast(), pattern.len());
    // SAFETY: the caller keeps the range until the command has ended; the driver copies the pattern.
    let code = unsafe { append(to.raw, at(dst), start, length, bytes, signal, 0, null_mut()) };
    check(code, "zeCommandListAppendMemoryFill")?;
    to.keep_order()?;
    to.filled()
}

/// A fill. The driver takes patterns whose length is a power of two. Any other is written once, from parts of such
/// lengths, and then copied to behind itself, twice as much each time.
fn fill(
    to: &List,
    signal: ze_event_handle_t,
    dst: usize,
    pattern: &[u8],
    bytes: usize,
) -> Result<()> {
    if bytes == 0 || pattern.is_empty() {
        return Ok(());
    }
    if pattern.len().is_power_of_two() {
        return fill_one(to, signal, dst, pattern, bytes);
    }
    let mut done = 0;
    while let Some(rest) = pattern.get(done..).filter(|rest| !rest.is_empty()) {
        let part = &rest[..1 << rest.len().ilog2()];
        fill_one(to, NO_EVENT, dst + done, part, part.len())?;
        done += part.len();
    }
    while done < bytes {
        let part = done.min(bytes - done);
        copy(to, NO_EVENT, dst + done, dst, part)?;
        done += part;
    }
    Ok(())
}

fn contiguous(of: Pitched, [width, rows, slices]: [usize; 3]) -> bool {
    (rows == 1 && slices == 1)
        || (of.row_pitch == width && (slices == 1 || of.slice_pitch == width * rows))
}

fn copy_rect(to: &List, dst: Pitched, src: Pitched, region: [usize; 3]) -> Result<()> {
    let [width, rows, slices] = region;
    if width == 0 || rows == 0 || slices == 0 {
        return Ok(());
    }
    if contiguous(dst, region) && contiguous(src, region) {
        return copy(to, NO_EVENT, dst.addr, src.addr, width * rows * slices);
    }
    let numbers = [
        width,
        rows,
        slices,
        dst.row_pitch,
        dst.slice_pitch,
        src.row_pitch,
        src.slice_pitch,
    ];
    let small = numbers.map(|number| u32::try_from(number).ok());
    if let [
        Some(width),
        Some(height),
        Some(depth),
        Some(dst_pitch),
        Some(dst_slice),
        Some(src_pitch),
        Some(src_slice),
    ] = small
    {
        let region = ze_copy_region_t {
            width,
            height,
            depth,
            ..Default::default()
        };
        let append = to.api.zeCommandListAppendMemoryCopyRegion;
        // SAFETY: the caller keeps both blocks until the command has ended; no events are given.
        let code = unsafe {
            append(
                to.raw,
                at(dst.addr),
                &region,
                dst_pitch,
                dst_slice,
                at::<c_void>(src.addr),
                &region,
                src_pitch,
                src_slice,
                NO_EVENT,
                0,
                null_mut(),
            )
        };
        check(code, "zeCommandListAppendMemoryCopyRegion")?;
        return to.keep_order();
    }
    // The driver's pitches have 32 bits.
    for slice in 0..slices {
        for row in 0..rows {
            let offset = |of: Pitched| of.addr + row * of.row_pitch + slice * of.slice_pitch;
            copy(to, NO_EVENT, offset(dst), offset(src), width)?;
        }
    }
    Ok(())
}

/// Fills the first row, and copies it to the others: twice as many rows, and then slices, each time.
fn fill_rect(to: &List, dst: Pitched, pattern: &[u8], region: [usize; 3]) -> Result<()> {
    let [width, rows, slices] = region;
    if width == 0 || rows == 0 || slices == 0 {
        return Ok(());
    }
    if contiguous(dst, region) {
        return fill(to, NO_EVENT, dst.addr, pattern, width * rows * slices);
    }
    fill(to, NO_EVENT, dst.addr, pattern, width)?;
    let mut done = 1;
    while done < rows {
        let part = done.min(rows - done);
        let behind = Pitched {
            addr: dst.addr + done * dst.row_pitch,
            ..dst
        };
        copy_rect(to, behind, dst, [width, part, 1])?;
        done += part;
    }
    let mut done = 1;
    while done < slices {
        let part = done.min(slices - done);
        let behind = Pitched {
            addr: dst.addr + done * dst.slice_pitch,
            ..dst
        };
        copy_rect(to, behind, dst, [width, rows, part])?;
        done += part;
    }
    Ok(())
}

/// A hint: a driver that refuses it is no error. The interface moves memory to the device alone.
fn prefetch(to: &List, addr: usize, bytes: usize, to_host: bool) -> Result<()> {
    if to_host || bytes == 0 {
        return Ok(());
    }
    let append = to.api.zeCommandListAppendMemoryPrefetch;
    // SAFETY: the caller keeps the range until the command has ended.
    let code = unsafe { append(to.raw, at::<c_void>(addr), bytes) };
    if let Err(error) = check(code, "zeCommandListAppendMemoryPrefetch") {
        log::debug!("a prefetch has no effect: {:?}", error.code());
    }
    Ok(())
}

/// The hints, each with the driver's. Others have no counterpart.
const ADVICE: [(ur_usm_advice_flags_t, ze_memory_advice_t); 10] = [
    (
        UR_USM_ADVICE_FLAG_SET_READ_MOSTLY,
        ZE_MEMORY_ADVICE_SET_READ_MOSTLY,
    ),
    (
        UR_USM_ADVICE_FLAG_CLEAR_READ_MOSTLY,
        ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY,
    ),
    (
        UR_USM_ADVICE_FLAG_SET_PREFERRED_LOCATION,
        ZE_MEMORY_ADVICE_SET_PREFERRED_LOCATION,
    ),
    (
        UR_USM_ADVICE_FLAG_CLEAR_PREFERRED_LOCATION,
        ZE_MEMORY_ADVICE_CLEAR_PREFERRED_LOCATION,
    ),
    (
        UR_USM_ADVICE_FLAG_SET_NON_ATOMIC_MOSTLY,
        ZE_MEMORY_ADVICE_SET_NON_ATOMIC_MOSTLY,
    ),
    (
        UR_USM_ADVICE_FLAG_CLEAR_NON_ATOMIC_MOSTLY,
        ZE_MEMORY_ADVICE_CLEAR_NON_ATOMIC_MOSTLY,
    ),
    (UR_USM_ADVICE_FLAG_BIAS_CACHED, ZE_MEMORY_ADVICE_BIAS_CACHED),
    (
        UR_USM_ADVICE_FLAG_BIAS_UNCACHED,
        ZE_MEMORY_ADVICE_BIAS_UNCACHED,
    ),
    (
        UR_USM_ADVICE_FLAG_SET_PREFERRED_LOCATION_HOST,
        ZE_MEMORY_ADVICE_SET_SYSTEM_MEMORY_PREFERRED_LOCATION,
    ),
    (
        UR_USM_ADVICE_FLAG_CLEAR_PREFERRED_LOCATION_HOST,
        ZE_MEMORY_ADVICE_CLEAR_SYSTEM_MEMORY_PREFERRED_LOCATION,
    ),
];

fn advise(to: &List, addr: usize, bytes: usize, advice: ur_usm_advice_flags_t) -> Result<()> {
    let append = to.api.zeCommandListAppendMemAdvise;
    for (_, native) in ADVICE.iter().filter(|(flag, _)| advice.contains(*flag)) {
        // SAFETY: the caller keeps the range until the command has ended.
        let code = unsafe { append(to.raw, to.device.raw(), at::<c_void>(addr), bytes, *native) };
        if let Err(error) = check(code, "zeCommandListAppendMemAdvise") {
            log::debug!("a hint has no effect: {:?}", error.code());
        }
    }
    Ok(())
}
