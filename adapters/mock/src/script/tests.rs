use proptest::prelude::*;

use super::*;
use crate::info::{self, Type};

fn index(name: &str) -> usize {
    crate::call::index_of(name).expect("a function of this name")
}

fn reason(text: &str) -> String {
    Script::parse(text).expect_err(text).to_string()
}

#[test]
fn the_third_call_fails() {
    let script = Script::parse("urQueueCreate@3: error OUT_OF_RESOURCES").expect("a script");
    let create = index("urQueueCreate");
    let results: Vec<_> = (0..5).map(|_| script.apply(create)).collect();
    let failed: Vec<_> = results.iter().map(|result| result.is_err()).collect();
    assert_eq!(failed, [false, false, true, false, false]);
    assert_eq!(
        results[2].map_err(Error::code),
        Err(UR_RESULT_ERROR_OUT_OF_RESOURCES)
    );
    assert!(script.apply(index("urQueueRelease")).is_ok());
}

#[test]
fn which_calls() {
    for (calls, expected) in [
        ("", "111111"),
        ("@2", "010000"),
        ("@2..", "011111"),
        ("@2..4", "011100"),
        ("@/3", "001001"),
    ] {
        let script = Script::parse(&format!("urEventWait{calls}: error DEVICE_LOST"));
        let script = script.expect(calls);
        let got: String = (0..6)
            .map(|_| match script.apply(index("urEventWait")) {
                Ok(()) => '0',
                Err(_) => '1',
            })
            .collect();
        assert_eq!(got, expected, "{calls}");
    }
}

#[test]
fn a_pattern_counts_over_all_that_it_fits() {
    let script = Script::parse("urUSM*Alloc@2: error OUT_OF_DEVICE_MEMORY").expect("a script");
    assert!(script.apply(index("urUSMHostAlloc")).is_ok());
    assert!(script.apply(index("urUSMFree")).is_ok());
    assert!(script.apply(index("urUSMDeviceAlloc")).is_err());
}

#[test]
fn a_pattern_is_that_of_a_whole_name() {
    let names = |pattern: &str| {
        let script = Script::parse(&format!("{pattern}: delay 1us"));
        script.map_or(0, |script| script.rules[0].functions.len())
    };
    assert_eq!(names("urUSMFree"), 1);
    assert_eq!(names("urUSM*Alloc"), 3);
    assert_eq!(names("ur*USM*Free*"), 2);
    assert_eq!(names("*Queue*Create"), names("urQueueCreate"));
    assert!(names("*") > 200 && names("**") == names("*"));
    for none in ["urUSMFre", "rUSMFree", "urUSMFree*e", "urUSMFreeurUSMFree"] {
        assert_eq!(names(none), 0, "{none}");
    }
    // Trying all matches of many stars would take too long. (Found by the fuzz target.)
    assert_eq!(names(&format!("u{}i", "*".repeat(40))), 0);
    assert_eq!(names(&format!("u{}i", "*e".repeat(40))), 0);
}

