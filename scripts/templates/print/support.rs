//! What the printers share: numbers, addresses, strings, lists, properties, and where the text goes.
//!
//! Owns every read through a caller's pointer. A structure or list is followed only where the
//! specification says that it is one, and a chain only so far, so that a cycle in it ends.

use super::chained;
use crate::abi::*;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::{Display, Write as _};

/// Structures of a chain that are printed before the rest is left out.
const CHAIN_LIMIT: usize = 32;

/// Values of a list that a brief text shows.
const BRIEF_VALUES: usize = 32;

/// Bytes of a string that a brief text shows.
const BRIEF_BYTES: usize = 256;

/// A value that has a text.
pub trait Print {
    /// Appends the text of the value.
    ///
    /// # Safety
    /// Every pointer in the value that the specification lets a callee read is null or readable.
    unsafe fn print(&self, out: &mut Out);
}

/// The text of a value. Bytes of C strings that are not UTF-8 are replaced.
///
/// # Safety
/// As for [`Print::print`].
pub unsafe fn text(value: &dyn Print) -> String {
    let mut out = Out::default();
    // SAFETY: the caller's promise is the same.
    unsafe { value.print(&mut out) };
    out.into_text()
}

/// Writes the text of a value and a zero byte to a C buffer, which may be null when only the size
/// is wanted. A buffer that is too small is `INVALID_SIZE` and left alone; the size is set even so.
///
/// # Safety
/// As for [`Print::print`]; `buffer` is null or `size` bytes long, `size_ret` null or writable.
pub unsafe fn to_buffer(
    value: &dyn Print,
    buffer: *mut c_char,
    size: usize,
    size_ret: *mut usize,
) -> ur_result_t {
    let mut out = Out::default();
    // SAFETY: the caller's promise is the same.
    unsafe { value.print(&mut out) };
    let text = out.text;
    let needed = text.len() + 1;
    if !size_ret.is_null() {
        // SAFETY: not null, so writable.
        unsafe { size_ret.write_unaligned(needed) };
    }
    if buffer.is_null() {
        return UR_RESULT_SUCCESS;
    }
    if size < needed {
        return UR_RESULT_ERROR_INVALID_SIZE;
    }
    // SAFETY: the buffer is not null and has room for the text and its zero byte.
    unsafe {
        buffer
            .cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    }
    UR_RESULT_SUCCESS
}

/// A text in the making.
#[derive(Default)]
pub struct Out {
    text: Vec<u8>,
    chain: usize,
    brief: bool,
}

impl std::fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Out {
    /// A text that shows the beginnings of long lists and strings only.
    pub fn brief() -> Out {
        Out {
            brief: true,
            ..Out::default()
        }
    }

    /// What was printed. Bytes that are not UTF-8 are replaced.
    pub fn into_text(self) -> String {
        String::from_utf8(self.text)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn show(&mut self, value: impl Display) {
        // Appending to memory cannot fail.
        let _ = write!(self, "{value}");
    }

    /// # Safety
    /// As for [`Print::print`].
    pub(super) unsafe fn member(&mut self, label: &str, value: &dyn Print) {
        self.push(label);
        // SAFETY: the caller's promise is the same.
        unsafe { value.print(self) };
    }

    /// Text between braces, its values apart by commas.
    ///
    /// # Safety
    /// As for [`Print::print`].
    unsafe fn list<T: Print>(&mut self, values: impl Iterator<Item = T>) {
        self.push("{");
        for (index, value) in values.enumerate() {
            if self.brief && index == BRIEF_VALUES {
                self.push(", ...");
                break;
            }
            // SAFETY: the caller's promise is the same.
            unsafe { self.member(if index == 0 { "" } else { ", " }, &value) };
        }
        self.push("}");
    }

    fn address(&mut self, address: usize) {
        self.show(format_args!("{address:#x}"));
    }

    fn flags(&mut self, bits: u32, names: &[(u32, &str)]) {
        let mut rest = bits;
        let mut separator = "";
        for &(bit, name) in names {
            if bits & bit == bit {
                self.push(separator);
                self.push(name);
                separator = " | ";
                rest &= !bit;
            }
        }
        if rest != 0 {
            self.show(format_args!("{separator}unknown bit flags {rest:032b}"));
        } else if bits == 0 {
            self.push("0");
        }
    }
}

/// The named bits of a flag set.
pub trait Bits: Copy {
    const NAMES: &'static [(u32, &'static str)];
    fn bits(self) -> u32;
}

/// One bit of a flag set, printed as an enumerator.
#[repr(transparent)]
pub struct Bit<T>(pub T);

impl<T: Bits> Print for Bit<T> {
    unsafe fn print(&self, out: &mut Out) {
        let bit = self.0.bits();
        out.push(
            T::NAMES
                .iter()
                .find(|(named, _)| *named == bit)
                .map_or(UNKNOWN, |(_, name)| name),
        );
    }
}

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

