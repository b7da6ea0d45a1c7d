//! The `hal` trait of queues, for every driver.

#![allow(clippy::too_many_arguments)]

use crate::abi::*;
use crate::hal::{self, QueueInfo, Unwrapped};
use crate::object::{Handles, InfoOut, Object, OutHandle, Result};
use crate::stream::api::hooks::{forwarded, queue_hooks};
use crate::stream::event::{Event, Times};
use crate::stream::queue::{alloc, capture, host_task, replay};
use crate::stream::recording::command::Corner;
use crate::stream::{
    CommandBuffer, ExecutableGraph, Graph, Kind, PlainLaunch, Queue, Runtime, Stamps, UsmPool, Work,
};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

impl<B: Runtime> hal::Queue<B> for Queue<B> {
    fn get_info(this: &Object<Self>, prop_name: QueueInfo, out: InfoOut<'_>) -> Result<()> {
        Self::info(this, prop_name, out)
    }

    fn get_native_handle(
        this: &Object<Self>,
        desc: Option<&ur_queue_native_desc_t>,
    ) -> Result<ur_native_handle_t> {
        <B as crate::stream::Hooks<B>>::queue_native_handle(this, desc)
    }

    fn finish(this: &Object<Self>) -> Result<()> {
        this.live(Handles::EMPTY)?;
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
        let made = this.site().buffer_read(buffer, offset, size, dst)?;
        Self::give(this, made, waits, event, blocking_read)
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
        let made = this.site().buffer_write(buffer, offset, size, src)?;
        Self::give(this, made, waits, event, blocking_write)
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
        let inside = Corner::new(buffer_origin, buffer_row_pitch, buffer_slice_pitch);
        let outside = Corner::new(host_origin, host_row_pitch, host_slice_pitch);
        let made = this
            .site()
            .buffer_read_rect(buffer, inside, outside, region, dst)?;
        Self::give(this, made, waits, event, blocking_read)
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
        let inside = Corner::new(buffer_origin, buffer_row_pitch, buffer_slice_pitch);
        let outside = Corner::new(host_origin, host_row_pitch, host_slice_pitch);
        let made = this
            .site()
            .buffer_write_rect(buffer, inside, outside, region, src)?;
        Self::give(this, made, waits, event, blocking_write)
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
        let site = this.site();
        let made = site.buffer_copy(buffer_src, buffer_dst, src_offset, dst_offset, size)?;
        Self::give(this, made, waits, event, false)
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
        let from = Corner::new(src_origin, src_row_pitch, src_slice_pitch);
        let to = Corner::new(dst_origin, dst_row_pitch, dst_slice_pitch);
        let site = this.site();
        let made = site.buffer_copy_rect((buffer_src, from), (buffer_dst, to), region)?;
        Self::give(this, made, waits, event, false)
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
        let made = this.site().buffer_fill(buffer, pattern, offset, size)?;
        Self::give(this, made, waits, event, false)
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
        this.live(waits)?;
        this.site().buffer_range(buffer, offset, size)?;
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
        this.live(waits)?;
        let work = B::unmap(mem, this.device(), mapped_ptr.addr())?;
        Self::enqueue(this, UR_COMMAND_MEM_UNMAP, waits, work, event, false)
    }

    #[inline(always)]
    fn usm_fill(
        this: &Object<Self>,
        mem: *mut c_void,
        pattern: &[u8],
        size: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        Self::fill(this, mem, pattern, size, waits, event)
    }

    #[inline(always)]
    fn usm_memcpy(
        this: &Object<Self>,
        blocking: bool,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        Self::copy(this, blocking, dst, src, size, waits, event)
    }

    fn usm_prefetch(
        this: &Object<Self>,
        mem: *const c_void,
        size: usize,
        flags: ur_usm_migration_flags_t,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let made = this.site().usm_prefetch(mem, size, flags)?;
        Self::give(this, made, waits, event, false)
    }

