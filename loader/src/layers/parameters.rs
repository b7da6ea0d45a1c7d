//! `UR_LAYER_PARAMETER_VALIDATION`: arguments that the specification forbids come back as errors,
//! whatever adapter they were for.
//!
//! Owns the layer; its functions are generated and stateless.

use ur::abi::*;
use ur::object::log::Level;

use super::{Layer, LayerContext, report};
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
        context: &LayerContext,
    ) -> Result<(), ur_result_t> {
        report::begin(context);
        parameters::wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        report::end();
    }
}

/// Notes a refusal, which the application sees as a result anyway.
#[cold]
pub fn refused(function: &str, result: ur_result_t) -> ur_result_t {
    let name = result.name().unwrap_or("an unknown result");
    report::finding(Level::Info, format_args!("{function}: {name}"));
    result
}
