//! The driver's calls for one piece of work.

use std::ptr::{null, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::object::Result;
use ur::stream::{Pitched, Work};

use super::boxes::Boxes;
use super::fill;
use super::gpu::Gpu;
use super::graph::Recorded;
use super::remote::Remote;
use crate::Cuda;
use crate::cu::sys::{self, CUDA_MEMCPY3D, CUmem_advise, CUmemorytype, CUstream};

/// A command that only this backend has.
#[derive(Clone)]
pub enum Native {
    /// Called with the stream; the context is current.
    Call(Arc<Run>),
    /// Commands that foreign code recorded.
    Graph(Arc<Recorded>),
    /// Copies to or from arrays.
    Boxes(Arc<Boxes>),
    /// A command on memory of other devices.
    Remote(Arc<Remote>),
}

type Run = dyn Fn(&Arc<Gpu>, CUstream) -> Result<()> + Send + Sync;

impl Native {
    pub fn call(run: impl Fn(&Arc<Gpu>, CUstream) -> Result<()> + Send + Sync + 'static) -> Self {
        Self::Call(Arc::new(run))
    }
}

/// The driver's device number of the host.
const HOST: sys::CUdevice = -1;

/// Submits work to a stream. The context is current.
///
/// The driver refuses memory of another device that this one does not reach. The work is then submitted as that
/// of a [`Remote`].
pub fn enqueue(gpu: &Arc<Gpu>, stream: CUstream, work: Work<Cuda>) -> Result<()> {
    let is_remote = Gpu::is_one_of_several() && ends(&work).is_some();
    if !is_remote {
        return enqueue_here(gpu, stream, work);
    }
    let submitted = enqueue_here(gpu, stream, work.clone());
    submitted.or_else(|error| match Remote::refused(gpu, work, error) {
        Some(remote) => remote.enqueue(gpu, stream),
        None => Err(error),
    })
}

/// A fill as [`enqueue`] submits it.
pub fn fill(
    gpu: &Arc<Gpu>,
    stream: CUstream,
    dst: usize,
    pattern: &[u8],
    bytes: usize,
) -> Result<()> {
    let filled = fill::linear(gpu, stream, dst, pattern, bytes);
    filled.or_else(|error| {
        let pattern = pattern.into();
        #[rustfmt::skip]
        let work = Work::Fill { dst, pattern, bytes };
        match Remote::refused(gpu, work, error) {
            Some(remote) => remote.enqueue(gpu, stream),
            None => Err(error),
        }
    })
}

/// The addresses of a copy's or fill's memory, its destination first.
pub fn ends(work: &Work<Cuda>) -> Option<[Option<usize>; 2]> {
    match work {
        Work::Copy { dst, src, .. } => Some([Some(*dst), Some(*src)]),
        Work::CopyRect { dst, src, .. } => Some([Some(dst.addr), Some(src.addr)]),
        Work::Fill { dst, .. } => Some([Some(*dst), None]),
        Work::FillRect { dst, .. } => Some([Some(dst.addr), None]),
        _ => None,
    }
}

/// Submits work on memory that the device reaches. The context is current.
pub fn enqueue_here(gpu: &Arc<Gpu>, stream: CUstream, work: Work<Cuda>) -> Result<()> {
    match work {
        Work::Marker => Ok(()),
        Work::Copy { dst, src, bytes } => copy(gpu, stream, dst, src, bytes),
        Work::CopyRect { dst, src, region } => copy_rect(gpu, stream, dst, src, region),
        Work::Fill {
            dst,
            pattern,
            bytes,
        } => fill::linear(gpu, stream, dst, &pattern, bytes),
        Work::FillRect {
            dst,
            pattern,
            region,
        } => fill::rect(gpu, stream, dst, &pattern, region),
        Work::Prefetch {
            addr,
            bytes,
            to_host,
        } => {
            prefetch(gpu, stream, addr, bytes, to_host);
            Ok(())
        }
        Work::Advise {
            addr,
            bytes,
            advice,
        } => {
            advise(gpu, addr, bytes, advice);
            Ok(())
        }
        Work::Launch(launch) => launch.enqueue(gpu, stream),
        Work::Native(Native::Call(run)) => run(gpu, stream),
        Work::Native(Native::Graph(recorded)) => recorded.launch(gpu, stream),
        Work::Native(Native::Boxes(boxes)) => boxes.enqueue(gpu, stream),
        Work::Native(Native::Remote(remote)) => remote.enqueue(gpu, stream),
    }
}

fn copy(gpu: &Gpu, stream: CUstream, dst: usize, src: usize, bytes: usize) -> Result<()> {
    if bytes == 0 || dst == src {
        return Ok(());
    }
    // SAFETY: the caller keeps both ranges until the command has ended.
    let code = unsafe { (gpu.api.cuMemcpyAsync)(dst as u64, src as u64, bytes, stream) };
    gpu.check_at(code, "cuMemcpyAsync", &[dst, src])
}

/// The slice pitch in rows, as the driver takes it; none if it is not a whole number of rows.
pub fn rows(at: &Pitched) -> Option<usize> {
    let whole = at.row_pitch > 0 && at.slice_pitch.is_multiple_of(at.row_pitch);
    whole.then(|| at.slice_pitch / at.row_pitch)
}

fn copy_rect(
    gpu: &Gpu,
    stream: CUstream,
    dst: Pitched,
    src: Pitched,
    region: [usize; 3],
) -> Result<()> {
    each_box(dst, src, region, |dst, src, region| {
        let what = described(dst, src, region);
        // SAFETY: the caller keeps both boxes until the command has ended.
        let code = unsafe { (gpu.api.cuMemcpy3DAsync)(&what, stream) };
        gpu.check_at(code, "cuMemcpy3DAsync", &[dst.0.addr, src.0.addr])
    })
}

/// One end of a box as the driver copies it: where it is, and its rows in a slice.
pub type BoxEnd = (Pitched, usize);

/// Calls `copy` for each box that the driver copies at once.
pub fn each_box(
    dst: Pitched,
    src: Pitched,
    region: [usize; 3],
    mut copy: impl FnMut(BoxEnd, BoxEnd, [usize; 3]) -> Result<()>,
) -> Result<()> {
    let [width, height, depth] = region;
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    if depth == 1 {
        return copy((dst, height), (src, height), region);
    }
    if let (Some(to), Some(from)) = (rows(&dst), rows(&src))
        && to >= height
        && from >= height
    {
        return copy((dst, to), (src, from), region);
    }
    let slice = |at: Pitched, slice: usize| Pitched {
        addr: at.addr + slice * at.slice_pitch,
        ..at
    };
    (0..depth).try_for_each(|z| {
        let (to, from) = ((slice(dst, z), height), (slice(src, z), height));
        copy(to, from, [width, height, 1])
    })
}

/// Describes a copy of at least a byte that is one box to the driver.
pub fn whole_box(work: &Work<Cuda>) -> Option<CUDA_MEMCPY3D> {
    let line = |addr, bytes| Pitched {
        addr,
        row_pitch: bytes,
        slice_pitch: bytes,
    };
    match *work {
        Work::Copy { dst, src, bytes } => {
            let (to, from) = ((line(dst, bytes), 1), (line(src, bytes), 1));
            Some(described(to, from, [bytes, 1, 1]))
        }
        Work::CopyRect { dst, src, region } if region.iter().all(|size| *size > 0) => {
            let height = region[1];
            let rows = |at: &Pitched| match region[2] {
                1 => Some(height),
                _ => rows(at).filter(|rows| *rows >= height),
            };
            Some(described((dst, rows(&dst)?), (src, rows(&src)?), region))
        }
        _ => None,
    }
}

pub fn described(
    (dst, dst_rows): (Pitched, usize),
    (src, src_rows): (Pitched, usize),
    [width, height, depth]: [usize; 3],
) -> CUDA_MEMCPY3D {
    // The pitch of a single row is unused, but the driver requires at least its width.
    let pitch = |at: Pitched| {
        if height == 1 && depth == 1 {
            width
        } else {
            at.row_pitch
        }
    };
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        srcHost: null(),
        srcDevice: src.addr as u64,
        srcArray: null_mut(),
        reserved0: null_mut(),
        srcPitch: pitch(src),
        srcHeight: src_rows,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
        dstHost: null_mut(),
        dstDevice: dst.addr as u64,
        dstArray: null_mut(),
        reserved1: null_mut(),
        dstPitch: pitch(dst),
        dstHeight: dst_rows,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    }
}

