//! Properties as Rust enums, expanded from the list of `abi`, so that a query is a match without a
//! wildcard.

use crate::abi::info::for_each_property;
use crate::abi::*;
use crate::object::Error;

macro_rules! enums {
    ($($Info:ident $c:ident $doc:literal { $(
        $Variant:ident = $name:ident, $presence:ident, $form:ident $of:tt, $says:literal;
    )* })*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $Info { $(#[doc = $says] $Variant),* }

        impl TryFrom<$c> for $Info {
            type Error = Error;

            fn try_from(value: $c) -> Result<Self, Error> {
                match value {
                    $($name => Ok(Self::$Variant),)*
                    _ => Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
                }
            }
        }
    )*};
}

for_each_property!(enums);
