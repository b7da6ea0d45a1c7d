//! The measured calls, each through the loader's export and through the adapter's table.
//!
//! They cost the adapter little, so that the loader's share is visible. Those with many arguments are refused
//! for a null one at once.

use std::cell::UnsafeCell;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Instant;
use ur::abi::*;
use ur::dl::{Binding, Library, symbols};

trait Unwrapped {
    type Fn;
}

impl<F> Unwrapped for Option<F> {
    type Fn = F;
}

type F<T> = <T as Unwrapped>::Fn;

symbols! {
    struct Exports {
        required {
            urLoaderInit: F<ur_pfnLoaderInit_t>,
            urAdapterGet: F<ur_pfnAdapterGet_t>,
            urPlatformGet: F<ur_pfnPlatformGet_t>,
            urDeviceGet: F<ur_pfnDeviceGet_t>,
            urContextCreate: F<ur_pfnContextCreate_t>,
            urContextGetInfo: F<ur_pfnContextGetInfo_t>,
            urQueueCreate: F<ur_pfnQueueCreate_t>,
            urQueueRetain: F<ur_pfnQueueRetain_t>,
            urEnqueueUSMMemcpy: F<ur_pfnEnqueueUSMMemcpy_t>,
            urEnqueueKernelLaunchWithArgsExp: F<ur_pfnEnqueueKernelLaunchWithArgsExp_t>,
        }
        optional {}
    }
}

/// A loader with the first adapter's objects.
pub struct Setup {
    exports: Exports,
    table: &'static ur_dditable_t,
    context: ur_context_handle_t,
    queue: ur_queue_handle_t,
    /// Memory for an output.
    place: UnsafeCell<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Loader,
    Direct,
}

pub struct Call {
    pub name: &'static str,
    /// Makes the call `count` times. An unexpected result is an error.
    pub run: fn(&Setup, Way, usize) -> Result<(), String>,
}

macro_rules! calls {
    ($($name:literal: $export:ident, $table:ident.$slot:ident, $expected:ident,
       |$setup:ident| ($($argument:expr),* $(,)?);)*) => {
        pub const CALLS: &[Call] = &[$(Call {
            name: $name,
            run: |$setup, way, times| {
                let function = match way {
                    Way::Loader => $setup.exports.$export,
                    Way::Direct => $setup.table.$table.$slot.ok_or("an empty slot")?,
                };
                // Hides the call from the optimiser.
                let function = std::hint::black_box(function);
                let mut wrong = None;
                for _ in 0..times {
                    // SAFETY: the handles live as long as the process; a null pointer is refused.
                    let result = unsafe { function($($argument),*) };
                    if result != $expected {
                        wrong = Some(result);
                    }
                }
                match wrong {
                    None => Ok(()),
                    Some(result) => Err(format!("{}: {result:?}", $name)),
                }
            },
        }),*];
    };
}

calls! {
    "urQueueRetain, 1 argument": urQueueRetain, Queue.pfnRetain, UR_RESULT_SUCCESS,
        |setup| (setup.queue);
    "urContextGetInfo, 5 arguments": urContextGetInfo, Context.pfnGetInfo, UR_RESULT_SUCCESS,
        |setup| (
            setup.context, UR_CONTEXT_INFO_REFERENCE_COUNT, size_of::<u32>(),
            setup.place.get().cast(), null_mut(),
        );
    "urEnqueueUSMMemcpy, 8 arguments, refused": urEnqueueUSMMemcpy, Enqueue.pfnUSMMemcpy,
        UR_RESULT_ERROR_INVALID_NULL_POINTER,
        |setup| (setup.queue, 0, null_mut(), null(), 0, 0, null(), null_mut());
    "urEnqueueKernelLaunchWithArgsExp, 12 arguments, refused": urEnqueueKernelLaunchWithArgsExp,
        EnqueueExp.pfnKernelLaunchWithArgsExp, UR_RESULT_ERROR_INVALID_NULL_POINTER,
        |setup| (
            setup.queue, null_mut(), 0, null(), null(), null(), 0, null(), null(), 0, null(), null_mut(),
        );
}

impl Call {
    /// Nanoseconds for each of `count` calls.
    pub fn time(&self, setup: &Setup, way: Way, times: usize) -> Result<f64, String> {
        let begun = Instant::now();
        (self.run)(setup, way, times)?;
        Ok(begun.elapsed().as_nanos() as f64 / times as f64)
    }
}

impl Setup {
    pub fn open(loader: &Path) -> Result<Self, String> {
        let library = Library::open(loader, Binding::Usual).map_err(|error| error.to_string())?;
        let exports = Exports::from_library(library).map_err(|error| error.to_string())?;
        let (mut adapter, mut platform, mut device) = (null_mut(), null_mut(), null_mut());
        let (mut context, mut queue) = (null_mut(), null_mut());
        // SAFETY: the loader's functions have these types. The handles come from it, and the outputs are
        // local variables.
        let table = unsafe {
            ok((exports.urLoaderInit)(Default::default(), null_mut()))?;
            ok((exports.urAdapterGet)(1, &raw mut adapter, null_mut()))?;
            ok((exports.urPlatformGet)(
                adapter,
                1,
                &raw mut platform,
                null_mut(),
            ))?;
            ok((exports.urDeviceGet)(
                platform,
                UR_DEVICE_TYPE_ALL,
                1,
                &raw mut device,
                null_mut(),
            ))?;
            ok((exports.urContextCreate)(
                1,
                &raw const device,
                null(),
                &raw mut context,
            ))?;
            ok((exports.urQueueCreate)(
                context,
                device,
                null(),
                &raw mut queue,
            ))?;
            // The first word of every handle is its adapter's table.
            *queue.cast::<&'static ur_dditable_t>()
        };
        Ok(Self {
            exports,
            table,
            context,
            queue,
            place: UnsafeCell::new(0),
        })
    }
}

/// Success, or the code's name.
fn ok(code: ur_result_t) -> Result<(), String> {
    match code {
        UR_RESULT_SUCCESS => Ok(()),
        code => Err(code.name().unwrap_or("an unknown result").to_owned()),
    }
}
