//! Calls as data. A row of the generated table has a valid value for each argument of a function,
//! and for each condition of the specification the arguments that others replace, so that the call is
//! wrong for that reason alone. Here is what the rows mean, and the one routine that makes a call.

use crate::api::{Api, Caller};
pub use crate::generated::arguments::FUNCTIONS;
use crate::status::Status;
use std::ffi::c_void;
use ur::abi::*;

/// A function, a call of it whose arguments are all valid as far as their types and conditions say,
/// and what would be wrong.
pub struct Function {
    pub name: &'static str,
    /// Adapters have it; the others are the loader's own.
    pub in_tables: bool,
    pub caller: Caller,
    /// Valid arguments.
    pub values: &'static [Value],
    /// Errors that the specification allows the valid call all the same.
    pub may: &'static [ur_result_t],
    /// It ends something, so that no valid argument stays valid.
    pub consumes: bool,
    /// Handles that it makes, and the position of the output that receives each.
    pub made: &'static [(Kind, usize)],
    /// The handle that gets one more reference.
    pub retains: Option<Kind>,
    pub cases: &'static [Case],
    pub lacks: &'static [Lack],
    pub said: &'static [Said],
}

/// A call that must be refused.
pub struct Case {
    /// What is wrong with it.
    pub what: &'static str,
    /// The answers that are right.
    pub codes: &'static [ur_result_t],
    pub changes: Changes,
}

/// A call that a device must refuse which lacks something.
pub struct Lack {
    /// What the device lacks, in the words of the specification.
    pub what: &'static str,
    pub code: ur_result_t,
    /// Properties of which the device has none of the bits.
    pub terms: &'static [(&'static str, ur_device_info_t, u64)],
    pub changes: Changes,
}

/// An error that the specification declares and that no generated call provokes.
pub struct Said {
    pub code: ur_result_t,
    /// When it is returned.
    pub what: &'static str,
}

/// Values in place of valid ones, by position.
pub type Changes = &'static [(usize, Value)];

/// The valid call.
pub const UNCHANGED: Changes = &[];

/// An argument, or a member of a structure.
#[derive(Clone, Copy)]
pub enum Value {
    /// A null pointer, handle or function.
    Null,
    /// A number, an enumerator or a set of flags.
    Number(u64),
    /// The argument's part of the memory in `Valid`.
    Memory,
    /// An empty text.
    Text,
    /// The valid handle of a kind.
    Handle(Kind),
    /// A list of that handle alone.
    List(Kind),
    /// A list of a null handle alone.
    NullList,
    /// A list of sizes, one a dimension.
    Sizes([u64; 3]),
    /// The address of a function that does nothing.
    Callback(fn() -> *const c_void),
    /// A structure by value.
    Structure(&'static Structure),
    /// A pointer to a structure.
    Pointer(&'static Structure),
}

/// A structure as its type's default is, but for some members.
pub struct Structure {
    pub default: fn() -> Vec<u64>,
    pub members: &'static [Member],
}

/// A member's place, in bytes, and its value.
pub struct Member {
    pub offset: usize,
    pub size: usize,
    pub value: Value,
}

macro_rules! kinds {
    ($($Kind:ident $field:ident $handle:ident)*) => {
        /// Kinds of handle, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($Kind),* }

        /// One live handle of each kind that the device offers, and memory to point at.
        pub struct Valid {
            $(pub $field: $handle,)*
            pub scratch: *mut c_void,
        }

        impl Valid {
            /// No handles yet.
            pub fn new(scratch: *mut c_void) -> Self {
                Self { $($field: std::ptr::null_mut(),)* scratch }
            }

            /// The handle of that kind, or null.
            pub fn get(&self, kind: Kind) -> *mut c_void {
                match kind { $(Kind::$Kind => self.$field.cast()),* }
            }
        }
    };
}

kinds! {
    Adapter adapter ur_adapter_handle_t
    CommandBuffer command_buffer ur_exp_command_buffer_handle_t
    CommandBufferCommand command_buffer_command ur_exp_command_buffer_command_handle_t
    Context context ur_context_handle_t
    Device device ur_device_handle_t
    Event event ur_event_handle_t
    ExecutableGraph executable_graph ur_exp_executable_graph_handle_t
    ExternalMem external_mem ur_exp_external_mem_handle_t
    ExternalSemaphore external_semaphore ur_exp_external_semaphore_handle_t
    Graph graph ur_exp_graph_handle_t
    Kernel kernel ur_kernel_handle_t
    LoaderConfig loader_config ur_loader_config_handle_t
    Mem mem ur_mem_handle_t
    PhysicalMem physical_mem ur_physical_mem_handle_t
    Platform platform ur_platform_handle_t
    Program program ur_program_handle_t
    Queue queue ur_queue_handle_t
    Sampler sampler ur_sampler_handle_t
    UsmPool usm_pool ur_usm_pool_handle_t
}

impl Valid {
    /// Memory for the argument at a position.
    pub fn at(&self, position: usize) -> *mut u8 {
        self.scratch.cast::<u8>().wrapping_add(128 * position)
    }

    /// Whether there is a handle of that kind.
    pub fn has(&self, kind: Kind) -> bool {
        !self.get(kind).is_null()
    }

    /// Whether there are handles of all these kinds.
    pub fn has_all(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.has(*kind))
    }
}

/// The row of a function; none of the loader's own life.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// What a function declares in words.
pub fn said(name: &str) -> &'static [Said] {
    function(name).map_or(&[], |function| function.said)
}

