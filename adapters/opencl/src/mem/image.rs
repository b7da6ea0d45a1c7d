//! Commands on images.

use std::ffi::c_void;
use std::ptr;

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Object, Result};
use ur::stream::{Queue, Work};

use super::Mem;
use crate::OpenCl;
use crate::cl::check;
use crate::exec::{Native, Slot};

/// Bytes from row to row and from slice to slice of host memory. 0 if they are contiguous.
#[derive(Clone, Copy)]
struct Pitch {
    row: usize,
    slice: usize,
}

fn origin(from: ur_rect_offset_t) -> [usize; 3] {
    [from.x as usize, from.y as usize, from.z as usize]
}

fn region(from: ur_rect_region_t) -> [usize; 3] {
    [
        from.width as usize,
        from.height as usize,
        from.depth as usize,
    ]
}

impl Mem {
    /// The pitches for the driver, once the box is checked. Drivers step by the row pitch from layer to layer of
    /// a 1D array, whose layers have one row.
    fn pitch(
        &self,
        (at, size): (ur_rect_offset_t, ur_rect_region_t),
        (row, slice): (usize, usize),
    ) -> Result<Pitch> {
        let shape = self.shape()?;
        let part = shape.part(at, size)?;
        let full = shape.pitch(&part, row, slice)?;
        Ok(match (shape.has_slices(), shape.has_layered_rows()) {
            (true, true) => Pitch {
                row: full.slice,
                slice: 0,
            },
            (true, false) => Pitch { row, slice },
            (false, _) => Pitch { row, slice: 0 },
        })
    }

    pub fn read_image(
        _: &Object<Queue<OpenCl>>,
        image: &Object<Self>,
        at: ur_rect_offset_t,
        size: ur_rect_region_t,
        row_pitch: usize,
        slice_pitch: usize,
        dst: *mut c_void,
    ) -> Result<Work<OpenCl>> {
        let pitch = image.pitch((at, size), (row_pitch, slice_pitch))?;
        let (mem, to) = (image.mem.clone(), dst.expose_provenance());
        let (from, size) = (origin(at), region(size));
        Ok(Work::Native(Native::new(move |api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let (from, size) = (from.as_ptr(), size.as_ptr());
            let to = ptr::with_exposed_provenance_mut(to);
            let read = api.core.clEnqueueReadImage;
            // SAFETY: queue and image are alive, and the caller keeps memory for the region.
            let code = unsafe {
                read(
                    queue,
                    mem.raw(),
                    CL_FALSE,
                    from,
                    size,
                    pitch.row,
                    pitch.slice,
                    to,
                    count,
                    waits,
                    event,
                )
            };
            check(code, "clEnqueueReadImage")
        })))
    }

    pub fn write_image(
        _: &Object<Queue<OpenCl>>,
        image: &Object<Self>,
        at: ur_rect_offset_t,
        size: ur_rect_region_t,
        row_pitch: usize,
        slice_pitch: usize,
        src: *mut c_void,
    ) -> Result<Work<OpenCl>> {
        let pitch = image.pitch((at, size), (row_pitch, slice_pitch))?;
        let (mem, from) = (image.mem.clone(), src.expose_provenance());
        let (to, size) = (origin(at), region(size));
        Ok(Work::Native(Native::new(move |api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let (to, size) = (to.as_ptr(), size.as_ptr());
            let from = ptr::with_exposed_provenance(from);
            let write = api.core.clEnqueueWriteImage;
            // SAFETY: queue and image are alive, and the caller keeps memory of the region.
            let code = unsafe {
                write(
                    queue,
                    mem.raw(),
                    CL_FALSE,
                    to,
                    size,
                    pitch.row,
                    pitch.slice,
                    from,
                    count,
                    waits,
                    event,
                )
            };
            check(code, "clEnqueueWriteImage")
        })))
    }
}

pub fn copy_image(
    _: &Object<Queue<OpenCl>>,
    src: &Object<Mem>,
    dst: &Object<Mem>,
    from: ur_rect_offset_t,
    to: ur_rect_offset_t,
    size: ur_rect_region_t,
) -> Result<Work<OpenCl>> {
    src.shape()?.part(from, size)?;
    dst.shape()?.part(to, size)?;
    let (source, target) = (src.mem.clone(), dst.mem.clone());
    let (from, to, size) = (origin(from), origin(to), region(size));
    Ok(Work::Native(Native::new(move |api, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let (from, to, size) = (from.as_ptr(), to.as_ptr(), size.as_ptr());
        let copy = api.core.clEnqueueCopyImage;
        // SAFETY: queue and images are alive.
        let code = unsafe {
            copy(
                queue,
                source.raw(),
                target.raw(),
                from,
                to,
                size,
                count,
                waits,
                event,
            )
        };
        check(code, "clEnqueueCopyImage")
    })))
}
