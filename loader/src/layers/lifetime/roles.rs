//! What each argument of each function is to this layer, and the walk over them around a call.
//!
//! The table follows from the list of functions, with two additions that are generated: properties
//! whose values are handles, and arguments that lead to structs with handles in them.

use std::ffi::{c_char, c_void};

use ur::abi::*;
use ur::object::{Kind, Result, boundary};

use super::Call;
use crate::generated::layers::lifetime::{NESTED, PROPERTIES};
use crate::layers::wrappers::{NAMES, wrappers};

/// The role of an argument. Numbers are other arguments' positions.
#[derive(Clone, Copy)]
enum Role {
    /// No matter of this layer.
    None,
    Uses(Kind),
    Retains(Kind),
    Releases(Kind),
    UsesList(Kind, Count),
    /// Where a new handle is put: with a reference. `cleared`: null after a refusal.
    Makes {
        kind: Kind,
        cleared: bool,
    },
    /// Where a new handle is put, unless one is there already, which stays the caller's.
    Keeps(Kind),
    /// Where a handle is put that the caller gets no reference to.
    Lends(Kind),
    /// Room for handles, and the output that receives how many there are.
    Fills {
        kind: Kind,
        room: Count,
        lent: bool,
        total: Option<usize>,
    },
    /// The value of a property that may be a handle.
    Tells {
        properties: &'static [Property],
        property: usize,
        size: Option<Size>,
    },
    /// A struct with handles in it, or a list of such.
    UsesNested(Nested, Option<Count>),
}

/// The arguments that say how large a value may be and receive how large it is, in bytes.
#[derive(Clone, Copy)]
struct Size {
    room: usize,
    written: usize,
}

/// The argument that says how many elements a list has.
#[derive(Clone, Copy)]
struct Count {
    at: usize,
    /// Of its type, in bytes.
    size: usize,
}

/// An argument's position and role.
type Placed = (usize, Role);

/// The arguments of a function that are a matter of this layer, in order.
struct Roles {
    /// Handles that must be alive.
    uses: &'static [Placed],
    /// Handles that are given out or given back.
    gives: &'static [Placed],
    /// The handle that leads to the adapter, with its position: it keeps what is lent.
    leader: Option<(Kind, usize)>,
}

/// Which list of [`Roles`] a role is in. Some are in both.
#[derive(Clone, Copy)]
enum Part {
    Uses,
    Gives,
}

const fn is_in(role: &Role, part: Part) -> bool {
    match role {
        Role::None => false,
        Role::Retains(_) => true,
        Role::Uses(_) | Role::UsesList(..) | Role::UsesNested(..) => matches!(part, Part::Uses),
        _ => matches!(part, Part::Gives),
    }
}

const fn length(roles: &[Role], part: Part) -> usize {
    let mut length = 0;
    let mut at = 0;
    while at < roles.len() {
        length += is_in(&roles[at], part) as usize;
        at += 1;
    }
    length
}

const fn pick<const LENGTH: usize>(roles: &[Role], part: Part) -> [Placed; LENGTH] {
    let mut picked = [(0, Role::None); LENGTH];
    let mut length = 0;
    let mut at = 0;
    while at < roles.len() {
        if is_in(&roles[at], part) {
            picked[length] = (at, roles[at]);
            length += 1;
        }
        at += 1;
    }
    picked
}

/// The leading handle at a position, unless it is a list.
const fn leader(roles: &[Role], at: usize) -> Option<(Kind, usize)> {
    match roles[at] {
        Role::Uses(kind) => Some((kind, at)),
        _ => None,
    }
}

/// A property whose value is a handle, or a list of handles.
pub struct Property {
    pub value: u32,
    pub kind: Kind,
    pub list: bool,
}

