//! Fuzz bodies for programs of native_cpu: shared objects as bytes, tables and paths, and metadata.

use std::ffi::CString;

use ur::abi::*;
use ur_adapter_native_cpu::readers;

/// A shared object with arbitrary fields. It is parsed and not loaded, since the dynamic linker
/// trusts well-formed objects.
pub fn program(bytes: &[u8]) {
    // A valid start, so that the parser reads beyond the first bytes.
    let mut object = vec![0; 64];
    object[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    object[16] = 3;
    object[18] = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let fields = bytes.len().min(64 - 20);
    object[20..20 + fields].copy_from_slice(&bytes[..fields]);
    object.extend_from_slice(&bytes[fields..]);
    for object in [bytes, &object] {
        if let Ok(names) = readers::shared_object(object) {
            // A symbol table's entry has 24 bytes.
            assert!(names <= object.len() / 24);
        }
    }
    if !bytes.starts_with(b"\x7fELF") && !bytes.contains(&b'/') {
        // SAFETY: the bytes are no shared object, nor the path of one.
        unsafe { readers::image(bytes) };
    }
}

/// A table of kernels whose words are chosen by the bytes, often without an end.
pub fn table(bytes: &[u8]) {
    extern "C" fn kernel() {}
    static DATA: u64 = 0;
    let name = c"kernel".as_ptr().expose_provenance();
    let function = (kernel as *const ()).expose_provenance();
    let mut words: Vec<usize> = bytes
        .iter()
        .map(|&byte| match byte % 8 {
            0 => 0,
            1 | 2 => name,
            3 | 4 => function,
            5 => (&raw const DATA).expose_provenance(),
            6 => usize::from(byte),
            _ => usize::MAX - usize::from(byte),
        })
        .collect();
    words.shrink_to_fit();
    // The reader accepts a table only if each entry before the end has a name and a function.
    let end = words.chunks(2).position(|entry| entry.get(1) == Some(&0));
    // Code can be read as a name, too.
    let right = |entry: &[usize]| [name, function].contains(&entry[0]) && entry[1] == function;
    // SAFETY: the words are no shared object and no path, and no function is called.
    let read = unsafe { readers::table(&words) };
    if let Some(end) = end {
        assert_eq!(read, words[..2 * end].chunks(2).all(right), "{words:x?}");
    }
}

/// Metadata entries from the bytes: name, type, size and value of each.
pub fn metadata(bytes: &[u8]) {
    const TAGS: [&str; 5] = [
        "kernel@reqd_work_group_size",
        "id@global_id_mapping",
        "kernel@whole_work_group",
        "kernel@num_args",
        "other@tag",
    ];
    let mut values: Vec<Vec<u64>> = Vec::new();
    let mut names = Vec::new();
    let mut kinds = Vec::new();
    let mut rest = bytes;
    while let [kind, tag, size, more @ ..] = rest {
        let size = usize::from(*size).min(more.len());
        let (value, after) = more.split_at(size);
        rest = after;
        let tag = match TAGS.get(usize::from(*tag)) {
            Some(tag) => CString::new(*tag),
            None => CString::new(value.to_vec()),
        };
        names.push(tag.unwrap_or_default());
        // Whole words that end with a zero byte, so that every kind of value can be read.
        let mut words: Vec<u64> = value
            .chunks(8)
            .map(|part| {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                u64::from_ne_bytes(word)
            })
            .collect();
        words.push(0);
        values.push(words);
        kinds.push((u32::from(*kind), size));
    }
    let entries: Vec<ur_program_metadata_t> = names
        .iter()
        .zip(&mut values)
        .zip(&kinds)
        .map(|((name, words), &(kind, size))| ur_program_metadata_t {
            pName: name.as_ptr(),
            r#type: ur_program_metadata_type_t(kind % 6),
            size,
            value: match ur_program_metadata_type_t(kind % 6) {
                UR_PROGRAM_METADATA_TYPE_UINT32 | UR_PROGRAM_METADATA_TYPE_UINT64 => {
                    ur_program_metadata_value_t { data64: words[0] }
                }
                _ => ur_program_metadata_value_t {
                    pData: words.as_mut_ptr().cast(),
                },
            },
        })
        .collect();
    let properties = ur_program_properties_t {
        count: entries.len() as u32,
        pMetadatas: entries.as_ptr(),
        ..Default::default()
    };
    // SAFETY: names are C strings, values have their sizes or a zero byte, and all outlive the
    // call.
    unsafe { readers::metadata(&properties) };
}
