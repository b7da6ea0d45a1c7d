//! The `hal` trait of queues, for every driver.

#![allow(clippy::too_many_arguments)]

use super::event::Event;
use super::hooks::{forwarded, queue_hooks};
use super::transfer::{self, Box3};
use super::{Driver, Kind, LaunchRequest, Queue, UsmPool, Work};
use crate::abi::*;
use crate::hal::{self, QueueInfo, Unwrapped};
use crate::object::{Handles, InfoOut, Object, OutHandle, Result, ensure};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

impl<B: Driver> hal::Queue<B> for Queue<B> {
    fn get_info(this: &Object<Self>, prop_name: QueueInfo, out: InfoOut<'_>) -> Result<()> {
        Self::info(this, prop_name, out)
    }

    fn get_native_handle(
        this: &Object<Self>,
        desc: Option<&ur_queue_native_desc_t>,
    ) -> Result<ur_native_handle_t> {
        <B as super::Hooks<B>>::queue_native_handle(this, desc)
    }

    fn finish(this: &Object<Self>) -> Result<()> {
        this.finish_here()
    }

    fn flush(this: &Object<Self>) -> Result<()> {
        this.flush_here()
    }

    fn events_wait(
        this: &Object<Self>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        Self::join_events(this, UR_COMMAND_EVENTS_WAIT, waits, event, false)
    }

    fn events_wait_with_barrier(
        this: &Object<Self>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        Self::join_events(
            this,
            UR_COMMAND_EVENTS_WAIT_WITH_BARRIER,
            waits,
            event,
            true,
        )
    }

    fn events_wait_with_barrier_ext(
        this: &Object<Self>,
        _properties: Option<&ur_exp_enqueue_ext_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        Self::join_events(
            this,
            UR_COMMAND_EVENTS_WAIT_WITH_BARRIER,
            waits,
            event,
            true,
        )
    }

    fn mem_buffer_read(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        blocking_read: bool,
        offset: usize,
        size: usize,
        dst: *mut c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let src = this.buffer_range(buffer, offset, size)?;
        let work = Work::Copy {
            dst: dst.expose_provenance(),
            src,
            bytes: size,
        };
        let work = B::on_buffers(work, None, Some(buffer));
        Self::enqueue(
            this,
            UR_COMMAND_MEM_BUFFER_READ,
            waits,
            work,
            event,
            blocking_read,
        )
    }

    fn mem_buffer_write(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        blocking_write: bool,
        offset: usize,
        size: usize,
        src: *const c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let dst = this.buffer_range(buffer, offset, size)?;
        let work = Work::Copy {
            dst,
            src: src.expose_provenance(),
            bytes: size,
        };
        let work = B::on_buffers(work, Some(buffer), None);
        Self::enqueue(
            this,
            UR_COMMAND_MEM_BUFFER_WRITE,
            waits,
            work,
            event,
            blocking_write,
        )
    }

    fn mem_buffer_read_rect(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        blocking_read: bool,
        buffer_origin: ur_rect_offset_t,
        host_origin: ur_rect_offset_t,
        region: ur_rect_region_t,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        dst: *mut c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let inside = Box3::new(buffer_origin, region, buffer_row_pitch, buffer_slice_pitch)?;
        let outside = Box3::new(host_origin, region, host_row_pitch, host_slice_pitch)?;
        let src = this.buffer_box(buffer, &inside)?;
        let dst = outside.at(dst.expose_provenance());
        let work = Work::CopyRect {
            dst,
            src,
            region: inside.region,
        };
        let work = B::on_buffers(work, None, Some(buffer));
        Self::enqueue(
            this,
            UR_COMMAND_MEM_BUFFER_READ_RECT,
            waits,
            work,
            event,
            blocking_read,
        )
    }

    fn mem_buffer_write_rect(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        blocking_write: bool,
        buffer_origin: ur_rect_offset_t,
        host_origin: ur_rect_offset_t,
        region: ur_rect_region_t,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        src: *mut c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let inside = Box3::new(buffer_origin, region, buffer_row_pitch, buffer_slice_pitch)?;
        let outside = Box3::new(host_origin, region, host_row_pitch, host_slice_pitch)?;
        let dst = this.buffer_box(buffer, &inside)?;
        let src = outside.at(src.expose_provenance());
        let work = Work::CopyRect {
            dst,
            src,
            region: inside.region,
        };
        let work = B::on_buffers(work, Some(buffer), None);
        Self::enqueue(
            this,
            UR_COMMAND_MEM_BUFFER_WRITE_RECT,
            waits,
            work,
            event,
            blocking_write,
        )
    }

