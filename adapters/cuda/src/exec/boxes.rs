//! Copies of boxes whose ends are linear memory or arrays.

use std::any::Any;
use std::sync::Arc;

use ur::object::{Error, Result};
use ur::stream::Pitched;

use super::gpu::Gpu;
use super::remote::copy_described;
use super::work::{described, rows};
use crate::cu::sys::{CUDA_MEMCPY3D, CUarray, CUmemorytype, CUstream};

/// One end of a copy.
#[derive(Clone, Copy)]
pub enum BoxEnd {
    Memory(Pitched),
    /// Where the box begins in an array: bytes, rows, slices. Layers are slices.
    Array {
        raw: CUarray,
        origin: [usize; 3],
    },
}

impl BoxEnd {
    /// The end that begins so many slices later.
    fn behind(self, slices: usize) -> Self {
        match self {
            Self::Memory(at) => Self::Memory(Pitched {
                addr: at.addr.wrapping_add(slices * at.slice_pitch),
                ..at
            }),
            Self::Array {
                raw,
                origin: [x, y, z],
            } => Self::Array {
                raw,
                origin: [x, y, z + slices],
            },
        }
    }

    /// The rows of a slice that the driver steps over, if it can step from slice to slice.
    fn rows(&self, [_, height, depth]: [usize; 3]) -> Option<usize> {
        match self {
            Self::Memory(at) if depth > 1 => rows(at).filter(|rows| *rows >= height),
            _ => Some(height),
        }
    }

    /// Linear memory in its place, as far as a description of two boxes needs it.
    fn pitched(&self, [width, ..]: [usize; 3]) -> Pitched {
        match *self {
            Self::Memory(at) => at,
            Self::Array { .. } => Pitched {
                addr: 0,
                row_pitch: width,
                slice_pitch: width,
            },
        }
    }
}

/// Copies that are one command.
pub struct Boxes {
    all: Vec<CUDA_MEMCPY3D>,
    /// The objects behind the ends, while a submission is to come.
    _keeps: Vec<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the handles in the descriptions are those of objects that `_keeps` holds, which may be used from any
// thread.
unsafe impl Send for Boxes {}
// SAFETY: as for `Send`.
unsafe impl Sync for Boxes {}

impl Boxes {
    /// A copy of `region` (bytes, rows, slices), none of which is 0. `keeps` holds the arrays.
    pub fn new(
        dst: BoxEnd,
        src: BoxEnd,
        region: [usize; 3],
        keeps: Vec<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        let mut own = Self::keeping(keeps);
        own.add(dst, src, region);
        own
    }

    /// No copies yet. `keeps` holds the arrays of those to come.
    pub fn keeping(keeps: Vec<Arc<dyn Any + Send + Sync>>) -> Self {
        Self {
            all: Vec::new(),
            _keeps: keeps,
        }
    }

    /// Adds a further copy to the command.
    pub fn add(&mut self, dst: BoxEnd, src: BoxEnd, region: [usize; 3]) {
        let [width, height, depth] = region;
        if dst.rows(region).is_some() && src.rows(region).is_some() {
            return self.all.push(one(dst, src, region));
        }
        let slices = (0..depth).map(|z| one(dst.behind(z), src.behind(z), [width, height, 1]));
        self.all.extend(slices);
    }

    /// Submits the copies to a stream. The context is current.
    pub fn enqueue(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        self.all.iter().try_for_each(|what| match is_within(what) {
            true => copy_within(gpu, stream, what),
            false => copy(gpu, stream, what),
        })
    }

    /// Submits copies between the memory or arrays of two devices, one of which is the stream's. The context of
    /// `gpu` is current.
    pub fn enqueue_between(&self, gpu: &Gpu, stream: CUstream, dst: &Gpu, src: &Gpu) -> Result<()> {
        let mut all = self.all.iter();
        all.try_for_each(|what| copy_described(gpu, stream, dst, src, what))
    }

