//! Captures of streams: their commands become nodes of a graph and do not run.
//!
//! A forbidden call invalidates the captures that it concerns, as the real driver's does. The nodes have one
//! order, that of the calls.

use std::ffi::{c_int, c_void};
use std::thread::{self, ThreadId};

use crate::driver::*;
use crate::graph::Graph;
use crate::stream::Command;

type Handle = *mut c_void;

pub struct Capture {
    /// The stream that it began on.
    origin: usize,
    thread: ThreadId,
    mode: c_int,
    valid: bool,
    graph: Graph,
}

impl FakeDriver {
    pub fn is_captured(&self, stream: usize) -> bool {
        self.capture_of(stream).is_some()
    }

    fn capture_of(&self, stream: usize) -> Option<usize> {
        self.streams.get(&stream)?.capture
    }

    /// What `cuStreamIsCapturing` answers: 0 no, 1 yes, 2 invalidated.
    pub fn status(&self, stream: usize) -> c_int {
        let capture = self.capture_of(stream);
        let capture = capture.and_then(|number| self.captures.get(&number));
        capture.map_or(0, |capture| if capture.valid { 1 } else { 2 })
    }

    /// Ends a capture's use by a forbidden call, with that call's code.
    fn invalidate(&mut self, number: usize, code: u32) -> u32 {
        if let Some(capture) = self.captures.get_mut(&number) {
            capture.valid = false;
        }
        code
    }

    /// The code of a query that no captured stream may get: it ends the capture, as on the real driver
    /// (580.159).
    pub fn refuse_captured(&mut self, stream: usize) -> u32 {
        match self.capture_of(stream) {
            Some(number) => self.invalidate(number, CAPTURE_UNSUPPORTED),
            None => SUCCESS,
        }
    }

