//! Level Zero's own commands, through the loader's library.

use super::{Command, Fill, NativeWork, Recorded};
use std::ffi::c_void;
use std::ptr::null;
use std::sync::OnceLock;
use ur::abi::ur_native_handle_t;

pub struct LevelZero;

/// `ze_event_pool_desc_t`
#[repr(C)]
struct PoolDesc {
    tag: u32,
    next: *const c_void,
    flags: u32,
    count: u32,
}

/// `ze_event_desc_t`
#[repr(C)]
struct EventDesc {
    tag: u32,
    next: *const c_void,
    index: u32,
    signal: u32,
    wait: u32,
}

const POOL_TAG: u32 = 0x10;
const EVENT_TAG: u32 = 0x11;
const HOST_VISIBLE: u32 = 1;
/// `ZE_EVENT_SCOPE_FLAG_HOST`
const HOST_SCOPE: u32 = 4;

ur::dl::symbols! {
    struct Library {
        required {
            zeEventPoolCreate: unsafe extern "C" fn(context: usize, desc: *const PoolDesc, count: u32, devices: *const usize, pool: *mut usize) -> u32,
            zeEventCreate: unsafe extern "C" fn(pool: usize, desc: *const EventDesc, event: *mut usize) -> u32,
            zeEventHostSignal: unsafe extern "C" fn(event: usize) -> u32,
            zeCommandListAppendWaitOnEvents: unsafe extern "C" fn(list: usize, count: u32, events: *const usize) -> u32,
            zeCommandListAppendMemoryFill: unsafe extern "C" fn(list: usize, to: *mut c_void, pattern: *const u8, length: usize, bytes: usize, signal: usize, count: u32, waits: *const usize) -> u32,
        }
        optional {
            zeCommandListHostSynchronize: unsafe extern "C" fn(list: usize, timeout: u64) -> u32,
            zeCommandListBeginGraphCaptureExt: unsafe extern "C" fn(list: usize, next: *const c_void) -> u32,
            zeCommandListEndGraphCaptureExt: unsafe extern "C" fn(list: usize, next: *const c_void, graph: *mut usize) -> u32,
            zeCommandListIsGraphCaptureEnabledExt: unsafe extern "C" fn(list: usize) -> u32,
            zeGraphInstantiateExt: unsafe extern "C" fn(graph: usize, next: *const c_void, made: *mut usize) -> u32,
            zeGraphDestroyExt: unsafe extern "C" fn(graph: usize) -> u32,
            zeExecutableGraphDestroyExt: unsafe extern "C" fn(made: usize) -> u32,
            zeCommandListAppendGraphExt: unsafe extern "C" fn(list: usize, made: usize, next: *const c_void, signal: usize, count: u32, waits: *const usize) -> u32,
        }
    }
}

/// The functions of captures.
#[derive(Clone, Copy)]
struct Captures {
    begin: unsafe extern "C" fn(usize, *const c_void) -> u32,
    end: unsafe extern "C" fn(usize, *const c_void, *mut usize) -> u32,
    status: unsafe extern "C" fn(usize) -> u32,
    make: unsafe extern "C" fn(usize, *const c_void, *mut usize) -> u32,
    launch: unsafe extern "C" fn(usize, usize, *const c_void, usize, u32, *const usize) -> u32,
    synchronize: unsafe extern "C" fn(usize, u64) -> u32,
    destroy_made: unsafe extern "C" fn(usize) -> u32,
    destroy: unsafe extern "C" fn(usize) -> u32,
}

impl Library {
    fn captures(&self) -> Option<Captures> {
        Some(Captures {
            begin: self.zeCommandListBeginGraphCaptureExt?,
            end: self.zeCommandListEndGraphCaptureExt?,
            status: self.zeCommandListIsGraphCaptureEnabledExt?,
            make: self.zeGraphInstantiateExt?,
            launch: self.zeCommandListAppendGraphExt?,
            synchronize: self.zeCommandListHostSynchronize?,
            destroy_made: self.zeExecutableGraphDestroyExt?,
            destroy: self.zeGraphDestroyExt?,
        })
    }

    /// Events of a pool of their own. They are not destroyed: an adopter relies on them, and the driver counts no
    /// references.
    fn events(&self, context: usize) -> Result<[usize; 2], String> {
        let desc = PoolDesc {
            tag: POOL_TAG,
            next: null(),
            flags: HOST_VISIBLE,
            count: 2,
        };
        let (mut pool, mut events) = (0, [0; 2]);
        // SAFETY: a live context, all of whose devices are meant, and room for the handle.
        let code = unsafe { (self.zeEventPoolCreate)(context, &desc, 0, null(), &mut pool) };
        checked(code, "zeEventPoolCreate")?;
        for (index, event) in (0..).zip(&mut events) {
            let desc = EventDesc {
                tag: EVENT_TAG,
                next: null(),
                index,
                signal: HOST_SCOPE,
                wait: HOST_SCOPE,
            };
            // SAFETY: a live pool whose index is free, and room for the handle.
            let code = unsafe { (self.zeEventCreate)(pool, &desc, event) };
            checked(code, "zeEventCreate")?;
        }
        Ok(events)
    }

