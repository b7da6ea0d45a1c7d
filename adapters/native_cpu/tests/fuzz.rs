//! The fuzz targets of programs and their metadata, on stable: see fuzz/.

#[path = "../../../fuzz/bodies/native_cpu.rs"]
mod body;

use proptest::prelude::*;

/// Bytes of which many are the small numbers that fields hold.
fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => Just(0),
        3 => 0u8..12,
        2 => proptest::sample::select(&[24, 56, 64, 128, 255][..]),
        1 => any::<u8>(),
    ];
    proptest::collection::vec(byte, 0..most)
}

/// A shared object that is right but for some bytes: this test itself.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((0usize..4096, any::<u8>()), 0..8);
    (changes, any::<proptest::sample::Index>()).prop_map(|(changes, end)| {
        let mut object = LIBRARY.clone();
        for (at, byte) in changes {
            let headers = object.len().saturating_sub(4096);
            // Fields of headers, at either end of the file.
            let at = if at < 512 { at } else { headers + at };
            if let Some(place) = object.get_mut(at) {
                *place = byte;
            }
        }
        if end.index(8) == 0 {
            object.truncate(end.index(object.len() + 1));
        }
        object
    })
}

static LIBRARY: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let small = maps.lines().filter_map(|line| {
        let path = line.split_whitespace().last()?;
        path.contains("libgcc_s.so")
            .then(|| std::fs::read(path).ok())?
    });
    small.into_iter().next().unwrap_or_default()
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn program(bytes in bytes(400)) {
        body::program(&bytes);
    }
}

#[test]
fn a_library_is_read() {
    let names = ur_adapter_native_cpu::readers::shared_object(&LIBRARY);
    assert!(names.is_ok_and(|names| names > 50), "{names:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn program_that_is_nearly_right(bytes in nearly_right()) {
        body::program(&bytes);
    }

    #[test]
    fn metadata(bytes in bytes(100)) {
        body::metadata(&bytes);
    }

    #[test]
    fn table(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
        body::table(&bytes);
    }
}
