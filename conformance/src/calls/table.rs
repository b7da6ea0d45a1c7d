//! The macros that read the rows of `ur::for_each_call!`, and their helpers at compile time.
//!
//! They are expanded where `crate::calls`, `crate::api::callers` and `ur::abi` are imported.

use super::Function;

/// The size of a member, from a function that borrows it.
pub const fn size_of_member<T, M>(_: fn(&T) -> &M) -> usize {
    size_of::<M>()
}

/// The position of a name among others. A table with an unknown name does not compile.
pub const fn position(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    while !is_same(names[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut same = one.len() == other.len();
    let mut at = 0;
    while same && at < one.len() {
        same = one[at] == other[at];
        at += 1;
    }
    same
}

/// The values of a row that does not mention them.
pub const PLAIN: Function = Function {
    name: "",
    in_tables: true,
    caller: |_, _| panic!("a row has a caller"),
    values: &[],
    may: &[],
    consumes: false,
    made: &[],
    retains: None,
    cases: &[],
    lacks: &[],
    said: &[],
};

/// Functions that do nothing, one for each callback type.
macro_rules! callbacks {
    ($($Type:ident($($of:ty),*) -> $returns:ty;)*) => {
        mod callbacks {
            use super::*;
            $(pub unsafe extern "C" fn $Type($(_: $of),*) -> $returns {
                Default::default()
            })*
        }
        $(const _: $Type = Some(callbacks::$Type);)*
    };
}
pub(crate) use callbacks;

/// A value of the table.
///
/// It is `null`, `memory`, `text`, a number, a kind of handle, or a list of handles (`[Event]`, `[null]`) or
/// sizes. It may also be an enumerator, the undefined bits of a set of flags, a callback, a structure, or a
/// pointer to one.
macro_rules! value {
    (null) => { Value::Null };
    (memory) => { Value::Memory };
    (text) => { Value::Text };
    ($number:literal) => { Value::Number($number) };
    ($Kind:ident) => { Value::Handle(Kind::$Kind) };
    ([null]) => { Value::NullList };
    ([$Kind:ident]) => { Value::List(Kind::$Kind) };
    ([$x:literal, $y:literal, $z:literal]) => { Value::Sizes([$x, $y, $z]) };
    ((undefined $mask:ident)) => { Value::Number($mask as u64) };
    ((callback $Type:ident)) => { Value::Callback(|| callbacks::$Type as *const c_void) };
    (($enumerator:ident)) => { Value::Number($enumerator.0 as u64) };
    ({ & $($structure:tt)* }) => { Value::Pointer(structure!($($structure)*)) };
    ({ $($structure:tt)* }) => { Value::Structure(structure!($($structure)*)) };
}
pub(crate) use value;

macro_rules! structure {
    ($Type:ident $($member:ident = $value:tt),*) => {
        const {
            &Structure {
                default: default::<$Type>,
                members: &[$(Member {
                    offset: std::mem::offset_of!($Type, $member),
                    size: size_of_member(|of: &$Type| &of.$member),
                    value: value!($value),
                }),*],
            }
        }
    };
}
pub(crate) use structure;

macro_rules! bits {
    () => {
        u64::MAX
    };
    ($flag:ident) => {
        $flag.0 as u64
    };
}
pub(crate) use bits;

/// The table: one row for each function.
///
/// Below it stand a row for each wrong call, a row for each call that a device may refuse, and a row for each
/// error declared in words alone.
macro_rules! functions {
    ($(
        call $name:ident($($parameter:ident: $value:tt),*) { $($attribute:ident: $given:expr),* }
        $(wrong $($code:ident)|+: $what:literal ($($changed:ident = $to:tt),*))*
        $(lacks $lack_code:ident: $lack:literal [$($property:ident $(has $flag:ident)?),*]
            ($($lacking:ident = $lacks:tt),*))*
        $(said $said_code:ident: $said:literal)*
    )*) => {
        /// Every function that takes a handle of an adapter, and the loader's functions for configs, in the
        /// order of the specification.
        pub static FUNCTIONS: &[Function] = &[$({
            #[allow(dead_code)]
            const PARAMETERS: &[&str] = &[$(stringify!($parameter)),*];
            Function {
                name: stringify!($name),
                caller: callers::$name,
                values: &[$(value!($value)),*],
                cases: &[$(Case {
                    what: $what,
                    codes: &[$($code),+],
                    changes: &[$((position(PARAMETERS, stringify!($changed)), value!($to))),*],
                }),*],
                lacks: &[$(Lack {
                    what: $lack,
                    code: $lack_code,
                    terms: &[$((stringify!($property), $property, bits!($($flag)?))),*],
                    changes: &[$((position(PARAMETERS, stringify!($lacking)), value!($lacks))),*],
                }),*],
                said: &[$(Said { code: $said_code, what: $said }),*],
                $($attribute: $given,)*
                ..PLAIN
            }
        }),*];
    };
}
pub(crate) use functions;
