//! `ur-env` in an installation of its own. A library in place of libsycl links no loader, as that of
//! 2026.2 does.

#[allow(dead_code)]
#[path = "../../conformance/tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{clean, success};
use tempfile::TempDir;

struct Installation(TempDir);

impl Installation {
    fn new() -> Self {
        let own = Self(tempfile::tempdir().expect("a temporary folder"));
        std::fs::create_dir_all(own.path("bin")).expect("a folder");
        std::fs::create_dir_all(own.path("lib")).expect("a folder");
        for name in ["libur_loader.so.0", "libur_adapter_it's.so.0"] {
            std::fs::write(own.path("lib").join(name), "").expect("a file");
        }
        std::fs::copy(env!("CARGO_BIN_EXE_ur-env"), own.path("bin/ur-env")).expect("a copy");
        let test = std::env::current_exe().expect("own path");
        std::fs::copy(test, own.path("libsycl.so.9")).expect("a copy");
        std::fs::write(own.path("libOpenCL.so.1"), "").expect("a file");
        std::fs::write(own.path("libintelocl.so"), "").expect("a file");
        own
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ur_env(&self, arguments: &[&str]) -> Command {
        let mut command = clean(self.path("bin/ur-env"));
        command.env_remove("LD_LIBRARY_PATH");
        command.env_remove("OCL_ICD_FILENAMES");
        command.arg("--libsycl").arg(self.path("libsycl.so.9"));
        command.args(arguments);
        command
    }
}

const NAMES: [&str; 3] = [
    "UR_ADAPTERS_FORCE_LOAD",
    "LD_LIBRARY_PATH",
    "OCL_ICD_FILENAMES",
];

#[test]
fn each_variable_has_its_reason_and_eval_takes_it() {
    let own = Installation::new();
    let text = success(&mut own.ur_env(&[]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 * NAMES.len(), "{text}");
    for (pair, name) in lines.chunks(2).zip(NAMES) {
        assert!(pair[0].starts_with("# ") && pair[0].len() > 20, "{text}");
        assert!(pair[1].starts_with(&format!("export {name}='")), "{text}");
    }
    let script = format!("eval \"$1\"; printf '%s\\n' \"${}\"", NAMES.join("\" \"$"));
    let shown = success(Command::new("sh").args(["-c", &script, "sh", &text]));
    let printed: Vec<&str> = shown.lines().collect();
    let lib = own.0.path().display();
    assert_eq!(
        printed,
        [
            format!("\"{lib}/lib/libur_adapter_it's.so.0\""),
            lib.to_string(),
            format!("{lib}/libintelocl.so"),
        ]
    );
}

#[test]
fn help_names_each_variable() {
    let own = Installation::new();
    let text = success(&mut own.ur_env(&["--help"]));
    for name in NAMES {
        assert!(text.contains(&format!("\n  {name}\n")), "{name}: {text}");
    }
}

#[test]
fn layers_under_a_loader_inside_are_warned_of() {
    let own = Installation::new();
    let errors = |layers: Option<&str>, arguments: &[&str]| {
        let mut command = own.ur_env(arguments);
        command.envs(layers.map(|layers| ("UR_ENABLE_LAYERS", layers)));
        let output = command.output().expect("it starts");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for arguments in [&[][..], &["true"]] {
        let text = errors(Some("UR_LAYER_TRACING"), arguments);
        assert!(
            text.starts_with("ur-env: UR_ENABLE_LAYERS=UR_LAYER_TRACING: ")
                && text.contains("only Intel's layers apply"),
            "{text}"
        );
        assert_eq!(errors(None, arguments), "");
    }
}
