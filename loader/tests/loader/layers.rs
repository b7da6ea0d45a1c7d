//! Layers over `strict.c`, which aborts when it gets an invalid handle.

mod arguments;
mod bounds;
mod handles;
mod races;
mod random;
