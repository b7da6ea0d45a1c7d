//! Contexts: devices, default and current pools, and deleters.
//!
//! Owns the handles of contexts and of pools, and synchronous USM. Uses `usm` and the folders below
//! it. Must never know a queue or an event.

pub(crate) mod sharing;
pub(crate) mod usm;
pub(crate) mod usm_pool;

use crate::abi::*;
use crate::hal::{self, ContextInfo};
use crate::object::{Body, Error, Handles, InfoOut, Object, Result};
use crate::pool::{ExtentVersion, PoolKey};
use crate::stream::driver::{call_user_anyway, in_user_function};
use crate::stream::engine::Scope;
use crate::stream::lane::LaneCore;
use crate::stream::lane::LaneOwner;
use crate::stream::lane::lanes::Lanes;
use crate::stream::{Domain, Driver, Engine, Kind, UsmPool};
use crate::sync::Mutex;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A context's handle.
pub struct Context<D: Driver> {
    domain: Arc<Domain<D>>,
    /// Default pools by device index. Made on demand.
    defaults: Box<[OnceLock<Pool<D>>]>,
    /// The current pools, which a null pool stands for, where they are not the default.
    current: Mutex<Vec<Option<Pool<D>>>>,
    /// Keys of the current pools by device and kind; 0 for unknown. Written under the lock of
    /// `current`, read without.
    keys: Box<[[AtomicU64; Kind::ALL.len()]]>,
    deleters: Mutex<Vec<Deleter>>,
}

type Pool<D> = Arc<Object<UsmPool<D>>>;

struct Deleter {
    run: <ur_context_extended_deleter_t as hal::Unwrapped>::Fn,
    data: *mut c_void,
}

// SAFETY: the caller that sets a deleter promises that it may run on the thread that ends the
// context.
unsafe impl Send for Deleter {}

impl<D: Driver> Body for Context<D> {
    const KIND: crate::object::Kind = crate::object::Kind::Context;
}

impl<D: Driver> Context<D> {
    /// A context over these devices, which must not be empty.
    pub fn new(
        engine: &Arc<Engine<D>>,
        devices: Handles<'_, D::Device>,
        state: D::ContextData,
    ) -> Arc<Object<Self>> {
        let devices: Box<[_]> = devices.iter().map(Object::arc).collect();
        let defaults = devices.iter().map(|_| OnceLock::new()).collect();
        let current = devices.iter().map(|_| None).collect();
        let keys = devices.iter().map(|_| Default::default()).collect();
        hal::new::<D, _>(Self {
            domain: Domain::new(engine, devices, state),
            defaults,
            current: Mutex::new(current),
            keys,
            deleters: Mutex::default(),
        })
    }

    pub fn domain(&self) -> &Arc<Domain<D>> {
        &self.domain
    }

    pub fn devices(&self) -> &[Arc<Object<D::Device>>] {
        self.domain.devices()
    }

    pub fn each_device(&self) -> impl Iterator<Item = &Object<D::Device>> + Clone {
        self.devices().iter().map(|device| &**device)
    }

    /// Waits until everything enqueued in the context so far has ended.
    pub fn finish(&self) -> Result<()> {
        self.domain.engine().wait(&self.domain.everything())
    }

    /// Runs a job on a thread of the engine once everything enqueued in the context so far has
    /// ended.
    fn when_finished(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let everything = self.domain.everything().into();
        self.domain.engine().when(everything, |_| job())
    }

    /// Calls `then` once everything enqueued in the context so far has ended: before this returns, or later within a
    /// user function, which is a part of enqueued work.
    pub fn after_use(&self, then: impl FnOnce() + Send + 'static) -> Result<()> {
        match in_user_function() {
            false => self.finish().map(|()| then()),
            true => self.when_finished(then),
        }
    }

    /// Drops what commands may use once everything enqueued in the context so far has ended: before this returns if it
    /// has, else later, and the commands do not see it. Blocks only where no thread can be had for that.
    pub fn drop_after_use(&self, what: impl Send + Sync + 'static) {
        self.domain.drop_after_use(what);
    }

    /// Called after foreign memory at some address has become another, or its access has changed:
    /// commands look anew for memory that their device reaches.
    pub fn access_changed(&self) {
        self.domain.memory.extent_version.change();
    }

    /// `INVALID_DEVICE` if the device is neither the context's nor a part of one.
    pub fn check_device(&self, device: &Object<D::Device>) -> Result<()> {
        self.index(device).map(drop)
    }

