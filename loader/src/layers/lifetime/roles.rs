//! The role of each argument of each function, and the walk over the arguments around a call.
//!
//! The roles follow from the list of functions. Two lists complete it: properties whose
//! values are handles, and arguments that point to structs with handles.

use std::ffi::{c_char, c_void};

use ur::abi::*;
use ur::object::{Kind, Result, boundary};

use super::Call;
use crate::layers::memory::{ALLOCATES, FREES};
use crate::layers::wrappers::{NAMES, number, wrappers};

/// The role of an argument. Numbers are positions of other arguments.
#[derive(Clone, Copy)]
enum Role {
    /// The argument has no handles.
    None,
    Uses(Kind),
    Retains(Kind),
    Releases(Kind),
    UsesList(Kind, Count),
    /// Receives a new handle with a reference. `cleared`: the output is null after a refusal.
    Creates {
        kind: Kind,
        cleared: bool,
    },
    /// Receives a new handle, unless it already holds a handle of the caller.
    Keeps(Kind),
    /// Receives a handle without a reference.
    Lends(Kind),
    /// Receives a list of handles; `total` is the output for their number.
    Fills {
        kind: Kind,
        room: Count,
        lent: bool,
        total: Option<usize>,
    },
    /// Receives a property's value, which may be a handle.
    Queries {
        properties: &'static [Property],
        property: usize,
        size: Option<Size>,
    },
    /// A struct with handles, or a list of such structs.
    UsesNested(Nested, Option<Count>),
}

/// The arguments with the size of a value's buffer and for the size of the value, in bytes.
#[derive(Clone, Copy)]
struct Size {
    room: usize,
    written: usize,
}

/// The argument with the number of a list's elements.
#[derive(Clone, Copy)]
struct Count {
    at: usize,
    /// The size of the argument's type in bytes.
    size: usize,
}

/// An argument's position and role.
type Placed = (usize, Role);

/// The arguments of a function that have handles, in order.
struct Roles {
    /// Arguments with handles that must be alive.
    uses: &'static [Placed],
    /// Arguments that return or release handles.
    transfers: &'static [Placed],
    /// The handle that calls are dispatched by, with its position. It is the lender of lent
    /// handles.
    leader: Option<(Kind, usize)>,
}

/// A list of [`Roles`]. A role may be in both.
#[derive(Clone, Copy)]
enum Part {
    Uses,
    Transfers,
}

const fn is_in(role: &Role, part: Part) -> bool {
    match role {
        Role::None => false,
        Role::Retains(_) => true,
        Role::Uses(_) | Role::UsesList(..) | Role::UsesNested(..) => matches!(part, Part::Uses),
        _ => matches!(part, Part::Transfers),
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

/// The leading handle at a position; none for a list.
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
    ($(
        $name:ident: $( $property:ident $kind:ident $form:ident ),*;
    )*) => {
        /// Properties whose values are handles, by function.
        const PROPERTIES: [&[Property]; NAMES.len()] = {
            let mut rows: [&[Property]; NAMES.len()] = [&[]; NAMES.len()];
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
ur::for_each_handle_property! { properties }

/// The struct types with handles.
#[derive(Clone, Copy)]
pub enum Nested {
    KernelArguments,
    KernelUpdates,
    PoolDescription,
}

macro_rules! structs {
    ($( $name:ident $arg:literal $case:ident; )*) => {
        /// Arguments that lead to structs with handles in them.
        const NESTED: &[(usize, &str, Nested)] = &[$( (number::$name, $arg, Nested::$case) ),*];
    };
}
ur::for_each_struct_with_handles! { structs }

/// Maximum number of a function's arguments that return or release handles.
const MAX_TRANSFERS: usize = {
    let mut max = 0;
    let mut at = 0;
    while at < ROLES.len() {
        if ROLES[at].transfers.len() > max {
            max = ROLES[at].transfers.len();
        }
        at += 1;
    }
    max
};

/// The position of a name in a list of arguments with their sizes. An unknown name fails the build.
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

/// The role of a pointer or a list: that of a nested struct, or none.
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

/// The role of a property's value, if the function has properties with handles.
const fn queries(number: usize, property: usize, size: Option<Size>) -> Role {
    match PROPERTIES[number] {
        [] => Role::None,
        properties => Role::Queries {
            properties,
            property,
            size,
        },
    }
}

macro_rules! role {
    ($name:ident $arg:ident $arguments:ident [$need:ident handle $kind:ident use]) => {
        Role::Uses(Kind::$kind)
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident handle $kind:ident retain]) => {
        Role::Retains(Kind::$kind)
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident handle $kind:ident release]) => {
        Role::Releases(Kind::$kind)
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident handles $kind:ident $count:ident]) => {
        Role::UsesList(Kind::$kind, count($arguments, stringify!($count)))
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident output $kind:ident keep]) => {
        Role::Keeps(Kind::$kind)
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident output $kind:ident lend]) => {
        Role::Lends(Kind::$kind)
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident output $kind:ident $own:ident]) => {
        Role::Creates {
            kind: Kind::$kind,
            cleared: same(stringify!($own), "clear"),
        }
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident outputs $kind:ident $count:ident $own:ident $total:tt]) => {
        Role::Fills {
            kind: Kind::$kind,
            room: count($arguments, stringify!($count)),
            lent: same(stringify!($own), "lend"),
            total: place!($arguments $total),
        }
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident info $property:ident -]) => {
        queries(number::$name, position($arguments, stringify!($property)), None)
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident info $property:ident $size:ident]) => {
        queries(
            number::$name,
            position($arguments, stringify!($property)),
            Some(Size {
                room: position($arguments, stringify!($size)),
                written: position($arguments, "pPropSizeRet"),
            }),
        )
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident list $count:ident]) => {
        nested(number::$name, stringify!($arg), Some(count($arguments, stringify!($count))))
    };
    ($name:ident $arg:ident $arguments:ident [$need:ident pointer]) => {
        nested(number::$name, stringify!($arg), None)
    };
    ($name:ident $arg:ident $arguments:ident $form:tt) => {
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

/// A function's leading handle; none without a leader.
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
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {
        /// The roles of every function's arguments, by number.
        static ROLES: &[Roles] = &[$( $( {
            const ARGUMENTS: &[(&str, usize)] = &[$( (stringify!($arg), size_of::<$ty>()) ),*];
            const ROLES: &[Role] = &[$( role!($name $arg ARGUMENTS $form) ),*];
            Roles {
                uses: const { &pick::<{ length(ROLES, Part::Uses) }>(ROLES, Part::Uses) },
                transfers: const { &pick::<{ length(ROLES, Part::Transfers) }>(ROLES, Part::Transfers) },
                leader: leader!(ARGUMENTS ROLES $leader),
            }
        }, )* )*];
    };
}

