//! Which mechanisms of a pool are on.
//!
//! Each has a variable of the environment that turns it off (`src/stream/settings.rs` reads them), and a
//! row in `cargo xtask bench pool --ablation`.

/// When free pages are remapped into one range of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    Never,
    /// Where the pool cannot grow: at its maximum size, and where its provider has no memory left.
    Pressure,
    /// Before the pool grows.
    #[default]
    Always,
}

/// The switches of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `UR_POOL_COMPACTION`: `never`, `pressure`, `always`.
    pub compaction: Compaction,
    /// `UR_POOL_REPLAY`: a stream that repeats its requests gets the addresses it had.
    pub replay: bool,
    /// `UR_POOL_SHARED_REPLAY`: the same of several streams together.
    pub shared_replay: bool,
    /// `UR_POOL_REUSE_COST`: a block is preferred that fewer other streams could reuse.
    pub reuse_cost: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            compaction: Compaction::default(),
            replay: true,
            shared_replay: true,
            reuse_cost: true,
        }
    }
}
