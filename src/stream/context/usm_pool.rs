//! Pool handles: creation from descriptors, figures, thresholds.

use crate::abi::*;
use crate::hal::{self, UsmPoolInfo};
use crate::object::{Body, Error, InfoIn, InfoOut, Object, Result, chain, ensure};
use crate::stream::settings::pool_log;
use crate::stream::usm::pool_core::{Plan, PoolCore};
use crate::stream::usm::provider::UserBlock;
use crate::stream::{Context, Driver, Kind, Work};
use crate::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

/// A pool's handle. Its core outlives it while blocks are live or pending.
pub struct UsmPool<D: Driver> {
    core: Arc<PoolCore<D>>,
    context: Weak<Object<Context<D>>>,
    /// The context, while the user holds the pool. Default and current pools belong to the context
    /// and must not keep it.
    keep: Mutex<Option<Arc<Object<Context<D>>>>>,
    default: bool,
}

impl<D: Driver> Body for UsmPool<D> {
    const KIND: crate::object::Kind = crate::object::Kind::UsmPool;

    fn released(this: &Object<Self>) {
        let context = this.keep.lock().take();
        drop(context);
    }
}

impl<D: Driver> Drop for UsmPool<D> {
    fn drop(&mut self) {
        if pool_log::is_wanted() {
            pool_log::write(&self.core.report());
        }
        self.core.close();
    }
}

impl<D: Driver> UsmPool<D> {
    pub(crate) fn core(&self) -> &Arc<PoolCore<D>> {
        &self.core
    }

    pub(crate) fn is_default(&self) -> bool {
        self.default
    }

    /// The default pool of a device. It releases nothing by itself, unless the driver says so.
    pub(crate) fn default_of(
        context: &Arc<Object<Context<D>>>,
        device: &Arc<Object<D::Device>>,
    ) -> Arc<Object<Self>> {
        let plan = Plan {
            devices: vec![Arc::clone(device)],
            max_bytes: 0,
            threshold: D::default_threshold(),
            keeps: D::keeps_by_default,
            zeroed: false,
            tight: false,
            user: None,
            native: false,
        };
        let core = PoolCore::new(context.domain(), plan);
        let body = Self {
            core: Arc::clone(&core),
            context: Arc::downgrade(context),
            keep: Mutex::new(None),
            default: true,
        };
        // The context owns the pool: references of callers do not count.
        let pool = Object::immortal(D::table(), body);
        core.set_handle(&pool);
        pool
    }

    /// `urUSMPoolCreate` and `urUSMPoolCreateExp`.
    pub(crate) fn create(
        context: &Object<Context<D>>,
        devices: Vec<Arc<Object<D::Device>>>,
        desc: &ur_usm_pool_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        let chained = desc.pNext;
        // SAFETY: the entry point's caller promises a chain of live structs with correct tags.
        let (limits, buffer, tight) = unsafe {
            (
                chain::find::<ur_usm_pool_limits_desc_t>(
                    chained,
                    UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC,
                ),
                chain::find::<ur_usm_pool_buffer_desc_t>(
                    chained,
                    UR_STRUCTURE_TYPE_USM_POOL_BUFFER_DESC,
                ),
                chain::find::<ur_base_desc_t>(chained, chain::TIGHT_POOL).is_some(),
            )
        };
        let zeroed = desc.flags.contains(UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK);
        let mut plan = Plan {
            devices,
            max_bytes: limits.map_or(0, |limits| limits.maxPoolableSize as u64),
            threshold: limits.map_or(u64::MAX, |limits| limits.minDriverAllocSize as u64),
            keeps: |_| true,
            zeroed,
            tight,
            user: None,
            native: desc
                .flags
                .contains(UR_USM_POOL_FLAG_USE_NATIVE_MEMORY_POOL_EXP),
        };
        if let Some(buffer) = buffer {
            plan.user = Some(user_block(context, &mut plan.devices, buffer)?);
            if zeroed {
                zero(context, &plan.devices, buffer)?;
            }
        }
        let core = PoolCore::new(context.domain(), plan);
        let context = context.arc();
        let pool = hal::new::<D, _>(Self {
            core: Arc::clone(&core),
            context: Arc::downgrade(&context),
            keep: Mutex::new(Some(context)),
            default: false,
        });
        core.set_handle(&pool);
        Ok(pool)
    }
}

