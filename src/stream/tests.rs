//! The engine over the scripted driver of `testing`.

mod across;
mod capture;
mod host;
mod interop;
mod life;
mod limits;
mod memory;
mod order;
mod pages;
mod random;
mod replay;