impl<'a> Passed<'a> {
    pub(super) fn input(name: &'static str, value: &'a dyn Print) -> Passed<'a> {
        Passed {
            name,
            output: None,
            value,
        }
    }

    pub(super) fn output(name: &'static str, address: usize, value: &'a dyn Print) -> Passed<'a> {
        Passed {
            name,
            output: Some(address),
            value,
        }
    }
}

impl<T: Call> Print for T {
    unsafe fn print(&self, out: &mut Out) {
        let mut separator = ".";
        // SAFETY: the caller's promise is the same.
        unsafe {
            self.each(&mut |passed| {
                out.push(separator);
                out.push(passed.name);
                out.member(" = ", passed.value);
                separator = ", .";
            });
        }
    }
}

/// An argument of a call, behind its pointer.
pub(super) trait Argument<T> {
    /// # Safety
    /// The argument is readable.
    unsafe fn get(self) -> T;
}

impl<T> Argument<T> for *const T {
    unsafe fn get(self) -> T {
        // SAFETY: the caller says so; arguments are plain C values.
        unsafe { self.read_unaligned() }
    }
}

impl<T> Argument<T> for *mut T {
    unsafe fn get(self) -> T {
        // SAFETY: the caller says so; arguments are plain C values.
        unsafe { self.read_unaligned() }
    }
}

/// What an undefined enumerator prints.
pub(super) const UNKNOWN: &str = "unknown enumerator";

macro_rules! enums {
    ($($Enum:ty),* $(,)?) => {$(
        impl Print for $Enum {
            unsafe fn print(&self, out: &mut Out) {
                out.push(self.name().unwrap_or($crate::abi::print::support::UNKNOWN));
            }
        }
    )*};
}

macro_rules! flags {
    ($($Set:ty),* $(,)?) => {$(
        impl Bits for $Set {
            const NAMES: &'static [(u32, &'static str)] = Self::BITS;
            fn bits(self) -> u32 {
                self.0
            }
        }
        impl Print for $Set {
            unsafe fn print(&self, out: &mut Out) {
                $crate::abi::print::support::print_flags(*self, out);
            }
        }
    )*};
}

pub(super) use {enums, flags};

pub(super) fn print_flags<T: Bits>(set: T, out: &mut Out) {
    out.flags(set.bits(), T::NAMES);
}

impl Print for ur_api_version_t {
    unsafe fn print(&self, out: &mut Out) {
        // Signed, as the macros of C take it.
        out.show(format_args!(
            "{}.{}",
            self.0.cast_signed() >> 16,
            self.0 & 0xffff
        ));
    }
}

/// A number in decimal.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Number<T>(pub T);

impl<T: Display> Print for Number<T> {
    unsafe fn print(&self, out: &mut Out) {
        out.show(&self.0);
    }
}

/// A number with six significant digits, as C++ streams show it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Float(pub f32);

impl Print for Float {
    unsafe fn print(&self, out: &mut Out) {
        if !self.0.is_finite() {
            return out.show(self.0.to_string().to_lowercase());
        }
        let scientific = format!("{:.5e}", self.0);
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let trim = |text: &str| match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        };
        match usize::try_from(5 - exponent) {
            Ok(decimals) if exponent >= -4 => out.push(&trim(&format!("{:.decimals$}", self.0))),
            _ => {
                let sign = if exponent < 0 { '-' } else { '+' };
                out.show(format_args!("{}e{sign}{:02}", trim(digits), exponent.abs()));
            }
        }
    }
}

/// A byte as a truth value.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Truth(pub u8);

impl Print for Truth {
    unsafe fn print(&self, out: &mut Out) {
        out.push(if self.0 == 0 { "false" } else { "true" });
    }
}

/// An address that nothing is read from; null is `nullptr`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Address(pub usize);

impl Print for Address {
    unsafe fn print(&self, out: &mut Out) {
        match self.0 {
            0 => out.push("nullptr"),
            address => out.address(address),
        }
    }
}

/// An address that nothing is read from; null is `0`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Bare(pub usize);

impl Print for Bare {
    unsafe fn print(&self, out: &mut Out) {
        match self.0 {
            0 => out.push("0"),
            address => out.address(address),
        }
    }
}

/// A C string behind its address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Text(pub *const c_char);

impl Print for Text {
    unsafe fn print(&self, out: &mut Out) {
        // SAFETY: the address itself is a plain value.
        unsafe { Address(self.0.addr()).print(out) };
        if !self.0.is_null() {
            // SAFETY: not null, so a string that the caller lets us read.
            let text = unsafe { CStr::from_ptr(self.0) };
            quoted(text.to_bytes(), out);
        }
    }
}

fn quoted(text: &[u8], out: &mut Out) {
    let shown = match out.brief {
        true => text.get(..BRIEF_BYTES).unwrap_or(text),
        false => text,
    };
    out.push(" (");
    out.text.extend_from_slice(shown);
    out.push(if shown.len() < text.len() { "...)" } else { ")" });
}

/// A value behind its address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Pointer<T>(*const T);

