//! The adapter through its own table, over the scripted driver of `scripted/`: no GPU is needed, and
//! any call of the driver's may fail.
//!
//! `stage` opens the library and runs tests in processes of their own, since an adapter looks for its
//! driver once; `ground` is what tests enqueue on, `scene` a piece of everything that a client does.
//! `native` is about the driver's own pools, `graph` about command buffers and `record` about native
//! commands in them, `posts` about small fills, `marks` about records of streams, `launch` about drivers with
//! one way of launching or two, `failures` about commands that fail in their turn, `link` about links that fail, `user` about the user's functions,
//! `host_memory` about buffers over the host's memory, `reach` about memory of other devices.

mod current;
mod failures;
mod faults;
mod graph;
mod ground;
mod host_memory;
mod launch;
mod link;
mod marks;
mod native;
mod posts;
mod reach;
mod record;
mod scene;
mod stage;
mod user;
