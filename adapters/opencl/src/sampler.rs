//! Samplers.

use std::ptr;
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, SamplerInfo};
use ur::object::{Body, Error, InfoOut, Kind, Object, Result};
use ur::stream::Context;

use crate::OpenCl;
use crate::cl::{self, SamplerRef};

pub struct Sampler {
    context: Arc<Object<Context<OpenCl>>>,
    sampler: SamplerRef,
}

const ADDRESSING: [(ur_sampler_addressing_mode_t, cl_addressing_mode); 5] = [
    (UR_SAMPLER_ADDRESSING_MODE_NONE, CL_ADDRESS_NONE),
    (
        UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE,
        CL_ADDRESS_CLAMP_TO_EDGE,
    ),
    (UR_SAMPLER_ADDRESSING_MODE_CLAMP, CL_ADDRESS_CLAMP),
    (UR_SAMPLER_ADDRESSING_MODE_REPEAT, CL_ADDRESS_REPEAT),
    (
        UR_SAMPLER_ADDRESSING_MODE_MIRRORED_REPEAT,
        CL_ADDRESS_MIRRORED_REPEAT,
    ),
];

const FILTER: [(ur_sampler_filter_mode_t, cl_filter_mode); 2] = [
    (UR_SAMPLER_FILTER_MODE_NEAREST, CL_FILTER_NEAREST),
    (UR_SAMPLER_FILTER_MODE_LINEAR, CL_FILTER_LINEAR),
];

const UNKNOWN: Error = Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION);

impl Sampler {
    pub fn create(
        context: &Object<Context<OpenCl>>,
        desc: &ur_sampler_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        let addressing = ADDRESSING
            .iter()
            .find(|(ur, _)| *ur == desc.addressingMode)
            .ok_or(UNKNOWN)?
            .1;
        let filter = FILTER
            .iter()
            .find(|(ur, _)| *ur == desc.filterMode)
            .ok_or(UNKNOWN)?
            .1;
        let native = &context.domain().state().context;
        let normalized = cl_bool::from(desc.normalizedCoords != 0);
        let mut code = 0;
        // SAFETY: `ContextRef` holds a reference to the context.
        let sampler = unsafe {
            let create = native.api().core.clCreateSampler;
            let raw = create(native.raw(), normalized, addressing, filter, &mut code);
            SamplerRef::created(native.api(), raw, code, "clCreateSampler")
        }?;
        Ok(hal::new::<OpenCl, _>(Self {
            context: context.arc(),
            sampler,
        }))
    }

    pub fn from_native(
        context: &Object<Context<OpenCl>>,
        native: ur_native_handle_t,
        properties: Option<&ur_sampler_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let raw = ptr::with_exposed_provenance_mut(native);
        let own = &context.domain().state().context;
        // SAFETY: `urSamplerCreateWithNativeHandle` requires a native sampler.
        let sampler = unsafe { SamplerRef::adopted(own.api(), raw, false) }?;
        sampler.own(owned);
        Ok(hal::new::<OpenCl, _>(Self {
            context: context.arc(),
            sampler,
        }))
    }

    pub fn native(&self) -> &SamplerRef {
        &self.sampler
    }

    fn property<T: Copy>(&self, what: cl_sampler_info) -> Result<T> {
        // SAFETY: `SamplerRef` holds a reference to the sampler, and `cl` passes a buffer of that size.

        let query = |size, value, ret| unsafe {
            (self.sampler.api().core.clGetSamplerInfo)(self.sampler.raw(), what, size, value, ret)
        };
        cl::value(query, "clGetSamplerInfo")
    }
}

impl Body for Sampler {
    const KIND: Kind = Kind::Sampler;
}

impl hal::Sampler<OpenCl> for Sampler {
    fn get_info(this: &Object<Self>, what: SamplerInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            SamplerInfo::ReferenceCount => out.value(this.api_refs()),
            SamplerInfo::Context => out.handle(Some(&this.context)),
            SamplerInfo::NormalizedCoords => {
                out.boolean(this.property::<cl_bool>(CL_SAMPLER_NORMALIZED_COORDS)? != 0)
            }
            SamplerInfo::AddressingMode => {
                let mode: cl_addressing_mode = this.property(CL_SAMPLER_ADDRESSING_MODE)?;
                out.value(
                    ADDRESSING
                        .iter()
                        .find(|(_, cl)| *cl == mode)
                        .ok_or(UNKNOWN)?
                        .0,
                )
            }
            SamplerInfo::FilterMode => {
                let mode: cl_filter_mode = this.property(CL_SAMPLER_FILTER_MODE)?;
                out.value(FILTER.iter().find(|(_, cl)| *cl == mode).ok_or(UNKNOWN)?.0)
            }
        }
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.sampler.raw().expose_provenance())
    }
}
