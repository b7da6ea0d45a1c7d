//! Copies of boxes whose ends are linear memory or arrays.

use std::any::Any;
use std::sync::Arc;

use ur::object::Result;
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
        self.all.iter().try_for_each(|what| {
            // SAFETY: the caller keeps linear memory and arrays until the command has ended.
            let code = unsafe { (gpu.api.cuMemcpy3DAsync)(what, stream) };
            gpu.check(code, "cuMemcpy3DAsync")
        })
    }

    /// Submits copies between the memory or arrays of two devices, one of which is the stream's. The context of
    /// `gpu` is current.
    pub fn enqueue_between(&self, gpu: &Gpu, stream: CUstream, dst: &Gpu, src: &Gpu) -> Result<()> {
        let mut all = self.all.iter();
        all.try_for_each(|what| copy_described(gpu, stream, dst, src, what))
    }

    /// The description, if the command is one copy.
    pub fn only(&self) -> Option<&CUDA_MEMCPY3D> {
        match &self.all[..] {
            [only] => Some(only),
            _ => None,
        }
    }
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
