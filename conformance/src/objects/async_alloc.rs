//! Asynchronous allocations and their pools.

use super::event::WaitList;
use super::{Context, Event, Kind, Queue, released};
use crate::api::Api;
use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use crate::status::Status;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

/// An asynchronously allocated block. The test frees it.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub ptr: *mut c_void,
    pub size: usize,
}

// SAFETY: the interface lets any thread use its memory; the tests order the accesses.
unsafe impl Send for Block {}

impl Block {
    /// Whether two blocks have a byte in common.
    pub fn overlaps(&self, other: &Block) -> bool {
        let (a, b) = (self.ptr.addr(), other.ptr.addr());
        a < b + other.size && b < a + self.size
    }

    /// The memory as the host sees it, for kinds that it can access; valid until the block is freed.
    pub fn host<'a, T: Copy>(self) -> &'a mut [T] {
        // SAFETY: the block has `size` bytes at an address aligned for any `T` used. The test has chosen a
        // kind that the host may access and waited for the commands that use it.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.cast(), self.size / size_of::<T>()) }
    }
}

impl Kind {
    /// The asynchronous allocation function of the kind.
    #[allow(clippy::too_many_arguments)]
    pub fn enqueue(
        self,
        queue: &Queue,
        pool: ur_usm_pool_handle_t,
        size: usize,
        properties: *const ur_exp_async_usm_alloc_properties_t,
        (count, list): (u32, *const ur_event_handle_t),
        out: *mut *mut c_void,
        event: *mut ur_event_handle_t,
    ) -> Status {
        let (ur, queue) = (queue.ur, queue.raw);
        match self {
            Kind::Device => ur
                .urEnqueueUSMDeviceAllocExp(queue, pool, size, properties, count, list, out, event),
            Kind::Shared => ur
                .urEnqueueUSMSharedAllocExp(queue, pool, size, properties, count, list, out, event),
            Kind::Host => {
                ur.urEnqueueUSMHostAllocExp(queue, pool, size, properties, count, list, out, event)
            }
        }
    }
}

impl Queue {
    /// Allocates without an event.
    #[track_caller]
    pub fn alloc(
        &self,
        kind: Kind,
        pool: &Pool,
        size: usize,
        wait: &[&Event],
    ) -> Result<Block, Stop> {
        self.try_alloc(kind, pool.raw, size, wait, null_mut()).1
    }

    /// Allocates with an event.
    #[track_caller]
    pub fn alloc_event(
        &self,
        kind: Kind,
        pool: &Pool,
        size: usize,
        wait: &[&Event],
    ) -> Result<(Block, Event), Stop> {
        let mut event = null_mut();
        let block = self.try_alloc(kind, pool.raw, size, wait, &mut event).1?;
        if event.is_null() {
            return Err(Stop::failed("an asynchronous allocation gave no event"));
        }
        Ok((block, Event::adopt(self.ur, event)))
    }

    /// Allocates from the device's current pool.
    #[track_caller]
    pub fn alloc_current(&self, kind: Kind, size: usize) -> Result<Block, Stop> {
        self.try_alloc(kind, null_mut(), size, &[], null_mut()).1
    }

    /// Allocates, and returns the status beside the block.
    #[track_caller]
    pub fn try_alloc(
        &self,
        kind: Kind,
        pool: ur_usm_pool_handle_t,
        size: usize,
        wait: &[&Event],
        event: *mut ur_event_handle_t,
    ) -> (Status, Result<Block, Stop>) {
        let wait = WaitList::new(wait);
        let mut ptr = null_mut();
        let status = kind.enqueue(
            self,
            pool,
            size,
            null(),
            (wait.count(), wait.pointer()),
            &mut ptr,
            event,
        );
        let block = match status.ok() {
            Ok(()) if ptr.is_null() => Err(Stop::failed(format!(
                "{}: success, but no pointer",
                status.function
            ))),
            Ok(()) => Ok(Block { ptr, size }),
            Err(stop) => Err(stop),
        };
        (status, block)
    }

    /// Frees without an event.
    #[track_caller]
    pub fn free(&self, block: Block, wait: &[&Event]) -> Done {
        let wait = WaitList::new(wait);
        let list = (wait.count(), wait.pointer());
        self.ur
            .urEnqueueUSMFreeExp(self.raw, null_mut(), block.ptr, list.0, list.1, null_mut())
            .ok()
    }

