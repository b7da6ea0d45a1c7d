//! Columns of epochs, and the larger of each pair of two: with many lanes, most of what a wait costs.
//!
//! The one place in `timeline` with unsafe code, which is to use the processor's wider registers where it
//! has them. Numbers are none of them NaN.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_mm256_loadu_pd, _mm256_max_pd, _mm256_storeu_pd};

/// Fours from which on it is worth to look what the processor has.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 3;

/// One instruction.
#[inline(always)]
pub fn larger(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

#[inline(always)]
fn larger_each(one: [f64; 4], other: [f64; 4]) -> [f64; 4] {
    std::array::from_fn(|at| larger(one[at], other[at]))
}

/// The larger of each pair.
pub fn joined(one: &[[f64; 4]], other: &[[f64; 4]]) -> Vec<[f64; 4]> {
    let mut out = one.to_vec();
    raise(&mut out, other);
    out
}

/// Puts the larger of each pair into a third column.
#[inline]
pub fn join(into: &mut [[f64; 4]], one: &[[f64; 4]], other: &[[f64; 4]]) {
    #[cfg(target_arch = "x86_64")]
    if into.len() >= WIDE && is_x86_feature_detected!("avx") {
        // SAFETY: the processor has what the function needs, as was just seen.
        return unsafe { join_wide(into, one, other) };
    }
    join_each(into, one, other);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn join_wide(into: &mut [[f64; 4]], one: &[[f64; 4]], other: &[[f64; 4]]) {
    let pairs = one.iter().zip(other);
    for (into, (one, other)) in into.iter_mut().zip(pairs) {
        // SAFETY: a four is as many doubles in a row, which need not be aligned.
        unsafe {
            let (one, other) = (
                _mm256_loadu_pd(one.as_ptr()),
                _mm256_loadu_pd(other.as_ptr()),
            );
            _mm256_storeu_pd(into.as_mut_ptr(), _mm256_max_pd(one, other));
        }
    }
}

fn join_each(into: &mut [[f64; 4]], one: &[[f64; 4]], other: &[[f64; 4]]) {
    let pairs = one.iter().zip(other);
    for (into, (one, other)) in into.iter_mut().zip(pairs) {
        *into = larger_each(*one, *other);
    }
}

/// As [`join`], in place of the first.
#[inline]
pub fn raise(own: &mut [[f64; 4]], their: &[[f64; 4]]) {
    #[cfg(target_arch = "x86_64")]
    if own.len() >= WIDE && is_x86_feature_detected!("avx") {
        // SAFETY: as in `join`.
        return unsafe { raise_wide(own, their) };
    }
    raise_each(own, their);
}

/// By hand: the compiler would store under a mask, which some processors do slowly.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn raise_wide(own: &mut [[f64; 4]], their: &[[f64; 4]]) {
    for (own, their) in own.iter_mut().zip(their) {
        // SAFETY: as in `join_wide`.
        unsafe {
            let both = _mm256_max_pd(
                _mm256_loadu_pd(own.as_ptr()),
                _mm256_loadu_pd(their.as_ptr()),
            );
            _mm256_storeu_pd(own.as_mut_ptr(), both);
        }
    }
}

fn raise_each(own: &mut [[f64; 4]], their: &[[f64; 4]]) {
    for (own, their) in own.iter_mut().zip(their) {
        *own = larger_each(*own, *their);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_any_length_join_as_their_numbers_do() {
        for fours in 0..40_usize {
            let column = |factor: usize| -> Vec<[f64; 4]> {
                let number = |at: usize| (at * factor % 97) as f64;
                (0..fours)
                    .map(|four| std::array::from_fn(|at| number(4 * four + at)))
                    .collect()
            };
            let (one, other) = (column(31), column(57));
            let want: Vec<f64> = one
                .as_flattened()
                .iter()
                .zip(other.as_flattened())
                .map(|(one, other)| one.max(*other))
                .collect();
            let mut into = vec![[0.0; 4]; fours];
            join(&mut into, &one, &other);
            assert_eq!(into.as_flattened(), want);
            assert_eq!(joined(&one, &other).as_flattened(), want);
            let mut own = one.clone();
            raise(&mut own, &other);
            assert_eq!(own.as_flattened(), want);
        }
    }
}
