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
        impl Reads for $target {
            const NAME: &str = stringify!($name);
            const FORM: Form = Form::Address;
            const POINTER: Form = Form::Address;
        }
    };
}

/// An enum: a newtype, a constant for each enumerator, and their names. Enumerators in `also` have the
/// value of an earlier one.
macro_rules! enumeration {
    (
        $(#[$doc:meta])*
        pub enum $name:ident $([$use:ident])? {
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
            /// Every enumerator, those with the value of another included.
            pub(super) const NAMED: &'static [(u32, &'static str)] = &[
                $(($number, stringify!($value)),)*
                $($(($same, stringify!($alias)),)*)?
            ];
            /// The C name of the value, if it is defined.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($value)),)*
                    _ => None,
                }
            }
        }
        impl Reads for $name {
            const NAME: &str = stringify!($name);
            const FORM: Form = read_as!($name $($use)?);
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

/// How an enum reads; a query's knows what the query gives for each of its enumerators.
macro_rules! read_as {
    ($name:ident version) => {
        Form::Version
    };
    ($name:ident query) => {
        Form::Query(|value| Self(value).name(), Self::PROPERTIES)
    };
    ($name:ident) => {
        Form::Enum(|value| Self(value).name())
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
        impl Reads for $name {
            const NAME: &str = stringify!($name);
            const FORM: Form = Form::Flags(Self::BITS);
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

/// A structure. One that can stand in a chain names its tag, which its default has in `stype`; all
/// else in a default is zero, null and unset. A member may say in brackets how it reads where its type
/// does not tell. `list MEMBER` is a pointer to so many values, and `by MEMBER` a union with its selector.
/// `truth` is a byte that is false or true, and `bare` an address of which null is `0`.
macro_rules! structure {
    (
        $(#[$doc:meta])*
        pub struct $name:ident $(tagged $tag:ident)? {
            $($(#[$about:meta])* pub $member:ident: $ty:ty $([$($note:tt)*])?,)*
        }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            $($(#[$about])* pub $member: $ty,)*
        }
        impl Default for $name {
            #[allow(unused_mut)]
            fn default() -> Self {
                // SAFETY: zero is a value of every C type: a null pointer, the number 0.
                let mut value: Self = unsafe { std::mem::zeroed() };
                $(value.stype = $tag;)?
                value
            }
        }
        $(impl $name {
            /// What `stype` is in a chain.
            pub const TAG: ur_structure_type_t = $tag;
        })?
        impl Reads for $name {
            const NAME: &str = stringify!($name);
            const FORM: Form = Form::Struct(&Struct {
                name: stringify!($name),
                size: size_of::<Self>(),
                members: &{
                    #[allow(dead_code, reason = "often no member refers to another")]
                    const NAMES: &[&str] = &[$(stringify!($member)),*];
                    [$(Member::new(
                        stringify!($member),
                        std::mem::offset_of!($name, $member),
                        member!(NAMES $member $ty $(= $($note)*)?),
                    )),*]
                },
            });
        }
    };
}

macro_rules! member {
    ($names:ident pNext $ty:ty) => {
        Form::Chain
    };
    ($names:ident $member:ident $ty:ty) => {
        <$ty>::FORM
    };
    ($names:ident $member:ident $ty:ty = list $count:ident) => {
        Form::List(&<$ty>::TARGET, place($names, stringify!($count)))
    };
    ($names:ident $member:ident $ty:ty = by $tag:tt) => {
        <$ty>::FORM.by(place($names, stringify!($tag)))
    };
    ($names:ident $member:ident $ty:ty = truth) => {
        Form::Truth
    };
    ($names:ident $member:ident $ty:ty = bare) => {
        Form::Bare
    };
}

/// A union; each member names the tag that selects it. Its default is zero.
macro_rules! choice {
    (
        $(#[$doc:meta])*
        pub union $name:ident {
            $($(#[$about:meta])* pub $member:ident: $ty:ty [when $tag:ident],)*
        }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub union $name {
            $($(#[$about])* pub $member: $ty,)*
        }
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: zero is a value of every C type: a null pointer, the number 0.
                unsafe { std::mem::zeroed() }
            }
        }
        impl Reads for $name {
            const NAME: &str = stringify!($name);
            const FORM: Form = Form::Union(
                &Union {
                    name: stringify!($name),
                    size: size_of::<Self>(),
                    choices: &[$(($tag.0, stringify!($member), <$ty>::FORM)),*],
                },
                0,
            );
        }
    };
}

/// All structures that can stand in a chain.
macro_rules! chained {
    ($($name:ident,)*) => {
        /// How the structure reads that a tag stands for.
        pub(super) fn tagged(tag: ur_structure_type_t) -> Option<&'static Form> {
            Some(match tag {
                $($name::TAG => &<$name>::FORM,)*
                _ => return None,
            })
        }
    };
}

/// All enums and flag sets.
macro_rules! constants {
    (enums { $($Enum:ident)* } flags { $($Flags:ident)* }) => {
        /// The value of the enumerator or flag of that C name.
        pub fn constant(name: &str) -> Option<u32> {
            let lists: &[&[(u32, &str)]] = &[$($Enum::NAMED,)* $($Flags::BITS,)*];
            let mut all = lists.iter().copied().flatten();
            all.find(|(_, known)| *known == name).map(|(value, _)| *value)
        }
    };
}

pub(super) use {
    chained, choice, constants, enumeration, flags, handle, member, read_as, structure,
};

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
