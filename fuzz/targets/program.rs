#![no_main]

#[allow(dead_code)]
#[path = "../bodies/native_cpu.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::program(bytes);
    body::table(bytes);
});
