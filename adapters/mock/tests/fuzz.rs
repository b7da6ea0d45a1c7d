//! The fuzz body of the mock's scripts with random text, on stable Rust: see fuzz/.

#[path = "../../../fuzz/bodies/mock.rs"]
mod body;

use proptest::prelude::*;

const WORDS: &[&str] = &[
    "urQueueFinish",
    "urEnqueue*",
    "urQueueCreate",
    "*",
    "@",
    "1",
    "3",
    "..",
    "%",
    "+",
    ":",
    ";",
    ",",
    " ",
    "\n",
    "error ",
    "delay ",
    "OUT_OF_RESOURCES",
    "DEVICE_LOST",
    "5ms",
    "1us",
    "99999999999s",
    "# why",
    "UR_DEVICE_INFO_NAME",
    "UR_DEVICE_INFO_MAX_WORK_GROUP_SIZE",
    "UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES",
    " = ",
    "16",
    "\"a\"",
    "true",
    "unsupported",
    "0x10",
    "-1",
    "[",
    "]",
    "{",
    "}",
    "|",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn script(
        words in proptest::collection::vec(
            prop_oneof![
                8 => proptest::sample::select(WORDS).prop_map(str::to_owned),
                1 => any::<String>(),
            ],
            0..12,
        ),
    ) {
        body::script(&words.concat());
    }
}
