//! A process of its own for tests of the loader's initialisation. Nothing is initialised in it.

use crate::api::Api;
use crate::fixture::{Fixture, Target, load};
use crate::outcome::Stop;

pub struct Fresh {
    pub ur: &'static Api,
    pub target: Target,
}

impl Fresh {
    pub fn open(target: &Target) -> Result<Self, String> {
        Ok(Self {
            ur: load(&target.loader)?,
            target: target.clone(),
        })
    }

    /// Initialises the loader and finds the device, as for other tests.
    pub fn fixture(&self) -> Result<Fixture, Stop> {
        Fixture::open(&self.target).map_err(Stop::failed)
    }
}
