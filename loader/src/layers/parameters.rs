//! `UR_LAYER_PARAMETER_VALIDATION`: arguments that the specification forbids come back as errors,
//! whatever adapter they were for.
//!
//! Owns the layer; its functions are generated and stateless.

use ur::abi::*;

use super::{Layer, LayerContext};
use crate::generated::layers::parameters;

struct Parameters;

pub fn make() -> Box<dyn Layer> {
    Box::new(Parameters)
}

impl Layer for Parameters {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        _: &[&'static str],
        _: &LayerContext,
    ) -> Result<(), ur_result_t> {
        parameters::wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {}
}
