//! The `hal` traits of command buffers and their commands, for every driver.

#![allow(clippy::too_many_arguments)]

use crate::abi::*;
use crate::hal::{self, CommandBufferInfo, Unwrapped};
use crate::object::{Handles, InfoOut, Object, Out, OutHandle, Result, ensure};
use crate::stream::event::Event;
use crate::stream::recording::command::Corner;
use crate::stream::recording::command_buffer::{CommandBuffer, Outputs, RecordedCommand};
use crate::stream::recording::native_record::RecordCall;
use crate::stream::recording::update;
use crate::stream::{LaunchRequest, PlainLaunch, Runtime};
use std::ffi::c_void;
use std::sync::Arc;

type SyncPoint = ur_exp_command_buffer_sync_point_t;

impl<B: Runtime> hal::CommandBuffer<B> for CommandBuffer<B> {
    fn finalize_exp(this: &Object<Self>) -> Result<()> {
        this.finalize()
    }

    /// Kernels hold no arguments of their own: the loader keeps those of older clients, and appends
    /// them with the launch.
    fn append_kernel_launch_exp(
        this: &Object<Self>,
        kernel: &Object<B::Kernel>,
        work_dim: u32,
        global_work_offset: Option<&[usize]>,
        global_work_size: &[usize],
        local_work_size: Option<&[usize]>,
        kernel_alternatives: Handles<'_, B::Kernel>,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        Self::append_kernel_launch_with_args_exp(
            this,
            kernel,
            work_dim,
            global_work_offset,
            global_work_size,
            local_work_size,
            &[],
            kernel_alternatives,
            sync_points,
            waits,
            sync_point,
            event,
            command,
        )
    }

    fn append_kernel_launch_with_args_exp(
        this: &Object<Self>,
        kernel: &Object<B::Kernel>,
        work_dim: u32,
        global_work_offset: Option<&[usize]>,
        global_work_size: &[usize],
        local_work_size: Option<&[usize]>,
        args: &[ur_exp_kernel_arg_properties_t],
        kernel_alternatives: Handles<'_, B::Kernel>,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let itself = kernel_alternatives
            .iter()
            .any(|other| std::ptr::eq(other, kernel));
        ensure(!itself, UR_RESULT_ERROR_INVALID_VALUE)?;
        let launch = PlainLaunch {
            offset: global_work_offset,
            global: global_work_size,
            local: local_work_size,
            args,
        };
        let request = LaunchRequest::new(work_dim, launch, None)?;
        let made = this.site().launch(kernel, request)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, kernel_alternatives, sync_points, waits, out)
    }

    fn append_usm_memcpy_exp(
        this: &Object<Self>,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let made = this.site().usm_copy(dst, src, size)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_usm_fill_exp(
        this: &Object<Self>,
        memory: *mut c_void,
        pattern: &[u8],
        size: usize,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let made = this.site().usm_fill(memory, pattern, size)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_mem_buffer_copy_exp(
        this: &Object<Self>,
        src_mem: &Object<B::Mem>,
        dst_mem: &Object<B::Mem>,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let site = this.site();
        let made = site.buffer_copy(src_mem, dst_mem, src_offset, dst_offset, size)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_mem_buffer_write_exp(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        offset: usize,
        size: usize,
        src: *const c_void,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let made = this.site().buffer_write(buffer, offset, size, src)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_mem_buffer_read_exp(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        offset: usize,
        size: usize,
        dst: *mut c_void,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let made = this.site().buffer_read(buffer, offset, size, dst)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_mem_buffer_copy_rect_exp(
        this: &Object<Self>,
        src_mem: &Object<B::Mem>,
        dst_mem: &Object<B::Mem>,
        src_origin: ur_rect_offset_t,
        dst_origin: ur_rect_offset_t,
        region: ur_rect_region_t,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let from = Corner::new(src_origin, src_row_pitch, src_slice_pitch);
        let to = Corner::new(dst_origin, dst_row_pitch, dst_slice_pitch);
        let site = this.site();
        let made = site.buffer_copy_rect((src_mem, from), (dst_mem, to), region)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_mem_buffer_write_rect_exp(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        buffer_offset: ur_rect_offset_t,
        host_offset: ur_rect_offset_t,
        region: ur_rect_region_t,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        src: *mut c_void,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let inside = Corner::new(buffer_offset, buffer_row_pitch, buffer_slice_pitch);
        let outside = Corner::new(host_offset, host_row_pitch, host_slice_pitch);
        let made = this
            .site()
            .buffer_write_rect(buffer, inside, outside, region, src)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_mem_buffer_read_rect_exp(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        buffer_offset: ur_rect_offset_t,
        host_offset: ur_rect_offset_t,
        region: ur_rect_region_t,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        dst: *mut c_void,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let inside = Corner::new(buffer_offset, buffer_row_pitch, buffer_slice_pitch);
        let outside = Corner::new(host_offset, host_row_pitch, host_slice_pitch);
        let made = this
            .site()
            .buffer_read_rect(buffer, inside, outside, region, dst)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_mem_buffer_fill_exp(
        this: &Object<Self>,
        buffer: &Object<B::Mem>,
        pattern: &[u8],
        offset: usize,
        size: usize,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let made = this.site().buffer_fill(buffer, pattern, offset, size)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_usm_prefetch_exp(
        this: &Object<Self>,
        memory: *const c_void,
        size: usize,
        flags: ur_usm_migration_flags_t,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let made = this.site().usm_prefetch(memory, size, flags)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn append_usm_advise_exp(
        this: &Object<Self>,
        memory: *const c_void,
        size: usize,
        advice: ur_usm_advice_flags_t,
        sync_points: &[SyncPoint],
        waits: Handles<'_, Event<B>>,
        sync_point: Out<'_, SyncPoint>,
        event: OutHandle<'_, Event<B>>,
        command: OutHandle<'_, RecordedCommand<B>>,
    ) -> Result<()> {
        let made = this.site().usm_advise(memory, size, advice)?;
        let out = Outputs {
            sync_point,
            event,
            command,
        };
        Self::append(this, made, Handles::EMPTY, sync_points, waits, out)
    }

    fn update_kernel_launch_exp(
        this: &Object<Self>,
        updates: &[ur_exp_command_buffer_update_kernel_launch_desc_t],
    ) -> Result<()> {
        update::launches(this, updates)
    }

    fn append_native_command_exp(
        this: &Object<Self>,
        run: <ur_exp_command_buffer_native_command_function_t as Unwrapped>::Fn,
        data: *mut c_void,
        child: Option<&Object<Self>>,
        sync_points: &[SyncPoint],
        sync_point: Out<'_, SyncPoint>,
    ) -> Result<()> {
        let call = RecordCall { run, data };
        Self::append_native(this, call, child, sync_points, sync_point)
    }

    fn get_native_handle_exp(this: &Object<Self>) -> Result<ur_native_handle_t> {
        this.native_handle()
    }

    fn get_info_exp(
        this: &Object<Self>,
        prop_name: CommandBufferInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        Self::info(this, prop_name, out)
    }
}

impl<B: Runtime> hal::CommandBufferCommand<B> for RecordedCommand<B> {
    fn update_signal_event_exp(this: &Object<Self>) -> Result<Arc<Object<Event<B>>>> {
        update::signal_event(this)
    }

    fn update_wait_events_exp(this: &Object<Self>, waits: Handles<'_, Event<B>>) -> Result<()> {
        update::wait_events(this, waits)
    }
}
