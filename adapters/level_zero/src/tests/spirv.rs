//! A kernel as SPIR-V: `iota` writes numbers from its second argument on, plus a specialization constant.

/// The id of the specialization constant.
pub const CONSTANT: u32 = 7;

/// Instructions: a code and its words.
#[rustfmt::skip]
const CODE: &[(u32, &[u32])] = &[
    (17, &[4]), (17, &[5]), (17, &[6]), (17, &[11]), // capabilities: addresses, linkage, kernels, 64-bit numbers
    (14, &[2, 2]),                                   // 64-bit addresses, OpenCL
    (15, &[6, 20, IOTA[0], IOTA[1], 10]),            // the entry point
    (71, &[10, 11, 28]), (71, &[10, 22]),            // a built-in: the global id
    (71, &[9, 1, CONSTANT]),                         // a specialization constant
    (19, &[1]),                                      // void
    (21, &[2, 32, 0]), (21, &[3, 64, 0]),            // numbers
    (23, &[4, 3, 3]),                                // three of them
    (32, &[5, 1, 4]), (32, &[6, 5, 2]),              // pointers
    (33, &[7, 1, 6, 2]),                             // the kernel's type
    (50, &[2, 9, 0]),
    (59, &[5, 10, 1]),
    (54, &[1, 20, 0, 7]), (55, &[6, 21]), (55, &[2, 22]), (248, &[23]),
    (61, &[4, 24, 10]), (81, &[3, 25, 24, 0]), (113, &[2, 26, 25]),
    (128, &[2, 27, 26, 22]), (128, &[2, 28, 27, 9]),
    (70, &[6, 29, 21, 25]), (62, &[29, 28, 2, 4]),
    (253, &[]), (56, &[]),
];

/// The kernel's name, ended with zeros.
const IOTA: [u32; 2] = [u32::from_le_bytes(*b"iota"), 0];

/// A kernel `look` that takes an image of one dimension and a sampler, and does nothing.
#[rustfmt::skip]
const LOOK: &[(u32, &[u32])] = &[
    (17, &[4]), (17, &[5]), (17, &[6]), (17, &[13]), (17, &[43]), // as above, and images
    (14, &[2, 2]),
    (15, &[6, 20, u32::from_le_bytes(*b"look"), 0]),
    (19, &[1]),
    (25, &[2, 1, 0, 0, 0, 0, 0, 0, 0]),                           // an image that is read
    (26, &[3]),                                                   // a sampler
    (33, &[7, 1, 2, 3]),
    (54, &[1, 20, 0, 7]), (55, &[2, 21]), (55, &[3, 22]), (248, &[23]), (253, &[]), (56, &[]),
];

pub fn iota() -> Vec<u8> {
    assembled(CODE)
}

pub fn look() -> Vec<u8> {
    assembled(LOOK)
}

fn assembled(code: &[(u32, &[u32])]) -> Vec<u8> {
    let mut words = vec![0x0723_0203, 0x0001_0000, 0, 30, 0];
    for (code, rest) in code {
        words.push((rest.len() as u32 + 1) << 16 | code);
        words.extend_from_slice(rest);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
