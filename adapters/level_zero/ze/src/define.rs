//! What the rows of `types` become.

use crate::ze_structure_type_t;
use std::ffi::c_void;

/// A structure whose first member says which structure it is. Its default has that member set, and zero elsewhere.
///
/// # Safety
/// The structure begins with a tag of 32 bits and, behind padding, a pointer to the next structure.
pub unsafe trait Tagged: Default {
    /// The tag, as a number: the system interface has an enum of its own.
    const TAG: ze_structure_type_t;

    /// The structure, in front of `next`.
    fn chained(next: *mut c_void) -> Self;
}

macro_rules! handle {
    ($name:ident) => {
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub *mut ::std::ffi::c_void);
        impl $name {
            pub const NULL: Self = Self(::std::ptr::null_mut());
            pub const fn is_null(self) -> bool {
                self.0.is_null()
            }
        }
        impl Default for $name {
            fn default() -> Self {
                Self::NULL
            }
        }
        // SAFETY: a handle is a name that the driver resolves; any thread may hold it.
        unsafe impl Send for $name {}
        // SAFETY: a shared handle gives no access by itself.
        unsafe impl Sync for $name {}
    };
}

macro_rules! enumeration {
    ($name:ident { $($value:ident = $number:literal,)* }) => {
        #[repr(transparent)]
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        $(pub const $value: $name = $name($number);)*
        impl $name {
            /// The name of the value, the first in the order of the alphabet if it has several.
            pub fn name(self) -> Option<&'static str> {
                const NAMES: &[(u32, &str)] = &[$(($number, stringify!($value)),)*];
                NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
            }
        }
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, out: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self.name() {
                    Some(name) => out.write_str(name),
                    None => write!(out, "{:#x}", self.0),
                }
            }
        }
    };
}

macro_rules! flags {
    ($name:ident { $($value:ident = $number:literal,)* }) => {
        pub type $name = u32;
        $(pub const $value: $name = $number;)*
    };
}

macro_rules! structure {
    (@tag $name:ident $tag:ident) => {
        // SAFETY: the first members are the tag and the pointer to the next structure; `tests` checks it.
        unsafe impl $crate::Tagged for $name {
            const TAG: $crate::ze_structure_type_t = $crate::ze_structure_type_t($crate::$tag.0);
            fn chained(next: *mut ::std::ffi::c_void) -> Self {
                Self { pNext: next.cast(), ..Self::default() }
            }
        }
    };
    (@default $name:ident) => {
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: numbers, handles, pointers and optional functions may be zero.
                unsafe { ::std::mem::zeroed() }
            }
        }
    };
    (@default $name:ident $tag:ident) => {
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: numbers, handles, pointers and optional functions may be zero.
                let zero: Self = unsafe { ::std::mem::zeroed() };
                Self { stype: $crate::$tag, ..zero }
            }
        }
        structure! { @tag $name $tag }
    };
    (
        $name:ident size $size:literal align $align:literal $(tag $tag:ident)? {
            $($member:ident: $ty:ty = $offset:literal,)*
        }
    ) => {
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $(pub $member: $ty,)*
        }
        structure! { @default $name $($tag)? }
        const _: () = {
            assert!(::std::mem::size_of::<$name>() == $size);
            assert!(::std::mem::align_of::<$name>() == $align);
            $(assert!(::std::mem::offset_of!($name, $member) == $offset);)*
        };
    };
}

pub(crate) use {enumeration, flags, handle, structure};
