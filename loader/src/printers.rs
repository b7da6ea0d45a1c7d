//! How `urPrint*` are defined: the exported functions of `ur_print.h`, whose texts are `ur::abi::print`'s.
//!
//! They are rows of `ur::for_each_printer!`. A call's arguments come by a pointer, and one bit of a flag set
//! has its own text.
//!
//! Callers guarantee the contract of `ur_print.h`: pointers in a value are readable where a callee may
//! read them, and `buffer` has `buff_size` bytes.

#![allow(clippy::missing_safety_doc)]

use std::arch::global_asm;
use std::ffi::{c_char, c_void};
use ur::abi::print::{NoArguments, Print, arguments, to_buffer};
use ur::abi::*;
use ur::object::boundary;

/// Writes the text of a value; none is a null pointer, and refused.
///
/// # Safety
/// Pointers in the value may be read where the interface lets a callee read them; the buffer has `size`
/// bytes or is null; the written size is null or writable.
pub unsafe fn write(
    value: Option<&dyn Print>,
    buffer: *mut c_char,
    size: usize,
    size_ret: *mut usize,
) -> ur_result_t {
    boundary(|| {
        let value = value.ok_or(UR_RESULT_ERROR_INVALID_NULL_POINTER)?;
        // SAFETY: callers guarantee the contract of `ur_print.h`.
        match unsafe { to_buffer(value, buffer, size, size_ret) } {
            UR_RESULT_SUCCESS => Ok(()),
            code => Err(code.into()),
        }
    })
}

macro_rules! parameter {
    (call $Type:ty) => {
        *const $Type
    };
    ($kind:ident $Type:ty) => {
        $Type
    };
}

macro_rules! printed {
    (call $value:ident) => {
        $value
            .as_ref()
            .map(|call| call as &dyn ur::abi::print::Print)
    };
    (bit $value:ident) => {
        Some(&ur::abi::print::Bit($value) as &dyn ur::abi::print::Print)
    };
    (value $value:ident) => {
        Some(&$value as &dyn ur::abi::print::Print)
    };
}

// A `.symver` directive stands beside its function: elsewhere the linker loses the version.
macro_rules! printers {
    ($($kind:ident $name:ident: $Type:ty;)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $name(
            value: parameter!($kind $Type),
            buffer: *mut c_char,
            buff_size: usize,
            out_size: *mut usize,
        ) -> ur_result_t {
            // SAFETY: what every caller here promises.
            unsafe {
                write(printed!($kind value), buffer, buff_size, out_size)
            }
        }
        global_asm!(concat!(".symver ", stringify!($name), ", ", stringify!($name), "@@@LIBUR_LOADER_0.12"));
    )*};
}
ur::for_each_printer! { printers }

/// Writes the text of a call, from the number of its function and a pointer to its arguments.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn urPrintFunctionParams(
    function: ur_function_t,
    params: *const c_void,
    buffer: *mut c_char,
    buff_size: usize,
    out_size: *mut usize,
) -> ur_result_t {
    if params.is_null() {
        return UR_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    // SAFETY: not null, and callers guarantee the parameter struct of the function.
    match unsafe { arguments(function, params) } {
        // SAFETY: callers guarantee the contract of `ur_print.h`.
        Some(call) => unsafe { write(Some(call), buffer, buff_size, out_size) },
        None => UR_RESULT_ERROR_INVALID_ENUMERATION,
    }
}
global_asm!(".symver urPrintFunctionParams, urPrintFunctionParams@@@LIBUR_LOADER_0.12");
