//! `UR_LAYER_LEAK_CHECKING` and `UR_LAYER_LIFETIME_VALIDATION`: tracks the application's handles
//! and memory.
//!
//! At teardown, leak checking lists every handle to which the application still has a reference,
//! all memory that it has not freed, what else it has not ended (`memory/classes.rs`), and the calls
//! that made them. Lifetime validation also
//! refuses released handles and handles that no adapter returned. The error is that of the handle's
//! kind, and the adapter is not called.
//!
//! Owns the registry of one initialisation. The handles that a function uses, creates and releases
//! follow from its arguments (`roles`). A query of a live object may return a handle without a
//! reference, such as a queue's context. The application may use it, but not release it.

mod call;
mod registry;
pub mod roles;
mod stacks;

use self::call::Call;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

use ur::abi::*;
use ur::object::log::Level;
use ur::object::{Kind, Result};

use self::registry::{CallSite, Leak, Origin, Registry};
use super::maker::{Counts, Handle};
use super::memory::{Class, Memory, Unfreed};
use super::{Layer, LayerContext, failure, report};

const OFF: u8 = 0;
/// Counts references, for leak checking.
const COUNTS_REFERENCES: u8 = 1;
/// Counts references and refuses handles that are not alive.
const VALIDATES: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(OFF);
static HANDLES: Registry = Registry::new();
static MEMORY: Memory<CallSite> = Memory::new();
static MADE: Counts = Counts::new();

struct Lifetime;

pub fn make() -> Box<dyn Layer> {
    Box::new(Lifetime)
}

impl Layer for Lifetime {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        names: &[&'static str],
        context: &LayerContext,
    ) -> std::result::Result<(), ur_result_t> {
        report::begin(context);
        HANDLES.clear();
        MEMORY.clear();
        MADE.clear();
        let leaks_only = names == ["UR_LAYER_LEAK_CHECKING"];
        MODE.store(
            if leaks_only {
                COUNTS_REFERENCES
            } else {
                VALIDATES
            },
            Ordering::Release,
        );
        roles::wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        MODE.store(OFF, Ordering::Release);
        report_leaks(&HANDLES.clear(), &MEMORY.clear());
        report::end();
    }
}

/// Logs the handles that are alive and the memory that is not freed at teardown.
fn report_leaks(handles: &[Leak], memory: &[Unfreed<CallSite>]) {
    for leak in handles {
        let (references, created) = (leak.references, &leak.created);
        let plural = if references == 1 { "" } else { "s" };
        let place = at(&created.site);
        let text = format!(
            "leak: {}{place}, has {references} reference{plural}",
            handle(leak.kind, leak.address, created)
        );
        report_leak(text, &created.site);
    }
    for leak in memory {
        let (allocation, place) = (leak.allocation, at(&leak.more));
        let never_ended = allocation.class.never_ended();
        report_leak(
            format!("leak: {never_ended}: {allocation}{place}"),
            &leak.more,
        );
    }
    match summary(handles.len(), memory) {
        None => report::line(Level::Info, format_args!("nothing is leaked")),
        Some(text) => {
            report::line(Level::Error, format_args!("leaked: {text}"));
            failure::found();
        }
    }
}

/// Logs a leak with the stack that made it.
fn report_leak(mut text: String, made: &CallSite) {
    let frames = made.stack.iter();
    for line in frames.flat_map(|stack| stack.lines(made.function)) {
        text.push_str("\n    ");
        text.push_str(&line);
    }
    report::line(Level::Error, format_args!("{text}"));
}

/// The numbers of leaks: `2 handles, 1 allocation (64 bytes) and 1 reservation (4096 bytes)`. None
/// without a leak.
fn summary(handles: usize, memory: &[Unfreed<CallSite>]) -> Option<String> {
    let count = |count: usize, noun: &str| {
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {noun}{plural}"))
    };
    let of_class = |class: &Class| {
        let leaks = memory.iter().map(|leak| &leak.allocation);
        let leaks: Vec<_> = leaks.filter(|leak| leak.class == *class).collect();
        let sizes = leaks.iter().filter_map(|leak| leak.size);
        let bytes = sizes.reduce(usize::saturating_add);
        let size = bytes.map_or_else(String::new, |bytes| format!(" ({bytes} bytes)"));
        count(leaks.len(), class.unit()).map(|text| text + &size)
    };
    let classes = Class::ALL.iter().filter_map(of_class);
    let mut parts: Vec<String> = count(handles, "handle")
        .into_iter()
        .chain(classes)
        .collect();
    let last = parts.pop()?;
    match parts.is_empty() {
        true => Some(last),
        false => Some(format!("{} and {last}", parts.join(", "))),
    }
}

/// A handle, the call that returned it and the place of that call: `queue 0x…, 2nd of
/// urQueueCreate in main`.
fn named(kind: Kind, address: usize, created: &Origin) -> String {
    let name = handle(kind, address, created);
    format!("{name}{}", caller(&created.site))
}

fn handle(kind: Kind, address: usize, created: &Origin) -> String {
    let maker = Some(created.maker);
    format!("{} {}", name(kind), Handle { address, maker })
}

/// The source location of a call, if the application reports it: ` at main.cpp:7`.
fn at(site: &CallSite) -> String {
    let place = site.place.as_ref();
    place.map_or_else(String::new, |place| format!(" at {place}"))
}

/// The place of a call: ` at main.cpp:7`, or without a location of the application ` in FRAME`.
fn caller(site: &CallSite) -> String {
    let frame = || {
        let lines = site.stack.as_ref()?.lines(site.function);
        Some(format!(" in {}", lines.into_iter().next()?))
    };
    match at(site) {
        place if place.is_empty() => frame().unwrap_or_default(),
        place => place,
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Adapter => "adapter",
        Kind::Platform => "platform",
        Kind::Device => "device",
        Kind::Context => "context",
        Kind::Event => "event",
        Kind::Program => "program",
        Kind::Kernel => "kernel",
        Kind::Queue => "queue",
        Kind::Sampler => "sampler",
        Kind::Mem => "memory object",
        Kind::PhysicalMem => "physical memory",
        Kind::UsmPool => "USM pool",
        Kind::ExternalMem => "external memory",
        Kind::ExternalSemaphore => "external semaphore",
        Kind::CommandBuffer => "command buffer",
        Kind::CommandBufferCommand => "command",
        Kind::Graph => "graph",
        Kind::ExecutableGraph => "executable graph",
    }
}

/// Fails if lifetime validation is on and the handle may not be used. For entry points outside the
/// tables.
pub fn check_handle(function: &'static str, kind: Kind, handle: *const c_void) -> Result<()> {
    let call = Call::outside(function);
    if call.validates() {
        call.uses(kind, handle)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
