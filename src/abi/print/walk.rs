//! From a value's form to its text: the one routine that every printer is.
//!
//! Owns every read through a caller's pointer. A structure or list is followed only where its form
//! says that it is one, and a chain only so far, so that a cycle in it ends.

use std::ffi::{CStr, c_char, c_void};

use super::form::{Form, Member, Number, PropertyForm};
use super::{Out, UNKNOWN};
use crate::abi::property::Property;
use crate::abi::{tagged, ur_structure_type_t};

/// Structures of a chain that are printed before the rest is left out.
const CHAIN_LIMIT: usize = 32;

/// Values of a list that a brief text shows.
const BRIEF_VALUES: usize = 32;

/// Bytes of a string that a brief text shows.
const BRIEF_BYTES: usize = 256;

/// Members that lie together, so that one can tell how another reads.
#[derive(Clone, Copy)]
pub struct Owner {
    pub members: &'static [Member],
    pub base: *const u8,
    /// The members are arguments: each lies behind a pointer.
    pub is_call: bool,
}

impl Owner {
    /// The owner of values that no other explains.
    pub const NONE: Owner = Owner {
        members: &[],
        base: std::ptr::null(),
        is_call: false,
    };

    /// A member and where it lies.
    ///
    /// # Safety
    /// The owner is readable.
    pub unsafe fn member(&self, at: usize) -> Option<(&'static Member, *const u8)> {
        let member = self.members.get(at)?;
        // SAFETY: the offset is the member's.
        let place = unsafe { self.base.add(member.offset) };
        let place = match self.is_call {
            // SAFETY: an owner that is a call has a pointer there.
            true => unsafe { read::<*const u8>(place) },
            false => place,
        };
        Some((member, place))
    }

    /// A member that counts or sizes another. What no length can be is 0.
    ///
    /// # Safety
    /// The owner is readable.
    unsafe fn length(&self, at: usize) -> usize {
        // SAFETY: the caller guarantees a readable owner, and the form is the member's.
        unsafe {
            match self.member(at) {
                Some((member, place)) => match member.form {
                    Form::Number(Number::U32) => read::<u32>(place) as usize,
                    Form::Number(Number::U64) => read::<usize>(place),
                    _ => 0,
                },
                None => 0,
            }
        }
    }
}

/// # Safety
/// The value is readable.
pub unsafe fn read<T: Copy>(at: *const u8) -> T {
    // SAFETY: the caller guarantees a readable value, and values of the C interface are plain.
    unsafe { at.cast::<T>().read_unaligned() }
}

/// Appends the text of the value at `at`.
///
/// # Safety
/// The value is readable and has that form. Its pointers, where the form follows them, are null or
/// lead to such values.
pub unsafe fn value(form: &Form, at: *const u8, owner: &Owner, out: &mut Out) {
    // SAFETY: the caller guarantees a readable value, and each arm reads a part of it.
    unsafe {
        match *form {
            Form::Number(number) => self::number(number, at, out),
            Form::Truth => out.push(if *at == 0 { "false" } else { "true" }),
            Form::Version => {
                let version = read::<u32>(at);
                // Signed, as the macros of C take it.
                out.show(format_args!(
                    "{}.{}",
                    version.cast_signed() >> 16,
                    version & 0xffff
                ));
            }
            Form::Enum(name) | Form::Query(name, _) => {
                out.push(name(read::<u32>(at)).unwrap_or(UNKNOWN));
            }
            Form::Flags(names) => flags(read::<u32>(at), names, out),
            Form::Bit(names) => {
                let bit = read::<u32>(at);
                let found = names.iter().find(|(named, _)| *named == bit);
                out.push(found.map_or(UNKNOWN, |(_, name)| name));
            }
            Form::Struct(layout) => {
                out.show(format_args!("(struct {}){{", layout.name));
                let owner = Owner {
                    members: layout.members,
                    base: at,
                    is_call: false,
                };
                members(&owner, out);
                out.push("}");
            }
            Form::Call(arguments) => members(
                &Owner {
                    members: arguments,
                    base: at,
                    is_call: true,
                },
                out,
            ),
            Form::Array(element, length) => list(element, at, length, out),
            Form::Address => address(read::<usize>(at), "nullptr", out),
            Form::Bare => address(read::<usize>(at), "0", out),
            Form::Text => text(read::<*const c_char>(at), out),
            Form::Pointer(target) => pointer(target, read::<*const u8>(at), out),
            Form::List(element, count) => {
                let first = read::<*const u8>(at);
                address(first.addr(), "nullptr", out);
                if !first.is_null() {
                    out.push(" ");
                    list(element, first, owner.length(count), out);
                }
            }
            Form::Chain => chain(read::<*const c_void>(at), out),
            Form::Union(layout, tag) => {
                out.show(format_args!("(union {}){{", layout.name));
                let tag = owner.member(tag).map(|(_, place)| read::<u32>(place));
                let choices = layout.choices.iter();
                match choices.clone().find(|choice| Some(choice.0) == tag) {
                    Some((_, name, form)) => {
                        out.show(format_args!(".{name} = "));
                        value(form, at, owner, out);
                        out.push("}");
                    }
                    None => out.push("<unknown>"),
                }
            }
            Form::Info(name, size) => {
                let bytes = read::<*const u8>(at);
                match owner.member(name) {
                    _ if bytes.is_null() => out.push("nullptr"),
                    Some((member, place)) => {
                        let properties = match member.form {
                            Form::Query(_, properties) => properties,
                            _ => &[],
                        };
                        property(properties, read(place), bytes, owner.length(size), out);
                    }
                    None => out.push(UNKNOWN),
                }
            }
        }
    }
}

