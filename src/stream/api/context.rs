//! The `hal` trait of contexts, for every driver.

#![allow(clippy::too_many_arguments)]

use crate::abi::*;
use crate::hal::{
    self, ContextInfo, ImageInfo, Unwrapped, UsmAllocInfo, VirtualMemGranularityInfo,
    VirtualMemInfo,
};
use crate::object::{Handles, InfoOut, Object, Out, Result, ensure};
use crate::stream::api::hooks::{context_hooks, forwarded};
use crate::stream::{CommandBuffer, Context, Event, Graph, Kind, Queue, Runtime, UsmPool};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

impl<B: Runtime> hal::Context<B> for Context<B> {
    fn get_info(this: &Object<Self>, prop_name: ContextInfo, out: InfoOut<'_>) -> Result<()> {
        Self::info(this, prop_name, out)
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        <B as crate::stream::Hooks<B>>::context_native_handle(this)
    }

    fn set_extended_deleter(
        this: &Object<Self>,
        deleter: <ur_context_extended_deleter_t as Unwrapped>::Fn,
        user_data: *mut c_void,
    ) -> Result<()> {
        this.add_deleter(deleter, user_data);
        Ok(())
    }

    fn queue_create(
        this: &Object<Self>,
        device: &Object<B::Device>,
        properties: Option<&ur_queue_properties_t>,
    ) -> Result<Arc<Object<Queue<B>>>> {
        Queue::create(
            this,
            device,
            properties.map_or_else(Default::default, |asked| asked.flags),
        )
    }

    fn usm_host_alloc(
        this: &Object<Self>,
        usm_desc: Option<&ur_usm_desc_t>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
    ) -> Result<*mut c_void> {
        Self::alloc_now(this, Kind::Host, None, usm_desc, pool, size)
    }

    fn usm_device_alloc(
        this: &Object<Self>,
        device: &Object<B::Device>,
        usm_desc: Option<&ur_usm_desc_t>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
    ) -> Result<*mut c_void> {
        Self::alloc_now(this, Kind::Device, Some(device), usm_desc, pool, size)
    }

    fn usm_shared_alloc(
        this: &Object<Self>,
        device: &Object<B::Device>,
        usm_desc: Option<&ur_usm_desc_t>,
        pool: Option<&Object<UsmPool<B>>>,
        size: usize,
    ) -> Result<*mut c_void> {
        Self::alloc_now(this, Kind::Shared, Some(device), usm_desc, pool, size)
    }

    fn usm_free(this: &Object<Self>, mem: *mut c_void) -> Result<()> {
        this.free_now(mem.addr())
    }

    fn usm_get_mem_alloc_info(
        this: &Object<Self>,
        mem: *const c_void,
        prop_name: UsmAllocInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        this.alloc_info(mem.addr(), prop_name, out)
    }

    fn usm_pool_create(
        this: &Object<Self>,
        pool_desc: &ur_usm_pool_desc_t,
    ) -> Result<Arc<Object<UsmPool<B>>>> {
        UsmPool::create(this, this.devices().to_vec(), pool_desc)
    }

    fn usm_pool_create_exp(
        this: &Object<Self>,
        device: &Object<B::Device>,
        pool_desc: &ur_usm_pool_desc_t,
    ) -> Result<Arc<Object<UsmPool<B>>>> {
        UsmPool::create(this, vec![this.device(device)?], pool_desc)
    }

    fn usm_pool_destroy_exp(
        this: &Object<Self>,
        device: &Object<B::Device>,
        pool: &Object<UsmPool<B>>,
    ) -> Result<()> {
        this.device(device)?;
        this.check_pool(pool)?;
        ensure(!pool.is_default(), UR_RESULT_ERROR_INVALID_VALUE)?;
        pool.release()
    }

    fn usm_pool_get_default_device_pool_exp(
        this: &Object<Self>,
        device: &Object<B::Device>,
    ) -> Result<Arc<Object<UsmPool<B>>>> {
        Self::default_pool(this, device)
    }

    fn usm_pool_set_device_pool_exp(
        this: &Object<Self>,
        device: &Object<B::Device>,
        pool: &Object<UsmPool<B>>,
    ) -> Result<()> {
        this.set_current_pool(device, pool)
    }

    fn usm_pool_get_device_pool_exp(
        this: &Object<Self>,
        device: &Object<B::Device>,
    ) -> Result<Arc<Object<UsmPool<B>>>> {
        Self::current_pool(this, device)
    }

    fn usm_pool_trim_to_exp(
        this: &Object<Self>,
        device: &Object<B::Device>,
        pool: &Object<UsmPool<B>>,
        min_bytes_to_keep: usize,
    ) -> Result<()> {
        this.device(device)?;
        this.check_pool(pool)?;
        this.domain().poll();
        pool.core().look();
        pool.core().trim(min_bytes_to_keep as u64);
        Ok(())
    }

    fn usm_context_memcpy_exp(
        this: &Object<Self>,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
    ) -> Result<()> {
        this.copy_now(dst.expose_provenance(), src.expose_provenance(), size)
    }

    fn command_buffer_create_exp(
        this: &Object<Self>,
        device: &Object<B::Device>,
        desc: &ur_exp_command_buffer_desc_t,
    ) -> Result<Arc<Object<CommandBuffer<B>>>> {
        CommandBuffer::create(this, device, desc)
    }

    fn graph_create_exp(this: &Object<Self>) -> Result<Arc<Object<Graph<B>>>> {
        this.domain().engine().check()?;
        Ok(Graph::new(&this.arc()))
    }

    // Importing is a hint, and ignoring it is right everywhere.
    fn usm_import_exp(_this: &Object<Self>, _mem: *mut c_void, _size: usize) -> Result<()> {
        Ok(())
    }

    fn usm_release_exp(_this: &Object<Self>, _mem: *mut c_void) -> Result<()> {
        Ok(())
    }

    /// The handle 0 is no backend's: it stands for an event that is complete.
    fn event_create_with_native_handle(
        this: &Object<Self>,
        native_event: ur_native_handle_t,
        properties: Option<&ur_event_native_properties_t>,
    ) -> Result<Arc<Object<Event<B>>>> {
        match native_event {
            0 => Event::complete(this),
            _ => <B as crate::stream::Hooks<B>>::event_create_with_native_handle(
                this,
                native_event,
                properties,
            ),
        }
    }

    context_hooks!(forwarded);
}
