//! The log of a library: a sink behind the `log` crate, configured by `UR_LOG_<NAME>`.
//!
//! Owns the variable's syntax, the format of lines and their output. It may use the standard
//! library and `libc`. It must never know what is logged. A library calls [`init`] in its first
//! entry point, then logs with the `log` crate's macros.
//!
//! ```text
//! UR_LOG_LOADER=level:debug;flush:error;fileline:true;output:file,/tmp/ur-%p.log
//!   level     debug, info, warning, error, quiet          (quiet, or the library's own default)
//!   flush     a level; checked, without effect since nothing is buffered
//!   fileline  whether a line ends with its source location in this project
//!   output    stderr, stdout, or file,PATH: %p is the process id, %n the library's name
//! ```
//!
//! Each line is one `write` without a lock or a buffer. Lines survive a crash and a fork, and
//! threads without thread-locals may log.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

pub use ::log::{Level, LevelFilter};
use ::log::{Metadata, Record};

use super::env;

/// Receives each message as `<NAME>[LEVEL]: text`, without a line end.
pub type Callback = Arc<dyn Fn(Level, &str) + Send + Sync>;

static SINK: OnceLock<Sink> = OnceLock::new();
static LOGGER: Logger = Logger;
static CALLBACK: RwLock<Option<Callback>> = RwLock::new(None);
/// The `LevelFilter` of the callback as a number; off by default.
static CALLBACK_LEVEL: AtomicUsize = AtomicUsize::new(0);

/// Opens this library's sink from `UR_LOG_<NAME>`, silent by default. Later calls do nothing.
pub fn init(name: &str) {
    init_with(name, LevelFilter::Off);
}

/// Opens this library's sink from `UR_LOG_<NAME>`, at the level `default` without it. Later calls
/// do nothing.
pub fn init_with(name: &str, default: LevelFilter) {
    SINK.get_or_init(|| Sink::open(name, default));
    // This fails only if the library has another logger, which then stays.
    let _ = ::log::set_logger(&LOGGER);
    update_max_level();
}

/// Sends messages to `callback` as well, at the level of [`set_callback_level`].
pub fn set_callback(callback: Option<Callback>) {
    let old = {
        let mut slot = CALLBACK.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, callback)
    };
    // Dropped without the lock, since a callback's captures may log.
    drop(old);
    update_max_level();
}

/// Sets the level of messages that the callback receives.
pub fn set_callback_level(level: LevelFilter) {
    CALLBACK_LEVEL.store(level as usize, Ordering::Relaxed);
    update_max_level();
}

/// Logs a text at any level, once in a process. For facts that a user must know, such as an invalid
/// setting.
///
/// A callback that receives errors receives the text as an error. The sink receives it if its level
/// includes errors, or if no callback received it.
pub fn once(text: &str) {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    {
        let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.iter().any(|other| other == text) {
            return;
        }
        logged.push(text.to_owned());
    }
    let Some(sink) = SINK.get() else {
        return write_to(libc::STDERR_FILENO, format!("{text}\n").as_bytes());
    };
    let line = format!("<{}>[{}]: {text}", sink.name, level_name(Level::Error));
    let callback = callback(Level::Error);
    if sink.enabled(Level::Error) || callback.is_none() {
        sink.target.write(format!("{line}\n").as_bytes());
    }
    if let Some(callback) = callback {
        callback(Level::Error, &line);
    }
}

/// The fault in a value of `UR_LOG_<NAME>`; none if it is valid. Opens no file.
pub fn fault(text: &str) -> Option<String> {
    let settings = Settings::parse(text, LevelFilter::Off);
    settings.err().map(|fault| fault.to_string())
}

fn update_max_level() {
    let sink = SINK
        .get()
        .map_or(LevelFilter::Off, |sink| sink.settings.level);
    ::log::set_max_level(sink.max(callback_level()));
}

