//! The process that runs tests.
//!
//! Tests arrive as numbers, one on each line, and their outcomes leave as JSON, so that a crash or a hang
//! fails one test and not the run. Standard output belongs to the protocol. Text that libraries print there
//! goes to standard error.

use crate::fixture::{Fixture, Identity, Target};
use crate::fresh::Fresh;
use crate::objects::take_failed_elsewhere;
use crate::outcome::{Raw, Stop};
use crate::registry::{Body, Test};
use crate::status::Called;
use crate::{api, in_progress};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A message of a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The worker can take tests.
    Ready(Option<Identity>),
    /// There is no device to run tests on.
    Unable(String),
    /// A test has ended.
    Ended { test: usize, outcome: Raw },
    /// The calls made, sent after the last test.
    Calls(Vec<Called>),
}

/// Runs tests until standard input ends. `fresh`: tests that need a process of their own. After `timeout` this process
/// is killed, so that it says before where its threads are.
pub fn serve(
    tests: &[Test],
    target: &Target,
    fresh: bool,
    timeout: Option<Duration>,
) -> std::io::Result<()> {
    let mut out = protocol_stream()?;
    let watch = Watch::start(timeout);
    let environment = if fresh {
        Fresh::open(target).map(Environment::Fresh)
    } else {
        Fixture::open(target).map(Environment::Ready)
    };
    let environment = match environment {
        Ok(environment) => environment,
        Err(reason) => return report(&mut out, &Message::Unable(reason)),
    };
    report(&mut out, &Message::Ready(environment.identity()))?;
    for line in std::io::stdin().lock().lines() {
        let Some(index) = line?
            .trim()
            .parse::<usize>()
            .ok()
            .filter(|index| *index < tests.len())
        else {
            continue;
        };
        watch.test(true);
        let outcome = environment.run(&tests[index]);
        watch.test(false);
        report(
            &mut out,
            &Message::Ended {
                test: index,
                outcome,
            },
        )?;
    }
    report(&mut out, &Message::Calls(environment.calls()))?;
    environment.end();
    Ok(())
}

/// Writes where all threads are, to standard error, shortly before a test has taken too long.
struct Watch(Option<Sender<bool>>);

/// Time that is left for the report.
const REPORT_TIME: Duration = Duration::from_secs(2);

impl Watch {
    fn start(timeout: Option<Duration>) -> Self {
        let Some(limit) = timeout.and_then(|timeout| timeout.checked_sub(REPORT_TIME)) else {
            return Self(None);
        };
        let (begun, begins) = channel();
        let watch = move || {
            while let Ok(begun) = begins.recv() {
                if begun && begins.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    let text = in_progress::report(api::FUNCTIONS);
                    console::errln!("after {} s:\n{}", limit.as_secs(), text.trim_end());
                }
            }
        };
        let thread = std::thread::Builder::new().name("watch".to_owned());
        // Without such a thread a test that takes too long is killed without a report.
        Self(thread.spawn(watch).is_ok().then_some(begun))
    }

    /// A test begins, or has ended.
    fn test(&self, begins: bool) {
        if let Some(watch) = &self.0 {
            // The thread lives as long as this end.
            let _ = watch.send(begins);
        }
    }
}

/// The surroundings of the tests.
pub enum Environment {
    Ready(Fixture),
    Fresh(Fresh),
}

impl Environment {
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Environment::Ready(fixture) => Some(fixture.identity()),
            Environment::Fresh(_) => None,
        }
    }

    pub fn calls(&self) -> Vec<Called> {
        match self {
            Environment::Ready(fixture) => fixture.ur.calls().snapshot(),
            Environment::Fresh(fresh) => fresh.ur.calls().snapshot(),
        }
    }

    /// Standard input has ended.
    pub fn end(self) {
        if let Environment::Ready(fixture) = self {
            // The reader of the message may be gone.
            let _ = fixture.close();
        }
    }

    /// Runs one test. A panic counts as a failure.
    pub fn run(&self, test: &Test) -> Raw {
        take_failed_elsewhere();
        let ended = catch_unwind(AssertUnwindSafe(|| match (&test.body, self) {
            (Body::Device(run), Environment::Ready(fixture)) => run(fixture),
            (Body::Process(run), Environment::Fresh(fresh)) => run(fresh),
            _ => Err(Stop::failed(
                "the test was sent to the wrong kind of process",
            )),
        }));
        let raw = ended.map_or_else(|payload| Raw::Failed(panic_text(&*payload)), Raw::from);
        let elsewhere = take_failed_elsewhere();
        match raw {
            raw if elsewhere.is_empty() => raw,
            Raw::Passed => Raw::Failed(elsewhere.join(", ")),
            // It may be the cause.
            Raw::Failed(message) => Raw::Failed(format!("{message}; {}", elsewhere.join(", "))),
            raw => raw,
        }
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("the test panicked: {}", text.unwrap_or("no message"))
}

fn report(out: &mut File, message: &Message) -> std::io::Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// Moves standard output away: file descriptor 1 becomes standard error.
fn protocol_stream() -> std::io::Result<File> {
    let kept = std::io::stdout().as_fd().try_clone_to_owned()?;
    let (from, to) = (std::io::stderr().as_raw_fd(), std::io::stdout().as_raw_fd());
    // SAFETY: both are open descriptors of this process.
    if unsafe { libc::dup2(from, to) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(File::from(kept))
}
