//! Counts the instructions of a program under valgrind. Other load on the machine does not change them.

use anyhow::{Context as _, Result, ensure};
use std::process::Command;

/// The reason why instructions cannot be counted on this machine.
pub(super) fn cannot() -> Option<&'static str> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Some("there is no valgrind");
    }
    (!cfg!(target_arch = "x86_64")).then_some("the limits are for x86_64")
}

/// Instructions of a whole run: the least of three runs. A worker thread that looks for work while another
/// starts or ends adds a few.
pub(super) fn of(program: &Command) -> Result<u64> {
    let mut least = once(program)?;
    for _ in 1..3 {
        least = least.min(once(program)?);
    }
    Ok(least)
}

fn once(program: &Command) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args([
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
    ]);
    command.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // Waiting workers would add instructions.
    command.env("SYCL_NATIVE_CPU_HOST_THREADS", "1");
    let output = command.output().context("valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "under valgrind: {text}");
    parse(&text).with_context(|| format!("valgrind said {text}"))
}

/// `==7== I   refs:      1,234`, or without the middle in newer versions.
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("I") && words.next() == Some("refs:")
    })?;
    let (_, number) = line.rsplit_once(' ')?;
    number.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn counts() {
        let text = "==7== Cachegrind\n==7== \n==7== I   refs:      12,345,678\n";
        assert_eq!(parse(text), Some(12_345_678));
        assert_eq!(parse("==7== I refs:  5"), Some(5));
        assert_eq!(parse("==7== D refs:  5"), None);
    }
}