    /// Frees with an event.
    #[track_caller]
    pub fn free_event(&self, block: Block, wait: &[&Event]) -> Result<Event, Stop> {
        let wait = WaitList::new(wait);
        let list = (wait.count(), wait.pointer());
        self.event(|event| {
            self.ur
                .urEnqueueUSMFreeExp(self.raw, null_mut(), block.ptr, list.0, list.1, event)
        })
    }
}

/// Maximum size and release threshold of a pool, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub maximum: usize,
    pub threshold: usize,
}

/// A pool for asynchronous allocations; released on drop if the test made it.
pub struct Pool {
    pub ur: &'static Api,
    pub raw: ur_usm_pool_handle_t,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    owned: bool,
}

// SAFETY: the interface lets any thread use its objects.
unsafe impl Send for Pool {}
// SAFETY: the interface lets any thread use its objects.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool without limits or flags.
    #[track_caller]
    pub fn new(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        Self::with_flags(fixture, context, ur_usm_pool_flags_t(0))
    }

    #[track_caller]
    pub fn with_flags(
        fixture: &Fixture,
        context: &Context,
        flags: ur_usm_pool_flags_t,
    ) -> Result<Self, Stop> {
        let mut desc = ur_usm_pool_desc_t {
            flags,
            ..Default::default()
        };
        Self::create(fixture, context, &mut desc)
    }

    #[track_caller]
    pub fn with_limits(fixture: &Fixture, context: &Context, limits: Limits) -> Result<Self, Stop> {
        let limits = ur_usm_pool_limits_desc_t {
            maxPoolableSize: limits.maximum,
            minDriverAllocSize: limits.threshold,
            ..Default::default()
        };
        let mut desc = ur_usm_pool_desc_t {
            pNext: (&raw const limits).cast(),
            ..Default::default()
        };
        Self::create(fixture, context, &mut desc)
    }

    #[track_caller]
    pub fn create(
        fixture: &Fixture,
        context: &Context,
        desc: &mut ur_usm_pool_desc_t,
    ) -> Result<Self, Stop> {
        let mut raw = null_mut();
        context
            .ur
            .urUSMPoolCreateExp(context.raw, fixture.device, desc, &mut raw)
            .ok()?;
        if raw.is_null() {
            return Err(Stop::failed("urUSMPoolCreateExp: success, but no pool"));
        }
        Ok(Self {
            ur: context.ur,
            raw,
            context: context.raw,
            device: fixture.device,
            owned: true,
        })
    }

    /// The default pool of the device.
    #[track_caller]
    pub fn default_of(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        let mut raw = null_mut();
        context
            .ur
            .urUSMPoolGetDefaultDevicePoolExp(context.raw, fixture.device, &mut raw)
            .ok()?;
        Ok(Self {
            ur: context.ur,
            raw,
            context: context.raw,
            device: fixture.device,
            owned: false,
        })
    }

    /// The current pool of the device.
    #[track_caller]
    pub fn current_of(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        let mut raw = null_mut();
        context
            .ur
            .urUSMPoolGetDevicePoolExp(context.raw, fixture.device, &mut raw)
            .ok()?;
        Ok(Self {
            ur: context.ur,
            raw,
            context: context.raw,
            device: fixture.device,
            owned: false,
        })
    }

    /// A statistic of the pool in bytes.
    #[track_caller]
    pub fn statistic(&self, property: ur_usm_pool_info_t) -> Result<usize, Stop> {
        let mut value = usize::MAX;
        self.ur
            .urUSMPoolGetInfoExp(self.raw, property, (&raw mut value).cast(), null_mut())
            .ok()?;
        Ok(value)
    }

    #[track_caller]
    pub fn reserved(&self) -> Result<usize, Stop> {
        self.statistic(UR_USM_POOL_INFO_RESERVED_CURRENT_EXP)
    }

    #[track_caller]
    pub fn used(&self) -> Result<usize, Stop> {
        self.statistic(UR_USM_POOL_INFO_USED_CURRENT_EXP)
    }

    pub fn set(&self, property: ur_usm_pool_info_t, value: usize) -> Status {
        let mut value = value;
        self.ur.urUSMPoolSetInfoExp(
            self.raw,
            property,
            (&raw mut value).cast(),
            size_of::<usize>(),
        )
    }

    #[track_caller]
    pub fn trim(&self, keep_bytes: usize) -> Done {
        self.ur
            .urUSMPoolTrimToExp(self.context, self.device, self.raw, keep_bytes)
            .ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.owned {
            released(
                self.ur
                    .urUSMPoolDestroyExp(self.context, self.device, self.raw),
            );
        }
    }
}
