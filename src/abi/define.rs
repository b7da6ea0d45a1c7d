//! How `types` declares the C interface: one macro for each kind of C type.
//!
//! Owns the Rust side of a C declaration: its representation, its derives, its names and, through
//! [`print`](super::print), its text. A C enum and a flag set are transparent integers, so that no
//! value that a C caller passes is undefined behaviour.

use std::fmt;

/// An opaque handle: `NAME: TARGET;` makes `NAME` a pointer to `TARGET`, of which C knows no more.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident: $target:ident;) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $target {
            _opaque: [u8; 0],
        }
        $(#[$doc])*
        pub type $name = *mut $target;
    };
}

/// An enum: a newtype, a constant for each enumerator, and their names. Enumerators in `also` have the
/// value of an earlier one.
macro_rules! enumeration {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $($(#[$about:meta])* $value:ident = $number:literal,)*
        }
        $(also {
            $($(#[$more:meta])* $alias:ident = $same:literal,)*
        })?
    ) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        $($(#[$about])* pub const $value: $name = $name($number);)*
        $($($(#[$more])* pub const $alias: $name = $name($same);)*)?
        impl $name {
            /// Every defined value, once.
            pub const ALL: &'static [Self] = &[$($value),*];
            /// The C name of the value, if it is defined.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => out.write_str(name),
                    None => write!(out, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    };
}

/// A flag set: a newtype, a constant for each bit, and the bits' names. `BIT` is the C enum of single
/// bits, `MASK` the bits that are not defined.
macro_rules! flags {
    (
        $(#[$doc:meta])*
        pub flags $name:ident of $bit:ident, undefined $mask:ident = $undefined:literal {
            $($(#[$about:meta])* $value:ident = $number:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);
        /// One bit of the set.
        pub type $bit = $name;
        $($(#[$about])* pub const $value: $name = $name($number);)*
        /// Bits that are not defined.
        pub const $mask: u32 = $undefined;
        impl $name {
            /// Each defined bit with its C name.
            pub const BITS: &'static [(u32, &'static str)] = &[$(($number, stringify!($value))),*];
            /// Bits that are not defined.
            pub const UNDEFINED: u32 = $undefined;
            pub const fn contains(self, bits: Self) -> bool {
                self.0 & bits.0 == bits.0
            }
            pub const fn intersects(self, bits: Self) -> bool {
                self.0 & bits.0 != 0
            }
        }
        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::abi::define::names(self.0, Self::BITS, out)
            }
        }
    };
}

/// A structure or union. A structure that can stand in a chain names its tag, which its default has
/// in `stype`; all else in a default is zero, null and unset.
macro_rules! aggregate {
    (
        $(#[$doc:meta])*
        pub $keyword:tt $name:ident $(tagged $tag:ident)? {
            $($(#[$about:meta])* pub $member:ident: $ty:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub $keyword $name {
            $($(#[$about])* pub $member: $ty,)*
        }
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: zero is a value of every C type: a null pointer, no callback, the number 0.
                #[allow(unused_mut)]
                let mut value: Self = unsafe { std::mem::zeroed() };
                $(value.stype = $tag;)?
                value
            }
        }
    };
}

pub(super) use {aggregate, enumeration, flags, handle};

/// Names of the bits of a set, then the bits that have none.
pub fn names(bits: u32, named: &[(u32, &str)], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rest = bits;
    let mut first = true;
    for &(bit, name) in named {
        if bit != 0 && rest & bit == bit {
            out.write_str(if first { "" } else { " | " })?;
            out.write_str(name)?;
            rest &= !bit;
            first = false;
        }
    }
    if rest != 0 || first {
        out.write_str(if first { "" } else { " | " })?;
        write!(out, "{rest:#x}")?;
    }
    Ok(())
}
