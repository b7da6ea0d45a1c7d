//! Layers over a foreign adapter that aborts when a bad handle reaches it.

mod arguments;
mod bounds;
mod handles;
mod races;
mod random;
