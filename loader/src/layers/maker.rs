//! The name of an object or of memory by what made it: `2nd of urQueueCreate`.
//!
//! Owns the count of each function. The count includes successful calls only.

use std::collections::BTreeMap;
use std::fmt;

/// What made an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    pub function: &'static str,
    /// The number of objects that the function had made, this one included.
    pub nth: u64,
}

impl fmt::Display for Maker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Maker { function, nth } = self;
        let ending = match (nth % 10, nth % 100) {
            (_, 11..=13) => "th",
            (1, _) => "st",
            (2, _) => "nd",
            (3, _) => "rd",
            _ => "th",
        };
        write!(out, "{nth}{ending} of {function}")
    }
}

/// The number of objects that each function has made.
#[derive(Debug, Default)]
pub struct Makers(BTreeMap<&'static str, u64>);

impl Makers {
    pub const fn new() -> Makers {
        Makers(BTreeMap::new())
    }

    /// Counts one more object of a function.
    pub fn made(&mut self, function: &'static str) -> Maker {
        let nth = self.0.entry(function).or_default();
        *nth += 1;
        Maker {
            function,
            nth: *nth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_counted_by_function() {
        let mut makers = Makers::default();
        let mut name = |function| makers.made(function).to_string();
        assert_eq!(name("urQueueCreate"), "1st of urQueueCreate");
        assert_eq!(name("urUSMHostAlloc"), "1st of urUSMHostAlloc");
        assert_eq!(name("urQueueCreate"), "2nd of urQueueCreate");
        let ordinal = |nth| {
            let function = "f";
            Maker { function, nth }.to_string()
        };
        let expected = [
            "3rd of f",
            "4th of f",
            "11th of f",
            "13th of f",
            "22nd of f",
        ];
        assert_eq!([3, 4, 11, 13, 22].map(ordinal), expected);
    }
}
