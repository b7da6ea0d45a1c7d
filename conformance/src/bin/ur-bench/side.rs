//! One of the two that are compared: a process with a loader in it, that answers with samples.

use crate::calls::Calls;
use crate::measures::{self, Bench};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Side {
    loader: PathBuf,
    adapter: Option<PathBuf>,
    worker: Option<Worker>,
}

struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What a worker says of a call that its side does not offer.
const NOT_OFFERED: &str = "not offered";

impl Side {
    pub fn new(loader: &Path, adapter: Option<&Path>) -> Self {
        Self {
            loader: loader.to_owned(),
            adapter: adapter.map(Path::to_owned),
            worker: None,
        }
    }

    pub fn name(&self) -> String {
        let folder = self.loader.parent().unwrap_or(Path::new(""));
        folder.display().to_string()
    }

    /// The process that samples are taken in.
    pub fn open(&mut self) -> Result<(), String> {
        self.worker = Some(self.spawn()?);
        Ok(())
    }

    /// One sample of a measure, in nanoseconds a call.
    pub fn sample(&mut self, measure: &str) -> Result<Option<f64>, String> {
        let worker = self.worker.as_mut().ok_or("the worker is not open")?;
        worker.ask(measure)
    }

    /// From `urLoaderInit` to the first device, in a process of its own.
    pub fn start(&self) -> Result<Option<f64>, String> {
        self.spawn()?.ask(measures::START)
    }

    fn spawn(&self) -> Result<Worker, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg("--worker").arg(&self.loader);
        if let Some(adapter) = &self.adapter {
            command.env("UR_ADAPTERS_FORCE_LOAD", adapter);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(answers)) => Ok(Worker {
                child,
                requests,
                answers: BufReader::new(answers),
            }),
            _ => Err("a worker without pipes".to_owned()),
        }
    }
}

impl Worker {
    fn ask(&mut self, measure: &str) -> Result<Option<f64>, String> {
        let gone = |error: std::io::Error| format!("a worker has ended: {error}");
        writeln!(self.requests, "{measure}").map_err(gone)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(gone)?;
        match answer.trim() {
            NOT_OFFERED => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| format!("“{measure}”: {text}")),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do about a child that cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker: answers each request with a sample until there are no more.
pub fn serve(loader: &Path) -> Result<(), String> {
    let calls = Calls::open(loader)?;
    let mut bench = None;
    for request in std::io::stdin().lines() {
        let request = request.map_err(|error| error.to_string())?;
        let answer = if request == measures::START {
            measures::start(calls).map(|(sample, _)| Some(sample))
        } else {
            sample(calls, &mut bench, &request)
        };
        match answer {
            Ok(Some(sample)) => println!("{sample}"),
            Ok(None) => println!("{NOT_OFFERED}"),
            Err(reason) => println!("{reason}"),
        }
    }
    Ok(())
}

fn sample(
    calls: &'static Calls,
    bench: &mut Option<Bench>,
    name: &str,
) -> Result<Option<f64>, String> {
    let bench = match bench {
        Some(bench) => bench,
        None => bench.insert(Bench::new(calls)?),
    };
    let measure = measures::MEASURES.iter().find(|one| one.name == name);
    (measure.ok_or("no such measure")?.sample)(bench)
}
