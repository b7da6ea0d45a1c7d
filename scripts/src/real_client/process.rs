//! Processes with a time limit, whose output goes to files.

use anyhow::{Context as _, Result};
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Limit on the shown length of a line.
const WIDTH: usize = 300;

/// How a process ended.
pub enum Ended {
    By(ExitStatus),
    /// Killed at the time limit.
    TimedOut(Duration),
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        match self {
            Ended::By(status) => status.code(),
            Ended::TimedOut(_) => None,
        }
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::By(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "exit status {code}"),
                (None, Some(signal)) => write!(f, "killed by signal {signal}"),
                (None, None) => write!(f, "{status}"),
            },
            Ended::TimedOut(limit) => write!(f, "still running after {} s", limit.as_secs()),
        }
    }
}

/// Runs a command, and kills it after `limit`. Its output goes to two files.
pub fn run(command: &mut Command, out: &Path, err: &Path, limit: Duration) -> Result<Ended> {
    let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(create(out)?)
        .stderr(create(err)?)
        .spawn()
        .context(program)?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::By(status));
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::TimedOut(limit));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The last lines of a file, shortened; none of an unreadable file.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.chars().take(WIDTH).collect())
        .collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, limit: Duration) -> (Ended, String) {
        let folder = tempfile::tempdir().unwrap();
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let ended = run(Command::new("sh").args(["-c", text]), &out, &err, limit).unwrap();
        (ended, tail(&out, 2))
    }

    #[test]
    fn output_and_status() {
        let (ended, text) = shell(
            "echo one; echo two; echo three; exit 3",
            Duration::from_secs(60),
        );
        assert_eq!((ended.code(), text.as_str()), (Some(3), "two\nthree"));
        assert_eq!(
            shell("kill -9 $$", Duration::from_secs(60)).0.to_string(),
            "killed by signal 9"
        );
    }

    #[test]
    fn hangs_are_killed() {
        let start = Instant::now();
        let (ended, _) = shell("exec sleep 60", Duration::from_millis(100));
        assert!(matches!(ended, Ended::TimedOut(_)));
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