    pub(crate) fn index(&self, device: &Object<D::Device>) -> Result<usize> {
        self.domain
            .index_of(device)
            .ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))
    }

    /// The device of the context that this is, or is a part of.
    pub(crate) fn device(&self, device: &Object<D::Device>) -> Result<Arc<Object<D::Device>>> {
        Ok(Arc::clone(&self.devices()[self.index(device)?]))
    }

    pub(crate) fn default_pool(this: &Object<Self>, device: &Object<D::Device>) -> Result<Pool<D>> {
        let at = this.index(device)?;
        let make = || UsmPool::default_of(&this.arc(), &this.devices()[at]);
        Ok(Arc::clone(this.defaults[at].get_or_init(make)))
    }

    /// The pool that a null pool argument stands for.
    pub(crate) fn current_pool(this: &Object<Self>, device: &Object<D::Device>) -> Result<Pool<D>> {
        let at = this.index(device)?;
        let current = this.current.lock()[at].clone();
        if let Some(pool) = current {
            return Ok(pool);
        }
        let pool = Self::default_pool(this, device)?;
        if this.current_key(at, Kind::Host).is_none() {
            let current = this.current.lock();
            if current[at].is_none() {
                this.note_keys(at, &pool);
            }
        }
        Ok(pool)
    }

    /// The key of the current pool in block caches, once it was used.
    pub(crate) fn current_key(&self, device: usize, kind: Kind) -> Option<PoolKey> {
        let key = self.keys[device][kind as usize].load(Ordering::Relaxed);
        (key != 0).then(|| PoolKey::from_raw(key))
    }

    fn note_keys(&self, at: usize, pool: &Object<UsmPool<D>>) {
        for kind in Kind::ALL {
            let key = pool.core().key(kind, &self.devices()[at]);
            self.keys[at][kind as usize].store(key.map_or(0, PoolKey::get), Ordering::Relaxed);
        }
    }

    pub(crate) fn set_current_pool(
        &self,
        device: &Object<D::Device>,
        pool: &Object<UsmPool<D>>,
    ) -> Result<()> {
        let at = self.index(device)?;
        self.check_pool(pool)?;
        let own = &self.devices()[at];
        let serves = pool.core().parts().iter().any(|part| {
            part.device
                .as_deref()
                .is_none_or(|device| std::ptr::eq(device, &**own))
        });
        crate::object::ensure(serves, UR_RESULT_ERROR_INVALID_VALUE)?;
        let new = (!pool.is_default()).then(|| pool.arc());
        let mut current = self.current.lock();
        self.note_keys(at, pool);
        let old = std::mem::replace(&mut current[at], new);
        drop(current);
        drop(old);
        Ok(())
    }

    pub(crate) fn check_pool(&self, pool: &Object<UsmPool<D>>) -> Result<()> {
        let own = pool.core().belongs_to(&self.domain);
        crate::object::ensure(own, UR_RESULT_ERROR_INVALID_VALUE)
    }

    pub(crate) fn add_deleter(
        &self,
        run: <ur_context_extended_deleter_t as hal::Unwrapped>::Fn,
        data: *mut c_void,
    ) {
        self.deleters.lock().push(Deleter { run, data });
    }

    pub(crate) fn info(this: &Object<Self>, what: ContextInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            ContextInfo::NumDevices => out.value(this.devices().len() as u32),
            ContextInfo::Devices => {
                let handles: Vec<_> = this
                    .devices()
                    .iter()
                    .map(|device| device.handle())
                    .collect();
                out.slice(&handles)
            }
            ContextInfo::ReferenceCount => out.value(this.api_refs()),
            ContextInfo::UsmMemcpy2dSupport | ContextInfo::UsmFill2dSupport => out.boolean(true),
        }
    }
}

impl<D: Driver> LaneOwner<D> for Object<Context<D>> {
    fn scope(&self) -> &Scope<D> {
        self.domain.scope()
    }

    fn lanes(&self) -> &Lanes<LaneCore<D>> {
        self.domain.lanes()
    }

    fn extent_version(&self) -> &Arc<ExtentVersion> {
        &self.domain.memory.extent_version
    }
}

impl<D: Driver> Drop for Context<D> {
    fn drop(&mut self) {
        for deleter in std::mem::take(self.deleters.get_mut()) {
            // SAFETY: set by the user for this moment, with data that it wants to see.
            let call = || unsafe { (deleter.run)(deleter.data) };
            call_user_anyway::<D>(&self.devices()[0], call);
        }
        self.unregister_all();
        self.current.lock().clear();
        self.domain.memory.clear();
    }
}
