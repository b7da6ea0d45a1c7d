//! Imported semaphores.
//!
//! Another interface must make them: the scripted driver, or Vulkan where its driver is installed.

use super::makers::{Maker, Scripted, Vulkan};
use crate::fixture::Fixture;
use crate::objects::{Context, Event, Kind, Queue, WaitList, released};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::ptr::null_mut;
use std::time::Duration;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["bindless";
        a_wait_holds_back_the_queue, signals_come_after_the_queue, a_binary_semaphore_is_signalled_each_time,
        wrong_semaphores,
    ]
}

/// A semaphore, released on drop, and the other interface's side of it.
struct Semaphore<'a> {
    maker: Box<dyn Maker>,
    context: &'a Context,
    device: ur_device_handle_t,
    raw: ur_exp_external_semaphore_handle_t,
}

/// Ends the test as unsupported on a device without imports.
fn need(fixture: &Fixture, context: &Context) -> Done {
    let (ur, device, mut made) = (fixture.ur, fixture.device, null_mut());
    let mut desc = ur_exp_external_semaphore_desc_t::default();
    let property = UR_DEVICE_INFO_EXTERNAL_SEMAPHORE_IMPORT_SUPPORT_EXP;
    fixture.require(property, || {
        let (context, kind) = (context.raw, UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD);
        ur.urBindlessImagesImportExternalSemaphoreExp(context, device, kind, &mut desc, &mut made)
    })
}

impl<'a> Semaphore<'a> {
    fn new(fixture: &Fixture, context: &'a Context, counts: bool) -> Result<Self, Stop> {
        need(fixture, context)?;
        let missing = |reason| {
            Stop::skipped(format!(
                "no other interface here makes a semaphore: {reason}"
            ))
        };
        let maker: Box<dyn Maker> = match (Scripted::new(counts), counts) {
            (Ok(made), _) => Box::new(made),
            (Err(_), true) => Box::new(Vulkan::new(fixture).map_err(missing)?),
            // Vulkan signals a binary semaphore by its queues alone.
            (Err(reason), false) => return Err(missing(reason)),
        };
        let own = maker.export().map_err(Stop::failed)?;
        let mut chained = ur_exp_file_descriptor_t {
            fd: own.as_raw_fd(),
            ..Default::default()
        };
        let mut desc = ur_exp_external_semaphore_desc_t {
            pNext: (&raw mut chained).cast(),
            ..Default::default()
        };
        let kind = match counts {
            true => UR_EXP_EXTERNAL_SEMAPHORE_TYPE_TIMELINE_FD,
            false => UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD,
        };
        let (ur, device, mut raw) = (fixture.ur, fixture.device, null_mut());
        ur.urBindlessImagesImportExternalSemaphoreExp(
            context.raw,
            device,
            kind,
            &mut desc,
            &mut raw,
        )
        .ok()?;
        // The driver has taken it over.
        let _ = own.into_raw_fd();
        Ok(Self {
            maker,
            context,
            device,
            raw,
        })
    }

    /// Sets the count, as the other interface does.
    fn set(&self, count: u64) -> Done {
        self.maker.set(count).map_err(Stop::failed)
    }

    fn count(&self) -> Result<u64, Stop> {
        self.maker.count().map_err(Stop::failed)
    }

    fn wait(&self, queue: &Queue, value: Option<u64>, wait: &[&Event]) -> Result<Event, Stop> {
        let list = WaitList::new(wait);
        queue.event(|event| {
            queue.ur.urBindlessImagesWaitExternalSemaphoreExp(
                queue.raw,
                self.raw,
                value.is_some().into(),
                value.unwrap_or(0),
                list.count(),
                list.pointer(),
                event,
            )
        })
    }

    fn signal(&self, queue: &Queue, value: Option<u64>, wait: &[&Event]) -> Result<Event, Stop> {
        let list = WaitList::new(wait);
        queue.event(|event| {
            queue.ur.urBindlessImagesSignalExternalSemaphoreExp(
                queue.raw,
                self.raw,
                value.is_some().into(),
                value.unwrap_or(0),
                list.count(),
                list.pointer(),
                event,
            )
        })
    }
}

impl Drop for Semaphore<'_> {
    fn drop(&mut self) {
        // A failed test may have left a wait.
        self.maker.end();
        let (ur, context) = (self.context.ur, self.context.raw);
        released(ur.urBindlessImagesReleaseExternalSemaphoreExp(context, self.device, self.raw));
    }
}

/// A time in which nothing may happen.
const PAUSE: Duration = Duration::from_millis(20);