/// All members, as `.name = value`, apart by commas.
///
/// # Safety
/// As for [`value`].
unsafe fn members(owner: &Owner, out: &mut Out) {
    for at in 0..owner.members.len() {
        // SAFETY: the caller guarantees that it is readable.
        unsafe {
            if let Some((member, place)) = owner.member(at) {
                out.push(if at == 0 { "." } else { ", ." });
                out.push(member.name);
                out.push(" = ");
                value(&member.form, place, owner, out);
            }
        }
    }
}

/// # Safety
/// As for [`value`].
unsafe fn number(number: Number, at: *const u8, out: &mut Out) {
    // SAFETY: the caller guarantees that it is readable.
    unsafe {
        match number {
            Number::I8 => out.show(read::<i8>(at)),
            Number::U8 => out.show(read::<u8>(at)),
            Number::U16 => out.show(read::<u16>(at)),
            Number::U32 => out.show(read::<u32>(at)),
            Number::U64 => out.show(read::<u64>(at)),
            Number::I32 => out.show(read::<i32>(at)),
            Number::F32 => float(read::<f32>(at), out),
        }
    }
}

/// Six significant digits, as C++ streams show them.
fn float(value: f32, out: &mut Out) {
    if !value.is_finite() {
        return out.show(value.to_string().to_lowercase());
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(5 - exponent) {
        Ok(decimals) if exponent >= -4 => out.push(&trim(&format!("{value:.decimals$}"))),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            out.show(format_args!("{}e{sign}{:02}", trim(digits), exponent.abs()));
        }
    }
}

fn flags(bits: u32, names: &[(u32, &str)], out: &mut Out) {
    let mut rest = bits;
    let mut separator = "";
    for &(bit, name) in names {
        if bits & bit == bit {
            out.push(separator);
            out.push(name);
            separator = " | ";
            rest &= !bit;
        }
    }
    if rest != 0 {
        out.show(format_args!("{separator}unknown bit flags {rest:032b}"));
    } else if bits == 0 {
        out.push("0");
    }
}

fn address(address: usize, null: &str, out: &mut Out) {
    match address {
        0 => out.push(null),
        address => out.show(format_args!("{address:#x}")),
    }
}

/// # Safety
/// The text is null or a C string.
unsafe fn text(text: *const c_char, out: &mut Out) {
    address(text.addr(), "nullptr", out);
    if !text.is_null() {
        // SAFETY: not null, so a string that the caller lets us read.
        quoted(unsafe { CStr::from_ptr(text) }.to_bytes(), out);
    }
}

fn quoted(text: &[u8], out: &mut Out) {
    let shown = match out.brief {
        true => text.get(..BRIEF_BYTES).unwrap_or(text),
        false => text,
    };
    out.push(" (");
    out.text.extend_from_slice(shown);
    out.push(if shown.len() < text.len() {
        "...)"
    } else {
        ")"
    });
}

/// # Safety
/// As for [`value`], if the target is not null.
unsafe fn pointer(form: &Form, target: *const u8, out: &mut Out) {
    address(target.addr(), "nullptr", out);
    if !target.is_null() {
        out.push(" (");
        // SAFETY: not null, so a value that the caller lets us read.
        unsafe { value(form, target, &Owner::NONE, out) };
        out.push(")");
    }
}

/// Values between braces, apart by commas.
///
/// # Safety
/// As for [`value`], for each of the values.
unsafe fn list(form: &Form, first: *const u8, length: usize, out: &mut Out) {
    out.push("{");
    for at in 0..length {
        if at != 0 {
            out.push(", ");
        }
        if out.brief && at == BRIEF_VALUES {
            out.push("...");
            break;
        }
        // SAFETY: the caller lets us read as many values as it says there are.
        unsafe { value(form, first.add(at * form.size()), &Owner::NONE, out) };
    }
    out.push("}");
}

/// # Safety
/// `next` is null or a chain of structures that each begin with their tag.
unsafe fn chain(next: *const c_void, out: &mut Out) {
    if next.is_null() {
        return out.push("nullptr");
    }
    // SAFETY: not null, so a structure that begins with its tag.
    let tag = unsafe { read::<ur_structure_type_t>(next.cast()) };
    let Some(form) = tagged(tag) else {
        return out.push(UNKNOWN);
    };
    address(next.addr(), "nullptr", out);
    if out.chain == CHAIN_LIMIT {
        return out.push(" (...)");
    }
    out.chain += 1;
    out.push(" (");
    // SAFETY: the caller guarantees that the whole chain is readable.
    unsafe { value(form, next.cast(), &Owner::NONE, out) };
    out.push(")");
    out.chain -= 1;
}

/// The value of a property.
///
/// # Safety
/// The bytes are readable, and pointers in them as for [`value`].
unsafe fn property(
    properties: &[Property],
    name: u32,
    bytes: *const u8,
    size: usize,
    out: &mut Out,
) {
    let Some(found) = properties.iter().find(|property| property.value == name) else {
        return out.push(UNKNOWN);
    };
    match &found.printed {
        // A string up to its zero byte, and never beyond the buffer.
        PropertyForm::Text => {
            address(bytes.addr(), "nullptr", out);
            // SAFETY: the caller says that so many bytes are readable.
            let bytes = unsafe { std::slice::from_raw_parts(bytes, size) };
            let text = bytes.split(|byte| *byte == 0).next();
            quoted(text.unwrap_or_default(), out);
        }
        PropertyForm::One(form) if size < form.size() => out.show(format_args!(
            "invalid size (is: {size}, expected: >={})",
            form.size()
        )),
        // SAFETY: the bytes hold such a value.
        PropertyForm::One(form) => unsafe { pointer(form, bytes, out) },
        // SAFETY: the bytes hold as many values as fit.
        PropertyForm::List(form) => unsafe { list(form, bytes, size / form.size(), out) },
    }
}
