#![no_main]

#[allow(dead_code)]
#[path = "../bodies/loader.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|text: &str| body::settings(text));
