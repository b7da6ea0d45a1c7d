//! Samplers as the driver describes them: a descriptor and the options chained to it.

use ur::abi::*;
use ur::object::{Result, chain, ensure};

use crate::lz::*;
use crate::sampler::described;

const KNOWN: [ur_structure_type_t; 3] = [
    UR_STRUCTURE_TYPE_EXP_SAMPLER_MIP_PROPERTIES,
    UR_STRUCTURE_TYPE_EXP_SAMPLER_ADDR_MODES,
    UR_STRUCTURE_TYPE_EXP_SAMPLER_CUBEMAP_PROPERTIES,
];

/// The driver's description. `dimensions` are the image's. Options of mipmaps and cubes have no effect on other images,
/// which the driver alone has.
///
/// `UNSUPPORTED_FEATURE` for dimensions with modes of their own, which the driver lacks, `INVALID_SAMPLER` for modes
/// that repeat an image whose coordinates count pixels, `INVALID_VALUE` for an unknown struct in the chain.
pub fn describe(desc: &ur_sampler_desc_t, dimensions: usize) -> Result<ze_sampler_desc_t> {
    // SAFETY: the caller's chain consists of live structs tagged as what they are.
    let (other, modes) = unsafe {
        (
            chain::has_other(desc.pNext, &KNOWN),
            chain::find::<ur_exp_sampler_addr_modes_t>(desc.pNext, KNOWN[1]),
        )
    };
    ensure(!other, UR_RESULT_ERROR_INVALID_VALUE)?;
    let modes = modes.map_or([desc.addressingMode; 3], |own| own.addrModes);
    let mode = modes[0];
    let alike = modes.iter().take(dimensions).all(|own| *own == mode);
    ensure(alike, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
    let repeats = matches!(
        mode,
        UR_SAMPLER_ADDRESSING_MODE_REPEAT | UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT
    );
    let able = desc.normalizedCoords != 0 || !repeats;
    ensure(able, UR_RESULT_ERROR_INVALID_SAMPLER)?;
    described(&ur_sampler_desc_t {
        addressingMode: mode,
        ..*desc
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ur::object::Error;

    fn plain() -> ur_sampler_desc_t {
        ur_sampler_desc_t {
            normalizedCoords: 1,
            addressingMode: UR_SAMPLER_ADDRESSING_MODE_REPEAT,
            filterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
            ..Default::default()
        }
    }

    #[test]
    fn the_chain_s_mode_is_that_of_all_dimensions() {
        let mut modes = ur_exp_sampler_addr_modes_t {
            addrModes: [
                UR_SAMPLER_ADDRESSING_MODE_CLAMP,
                UR_SAMPLER_ADDRESSING_MODE_CLAMP,
                UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
            ],
            ..Default::default()
        };
        let mut mips = ur_exp_sampler_mip_properties_t {
            pNext: (&raw mut modes).cast(),
            ..Default::default()
        };
        let chained = ur_sampler_desc_t {
            pNext: (&raw mut mips).cast(),
            ..plain()
        };
        let what = describe(&chained, 2).expect("a description");
        assert_eq!(what.addressMode, ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER);
        assert_eq!(what.filterMode, ZE_SAMPLER_FILTER_MODE_LINEAR);
        assert_eq!(what.isNormalized, 1);
        let code = describe(&chained, 3).map(drop).map_err(Error::code);
        assert_eq!(code, Err(UR_RESULT_ERROR_UNSUPPORTED_FEATURE));
    }

    #[test]
    fn what_the_driver_lacks_is_refused() {
        let refused = |desc: &ur_sampler_desc_t| {
            let found = describe(desc, 2).map(drop);
            found.map_err(Error::code)
        };
        let pixels = ur_sampler_desc_t {
            normalizedCoords: 0,
            ..plain()
        };
        assert_eq!(refused(&pixels), Err(UR_RESULT_ERROR_INVALID_SAMPLER));
        let mut stranger = ur_usm_host_desc_t::default();
        let strange = ur_sampler_desc_t {
            pNext: (&raw mut stranger).cast(),
            ..plain()
        };
        assert_eq!(refused(&strange), Err(UR_RESULT_ERROR_INVALID_VALUE));
        assert_eq!(refused(&plain()), Ok(()));
    }
}
