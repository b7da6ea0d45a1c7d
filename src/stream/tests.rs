//! The engine over the scripted driver of `testing`.

mod host;
mod life;
mod limits;
mod memory;
mod order;
mod random;
