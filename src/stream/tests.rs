//! The engine over the scripted driver of `testing`.

mod capture;
mod life;
mod limits;
mod memory;
mod order;
mod random;
mod replay;
