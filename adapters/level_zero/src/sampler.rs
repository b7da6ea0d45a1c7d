//! Samplers: how kernels read images. A native sampler is a device's.

use std::collections::HashMap;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ur::abi::*;
use ur::hal::{self, SamplerInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;
use ur::sync::{Mutex, rank};

use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

pub struct Sampler {
    context: Arc<Object<Context<LevelZero>>>,
    /// None of a foreign sampler: the driver does not tell.
    modes: Option<Modes>,
    natives: Arc<Natives>,
    /// Whether a launch may use it.
    is_used: AtomicBool,
}

/// What `urSamplerCreate` was given.
#[derive(Clone, Copy)]
pub struct Modes {
    is_normalized: bool,
    addressing: ur_sampler_addressing_mode_t,
    filter: ur_sampler_filter_mode_t,
}

/// The modes of the native samplers that this adapter has made in a context.
pub type Known = Mutex<HashMap<usize, Modes>, { rank::LEAF }>;

/// The native samplers of a sampler, each with its device.
pub struct Natives(Vec<(Arc<Object<Device>>, NativeSampler)>);

struct NativeSampler {
    raw: ze_sampler_handle_t,
    context: Arc<NativeContext>,
    /// Whether the drop destroys it: a foreign one may be its maker's.
    own: bool,
}

const ADDRESSES: [(ur_sampler_addressing_mode_t, ze_sampler_address_mode_t); 5] = [
    (
        UR_SAMPLER_ADDRESSING_MODE_NONE,
        ZE_SAMPLER_ADDRESS_MODE_NONE,
    ),
    (
        UR_SAMPLER_ADDRESSING_MODE_REPEAT,
        ZE_SAMPLER_ADDRESS_MODE_REPEAT,
    ),
    // Level Zero's CLAMP is to the edge.
    (
        UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
        ZE_SAMPLER_ADDRESS_MODE_CLAMP,
    ),
    (
        UR_SAMPLER_ADDRESSING_MODE_CLAMP,
        ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER,
    ),
    (
        UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
        ZE_SAMPLER_ADDRESS_MODE_MIRROR,
    ),
];

/// The driver's description. `UNSUPPORTED_ENUMERATION` for modes that the interface lacks.
pub fn described(desc: &ur_sampler_desc_t) -> Result<ze_sampler_desc_t> {
    let unknown = Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION);
    let mut modes = ADDRESSES.iter();
    let mode = modes.find(|(own, _)| *own == desc.addressingMode);
    let (_, address) = *mode.ok_or(unknown)?;
    Ok(ze_sampler_desc_t {
        addressMode: address,
        filterMode: match desc.filterMode {
            UR_SAMPLER_FILTER_MODE_NEAREST => ZE_SAMPLER_FILTER_MODE_NEAREST,
            UR_SAMPLER_FILTER_MODE_LINEAR => ZE_SAMPLER_FILTER_MODE_LINEAR,
            _ => return Err(Error::new(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION)),
        },
        isNormalized: u8::from(desc.normalizedCoords != 0),
        ..Default::default()
    })
}

