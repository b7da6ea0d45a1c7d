//! Graphs: captured commands, submissions, and what a capture refuses.

mod life;
mod random;
mod refused;
mod replay;

use crate::fixture::Fixture;
use crate::objects::{Context, Queue};
use crate::outcome::Stop;
use crate::registry::Test;

const SUITE: &str = "graph";

pub fn all() -> Vec<Test> {
    let suites = [life::all, replay::all, refused::all, random::all];
    suites.into_iter().flat_map(|suite| suite()).collect()
}

fn queues(fixture: &Fixture, context: &Context) -> Result<[Queue; 2], Stop> {
    Ok([context.in_order(fixture)?, context.out_of_order(fixture)?])
}