#[test]
fn a_delay_passes_before_an_error() {
    let script = Script::parse("urQueueFinish: delay 20ms, error DEVICE_LOST").expect("a script");
    let start = std::time::Instant::now();
    assert!(script.apply(index("urQueueFinish")).is_err());
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn values_take_the_form_of_their_property() {
    let script = Script::parse(
        "UR_DEVICE_INFO_NAME = \"a \\\"b\\\"\"; UR_DEVICE_INFO_TYPE = UR_DEVICE_TYPE_CPU
         UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES = [1, 0x10, 3] # sizes
         UR_DEVICE_INFO_ATOMIC_64 = true;; UR_DEVICE_INFO_UUID = none
         UR_DEVICE_INFO_QUEUE_PROPERTIES = UR_QUEUE_FLAG_PROFILING_ENABLE | 1",
    )
    .expect("a script");
    let bytes = |name| script.property(name).cloned().flatten();
    assert_eq!(
        bytes("UR_DEVICE_INFO_NAME").as_deref(),
        Some(b"a \"b\"\0".as_slice())
    );
    assert_eq!(bytes("UR_DEVICE_INFO_TYPE"), Some(vec![4, 0, 0, 0]));
    assert_eq!(
        bytes("UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES"),
        Some([1usize, 16, 3].map(usize::to_ne_bytes).concat())
    );
    assert_eq!(bytes("UR_DEVICE_INFO_ATOMIC_64"), Some(vec![1]));
    assert_eq!(script.property("UR_DEVICE_INFO_UUID"), Some(&None));
    assert_eq!(
        bytes("UR_DEVICE_INFO_QUEUE_PROPERTIES"),
        Some(vec![3, 0, 0, 0])
    );
}

#[test]
fn errors_have_their_position() {
    for (text, expected) in [
        (
            "urFoo: error UNKNOWN",
            "line 1, column 1: no function `urFoo`",
        ),
        (
            "\n urEventWait: error FOO",
            "line 2, column 21: no error is called `FOO`",
        ),
        (
            "urEventWait error UNKNOWN",
            "line 1, column 12: `:` expected",
        ),
        (
            "urEventWait@0: delay 1ms",
            "line 1, column 13: calls are counted from 1",
        ),
        (
            "urEventWait@3..2: delay 1ms",
            "line 1, column 16: the last call comes before the first",
        ),
        (
            "urEventWait: delay 1h",
            "line 1, column 20: a time in ns, us, ms or s expected",
        ),
        (
            "urEventWait: delay 99999999999s",
            "line 1, column 20: too long a time",
        ),
        (
            "urEventWait: sleep 1s",
            "line 1, column 14: `delay` or `error` expected",
        ),
        (
            "UR_DEVICE_INFO_X = 1",
            "line 1, column 1: unknown property `UR_DEVICE_INFO_X`",
        ),
        (
            "UR_DEVICE_INFO_NAME = 1",
            "line 1, column 23: a text in quotes expected",
        ),
        (
            "UR_DEVICE_INFO_NAME = \"a",
            "line 1, column 25: the text has no end",
        ),
        (
            "UR_DEVICE_INFO_ATOMIC_64 = 256",
            "line 1, column 28: 256 does not fit into 1 bytes",
        ),
        (
            "UR_DEVICE_INFO_TYPE = 4 5",
            "line 1, column 25: `;` or the end of the line expected",
        ),
        (
            "UR_DEVICE_INFO_PLATFORM = 4",
            "line 1, column 27: this property can be `none` only",
        ),
    ] {
        assert_eq!(reason(text), expected, "{text}");
    }
}

fn a_rule() -> impl Strategy<Value = String> {
    let pattern = prop_oneof![
        (0..NAMES.len()).prop_map(|at| NAMES[at].to_owned()),
        (0..NAMES.len(), 2..8usize).prop_map(|(at, kept)| format!("{}*", &NAMES[at][..kept])),
    ];
    let which = prop_oneof![
        Just(String::new()),
        (1..9u64).prop_map(|at| format!("@{at}")),
        (1..9u64).prop_map(|at| format!(" @{at}..")),
        (1..9u64, 0..9u64).prop_map(|(at, more)| format!("@{at}..{}", at + more)),
        (1..9u64).prop_map(|count| format!(" @/{count}")),
    ];
    let unit = prop_oneof![Just("ns"), Just("us"), Just("ms"), Just("s")];
    let code = prop_oneof![Just("UNKNOWN"), Just("UR_RESULT_ERROR_DEVICE_LOST")];
    let action = prop_oneof![
        (0..5000u64, unit).prop_map(|(time, unit)| format!("delay {time}{unit}")),
        code.prop_map(|code| format!("error {code}")),
    ];
    (pattern, which, prop::collection::vec(action, 1..4))
        .prop_map(|(pattern, which, actions)| format!("{pattern}{which}: {}", actions.join(" , ")))
}

fn a_value() -> impl Strategy<Value = String> {
    let all: Vec<_> = info::all().collect();
    let property = 0..all.len();
    (
        property,
        any::<u64>(),
        "[^\0\n]{0,12}",
        prop::collection::vec(0..200u64, 0..4),
    )
        .prop_map(move |(at, number, text, list)| {
            let name = all[at].name;
            let value = match info::type_of(all[at]) {
                Type::Number(size, _) => (number >> (64 - 8 * size)).to_string(),
                Type::Text => {
                    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
                }
                Type::Numbers(_, count) => format!("{:?}", vec![number % 200; count]),
                Type::List(_) => format!("{list:?}"),
                Type::Handle(_) | Type::Handles(_) | Type::Buffers | Type::Bytes(_) => {
                    "none".to_owned()
                }
            };
            format!("{name} = {value}")
        })
}

proptest! {
    #[test]
    fn a_printed_script_parses_to_an_equal_one(
        statements in prop::collection::vec(prop_oneof![a_rule(), a_value()], 0..8),
        separator in prop_oneof![Just("\n"), Just("; "), Just(" # why\n")],
    ) {
        let script = Script::parse(&statements.join(separator));
        let script = script.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let shown = script.to_string();
        let again = Script::parse(&shown).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(again.to_string(), shown);
        prop_assert_eq!(again.values, script.values);
        prop_assert_eq!(again.rules.len(), script.rules.len());
        for (left, right) in again.rules.iter().zip(&script.rules) {
            prop_assert_eq!((&left.functions, left.calls, &left.actions), (&right.functions, right.calls, &right.actions));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n\u{e9}]{0,60}") {
        if let Err(error) = Script::parse(&text) {
            prop_assert!(error.line <= text.matches('\n').count() + 1);
        }
    }

    #[test]
    fn nearly_right_text_is_read_or_refused(
        statement in prop_oneof![a_rule(), a_value()], at in any::<prop::sample::Index>(), letter in any::<char>(),
    ) {
        let mut letters: Vec<char> = statement.chars().collect();
        let at = at.index(letters.len());
        letters[at] = letter;
        let _ = Script::parse(&letters.into_iter().collect::<String>());
    }
}
