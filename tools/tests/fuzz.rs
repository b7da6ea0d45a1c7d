//! The fuzz body of urreplay's traces with random text, on stable Rust: see fuzz/.

#[path = "../../fuzz/bodies/replay.rs"]
mod body;
#[allow(dead_code)]
#[path = "../src/urreplay/outcome.rs"]
mod outcome;
#[path = "../src/urreplay/perfetto.rs"]
mod perfetto;
#[allow(dead_code)]
#[path = "../src/urreplay/trace.rs"]
mod trace;

use proptest::prelude::*;

type Answer<T> = Result<T, String>;

/// Numbers, most of them from a small set.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0u64..6).prop_map(|number| number.to_string()),
        1 => any::<u64>().prop_map(|number| number.to_string()),
        1 => Just(u64::MAX.to_string()),
    ]
}

fn after() -> impl Strategy<Value = String> {
    let point = (number(), number()).prop_map(|(lane, epoch)| format!("{lane}@{epoch}"));
    prop_oneof![
        2 => Just("-".to_owned()),
        3 => proptest::collection::vec(point, 1..4).prop_map(|points| points.join(",")),
    ]
}

fn line() -> impl Strategy<Value = String> {
    let stream = prop_oneof![Just("-1".to_owned()), number(), number()];
    let kind = proptest::sample::select(&["a", "a", "a", "f", "f", "x"][..]);
    let whole = (kind, number(), number(), stream, after(), after(), number()).prop_map(
        |(kind, id, bytes, stream, after, lacks, owner)| {
            format!("{kind} {id} {bytes} {stream} {after} grown ns={bytes} lacks={lacks}:{owner}")
        },
    );
    prop_oneof![
        12 => whole,
        2 => after().prop_map(|after| format!("w - - -1 {after} -")),
        1 => "[afwx# -][ -~]{0,20}",
    ]
}

fn row() -> impl Strategy<Value = String> {
    (number(), number(), number(), number())
        .prop_map(|(id, lower, upper, size)| format!("{id},{lower},{upper},{size}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn trace(lines in proptest::collection::vec(line(), 0..8)) {
        body::trace(lines.join("\n").as_bytes());
    }

    #[test]
    fn intervals(rows in proptest::collection::vec(row(), 0..4)) {
        body::trace(format!("id,lower,upper,size\n{}", rows.join("\n")).as_bytes());
    }

    #[test]
    fn anything(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        body::trace(&bytes);
    }
}

#[test]
fn traces_of_numbers_at_their_limits_are_read() {
    let most = u64::MAX;
    let text = format!(
        "a {most} {most} {most} {most}@{most}\na 0 {most} -1\nf {most} {most} 0 0@{most}\n"
    );
    assert!(trace::Trace::parse(text.clone().into_bytes()).is_ok());
    body::trace(text.as_bytes());
}
