//! Refused arguments: what is wrong, and with which argument.
//!
//! Owns the checks of single arguments and their words. Must never know which function is called.

use std::fmt;

use ur::abi::*;
use ur::object::checks::slice;

use super::Checked;

/// Why a call is refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    pub code: ur_result_t,
    /// The argument's name. Empty if a condition over several is not met.
    argument: &'static str,
    /// The position of the element in the argument's list.
    element: Option<usize>,
    /// The member of the struct behind the argument. Empty for the argument itself.
    member: &'static str,
    fault: Fault,
}

/// What is wrong with an argument, an element or a member.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Null,
    /// An enumerator or flags outside of the type.
    Undefined(u32),
    /// A list that is null, with its count.
    NoList(usize),
    /// A list that is given, with a count of 0.
    NoCount,
    /// A list that is misaligned or larger than memory, with its count.
    NoArray(usize),
    /// A condition of the specification, in its words.
    Condition(&'static str),
}

pub type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    #[cold]
    fn new(argument: &'static str, code: ur_result_t, fault: Fault) -> Refusal {
        Refusal {
            code,
            argument,
            element: None,
            member: "",
            fault,
        }
    }

    /// The refusal as text. `arguments` are the names of the function's arguments, in order.
    pub fn text(&self, arguments: &[&str]) -> impl fmt::Display {
        fmt::from_fn(move |out| {
            let is_it = |name: &&str| *name == self.argument;
            if let Some(at) = arguments.iter().position(is_it) {
                if let Some(element) = self.element {
                    write!(out, "element {element} of ")?;
                }
                write!(out, "argument {} ({})", at + 1, self.argument)?;
                if !self.member.is_empty() {
                    write!(out, ", member {},", self.member)?;
                }
                out.write_str(" ")?;
            }
            write!(out, "{}", self.fault)
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fault::Null => out.write_str("is null"),
            Fault::Undefined(value) => write!(out, "has an undefined value: {value:#x}"),
            Fault::NoList(count) => write!(out, "is null, but its count is {count}"),
            Fault::NoCount => out.write_str("is given, but its count is 0"),
            Fault::NoArray(count) => write!(out, "is no array of {count} elements"),
            Fault::Condition(text) => out.write_str(text),
        }
    }
}

/// Fails with `code` unless a pointer, a callback or a handle is given.
#[inline]
pub fn given(argument: &'static str, is_given: bool, code: ur_result_t) -> Result<()> {
    match is_given {
        true => Ok(()),
        false => Err(Refusal::new(argument, code, Fault::Null)),
    }
}

/// `INVALID_ENUMERATION` unless a value is one of its type.
#[inline]
pub fn defined(argument: &'static str, is_defined: bool, value: u32) -> Result<()> {
    let code = UR_RESULT_ERROR_INVALID_ENUMERATION;
    match is_defined {
        true => Ok(()),
        false => Err(Refusal::new(argument, code, Fault::Undefined(value))),
    }
}

/// A check of a struct's member, or of an element itself if `member` is empty.
#[inline]
pub fn member(member: &'static str, checked: Result<()>) -> Result<()> {
    checked.map_err(|refusal| Refusal { member, ..refusal })
}

/// Fails if a condition of the specification is met that forbids the call.
#[inline]
pub fn refuse(is_met: bool, code: ur_result_t, text: &'static str) -> Result<()> {
    match is_met {
        false => Ok(()),
        true => Err(Refusal::new("", code, Fault::Condition(text))),
    }
}

/// `INVALID_EVENT_WAIT_LIST` unless a wait list is null exactly if its count is 0.
#[inline]
pub fn wait_list<T>(argument: &'static str, list: *const T, count: u32) -> Result<()> {
    let fault = match (list.is_null(), count) {
        (true, 0) => return Ok(()),
        (true, count) => Fault::NoList(count as usize),
        (false, 0) => Fault::NoCount,
        (false, _) => return Ok(()),
    };
    let code = UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST;
    Err(Refusal::new(argument, code, fault))
}

/// Checks a list of handles: neither a handle nor a list with elements may be null. `null` is the
/// error.
///
/// # Safety
/// The list is null or has `count` readable elements.
pub unsafe fn handles<T>(
    argument: &'static str,
    list: *const *mut T,
    count: usize,
    null: ur_result_t,
) -> Result<()> {
    if list.is_null() && count > 0 {
        return Err(Refusal::new(argument, null, Fault::NoList(count)));
    }
    // SAFETY: the caller guarantees `count` readable elements.
    let list = unsafe { array(argument, list, count) }?;
    match list.iter().position(|handle| handle.is_null()) {
        None => Ok(()),
        at => Err(Refusal {
            element: at,
            ..Refusal::new(argument, null, Fault::Null)
        }),
    }
}

