//! The arguments of calls as text, from the list of functions.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::sync::LazyLock;

use super::form::{Form, Member, Reads, place, same};
use super::walk::{self, Owner};
use super::{Out, Print};
use crate::abi::functions::UNUSUAL;
use crate::abi::*;

/// The arguments of a call, one by one. As a text they stand as `.name = value`, apart by commas.
pub trait Call: Print {
    /// Shows each argument, in order. Nothing behind an argument is read before its value is printed.
    ///
    /// # Safety
    /// Each member of the parameter struct points to the argument.
    unsafe fn each(&self, show: &mut dyn FnMut(Passed<'_>));
}

/// One argument of a call.
pub struct Passed<'a> {
    pub name: &'static str,
    /// Where the callee writes, if that is what the argument is for; its value may be printed only
    /// after the call has succeeded.
    pub output: Option<usize>,
    pub value: &'a dyn Print,
}

/// The arguments of a call that takes none.
#[repr(C)]
pub struct NoArguments([u8; 0]);

impl Reads for NoArguments {
    const FORM: Form = Form::Call(&[]);
}

impl Call for NoArguments {
    unsafe fn each(&self, _show: &mut dyn FnMut(Passed<'_>)) {}
}

/// # Safety
/// As for [`Call::each`].
unsafe fn each<T: Reads>(call: &T, show: &mut dyn FnMut(Passed<'_>)) {
    let members = match T::FORM {
        Form::Call(arguments) => arguments,
        _ => &[],
    };
    let base = std::ptr::from_ref(call).cast();
    // SAFETY: the caller guarantees that the call's pointers are readable, and these are its members.
    unsafe {
        each_of(
            Owner {
                members,
                base,
                is_call: true,
            },
            show,
        )
    };
}

/// # Safety
/// The owner is the parameter struct of a call; as for [`Call::each`].
unsafe fn each_of(owner: Owner, show: &mut dyn FnMut(Passed<'_>)) {
    for at in 0..owner.members.len() {
        // SAFETY: each member of the parameter struct points to the argument.
        let Some((member, place)) = (unsafe { owner.member(at) }) else {
            continue;
        };
        show(Passed {
            name: member.name,
            // SAFETY: an output is a pointer.
            output: member.is_output.then(|| unsafe { walk::read(place) }),
            value: &Argument {
                form: &member.form,
                place,
                owner,
            },
        });
    }
}

struct Argument {
    form: &'static Form,
    place: *const u8,
    owner: Owner,
}

impl Print for Argument {
    unsafe fn print(&self, out: &mut Out) {
        // SAFETY: `each` found the argument there; the caller guarantees that its pointers are readable.
        unsafe { walk::value(self.form, self.place, &self.owner, out) };
    }
}

/// The form of an argument, and whether the callee writes behind it, from its type and from what the
/// list of functions says that it is.
macro_rules! role {
    ($names:ident $ty:ty = $need:ident callback) => {
        (Form::Bare, false)
    };
    ($names:ident $ty:ty = $need:ident info $property:ident $size:ident) => {
        (
            Form::Info(
                place($names, stringify!($property)),
                place($names, stringify!($size)),
            ),
            true,
        )
    };
    ($names:ident $ty:ty = $need:ident info $($rest:tt)*) => {
        (<$ty>::FORM, true)
    };
    ($names:ident $ty:ty = $need:ident output $($rest:tt)*) => {
        (<$ty>::FORM, true)
    };
    ($names:ident $ty:ty = $need:ident outputs $kind:ident $count:ident $($rest:tt)*) => {
        (
            list(
                <$ty>::FORM,
                &<$ty>::TARGET,
                place($names, stringify!($count)),
            ),
            true,
        )
    };
    ($names:ident $ty:ty = $need:ident handles $kind:ident $count:ident) => {
        (
            list(
                <$ty>::FORM,
                &<$ty>::TARGET,
                place($names, stringify!($count)),
            ),
            false,
        )
    };
    ($names:ident $ty:ty = $need:ident list $count:ident) => {
        (
            list(
                <$ty>::FORM,
                &<$ty>::TARGET,
                place($names, stringify!($count)),
            ),
            false,
        )
    };
    ($names:ident $ty:ty = $need:ident room $count:ident $($rest:tt)*) => {
        (
            list(
                <$ty>::FORM,
                &<$ty>::TARGET,
                place($names, stringify!($count)),
            ),
            is_typed(<$ty>::FORM),
        )
    };
    ($names:ident $ty:ty = $need:ident result) => {
        (<$ty>::FORM, is_typed(<$ty>::FORM))
    };
    ($names:ident $ty:ty = $($rest:tt)*) => {
        (<$ty>::FORM, false)
    };
}

macro_rules! arguments {
    ($name:ident - ()) => {};
    ($name:ident $params:ident (
        $( $arg:ident: $ty:ty = $mutability:tt $field:ident [$($role:tt)*] ),*
    )) => {
        impl Reads for $params {
            const FORM: Form = Form::Call(&{
                #[allow(dead_code, reason = "often no member refers to another")]
                const NAMES: &[&str] = &[$(stringify!($arg)),*];
                [$(argument(
                    stringify!($name),
                    stringify!($arg),
                    offset_of!($params, $field),
                    role!(NAMES $ty = $($role)*),
                )),*]
            });
        }
        impl Call for $params {
            unsafe fn each(&self, show: &mut dyn FnMut(Passed<'_>)) {
                // SAFETY: the caller guarantees that the call's pointers are readable.
                unsafe { each(self, show) };
            }
        }
    };
}

macro_rules! behind {
    (-) => {
        |params| params.cast::<NoArguments>() as *const dyn Call
    };
    ($params:ident) => {
        |params| params.cast::<$params>() as *const dyn Call
    };
}

macro_rules! calls {
    ($( $table:tt $struct:tt { $(
        $name:ident $slot:tt $pfn:ident $params:tt $leader:tt $args:tt
    )* } )*) => {
        $($(arguments! { $name $params $args })*)*

        /// Every function with the way to its arguments.
        const CALLS: &[(&str, Behind)] = &[$($(
            (stringify!($name), behind!($params)),
        )*)*];
    };
}
for_each_function! { for_each_loader_function calls }

/// From a pointer to a function's parameter struct to the struct.
type Behind = fn(*const c_void) -> *const dyn Call;

/// The arguments of a call, from the number of its function.
///
/// # Safety
/// `params` points to the function's parameter struct, which lives for `'a`, and each of its
/// members to the argument.
pub unsafe fn arguments<'a>(
    function: ur_function_t,
    params: *const c_void,
) -> Option<&'a dyn Call> {
    static BY_NUMBER: LazyLock<Vec<Option<Behind>>> = LazyLock::new(by_number);
    let behind = BY_NUMBER.get(function.0 as usize)?.as_ref()?;
    // SAFETY: the caller guarantees that `params` is that struct.
    Some(unsafe { &*behind(params) })
}

/// The functions by their numbers: `UR_FUNCTION_QUEUE_CREATE` is that of `urQueueCreate`.
fn by_number() -> Vec<Option<Behind>> {
    let letters = |name: &str| name.replace('_', "").to_lowercase();
    let named = CALLS.iter().map(|(name, behind)| (letters(name), *behind));
    let named: BTreeMap<String, Behind> = named.collect();
    let mut found = Vec::new();
    for number in ur_function_t::ALL {
        let name = number.name().unwrap_or_default();
        let name = letters(&name.replace("UR_FUNCTION_", "UR_"));
        let at = number.0 as usize;
        found.resize(found.len().max(at + 1), None);
        found[at] = named.get(&name).copied();
    }
    found
}

const fn argument(
    function: &str,
    name: &'static str,
    offset: usize,
    (form, is_output): (Form, bool),
) -> Member {
    let form = match unusual(function, name) {
        Some(unusual) => unusual,
        None => form,
    };
    Member {
        is_output,
        ..Member::new(name, offset, form)
    }
}

/// The form of an argument that [`UNUSUAL`] lists.
const fn unusual(function: &str, argument: &str) -> Option<Form> {
    let mut at = 0;
    while at < UNUSUAL.len() {
        let (owner, name, form) = UNUSUAL[at];
        if same(owner, function) && same(name, argument) {
            return Some(form);
        }
        at += 1;
    }
    None
}

/// Whether a pointer leads to values of a type, not to mere memory.
const fn is_typed(pointer: Form) -> bool {
    !matches!(pointer, Form::Address)
}

/// A list behind a pointer; mere memory is an address.
const fn list(pointer: Form, element: &'static Form, count: usize) -> Form {
    match is_typed(pointer) {
        true => Form::List(element, count),
        false => pointer,
    }
}
