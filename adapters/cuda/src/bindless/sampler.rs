//! Samplers as the driver describes them: a descriptor and the options chained to it.

use ur::abi::*;
use ur::object::{Result, chain, ensure};

use crate::cu::sys::*;
use crate::image::Texel;

/// Most that the driver filters anisotropically.
pub const MAX_ANISOTROPY: f32 = 16.0;

const KNOWN: [ur_structure_type_t; 3] = [
    UR_STRUCTURE_TYPE_EXP_SAMPLER_MIP_PROPERTIES,
    UR_STRUCTURE_TYPE_EXP_SAMPLER_ADDR_MODES,
    UR_STRUCTURE_TYPE_EXP_SAMPLER_CUBEMAP_PROPERTIES,
];

fn filter(mode: ur_sampler_filter_mode_t) -> Result<CUfilter_mode> {
    ensure(mode.name().is_some(), UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    Ok(match mode {
        UR_SAMPLER_FILTER_MODE_LINEAR => CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
        _ => CUfilter_mode::CU_TR_FILTER_MODE_POINT,
    })
}

fn address(mode: ur_sampler_addressing_mode_t) -> Result<CUaddress_mode> {
    use CUaddress_mode::*;
    ensure(mode.name().is_some(), UR_RESULT_ERROR_INVALID_ENUMERATION)?;
    Ok(match mode {
        UR_SAMPLER_ADDRESSING_MODE_CLAMP => CU_TR_ADDRESS_MODE_BORDER,
        UR_SAMPLER_ADDRESSING_MODE_REPEAT => CU_TR_ADDRESS_MODE_WRAP,
        UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT => CU_TR_ADDRESS_MODE_MIRROR,
        // Without a mode, coordinates outside the image are undefined.
        _ => CU_TR_ADDRESS_MODE_CLAMP,
    })
}

/// The driver's description of a texture. `dimensions` are the image's: the driver wants no mode in others.
///
/// `INVALID_SAMPLER` for modes that repeat an image whose coordinates count pixels, which the driver lacks, and for
/// numbers out of range. `INVALID_VALUE` for an unknown struct in the chain.
pub fn describe(
    desc: &ur_sampler_desc_t,
    texel: Texel,
    dimensions: usize,
) -> Result<CUDA_TEXTURE_DESC> {
    let first = desc.pNext;
    // SAFETY: the caller's chain consists of live structs tagged as what they are.
    let (other, mips, modes, cube) = unsafe {
        (
            chain::has_other(first, &KNOWN),
            chain::find::<ur_exp_sampler_mip_properties_t>(first, KNOWN[0]),
            chain::find::<ur_exp_sampler_addr_modes_t>(first, KNOWN[1]),
            chain::find::<ur_exp_sampler_cubemap_properties_t>(first, KNOWN[2]),
        )
    };
    ensure(!other, UR_RESULT_ERROR_INVALID_VALUE)?;
    let mut what = CUDA_TEXTURE_DESC {
        addressMode: [CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP; 3],
        filterMode: filter(desc.filterMode)?,
        flags: 0,
        maxAnisotropy: 0,
        mipmapFilterMode: CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        mipmapLevelBias: 0.0,
        minMipmapLevelClamp: 0.0,
        maxMipmapLevelClamp: 0.0,
        borderColor: [0.0; 4],
        reserved: [0; 12],
    };
    let modes = modes.map_or([desc.addressingMode; 3], |own| own.addrModes);
    for (own, mode) in what.addressMode.iter_mut().zip(modes).take(dimensions) {
        *own = address(mode)?;
    }
    let is_normalized = desc.normalizedCoords != 0;
    let repeats = modes.iter().take(dimensions).any(|mode| {
        matches!(
            *mode,
            UR_SAMPLER_ADDRESSING_MODE_REPEAT | UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT
        )
    });
    ensure(is_normalized || !repeats, UR_RESULT_ERROR_INVALID_SAMPLER)?;
    if is_normalized {
        what.flags |= CU_TRSF_NORMALIZED_COORDINATES;
    }
    if !texel.is_normalized {
        what.flags |= CU_TRSF_READ_AS_INTEGER;
    }
    if let Some(mips) = mips {
        let range = [mips.minMipmapLevelClamp, mips.maxMipmapLevelClamp];
        let anisotropy = mips.maxAnisotropy;
        let known = range.iter().all(|level| level.is_finite() && *level >= 0.0)
            && range[0] <= range[1]
            && anisotropy.is_finite()
            && anisotropy >= 0.0;
        ensure(known, UR_RESULT_ERROR_INVALID_SAMPLER)?;
        [what.minMipmapLevelClamp, what.maxMipmapLevelClamp] = range;
        // The driver has no more, either.
        what.maxAnisotropy = anisotropy.min(MAX_ANISOTROPY) as u32;
        what.mipmapFilterMode = filter(mips.mipFilterMode)?;
    }
    if let Some(cube) = cube {
        let mode = cube.cubemapFilterMode;
        ensure(mode.name().is_some(), UR_RESULT_ERROR_INVALID_ENUMERATION)?;
        if mode == UR_EXP_SAMPLER_CUBEMAP_FILTER_MODE_SEAMLESS {
            what.flags |= CU_TRSF_SEAMLESS_CUBEMAP;
        }
    }
    Ok(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    const INTEGERS: Texel = Texel {
        format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        channels: 1,
        bytes: 1,
        is_normalized: false,
    };

    fn plain() -> ur_sampler_desc_t {
        ur_sampler_desc_t {
            normalizedCoords: 1,
            addressingMode: UR_SAMPLER_ADDRESSING_MODE_REPEAT,
            filterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
            ..Default::default()
        }
    }

    #[test]
    fn one_mode_stands_for_all_dimensions() {
        use CUaddress_mode::*;
        let clamped = ur_sampler_desc_t {
            addressingMode: UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
            ..plain()
        };
        let what = describe(&clamped, INTEGERS, 2).expect("a description");
        let [x, y, z] = what.addressMode;
        assert_eq!([x, y], [CU_TR_ADDRESS_MODE_CLAMP; 2]);
        assert_eq!(z, CU_TR_ADDRESS_MODE_WRAP, "a dimension that is not there");
        assert_eq!(what.filterMode, CUfilter_mode::CU_TR_FILTER_MODE_LINEAR);
        assert_eq!(
            what.flags,
            CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_READ_AS_INTEGER
        );
    }

    #[test]
    fn the_chain_is_read_to_its_end() {
        let mut cube = ur_exp_sampler_cubemap_properties_t {
            cubemapFilterMode: UR_EXP_SAMPLER_CUBEMAP_FILTER_MODE_SEAMLESS,
            ..Default::default()
        };
        let mut modes = ur_exp_sampler_addr_modes_t {
            addrModes: [
                UR_SAMPLER_ADDRESSING_MODE_REPEAT,
                UR_SAMPLER_ADDRESSING_MODE_CLAMP,
                UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
            ],
            pNext: (&raw mut cube).cast(),
            ..Default::default()
        };
        let mut mips = ur_exp_sampler_mip_properties_t {
            minMipmapLevelClamp: 1.0,
            maxMipmapLevelClamp: 3.5,
            maxAnisotropy: 8.0,
            mipFilterMode: UR_SAMPLER_FILTER_MODE_LINEAR,
            pNext: (&raw mut modes).cast(),
            ..Default::default()
        };
        let chained = ur_sampler_desc_t {
            pNext: (&raw mut mips).cast(),
            ..plain()
        };
        let texel = Texel {
            is_normalized: true,
            ..INTEGERS
        };
        let what = describe(&chained, texel, 3).expect("a description");
        use CUaddress_mode::*;
        assert_eq!(
            what.addressMode,
            [
                CU_TR_ADDRESS_MODE_WRAP,
                CU_TR_ADDRESS_MODE_BORDER,
                CU_TR_ADDRESS_MODE_MIRROR
            ]
        );
        assert_eq!(
            what.flags,
            CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SEAMLESS_CUBEMAP
        );
        assert_eq!(
            (what.minMipmapLevelClamp, what.maxMipmapLevelClamp),
            (1.0, 3.5)
        );
        assert_eq!(what.maxAnisotropy, 8);
        assert_eq!(
            what.mipmapFilterMode,
            CUfilter_mode::CU_TR_FILTER_MODE_LINEAR
        );
    }

    #[test]
    fn what_the_driver_lacks_is_refused() {
        let refused = |desc: &ur_sampler_desc_t| {
            let found = describe(desc, INTEGERS, 2).map(drop);
            found.map_err(ur::object::Error::code)
        };
        let pixels = ur_sampler_desc_t {
            normalizedCoords: 0,
            ..plain()
        };
        assert_eq!(refused(&pixels), Err(UR_RESULT_ERROR_INVALID_SAMPLER));
        let mut mips = ur_exp_sampler_mip_properties_t {
            minMipmapLevelClamp: 2.0,
            maxMipmapLevelClamp: 1.0,
            pNext: null_mut(),
            ..Default::default()
        };
        let chained = ur_sampler_desc_t {
            pNext: (&raw mut mips).cast(),
            ..plain()
        };
        assert_eq!(refused(&chained), Err(UR_RESULT_ERROR_INVALID_SAMPLER));
        let mut stranger = ur_usm_host_desc_t::default();
        let strange = ur_sampler_desc_t {
            pNext: (&raw mut stranger).cast(),
            ..plain()
        };
        assert_eq!(refused(&strange), Err(UR_RESULT_ERROR_INVALID_VALUE));
    }
}
