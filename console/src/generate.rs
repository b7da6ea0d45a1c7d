//! Man pages and completion scripts, from the same declarations as the command line; and the JSON
//! schema of a program's output, from the types that are written.

use std::ffi::OsStr;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

/// What to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Man,
    Completion(Shell),
}

/// Whether the argument is `--generate=schema`.
pub fn is_schema(argument: &OsStr) -> bool {
    argument == "--generate=schema"
}

/// The JSON schema (draft 2020-12) of what `T` is written as.
pub fn schema<T: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<T>();
    // A schema has strings, numbers and lists only, so that the conversion cannot fail.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

/// The target of the argument `--generate=man|bash|zsh|fish`. None for another argument.
pub fn target(argument: &OsStr) -> Option<Target> {
    match argument.to_str()?.strip_prefix("--generate=")? {
        "man" => Some(Target::Man),
        "bash" => Some(Target::Completion(Shell::Bash)),
        "zsh" => Some(Target::Completion(Shell::Zsh)),
        "fish" => Some(Target::Completion(Shell::Fish)),
        _ => None,
    }
}

impl Target {
    /// The page in roff, or the script.
    pub fn text(self, command: Command) -> Vec<u8> {
        let mut text = Vec::new();
        match self {
            Target::Man => {
                let page = Man::new(command).manual("Unified Runtime");
                // Writing to memory cannot fail.
                let _ = page.render(&mut text);
            }
            Target::Completion(shell) => {
                let name = command.get_name().to_owned();
                clap_complete::generate(shell, &mut visible(&command), name, &mut text);
            }
        }
        text
    }
}

/// A command with the same options but the hidden ones, which bash scripts would offer.
fn visible(command: &Command) -> Command {
    let shown = command
        .get_arguments()
        .filter(|option| !option.is_hide_set());
    // Clap takes static text only. The program ends after this, so that the leak is one of bytes.
    let own = |text: &str| -> &'static str { text.to_owned().leak() };
    Command::new(own(command.get_name()))
        .version(own(command.get_version().unwrap_or_default()))
        .args(shown.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_arguments_are_the_programs_own() {
        let target = |text: &str| target(OsStr::new(text));
        assert_eq!(target("--generate=man"), Some(Target::Man));
        assert_eq!(
            target("--generate=fish"),
            Some(Target::Completion(Shell::Fish))
        );
        for other in ["--generate", "--generate=", "--generate=tcsh", "man", ""] {
            assert_eq!(target(other), None, "{other}");
            assert!(!is_schema(OsStr::new(other)), "{other}");
        }
        assert!(is_schema(OsStr::new("--generate=schema")));
    }
}
