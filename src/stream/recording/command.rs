//! Checked commands, ready for a queue, a command buffer or a capture.
//!
//! Owns the meaning of an entry point's arguments. Knows neither order nor events.

#![allow(clippy::too_many_arguments)]

use crate::abi::*;
use crate::object::{Object, Result, ensure};
use crate::stream::context::usm::End;
use crate::stream::work::call::Call;
use crate::stream::work::transfer::{self, Box3, OUTSIDE};
use crate::stream::{Context, Driver, LaunchRequest, Pitched, Work};
use std::ffi::{CStr, c_void};

/// One command, and the objects that it uses while it may run.
pub(crate) struct Command<'a, D: Driver> {
    pub kind: ur_command_t,
    pub work: Work<D>,
    pub mems: [Option<&'a Object<D::Mem>>; 2],
    /// The request of a launch, from which a recording can make it again.
    pub launch: Option<(&'a Object<D::Kernel>, LaunchRequest<'a>)>,
    /// The host function of a host task.
    pub host: Option<Call>,
}

impl<'a, D: Driver> Command<'a, D> {
    #[inline]
    pub fn new(kind: ur_command_t, work: Work<D>) -> Self {
        Self {
            kind,
            work,
            mems: [None; 2],
            launch: None,
            host: None,
        }
    }

    fn on_buffers(
        kind: ur_command_t,
        work: Work<D>,
        dst: Option<&'a Object<D::Mem>>,
        src: Option<&'a Object<D::Mem>>,
    ) -> Self {
        Self {
            kind,
            work: D::on_buffers(work, dst, src),
            mems: [dst, src],
            launch: None,
            host: None,
        }
    }
}

/// The target of commands: a device in a context.
pub(crate) struct Target<'s, D: Driver> {
    pub context: &'s Object<Context<D>>,
    pub device: &'s Object<D::Device>,
}

impl<D: Driver> Clone for Target<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for Target<'_, D> {}

/// A box of bytes as entry points receive it: its offset, and the bytes between its rows and
/// slices.
#[derive(Clone, Copy)]
pub(crate) struct RectOffset {
    pub origin: ur_rect_offset_t,
    pub row_pitch: usize,
    pub slice_pitch: usize,
}

impl RectOffset {
    pub fn new(origin: ur_rect_offset_t, row_pitch: usize, slice_pitch: usize) -> Self {
        Self {
            origin,
            row_pitch,
            slice_pitch,
        }
    }

    fn of(&self, region: ur_rect_region_t) -> Result<Box3> {
        Box3::new(self.origin, region, self.row_pitch, self.slice_pitch)
    }
}