/// Checks a user's block and narrows the pool to its device.
fn user_block<D: Driver>(
    context: &Object<Context<D>>,
    devices: &mut Vec<Arc<Object<D::Device>>>,
    buffer: &ur_usm_pool_buffer_desc_t,
) -> Result<(Kind, UserBlock)> {
    ensure(!buffer.pMem.is_null(), UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
    let base = buffer.pMem.addr();
    let fits = buffer.size > 0 && base.checked_add(buffer.size).is_some();
    ensure(fits, UR_RESULT_ERROR_INVALID_VALUE)?;
    let kind = match buffer.memType {
        UR_USM_TYPE_HOST => Kind::Host,
        UR_USM_TYPE_DEVICE => Kind::Device,
        UR_USM_TYPE_SHARED => Kind::Shared,
        _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    };
    // Memory of the context must have that kind and that length.
    if let Some(found) = context.domain().memory.find(base) {
        ensure(found.part().kind == kind, UR_RESULT_ERROR_INVALID_VALUE)?;
        context.check_range(base, buffer.size)?;
    }
    if !buffer.device.is_null() {
        // SAFETY: the entry point's caller promises live handles in descriptors.
        let device = unsafe { Object::<D::Device>::borrow(buffer.device.cast(), D::table()) }?;
        let own = context.device(device)?;
        devices.retain(|other| Arc::ptr_eq(other, &own));
        ensure(!devices.is_empty(), UR_RESULT_ERROR_INVALID_VALUE)?;
    } else if kind != Kind::Host {
        // A block of foreign memory can only belong to the one device.
        ensure(devices.len() == 1, UR_RESULT_ERROR_INVALID_VALUE)?;
    }
    Ok((
        kind,
        UserBlock {
            base,
            bytes: buffer.size,
            taken: AtomicBool::new(false),
        },
    ))
}

fn zero<D: Driver>(
    context: &Object<Context<D>>,
    devices: &[Arc<Object<D::Device>>],
    buffer: &ur_usm_pool_buffer_desc_t,
) -> Result<()> {
    let device = devices
        .first()
        .ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?;
    let pattern = [0][..].into();
    let fill = Work::Fill {
        dst: buffer.pMem.addr(),
        pattern,
        bytes: buffer.size,
    };
    context.domain().run_now(device, fill)
}

impl<D: Driver> hal::UsmPool<D> for UsmPool<D> {
    fn get_info(this: &Object<Self>, prop_name: UsmPoolInfo, out: InfoOut<'_>) -> Result<()> {
        let core = &this.core;
        if matches!(
            prop_name,
            UsmPoolInfo::ReservedCurrentExp | UsmPoolInfo::ReservedHighExp
        ) {
            core.refresh_native();
        }
        match prop_name {
            UsmPoolInfo::ReferenceCount => out.value(this.api_refs()),
            UsmPoolInfo::Context => out.handle(this.context.upgrade().as_deref()),
            UsmPoolInfo::ReleaseThresholdExp => out.value(core.threshold() as usize),
            UsmPoolInfo::MaximumSizeExp => out.value(core.max_bytes() as usize),
            UsmPoolInfo::ReservedCurrentExp => out.value(core.reserved.current() as usize),
            UsmPoolInfo::ReservedHighExp => out.value(core.reserved.high() as usize),
            UsmPoolInfo::UsedCurrentExp => out.value(core.used.read().0 as usize),
            UsmPoolInfo::UsedHighExp => out.value(core.used.read().1 as usize),
            UsmPoolInfo::HitsOwnExt => out.value(core.counters().own_lane),
            UsmPoolInfo::HitsOrderedExt => out.value(core.counters().ordered),
            UsmPoolInfo::HitsCompletedExt => out.value(core.counters().completed),
            UsmPoolInfo::HitsWaitedExt => out.value(core.counters().waited),
            UsmPoolInfo::HitsGrownExt => out.value(core.counters().grown),
            UsmPoolInfo::FailedExt => out.value(core.counters().failed),
            UsmPoolInfo::FreesExt => out.value(core.counters().releases),
            UsmPoolInfo::WaitsExt => out.value(core.counters().waits),
            UsmPoolInfo::GrowthsExt => out.value(core.counters().growths),
            UsmPoolInfo::GrownBytesExt => out.value(core.counters().grown_bytes),
            UsmPoolInfo::TrimsExt => out.value(core.counters().trims),
            UsmPoolInfo::TrimmedBytesExt => out.value(core.counters().trimmed_bytes),
            UsmPoolInfo::GathersExt => out.value(core.counters().compactions),
            UsmPoolInfo::GatheredBytesExt => out.value(core.counters().compacted_bytes),
            UsmPoolInfo::ReportExt => out.string(&core.report().line()),
        }
    }

    fn get_info_exp(this: &Object<Self>, prop_name: UsmPoolInfo, out: InfoOut<'_>) -> Result<()> {
        <Self as hal::UsmPool<D>>::get_info(this, prop_name, out)
    }

    fn set_info_exp(this: &Object<Self>, prop_name: UsmPoolInfo, value: InfoIn<'_>) -> Result<()> {
        let high = || ensure(value.value::<usize>()? == 0, UR_RESULT_ERROR_INVALID_VALUE);
        match prop_name {
            UsmPoolInfo::ReleaseThresholdExp => {
                this.core.set_threshold(value.value::<usize>()? as u64);
            }
            UsmPoolInfo::ReservedHighExp => {
                high()?;
                this.core.refresh_native();
                this.core.reserved.reset_high();
            }
            UsmPoolInfo::UsedHighExp => {
                high()?;
                this.core.used.reset_high();
            }
            UsmPoolInfo::ReportExt => pool_log::write(&this.core.report()),
            UsmPoolInfo::ReferenceCount
            | UsmPoolInfo::Context
            | UsmPoolInfo::MaximumSizeExp
            | UsmPoolInfo::ReservedCurrentExp
            | UsmPoolInfo::UsedCurrentExp
            | UsmPoolInfo::HitsOwnExt
            | UsmPoolInfo::HitsOrderedExt
            | UsmPoolInfo::HitsCompletedExt
            | UsmPoolInfo::HitsWaitedExt
            | UsmPoolInfo::HitsGrownExt
            | UsmPoolInfo::FailedExt
            | UsmPoolInfo::FreesExt
            | UsmPoolInfo::WaitsExt
            | UsmPoolInfo::GrowthsExt
            | UsmPoolInfo::GrownBytesExt
            | UsmPoolInfo::TrimsExt
            | UsmPoolInfo::TrimmedBytesExt
            | UsmPoolInfo::GathersExt
            | UsmPoolInfo::GatheredBytesExt => {
                return Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
            }
        }
        Ok(())
    }
}
