//! Layers: code between the application and dispatch, at no cost while none is in use.
//!
//! Owns the layers' names, their order and the chain. A layer replaces functions of a table and
//! calls those that it replaced. It may use `abi`, `object` and `dl`; the lifetime layer may use
//! `timeline` as well. The chain must never know what a layer does.
//!
//! The order from the inside out: parents, which names objects for those around it; asynchronous
//! allocations, bounds, lifetime, parameters, tracing.
//! The outermost layer sees a call first. Null arguments are thus refused before a handle is looked
//! up, and dead handles before they are queried.
//!
//! To add a layer, write the body of a wrapper as a macro in a module here and expand it with
//! [`wrappers`] over the list of functions. Implement [`Layer`] over the result and add it to
//! [`KNOWN`]. Data that a body needs beyond the list is generated as rows by
//! `scripts/src/generate/layers`. A wrapper has no argument for its layer's state, so that the
//! state is static: [`Layer::wrap`] resets it and [`Layer::teardown`] ends it. Messages go to a
//! [`ur::object::log::Sink`] with the layer's name.

mod below;
pub mod bounds;
mod failure;
pub mod lifetime;
mod maker;
mod memory;
pub mod parameters;
mod parents;
pub mod races;
mod report;
pub mod tracing;
pub mod wrappers;

use ur::abi::*;

pub use self::below::{Below, intern};

/// The part of the loader's configuration that layers may read.
#[derive(Clone, Copy, Default)]
pub struct LayerContext {
    /// Returns the source location of the application's current call.
    pub code_location: Option<CodeLocation>,
}

/// The application's callback and its argument.
#[derive(Clone, Copy)]
pub struct CodeLocation {
    pub callback: unsafe extern "C" fn(*mut std::ffi::c_void) -> ur_code_location_t,
    pub user_data: *mut std::ffi::c_void,
}

// SAFETY: `urLoaderConfigSetCodeLocationCallback` has the application allow calls from any thread.
unsafe impl Send for CodeLocation {}
// SAFETY: `urLoaderConfigSetCodeLocationCallback` has the application allow calls from any thread.
unsafe impl Sync for CodeLocation {}

/// One layer of the chain.
pub trait Layer: Send {
    /// Replaces functions of `table`, which holds the functions to call next. `names` are the
    /// layer's enabled names.
    ///
    /// An error fails `urLoaderInit`.
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        names: &[&'static str],
        context: &LayerContext,
    ) -> Result<(), ur_result_t>;

    /// Ends the layer when the loader is torn down. Layers end in the reverse order of `wrap`.
    fn teardown(&mut self);
}

/// A layer that this loader has.
pub struct Known {
    /// Names that enable the layer. A layer with several may do a part of its work for each.
    pub names: &'static [&'static str],
    pub make: fn() -> Box<dyn Layer>,
}

/// Enables every validation layer.
const FULL: &str = "UR_LAYER_FULL_VALIDATION";

/// From the inside out.
pub const KNOWN: &[Known] = &[
    Known {
        names: &[
            "UR_LAYER_ASYNC_ALLOC_VALIDATION",
            FULL,
            "UR_LAYER_BOUNDS_CHECKING",
            "UR_LAYER_LEAK_CHECKING",
            "UR_LAYER_LIFETIME_VALIDATION",
        ],
        make: parents::make,
    },
    Known {
        names: &["UR_LAYER_ASYNC_ALLOC_VALIDATION", FULL],
        make: races::make,
    },
    Known {
        names: &["UR_LAYER_BOUNDS_CHECKING", FULL],
        make: bounds::make,
    },
    Known {
        names: &[
            "UR_LAYER_LEAK_CHECKING",
            "UR_LAYER_LIFETIME_VALIDATION",
            FULL,
        ],
        make: lifetime::make,
    },
    Known {
        names: &["UR_LAYER_PARAMETER_VALIDATION", FULL],
        make: parameters::make,
    },
    Known {
        names: &["UR_LAYER_TRACING"],
        make: tracing::make,
    },
];

/// Every name that a configuration may enable, without duplicates.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for name in KNOWN.iter().flat_map(|known| known.names).copied() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a configuration may enable `name`.
pub fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|known| known.names.contains(&name))
}

/// The layers in use.
#[derive(Default)]
pub struct Chain {
    layers: Vec<Box<dyn Layer>>,
}

impl Chain {
    /// Wraps `table` in those layers of `known` that `names` enable.
    ///
    /// If a layer fails, those built before it are torn down and its error is returned.
    pub fn build(
        known: &[Known],
        names: &[String],
        table: &mut ur_dditable_t,
        context: &LayerContext,
    ) -> Result<Chain, ur_result_t> {
        let mut chain = Chain::default();
        for layer in known {
            let enabled = |name: &&'static str| names.iter().any(|other| other == name);
            let enabled: Vec<&'static str> = layer.names.iter().copied().filter(enabled).collect();
            if enabled.is_empty() {
                continue;
            }
            let mut made = (layer.make)();
            if let Err(error) = made.wrap(table, &enabled, context) {
                log::error!("layer {} failed: {error:?}", enabled.join(", "));
                chain.teardown();
                return Err(error);
            }
            chain.layers.push(made);
        }
        Ok(chain)
    }

    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    pub fn teardown(&mut self) {
        while let Some(mut layer) = self.layers.pop() {
            layer.teardown();
        }
    }
}

#[cfg(test)]
mod tests;
