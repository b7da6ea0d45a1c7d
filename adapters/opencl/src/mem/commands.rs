//! Commands on buffers, by handle and offset, and the migration of memory objects to a device.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::object::{Error, Handles, Object, Result};
use ur::stream::{MappedPointer, Pattern, Pitched, Queue, Work};

use super::Mem;
use crate::OpenCl;
use crate::cl::{self, MemRef, check};
use crate::exec::{Native, Slot, plain_pattern};
use crate::record::recorded;

impl Mem {
    pub fn map(
        &self,
        flags: ur_map_flags_t,
        offset: usize,
        bytes: usize,
    ) -> (MappedPointer, Work<OpenCl>) {
        let mapped = MappedPointer::default();
        let (mem, origin) = self.whole();
        let (mem, offset, lands) = (mem.clone(), origin + offset, mapped.clone());
        let flags = cl_map_flags::from(flags.0);
        let run = move |api: &cl::Api, slot: &Slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let mut code = 0;
            let map = api.core.clEnqueueMapBuffer;
            // SAFETY: queue and buffer are alive, and the range lies within the buffer.
            let at = unsafe {
                map(
                    queue,
                    mem.raw(),
                    CL_FALSE,
                    flags,
                    offset,
                    bytes,
                    count,
                    waits,
                    event,
                    &mut code,
                )
            };
            lands.set(at.expose_provenance());
            check(code, "clEnqueueMapBuffer")
        };
        (mapped, Work::Native(Native::that_answers(run)))
    }

    pub fn unmap(&self, addr: usize) -> Work<OpenCl> {
        let mem = self.whole().0.clone();
        Work::Native(Native::new(move |api, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let at = ptr::with_exposed_provenance_mut(addr);
            // SAFETY: queue and buffer are alive, and the address is one of its mappings.
            let code = unsafe {
                (api.core.clEnqueueUnmapMemObject)(queue, mem.raw(), at, count, waits, event)
            };
            check(code, "clEnqueueUnmapMemObject")
        }))
    }
}

/// The command that migrates objects to the queue's device. None for an empty list, or if the driver has no
/// such command.
pub fn bring(_: &Object<Queue<OpenCl>>, mems: Handles<'_, Mem>) -> Result<Option<Work<OpenCl>>> {
    let mems: Vec<MemRef> = mems.iter().map(|mem| mem.mem.clone()).collect();
    let first = mems.first();
    let migrate = first.and_then(|mem| mem.api().core.clEnqueueMigrateMemObjects);
    Ok(migrate.map(|migrate| {
        Work::Native(Native::new(move |_, slot| {
            let Slot {
                queue,
                count,
                waits,
                event,
            } = *slot;
            let raw: Vec<cl_mem> = mems.iter().map(MemRef::raw).collect();
            let number = raw.len() as cl_uint;
            // SAFETY: the queue is alive, and the closure holds the objects.
            let code = unsafe { migrate(queue, number, raw.as_ptr(), 0, count, waits, event) };
            check(code, "clEnqueueMigrateMemObjects")
        }))
    }))
}

fn host(addr: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(addr)
}

/// A command whose addresses are offsets into buffers.
pub fn on_buffers(
    work: Work<OpenCl>,
    dst: Option<&Object<Mem>>,
    src: Option<&Object<Mem>>,
) -> Work<OpenCl> {
    let own = |mem: &Object<Mem>| {
        let (whole, origin) = mem.whole();
        (whole.clone(), origin)
    };
    let (to, to_origin) = dst.map(own).unzip();
    let (from, from_origin) = src.map(own).unzip();
    // Host memory keeps its address.
    let (to_origin, from_origin) = (to_origin.unwrap_or(0), from_origin.unwrap_or(0));
    let shifted = |at: Pitched, origin| Pitched {
        addr: at.addr + origin,
        ..at
    };
    match (work, to) {
        (Work::Copy { bytes: 0, .. }, _) => Work::Marker,
        (Work::Copy { dst, src, bytes }, to) => {
            copy(dst + to_origin, src + from_origin, bytes, to, from)
        }
        (Work::CopyRect { dst, src, region }, to) => {
            let (dst, src) = (shifted(dst, to_origin), shifted(src, from_origin));
            copy_rect(dst, src, region, to, from)
        }
        (
            Work::Fill {
                dst,
                pattern,
                bytes,
            },
            Some(to),
        ) => fill(to, dst + to_origin, &pattern, bytes),
        (other, _) => other,
    }
}

fn copy(
    dst: usize,
    src: usize,
    bytes: usize,
    to: Option<MemRef>,
    from: Option<MemRef>,
) -> Work<OpenCl> {
    let both = to.clone().zip(from.clone());
    let native = Native::new(move |api, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let core = api.core;
        // SAFETY: the command holds its buffers, the engine checked the ranges, and the caller keeps
        // host memory until the command has ended.
        let code = unsafe {
            match (&to, &from) {
                (Some(to), Some(from)) => (core.clEnqueueCopyBuffer)(
                    queue,
                    from.raw(),
                    to.raw(),
                    src,
                    dst,
                    bytes,
                    count,
                    waits,
                    event,
                ),
                (Some(to), None) => {
                    let write = core.clEnqueueWriteBuffer;
                    write(
                        queue,
                        to.raw(),
                        CL_FALSE,
                        dst,
                        bytes,
                        host(src),
                        count,
                        waits,
                        event,
                    )
                }
                (None, Some(from)) => {
                    let read = core.clEnqueueReadBuffer;
                    read(
                        queue,
                        from.raw(),
                        CL_FALSE,
                        src,
                        bytes,
                        host(dst),
                        count,
                        waits,
                        event,
                    )
                }
                (None, None) => return Err(Error::unsupported()),
            }
        };
        check(code, "copying a buffer")
    });
    let Some((to, from)) = both else {
        return Work::Native(native);
    };
    Work::Native(native.recorded_by(move |recorder| {
        let copy = recorder.api().ext().clCommandCopyBufferKHR;
        let copy = copy.ok_or(Error::unsupported())?;
        let (from, to, none) = (from.raw(), to.raw(), ptr::null_mut());
        // SAFETY: the command buffer is recording, the command holds its buffers, and the engine checked
        // the ranges.
        let code = unsafe {
            copy(
                recorder.raw(),
                none,
                ptr::null(),
                from,
                to,
                src,
                dst,
                bytes,
                0,
                ptr::null(),
                none.cast(),
                none.cast(),
            )
        };
        recorded(code)
    }))
}

