//! The loader's fuzz targets with random text, on stable Rust: see fuzz/.

#[path = "../../fuzz/bodies/loader.rs"]
mod body;

use proptest::prelude::*;

/// Random mixtures of meaningful words and arbitrary text.
fn text(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let word = prop_oneof![
        6 => proptest::sample::select(words).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[ -~]{0,6}",
    ];
    proptest::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

const SELECTOR: &[&str] = &[
    "opencl",
    "level_zero",
    "native_cpu",
    "cuda",
    "hip",
    "*",
    ":",
    ";",
    ",",
    "!",
    ".",
    "cpu",
    "gpu",
    "fpga",
    "0",
    "1",
    "4294967295",
    "4294967296",
    "00",
    " ",
];

const SETTINGS: &[&str] = &[
    "level", "flush", "fileline", "output", ":", ";", ",", "debug", "info", "quiet", "true",
    "false", "file", "stderr", "stdout", "'", "\"", "%p", "/tmp/x", "text", "json", "none", "10us",
    "1e400s", "-1ms", "ur*", "!", "?", "NaNs",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn selector(text in text(SELECTOR)) {
        body::selector(&text);
    }

    #[test]
    fn settings(text in text(SETTINGS)) {
        body::settings(&text);
    }
}
