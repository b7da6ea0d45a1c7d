//! Calls as events of the Chrome trace format, which Perfetto reads. A call is one complete event
//! with its arguments; metadata events name the process and its threads.
//!
//! | State    | file ends with           | left by                                   |
//! |----------|--------------------------|-------------------------------------------|
//! | open     | an event, or part of one | a full buffer: writes, stays open         |
//! | finished | the list's end           | the next event: takes the end back        |
//!
//! Owns the file and its buffer. A layer that is enabled again continues the file of this process.
//! The file of another process is replaced. Viewers read a list without its end, so that a crash
//! loses the buffer only.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ur::abi::ur_result_t;

use super::members::Member;
use super::settings::Output;
use super::span::{CallInfo, Timestamp};
use super::{NAMES, lines, result_name, thread};

/// Size at which the buffer is written.
const BUFFER_BYTES: usize = 1 << 16;

const END: &[u8] = b"\n]\n";

/// Whether events are written at once, because the process is ending.
static UNBUFFERED: AtomicBool = AtomicBool::new(false);

/// The output last opened in this process, and its events.
static OPENED: Mutex<Option<(Output, Arc<Events>)>> = Mutex::new(None);

pub struct Events(Mutex<EventFile>);

struct EventFile {
    file: File,
    /// Whether the file can be sought, so that the list's end can be overwritten.
    regular: bool,
    buffer: Vec<u8>,
    begun: bool,
    finished: bool,
    /// Threads whose name is written.
    threads: BTreeSet<i32>,
}

/// Has every later event written at once.
pub fn disable_buffering() {
    UNBUFFERED.store(true, Ordering::Relaxed);
}

impl Events {
    /// Opens the output. None without an output, or on an error, which is logged.
    pub fn open(output: &Output) -> Option<Arc<Events>> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, events)) = opened.as_ref().filter(|(own, _)| own == output) {
            return Some(Arc::clone(events));
        }
        let mut how = OpenOptions::new();
        let file = lines::open(output, how.create(true).write(true).truncate(true))?;
        let regular = file.metadata().is_ok_and(|data| data.is_file());
        let events = Arc::new(Events(Mutex::new(EventFile {
            file,
            regular,
            buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
            begun: false,
            finished: false,
            threads: BTreeSet::new(),
        })));
        *opened = Some((output.clone(), Arc::clone(&events)));
        Some(events)
    }

    /// Adds a call.
    pub fn add(
        &self,
        info: &CallInfo,
        members: &[Member],
        result: ur_result_t,
        start: Timestamp,
        time: Duration,
    ) {
        let thread = thread();
        let event = event(info, members, result, start, time, thread);
        let mut state = self.lock();
        if state.threads.insert(thread) {
            state.name(thread);
        }
        state.append(&event);
        if UNBUFFERED.load(Ordering::Relaxed) {
            state.finish();
        }
    }

    /// Writes the buffer and the list's end.
    pub fn finish(&self) {
        self.lock().finish();
    }

    fn lock(&self) -> MutexGuard<'_, EventFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventFile {
    fn append(&mut self, event: &str) {
        if self.finished && self.regular {
            let end = i64::try_from(END.len()).unwrap_or(0);
            // After a failed seek the list has a second end, which viewers accept.
            let _ = self.file.seek(SeekFrom::End(-end));
        }
        self.finished = false;
        self.buffer
            .extend_from_slice(if self.begun { b",\n" } else { b"[\n" });
        self.begun = true;
        self.buffer.extend_from_slice(event.as_bytes());
        if self.buffer.len() >= BUFFER_BYTES {
            self.write();
        }
    }

    fn finish(&mut self) {
        if self.finished {
            return;
        }
        if !self.begun {
            self.buffer.push(b'[');
            self.begun = true;
        }
        // In a file that cannot be sought, the list's end is written when the process ends.
        if self.regular || UNBUFFERED.load(Ordering::Relaxed) {
            self.buffer.extend_from_slice(END);
            self.finished = true;
        }
        self.write();
    }

    fn write(&mut self) {
        // A failed write loses the trace, not the program.
        let _ = self.file.write_all(&self.buffer);
        self.buffer.clear();
    }

    /// Writes the name of a thread, and before the first one that of the process.
    fn name(&mut self, thread: i32) {
        if !self.begun {
            self.append(&name("process_name", thread, "/proc/self/comm"));
        }
        let path = format!("/proc/self/task/{thread}/comm");
        self.append(&name("thread_name", thread, &path));
    }
}

/// A metadata event whose name is the content of a file.
fn name(what: &str, thread: i32, path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    format!(
        "{{\"name\":\"{what}\",\"ph\":\"M\",\"pid\":{},\"tid\":{thread},\"args\":{{\"name\":{}}}}}",
        std::process::id(),
        Quoted(text.trim_end())
    )
}

fn event(
    info: &CallInfo,
    members: &[Member],
    result: ur_result_t,
    start: Timestamp,
    time: Duration,
    thread: i32,
) -> String {
    let mut args = String::new();
    for (name, text) in members {
        let _ = write!(args, "\"{name}\":{},", Quoted(text));
    }
    if let Some(source) = &info.source {
        let _ = write!(args, "\"source\":{},", Quoted(source));
    }
    format!(
        "{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{thread},\"args\":{{{args}\"result\":{}}}}}",
        NAMES.get(info.function).copied().unwrap_or("?"),
        info.adapter.unwrap_or("ur"),
        Micros(u128::from(start.0)),
        Micros(time.as_nanos()),
        std::process::id(),
        Quoted(&result_name(result)),
    )
}

/// Nanoseconds printed as microseconds, without rounding.
struct Micros(u128);

impl std::fmt::Display for Micros {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Prints a string of JSON.
pub struct Quoted<'a>(pub &'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' => out.write_str("\\\"")?,
                '\\' => out.write_str("\\\\")?,
                '\0'..='\x1f' => write!(out, "\\u{:04x}", u32::from(letter))?,
                other => out.write_char(other)?,
            }
        }
        out.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::{Micros, Quoted};

    #[test]
    fn strings_are_those_of_json() {
        assert_eq!(
            Quoted("a \"b\" \\ \n\u{1}é").to_string(),
            r#""a \"b\" \\ \u000a\u0001é""#
        );
        assert_eq!(Micros(1_234_005).to_string(), "1234.005");
    }
}