    fn usm_advise(
        this: &Object<Self>,
        mem: *const c_void,
        size: usize,
        advice: ur_usm_advice_flags_t,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        let made = this.site().usm_advise(mem, size, advice)?;
        Self::give(this, made, Handles::EMPTY, event, false)
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
        let site = this.site();
        let made = site.usm_fill_2d(mem, pitch, pattern, width, height)?;
        Self::give(this, made, waits, event, false)
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
        let site = this.site();
        let made = site.usm_copy_2d((dst, dst_pitch), (src, src_pitch), width, height)?;
        Self::give(this, made, waits, event, blocking)
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
        let site = this.site();
        let made = site.variable_write(program, name, offset, count, src)?;
        Self::give(this, made, waits, event, blocking_write)
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
        let site = this.site();
        let made = site.variable_read(program, name, offset, count, dst)?;
        Self::give(this, made, waits, event, blocking_read)
    }

    #[inline(always)]
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
        let launch = PlainLaunch {
            offset: global_work_offset,
            global: global_work_size,
            local: local_work_size,
            args,
        };
        let properties = launch_prop_list;
        Self::launch(this, kernel, work_dim, launch, properties, waits, event)
    }

    fn usm_device_alloc_exp(
        this: &Object<Self>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
        _properties: Option<&ur_exp_async_usm_alloc_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<*mut c_void> {
        alloc::alloc(this, Kind::Device, pool, size, waits, event)
    }

    fn usm_shared_alloc_exp(
        this: &Object<Self>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
        _properties: Option<&ur_exp_async_usm_alloc_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<*mut c_void> {
        alloc::alloc(this, Kind::Shared, pool, size, waits, event)
    }

    fn usm_host_alloc_exp(
        this: &Object<Self>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
        _properties: Option<&ur_exp_async_usm_alloc_properties_t>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<*mut c_void> {
        alloc::alloc(this, Kind::Host, pool, size, waits, event)
    }

    fn usm_free_exp(
        this: &Object<Self>,
        _pool: Option<&Object<UsmPool<B>>>,
        mem: *mut c_void,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        alloc::free(this, mem.addr(), waits, event)
    }

    fn timestamp_recording_exp(
        this: &Object<Self>,
        blocking: bool,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        this.live(waits)?;
        let waits = Event::join_list(this.context(), waits)?;
        let times = this.times(true)?;
        let reach = this.submit(&waits, Work::Marker, times.as_ref(), true)?;
        let times = times.map(|Times { queued, stamps }| Times {
            queued,
            stamps: Stamps::one(stamps),
        });
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
        host_task::enqueue(this, host_task, data, waits, event)
    }

    fn command_buffer_exp(
        this: &Object<Self>,
        buffer: &Object<CommandBuffer<B>>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        replay::command_buffer(buffer, this, waits, event)
    }

    fn begin_graph_capture_exp(this: &Object<Self>) -> Result<()> {
        capture::begin(this, &Graph::new(this.context()))
    }

    fn begin_capture_into_graph_exp(this: &Object<Self>, graph: &Object<Graph<B>>) -> Result<()> {
        capture::begin(this, &graph.arc())
    }

    fn end_graph_capture_exp(this: &Object<Self>) -> Result<Arc<Object<Graph<B>>>> {
        capture::end(this)
    }

    fn graph_exp(
        this: &Object<Self>,
        graph: &Object<ExecutableGraph<B>>,
        waits: Handles<'_, Event<B>>,
        event: OutHandle<'_, Event<B>>,
    ) -> Result<()> {
        ExecutableGraph::enqueue(graph, this, waits, event)
    }

    fn is_graph_capture_enabled_exp(this: &Object<Self>) -> Result<u8> {
        Ok(this.capture.is_on().into())
    }

    fn get_graph_exp(this: &Object<Self>) -> Result<Arc<Object<Graph<B>>>> {
        this.capture.graph()
    }

    queue_hooks!(forwarded);
}
