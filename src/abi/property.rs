//! The forms of properties' values, as data: for programs that walk the tables of properties, to
//! check an adapter's answers or to show them.

use super::info::{UNUSUAL, for_each_property, for_each_property_type};
use super::print::{Form as Text, PropertyForm, Reads, same, text as printed};
use super::types::*;
use std::ffi::c_void;
use std::mem::size_of;

/// One property of an info query.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// The enumerator of the property.
    pub value: u32,
    /// The enumerator's C name.
    pub name: &'static str,
    pub form: Form,
    /// An adapter may answer `UNSUPPORTED_ENUMERATION`.
    pub optional: bool,
    /// The value as text.
    pub(super) printed: PropertyForm,
}

/// How a value lies in memory.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A text with a NUL at its end.
    Text,
    One(Type),
    /// Any number of elements.
    List(Type),
    /// That number of elements.
    Array(usize, Type),
}

/// The C type of a value or of an element.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// In bytes.
    pub size: usize,
    pub kind: Kind,
    /// The C name of a handle, an enum, a flag set or a structure; else empty.
    pub name: &'static str,
    pub(super) text: Text,
}

/// What the bytes of a C type mean.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Unsigned,
    Signed,
    /// `ur_bool_t`.
    Truth,
    /// A pointer or a handle.
    Address,
    /// The C name of an enumerator; none of a value that is no enumerator.
    Enum(fn(u32) -> Option<&'static str>),
    Flags {
        /// Each bit with its C name.
        bits: &'static [(u32, &'static str)],
        /// Bits that have no name.
        undefined: u32,
    },
    /// A structure without pointers, and its text; none of another number of bytes.
    Struct(fn(&[u8]) -> Option<String>),
    /// A structure with pointers.
    Opaque,
}

impl Form {
    /// The type of the value or of its elements; none for a text.
    pub fn element(self) -> Option<Type> {
        match self {
            Self::Text => None,
            Self::One(of) | Self::List(of) | Self::Array(_, of) => Some(of),
        }
    }
}

/// C types that values have.
pub trait Typed: Reads + Sized {
    const KIND: Kind;
    const TYPE: Type = Type {
        size: size_of::<Self>(),
        kind: Self::KIND,
        name: Self::NAME,
        text: Self::FORM,
    };
}

/// A byte that is false or true; its C name is an alias of a byte's.
#[repr(transparent)]
pub struct Truth(pub u8);

/// A text.
pub const fn text() -> Form {
    Form::Text
}

/// One value of a type.
pub const fn one<T: Typed>() -> Form {
    Form::One(T::TYPE)
}

/// Any number of values of a type.
pub const fn list<T: Typed>() -> Form {
    Form::List(T::TYPE)
}

/// That number of values of a type.
pub const fn array<T: Typed>(extent: usize) -> Form {
    Form::Array(extent, T::TYPE)
}

macro_rules! plain {
    ($($of:ty => $kind:ident),*) => {
        $(impl Typed for $of {
            const KIND: Kind = Kind::$kind;
        })*
    };
}

plain!(u8 => Unsigned, u32 => Unsigned, u64 => Unsigned, usize => Unsigned, i32 => Signed, Truth => Truth);

impl<T: Reads> Typed for *mut T {
    const KIND: Kind = Kind::Address;
}

macro_rules! named {
    (
        enums { $($Enum:ty),* }
        flags { $($Flags:ty),* }
        structs { $($Struct:ty),* }
        opaque { $($Opaque:ty),* }
    ) => {
        $(impl Typed for $Enum {
            const KIND: Kind = Kind::Enum(|value| Self(value).name());
        })*
        $(impl Typed for $Flags {
            const KIND: Kind = Kind::Flags { bits: Self::BITS, undefined: Self::UNDEFINED };
        })*
        $(impl Typed for $Struct {
            const KIND: Kind = Kind::Struct(|bytes| {
                (bytes.len() == size_of::<Self>()).then(|| {
                    // SAFETY: the size was checked, and any bytes are a C structure of integers.
                    let value: Self = unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() };
                    // SAFETY: the structure holds no pointer.
                    unsafe { printed(&value) }
                })
            });
        })*
        $(impl Typed for $Opaque {
            const KIND: Kind = Kind::Opaque;
        })*
    };
}

for_each_property_type!(named);

macro_rules! form {
    (text()) => {
        text()
    };
    (one($of:ty)) => {
        one::<$of>()
    };
    (list($of:ty)) => {
        list::<$of>()
    };
    (array($extent:literal, $of:ty)) => {
        array::<$of>($extent)
    };
}

/// How a property is printed, by its name and form.
const fn printed_as(name: &str, form: Form) -> PropertyForm {
    match (unusual(name), form) {
        (Some(unusual), _) => unusual,
        (None, Form::Text) => PropertyForm::Text,
        (None, Form::One(of)) => PropertyForm::One(of.text),
        (None, Form::List(of) | Form::Array(_, of)) => PropertyForm::List(of.text),
    }
}

/// The form of a property that [`UNUSUAL`] lists.
const fn unusual(property: &str) -> Option<PropertyForm> {
    let mut at = 0;
    while at < UNUSUAL.len() {
        let (name, form) = UNUSUAL[at];
        if same(name, property) {
            return Some(form);
        }
        at += 1;
    }
    None
}

macro_rules! is_optional {
    (optional) => {
        true
    };
    (always) => {
        false
    };
}

macro_rules! tables {
    ($($Info:ident $c:ident $doc:literal { $(
        $Variant:ident = $name:ident, $presence:ident, $form:ident $of:tt, $says:literal;
    )* })*) => {
        /// The properties of every info query.
        pub const ALL: &[&[Property]] = &[$($c::PROPERTIES),*];

        $(impl $c {
            /// Every property with the form of its value, in the order of the specification.
            pub const PROPERTIES: &[Property] = &[$(Property {
                value: $name.0,
                name: stringify!($name),
                form: form!($form $of),
                printed: printed_as(stringify!($name), form!($form $of)),
                optional: is_optional!($presence),
            }),*];
        })*
    };
}

for_each_property!(tables);