impl Function {
    /// Calls the function with valid arguments but for these changes.
    pub fn call(&self, ur: &Api, valid: &Valid, changes: &[(usize, Value)]) -> Status {
        let mut memory = Memory {
            valid,
            pointed: Vec::new(),
        };
        let arguments: Vec<Vec<u64>> = self
            .with(changes)
            .enumerate()
            .map(|(position, value)| memory.words(value, position))
            .collect();
        (self.caller)(ur, &arguments)
    }

    /// Kinds of handle that such a call takes, without which it would be wrong in a second way.
    pub fn needs(&self, changes: &[(usize, Value)]) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for value in self.with(changes) {
            value.kinds(&mut kinds);
        }
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    fn with(&self, changes: &[(usize, Value)]) -> impl Iterator<Item = Value> {
        self.values.iter().enumerate().map(|(position, value)| {
            let changed = changes.iter().find(|(at, _)| *at == position);
            changed.map_or(*value, |(_, other)| *other)
        })
    }
}

impl Value {
    fn kinds(self, found: &mut Vec<Kind>) {
        match self {
            Self::Handle(kind) | Self::List(kind) => found.push(kind),
            Self::Structure(of) | Self::Pointer(of) => {
                for member in of.members {
                    member.value.kinds(found);
                }
            }
            _ => {}
        }
    }
}

/// What the pointers of one call lead to.
struct Memory<'a> {
    valid: &'a Valid,
    pointed: Vec<Vec<u64>>,
}