impl<T> Pointer<T> {
    pub(super) fn to<U>(value: *const U) -> Self {
        Self(value.cast())
    }
}

impl<T: Print> Print for Pointer<T> {
    unsafe fn print(&self, out: &mut Out) {
        // SAFETY: the address itself is a plain value.
        unsafe { Address(self.0.addr()).print(out) };
        if !self.0.is_null() {
            // SAFETY: not null, so a value that the caller lets us read; it is not dropped.
            unsafe { out.member(" (", &*std::mem::ManuallyDrop::new(self.0.read_unaligned())) };
            out.push(")");
        }
    }
}

/// A list behind its address.
pub(super) struct List<T>(*const T, usize);

impl<T> List<T> {
    pub(super) fn of<U>(first: *const U, count: impl TryInto<usize>) -> Self {
        Self(first.cast(), count.try_into().unwrap_or(0))
    }
}

impl<T: Print + Copy> Print for List<T> {
    unsafe fn print(&self, out: &mut Out) {
        // SAFETY: the address itself is a plain value; the caller lets us read as many values as it
        // says there are.
        unsafe {
            Address(self.0.addr()).print(out);
            if !self.0.is_null() {
                out.push(" ");
                out.list((0..self.1).map(|index| self.0.add(index).read_unaligned()));
            }
        }
    }
}

/// Values in place.
pub(super) struct Array<T, const N: usize>([T; N]);

impl<T: Print + Copy, const N: usize> Array<T, N> {
    pub(super) fn of<U>(values: [U; N], wrap: impl Fn(U) -> T) -> Self {
        Self(values.map(wrap))
    }
}

impl<T: Print + Copy, const N: usize> Print for Array<T, N> {
    unsafe fn print(&self, out: &mut Out) {
        // SAFETY: the caller's promise is the same.
        unsafe { out.list(self.0.iter().copied()) };
    }
}

/// The next structure of a chain.
pub(super) struct Chain(pub *const c_void);

impl Print for Chain {
    unsafe fn print(&self, out: &mut Out) {
        if self.0.is_null() {
            return out.push("nullptr");
        }
        // SAFETY: not null, so a structure that begins with its tag and that the caller lets us read.
        let Some(next) = (unsafe { chained(self.0) }) else {
            return out.push(UNKNOWN);
        };
        out.address(self.0.addr());
        if out.chain == CHAIN_LIMIT {
            return out.push(" (...)");
        }
        out.chain += 1;
        // SAFETY: the caller's promise covers the whole chain.
        unsafe { out.member(" (", next) };
        out.push(")");
        out.chain -= 1;
    }
}

/// A union with the value that says which member is meant.
pub(super) struct Union<U, T>(pub U, pub T);

/// Properties that a query can ask for.
pub(super) trait Property: Copy {
    /// # Safety
    /// The bytes are readable, and pointers in them as for [`Print::print`].
    unsafe fn value(self, bytes: Bytes, out: &mut Out);
}

/// The value of a property, by its name and size.
pub(super) struct Info<P>(pub *const c_void, pub P, pub usize);

impl<P: Property> Print for Info<P> {
    unsafe fn print(&self, out: &mut Out) {
        match self.0.is_null() {
            true => out.push("nullptr"),
            // SAFETY: not null, so as many bytes as the size says.
            false => unsafe { self.1.value(Bytes(self.0, self.2), out) },
        }
    }
}

/// A buffer that holds a property's value.
#[derive(Clone, Copy)]
pub(super) struct Bytes(*const c_void, usize);

impl Bytes {
    /// # Safety
    /// As for [`Property::value`].
    pub(super) unsafe fn one<T: Print + Copy>(self, out: &mut Out) {
        let expected = size_of::<T>();
        if self.1 < expected {
            return out.show(format_args!(
                "invalid size (is: {}, expected: >={expected})",
                self.1
            ));
        }
        // SAFETY: the bytes hold such a value.
        unsafe { Pointer::<T>::to(self.0).print(out) };
    }

    /// # Safety
    /// As for [`Property::value`].
    pub(super) unsafe fn list<T: Print + Copy>(self, out: &mut Out) {
        let first = self.0.cast::<T>();
        // SAFETY: the bytes hold as many values as fit.
        unsafe {
            out.list((0..self.1 / size_of::<T>()).map(|index| first.add(index).read_unaligned()))
        };
    }

    /// A string up to its zero byte, and never beyond the buffer.
    ///
    /// # Safety
    /// As for [`Property::value`].
    pub(super) unsafe fn text(self, out: &mut Out) {
        out.address(self.0.addr());
        // SAFETY: the caller says that so many bytes are readable.
        let bytes = unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), self.1) };
        quoted(
            bytes.split(|byte| *byte == 0).next().unwrap_or_default(),
            out,
        );
    }
}

/// The arguments of a call that takes none.
#[repr(C)]
pub struct NoArguments([u8; 0]);

impl Call for NoArguments {
    unsafe fn each(&self, _show: &mut dyn FnMut(Passed<'_>)) {}
}