fn copy_rect(
    dst: Pitched,
    src: Pitched,
    region: [usize; 3],
    to: Option<MemRef>,
    from: Option<MemRef>,
) -> Work<OpenCl> {
    let both = to.clone().zip(from.clone());
    let native = Native::new(move |api, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let (core, zero) = (api.core, [0usize; 3]);
        let (at, from_at) = ([dst.addr, 0, 0], [src.addr, 0, 0]);
        let (dst_pitch, src_pitch) = (
            (dst.row_pitch, dst.slice_pitch),
            (src.row_pitch, src.slice_pitch),
        );
        // SAFETY: the command holds its buffers, the engine checked the ranges, and the caller keeps
        // host memory until the command has ended.
        let code = unsafe {
            match (&to, &from) {
                (Some(to), Some(from)) => (core.clEnqueueCopyBufferRect)(
                    queue,
                    from.raw(),
                    to.raw(),
                    from_at.as_ptr(),
                    at.as_ptr(),
                    region.as_ptr(),
                    src_pitch.0,
                    src_pitch.1,
                    dst_pitch.0,
                    dst_pitch.1,
                    count,
                    waits,
                    event,
                ),
                (Some(to), None) => (core.clEnqueueWriteBufferRect)(
                    queue,
                    to.raw(),
                    CL_FALSE,
                    at.as_ptr(),
                    zero.as_ptr(),
                    region.as_ptr(),
                    dst_pitch.0,
                    dst_pitch.1,
                    src_pitch.0,
                    src_pitch.1,
                    host(src.addr),
                    count,
                    waits,
                    event,
                ),
                (None, Some(from)) => (core.clEnqueueReadBufferRect)(
                    queue,
                    from.raw(),
                    CL_FALSE,
                    from_at.as_ptr(),
                    zero.as_ptr(),
                    region.as_ptr(),
                    src_pitch.0,
                    src_pitch.1,
                    dst_pitch.0,
                    dst_pitch.1,
                    host(dst.addr),
                    count,
                    waits,
                    event,
                ),
                (None, None) => return Err(Error::unsupported()),
            }
        };
        check(code, "copying a part of a buffer")
    });
    let Some((to, from)) = both else {
        return Work::Native(native);
    };
    Work::Native(native.recorded_by(move |recorder| {
        let copy = recorder.api().ext().clCommandCopyBufferRectKHR;
        let copy = copy.ok_or(Error::unsupported())?;
        let (at, from_at) = ([dst.addr, 0, 0], [src.addr, 0, 0]);
        let (from, to, none) = (from.raw(), to.raw(), ptr::null_mut());
        // SAFETY: the command buffer is recording, the command holds its buffers, and the engine checked
        // the ranges.
        let code = unsafe {
            copy(
                recorder.raw(),
                none,
                ptr::null(),
                from,
                to,
                from_at.as_ptr(),
                at.as_ptr(),
                region.as_ptr(),
                src.row_pitch,
                src.slice_pitch,
                dst.row_pitch,
                dst.slice_pitch,
                0,
                ptr::null(),
                none.cast(),
                none.cast(),
            )
        };
        recorded(code)
    }))
}

fn fill(to: MemRef, offset: usize, pattern: &Pattern, bytes: usize) -> Work<OpenCl> {
    let size = pattern.len();
    if bytes == 0 || size == 0 {
        return Work::Marker;
    }
    if !plain_pattern(offset, pattern) {
        let staged: Arc<[u8]> = pattern.iter().copied().cycle().take(bytes).collect();
        let from = staged.as_ptr().expose_provenance();
        let Work::Native(mut native) = copy(offset, from, bytes, Some(to), None) else {
            return Work::Marker;
        };
        native.host_memory = Some(staged);
        return Work::Native(native);
    }
    let (pattern, target) = (pattern.clone(), to.clone());
    let again = pattern.clone();
    let native = Native::new(move |api, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let fill = api.core.clEnqueueFillBuffer;
        // SAFETY: the command holds its buffer, the engine checked the range, and the call copies the
        // pattern.
        let code = unsafe {
            fill(
                queue,
                to.raw(),
                pattern.as_ptr().cast(),
                size,
                offset,
                bytes,
                count,
                waits,
                event,
            )
        };
        check(code, "clEnqueueFillBuffer")
    });
    Work::Native(native.recorded_by(move |recorder| {
        let fill = recorder.api().ext().clCommandFillBufferKHR;
        let fill = fill.ok_or(Error::unsupported())?;
        let (raw, to, none) = (recorder.raw(), target.raw(), ptr::null_mut());
        let from = again.as_ptr().cast();
        // SAFETY: the command buffer is recording, the command holds its buffer, the engine checked the
        // range, and the call copies the pattern.
        let code = unsafe {
            fill(
                raw,
                none,
                ptr::null(),
                to,
                from,
                size,
                offset,
                bytes,
                0,
                ptr::null(),
                none.cast(),
                none.cast(),
            )
        };
        recorded(code)
    }))
}