    /// Adds a command to the capture of a stream.
    pub fn capture(&mut self, stream: usize, command: Command) -> Result<(), u32> {
        let Some(number) = self.capture_of(stream) else {
            return self.broken("a command for no capture");
        };
        if matches!(
            command,
            Command::AwaitWord { .. } | Command::ChangeBlock { .. }
        ) {
            return Err(self.invalidate(number, CAPTURE_UNSUPPORTED));
        }
        let node = self.name();
        let capture = self.captures.get_mut(&number);
        let Some(capture) = capture.filter(|capture| capture.valid) else {
            return Err(CAPTURE_INVALIDATED);
        };
        capture.graph.nodes.push((node, vec![command]));
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.captured += 1;
            stream.joined = false;
        }
        Ok(())
    }

    /// Records an event on a captured stream.
    pub fn record_captured(&mut self, stream: usize, event: usize) -> Result<(), u32> {
        let own = self.streams.get(&stream);
        let at = own.and_then(|own| Some((own.capture?, own.captured)));
        if let Some(event) = self.events.get_mut(&event) {
            event.capture = at;
        }
        Ok(())
    }

    /// The answer to a stream's wait for an event, if the stream or the event is captured.
    pub fn joins(&mut self, stream: usize, event: usize) -> Option<u32> {
        let own = self.capture_of(stream);
        let event = self.events.get(&event)?;
        let (theirs, on) = (event.capture, event.on);
        let (number, count) = match (own, theirs) {
            (None, None) => return None,
            (Some(number), None) => return Some(self.invalidate(number, CAPTURE_ISOLATION)),
            (Some(number), Some((other, _))) if other != number => {
                self.invalidate(other, CAPTURE_MERGE);
                return Some(self.invalidate(number, CAPTURE_MERGE));
            }
            (_, Some((number, _))) if !self.captures.contains_key(&number) => {
                return Some(CAPTURED_EVENT);
            }
            (_, Some(theirs)) => theirs,
        };
        if own.is_none() {
            let joining = self.streams.get_mut(&stream)?;
            (joining.capture, joining.joined) = (Some(number), false);
        }
        let by_origin = self.captures.get(&number)?.origin == stream;
        let joined = self.streams.get_mut(&on?)?;
        joined.joined |= by_origin && joined.captured == count;
        Some(SUCCESS)
    }

    /// Invalidates the captures that forbid a call which may wait for other work, if the thread has not
    /// relaxed its mode.
    pub fn begin_unsafe(&mut self) -> Option<u32> {
        const GLOBAL: c_int = 0;
        if MODE.get() == RELAXED {
            return None;
        }
        let here = thread::current().id();
        let forbids = |capture: &Capture| {
            capture.mode == GLOBAL || capture.mode != RELAXED && capture.thread == here
        };
        let forbidding = self.captures.iter().filter(|(_, capture)| forbids(capture));
        let forbidding: Vec<_> = forbidding.map(|(number, _)| *number).collect();
        for number in &forbidding {
            self.invalidate(*number, CAPTURE_UNSUPPORTED);
        }
        (!forbidding.is_empty()).then_some(CAPTURE_UNSUPPORTED)
    }

    /// A query of a captured stream, or a wait for it.
    pub fn uses_captured(&mut self, stream: usize) -> Option<u32> {
        let number = self.capture_of(stream)?;
        Some(self.invalidate(number, CAPTURE_UNSUPPORTED))
    }

    /// A query of an event whose last record was captured, or a wait for it.
    pub fn uses_captured_event(&mut self, event: usize) -> Option<u32> {
        let (number, _) = self.events.get(&event)?.capture?;
        Some(self.invalidate(number, CAPTURED_EVENT))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuStreamBeginCapture") {
        return code;
    }
    let name = stream.addr();
    if name <= 1 {
        return CAPTURE_UNSUPPORTED;
    }
    if driver.is_captured(name) {
        return ILLEGAL_STATE;
    }
    let number = driver.name();
    let Some(own) = driver.streams.get_mut(&name) else {
        return code(driver.broken("a capture of a dead stream"));
    };
    (own.capture, own.captured, own.joined) = (Some(number), 0, true);
    let capture = Capture {
        origin: name,
        thread: thread::current().id(),
        mode,
        valid: true,
        graph: Graph::default(),
    };
    driver.captures.insert(number, capture);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> u32 {
    let mut driver = hold();
    // SAFETY: room for a handle.
    unsafe { graph.write(std::ptr::null_mut()) };
    let name = stream.addr();
    let Some(number) = driver.capture_of(name) else {
        return ILLEGAL_STATE;
    };
    let Some(capture) = driver.captures.get(&number) else {
        return ILLEGAL_STATE;
    };
    if capture.origin != name {
        return driver.invalidate(number, CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != thread::current().id() {
        return CAPTURE_WRONG_THREAD;
    }
    let mut unjoined = false;
    for (other, stream) in &mut driver.streams {
        if stream.capture == Some(number) {
            unjoined |= *other != name && !stream.joined;
            stream.capture = None;
        }
    }
    let Some(capture) = driver.captures.remove(&number) else {
        return ILLEGAL_STATE;
    };
    if let Some(code) = driver.called("cuStreamEndCapture") {
        return code;
    }
    match (capture.valid, unjoined) {
        (false, _) => CAPTURE_INVALIDATED,
        (_, true) => CAPTURE_UNJOINED,
        _ => {
            let made = driver.name();
            driver.graphs.insert(made, capture.graph);
            // SAFETY: room for a handle.
            unsafe { graph.write(std::ptr::without_provenance_mut(made)) };
            SUCCESS
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchHostFunc(
    stream: Handle,
    run: extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs("cuLaunchHostFunc", own) {
        return code;
    }
    let (run, data) = (
        (run as *const ()).expose_provenance(),
        data.expose_provenance(),
    );
    code(driver.submit(stream.addr(), Command::Call { run, data }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(
    graph: Handle,
    nodes: *mut Handle,
    count: *mut usize,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuGraphGetNodes") {
        return code;
    }
    let Some(own) = driver.graphs.get(&graph.addr()) else {
        return code(driver.broken("asking a dead graph"));
    };
    if nodes.is_null() {
        // SAFETY: room for the number.
        unsafe { count.write(own.nodes.len()) };
        return SUCCESS;
    }
    // The adapter asks for the number alone.
    INVALID_VALUE
}
