//! Tests of the adapter through its own table, over the fake driver of `scripted/`.
//!
//! No GPU is needed, and any call of the driver may fail. `fake_driver` opens the library and runs tests in
//! processes of their own, since an adapter looks for its driver once. `test_context` is a context with
//! memory. `workload` uses a part of everything that a client uses.
//!
//! | module | tests |
//! |---|---|
//! | `adopted` | modules and functions of the caller; graphs given out |
//! | `arrays` | arrays, textures and surfaces |
//! | `bindless` | image memory, handles of images, and copies |
//! | `buffers` | buffers of several devices |
//! | `captures` | captures of streams: by foreign code, and of foreign work |
//! | `current` | the current context after each call |
//! | `external` | memory and semaphores of another interface |
//! | `failures` | commands that fail on the device |
//! | `faults` | each call of the driver failing once |
//! | `foreign` | foreign code with streams of its own, for the others |
//! | `graph` | command buffers |
//! | `held` | a device that foreign code holds back |
//! | `host_memory` | buffers over host memory |
//! | `images` | images and samplers |
//! | `launch` | drivers with one launch function or two |
//! | `launching` | launches of kernels, for the others |
//! | `link` | links that fail |
//! | `mailbox` | small fills |
//! | `marks` | recorded events of streams |
//! | `native` | the driver's own pools |
//! | `other_devices` | memory that the driver reports as another device's |
//! | `peers` | devices that use each other's memory |
//! | `released` | what programs release while commands use it |
//! | `record` | native commands of command buffers |
//! | `sharing` | memory and events of several processes; `peer` is the second one |
//! | `user` | functions of the user |

mod adopted;
mod arrays;
mod bindless;
mod buffers;
mod captures;
mod current;
mod external;
mod failures;
mod fake_driver;
mod faults;
mod foreign;
mod graph;
mod held;
mod host_memory;
mod images;
mod launch;
mod launching;
mod link;
mod mailbox;
mod marks;
mod native;
mod other_devices;
mod peer;
mod peers;
mod record;
mod released;
mod sharing;
mod test_context;
mod two_devices;
mod user;
mod workload;
