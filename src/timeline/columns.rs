//! Columns of epochs, and the larger of each pair of two: with many lanes, most of what a wait costs.
//!
//! Numbers are none of them NaN. Columns are taken flat: of that the compiler makes wide steps.

/// One instruction.
#[inline(always)]
pub fn larger(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

/// The larger of each pair.
pub fn joined(one: &[[f64; 4]], other: &[[f64; 4]]) -> Vec<[f64; 4]> {
    let mut out = one.to_vec();
    raise(&mut out, other);
    out
}

/// Puts the larger of each pair into a third column.
pub fn join(into: &mut [[f64; 4]], one: &[[f64; 4]], other: &[[f64; 4]]) {
    let pairs = one.as_flattened().iter().zip(other.as_flattened());
    for (into, (one, other)) in into.as_flattened_mut().iter_mut().zip(pairs) {
        *into = larger(*one, *other);
    }
}

/// As [`join`], in place of the first.
pub fn raise(own: &mut [[f64; 4]], their: &[[f64; 4]]) {
    let own = own.as_flattened_mut().iter_mut();
    for (own, their) in own.zip(their.as_flattened()) {
        *own = larger(*own, *their);
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
