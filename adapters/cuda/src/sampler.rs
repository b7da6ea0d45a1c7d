//! Samplers: how a kernel reads an image. The driver has none; a kernel takes a number that says how.

use std::sync::Arc;

use ur::abi::*;
use ur::hal::{self, SamplerInfo};
use ur::object::{Body, InfoOut, Kind, Object, Result, chain, ensure};
use ur::stream::Context;

use crate::Cuda;

pub struct Sampler {
    context: Arc<Object<Context<Cuda>>>,
    is_normalized: bool,
    addressing: ur_sampler_addressing_mode_t,
    filter: ur_sampler_filter_mode_t,
    number: u32,
}

/// Where each property begins in a sampler's number. An addressing mode has three bits.
const FILTER_BIT: u32 = 1;
const ADDRESSING: [u32; 3] = [2, 5, 8];
const MIP_FILTER_BIT: u32 = 11;
const CUBEMAP_FILTER_BIT: u32 = 12;

/// The number that device code of DPC++ understands. Only the first dimension has an addressing mode unless the
/// chain gives one to each.
fn number(desc: &ur_sampler_desc_t) -> u32 {
    let next = desc.pNext;
    // SAFETY: `urSamplerCreate` requires a chain of live structs, and a tag names its struct.
    let (modes, mip, cubemap) = unsafe {
        (
            chain::find::<ur_exp_sampler_addr_modes_t>(
                next,
                UR_STRUCTURE_TYPE_EXP_SAMPLER_ADDR_MODES,
            ),
            chain::find::<ur_exp_sampler_mip_properties_t>(
                next,
                UR_STRUCTURE_TYPE_EXP_SAMPLER_MIP_PROPERTIES,
            ),
            chain::find::<ur_exp_sampler_cubemap_properties_t>(
                next,
                UR_STRUCTURE_TYPE_EXP_SAMPLER_CUBEMAP_PROPERTIES,
            ),
        )
    };
    let mut number = u32::from(desc.normalizedCoords != 0) | desc.filterMode.0 << FILTER_BIT;
    let none = UR_SAMPLER_ADDRESSING_MODE_NONE;
    let modes = modes.map_or([desc.addressingMode, none, none], |modes| modes.addrModes);
    for (at, mode) in ADDRESSING.iter().zip(modes) {
        number |= (mode.0 & 7) << at;
    }
    let mip = mip.map_or(0, |mip| (mip.mipFilterMode.0 & 1) << MIP_FILTER_BIT);
    let cubemap = cubemap.map_or(0, |cubemap| {
        (cubemap.cubemapFilterMode.0 & 1) << CUBEMAP_FILTER_BIT
    });
    number | mip | cubemap
}

impl Sampler {
    /// `urSamplerCreate`. The shim has checked the modes.
    pub fn create(
        context: &Object<Context<Cuda>>,
        desc: &ur_sampler_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        let able = context.devices().iter().any(|device| device.has_images());
        ensure(able, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        Ok(hal::new::<Cuda, _>(Self {
            context: context.arc(),
            is_normalized: desc.normalizedCoords != 0,
            addressing: desc.addressingMode,
            filter: desc.filterMode,
            number: number(desc),
        }))
    }

    /// What a kernel takes.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Body for Sampler {
    const KIND: Kind = Kind::Sampler;
}

impl hal::Sampler<Cuda> for Sampler {
    fn get_info(this: &Object<Self>, what: SamplerInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            SamplerInfo::ReferenceCount => out.value(this.api_refs()),
            SamplerInfo::Context => out.handle(Some(&this.context)),
            SamplerInfo::NormalizedCoords => out.boolean(this.is_normalized),
            SamplerInfo::AddressingMode => out.value(this.addressing),
            SamplerInfo::FilterMode => out.value(this.filter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_each_property_in_its_bits() {
        let plain = ur_sampler_desc_t {
            normalizedCoords: 1,
            addressingMode: UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
            filterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
            ..Default::default()
        };
        assert_eq!(number(&plain), 0b1_0011);
        let pixels = ur_sampler_desc_t {
            normalizedCoords: 0,
            addressingMode: UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
            filterMode: UR_SAMPLER_FILTER_MODE_NEAREST,
            ..Default::default()
        };
        assert_eq!(number(&pixels), 0b100);
        let mut mip = ur_exp_sampler_mip_properties_t {
            mipFilterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
            ..Default::default()
        };
        let mut modes = ur_exp_sampler_addr_modes_t {
            pNext: (&raw mut mip).cast(),
            addrModes: [
                UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
                UR_SAMPLER_ADDRESSING_MODE_CLAMP,
                UR_SAMPLER_ADDRESSING_MODE_REPEAT,
            ],
            ..Default::default()
        };
        let chained = ur_sampler_desc_t {
            pNext: (&raw mut modes).cast(),
            ..pixels
        };
        assert_eq!(number(&chained), 1 << 11 | 3 << 8 | 2 << 5 | 1 << 2);
    }
}
