//! One side of the comparison: a process with a loader that answers with samples.

use crate::calls::Calls;
use crate::measures::{self, Setup};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

pub struct Side {
    program: Program,
    adapter: Option<PathBuf>,
    worker: Option<Worker>,
}

/// The program of a side.
enum Program {
    /// This program with a loader, and the libraries to load before a start is measured.
    Own(PathBuf, Vec<PathBuf>),
    /// The SYCL program with the file of its kernel.
    Sycl(PathBuf, PathBuf),
}

struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The answer of a worker for a call that its side does not offer.
const NOT_OFFERED: &str = "not offered";

impl Side {
    pub fn new(loader: &Path, adapter: Option<&Path>, beside: &[&Path]) -> Self {
        let beside = beside.iter().map(|path| path.to_path_buf()).collect();
        Self::of(Program::Own(loader.to_owned(), beside), adapter)
    }

    /// The SYCL program over an adapter or over libsycl's own.
    pub fn sycl(program: &Path, adapter: Option<&Path>, kernel: &Path) -> Self {
        Self::of(
            Program::Sycl(program.to_owned(), kernel.to_owned()),
            adapter,
        )
    }

    fn of(program: Program, adapter: Option<&Path>) -> Self {
        Self {
            program,
            adapter: adapter.map(Path::to_owned),
            worker: None,
        }
    }

    /// A new process for samples.
    pub fn open(&mut self) -> Result<(), String> {
        self.worker = Some(self.spawn()?);
        Ok(())
    }

    /// One sample of a measure in nanoseconds for each call.
    pub fn sample(&mut self, measure: &str) -> Result<Option<f64>, String> {
        let worker = self.worker.as_mut().ok_or("the worker is not open")?;
        worker.get_info(measure)
    }

    /// A sample that takes its own process.
    pub fn start(&self, measure: &str) -> Result<Option<f64>, String> {
        self.spawn()?.get_info(measure)
    }

    fn spawn(&self) -> Result<Worker, String> {
        let mut command = match &self.program {
            Program::Sycl(program, kernel) => {
                let mut command = Command::new(program);
                command.arg(kernel);
                command
            }
            Program::Own(loader, beside) => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                let mut command = Command::new(own);
                command.arg("--worker").arg(loader);
                for path in beside {
                    command.arg("--beside").arg(path);
                }
                command
            }
        };
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
    fn get_info(&mut self, measure: &str) -> Result<Option<f64>, String> {
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
        // The child may have ended by itself, so a failed kill is ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker: answers each request with a sample until there are no more.
pub fn serve(loader: &Path, beside: &[PathBuf]) -> Result<(), String> {
    let mut setup = None;
    for request in std::io::stdin().lines() {
        let request = request.map_err(|error| error.to_string())?;
        let answer = match request.as_str() {
            measures::START => start(loader, beside).map(Some),
            measures::LOAD => load(loader).map(Some),
            name => sample(loader, &mut setup, name),
        };
        match answer {
            Ok(Some(sample)) => console::outln!("{sample}"),
            Ok(None) => console::outln!("{NOT_OFFERED}"),
            Err(reason) => console::outln!("{reason}"),
        }
    }
    Ok(())
}

fn start(loader: &Path, beside: &[PathBuf]) -> Result<f64, String> {
    for path in beside {
        Calls::open(path)?;
    }
    let calls = Calls::open(loader)?;
    let begun = Instant::now();
    measures::first_device(calls)?;
    Ok(begun.elapsed().as_nanos() as f64)
}

fn load(loader: &Path) -> Result<f64, String> {
    let begun = Instant::now();
    measures::first_device(Calls::open(loader)?)?;
    Ok(begun.elapsed().as_nanos() as f64)
}

fn sample(loader: &Path, setup: &mut Option<Setup>, name: &str) -> Result<Option<f64>, String> {
    let setup = match setup {
        Some(setup) => setup,
        None => setup.insert(Setup::new(Calls::open(loader)?)?),
    };
    let measure = measures::MEASURES.iter().find(|one| one.name == name);
    (measure.ok_or("no such measure")?.sample)(setup)
}
