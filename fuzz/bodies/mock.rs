//! Fuzz body for the mock's scripts. A script prints to text that parses to an equal script. Other
//! text gives an error at one of its lines.
//! an error at a line of the text.

use ur_adapter_mock::script::Script;

pub fn script(text: &str) {
    match Script::parse(text) {
        Ok(script) => {
            let shown = script.to_string();
            let again = Script::parse(&shown);
            let again = again.unwrap_or_else(|error| panic!("{text:?}, {shown:?}: {error}"));
            assert_eq!(again.to_string(), shown, "{text:?}");
        }
        Err(error) => {
            let lines = text.matches('\n').count() + 1;
            assert!(error.line <= lines, "{text:?}: {error}");
        }
    }
}