impl Memory<'_> {
    /// The words in which the value of an argument lies, or of a member of that argument.
    fn words(&mut self, value: Value, position: usize) -> Vec<u64> {
        let word = match value {
            Value::Null => 0,
            Value::Number(number) => number,
            Value::Memory => address(self.valid.at(position)),
            Value::Text => address(c"".as_ptr()),
            Value::Handle(kind) => address(self.valid.get(kind)),
            Value::List(kind) => self.pointer_to(vec![address(self.valid.get(kind))]),
            Value::NullList => self.pointer_to(vec![0]),
            Value::Sizes(sizes) => self.pointer_to(sizes.to_vec()),
            Value::Callback(function) => address(function()),
            Value::Structure(of) => return self.structure(of, position),
            Value::Pointer(of) => {
                let words = self.structure(of, position);
                self.pointer_to(words)
            }
        };
        vec![word]
    }

    fn structure(&mut self, of: &Structure, position: usize) -> Vec<u64> {
        let mut words = (of.default)();
        for member in of.members {
            for value in self.words(member.value, position) {
                let bytes = value.to_le_bytes().into_iter().take(member.size);
                for (at, byte) in (member.offset..).zip(bytes) {
                    let (word, shift) = (at / size_of::<u64>(), 8 * (at % size_of::<u64>()));
                    words[word] = words[word] & !(0xff << shift) | u64::from(byte) << shift;
                }
            }
        }
        words
    }

    fn pointer_to(&mut self, words: Vec<u64>) -> u64 {
        let address = address(words.as_ptr());
        self.pointed.push(words);
        address
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// The words of a structure as it is by default.
pub fn default<T: Default>() -> Vec<u64> {
    let mut words = vec![0; size_of::<T>().div_ceil(size_of::<u64>())];
    // SAFETY: there is room for it, aligned for C types.
    unsafe { words.as_mut_ptr().cast::<T>().write(T::default()) };
    words
}

/// The size of the member that a function gives.
pub const fn size_of_member<T, M>(_: fn(&T) -> &M) -> usize {
    size_of::<M>()
}

/// Where a name is among others. A table with a name that is not there does not compile.
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

/// A function of which nothing but its name and arguments is said.
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

/// Functions that do nothing, by the callback types that they are of.
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

/// A value of the table: `null`, `memory`, `text`, a number, a kind of handle, a list of handles
/// (`[Event]`, `[null]`) or sizes, an enumerator, the undefined bits of a set of flags, a callback, a
/// structure, or a pointer to one.
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

/// The table: a row a function, and below it a row for each wrong call, for each that a device may
/// refuse, and for each error that is declared in words alone.
macro_rules! functions {
    ($(
        call $name:ident($($parameter:ident: $value:tt),*) { $($attribute:ident: $given:expr),* }
        $(wrong $($code:ident)|+: $what:literal ($($changed:ident = $to:tt),*))*
        $(lacks $lack_code:ident: $lack:literal [$($property:ident $(has $flag:ident)?),*]
            ($($lacking:ident = $lacks:tt),*))*
        $(said $said_code:ident: $said:literal)*
    )*) => {
        /// Every function that takes a handle of an adapter, and the configurations' of the loader,
        /// in the order of the specification.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use ur::dl::{Binding, Library};

    /// A library without any function of a loader, so that a call goes as far as its arguments.
    fn nowhere() -> Api {
        let library = Library::open(Path::new("libc.so.6"), Binding::Usual);
        Api::new(library.expect("the C library"))
    }

    #[test]
    fn every_row_has_a_value_for_each_argument() {
        let (ur, mut scratch) = (nowhere(), vec![0_u64; 8192]);
        let valid = Valid::new(scratch.as_mut_ptr().cast());
        let mut calls = 0;
        for function in FUNCTIONS {
            let cases = function.cases.iter().map(|case| case.changes);
            let lacks = function.lacks.iter().map(|lack| lack.changes);
            for changes in [UNCHANGED].into_iter().chain(cases).chain(lacks) {
                let status = function.call(&ur, &valid, changes);
                assert_eq!(status.function, function.name);
                assert_eq!(status.code, UR_RESULT_ERROR_UNINITIALIZED);
                calls += 1;
            }
        }
        assert!(calls > 1000, "{calls} calls");
    }

    #[test]
    fn arguments_are_the_words_that_c_expects() {
        let mut scratch = vec![0_u64; 8192];
        let mut valid = Valid::new(scratch.as_mut_ptr().cast());
        valid.event = std::ptr::without_provenance_mut(0x40);
        let mut memory = Memory {
            valid: &valid,
            pointed: Vec::new(),
        };
        let mut word = |value| memory.words(value, 2)[0];
        assert_eq!(word(value!(null)), 0);
        assert_eq!(
            word(value!((UR_DEVICE_TYPE_CPU))),
            u64::from(UR_DEVICE_TYPE_CPU.0)
        );
        assert_eq!(
            word(value!((undefined UR_MEM_FLAGS_MASK))),
            u64::from(UR_MEM_FLAGS_MASK)
        );
        assert_eq!(word(value!(memory)), address(valid.at(2)));
        assert_eq!(word(value!(Event)), 0x40);
        let list = std::ptr::with_exposed_provenance::<usize>(word(value!([Event])) as usize);
        // SAFETY: `memory` has the list.
        assert_eq!(unsafe { list.read() }, 0x40);
        let sizes = std::ptr::with_exposed_provenance::<[u64; 3]>(word(value!([1, 0, 2])) as usize);
        // SAFETY: `memory` has the list.
        assert_eq!(unsafe { sizes.read() }, [1, 0, 2]);
        let region = memory.words(value!({ur_rect_region_t width = 3, depth = 1}), 2);
        assert_eq!(region, [3, 0, 1]);
        let pointer = value!({&ur_image_desc_t r#type = (UR_MEM_TYPE_IMAGE3D), numSamples = 7});
        let pointer = memory.words(pointer, 2)[0];
        let desc = std::ptr::with_exposed_provenance::<ur_image_desc_t>(pointer as usize);
        // SAFETY: `memory` has the structure.
        let desc = unsafe { desc.read() };
        assert_eq!(desc.stype, UR_STRUCTURE_TYPE_IMAGE_DESC);
        assert_eq!((desc.r#type, desc.numSamples), (UR_MEM_TYPE_IMAGE3D, 7));
        assert_eq!((desc.width, desc.numMipLevel), (0, 0));
    }

    #[test]
    fn a_call_needs_the_handles_that_its_arguments_mention() {
        let wait = function("urEventWait").expect("a row");
        assert_eq!(wait.needs(UNCHANGED), [Kind::Event]);
        assert_eq!(wait.needs(&[(1, Value::Null)]), []);
        let member =
            value!({&ur_exp_command_buffer_update_kernel_launch_desc_t hNewKernel = Kernel});
        assert_eq!(wait.needs(&[(1, member)]), [Kind::Kernel]);
    }
}