/// Checks the value behind a pointer that is not null.
///
/// # Safety
/// The pointer is null or readable.
pub unsafe fn pointee<T: Checked>(argument: &'static str, pointer: *const T) -> Result<()> {
    // SAFETY: the caller guarantees a null or readable pointer.
    let checked = unsafe { pointer.as_ref() }.map_or(Ok(()), T::check);
    checked.map_err(|refusal| Refusal {
        argument,
        ..refusal
    })
}

/// Checks each element of an array that is not null.
///
/// # Safety
/// The array is null or has `count` readable elements.
pub unsafe fn elements<T: Checked>(
    argument: &'static str,
    list: *const T,
    count: usize,
) -> Result<()> {
    if !T::ANY || list.is_null() {
        return Ok(());
    }
    // SAFETY: not null, and the caller guarantees `count` readable elements.
    for (at, element) in unsafe { array(argument, list, count) }?.iter().enumerate() {
        element.check().map_err(|refusal| Refusal {
            argument,
            element: Some(at),
            ..refusal
        })?;
    }
    Ok(())
}

/// A caller's array, with the errors of [`slice()`].
///
/// # Safety
/// The array is null or has `count` readable elements for as long as the result is used.
unsafe fn array<'a, T>(argument: &'static str, list: *const T, count: usize) -> Result<&'a [T]> {
    // SAFETY: the caller guarantees `count` readable elements.
    unsafe { slice(list, count) }
        .map_err(|error| Refusal::new(argument, error.code(), Fault::NoArray(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal as text, for a function with three arguments.
    fn text(result: Result<()>) -> String {
        let refusal = result.expect_err("refused");
        refusal.text(&["hQueue", "list", "pProps"]).to_string()
    }

    #[test]
    fn the_argument_is_named_by_position_and_name() {
        let null = UR_RESULT_ERROR_INVALID_NULL_HANDLE;
        assert_eq!(
            text(given("hQueue", false, null)),
            "argument 1 (hQueue) is null"
        );
        assert_eq!(
            text(defined("pProps", false, 0x3e7)),
            "argument 3 (pProps) has an undefined value: 0x3e7"
        );
        assert_eq!(
            text(refuse(true, UR_RESULT_ERROR_INVALID_SIZE, "size is 0")),
            "size is 0"
        );
        assert!(given("hQueue", true, null).is_ok() && refuse(false, null, "").is_ok());
    }

    #[test]
    fn lists_name_the_element() {
        let mut one = 0u8;
        let list: [*mut u8; 3] = [&raw mut one, std::ptr::null_mut(), &raw mut one];
        let code = UR_RESULT_ERROR_INVALID_NULL_HANDLE;
        // SAFETY: the lists have that many elements, or are null.
        let check = |list, count| unsafe { handles("list", list, count, code) };
        assert_eq!(
            text(check(list.as_ptr(), 3)),
            "element 1 of argument 2 (list) is null"
        );
        assert!(check(list.as_ptr(), 1).is_ok() && check(std::ptr::null(), 0).is_ok());
        assert_eq!(
            text(check(std::ptr::null(), 2)),
            "argument 2 (list) is null, but its count is 2"
        );
        let misaligned = list.as_ptr().wrapping_byte_add(1);
        assert_eq!(
            text(check(misaligned, 1)),
            "argument 2 (list) is no array of 1 elements"
        );
        assert_eq!(
            text(wait_list("list", list.as_ptr(), 0)),
            "argument 2 (list) is given, but its count is 0"
        );
    }

    #[test]
    fn structs_name_the_member() {
        let bad = ur_context_properties_t {
            flags: ur_context_flags_t(1 << 30),
            ..ur_context_properties_t::default()
        };
        let good = ur_context_properties_t::default();
        // SAFETY: the pointers are readable.
        let (one, list) = unsafe {
            (
                pointee("pProps", &bad),
                elements("pProps", [good, bad].as_ptr(), 2),
            )
        };
        assert_eq!(
            text(one),
            "argument 3 (pProps), member flags, has an undefined value: 0x40000000"
        );
        assert_eq!(
            text(list),
            "element 1 of argument 3 (pProps), member flags, has an undefined value: 0x40000000"
        );
    }
}