/// A wait for a count holds back the later commands of an in-order queue, and what depends on it on another one.
fn a_wait_holds_back_the_queue(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    for in_order in [true, false] {
        let queue = match in_order {
            true => context.in_order(fixture)?,
            false => context.out_of_order(fixture)?,
        };
        let memory = context.usm(fixture, Kind::Device, 256)?;
        let semaphore = Semaphore::new(fixture, &context, true)?;
        queue.fill(memory.ptr, 1_u8, 256, &[])?.wait()?;
        let waited = semaphore.wait(&queue, Some(5), &[])?;
        let command: ur_command_t = waited.get(UR_EVENT_INFO_COMMAND_TYPE)?;
        check_eq!(
            command,
            UR_COMMAND_EXTERNAL_SEMAPHORE_WAIT_EXP,
            "command of a wait"
        );
        let list: &[&Event] = if in_order { &[] } else { &[&waited] };
        let filled = queue.fill(memory.ptr, 2_u8, 256, list)?;
        semaphore.set(4)?;
        check!(!filled.completes_within(PAUSE)?, "a command passed a wait");
        check!(!waited.is_complete()?, "a wait ended before its count");
        semaphore.set(5)?;
        filled.wait()?;
        check!(waited.is_complete()?, "a wait did not end");
        let found: Vec<u8> = queue.read(memory.ptr, 256, &[&filled])?;
        check_all!(found, 2, "bytes behind a wait");
    }
    Ok(())
}

/// A signal comes after its wait list and the earlier commands of an in-order queue.
fn signals_come_after_the_queue(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let semaphore = Semaphore::new(fixture, &context, true)?;
    let waited = semaphore.wait(&queue, Some(1), &[])?;
    let signalled = semaphore.signal(&queue, Some(7), &[&waited])?;
    let command: ur_command_t = signalled.get(UR_EVENT_INFO_COMMAND_TYPE)?;
    check_eq!(
        command,
        UR_COMMAND_EXTERNAL_SEMAPHORE_SIGNAL_EXP,
        "command of a signal"
    );
    check!(
        !signalled.completes_within(PAUSE)?,
        "a signal passed a wait"
    );
    check_eq!(semaphore.count()?, 0, "the count before a signal");
    semaphore.set(1)?;
    signalled.wait()?;
    check_eq!(semaphore.count()?, 7, "the count after a signal");
    Ok(())
}

/// A binary semaphore lets one wait pass for each signal.
fn a_binary_semaphore_is_signalled_each_time(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let semaphore = Semaphore::new(fixture, &context, false)?;
    for _ in 0..3 {
        let waited = semaphore.wait(&queue, None, &[])?;
        check!(
            !waited.completes_within(PAUSE)?,
            "a wait passed without a signal"
        );
        semaphore.set(1)?;
        waited.wait()?;
        check_eq!(semaphore.count()?, 0, "the count after a wait");
    }
    semaphore.signal(&queue, None, &[])?.wait()?;
    check_eq!(semaphore.count()?, 1, "the count after a signal");
    Ok(())
}

/// An import without a descriptor, with one of nothing or of another system is refused.
fn wrong_semaphores(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    need(fixture, &context)?;
    let (ur, device, mut made) = (fixture.ur, fixture.device, null_mut());
    let mut attempt = |desc: &mut ur_exp_external_semaphore_desc_t, kind| {
        ur.urBindlessImagesImportExternalSemaphoreExp(context.raw, device, kind, desc, &mut made)
    };
    let kinds = [
        UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD,
        UR_EXP_EXTERNAL_SEMAPHORE_TYPE_TIMELINE_FD,
    ];
    let file = std::fs::File::open("/dev/null").map_err(|error| Stop::failed(error.to_string()))?;
    for kind in kinds {
        let mut bare = ur_exp_external_semaphore_desc_t::default();
        attempt(&mut bare, kind).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
        let mut own = ur_exp_file_descriptor_t {
            fd: file.as_raw_fd(),
            ..Default::default()
        };
        let mut desc = ur_exp_external_semaphore_desc_t {
            pNext: (&raw mut own).cast(),
            ..Default::default()
        };
        let status = attempt(&mut desc, kind);
        check!(!status.is_ok(), "a descriptor of nothing is imported");
        let status = attempt(&mut desc, UR_EXP_EXTERNAL_SEMAPHORE_TYPE_WIN32_NT);
        check!(!status.is_ok(), "a handle of another system is imported");
    }
    Ok(())
}
