//! The adapter through its own table, over the scripted driver of `scripted/`: no GPU is needed, and
//! any call of the driver's may fail.
//!
//! `stage` opens the library and runs tests in processes of their own, since an adapter looks for its
//! driver once; `scene` is a piece of everything that a client does.
//! `native` is about the driver's own pools, `graph` about command buffers, `posts` about small fills,
//! `marks` about records of streams,
//! `record` about native commands in command buffers.

mod current;
mod faults;
mod graph;
mod marks;
mod native;
mod posts;
mod record;
mod scene;
mod stage;
