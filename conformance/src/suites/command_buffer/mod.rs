//! Command buffers: states, recorded commands, refusals, order and updates.

mod launches;
mod life;
mod native;
mod order;
mod random;
mod refused;
mod transfers;
mod update;

use crate::registry::Test;

/// The suite of all tests about neither order nor updates.
const SUITE: &str = "command_buffer";

pub fn all() -> Vec<Test> {
    let suites = [
        life::all,
        transfers::all,
        launches::all,
        native::all,
        refused::all,
        order::all,
        update::all,
        random::all,
    ];
    suites.into_iter().flat_map(|suite| suite()).collect()
}
