//! How values lie in memory and how they read, as data.
//!
//! A C type that has a text implements [`Reads`]. The declarations of `types` do so for enums, flag
//! sets, structures and unions, the list of functions for the arguments of calls.

use std::ffi::c_void;

use crate::abi::property::{Property, Truth};

/// The text of a value, and how many bytes the value has.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Number(Number),
    /// A byte, as `true` or `false`.
    Truth,
    /// A version, as `MAJOR.MINOR`.
    Version,
    /// The name of an enumerator.
    Enum(fn(u32) -> Option<&'static str>),
    /// The name of an enumerator that a query takes, and what queries give for each.
    Query(fn(u32) -> Option<&'static str>, &'static [Property]),
    /// The names of the bits that are set.
    Flags(&'static [(u32, &'static str)]),
    /// One bit of a flag set, as an enumerator.
    Bit(&'static [(u32, &'static str)]),
    Struct(&'static Struct),
    /// The arguments of a call, behind the pointers of its parameter struct.
    Call(&'static [Member]),
    /// So many values in place.
    Array(&'static Form, usize),
    /// An address that nothing is read from; null is `nullptr`.
    Address,
    /// An address that nothing is read from; null is `0`.
    Bare,
    /// The address of a C string, then the string.
    Text,
    /// The address of a value, then the value.
    Pointer(&'static Form),
    /// The address of a list, then its values; the member that counts them.
    List(&'static Form, usize),
    /// The next structure of a chain.
    Chain,
    /// A union; the member that says which of its members is meant.
    Union(&'static Union, usize),
    /// A property's value; the arguments that name the property and that give the value's size.
    Info(usize, usize),
}

/// A C type of numbers.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    I8,
    U8,
    U16,
    U32,
    U64,
    I32,
    F32,
}

#[derive(Debug)]
pub struct Struct {
    pub name: &'static str,
    pub size: usize,
    pub members: &'static [Member],
}

/// A member of a structure, or an argument of a call.
#[derive(Debug)]
pub struct Member {
    pub name: &'static str,
    /// Bytes from the beginning of the structure: to the member, or to the pointer to the argument.
    pub offset: usize,
    pub form: Form,
    /// The callee writes behind the argument what its text shows. Memory without a type is shown by
    /// its address, so that it counts as an input whoever writes there.
    pub is_output: bool,
}

#[derive(Debug)]
pub struct Union {
    pub name: &'static str,
    pub size: usize,
    /// Values of the tag, each with the name and form of the member that it selects.
    pub choices: &'static [(u32, &'static str, Form)],
}

/// How the bytes of a property read.
#[derive(Clone, Copy, Debug)]
pub enum PropertyForm {
    Text,
    One(Form),
    List(Form),
}

/// A C type whose values have a text.
pub trait Reads {
    const FORM: Form;
    /// The form of a pointer to such a value.
    const POINTER: Form = Form::Pointer(&Self::FORM);
    /// What a list of such pointers' targets has; for pointers only.
    const TARGET: Form = Self::FORM;
    /// The C name of the type, of a pointer that of its target; empty for what has no name of ours.
    const NAME: &'static str = "";
}

impl<T: Reads> Reads for *const T {
    const FORM: Form = T::POINTER;
    const TARGET: Form = T::FORM;
    const NAME: &'static str = T::NAME;
}

impl<T: Reads> Reads for *mut T {
    const FORM: Form = T::POINTER;
    const TARGET: Form = T::FORM;
    const NAME: &'static str = T::NAME;
}

impl<T: Reads, const N: usize> Reads for [T; N] {
    const FORM: Form = Form::Array(&T::FORM, N);
}

impl Reads for c_void {
    const FORM: Form = Form::Address;
    const POINTER: Form = Form::Address;
}

// `c_char` is one of the two, on some machines this, on some that.
impl Reads for i8 {
    const FORM: Form = Form::Number(Number::I8);
    const POINTER: Form = Form::Text;
}

impl Reads for u8 {
    const FORM: Form = Form::Number(Number::U8);
    const POINTER: Form = Form::Text;
}

macro_rules! reads {
    ($($Type:ty: $form:expr;)*) => {$(
        impl Reads for $Type {
            const FORM: Form = $form;
        }
    )*};
}
reads! {
    Truth: Form::Truth;
    u16: Form::Number(Number::U16);
    u32: Form::Number(Number::U32);
    u64: Form::Number(Number::U64);
    usize: Form::Number(Number::U64);
    i32: Form::Number(Number::I32);
    f32: Form::Number(Number::F32);
}

impl Form {
    pub const fn size(&self) -> usize {
        match self {
            Form::Truth | Form::Number(Number::I8 | Number::U8) => 1,
            Form::Number(Number::U16) => 2,
            Form::Number(Number::U32 | Number::I32 | Number::F32)
            | Form::Version
            | Form::Enum(_)
            | Form::Query(..)
            | Form::Flags(_)
            | Form::Bit(_) => 4,
            Form::Struct(layout) => layout.size,
            Form::Union(layout, _) => layout.size,
            Form::Call(arguments) => arguments.len() * size_of::<usize>(),
            Form::Array(element, length) => element.size() * *length,
            Form::Number(Number::U64)
            | Form::Address
            | Form::Bare
            | Form::Text
            | Form::Pointer(_)
            | Form::List(..)
            | Form::Chain
            | Form::Info(..) => size_of::<usize>(),
        }
    }

    /// This form of a union, with the member that selects.
    pub const fn by(self, tag: usize) -> Form {
        match self {
            Form::Union(layout, _) => Form::Union(layout, tag),
            other => other,
        }
    }
}

impl Member {
    /// A member whose name Rust may write as a raw identifier.
    pub const fn new(name: &'static str, offset: usize, form: Form) -> Member {
        let name = match name.as_bytes() {
            [b'r', b'#', ..] => name.split_at(2).1,
            _ => name,
        };
        Member {
            name,
            offset,
            form,
            is_output: false,
        }
    }
}

/// The place of a name in a list of names.
pub const fn place(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < names.len() {
        if same(names[at], name) {
            return at;
        }
        at += 1;
    }
    panic!("a member refers to one that is not there")
}

pub const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}
