//! Man pages and completion scripts of every program.

#[allow(dead_code)]
#[path = "../../conformance/tests/support/mod.rs"]
mod support;

use std::process::Command;

use support::{both, clean, success};

/// Each program with an option of its own.
const PROGRAMS: [(&str, &str, &str); 4] = [
    ("urinfo", env!("CARGO_BIN_EXE_urinfo"), "verbose"),
    ("urtrace", env!("CARGO_BIN_EXE_urtrace"), "functions"),
    ("urreplay", env!("CARGO_BIN_EXE_urreplay"), "explain"),
    ("ur-env", env!("CARGO_BIN_EXE_ur-env"), "libsycl"),
];

/// Options that are hidden from users.
const HIDDEN: [&str; 4] = ["no-reasons", "--here", "--search", "--generate"];

fn generated(path: &str, target: &str) -> String {
    success(clean(path).arg(format!("--generate={target}")))
}

#[test]
fn man_pages_have_the_options() {
    for (name, path, option) in PROGRAMS {
        let page = generated(path, "man").replace("\\-", "-");
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS"] {
            assert!(page.contains(section), "{name} lacks {section}: {page}");
        }
        assert!(page.contains(&format!("--{option}")), "{page}");
        for hidden in HIDDEN {
            assert!(!page.contains(hidden), "{name} shows {hidden}");
        }
    }
    let page = generated(PROGRAMS[3].1, "man");
    assert!(page.contains("UR_ADAPTERS_FORCE_LOAD"), "{page}");
}

#[test]
fn completion_scripts_have_the_options() {
    for (name, path, option) in PROGRAMS {
        let bash = generated(path, "bash");
        assert!(bash.contains(&format!("--{option}")), "{bash}");
        let script = "bash -n <<< \"$1\"";
        success(Command::new("bash").args(["-c", script, "bash", &bash]));
        // The script completes: all long options that start as the word does.
        let complete = format!(
            "eval \"$1\"; COMP_WORDS=({name} --{option}); COMP_CWORD=1; _{function} {name} --{option} {name}; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            function = name.replace('-', "__")
        );
        let found = success(Command::new("bash").args(["-c", &complete, "bash", &bash]));
        assert_eq!(found.trim(), format!("--{option}"), "{bash}");

        let zsh = generated(path, "zsh");
        assert!(zsh.starts_with(&format!("#compdef {name}\n")), "{zsh}");
        assert!(zsh.contains(&format!("--{option}")), "{zsh}");
        let fish = generated(path, "fish");
        assert!(fish.contains(&format!("complete -c {name} ")), "{fish}");
        assert!(fish.contains(&format!("-l {option}")), "{fish}");
        for hidden in HIDDEN {
            let shown = [&bash, &zsh, &fish]
                .iter()
                .any(|text| text.contains(hidden));
            assert!(!shown, "{name} shows {hidden}");
        }
    }
}

#[test]
fn only_the_first_argument_generates() {
    for (_, path, _) in PROGRAMS {
        let output = clean(path).arg("--generate=tcsh").output();
        let output = output.expect("it starts");
        assert!(!output.status.success());
        assert!(both(&output).contains("--generate"), "{}", both(&output));
    }
    // The traced command's own argument.
    let mut command = clean(env!("CARGO_BIN_EXE_urtrace"));
    command.args(["--keep-loader", "echo", "--generate=man"]);
    assert_eq!(success(&mut command), "--generate=man\n");
}
