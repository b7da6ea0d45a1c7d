//! Tables of selectors: the adapters and devices that they select, and their errors.

use proptest::prelude::*;

use super::{Backend, Duplicates, Kind, Selector};

fn parse(text: &str) -> Selector {
    Selector::parse(text, Duplicates::Reject).unwrap_or_else(|error| panic!("{error}"))
}

/// 0 and 1 are GPUs of two tiles with two parts each, 2 is a CPU with two domains, 3 is an FPGA.
const TREE: &[(&[u32], Kind)] = &[
    (&[0], Kind::Gpu),
    (&[0, 0], Kind::Gpu),
    (&[0, 0, 0], Kind::Gpu),
    (&[0, 0, 1], Kind::Gpu),
    (&[0, 1], Kind::Gpu),
    (&[0, 1, 0], Kind::Gpu),
    (&[0, 1, 1], Kind::Gpu),
    (&[1], Kind::Gpu),
    (&[1, 0], Kind::Gpu),
    (&[1, 1], Kind::Gpu),
    (&[1, 1, 0], Kind::Gpu),
    (&[1, 1, 1], Kind::Gpu),
    (&[2], Kind::Cpu),
    (&[2, 0], Kind::Cpu),
    (&[2, 1], Kind::Cpu),
    (&[3], Kind::Fpga),
];