    fn set_bytes(
        &self,
        list: usize,
        (memory, bytes): (*mut c_void, usize),
        byte: u8,
        signal: usize,
    ) -> Result<(), String> {
        let fill = self.zeCommandListAppendMemoryFill;
        // SAFETY: a live list and event; the test keeps the memory, and the driver copies the pattern.
        let code = unsafe { fill(list, memory, &byte, 1, bytes, signal, 0, null()) };
        checked(code, "zeCommandListAppendMemoryFill")
    }
}

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || Library::load(&["libze_loader.so.1"]).map_err(|error| error.to_string());
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn checked(code: u32, call: &str) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{call} failed with {code:#x}")),
    }
}

/// A capture of an immediate list.
struct CaptureOf {
    calls: Captures,
    list: usize,
    open: bool,
}

impl CaptureOf {
    fn end_it(&mut self) -> Result<Graph, String> {
        self.open = false;
        let mut graph = Graph {
            calls: self.calls,
            list: self.list,
            graph: 0,
            made: 0,
        };
        // SAFETY: a live list, and room for the handle.
        let code = unsafe { (self.calls.end)(self.list, null(), &mut graph.graph) };
        checked(code, "zeCommandListEndGraphCaptureExt")?;
        // SAFETY: a live graph, and room for the handle.
        let code = unsafe { (self.calls.make)(graph.graph, null(), &mut graph.made) };
        checked(code, "zeGraphInstantiateExt")?;
        Ok(graph)
    }
}

impl super::Capture for CaptureOf {
    fn is_valid(&self) -> Result<bool, String> {
        /// The two numbers of `ZE_RESULT_QUERY_TRUE`: the extension's, and that of drivers from before it.
        const TRUE: [u32; 2] = [0x7800_0022, 0x7fff_0000];
        // SAFETY: a live list.
        Ok(TRUE.contains(&unsafe { (self.calls.status)(self.list) }))
    }

    fn end(mut self: Box<Self>) -> Result<Box<dyn super::Captured>, String> {
        let graph = self.end_it()?;
        Ok(Box::new(graph))
    }
}

impl Drop for CaptureOf {
    fn drop(&mut self) {
        if self.open {
            drop(self.end_it());
        }
    }
}

/// A graph, and what is executed of it.
struct Graph {
    calls: Captures,
    list: usize,
    graph: usize,
    made: usize,
}

impl super::Captured for Graph {
    fn run(&self) -> Result<(), String> {
        let Captures {
            launch,
            synchronize,
            ..
        } = self.calls;
        // SAFETY: a live graph and list; the test keeps what the commands use.
        unsafe {
            let code = launch(self.list, self.made, null(), 0, 0, null());
            checked(code, "zeCommandListAppendGraphExt")?;
            checked(
                synchronize(self.list, u64::MAX),
                "zeCommandListHostSynchronize",
            )
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the one reference of this value to each; each execution was waited for.
        unsafe {
            if self.made != 0 {
                (self.calls.destroy_made)(self.made);
            }
            if self.graph != 0 {
                (self.calls.destroy)(self.graph);
            }
        }
    }
}

/// A fill, and the event that blocks it.
struct Filled {
    library: &'static Library,
    gate: Option<usize>,
    event: usize,
}

impl Command for Filled {
    fn release(&mut self) {
        if let Some(gate) = self.gate.take() {
            // SAFETY: a live event of a pool.
            unsafe { (self.library.zeEventHostSignal)(gate) };
        }
    }

    fn event(&self) -> ur_native_handle_t {
        self.event
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        self.release();
    }
}

impl NativeWork for LevelZero {
    fn capture(&self, list: ur_native_handle_t) -> Option<Result<Box<dyn super::Capture>, String>> {
        let calls = library().ok()?.captures()?;
        // SAFETY: a live list.
        let code = unsafe { (calls.begin)(list, null()) };
        let begun = checked(code, "zeCommandListBeginGraphCaptureExt");
        let open = true;
        #[rustfmt::skip]
        let capture = || Box::new(CaptureOf { calls, list, open }) as Box<dyn super::Capture>;
        Some(begun.map(|()| capture()))
    }

    fn fill(&self, fill: &Fill) -> Result<Box<dyn Command + Send>, String> {
        let library = library()?;
        let [gate, event] = library.events(fill.context)?;
        let filled = Filled {
            library,
            gate: fill.held.map(|_| gate),
            event,
        };
        let waits: Vec<usize> = fill.waits.iter().copied().chain(filled.gate).collect();
        if !waits.is_empty() {
            let wait = library.zeCommandListAppendWaitOnEvents;
            // SAFETY: a live list and live events.
            let code = unsafe { wait(fill.queue, waits.len() as u32, waits.as_ptr()) };
            checked(code, "zeCommandListAppendWaitOnEvents")?;
        }
        library.set_bytes(fill.queue, (fill.memory, fill.bytes), fill.byte, event)?;
        Ok(Box::new(filled))
    }

    fn record(&self, what: &Recorded) -> Result<(), String> {
        library()?.set_bytes(what.recording, (what.memory, what.bytes), what.byte, 0)
    }
}
