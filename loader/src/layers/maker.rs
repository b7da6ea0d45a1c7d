//! The name of an object or of memory by what made it: `queue 0x…, 2nd of urQueueCreate`.
//!
//! Owns the count of each function, and the form of the name. The count includes successful calls
//! only, and each handle of a list.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::wrappers::COUNT;

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

/// An object or memory by address, and what made it, if that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub address: usize,
    pub maker: Option<Maker>,
}

impl Handle {
    pub const NONE: Handle = Handle {
        address: 0,
        maker: None,
    };
}

impl fmt::Display for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}{}", self.address, suffix(self.maker))
    }
}

/// The end of a name: `, 2nd of urQueueCreate`; empty if nobody saw what made it.
pub fn suffix(maker: Option<Maker>) -> impl fmt::Display {
    fmt::from_fn(move |out| match maker {
        Some(maker) => write!(out, ", {maker}"),
        None => Ok(()),
    })
}

/// The number of objects that each function of the tables has made, counted by many threads.
pub struct Counts([AtomicU64; COUNT]);

impl Counts {
    pub const fn new() -> Counts {
        Counts([const { AtomicU64::new(0) }; COUNT])
    }

    /// Counts one more object of the function with this number, and returns the new count.
    pub fn add(&self, number: usize) -> u64 {
        self.0[number].fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn clear(&self) {
        for count in &self.0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// The number of objects that each function has made, under its owner's lock.
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

    #[test]
    fn names_end_with_the_maker_if_it_was_seen() {
        let name = |maker| {
            let address = 0x40;
            format!("queue {}", Handle { address, maker })
        };
        assert_eq!(name(None), "queue 0x40");
        let made = Makers::default().made("urQueueCreate");
        assert_eq!(name(Some(made)), "queue 0x40, 1st of urQueueCreate");
    }
}
