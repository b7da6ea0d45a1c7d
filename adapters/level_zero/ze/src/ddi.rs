//! The tables that the loader hands to a driver to be filled, and their lengths by version.

use crate::{pfn, ze_api_version_t, ze_result_t};

/// A function that is not in the list of functions.
pub type Opaque = unsafe extern "C" fn() -> ze_result_t;

/// A table's facts.
#[derive(Debug)]
pub struct Table {
    /// The driver's export that fills it: takes the version and the table.
    pub getter: &'static str,
    /// The functions, in order.
    pub functions: &'static [&'static str],
    /// Older versions, the oldest first, each with how many functions the table had.
    pub lengths: &'static [(u32, usize)],
}

impl Table {
    /// How many entries a caller of this version is sure to have room for. 0 if it is older than all that were
    /// looked at.
    pub fn length(&self, version: ze_api_version_t) -> usize {
        if version.0 >= crate::VERSION.0 {
            return self.functions.len();
        }
        let known = self.lengths.iter().rev();
        let mut fitting = known.filter(|(of, _)| *of <= version.0);
        fitting.next().map_or(0, |(_, length)| *length)
    }
}

macro_rules! entry {
    (typed $function:ident) => { Option<pfn::$function> };
    (opaque $function:ident) => { Option<Opaque> };
}

macro_rules! tables {
    ($($getter:ident $table:ident [$($version:literal: $length:literal),*] {
        $($member:ident $function:ident $form:ident,)*
    })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Default)]
            pub struct $table {
                $(pub $member: entry!($form $function),)*
            }
            const _: () = assert!(
                size_of::<$table>() == 8 * <[&str]>::len(&[$(stringify!($function)),*])
            );
        )*

        /// Every table.
        pub const TABLES: &[Table] = &[$(
            Table {
                getter: stringify!($getter),
                functions: &[$(stringify!($function)),*],
                lengths: &[$(($version, $length)),*],
            },
        )*];
    };
}
for_each_table! { tables }
