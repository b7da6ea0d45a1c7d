//! Streams, events and the commands submitted to streams.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use crate::driver::*;
use crate::image::boxes;
use crate::peers::{Reach, device_of};
use crate::share::{counts_of, happened, recorded};
use crate::stream::{Command, Event, Stream, wait_until};
use crate::strict::{Code, hold_idle, hold_loaded};

type Handle = *mut c_void;

fn made(driver: &mut FakeDriver) -> (usize, Handle) {
    let name = driver.name();
    (name, std::ptr::without_provenance_mut(name))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut Handle,
    _: c_uint,
    _: c_int,
) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.acts("cuStreamCreateWithPriority") {
        return code;
    }
    let (name, handle) = made(&mut driver);
    let new = Stream {
        context: current(),
        ..Stream::default()
    };
    driver.streams.insert(name, new);
    // SAFETY: room for a handle, as for all outputs here.
    unsafe { stream.write(handle) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: Handle) -> u32 {
    let mut driver = hold_idle(Some(current()));
    driver.pump();
    match driver.streams.remove(&stream.addr()) {
        Some(stream) if stream.capture.is_some() => {
            code(driver.broken("a stream destroyed while it is captured"))
        }
        Some(stream) if stream.commands.is_empty() => SUCCESS,
        Some(_) => code(driver.broken("a stream destroyed with work on it")),
        None => code(driver.broken("a stream destroyed twice")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: Handle) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs("cuStreamQuery", own) {
        return code;
    }
    if let Some(code) = driver.begin_query(Some(stream.addr())) {
        return code;
    }
    if let Some(code) = driver.uses_captured(stream.addr()) {
        return code;
    }
    driver.pump();
    match driver.streams.get(&stream.addr()) {
        Some(stream) if !stream.commands.is_empty() => NOT_READY,
        _ => SUCCESS,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: Handle, status: *mut c_int) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs("cuStreamIsCapturing", own) {
        return code;
    }
    let captured = driver.captured == Some(stream.addr());
    let captured = driver.status(stream.addr()).max(captured.into());
    // SAFETY: the driver's interface promises room for a word.
    unsafe { status.write(captured) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> u32 {
    if let Some(code) = hold().called("cuThreadExchangeStreamCaptureMode") {
        return code;
    }
    // SAFETY: the driver's interface promises room for each output.
    unsafe { mode.write(MODE.replace(mode.read())) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuStreamSynchronize") {
        return code;
    }
    let name = stream.addr();
    if let Some(code) = driver.begin_unsafe().or_else(|| driver.uses_captured(name)) {
        return code;
    }
    drop(driver);
    let idle = |driver: &mut FakeDriver| {
        let stream = driver.streams.get(&name);
        stream.is_none_or(|stream| stream.commands.is_empty())
    };
    wait_until(idle).trim_pools();
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _: c_uint) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs("cuStreamWaitEvent", own) {
        return code;
    }
    let event = event.addr();
    let Some(count) = driver.events.get(&event).map(recorded) else {
        return code(driver.broken("waiting for a dead event"));
    };
    if let Some(result) = driver.joins(stream.addr(), event) {
        return result;
    }
    code(driver.submit(stream.addr(), Command::Await { event, count }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitValue32_v2(stream: Handle, word: u64, value: u32, _: c_uint) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuStreamWaitValue32") {
        return code;
    }
    let word = word as usize;
    code(driver.submit(stream.addr(), Command::AwaitWord { word, value }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetFlags(stream: Handle, flags: *mut c_uint) -> u32 {
    // SAFETY: the driver's interface promises room for each output.
    unsafe { flags.write(1) };
    let mut driver = hold();
    let failed = driver.acts("cuStreamGetFlags");
    failed.unwrap_or_else(|| driver.refuse_captured(stream.addr()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetPriority(stream: Handle, priority: *mut c_int) -> u32 {
    // SAFETY: the driver's interface promises room for each output.
    unsafe { priority.write(0) };
    let mut driver = hold();
    let failed = driver.acts("cuStreamGetPriority");
    failed.unwrap_or_else(|| driver.refuse_captured(stream.addr()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(stream: Handle, context: *mut Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuStreamGetCtx") {
        return code;
    }
    let own = driver.streams.get(&stream.addr());
    let own = own.map_or_else(current, |stream| stream.context);
    // SAFETY: the driver's interface promises room for each output.
    unsafe { context.write(std::ptr::without_provenance_mut(own)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, flags: c_uint) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuEventCreate") {
        return code;
    }
    let (name, handle) = made(&mut driver);
    let new = Event {
        timed: flags & 2 == 0,
        context: current(),
        shared: counts_of(name, flags),
        ..Event::default()
    };
    driver.events.insert(name, new);
    // SAFETY: the driver's interface promises room for each output.
    unsafe { event.write(handle) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    let mut driver = hold();
    match driver.events.remove(&event.addr()) {
        Some(_) => SUCCESS,
        None => code(driver.broken("an event destroyed twice")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    let mut driver = hold();
    let (context, event) = (driver.context_of_stream(stream), event.addr());
    if let Some(code) = driver.belongs("cuEventRecord", context) {
        return code;
    }
    let context = context.unwrap_or_else(current);
    let Some(own) = driver.events.get_mut(&event) else {
        return code(driver.broken("recording a dead event"));
    };
    if own.context != context {
        return code(driver.broken("recording an event of another context"));
    }
    own.on = Some(stream.addr());
    own.capture = None;
    if driver.is_captured(stream.addr()) {
        return code(driver.record_captured(stream.addr(), event));
    }
    let Some(own) = driver.events.get_mut(&event) else {
        return INVALID_HANDLE;
    };
    let count = match &own.shared {
        Some(shared) => 1 + shared.recorded().fetch_add(1, Ordering::SeqCst),
        None => own.recorded + 1,
    };
    own.recorded = count;
    code(driver.submit(stream.addr(), Command::Record { event, count }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: Handle) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_event(event);
    if let Some(code) = driver.belongs("cuEventQuery", own) {
        return code;
    }
    let on = driver.events.get(&event.addr()).and_then(|event| event.on);
    if let Some(code) = driver.begin_query(on) {
        return code;
    }
    if let Some(code) = driver.uses_captured_event(event.addr()) {
        return code;
    }
    driver.pump();
    match driver.events.get(&event.addr()) {
        Some(event) if happened(event) >= recorded(event) => SUCCESS,
        Some(_) => NOT_READY,
        None => code(driver.broken("asking a dead event")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: Handle) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_event(event);
    if let Some(code) = driver.belongs("cuEventSynchronize", own) {
        return code;
    }
    let name = event.addr();
    let Some(count) = driver.events.get(&name).map(recorded) else {
        return code(driver.broken("waiting for a dead event"));
    };
    let refused = driver.begin_unsafe();
    if let Some(code) = refused.or_else(|| driver.uses_captured_event(name)) {
        return code;
    }
    drop(driver);
    let done = |driver: &mut FakeDriver| {
        let event = driver.events.get(&name);
        event.is_none_or(|event| happened(event) >= count)
    };
    wait_until(done).trim_pools();
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(time: *mut f32, from: Handle, to: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuEventElapsedTime") {
        return code;
    }
    driver.pump();
    let at = |event: Handle| {
        driver
            .events
            .get(&event.addr())
            .filter(|event| event.timed)?
            .at
    };
    let (Some(from), Some(to)) = (at(from), at(to)) else {
        return code(driver.broken("the time of what did not happen, or has none"));
    };
    // SAFETY: the driver's interface promises room for each output.
    unsafe { time.write(to.saturating_duration_since(from).as_secs_f32() * 1000.0) };
    SUCCESS
}

impl FakeDriver {
    /// Whether a device reaches the memory of a copy or fill.
    fn accepts(&self, device: usize, command: &Command) -> bool {
        let copied = |reach: Reach| reach != Reach::No;
        match command {
            Command::Copy { dst, src, bytes } => {
                copied(self.reach(device, *dst, *bytes, true))
                    && copied(self.reach(device, *src, *bytes, false))
            }
            Command::Fill { dst, bytes, .. } => {
                self.reach(device, *dst, *bytes, true) == Reach::Yes
            }
            _ => true,
        }
    }
}

fn submit(name: &'static str, stream: Handle, command: Command) -> u32 {
    let mut driver = match command {
        Command::Fill { .. } => hold_loaded(stream, Code::Own(name)),
        _ => hold(),
    };
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs(name, own) {
        return code;
    }
    let device = device_of(own.unwrap_or_else(current));
    let accepted = driver.accepts(device, &command);
    if !accepted {
        return INVALID_VALUE;
    }
    code(driver.submit(stream.addr(), command))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAsync(dst: u64, src: u64, bytes: usize, stream: Handle) -> u32 {
    let (dst, src) = (dst as usize, src as usize);
    submit("cuMemcpyAsync", stream, Command::Copy { dst, src, bytes })
}

/// A box is one call, though a command for each of its rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3DAsync_v2(what: *const usize, stream: Handle) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs("cuMemcpy3DAsync", own) {
        return code;
    }
    let rows = match boxes(&driver, what) {
        Ok(rows) => rows,
        Err(code) => return code,
    };
    let device = device_of(own.unwrap_or_else(current));
    if !rows.iter().all(|row| driver.accepts(device, row)) {
        return INVALID_VALUE;
    }
    let mut codes = rows
        .into_iter()
        .map(|row| driver.submit(stream.addr(), row));
    code(codes.find(Result::is_err).unwrap_or(Ok(())))
}

fn fill(name: &'static str, dst: u64, pattern: &[u8], count: usize, stream: Handle) -> u32 {
    let command = Command::Fill {
        dst: dst as usize,
        pattern: pattern.to_vec(),
        bytes: count * pattern.len(),
    };
    submit(name, stream, command)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(dst: u64, value: u8, count: usize, stream: Handle) -> u32 {
    fill("cuMemsetD8Async", dst, &[value], count, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16Async(dst: u64, value: u16, count: usize, stream: Handle) -> u32 {
    fill("cuMemsetD16Async", dst, &value.to_ne_bytes(), count, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(dst: u64, value: u32, count: usize, stream: Handle) -> u32 {
    fill("cuMemsetD32Async", dst, &value.to_ne_bytes(), count, stream)
}

fn plane(dst: u64, pitch: usize, pattern: &[u8], width: usize, rows: usize, to: Handle) -> u32 {
    let each = |row: usize| {
        let at = dst + (row * pitch) as u64;
        fill("cuMemsetD2DAsync", at, pattern, width, to)
    };
    (0..rows)
        .map(each)
        .find(|code| *code != SUCCESS)
        .unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D8Async(
    dst: u64,
    pitch: usize,
    value: u8,
    width: usize,
    rows: usize,
    stream: Handle,
) -> u32 {
    plane(dst, pitch, &[value], width, rows, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D16Async(
    dst: u64,
    pitch: usize,
    value: u16,
    width: usize,
    rows: usize,
    stream: Handle,
) -> u32 {
    plane(dst, pitch, &value.to_ne_bytes(), width, rows, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D32Async(
    dst: u64,
    pitch: usize,
    value: u32,
    width: usize,
    rows: usize,
    stream: Handle,
) -> u32 {
    plane(dst, pitch, &value.to_ne_bytes(), width, rows, stream)
}