/// Prefetches memory. The driver refuses this for unmanaged memory, which is no error.
fn prefetch(gpu: &Gpu, stream: CUstream, addr: usize, bytes: usize, to_host: bool) {
    if let Some(prefetch) = gpu.api.cuMemPrefetchAsync.filter(|_| bytes > 0) {
        let to = if to_host { HOST } else { gpu.device };
        // SAFETY: the caller keeps the range until the command has ended.
        let code = unsafe { prefetch(addr as u64, bytes, to, stream) };
        if !code.is_success() {
            log::debug!("a prefetch was refused with {}", code.0);
        }
    }
}

/// The driver's advice for each flag, and whether it names the host instead of the device.
const ADVICE: [(ur_usm_advice_flags_t, CUmem_advise, bool); 12] = {
    use CUmem_advise::*;
    [
        (
            UR_USM_ADVICE_FLAG_DEFAULT,
            CU_MEM_ADVISE_UNSET_READ_MOSTLY,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_DEFAULT,
            CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_DEFAULT,
            CU_MEM_ADVISE_UNSET_ACCESSED_BY,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_SET_READ_MOSTLY,
            CU_MEM_ADVISE_SET_READ_MOSTLY,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_CLEAR_READ_MOSTLY,
            CU_MEM_ADVISE_UNSET_READ_MOSTLY,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_SET_PREFERRED_LOCATION,
            CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_CLEAR_PREFERRED_LOCATION,
            CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_SET_ACCESSED_BY_DEVICE,
            CU_MEM_ADVISE_SET_ACCESSED_BY,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_CLEAR_ACCESSED_BY_DEVICE,
            CU_MEM_ADVISE_UNSET_ACCESSED_BY,
            false,
        ),
        (
            UR_USM_ADVICE_FLAG_SET_PREFERRED_LOCATION_HOST,
            CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
            true,
        ),
        (
            UR_USM_ADVICE_FLAG_SET_ACCESSED_BY_HOST,
            CU_MEM_ADVISE_SET_ACCESSED_BY,
            true,
        ),
        (
            UR_USM_ADVICE_FLAG_CLEAR_ACCESSED_BY_HOST,
            CU_MEM_ADVISE_UNSET_ACCESSED_BY,
            true,
        ),
    ]
};

/// Applies a hint. The driver refuses hints for unmanaged memory, which is no error. It applies a hint at
/// once, without an order to streams.
fn advise(gpu: &Gpu, addr: usize, bytes: usize, advice: ur_usm_advice_flags_t) {
    let Some(advise) = gpu.api.cuMemAdvise.filter(|_| bytes > 0) else {
        return;
    };
    let wanted = ADVICE.iter().filter(|(flag, ..)| advice.contains(*flag));
    for (_, native, of_host) in wanted {
        let about = if *of_host { HOST } else { gpu.device };
        // SAFETY: the caller keeps the range for the call.
        let code = unsafe { advise(addr as u64, bytes, *native, about) };
        if !code.is_success() {
            log::debug!("advice was refused with {}", code.0);
        }
    }
}