/// A table of properties by function: `urX: PROPERTY Kind one, ...;`.
macro_rules! properties {
    ($(#[$meta:meta])* $table:ident: $(
        $name:ident: $( $property:ident $kind:ident $form:ident ),*;
    )*) => {
        $(#[$meta])*
        pub const $table: [&[Property]; $crate::layers::wrappers::COUNT] = {
            let mut rows: [&[Property]; _] = [&[]; $crate::layers::wrappers::COUNT];
            $(
                rows[number::$name] = const {
                    &[$( Property {
                        value: $property.0,
                        kind: Kind::$kind,
                        list: matches!(stringify!($form).as_bytes(), b"list"),
                    } ),*]
                };
            )*
            rows
        };
    };
}
pub(crate) use properties;

/// A struct with handles in it.
#[derive(Clone, Copy)]
pub enum Nested {
    KernelArguments,
    KernelUpdates,
    PoolDescription,
}

/// Most handles that a function gives out or back.
const MAX_GIVEN: usize = {
    let mut most = 0;
    let mut at = 0;
    while at < ROLES.len() {
        if ROLES[at].gives.len() > most {
            most = ROLES[at].gives.len();
        }
        at += 1;
    }
    most
};

/// The position of a name among arguments, each with its size. A stray name fails the build.
const fn position(arguments: &[(&str, usize)], name: &str) -> usize {
    let mut at = 0;
    while !same(arguments[at].0, name) {
        at += 1;
    }
    at
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn count(arguments: &[(&str, usize)], name: &str) -> Count {
    let at = position(arguments, name);
    Count {
        at,
        size: arguments[at].1,
    }
}

/// The role of a pointer or a list.
const fn nested(number: usize, arg: &str, count: Option<Count>) -> Role {
    let mut at = 0;
    while at < NESTED.len() {
        let (function, name, nested) = NESTED[at];
        if function == number && same(name, arg) {
            return Role::UsesNested(nested, count);
        }
        at += 1;
    }
    Role::None
}

/// The role of a property's value.
const fn tells(number: usize, property: usize, size: Option<Size>) -> Role {
    match PROPERTIES[number] {
        [] => Role::None,
        properties => Role::Tells {
            properties,
            property,
            size,
        },
    }
}

macro_rules! role {
    ($number:literal $arg:ident $arguments:ident [$need:ident handle $kind:ident use]) => {
        Role::Uses(Kind::$kind)
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident handle $kind:ident retain]) => {
        Role::Retains(Kind::$kind)
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident handle $kind:ident release]) => {
        Role::Releases(Kind::$kind)
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident handles $kind:ident $count:ident]) => {
        Role::UsesList(Kind::$kind, count($arguments, stringify!($count)))
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident output $kind:ident keep]) => {
        Role::Keeps(Kind::$kind)
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident output $kind:ident lend]) => {
        Role::Lends(Kind::$kind)
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident output $kind:ident $own:ident]) => {
        Role::Makes {
            kind: Kind::$kind,
            cleared: same(stringify!($own), "clear"),
        }
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident outputs $kind:ident $count:ident $own:ident $total:tt]) => {
        Role::Fills {
            kind: Kind::$kind,
            room: count($arguments, stringify!($count)),
            lent: same(stringify!($own), "lend"),
            total: place!($arguments $total),
        }
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident info $property:ident -]) => {
        tells($number, position($arguments, stringify!($property)), None)
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident info $property:ident $size:ident]) => {
        tells(
            $number,
            position($arguments, stringify!($property)),
            Some(Size {
                room: position($arguments, stringify!($size)),
                written: position($arguments, "pPropSizeRet"),
            }),
        )
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident list $count:ident]) => {
        nested($number, stringify!($arg), Some(count($arguments, stringify!($count))))
    };
    ($number:literal $arg:ident $arguments:ident [$need:ident pointer]) => {
        nested($number, stringify!($arg), None)
    };
    ($number:literal $arg:ident $arguments:ident $form:tt) => {
        Role::None
    };
}

/// An argument's position; none for `-`.
macro_rules! place {
    ($arguments:ident -) => {
        None
    };
    ($arguments:ident $arg:ident) => {
        Some(position($arguments, stringify!($arg)))
    };
}

/// The leading handle.
macro_rules! leader {
    ($arguments:ident $roles:ident []) => {
        None
    };
    ($arguments:ident $roles:ident [$handle:ident $($rest:tt)*]) => {
        leader($roles, position($arguments, stringify!($handle)))
    };
}