ur::for_each_function! { roles }

/// The body of a function of this layer: the walk around the call.
macro_rules! watched {
    ($name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        let params = $params { $( $field: &raw mut $arg ),* };
        // SAFETY: the arguments meet the specification's contract. They are read through the
        // pointers, since the walk may replace an output that the caller passed as null.
        let mut call = || unsafe { $below($( params.$field.read() ),*) };
        let arguments = [$( params.$field as *mut c_void ),*];
        let params = (&raw const params).cast();
        // SAFETY: `arguments` has the addresses of all arguments of this function, and `params`
        // points to its parameter struct.
        unsafe { call_with_checks::<{ number::$name }>(&arguments, params, &mut call) }
    }};
}
ur::for_each_function! { wrappers watched }

/// Functions with handles in their arguments.
const fn wants(number: usize) -> bool {
    !ROLES[number].uses.is_empty() || !ROLES[number].transfers.is_empty()
}

/// The addresses of a call's arguments.
#[derive(Clone, Copy)]
struct Arguments<'a>(&'a [*mut c_void]);

impl Arguments<'_> {
    /// The value of the argument at a position.
    ///
    /// # Safety
    /// The argument at that position is of type `T`.
    unsafe fn get<T: Copy>(self, at: usize) -> T {
        // SAFETY: the wrapper passes addresses of its own variables, and the caller guarantees the
        // type.
        unsafe { self.0[at].cast::<T>().read() }
    }

    /// A pointer or handle argument.
    ///
    /// # Safety
    /// The argument at that position is a pointer.
    unsafe fn pointer(self, at: usize) -> *const c_void {
        // SAFETY: the caller guarantees that the argument is a pointer.
        unsafe { self.get(at) }
    }

    /// The value of a count argument.
    ///
    /// # Safety
    /// The argument is an integer of that size.
    unsafe fn count(self, count: Count) -> usize {
        // SAFETY: the caller guarantees an integer of `count.size` bytes.
        unsafe {
            match count.size {
                4 => self.get::<u32>(count.at) as usize,
                _ => self.get::<usize>(count.at),
            }
        }
    }

    /// The value behind an output argument; none if it is null.
    ///
    /// # Safety
    /// The argument is a pointer to a `T`, null or readable.
    unsafe fn written<T: Copy>(self, at: usize) -> Option<T> {
        // SAFETY: the caller guarantees that the argument is a pointer, null or readable.
        unsafe { self.get::<*const T>(at).as_ref() }.copied()
    }

    /// Redirects an output that the caller passed as null to `to`.
    ///
    /// # Safety
    /// The argument is a pointer to a `T`; `to` outlives the call.
    unsafe fn want<T>(self, at: usize, to: &mut T) {
        // SAFETY: the caller guarantees a pointer argument, and `to` outlives the call. The
        // argument is the wrapper's own variable.
        unsafe {
            let output = self.0[at].cast::<*mut T>();
            if output.read().is_null() {
                output.write(to);
            }
        }
    }
}

