#![no_main]

#[path = "../bodies/replay.rs"]
mod body;
#[allow(dead_code)]
#[path = "../../tools/src/urreplay/outcome.rs"]
mod outcome;
#[path = "../../tools/src/urreplay/perfetto.rs"]
mod perfetto;
#[allow(dead_code)]
#[path = "../../tools/src/urreplay/trace.rs"]
mod trace;

type Answer<T> = Result<T, String>;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::trace(bytes));
