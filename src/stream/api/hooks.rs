//! What dispatches on a context or a queue but is no matter of the engine: the adapter's own.
//!
//! The engine implements the `hal` traits of contexts and queues for every driver, so an adapter
//! cannot. An adapter answers the rest by a table of functions. The list in
//! scripts/src/generate/hal/engine.rs says which methods those are, and what of a command the engine
//! leaves to the adapter.

// The lists are generated. They expand to the table, and to the methods that call through it.
#![allow(unused_variables, clippy::too_many_arguments, clippy::type_complexity)]

use crate::abi::*;
use crate::hal::answers::ImageRole;
use crate::hal::{ImageInfo, context_hooks};
use crate::object::{Error, Handles, InfoOut, Object, Out, Result};
use crate::stream::api::generated::named_hooks;
use crate::stream::{Context, Driver, Event, ImageCopyEnd, Queue, Work};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

macro_rules! table {
    (; $($of:ident { $(
        $(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;
    )* })*) => {
        /// What an adapter answers on the engine's objects. A table names the functions it has and ends in
        /// `..Hooks::NONE`.
        pub struct Hooks<B: Driver> {
            $($(
                $(#[$doc])*
                pub $name: fn(this: &Object<$of<B>>, $($arg: $ty),*) -> Result<$ret>,
            )*)*
            /// The queue that the command of an adopted event went to, where the backend knows one.
            pub queue_of_adopted:
                fn(this: &Object<Context<B>>, marker: &B::Marker) -> Result<Option<Arc<Object<Queue<B>>>>>,
        }

        impl<B: Driver> Hooks<B> {
            /// Every function answers `UNSUPPORTED_FEATURE`.
            pub const NONE: Self = Self {
                $($( $name: |this, $($arg),*| Err(Error::unsupported()), )*)*
                queue_of_adopted: |this, marker| Ok(None),
            };
        }
    };
}

macro_rules! forwarded {
    (; $of:ident { $(
        $(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;
    )* }) => { $(
        fn $name(this: &Object<Self>, $($arg: $ty),*) -> Result<$ret> {
            (B::HOOKS.$name)(this, $($arg),*)
        }
    )* };
}

pub(super) use forwarded;

context_hooks!(named_hooks table;);

/// A driver with its table.
pub trait Hooked: Driver {
    const HOOKS: Hooks<Self> = Hooks::NONE;
}