impl<D: Driver> Target<'_, D> {
    pub fn buffer_read<'a>(
        &self,
        buffer: &'a Object<D::Mem>,
        offset: usize,
        bytes: usize,
        dst: *mut c_void,
    ) -> Result<Command<'a, D>> {
        let src = self.buffer_range(buffer, offset, bytes)?;
        let dst = dst.expose_provenance();
        let work = self.routed(Work::Copy { dst, src, bytes }, [End::Usm(dst), End::Shared])?;
        let kind = UR_COMMAND_MEM_BUFFER_READ;
        Ok(Command::on_buffers(kind, work, None, Some(buffer)))
    }

    pub fn buffer_write<'a>(
        &self,
        buffer: &'a Object<D::Mem>,
        offset: usize,
        bytes: usize,
        src: *const c_void,
    ) -> Result<Command<'a, D>> {
        let dst = self.buffer_range(buffer, offset, bytes)?;
        let src = src.expose_provenance();
        let work = self.routed(Work::Copy { dst, src, bytes }, [End::Shared, End::Usm(src)])?;
        let kind = UR_COMMAND_MEM_BUFFER_WRITE;
        Ok(Command::on_buffers(kind, work, Some(buffer), None))
    }

    pub fn buffer_read_rect<'a>(
        &self,
        buffer: &'a Object<D::Mem>,
        inside: RectOffset,
        outside: RectOffset,
        region: ur_rect_region_t,
        dst: *mut c_void,
    ) -> Result<Command<'a, D>> {
        let (inside, outside) = (inside.of(region)?, outside.of(region)?);
        let src = self.buffer_box(buffer, &inside)?;
        let to = dst.expose_provenance();
        let (dst, region) = (outside.at(to), inside.region);
        let work = self.routed(
            Work::CopyRect { dst, src, region },
            [End::Usm(to), End::Shared],
        )?;
        let kind = UR_COMMAND_MEM_BUFFER_READ_RECT;
        Ok(Command::on_buffers(kind, work, None, Some(buffer)))
    }

    pub fn buffer_write_rect<'a>(
        &self,
        buffer: &'a Object<D::Mem>,
        inside: RectOffset,
        outside: RectOffset,
        region: ur_rect_region_t,
        src: *const c_void,
    ) -> Result<Command<'a, D>> {
        let (inside, outside) = (inside.of(region)?, outside.of(region)?);
        let dst = self.buffer_box(buffer, &inside)?;
        let from = src.expose_provenance();
        let (src, region) = (outside.at(from), inside.region);
        let work = self.routed(
            Work::CopyRect { dst, src, region },
            [End::Shared, End::Usm(from)],
        )?;
        let kind = UR_COMMAND_MEM_BUFFER_WRITE_RECT;
        Ok(Command::on_buffers(kind, work, Some(buffer), None))
    }

    pub fn buffer_copy<'a>(
        &self,
        from: &'a Object<D::Mem>,
        to: &'a Object<D::Mem>,
        src_offset: usize,
        dst_offset: usize,
        bytes: usize,
    ) -> Result<Command<'a, D>> {
        let src = self.buffer_range(from, src_offset, bytes)?;
        let dst = self.buffer_range(to, dst_offset, bytes)?;
        let work = Work::Copy { dst, src, bytes };
        let kind = UR_COMMAND_MEM_BUFFER_COPY;
        Ok(Command::on_buffers(kind, work, Some(to), Some(from)))
    }

    pub fn buffer_copy_rect<'a>(
        &self,
        from: (&'a Object<D::Mem>, RectOffset),
        to: (&'a Object<D::Mem>, RectOffset),
        region: ur_rect_region_t,
    ) -> Result<Command<'a, D>> {
        let (src, dst) = (from.1.of(region)?, to.1.of(region)?);
        let region = src.region;
        let src = self.buffer_box(from.0, &src)?;
        let dst = self.buffer_box(to.0, &dst)?;
        let work = Work::CopyRect { dst, src, region };
        let kind = UR_COMMAND_MEM_BUFFER_COPY_RECT;
        Ok(Command::on_buffers(kind, work, Some(to.0), Some(from.0)))
    }

    pub fn buffer_fill<'a>(
        &self,
        buffer: &'a Object<D::Mem>,
        pattern: &[u8],
        offset: usize,
        bytes: usize,
    ) -> Result<Command<'a, D>> {
        let dst = self.buffer_range(buffer, offset, bytes)?;
        let pattern = pattern.into();
        #[rustfmt::skip]
        let work = Work::Fill { dst, pattern, bytes };
        let kind = UR_COMMAND_MEM_BUFFER_FILL;
        Ok(Command::on_buffers(kind, work, Some(buffer), None))
    }

    #[inline]
    pub fn usm_copy<'a>(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        bytes: usize,
    ) -> Result<Command<'a, D>> {
        self.context.check_ranges([dst.addr(), src.addr()], bytes)?;
        let (dst, src) = (dst.expose_provenance(), src.expose_provenance());
        let work = self.routed(Work::Copy { dst, src, bytes }, [dst, src].map(End::Usm))?;
        Ok(Command::new(UR_COMMAND_USM_MEMCPY, work))
    }

    #[inline(always)]
    pub fn usm_fill<'a>(
        &self,
        dst: *mut c_void,
        pattern: &[u8],
        bytes: usize,
    ) -> Result<Command<'a, D>> {
        let dst = self.usm_range(dst, bytes)?;
        let pattern = pattern.into();
        #[rustfmt::skip]
        let work = self.routed(Work::Fill { dst, pattern, bytes }, [End::Usm(dst), End::Shared])?;
        Ok(Command::new(UR_COMMAND_USM_FILL, work))
    }

    pub fn usm_prefetch<'a>(
        &self,
        mem: *const c_void,
        bytes: usize,
        flags: ur_usm_migration_flags_t,
    ) -> Result<Command<'a, D>> {
        let addr = self.usm_range(mem, bytes)?;
        let to_host = flags.contains(UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST);
        #[rustfmt::skip]
        let work = Work::Prefetch { addr, bytes, to_host };
        Ok(Command::new(UR_COMMAND_USM_PREFETCH, work))
    }

    pub fn usm_advise<'a>(
        &self,
        mem: *const c_void,
        bytes: usize,
        advice: ur_usm_advice_flags_t,
    ) -> Result<Command<'a, D>> {
        let addr = self.usm_range(mem, bytes)?;
        #[rustfmt::skip]
        let work = Work::Advise { addr, bytes, advice };
        Ok(Command::new(UR_COMMAND_USM_ADVISE, work))
    }

    pub fn usm_fill_2d<'a>(
        &self,
        mem: *mut c_void,
        pitch: usize,
        pattern: &[u8],
        width: usize,
        height: usize,
    ) -> Result<Command<'a, D>> {
        let dst = self.usm_rows(mem, pitch, width, height)?;
        let work = Work::FillRect {
            dst,
            pattern: pattern.into(),
            region: [width, height, 1],
        };
        let work = self.routed(work, [End::Usm(dst.addr), End::Shared])?;
        Ok(Command::new(UR_COMMAND_USM_FILL_2D, work))
    }

    pub fn usm_copy_2d<'a>(
        &self,
        dst: (*mut c_void, usize),
        src: (*const c_void, usize),
        width: usize,
        height: usize,
    ) -> Result<Command<'a, D>> {
        let dst = self.usm_rows(dst.0, dst.1, width, height)?;
        let src = self.usm_rows(src.0, src.1, width, height)?;
        let region = [width, height, 1];
        let work = match width {
            0 => Work::Marker,
            _ => {
                let ends = [dst.addr, src.addr].map(End::Usm);
                self.routed(Work::CopyRect { dst, src, region }, ends)?
            }
        };
        Ok(Command::new(UR_COMMAND_USM_MEMCPY_2D, work))
    }

    pub fn variable_write<'a>(
        &self,
        program: &Object<D::Program>,
        name: &CStr,
        offset: usize,
        bytes: usize,
        src: *const c_void,
    ) -> Result<Command<'a, D>> {
        let (start, length) = D::global(program, self.device, name)?;
        let dst = transfer::range(start, length, offset, bytes)?;
        let src = src.expose_provenance();
        let work = self.routed(Work::Copy { dst, src, bytes }, [End::Own, End::Usm(src)])?;
        Ok(Command::new(UR_COMMAND_DEVICE_GLOBAL_VARIABLE_WRITE, work))
    }

    pub fn variable_read<'a>(
        &self,
        program: &Object<D::Program>,
        name: &CStr,
        offset: usize,
        bytes: usize,
        dst: *mut c_void,
    ) -> Result<Command<'a, D>> {
        let (start, length) = D::global(program, self.device, name)?;
        let src = transfer::range(start, length, offset, bytes)?;
        let dst = dst.expose_provenance();
        let work = self.routed(Work::Copy { dst, src, bytes }, [End::Usm(dst), End::Own])?;
        Ok(Command::new(UR_COMMAND_DEVICE_GLOBAL_VARIABLE_READ, work))
    }

    pub fn launch<'a>(
        &self,
        kernel: &'a Object<D::Kernel>,
        request: LaunchRequest<'a>,
    ) -> Result<Command<'a, D>> {
        let work = Work::Launch(D::launch(self.device, kernel, &request)?);
        Ok(Command {
            launch: Some((kernel, request)),
            ..Command::new(UR_COMMAND_KERNEL_LAUNCH, work)
        })
    }

    /// Address of a range of a buffer on the device.
    pub fn buffer_range(
        &self,
        buffer: &Object<D::Mem>,
        offset: usize,
        bytes: usize,
    ) -> Result<usize> {
        let (start, length) = D::buffer(buffer, self.device)?;
        transfer::range(start, length, offset, bytes)
    }

    fn buffer_box(&self, buffer: &Object<D::Mem>, part: &Box3) -> Result<Pitched> {
        let (start, length) = D::buffer(buffer, self.device)?;
        ensure(part.end <= length, OUTSIDE.code())?;
        Ok(part.at(start))
    }

    /// Address of a range that must lie inside one allocation.
    #[inline]
    fn usm_range(&self, start: *const c_void, bytes: usize) -> Result<usize> {
        self.context.check_range(start.addr(), bytes)?;
        Ok(start.expose_provenance())
    }

    /// A copy or fill as the device's command: see [`Context::routed`].
    #[inline]
    fn routed(&self, work: Work<D>, ends: [End; 2]) -> Result<Work<D>> {
        self.context.routed(self.device, work, ends)
    }

    /// Rows of USM, checked from the first byte to the last one that is accessed.
    fn usm_rows(
        &self,
        start: *const c_void,
        pitch: usize,
        width: usize,
        height: usize,
    ) -> Result<Pitched> {
        let rows = height.saturating_sub(1).checked_mul(pitch);
        let bytes = rows
            .and_then(|bytes| bytes.checked_add(width))
            .ok_or(OUTSIDE)?;
        let addr = self.usm_range(start, bytes)?;
        let slice_pitch = pitch.checked_mul(height).ok_or(OUTSIDE)?;
        Ok(Pitched {
            addr,
            row_pitch: pitch,
            slice_pitch,
        })
    }
}