    fn mem_buffer_copy(
        this: &Object<Self>,
        buffer_src: &Object<B::Mem>,
        buffer_dst: &Object<B::Mem>,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let src = this.buffer_range(buffer_src, src_offset, size)?;
        let dst = this.buffer_range(buffer_dst, dst_offset, size)?;
        let work = Work::Copy {
            dst,
            src,
            bytes: size,
        };
        let work = B::on_buffers(work, Some(buffer_dst), Some(buffer_src));
        Self::enqueue(this, UR_COMMAND_MEM_BUFFER_COPY, waits, work, event, false)
    }

    fn mem_buffer_copy_rect(
        this: &Object<Self>,
        buffer_src: &Object<B::Mem>,
        buffer_dst: &Object<B::Mem>,
        src_origin: ur_rect_offset_t,
        dst_origin: ur_rect_offset_t,
        region: ur_rect_region_t,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let from = Box3::new(src_origin, region, src_row_pitch, src_slice_pitch)?;
        let to = Box3::new(dst_origin, region, dst_row_pitch, dst_slice_pitch)?;
        let src = this.buffer_box(buffer_src, &from)?;
        let dst = this.buffer_box(buffer_dst, &to)?;
        let work = Work::CopyRect {
            dst,
            src,
            region: from.region,
        };
        let work = B::on_buffers(work, Some(buffer_dst), Some(buffer_src));
        Self::enqueue(
            this,
            UR_COMMAND_MEM_BUFFER_COPY_RECT,
            waits,
            work,
            event,
            false,
        )
    }

    fn mem_buffer_fill(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        pattern: &[u8],
        offset: usize,
        size: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let dst = this.buffer_range(buffer, offset, size)?;
        let work = Work::Fill {
            dst,
            pattern: pattern.into(),
            bytes: size,
        };
        let work = B::on_buffers(work, Some(buffer), None);
        Self::enqueue(this, UR_COMMAND_MEM_BUFFER_FILL, waits, work, event, false)
    }

