//! Layers: code that stands between the application and the dispatch, at no cost when there is none.
//!
//! Owns the layers' names, their order and the chain. A layer replaces functions of a table and
//! calls the ones that it replaced; it may use `abi`, `object` and `dl`, and the lifetime layer
//! `timeline` too. The chain must never know what a layer does.
//!
//! Order, from the inside out: asynchronous allocations, bounds, lifetime, parameters, tracing. The outermost sees a call first: nulls are refused before a handle is looked up, and a
//! dead handle before it is asked for anything.
//!
//! To add one: a module here writes the body of a wrapper as a macro, expands it over the list of
//! functions with [`wrappers`], implements [`Layer`] over the result, and [`KNOWN`] names it. What a
//! body needs beyond the list is generated as rows by `scripts/src/generate/layers`. A wrapper has no
//! argument for its layer's state, which is static; [`Layer::wrap`] starts it anew,
//! [`Layer::teardown`] ends it. Messages go to a [`ur::object::log::Sink`] of the
//! layer's own name.

mod below;
pub mod bounds;
pub mod lifetime;
pub mod parameters;
pub mod races;
mod report;
pub mod tracing;
pub mod wrappers;

use ur::abi::*;

pub use self::below::{Below, intern};

/// What a layer may know of the loader's configuration.
#[derive(Clone, Copy, Default)]
pub struct LayerContext {
    /// Asks the application where in its source a call came from.
    pub code_location: Option<CodeLocation>,
}

/// The application's callback and its argument.
#[derive(Clone, Copy)]
pub struct CodeLocation {
    pub callback: unsafe extern "C" fn(*mut std::ffi::c_void) -> ur_code_location_t,
    pub user_data: *mut std::ffi::c_void,
}

// SAFETY: `urLoaderConfigSetCodeLocationCallback` asks for a callback that any thread may call with
// its argument.
unsafe impl Send for CodeLocation {}
// SAFETY: `urLoaderConfigSetCodeLocationCallback` asks for a callback that any thread may call with its
// argument.
unsafe impl Sync for CodeLocation {}

/// One layer of the chain.
pub trait Layer: Send {
    /// Puts the layer's functions into `table`, which holds what they are to call. `names` are those
    /// of the layer's names that were asked for.
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        names: &[&'static str],
        context: &LayerContext,
    ) -> Result<(), ur_result_t>;

    /// The application has torn the loader down. Called in the reverse order of `wrap`.
    fn teardown(&mut self);
}

/// A layer of this loader.
pub struct Known {
    /// Names that ask for it: one layer may do more or less.
    pub names: &'static [&'static str],
    pub make: fn() -> Box<dyn Layer>,
}

/// Asks for every validation layer.
const FULL: &str = "UR_LAYER_FULL_VALIDATION";

/// From the inside out.
pub const KNOWN: &[Known] = &[
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

/// Every name that a configuration may enable, each once.
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
    /// Wraps `table` in the layers of `known` that `names` ask for. One that fails ends what was
    /// built and is the error.
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