impl Sampler {
    /// `urSamplerCreate`. The shim has checked the modes.
    pub fn create(
        context: &Object<Context<LevelZero>>,
        desc: &ur_sampler_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        let modes = Modes {
            is_normalized: desc.normalizedCoords != 0,
            addressing: desc.addressingMode,
            filter: desc.filterMode,
        };
        let desc = described(desc)?;
        let native = &context.domain().state().native;
        let able = context.devices().iter().filter(|one| one.has_images());
        let create = |device: &Arc<Object<Device>>| {
            let created = NativeSampler::create(native, device, &desc, modes)?;
            Ok((Arc::clone(device), created))
        };
        let natives: Vec<_> = able.map(create).collect::<Result<_>>()?;
        ensure(!natives.is_empty(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        Ok(Self::new(context, Some(modes), natives))
    }

    /// `urSamplerCreateWithNativeHandle`: a sampler of the context's first device. Its modes are known if this adapter
    /// made it.
    pub fn from_native(
        context: &Object<Context<LevelZero>>,
        native: ur_native_handle_t,
        properties: Option<&ur_sampler_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let device = &context.devices()[0];
        ensure(device.has_images(), UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        ensure(native != 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let state = &context.domain().state().native;
        let modes = state.samplers.lock().get(&native).copied();
        let adopted = NativeSampler {
            raw: ze_sampler_handle_t(with_exposed_provenance_mut(native)),
            context: Arc::clone(state),
            own: owned,
        };
        Ok(Self::new(
            context,
            modes,
            vec![(Arc::clone(device), adopted)],
        ))
    }

    fn new(
        context: &Object<Context<LevelZero>>,
        modes: Option<Modes>,
        natives: Vec<(Arc<Object<Device>>, NativeSampler)>,
    ) -> Arc<Object<Self>> {
        hal::new::<LevelZero, _>(Self {
            context: context.arc(),
            modes,
            natives: Arc::new(Natives(natives)),
            is_used: AtomicBool::new(false),
        })
    }

    /// The native samplers, for a launch.
    pub fn for_kernel(&self) -> &Arc<Natives> {
        self.is_used.store(true, Ordering::Release);
        &self.natives
    }
}

impl Natives {
    /// What a kernel takes on a device. `INVALID_SAMPLER` if there is none.
    pub fn on(&self, device: &Object<Device>) -> Result<ze_sampler_handle_t> {
        let mut all = self.0.iter();
        let found = all.find(|(own, _)| std::ptr::eq(&**own, device));
        let (_, native) = found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_SAMPLER))?;
        Ok(native.raw)
    }
}

impl NativeSampler {
    fn create(
        context: &Arc<NativeContext>,
        device: &Device,
        desc: &ze_sampler_desc_t,
        modes: Modes,
    ) -> Result<Self> {
        let mut raw = ze_sampler_handle_t::NULL;
        // SAFETY: the description has its tag, and there is room for the handle.
        unsafe {
            call!(
                context.api,
                zeSamplerCreate(context.raw, device.raw(), desc, &mut raw)
            )
        }?;
        let mut known = context.samplers.lock();
        known.insert(raw.0.expose_provenance(), modes);
        drop(known);
        Ok(Self {
            raw,
            context: Arc::clone(context),
            own: true,
        })
    }
}

impl Drop for NativeSampler {
    fn drop(&mut self) {
        if !self.own || self.context.api.is_torn_down() {
            return;
        }
        let mut known = self.context.samplers.lock();
        known.remove(&self.raw.0.addr());
        drop(known);
        // SAFETY: the sampler is this one's, and its use is over.
        let destroyed = unsafe { call!(self.context.api, zeSamplerDestroy(self.raw)) };
        if let Err(error) = destroyed {
            log::error!("a sampler is not destroyed: {:?}", error.code());
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // Pending launches may use the native samplers.
        if *self.is_used.get_mut() {
            self.context.drop_after_use(Arc::clone(&self.natives));
        }
    }
}

impl Body for Sampler {
    const KIND: Kind = Kind::Sampler;
}

impl hal::Sampler<LevelZero> for Sampler {
    fn get_info(this: &Object<Self>, what: SamplerInfo, out: InfoOut<'_>) -> Result<()> {
        let modes = this.modes.ok_or(Error::unsupported());
        match what {
            SamplerInfo::ReferenceCount => out.value(this.api_refs()),
            SamplerInfo::Context => out.handle(Some(&this.context)),
            SamplerInfo::NormalizedCoords => out.boolean(modes?.is_normalized),
            SamplerInfo::AddressingMode => out.value(modes?.addressing),
            SamplerInfo::FilterMode => out.value(modes?.filter),
        }
    }

    /// The sampler of the context's first device that has images.
    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        let natives = this.for_kernel();
        let (_, first) = natives.0.first().ok_or(Error::unsupported())?;
        Ok(first.raw.0.expose_provenance())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_the_drivers() {
        let native = |addressing, filter| {
            let desc = ur_sampler_desc_t {
                normalizedCoords: 1,
                addressingMode: addressing,
                filterMode: filter,
                ..Default::default()
            };
            described(&desc).map(|own| (own.addressMode, own.filterMode, own.isNormalized))
        };
        let nearest = UR_SAMPLER_FILTER_MODE_NEAREST;
        for (own, theirs) in ADDRESSES {
            assert_eq!(
                native(own, nearest),
                Ok((theirs, ZE_SAMPLER_FILTER_MODE_NEAREST, 1))
            );
        }
        let linear = native(
            UR_SAMPLER_ADDRESSING_MODE_NONE,
            UR_SAMPLER_FILTER_MODE_LINEAR,
        );
        assert_eq!(linear.map(|own| own.1), Ok(ZE_SAMPLER_FILTER_MODE_LINEAR));
        assert!(native(ur_sampler_addressing_mode_t(77), nearest).is_err());
    }
}