    fn mem_buffer_map(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        blocking_map: bool,
        map_flags: ur_map_flags_t,
        offset: usize,
        size: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<*mut c_void> {
        this.buffer_range(buffer, offset, size)?;
        let (landing, work) = B::map(buffer, this.device(), map_flags, offset, size)?;
        Self::enqueue(
            this,
            UR_COMMAND_MEM_BUFFER_MAP,
            waits,
            work,
            event,
            blocking_map,
        )?;
        Ok(std::ptr::with_exposed_provenance_mut(landing.get()))
    }

    fn mem_unmap(
        this: &Object<Self>,
        mem: &Object<B::Mem>,
        mapped_ptr: *mut c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let work = B::unmap(mem, this.device(), mapped_ptr.addr())?;
        Self::enqueue(this, UR_COMMAND_MEM_UNMAP, waits, work, event, false)
    }

    fn usm_fill(
        this: &Object<Self>,
        mem: *mut c_void,
        pattern: &[u8],
        size: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let dst = this.usm_range(mem, size)?;
        let work = Work::Fill {
            dst,
            pattern: pattern.into(),
            bytes: size,
        };
        Self::enqueue(this, UR_COMMAND_USM_FILL, waits, work, event, false)
    }

    fn usm_memcpy(
        this: &Object<Self>,
        blocking: bool,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let (dst, src) = (this.usm_range(dst, size)?, this.usm_range(src, size)?);
        let work = Work::Copy {
            dst,
            src,
            bytes: size,
        };
        Self::enqueue(this, UR_COMMAND_USM_MEMCPY, waits, work, event, blocking)
    }

    fn usm_prefetch(
        this: &Object<Self>,
        mem: *const c_void,
        size: usize,
        flags: ur_usm_migration_flags_t,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let addr = this.usm_range(mem, size)?;
        let to_host = flags.contains(UR_USM_MIGRATION_FLAG_DEVICE_TO_HOST);
        let work = Work::Prefetch {
            addr,
            bytes: size,
            to_host,
        };
        Self::enqueue(this, UR_COMMAND_USM_PREFETCH, waits, work, event, false)
    }

    fn usm_advise(
        this: &Object<Self>,
        mem: *const c_void,
        size: usize,
        advice: ur_usm_advice_flags_t,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let addr = this.usm_range(mem, size)?;
        let work = Work::Advise {
            addr,
            bytes: size,
            advice,
        };
        Self::enqueue(
            this,
            UR_COMMAND_USM_ADVISE,
            Handles::EMPTY,
            work,
            event,
            false,
        )
    }

    fn usm_fill_2d(
        this: &Object<Self>,
        mem: *mut c_void,
        pitch: usize,
        pattern: &[u8],
        width: usize,
        height: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let dst = this.usm_rows(mem, pitch, width, height)?;
        let work = Work::FillRect {
            dst,
            pattern: pattern.into(),
            region: [width, height, 1],
        };
        Self::enqueue(this, UR_COMMAND_USM_FILL_2D, waits, work, event, false)
    }

    fn usm_memcpy_2d(
        this: &Object<Self>,
        blocking: bool,
        dst: *mut c_void,
        dst_pitch: usize,
        src: *const c_void,
        src_pitch: usize,
        width: usize,
        height: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let dst = this.usm_rows(dst, dst_pitch, width, height)?;
        let src = this.usm_rows(src, src_pitch, width, height)?;
        let work = match width {
            0 => Work::Marker,
            _ => Work::CopyRect {
                dst,
                src,
                region: [width, height, 1],
            },
        };
        Self::enqueue(this, UR_COMMAND_USM_MEMCPY_2D, waits, work, event, blocking)
    }

    fn device_global_variable_write(
        this: &Object<Self>,
        program: &Object<B::Program>,
        name: &CStr,
        blocking_write: bool,
        count: usize,
        offset: usize,
        src: *const c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let (start, length) = B::global(program, this.device(), name)?;
        let dst = transfer::range(start, length, offset, count)?;
        let work = Work::Copy {
            dst,
            src: src.expose_provenance(),
            bytes: count,
        };
        let command = UR_COMMAND_DEVICE_GLOBAL_VARIABLE_WRITE;
        Self::enqueue(this, command, waits, work, event, blocking_write)
    }

    fn device_global_variable_read(
        this: &Object<Self>,
        program: &Object<B::Program>,
        name: &CStr,
        blocking_read: bool,
        count: usize,
        offset: usize,
        dst: *mut c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let (start, length) = B::global(program, this.device(), name)?;
        let src = transfer::range(start, length, offset, count)?;
        let work = Work::Copy {
            dst: dst.expose_provenance(),
            src,
            bytes: count,
        };
        let command = UR_COMMAND_DEVICE_GLOBAL_VARIABLE_READ;
        Self::enqueue(this, command, waits, work, event, blocking_read)
    }

    fn kernel_launch_with_args_exp(
        this: &Object<Self>,
        kernel: &Object<B::Kernel>,
        work_dim: u32,
        global_work_offset: Option<&[usize]>,
        global_work_size: &[usize],
        local_work_size: Option<&[usize]>,
        args: &[ur_exp_kernel_arg_properties_t],
        launch_prop_list: Option<&ur_kernel_launch_ext_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        ensure(
            (1..=3).contains(&work_dim),
            UR_RESULT_ERROR_INVALID_WORK_DIMENSION,
        )?;
        let request = LaunchRequest {
            dims: work_dim,
            offset: transfer::three(global_work_offset.unwrap_or(&[]), 0),
            global: transfer::three(global_work_size, 1),
            local: local_work_size.map(|local| transfer::three(local, 1)),
            args,
            properties: launch_prop_list,
        };
        let launch = B::launch(this.device(), kernel, &request)?;
        Self::enqueue(
            this,
            UR_COMMAND_KERNEL_LAUNCH,
            waits,
            Work::Launch(launch),
            event,
            false,
        )
    }

    fn usm_device_alloc_exp(
        this: &Object<Self>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
        _properties: Option<&ur_exp_async_usm_alloc_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<*mut c_void> {
        Self::alloc(this, Kind::Device, pool, size, waits, event)
    }

    fn usm_shared_alloc_exp(
        this: &Object<Self>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
        _properties: Option<&ur_exp_async_usm_alloc_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<*mut c_void> {
        Self::alloc(this, Kind::Shared, pool, size, waits, event)
    }

    fn usm_host_alloc_exp(
        this: &Object<Self>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
        _properties: Option<&ur_exp_async_usm_alloc_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<*mut c_void> {
        Self::alloc(this, Kind::Host, pool, size, waits, event)
    }

    fn usm_free_exp(
        this: &Object<Self>,
        _pool: Option<&Object<UsmPool<B>>>,
        mem: *mut c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        Self::free(this, mem.addr(), waits, event)
    }

    fn timestamp_recording_exp(
        this: &Object<Self>,
        blocking: bool,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let waits = Event::join(this.context(), waits)?;
        let times = this.times(true)?;
        let reach = this.submit(&waits, Work::Marker, times.as_ref(), true)?;
        let command = UR_COMMAND_TIMESTAMP_RECORDING_EXP;
        Self::deliver(this, command, reach, times, event, blocking)
    }

    fn host_task_exp(
        this: &Object<Self>,
        host_task: <ur_exp_host_task_function_t as Unwrapped>::Fn,
        data: *mut c_void,
        _properties: Option<&ur_exp_host_task_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        Self::host_task(this, host_task, data, waits, event)
    }

    queue_hooks!(forwarded);
}
