//! A second process of a test: this program once more, in the role that the test names.
//!
//! The two exchange lines of bytes over the second one's standard input and output. Libraries may print
//! there too, so that the second one's lines begin with a mark.

use crate::fixture::Fixture;
use crate::outcome::{Done, Stop};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const MARK: &str = "second-process:";
const FAILED: &str = "failed:";

/// The second process, as the first one sees it. It is killed if the test ends early.
pub struct Second {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Second {
    /// Starts the process on the same device.
    pub fn start(fixture: &Fixture, role: &str) -> Result<Self, Stop> {
        let failed = |error: std::io::Error| Stop::failed(format!("the second process: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg("--loader")
            .arg(&fixture.target.loader)
            .args(["--device", &fixture.target.device.to_string()])
            .args(["--second", role])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = from.ok_or_else(|| Stop::failed("the second process has no output"))?;
        Ok(Self {
            child,
            to,
            from: BufReader::new(from),
        })
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> Done {
        let sent = match &mut self.to {
            Some(to) => writeln!(to, "{}", hex(bytes)),
            None => Ok(()),
        };
        sent.map_err(|error| Stop::failed(format!("the second process reads nothing: {error}")))
    }

    /// Receives bytes. Fails with the second process's own failure, if it has one.
    pub fn receive(&mut self) -> Result<Vec<u8>, Stop> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.from.read_line(&mut line) {
                Ok(0) => return Err(Stop::failed("the second process has ended")),
                Ok(_) => {}
                Err(error) => return Err(Stop::failed(format!("the second process: {error}"))),
            }
            let Some((_, text)) = line.trim_end().split_once(MARK) else {
                continue;
            };
            return match text.strip_prefix(FAILED) {
                Some(reason) => Err(Stop::failed(format!("in the second process: {reason}"))),
                None => unhex(text),
            };
        }
    }

    /// Waits for the end of the process, which must succeed.
    pub fn end(mut self) -> Done {
        drop(self.to.take());
        let status = self.child.wait();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(Stop::failed(format!(
                "the second process ended with {other:?}"
            ))),
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // After its end there is nobody to kill or to wait for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the second process: the first one.
pub struct First;

impl First {
    pub fn send(&self, bytes: &[u8]) {
        console::outln!("\n{MARK}{}", hex(bytes));
    }

    /// Receives bytes. Fails once the first process has closed its end.
    pub fn receive(&self) -> Result<Vec<u8>, Stop> {
        let mut line = String::new();
        match std::io::stdin().read_line(&mut line) {
            Ok(count) if count > 0 => unhex(line.trim_end()),
            _ => Err(Stop::failed("the first process has ended")),
        }
    }

    /// Reports the end of the role. True if it passed.
    pub fn ended(&self, done: &Done) -> bool {
        let Err(stop) = done else { return true };
        let reason = format!("{stop:?}").replace('\n', " ");
        console::outln!("\n{MARK}{FAILED}{reason}");
        false
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Stop> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(digits, 16).ok()
    };
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    bytes.ok_or_else(|| Stop::failed(format!("the other process sent {text}")))
}
