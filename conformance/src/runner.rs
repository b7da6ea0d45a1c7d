//! Runs tests in worker processes, several at a time.
//!
//! A worker that dies or does not answer fails its present test, and another worker takes its place.

use crate::fixture::{Identity, Target};
use crate::outcome::Raw;
use crate::registry::Test;
use crate::status::Called;
use crate::worker::Message;
use console::discovery;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The tests to run and their surroundings.
pub struct Plan<'a> {
    pub tests: &'a [Test],
    /// Indices of the tests to run, in order.
    pub chosen: Vec<usize>,
    pub target: &'a Target,
    /// Environment of the workers, in addition to this process's.
    pub environment: Vec<(String, String)>,
    pub jobs: usize,
    pub timeout: Duration,
}

/// The end of one test.
pub struct Ended {
    pub test: usize,
    pub outcome: Raw,
    pub time: Duration,
    /// The last kilobytes that its process wrote to standard error.
    pub output: String,
}

impl Plan<'_> {
    /// Starts a worker and returns the names of its device, or the reason why it could not start.
    /// Without a device the reason has a line for each adapter that the loader looked for.
    pub fn identify(&self) -> Result<Identity, String> {
        let mut worker = Worker::start(self, false)?;
        match worker.answer(self.timeout)? {
            Message::Ready(identity) => {
                identity.ok_or_else(|| "the worker does not know its device".to_owned())
            }
            Message::Unable(reason) => {
                let reasons = discovery::reasons(&mut self.worker_command(false)?);
                let lines = std::iter::once(reason).chain(reasons);
                Err(lines.collect::<Vec<_>>().join("\n  "))
            }
            other => Err(format!("the worker began with {other:?}")),
        }
    }

    /// The command of a worker process, which takes tests from its standard input.
    fn worker_command(&self, fresh: bool) -> Result<Command, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command
            .arg("--loader")
            .arg(&self.target.loader)
            .arg("--device")
            .arg(self.target.device.to_string());
        command
            .arg("--worker")
            .arg(if fresh { "fresh" } else { "ready" })
            .args(["--timeout", &self.timeout.as_secs().to_string()]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Runs the chosen tests, passes on each end as it comes, and returns all calls made.
    pub fn run(&self, ended: &(dyn Fn(Ended) + Sync)) -> Vec<Called> {
        let next = AtomicUsize::new(0);
        let calls = Mutex::new(BTreeMap::new());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, self.chosen.len().max(1)) {
                scope.spawn(|| self.job(&next, ended, &calls));
            }
        });
        calls
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .into_values()
            .collect()
    }

    fn job(
        &self,
        next: &AtomicUsize,
        ended: &(dyn Fn(Ended) + Sync),
        calls: &Mutex<BTreeMap<String, Called>>,
    ) {
        let mut shared: Option<Worker> = None;
        while let Some(&index) = self.chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let test = &self.tests[index];
            let (own, apart) = (test.needs_own_process(), test.apart);
            // The shared worker is kept for the tests after one with its own process.
            let worker = match if apart { None } else { shared.take() } {
                Some(worker) => Ok(worker),
                None => {
                    Worker::start(self, own).and_then(|worker| Ok(worker.ready(self.timeout)?.0))
                }
            };
            let (outcome, output) = match worker {
                Ok(mut worker) => {
                    let outcome = worker.test(index, self.timeout);
                    let output = worker.output();
                    match outcome {
                        Ok(outcome) if apart => {
                            worker.finish(self.timeout, calls);
                            (outcome, output)
                        }
                        Ok(outcome) => {
                            shared = Some(worker);
                            (outcome, output)
                        }
                        Err(reason) => (Raw::Failed(reason), worker.output()),
                    }
                }
                Err(reason) => (Raw::Failed(reason), String::new()),
            };
            ended(Ended {
                test: index,
                outcome,
                time: start.elapsed(),
                output,
            });
        }
        if let Some(worker) = shared {
            worker.finish(self.timeout, calls);
        }
    }
}

/// A process that runs tests.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Message>,
    errors: Arc<Mutex<Vec<u8>>>,
}

impl Worker {
    fn start(plan: &Plan, fresh: bool) -> Result<Self, String> {
        let mut command = plan.worker_command(fresh)?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("no worker process: {error}"))?;
        let (sender, messages) = channel();
        let output = child.stdout.take();
        std::thread::spawn(move || {
            for line in output
                .into_iter()
                .flat_map(|stream| BufReader::new(stream).lines())
                .map_while(Result::ok)
            {
                // A line that is no message was printed by a library before the streams were separated.
                if serde_json::from_str(&line).is_ok_and(|message| sender.send(message).is_err()) {
                    return;
                }
            }
        });
        let errors = Arc::new(Mutex::new(Vec::new()));
        let (stream, tail) = (child.stderr.take(), Arc::clone(&errors));
        std::thread::spawn(move || stream.map(|stream| store_tail(stream, &tail)));
        let input = child.stdin.take();
        Ok(Self {
            child,
            input,
            messages,
            errors,
        })
    }

    /// Waits until the worker can take tests.
    fn ready(mut self, timeout: Duration) -> Result<(Self, Option<Identity>), String> {
        match self.answer(timeout)? {
            Message::Ready(identity) => Ok((self, identity)),
            Message::Unable(reason) => Err(reason),
            other => Err(format!("the worker began with {other:?}")),
        }
    }

    fn test(&mut self, index: usize, timeout: Duration) -> Result<Raw, String> {
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        let sent = self
            .input
            .as_mut()
            .map(|input| writeln!(input, "{index}").and_then(|()| input.flush()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(format!("the worker took no test: {}", self.death()));
        }
        match self.answer(timeout)? {
            Message::Ended { test, outcome } if test == index => Ok(outcome),
            other => Err(format!("the worker answered {other:?}")),
        }
    }

    /// Ends the worker and adds up its calls.
    fn finish(mut self, timeout: Duration, calls: &Mutex<BTreeMap<String, Called>>) {
        self.input = None;
        if let Ok(Message::Calls(list)) = self.answer(timeout) {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            for call in list {
                match calls.get_mut(&call.function) {
                    Some(row) => row.add(call),
                    None => drop(calls.insert(call.function.clone(), call)),
                }
            }
        }
        // The worker is killed on drop if it does not end by itself.
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end && !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn answer(&mut self, timeout: Duration) -> Result<Message, String> {
        match self.messages.recv_timeout(timeout) {
            Ok(message) => Ok(message),
            Err(RecvTimeoutError::Timeout) => Err(format!("no end after {} s", timeout.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err(self.death()),
        }
    }

    fn death(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("the process of the test died: {}", end_of(status)),
            Err(error) => format!("the process of the test is gone: {error}"),
        }
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&self.errors.lock().unwrap_or_else(PoisonError::into_inner))
            .into_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn end_of(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => {
            let name = match signal {
                libc::SIGABRT => " (SIGABRT)",
                libc::SIGBUS => " (SIGBUS)",
                libc::SIGFPE => " (SIGFPE)",
                libc::SIGILL => " (SIGILL)",
                libc::SIGSEGV => " (SIGSEGV)",
                _ => "",
            };
            format!("signal {signal}{name}")
        }
        None => status.to_string(),
    }
}

const MAX_OUTPUT_BYTES: usize = 4096;

fn store_tail(mut stream: impl std::io::Read, tail: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..count]);
        let surplus = tail.len().saturating_sub(MAX_OUTPUT_BYTES);
        tail.drain(..surplus);
    }
}
