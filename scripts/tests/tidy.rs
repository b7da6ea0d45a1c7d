//! The design's invariants hold on this tree: `cargo xtask tidy`.

use xtask::{repository, tidy};

#[test]
fn the_tree_keeps_its_rules() {
    if let Err(error) = tidy::check(&repository()) {
        panic!("{error}");
    }
}