    /// The description, if the command is one call.
    pub fn only(&self) -> Option<&CUDA_MEMCPY3D> {
        match &self.all[..] {
            [only] if !is_within(only) => Some(only),
            _ => None,
        }
    }
}

/// Whether both ends are in one array. The driver (580.159) loses such a copy between layers of 2D images.
fn is_within(what: &CUDA_MEMCPY3D) -> bool {
    let array = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    let arrays = what.srcMemoryType == array && what.dstMemoryType == array;
    arrays && what.srcArray == what.dstArray
}

fn copy(gpu: &Gpu, stream: CUstream, what: &CUDA_MEMCPY3D) -> Result<()> {
    // SAFETY: the caller keeps linear memory and arrays until the command has ended.
    let code = unsafe { (gpu.api.cuMemcpy3DAsync)(what, stream) };
    gpu.check(code, "cuMemcpy3DAsync")
}

/// A copy from an array to linear memory, and back from there. `UNSUPPORTED_FEATURE` if the driver does not
/// allocate in the order of a stream.
fn copy_within(gpu: &Gpu, stream: CUstream, what: &CUDA_MEMCPY3D) -> Result<()> {
    let calls = gpu.api.cuMemAllocAsync.zip(gpu.api.cuMemFreeAsync);
    let (alloc, free) = calls.ok_or(Error::unsupported())?;
    let (linear, mut at) = (CUmemorytype::CU_MEMORYTYPE_DEVICE, 0);
    let bytes = what.WidthInBytes * what.Height * what.Depth;
    // SAFETY: the context is current, the stream is live, and the output has room.
    let code = unsafe { alloc(&mut at, bytes, stream) };
    gpu.check(code, "cuMemAllocAsync")?;
    let (mut out, mut back) = (*what, *what);
    (out.dstMemoryType, out.dstDevice) = (linear, at);
    (out.dstPitch, out.dstHeight) = (what.WidthInBytes, what.Height);
    (out.dstXInBytes, out.dstY, out.dstZ) = (0, 0, 0);
    (back.srcMemoryType, back.srcDevice) = (linear, at);
    (back.srcPitch, back.srcHeight) = (what.WidthInBytes, what.Height);
    (back.srcXInBytes, back.srcY, back.srcZ) = (0, 0, 0);
    let copied = copy(gpu, stream, &out).and_then(|()| copy(gpu, stream, &back));
    // SAFETY: only the two copies use the memory, and both come before its free.
    let freed = gpu.check(unsafe { free(at, stream) }, "cuMemFreeAsync");
    copied.and(freed)
}

fn one(dst: BoxEnd, src: BoxEnd, region: [usize; 3]) -> CUDA_MEMCPY3D {
    let height = region[1];
    let end = |end: BoxEnd| (end.pitched(region), end.rows(region).unwrap_or(height));
    let mut what = described(end(dst), end(src), region);
    if let BoxEnd::Array { raw, origin } = dst {
        what.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
        what.dstArray = raw;
        [what.dstXInBytes, what.dstY, what.dstZ] = origin;
    }
    if let BoxEnd::Array { raw, origin } = src {
        what.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_ARRAY;
        what.srcArray = raw;
        [what.srcXInBytes, what.srcY, what.srcZ] = origin;
    }
    what
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(row_pitch: usize, slice_pitch: usize) -> BoxEnd {
        BoxEnd::Memory(Pitched {
            addr: 0x1000,
            row_pitch,
            slice_pitch,
        })
    }

    #[test]
    fn slices_that_are_no_whole_rows_are_copied_one_by_one() {
        let raw = std::ptr::without_provenance_mut(0x77);
        let array = BoxEnd::Array {
            raw,
            origin: [4, 1, 2],
        };
        let of = |end| Boxes::new(array, end, [8, 3, 5], Vec::new()).all;
        let [whole] = of(memory(16, 64))[..] else {
            panic!("one copy");
        };
        assert_eq!((whole.srcPitch, whole.srcHeight), (16, 4));
        assert_eq!((whole.dstXInBytes, whole.dstY, whole.dstZ), (4, 1, 2));
        assert_eq!((whole.WidthInBytes, whole.Height, whole.Depth), (8, 3, 5));
        let slices = of(memory(16, 60));
        assert_eq!(slices.len(), 5);
        for (z, slice) in slices.iter().enumerate() {
            assert_eq!(slice.srcDevice, 0x1000 + 60 * z as u64);
            assert_eq!((slice.dstZ, slice.Depth), (2 + z, 1));
        }
    }
}
