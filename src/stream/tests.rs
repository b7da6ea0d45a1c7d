//! The engine over the scripted driver of `testing`.

/// Tests of drivers that report completion themselves and of drivers that must be polled.
macro_rules! on_both {
    ($($name:ident)*) => { $(
        mod $name {
            #[test]
            fn with_a_tracking_driver() {
                super::$name::<crate::stream::testing::Tracked>();
            }
            #[test]
            fn with_a_polled_driver() {
                super::$name::<crate::stream::testing::Polled>();
            }
        }
    )* };
}

mod across;
mod capture;
mod crowds;
mod failures;
mod host;
mod interop;
mod life;
mod limits;
mod memory;
mod order;
mod pages;
mod random;
mod replay;
mod sharing;