/// Makes a call, and records the handles that it uses, returns and releases.
///
/// A function's roles are constants: inlined, the walk is unrolled and as short as code written for
/// each function.
///
/// # Safety
/// `arguments` are the addresses of the function's arguments, which `below` forwards, and `params`
/// is its parameter struct.
#[inline(always)]
unsafe fn call_with_checks<const NUMBER: usize>(
    arguments: &[*mut c_void],
    params: *const c_void,
    below: &mut impl FnMut() -> ur_result_t,
) -> ur_result_t {
    let function = const { &ROLES[NUMBER] };
    let arguments = Arguments(arguments);
    let call = Call::new(NUMBER);
    if call.validates() {
        // SAFETY: the caller guarantees that the arguments are the function's.
        let checked = boundary(|| unsafe { uses_all(&call, arguments, function.uses) });
        if checked != UR_RESULT_SUCCESS {
            return checked;
        }
    }
    let (allocates, frees) = const { (ALLOCATES[NUMBER], FREES[NUMBER]) };
    if function.transfers.is_empty() && allocates.is_none() && frees.is_none() {
        return below();
    }
    // SAFETY: the caller guarantees the parameter struct.
    let free = frees.map(|row| call.frees(unsafe { row(params) }));
    let mut release = None;
    let mut before = [std::ptr::null(); MAX_TRANSFERS];
    let (mut elements, mut bytes) = (0u32, 0usize);
    for ((at, role), before) in function.transfers.iter().zip(&mut before) {
        // SAFETY: `ROLES` has the types of the function's arguments; the specification has outputs
        // null or readable.
        unsafe {
            match role {
                Role::Releases(kind) => match call.release(*kind, arguments.pointer(*at)) {
                    Ok(under_way) => release = Some(under_way),
                    Err(error) => return error,
                },
                Role::Creates { .. } => *before = call.before(arguments.get(*at)),
                Role::Keeps(kind) => *before = call.previous_output(*kind, arguments.get(*at)),
                Role::Fills {
                    total: Some(total), ..
                } if !arguments.pointer(*at).is_null() => arguments.want(*total, &mut elements),
                Role::Queries {
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
    if let Some(free) = free {
        free.ended(result);
    }
    for ((at, role), before) in function.transfers.iter().zip(before) {
        if let Role::Creates { kind, cleared } = role {
            // An output that is null after a refusal has a new handle if it is not null. Some
            // adapters return a program that failed to link, for its log.
            let result = if *cleared { UR_RESULT_SUCCESS } else { result };
            // SAFETY: the output is null or holds what the adapter wrote.
            unsafe { call.created(*kind, arguments.get(*at), before, result) };
        }
    }
    if call.succeeded(result) {
        boundary(|| {
            // SAFETY: `leader` is the position of a handle.
            let handle = |at| unsafe { arguments.pointer(at) };
            let lender = function.leader.map(|(kind, at)| (kind, handle(at)));
            for ((at, role), before) in function.transfers.iter().zip(before) {
                // SAFETY: the call succeeded, so that the adapter has written its outputs.
                unsafe { record_output(&call, arguments, *at, role, before, lender) };
            }
            if let Some(row) = allocates {
                // SAFETY: the caller guarantees the parameter struct, and the call succeeded, so
                // that its queue was live.
                unsafe { call.allocated(&row(params)) };
            }
            Ok(())
        });
    }
    result
}

/// Checks all handles that a call uses.
///
/// # Safety
/// Each role is that of the argument at its position, which meets the specification's contract.
/// As for [`uses`], of all arguments.
#[inline(always)]
unsafe fn uses_all(call: &Call, arguments: Arguments<'_>, roles: &[Placed]) -> Result<()> {
    for (at, role) in roles {
        // SAFETY: the caller guarantees the roles and the arguments.
        unsafe { uses(call, arguments, *at, role) }?;
    }
    Ok(())
}

/// Fails if the call may not use a handle of this argument.
///
/// # Safety
/// The role is that of the argument at that position, which meets the specification's contract.
#[inline(always)]
unsafe fn uses(call: &Call, arguments: Arguments<'_>, at: usize, role: &Role) -> Result<()> {
    // SAFETY: the caller guarantees that the argument has the type of its role.
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

/// Records the handles that a successful call returned through an argument.
///
/// # Safety
/// The call succeeded. The role is that of the argument at that position, which meets the
/// specification's contract.
#[inline(always)]
unsafe fn record_output(
    call: &Call,
    arguments: Arguments<'_>,
    at: usize,
    role: &Role,
    before: *const c_void,
    lender: Option<(Kind, *const c_void)>,
) {
    // SAFETY: the caller guarantees that the argument has the type of its role, and that outputs
    // are written.
    unsafe {
        match (*role, lender) {
            (Role::Retains(kind), _) => call.retained(kind, arguments.pointer(at)),
            (Role::Keeps(kind), _) => call.created_unless(kind, arguments.get(at), before),
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
                Role::Queries {
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
