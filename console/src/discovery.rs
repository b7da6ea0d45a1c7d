//! Explanations of a loader that offers no device.
//!
//! Owns the run of a program with the log of the loader and of the adapters, and the reduction of
//! that log to a line for each adapter. The loader logs each path that it tried, and an adapter why
//! it has no device. Both open their log once in a process, so that the run is one of its own.

use std::path::Path;
use std::process::{Command, Stdio};

/// The libraries that may log, as `UR_LOG_<NAME>` has them.
const LOGS: [&str; 8] = [
    "LOADER",
    "CUDA",
    "HIP",
    "LEVEL_ZERO",
    "MOCK",
    "NATIVE_CPU",
    "OFFLOAD",
    "OPENCL",
];

/// What the loader did and what the adapters lacked, one fact a line. Empty if the command does not
/// start or logs nothing.
///
/// `command` initialises the loader and lists its devices.
pub fn reasons(command: &mut Command) -> Vec<String> {
    for name in LOGS {
        command.env(format!("UR_LOG_{name}"), "level:info;output:stderr");
    }
    command.stdin(Stdio::null());
    let output = command.output();
    let text = output.map(|output| output.stderr).unwrap_or_default();
    reduce(&String::from_utf8_lossy(&text))
}

/// The paths of one adapter that the linker refused for one reason.
struct Missing<'a> {
    adapter: &'a str,
    reason: &'a str,
    folders: Vec<&'a str>,
}

impl Missing<'_> {
    fn line(&self) -> String {
        let Missing {
            adapter, reason, ..
        } = self;
        let place = |folder: &&str| match *folder {
            "" => "on the dynamic linker's path".to_owned(),
            folder => format!("in {folder}"),
        };
        let places: Vec<String> = self.folders.iter().map(place).collect();
        format!("{adapter}, {}: {reason}", places.join(", "))
    }
}

/// The lines of a log, without those of the program itself. Each missing adapter has one line with
/// the folders in which it was searched.
fn reduce(log: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut missing: Option<Missing<'_>> = None;
    for (name, text) in log.lines().filter_map(parse) {
        // The caller says so itself.
        if text == "no adapter was found" {
            continue;
        }
        let Some((path, reason)) = not_loaded(text) else {
            lines.extend(missing.take().map(|missing| missing.line()));
            lines.push(format!("{}: {text}", name.to_lowercase()));
            continue;
        };
        let Some(adapter) = adapter(path) else {
            lines.extend(missing.take().map(|missing| missing.line()));
            lines.push(format!("{}: {reason}", path.display()));
            continue;
        };
        let folder = path.parent().and_then(Path::to_str).unwrap_or("");
        match &mut missing {
            Some(missing) if (missing.adapter, missing.reason) == (adapter, reason) => {
                if !missing.folders.contains(&folder) {
                    missing.folders.push(folder);
                }
            }
            _ => {
                let next = Missing {
                    adapter,
                    reason,
                    folders: vec![folder],
                };
                lines.extend(missing.replace(next).map(|missing| missing.line()));
            }
        }
    }
    lines.extend(missing.map(|missing| missing.line()));
    lines
}

/// The library's name and the text of a line `<NAME>[LEVEL]: text`.
fn parse(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix('<')?.split_once(">[")?;
    let (_, text) = rest.split_once("]: ")?;
    Some((name, text))
}

/// The path and the linker's reason in the loader's message of a library that it did not load. None
/// for another message.
fn not_loaded(text: &str) -> Option<(&Path, &str)> {
    let (name, reason) = text.strip_prefix("not loaded: ")?.split_once(": ")?;
    // The linker's own text starts with the name again.
    let repeated = reason.strip_prefix(name);
    let stripped = repeated.and_then(|rest| rest.strip_prefix(": "));
    Some((Path::new(name), stripped.unwrap_or(reason)))
}

/// The adapter whose library has this path. None if its file is not named as adapters are.
fn adapter(path: &Path) -> Option<&str> {
    let file = path.file_name()?.to_str()?;
    Some(file.strip_prefix("libur_adapter_")?.split_once(".so")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
<LOADER>[INFO]: not loaded: /own/libur_adapter_cuda.so.0: cannot open: No such file
<LOADER>[INFO]: not loaded: /own/libur_adapter_cuda.so: cannot open: No such file
<LOADER>[INFO]: not loaded: libur_adapter_cuda.so.0: cannot open: No such file
<LOADER>[INFO]: not loaded: libur_adapter_cuda.so: cannot open: No such file
<LOADER>[INFO]: not loaded: /own/libur_adapter_hip.so.0: libhip.so: cannot open
<LOADER>[INFO]: not loaded: /own/libur_adapter_hip.so: /own/libur_adapter_hip.so: cannot open
<LOADER>[ERROR]: refused /own/libur_adapter_x.so: no adapter
<LOADER>[WARNING]: no adapter was found
<OPENCL>[INFO]: OpenCL has no platform (-1001)
urinfo: no device was found
<LOADER>[INFO]: not loaded: /other/driver.so: cannot open: No such file
";

    #[test]
    fn an_adapter_has_a_line_for_each_reason() {
        assert_eq!(
            reduce(LOG),
            [
                "cuda, in /own, on the dynamic linker's path: cannot open: No such file",
                "hip, in /own: libhip.so: cannot open",
                "hip, in /own: cannot open",
                "loader: refused /own/libur_adapter_x.so: no adapter",
                "opencl: OpenCL has no platform (-1001)",
                "/other/driver.so: cannot open: No such file",
            ]
        );
        assert_eq!(reduce("<>[x\n<A>[B]\n<\n\n"), Vec::<String>::new());
    }

    #[test]
    fn the_log_of_a_command_is_read() {
        let script = "echo \"<LOADER>[INFO]: $UR_LOG_LOADER $UR_LOG_CUDA\" >&2";
        assert_eq!(
            reasons(Command::new("sh").args(["-c", script])),
            ["loader: level:info;output:stderr level:info;output:stderr"]
        );
        assert!(reasons(&mut Command::new("/no/such/program")).is_empty());
    }
}
