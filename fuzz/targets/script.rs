#![no_main]

#[allow(dead_code)]
#[path = "../bodies/mock.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|text: &str| body::script(text));