macro_rules! roles {
    ($( $table:ident $struct:ident { $(
        $number:literal $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {
        /// Every function's arguments, by number.
        static ROLES: &[Roles] = &[$( $( {
            const ARGUMENTS: &[(&str, usize)] = &[$( (stringify!($arg), size_of::<$ty>()) ),*];
            const ROLES: &[Role] = &[$( role!($number $arg ARGUMENTS $form) ),*];
            Roles {
                uses: const { &pick::<{ length(ROLES, Part::Uses) }>(ROLES, Part::Uses) },
                gives: const { &pick::<{ length(ROLES, Part::Gives) }>(ROLES, Part::Gives) },
                leader: leader!(ARGUMENTS ROLES $leader),
            }
        }, )* )*];
    };
}

ur::for_each_function! { roles }

/// The body of a function of this layer.
macro_rules! watched {
    ($number:literal $name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        let params = $params { $( $field: &raw mut $arg ),* };
        // SAFETY: the caller's arguments. They are read behind the pointers, since the walk replaces
        // an output that the caller does not want.
        let mut call = || unsafe { $below($( params.$field.read() ),*) };
        let arguments = [$( params.$field as *mut c_void ),*];
        // SAFETY: these are the function's arguments.
        unsafe { around::<$number>(&arguments, &mut call) }
    }};
}
ur::for_each_function! { wrappers watched }

/// Functions with handles among their arguments.
const fn wants(number: usize) -> bool {
    !ROLES[number].uses.is_empty() || !ROLES[number].gives.is_empty()
}

/// The addresses of a call's arguments.
#[derive(Clone, Copy)]
struct Arguments<'a>(&'a [*mut c_void]);

impl Arguments<'_> {
    /// # Safety
    /// The argument at that position is of type `T`.
    unsafe fn get<T: Copy>(self, at: usize) -> T {
        // SAFETY: each address is that of an argument, which the caller promises to be of that type.
        unsafe { self.0[at].cast::<T>().read() }
    }

    /// A handle, or any pointer.
    ///
    /// # Safety
    /// The argument at that position is a pointer.
    unsafe fn pointer(self, at: usize) -> *const c_void {
        // SAFETY: the caller's promise.
        unsafe { self.get(at) }
    }

    /// # Safety
    /// The argument is an integer of that size.
    unsafe fn count(self, count: Count) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            match count.size {
                4 => self.get::<u32>(count.at) as usize,
                _ => self.get::<usize>(count.at),
            }
        }
    }

    /// What an output received: an argument at that position points to it.
    ///
    /// # Safety
    /// The argument is a pointer to a `T`, null or readable.
    unsafe fn written<T: Copy>(self, at: usize) -> Option<T> {
        // SAFETY: the caller's promise.
        unsafe { self.get::<*const T>(at).as_ref() }.copied()
    }

    /// Has an output that the caller does not want written to `to`.
    ///
    /// # Safety
    /// The argument is a pointer to a `T`; `to` outlives the call.
    unsafe fn want<T>(self, at: usize, to: &mut T) {
        // SAFETY: the caller's promise; the argument is the wrapper's own variable.
        unsafe {
            let output = self.0[at].cast::<*mut T>();
            if output.read().is_null() {
                output.write(to);
            }
        }
    }
}

/// Makes a call, and notes which handles it uses, gives out and gives back. A function's roles are
/// constants: inlined, the walk is unrolled and takes no more instructions than code for each
/// function.
///
/// # Safety
/// `arguments` are the addresses of the function's arguments, which `below` passes on.
#[inline(always)]
unsafe fn around<const NUMBER: usize>(
    arguments: &[*mut c_void],
    below: &mut impl FnMut() -> ur_result_t,
) -> ur_result_t {
    let function = const { &ROLES[NUMBER] };
    let arguments = Arguments(arguments);
    let call = Call::new(const { NAMES[NUMBER] });
    if call.vets() {
        // SAFETY: the caller's promise.
        let vetted = boundary(|| unsafe { uses_all(&call, arguments, function.uses) });
        if vetted != UR_RESULT_SUCCESS {
            return vetted;
        }
    }
    if function.gives.is_empty() {
        return below();
    }
    let mut release = None;
    let mut before = [std::ptr::null(); MAX_GIVEN];
    let (mut elements, mut bytes) = (0u32, 0usize);
    for ((at, role), before) in function.gives.iter().zip(&mut before) {
        // SAFETY: the roles are those of the function's arguments; outputs are null or readable.
        unsafe {
            match role {
                Role::Releases(kind) => match call.release(*kind, arguments.pointer(*at)) {
                    Ok(under_way) => release = Some(under_way),
                    Err(error) => return error,
                },
                Role::Makes { .. } => *before = call.before(arguments.get(*at)),
                Role::Keeps(kind) => *before = call.previous_output(*kind, arguments.get(*at)),
                Role::Fills {
                    total: Some(total), ..
                } if !arguments.pointer(*at).is_null() => arguments.want(*total, &mut elements),
                Role::Tells {
                    size: Some(size), ..
                } if !arguments.pointer(*at).is_null() => arguments.want(size.written, &mut bytes),
                _ => {}
            }
        }
    }
    let result = below();
    if let Some(release) = release {
        release.ended(result);
    }
    for ((at, role), before) in function.gives.iter().zip(before) {
        if let Role::Makes { kind, cleared } = role {
            // Where a refusal leaves null, what is there was given out: some adapters give a program
            // that did not link, for its log.
            let result = if *cleared { UR_RESULT_SUCCESS } else { result };
            // SAFETY: the output is null or has what the adapter has written.
            unsafe { call.made(*kind, arguments.get(*at), before, result) };
        }
    }
    if call.gave(result) {
        boundary(|| {
            // SAFETY: the argument is a handle.
            let handle = |at| unsafe { arguments.pointer(at) };
            let lender = function.leader.map(|(kind, at)| (kind, handle(at)));
            for ((at, role), before) in function.gives.iter().zip(before) {
                // SAFETY: the call succeeded: what it promises to write is written.
                unsafe { gave(&call, arguments, *at, role, before, lender) };
            }
            Ok(())
        });
    }
    result
}