fn selected(text: &str, backend: Backend) -> String {
    let selection = parse(text).for_backend(Some(backend));
    let chosen = TREE
        .iter()
        .filter(|(path, kind)| selection.selects(path, *kind));
    let name = |path: &[u32]| {
        path.iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(".")
    };
    chosen
        .map(|(path, _)| name(path))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn selection_by_table() {
    #[rustfmt::skip]
    let table = [
        ("", "0 1 2 3"),
        ("*:*", "0 1 2 3"),
        ("opencl:*", "0 1 2 3"),
        ("OpenCL:*", "0 1 2 3"),
        ("OPENCL:GPU", "0 1"),
        ("opencl:cpu", "2"),
        ("opencl:fpga", "3"),
        ("opencl:0", "0"),
        ("opencl:007", ""),
        ("opencl:01", "1"),
        ("opencl:0,2", "0 2"),
        ("opencl:2,0,gpu", "0 1 2"),
        ("opencl:\"0\",'2'", "0 2"),
        ("cuda:*", ""),
        ("cuda:*;opencl:cpu", "2"),
        ("*:cpu", "2"),
        ("*:cpu;opencl:0", "0 2"),
        ("opencl:9", ""),
        // Sub-devices are selected at the depth of the item.
        ("opencl:*.*", "0.0 0.1 1.0 1.1 2.0 2.1"),
        ("opencl:0.*", "0.0 0.1"),
        ("opencl:0.1", "0.1"),
        ("opencl:gpu.1", "0.1 1.1"),
        ("opencl:cpu.*", "2.0 2.1"),
        ("opencl:*.*.*", "0.0.0 0.0.1 0.1.0 0.1.1 1.1.0 1.1.1"),
        ("opencl:0.*.*", "0.0.0 0.0.1 0.1.0 0.1.1"),
        // The middle component is compared.
        ("opencl:0.1.0", "0.1.0"),
        ("opencl:1.1.1", "1.1.1"),
        ("opencl:1.0.1", ""),
        ("opencl:gpu.1.*", "0.1.0 0.1.1 1.1.0 1.1.1"),
        ("opencl:0,0.1,1.1.0", "0 0.1 1.1.0"),
        // Discarding items take precedence in any order.
        ("!opencl:cpu", "0 1 3"),
        ("!opencl:0", "1 2 3"),
        ("!opencl:*", ""),
        ("!*:*", ""),
        ("!cuda:*", "0 1 2 3"),
        ("!*:gpu", "2 3"),
        ("!opencl:0;opencl:gpu", "1"),
        ("opencl:gpu;!opencl:0", "1"),
        ("*:*;!opencl:gpu,fpga", "2"),
        ("opencl:*;!*:cpu", "0 1 3"),
        // A discarded device discards its parts, not its parent.
        ("opencl:*.*;!opencl:0", "1.0 1.1 2.0 2.1"),
        ("opencl:*.*;!opencl:0.1", "0.0 1.0 1.1 2.0 2.1"),
        ("opencl:*.*.*;!opencl:0.1", "0.0.0 0.0.1 1.1.0 1.1.1"),
        ("opencl:gpu;!opencl:*.*", "0 1"),
        ("opencl:*.*;!opencl:cpu", "0.0 0.1 1.0 1.1"),
        // An accepting term for another backend replaces the implicit one.
        ("cuda:*;!opencl:0", ""),
    ];
    for (text, expected) in table {
        assert_eq!(selected(text, Backend::OpenCl), expected, "{text}");
    }
    assert_eq!(
        selected("level_zero:0;native_cpu:*", Backend::LevelZero),
        "0"
    );
    assert_eq!(
        selected("level_zero:0;native_cpu:2", Backend::NativeCpu),
        "2"
    );
    assert_eq!(selected("hip:1;offload:3", Backend::Hip), "1");
    assert_eq!(selected("hip:1;offload:3", Backend::Offload), "3");
}

#[test]
fn descent_follows_accepting_items_only() {
    let descends = |text: &str, path: &[u32], kind| {
        parse(text)
            .for_backend(Some(Backend::OpenCl))
            .descends(path, kind)
    };
    assert!(!descends("opencl:*", &[0], Kind::Gpu));
    assert!(descends("opencl:*.*", &[0], Kind::Gpu));
    assert!(descends("opencl:1.*", &[1], Kind::Gpu));
    assert!(!descends("opencl:1.*", &[0], Kind::Gpu));
    assert!(!descends("opencl:cpu.*", &[0], Kind::Gpu));
    assert!(!descends("opencl:*.*", &[0, 1], Kind::Gpu));
    assert!(descends("opencl:0.1.2", &[0, 1], Kind::Gpu));
    assert!(!descends("opencl:0.1.2", &[0, 0], Kind::Gpu));
    assert!(!descends("opencl:*.*;!opencl:0", &[0], Kind::Gpu));
    assert!(
        !descends("!opencl:0.1", &[0], Kind::Gpu),
        "a discard alone needs no partition"
    );
}

#[test]
fn root_numbers_are_detected() {
    let numbered = |text: &str| {
        parse(text)
            .for_backend(Some(Backend::OpenCl))
            .uses_root_numbers()
    };
    assert!(numbered("opencl:0"));
    assert!(numbered("opencl:gpu,1.*"));
    assert!(numbered("!*:2"));
    let unnamed = parse("*:cpu;opencl:*").for_backend(None);
    assert!(unnamed.selects(&[0], Kind::Cpu) && !unnamed.selects(&[0], Kind::Gpu));
    assert!(!numbered("opencl:gpu.1"));
    assert!(!numbered("cuda:0;opencl:*"));
}

#[test]
fn adapter_filter_by_table() {
    let all = [Kind::Cpu, Kind::Gpu, Kind::Fpga, Kind::Other];
    let gpu = [Kind::Gpu];
    let cpu = [Kind::Cpu];
    #[rustfmt::skip]
    let table: &[(&str, Backend, &[Kind], bool)] = &[
        ("", Backend::Cuda, &gpu, true),
        ("*:*", Backend::Cuda, &gpu, true),
        ("opencl:*", Backend::Cuda, &gpu, false),
        ("opencl:*", Backend::OpenCl, &all, true),
        ("opencl:cpu;cuda:0,1", Backend::Cuda, &gpu, true),
        ("*:cpu", Backend::Cuda, &gpu, false),
        ("*:cpu", Backend::NativeCpu, &cpu, true),
        ("*:gpu", Backend::NativeCpu, &cpu, false),
        ("*:gpu", Backend::OpenCl, &all, true),
        ("native_cpu:0", Backend::NativeCpu, &cpu, true),
        ("native_cpu:*.*", Backend::NativeCpu, &cpu, true),
        ("!cuda:*", Backend::Cuda, &gpu, false),
        ("!cuda:*", Backend::Hip, &gpu, true),
        ("!cuda:gpu", Backend::Cuda, &gpu, false),
        ("!opencl:gpu", Backend::OpenCl, &all, true),
        ("!*:gpu", Backend::Cuda, &gpu, false),
        ("*:*;!cuda:*", Backend::Cuda, &gpu, false),
        ("cuda:*;!opencl:cpu", Backend::OpenCl, &all, false),
        // An adapter is kept if a discarding item may leave devices.
        ("!cuda:0", Backend::Cuda, &gpu, true),
        ("!cuda:*.*", Backend::Cuda, &gpu, true),
    ];
    for (text, backend, kinds, expected) in table {
        assert_eq!(
            parse(text).keeps_adapter(*backend, kinds),
            *expected,
            "{text} {backend:?}"
        );
    }
}

#[test]
fn errors_point_at_the_character() {
    #[rustfmt::skip]
    let table = [
        ("opncl:*", 0, "unknown backend `opncl`"),
        ("opencl:*;cdua:0", 9, "unknown backend `cdua`"),
        ("opencl:*;!cdua:0", 10, "unknown backend `cdua`"),
        ("level_zero_v2:*", 0, "unknown backend"),
        ("opencl", 6, "expected `:`"),
        ("gpu", 0, "unknown backend `gpu`"),
        (":gpu", 0, "expected a backend"),
        ("!", 1, "expected `backend:devices`"),
        (";", 0, "expected `backend:devices`"),
        ("opencl:*;", 9, "expected `backend:devices`"),
        ("opencl:", 7, "expected a device"),
        ("opencl:0,", 9, "expected a device"),
        ("opencl:,0", 7, "expected a device"),
        ("opencl:.0", 7, "expected a device"),
        ("opencl:gqu", 7, "unknown device `gqu`"),
        ("opencl:0,gqu", 9, "unknown device `gqu`"),
        ("opencl:1x", 8, "expected a digit"),
        ("opencl:0.x", 9, "expected a digit"),
        ("opencl:0.1.2a", 12, "expected a digit"),
        ("opencl:-1", 7, "unknown device"),
        ("opencl:0.", 9, "expected a sub-device"),
        ("opencl:0.1.", 11, "expected a sub-sub-device"),
        ("opencl:0.1.2.3", 12, "at most three"),
        ("opencl:*.1", 9, "only `*` may follow"),
        ("opencl:0.*.1", 11, "only `*` may follow"),
        ("opencl:*.*.0", 11, "only `*` may follow"),
        ("opencl:4294967296", 7, "too large"),
        ("opencl:0;opencl:1", 9, "`opencl` stands twice"),
        ("opencl:0;OpenCL:1", 9, "`opencl` stands twice"),
        ("!*:0;!*:1", 5, "`!*` stands twice"),
        ("opencl:\"0", 7, "quote without its end"),
        ("opencl:\"0\"1", 10, "unexpected text"),
        ("opencl:0 ", 8, "expected a digit"),
        (" opencl:0", 0, "unknown backend"),
    ];
    for (text, at, reason) in table {
        let error = Selector::parse(text, Duplicates::Reject).expect_err(text);
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
}

#[test]
fn the_message_carries_a_caret() {
    let error = Selector::parse("opencl:*;größe:0", Duplicates::Reject).expect_err("bad");
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines[1], "  opencl:*;größe:0");
    assert_eq!(lines[2], "           ^");
    // Columns are characters; a control character takes one.
    let error = Selector::parse("opencl:0,\t,ä", Duplicates::Reject).expect_err("bad");
    assert_eq!(error.to_string().lines().nth(1), Some("  opencl:0,?,ä"));
    // Quoted input in the reason has no line breaks. (Found by the fuzz target.)
    let error = Selector::parse("\0\nup", Duplicates::Reject).expect_err("bad");
    assert_eq!(error.to_string().lines().count(), 3, "{error}");
}

#[test]
fn merging_takes_both_terms() {
    let merged = Selector::parse("opencl:0;opencl:1", Duplicates::Merge).expect("merges");
    let selection = merged.for_backend(Some(Backend::OpenCl));
    assert!(selection.selects(&[0], Kind::Gpu) && selection.selects(&[1], Kind::Gpu));
    assert!(
        parse("opencl:0;!opencl:1")
            .for_backend(Some(Backend::OpenCl))
            .selects(&[0], Kind::Cpu)
    );
}

/// Strings close to the grammar, and arbitrary strings.
fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "*",
        "!",
        ":",
        ";",
        ",",
        ".",
        "0",
        "7",
        "99999999999",
        "cpu",
        "GPU",
        "opencl",
        "cuda",
        "level_zero",
        "\"",
        "'",
        " ",
        "\u{0}",
        "ß",
        "🦀",
        "x",
    ]);
    prop_oneof![
        prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat()),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in text(), path in prop::collection::vec(0u32..3, 0..5)) {
        for duplicates in [Duplicates::Reject, Duplicates::Merge] {
            match Selector::parse(&text, duplicates) {
                Ok(selector) => {
                    for backend in Backend::ALL {
                        let selection = selector.for_backend(Some(backend));
                        let kept = selector.keeps_adapter(backend, &[Kind::Cpu, Kind::Gpu]);
                        for kind in [Kind::Cpu, Kind::Gpu] {
                            // Devices of a dropped adapter must not be selected.
                            prop_assert!(kept || !selection.selects(&path, kind));
                            prop_assert!(kept || !selection.descends(&path, kind));
                        }
                    }
                }
                Err(error) => {
                    prop_assert!(text.is_char_boundary(error.at), "{error}");
                    prop_assert_eq!(error.to_string().lines().count(), 3);
                }
            }
        }
    }

    #[test]
    fn valid_text_parses(items in prop::collection::vec((0u32..9, 0u32..9, 0u32..9, 1usize..4), 1..6)) {
        let item = |&(a, b, c, depth): &(u32, u32, u32, usize)| {
            [a, b, c][..depth].iter().map(u32::to_string).collect::<Vec<_>>().join(".")
        };
        let list: Vec<String> = items.iter().map(item).collect();
        let selection = parse(&format!("hip:{}", list.join(","))).for_backend(Some(Backend::Hip));
        for &(a, b, c, depth) in &items {
            prop_assert!(selection.selects(&[a, b, c][..depth], Kind::Other));
        }
    }
}
