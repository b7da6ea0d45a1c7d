//! C types and names in Rust, for all generators of Rust text.

use crate::model::{CType, Param};

/// The Rust type of a C type in running code: `bool` is a byte, and enums are newtypes.
pub fn ty(text: &str) -> String {
    ctype(&CType::parse(text))
}

pub fn ctype(ty: &CType) -> String {
    let base = match ty.base.as_str() {
        "void" if ty.pointers > 0 => "c_void",
        "void" => "()",
        "char" | "int8_t" => {
            if ty.base == "char" {
                "c_char"
            } else {
                "i8"
            }
        }
        "bool" | "uint8_t" | "unsigned char" => "u8",
        "int" | "int32_t" => "i32",
        "uint16_t" => "u16",
        "uint32_t" | "unsigned int" => "u32",
        "int64_t" => "i64",
        "uint64_t" => "u64",
        "size_t" | "uintptr_t" => "usize",
        "float" => "f32",
        "double" => "f64",
        other => other,
    };
    let mut out = base.to_owned();
    for level in 0..ty.pointers {
        let mutability = if level == 0 && ty.is_const {
            "const"
        } else {
            "mut"
        };
        out = format!("*{mutability} {out}");
    }
    match &ty.array {
        Some(extent) => format!("[{out}; {extent}]"),
        None => out,
    }
}

/// A name from C, escaped if it is a Rust keyword.
pub fn ident(name: &str) -> String {
    match name {
        "gen" | "type" | "ref" | "in" | "move" | "match" | "fn" | "use" | "where" => {
            format!("r#{name}")
        }
        _ => name.to_owned(),
    }
}

/// `a: T, b: U` of an extern function.
pub fn params(list: &[Param]) -> String {
    list.iter()
        .map(|param| format!("{}: {}", ident(&param.name), ty(&param.ty)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Lower-case words of a camel-case C name: `USMFill2D` is `usm_fill_2d`.
pub fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, &letter) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|i| chars[i]);
        let after = chars.get(at + 1);
        let starts_word = letter.is_uppercase()
            && before.is_some_and(|b| {
                b.is_lowercase() || (b.is_uppercase() && after.is_some_and(|a| a.is_lowercase()))
            })
            || letter.is_ascii_digit() && after == Some(&'D');
        if starts_word {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out.replace("p2_p", "p2p")
}

/// The trait or type name of a handle: `UsmPool` of `ur_usm_pool_handle_t`.
pub fn object_name(handle: &str) -> String {
    let stem = handle
        .trim_start_matches("ur_")
        .trim_end_matches("_handle_t")
        .trim_start_matches("exp_");
    heck::AsUpperCamelCase(stem).to_string()
}