/// A clone of the callback if it receives this level. It may then log, or change the callback.
fn callback(level: Level) -> Option<Callback> {
    if level > callback_level() {
        return None;
    }
    CALLBACK
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

fn callback_level() -> LevelFilter {
    let level = CALLBACK_LEVEL.load(Ordering::Relaxed);
    LevelFilter::iter().nth(level).unwrap_or(LevelFilter::Off)
}

struct Logger;

impl ::log::Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= ::log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let Some(sink) = SINK.get() else { return };
        let level = record.level();
        let to_sink = level <= sink.settings.level;
        let callback = callback(level);
        if !to_sink && callback.is_none() {
            return;
        }
        let mut line = sink.line(level, *record.args(), record.file().zip(record.line()));
        if let Some(callback) = callback {
            callback(level, &line);
        }
        if to_sink {
            line.push('\n');
            sink.target.write(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// A sink of lines with one name. The `log` macros write to the library's own. A part with its own
/// name, such as a layer of the loader, opens another.
pub struct Sink {
    /// The name as lines show it, in upper case.
    name: String,
    settings: Settings,
    target: Target,
}

impl Sink {
    /// Opens the sink of `UR_LOG_<NAME>`, at the level `default` without it. An invalid value is
    /// reported on stderr.
    pub fn open(name: &str, default: LevelFilter) -> Sink {
        // This path runs at the start of every process, so that it stays short.
        let variable = ["UR_LOG_", &name.to_ascii_uppercase()].concat();
        let Some(text) = std::env::var_os(&variable) else {
            let stderr = Target::Fd(libc::STDERR_FILENO);
            return Sink::new(name, Settings::new(default), stderr);
        };
        let sink = Sink::from_text(name, &text.to_string_lossy(), default);
        sink.unwrap_or_else(|reason| {
            let note = format!("{variable}: {reason}; logging stays at its default\n");
            write_to(libc::STDERR_FILENO, note.as_bytes());
            Sink::new(
                name,
                Settings::new(default),
                Target::Fd(libc::STDERR_FILENO),
            )
        })
    }

    /// Whether the sink writes lines of this level.
    pub fn enabled(&self, level: Level) -> bool {
        level <= self.settings.level
    }

    /// Writes a line, if the sink writes lines of this level.
    pub fn log(&self, level: Level, text: fmt::Arguments<'_>) {
        if self.enabled(level) {
            let mut line = self.line(level, text, None);
            line.push('\n');
            self.target.write(line.as_bytes());
        }
    }

    /// Writes text without a name, a level or a line end. The lines of one call stay together.
    pub fn write(&self, text: &str) {
        self.target.write(text.as_bytes());
    }

    fn new(name: &str, settings: Settings, target: Target) -> Sink {
        Sink {
            name: name.to_ascii_uppercase(),
            settings,
            target,
        }
    }

    fn from_text(name: &str, text: &str, default: LevelFilter) -> Result<Sink, Fault> {
        let settings = Settings::parse(text, default)?;
        let target = match &settings.output {
            Output::Stderr => Target::Fd(libc::STDERR_FILENO),
            Output::Stdout => Target::Fd(libc::STDOUT_FILENO),
            Output::File(pattern) => {
                let path = expand_path(pattern, name);
                // Appends, since libraries of one process may share a file.
                let file = OpenOptions::new().create(true).append(true).open(&path);
                Target::File(file.map_err(|error| Fault(format!("cannot open `{path}`: {error}")))?)
            }
        };
        Ok(Sink::new(name, settings, target))
    }

    fn line(&self, level: Level, text: fmt::Arguments<'_>, place: Option<(&str, u32)>) -> String {
        let mut line = String::new();
        let text = format_args!("<{}>[{}]: {text}", self.name, level_name(level));
        // An argument's `Display` may fail. Its text up to there is still logged.
        let _ = line.write_fmt(text);
        if let (true, Some((file, number))) = (self.settings.fileline, place) {
            let _ = write!(line, " <{file}:{number}>");
        }
        line
    }
}

enum Target {
    Fd(RawFd),
    File(File),
}

impl Target {
    fn write(&self, bytes: &[u8]) {
        match self {
            Target::Fd(fd) => write_to(*fd, bytes),
            // A failed write to the log cannot be reported.
            Target::File(file) => {
                let _ = (&mut &*file).write_all(bytes);
            }
        }
    }
}

/// Writes without the process's buffers, which the program owns and which take locks.
fn write_to(fd: RawFd, bytes: &[u8]) {
    // SAFETY: `ManuallyDrop` keeps the file from closing the descriptor, which the program owns.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let _ = (&*file).write_all(bytes);
}

/// Replaces `%p` by the process id, `%n` by the name and `%%` by a percent sign.
pub fn expand_path(pattern: &str, name: &str) -> String {
    let mut path = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            path.push(c);
            continue;
        }
        match rest.next() {
            Some('p') => path.push_str(&std::process::id().to_string()),
            Some('n') => path.push_str(name),
            Some('%') => path.push('%'),
            other => path.extend(std::iter::once('%').chain(other)),
        }
    }
    path
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "ERROR",
        Level::Warn => "WARNING",
        Level::Info => "INFO",
        Level::Debug | Level::Trace => "DEBUG",
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Settings {
    level: LevelFilter,
    flush: LevelFilter,
    fileline: bool,
    output: Output,
}

#[derive(Debug, PartialEq, Eq)]
enum Output {
    Stderr,
    Stdout,
    File(String),
}

/// Why a value of `UR_LOG_<NAME>` is invalid.
#[derive(Debug, PartialEq, Eq)]
struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Settings {
    fn new(level: LevelFilter) -> Settings {
        Settings {
            level,
            flush: LevelFilter::Error,
            fileline: false,
            output: Output::Stderr,
        }
    }

    fn parse(text: &str, default: LevelFilter) -> Result<Settings, Fault> {
        let mut settings = Settings::new(default);
        if text.is_empty() {
            return Ok(settings);
        }
        for entry in text.split(';') {
            let Some((key, value)) = entry.split_once(':') else {
                return Err(Fault(format!("expected `key:value` instead of `{entry}`")));
            };
            match key {
                "level" => settings.level = level(value)?,
                "flush" => settings.flush = level(value)?,
                "fileline" => settings.fileline = flag(value)?,
                "output" => settings.output = output(value)?,
                _ => {
                    return Err(Fault(format!(
                        "unknown key `{key}`; known are level, flush, fileline, output"
                    )));
                }
            }
        }
        Ok(settings)
    }
}

fn level(text: &str) -> Result<LevelFilter, Fault> {
    match unquote(text) {
        "debug" => Ok(LevelFilter::Debug),
        "info" => Ok(LevelFilter::Info),
        "warning" => Ok(LevelFilter::Warn),
        "error" => Ok(LevelFilter::Error),
        "quiet" => Ok(LevelFilter::Off),
        other => Err(Fault(format!(
            "unknown level `{other}`; known are debug, info, warning, error, quiet"
        ))),
    }
}

fn flag(text: &str) -> Result<bool, Fault> {
    let text = unquote(text);
    env::flag(text).ok_or_else(|| {
        let accepted = env::FLAGS;
        Fault(format!(
            "`{text}` is neither true nor false; known are {accepted}"
        ))
    })
}

fn output(text: &str) -> Result<Output, Fault> {
    match text.split_once(',') {
        None if unquote(text) == "stderr" => Ok(Output::Stderr),
        None if unquote(text) == "stdout" => Ok(Output::Stdout),
        Some(("file", path)) if !unquote(path).is_empty() => {
            Ok(Output::File(unquote(path).to_owned()))
        }
        _ => Err(Fault(format!(
            "unknown output `{text}`; known are stderr, stdout and file,PATH"
        ))),
    }
}

fn unquote(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests;