/// # Safety
/// As for [`uses`], of all arguments.
#[inline(always)]
unsafe fn uses_all(call: &Call, arguments: Arguments<'_>, roles: &[Placed]) -> Result<()> {
    for (at, role) in roles {
        // SAFETY: the caller's promise.
        unsafe { uses(call, arguments, *at, role) }?;
    }
    Ok(())
}

/// Refuses a handle that may not be used.
///
/// # Safety
/// The role is that of the argument at that position, which is as the specification asks.
#[inline(always)]
unsafe fn uses(call: &Call, arguments: Arguments<'_>, at: usize, role: &Role) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        match *role {
            Role::Uses(kind) | Role::Retains(kind) => call.uses(kind, arguments.pointer(at)),
            Role::UsesList(kind, count) => {
                call.uses_list(kind, arguments.get(at), arguments.count(count))
            }
            Role::UsesNested(nested, count) => {
                let count = count.map_or(1, |count| arguments.count(count));
                match nested {
                    Nested::KernelArguments => call.uses_arguments(arguments.get(at), count),
                    Nested::KernelUpdates => call.uses_updates(arguments.get(at), count),
                    Nested::PoolDescription => call.uses_pool_desc(arguments.get(at)),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Notes what a call that succeeded has given out.
///
/// # Safety
/// As for [`uses`], after a success.
#[inline(always)]
unsafe fn gave(
    call: &Call,
    arguments: Arguments<'_>,
    at: usize,
    role: &Role,
    before: *const c_void,
    lender: Option<(Kind, *const c_void)>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (*role, lender) {
            (Role::Retains(kind), _) => call.retained(kind, arguments.pointer(at)),
            (Role::Keeps(kind), _) => call.made_unless(kind, arguments.get(at), before),
            (Role::Lends(kind), Some(lender)) => call.lent(kind, arguments.get(at), lender),
            (
                Role::Fills {
                    kind,
                    room,
                    lent,
                    total,
                },
                _,
            ) => {
                let room = arguments.count(room);
                let filled = total.and_then(|total| arguments.written::<u32>(total));
                let filled = filled.map_or(room, |filled| room.min(filled as usize));
                call.filled(kind, arguments.get(at), filled, lender.filter(|_| lent));
            }
            (
                Role::Tells {
                    properties,
                    property,
                    size,
                },
                Some(lender),
            ) => {
                let asked = arguments.get::<u32>(property);
                let Some(found) = properties.iter().find(|known| known.value == asked) else {
                    return;
                };
                let bytes = size.map_or(size_of::<usize>(), |size| {
                    let room = arguments.get::<usize>(size.room);
                    arguments
                        .written(size.written)
                        .map_or(0, |bytes: usize| bytes.min(room))
                });
                let bytes = match found.list {
                    true => bytes,
                    false => bytes.min(size_of::<usize>()),
                };
                call.queried(found.kind, arguments.get(at), bytes, lender);
            }
            _ => {}
        }
    }
}
