//! What dispatches on a context or a queue but is no matter of the engine: the adapter's own.
//!
//! The engine implements the `hal` traits of contexts and queues for every driver, so an adapter
//! cannot; what it offers beyond goes here, under the same names and with the same parameters. Which methods those are,
//! the list in scripts/src/generate/hal/engine.rs says.

// The lists are generated; each is expanded twice, as provided methods and as the calls that forward to them.
#![allow(unused_variables, clippy::too_many_arguments)]

use crate::abi::*;
use crate::hal::{
    ImageInfo, Unwrapped, VirtualMemGranularityInfo, VirtualMemInfo, context_hooks, queue_hooks,
};
use crate::object::{Error, Handles, InfoOut, Object, Out, OutHandle, Result};
use crate::stream::api::generated::named_hooks;
use crate::stream::{Context, Driver, Event, Queue};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

macro_rules! provided {
    ($of:ident; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => { $(
        $(#[$doc])*
        fn $name(this: &Object<$of<B>>, $($arg: $ty),*) -> Result<$ret> {
            Err(Error::unsupported())
        }
    )* };
}

macro_rules! forwarded {
    ($of:ident; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => { $(
        fn $name(this: &Object<Self>, $($arg: $ty),*) -> Result<$ret> {
            <B as $crate::stream::Hooks<B>>::$name(this, $($arg),*)
        }
    )* };
}

pub(super) use forwarded;

/// What an adapter may offer on the engine's objects. A method that it leaves out answers
/// `UNSUPPORTED_FEATURE`.
pub trait Hooks<B: Driver> {
    context_hooks!(provided);
    queue_hooks!(provided);

    named_hooks!(provided);

    /// The queue that the command of an adopted event went to, where the backend knows one.
    fn queue_of_adopted(
        context: &Object<Context<B>>,
        marker: &B::Marker,
    ) -> Result<Option<Arc<Object<Queue<B>>>>> {
        Ok(None)
    }
}
