//! Prints a script as text that parses to an equal script.

use std::fmt;
use std::time::Duration;

use super::{Action, Calls, Rule, Script};
use crate::info::{self, Type};

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.rules {
            writeln!(f, "{rule}")?;
        }
        for (name, value) in &self.values {
            write!(f, "{name} = ")?;
            match (value, info::find(name)) {
                (Some(bytes), Some((_, ty))) => show(f, bytes, ty)?,
                _ => f.write_str("none")?,
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)?;
        match self.calls {
            Calls::All => {}
            Calls::From(first) => write!(f, "@{first}..")?,
            Calls::FromTo(first, last) if first == last => write!(f, "@{first}")?,
            Calls::FromTo(first, last) => write!(f, "@{first}..{last}")?,
            Calls::Every(count) => write!(f, "@/{count}")?,
        }
        let mut sign = ':';
        for action in &self.actions {
            write!(f, "{sign} ")?;
            match action {
                Action::Delay(time) => show_time(f, *time)?,
                Action::Error(code) => write!(f, "error {code:?}")?,
            }
            sign = ',';
        }
        Ok(())
    }
}

fn show_time(f: &mut fmt::Formatter<'_>, time: Duration) -> fmt::Result {
    let nanoseconds = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let fitting = units
        .into_iter()
        .find(|(unit, _)| nanoseconds.is_multiple_of(*unit));
    let (unit, name) = fitting.unwrap_or((1, "ns"));
    write!(f, "delay {}{name}", nanoseconds / unit)
}

fn show(f: &mut fmt::Formatter<'_>, bytes: &[u8], ty: Type) -> fmt::Result {
    match ty {
        Type::Text => {
            let text = String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes));
            write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }
        Type::Numbers(size, _) | Type::List(size) => {
            let numbers: Vec<String> = bytes
                .chunks(size.max(1))
                .map(|chunk| number(chunk).to_string())
                .collect();
            write!(f, "[{}]", numbers.join(", "))
        }
        _ => write!(f, "{}", number(bytes)),
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
