//! The pattern of a fill.

use std::ops::Deref;
use std::sync::Arc;

/// Bytes of a pattern. Up to `INLINE_BYTES` are stored inline, as in nearly all fills.
#[derive(Clone, Debug)]
pub struct Pattern(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Inline([u8; INLINE_BYTES], u8),
    Heap(Arc<[u8]>),
}

const INLINE_BYTES: usize = 16;

impl From<&[u8]> for Pattern {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE_BYTES];
        let copied = copy::<4>(bytes, &mut inline)
            || copy::<1>(bytes, &mut inline)
            || copy::<8>(bytes, &mut inline)
            || copy::<2>(bytes, &mut inline);
        match copied {
            true => Self(Repr::Inline(inline, bytes.len() as u8)),
            false => Self::odd(bytes),
        }
    }
}

/// Copies a pattern of exactly `N` bytes, mostly one number: a load and a store.
#[inline]
fn copy<const N: usize>(bytes: &[u8], into: &mut [u8; INLINE_BYTES]) -> bool {
    let from = <&[u8; N]>::try_from(bytes);
    let both = from.ok().zip(into.first_chunk_mut::<N>());
    both.map(|(from, into)| *into = *from).is_some()
}

impl Pattern {
    /// A pattern of any length.
    #[inline(never)]
    fn odd(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE_BYTES];
        Self(match inline.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Repr::Inline(inline, bytes.len() as u8)
            }
            None => Repr::Heap(bytes.into()),
        })
    }
}

impl Deref for Pattern {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(bytes, length) => &bytes[..usize::from(*length)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_bytes_that_it_was_made_of() {
        let bytes: [u8; 40] = std::array::from_fn(|at| at as u8 + 1);
        for length in 0..=40 {
            let pattern = Pattern::from(&bytes[..length]);
            assert_eq!(*pattern.clone(), bytes[..length]);
        }
    }
}
