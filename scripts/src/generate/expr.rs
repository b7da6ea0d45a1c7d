//! Conditions of the specification (`when:`) as Rust expressions over a call's raw parameters.
//!
//! The language: C operators with `and`, `or`, `null` and `.` for members, also behind pointers.
//! A pointer alone means "not null". Arithmetic is in `u64` and cannot overflow or divide by zero.

use crate::model::{CType, Function, Spec};
use anyhow::{Context as _, Result, bail};

/// Rust for the condition; it may follow pointers, so it belongs in an `unsafe` block after the
/// null checks of required parameters.
pub fn rust(spec: &Spec, function: &Function, text: &str) -> Result<String> {
    Ok(parse(spec, function, text)?.truth())
}

/// Rust for a number, a `u64`; otherwise as [`rust`].
pub fn number(spec: &Spec, function: &Function, text: &str) -> Result<String> {
    Ok(parse(spec, function, text)?.int()?.to_owned())
}

fn parse(spec: &Spec, function: &Function, text: &str) -> Result<Value> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        spec,
        function,
        tokens,
        at: 0,
    };
    let value = parser.or()?;
    if parser.at != parser.tokens.len() {
        bail!(
            "{}: cannot read `{text}` from token {}",
            function.name,
            parser.at
        );
    }
    Ok(value)
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Number(String),
    Sign(&'static str),
}

const SIGNS: [&str; 20] = [
    "==", "!=", "<=", ">=", "<", ">", "&", "|", "+", "-", "*", "/", "%", "(", ")", "[", "]", "?",
    ":", "!",
];

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut rest = text.trim_start();
    let mut out = Vec::new();
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
        let (token, length) = if first.is_alphabetic() || first == '_' {
            let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            (Token::Name(rest[..end].to_owned()), end)
        } else if first.is_ascii_digit() {
            let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            (Token::Number(rest[..end].to_owned()), end)
        } else {
            let sign = SIGNS
                .iter()
                .find(|sign| rest.starts_with(**sign))
                .with_context(|| format!("`{text}`: stray `{first}`"))?;
            (Token::Sign(sign), sign.len())
        };
        out.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(out)
}

enum Value {
    Bool(String),
    Int(String),
    Pointer(String),
    Null,
}

impl Value {
    fn truth(&self) -> String {
        match self {
            Self::Bool(text) => text.clone(),
            Self::Int(text) => format!("({text} != 0)"),
            Self::Pointer(text) => format!("(!{text}.is_null())"),
            Self::Null => "false".to_owned(),
        }
    }

    fn int(&self) -> Result<&str> {
        match self {
            Self::Int(text) => Ok(text),
            _ => bail!("a number is wanted"),
        }
    }
}

struct Parser<'a> {
    spec: &'a Spec,
    function: &'a Function,
    tokens: Vec<Token>,
    at: usize,
}

impl Parser<'_> {
    fn take(&mut self, sign: &str) -> bool {
        let found = match self.tokens.get(self.at) {
            Some(Token::Sign(next)) => *next == sign,
            Some(Token::Name(next)) => next == sign,
            _ => false,
        };
        self.at += usize::from(found);
        found
    }

    fn or(&mut self) -> Result<Value> {
        let mut left = self.and()?;
        while self.take("or") {
            left = Value::Bool(format!("({} || {})", left.truth(), self.and()?.truth()));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Value> {
        let mut left = self.compare()?;
        while self.take("and") {
            left = Value::Bool(format!("({} && {})", left.truth(), self.compare()?.truth()));
        }
        Ok(left)
    }

    fn compare(&mut self) -> Result<Value> {
        let left = self.bits()?;
        for sign in ["==", "!=", "<=", ">=", "<", ">"] {
            if !self.take(sign) {
                continue;
            }
            let right = self.bits()?;
            let text = match (&left, &right) {
                (Value::Pointer(text), Value::Null) if sign == "==" => format!("{text}.is_null()"),
                (Value::Pointer(text), Value::Null) if sign == "!=" => format!("!{text}.is_null()"),
                _ => format!("({} {sign} {})", left.int()?, right.int()?),
            };
            return Ok(Value::Bool(text));
        }
        Ok(left)
    }

    fn bits(&mut self) -> Result<Value> {
        let mut left = self.sum()?;
        loop {
            let sign = if self.take("&") {
                "&"
            } else if self.take("|") {
                "|"
            } else {
                return Ok(left);
            };
            left = Value::Int(format!("({} {sign} {})", left.int()?, self.sum()?.int()?));
        }
    }

    fn sum(&mut self) -> Result<Value> {
        let mut left = self.product()?;
        loop {
            let method = if self.take("+") {
                "wrapping_add"
            } else if self.take("-") {
                "wrapping_sub"
            } else {
                return Ok(left);
            };
            left = Value::Int(format!(
                "{}.{method}({})",
                left.int()?,
                self.product()?.int()?
            ));
        }
    }

    fn product(&mut self) -> Result<Value> {
        let mut left = self.primary()?;
        loop {
            left = if self.take("*") {
                Value::Int(format!(
                    "{}.wrapping_mul({})",
                    left.int()?,
                    self.primary()?.int()?
                ))
            } else if self.take("%") {
                Value::Int(format!(
                    "{}.checked_rem({}).unwrap_or(0)",
                    left.int()?,
                    self.primary()?.int()?
                ))
            } else {
                return Ok(left);
            };
        }
    }

    fn primary(&mut self) -> Result<Value> {
        if self.take("!") {
            let value = self.primary()?;
            return Ok(Value::Bool(format!("!{}", value.truth())));
        }
        if self.take("(") {
            let value = self.or()?;
            if self.take("?") {
                let (yes, no) = self.choice()?;
                let text = format!("(if {} {{ {yes} }} else {{ {no} }})", value.truth());
                self.close()?;
                return Ok(Value::Int(text));
            }
            self.close()?;
            return Ok(value);
        }
        let token = self
            .tokens
            .get(self.at)
            .cloned()
            .context("an operand is wanted")?;
        self.at += 1;
        match token {
            Token::Number(text) => Ok(Value::Int(format!("{text}u64"))),
            Token::Name(name) => self.name(&name),
            Token::Sign(sign) => bail!("{}: stray `{sign}`", self.function.name),
        }
    }

    fn choice(&mut self) -> Result<(String, String)> {
        let yes = self.or()?.int()?.to_owned();
        if !self.take(":") {
            bail!("`:` is wanted");
        }
        Ok((yes, self.or()?.int()?.to_owned()))
    }

    fn close(&mut self) -> Result<()> {
        if self.take(")") {
            Ok(())
        } else {
            bail!("{}: `)` is wanted", self.function.name)
        }
    }

    fn name(&mut self, name: &str) -> Result<Value> {
        match name {
            "null" => return Ok(Value::Null),
            "true" => return Ok(Value::Bool("true".into())),
            "false" => return Ok(Value::Bool("false".into())),
            _ => {}
        }
        if name.starts_with("UR_") {
            return Ok(Value::Int(if name.ends_with("_MASK") {
                format!("u64::from({name})")
            } else {
                format!("u64::from({name}.0)")
            }));
        }
        let mut parts = name.split('.');
        let first = parts.next().unwrap_or_default();
        let param = self
            .function
            .params
            .iter()
            .find(|param| param.name == first)
            .with_context(|| format!("{}: `{first}` is no parameter", self.function.name))?;
        let mut text = super::rust::ident(first);
        let mut ty = param.c_type();
        for part in parts {
            let holder = self
                .spec
                .struct_of(&ty.base)
                .with_context(|| format!("`{name}`: no struct {}", ty.base))?;
            let member = holder
                .members
                .iter()
                .find(|member| member.name == part)
                .with_context(|| format!("no member {part}"))?;
            text = match ty.pointers {
                0 => format!("{text}.{}", super::rust::ident(part)),
                _ => format!("(*{text}).{}", super::rust::ident(part)),
            };
            ty = member.c_type();
        }
        if self.take("[") {
            let index = self.or()?.int()?.to_owned();
            if !self.take("]") {
                bail!("`]` is wanted");
            }
            return Ok(Value::Int(format!(
                "(*{text}.add({index} as usize) as u64)"
            )));
        }
        Ok(self.leaf(text, &ty))
    }

    fn leaf(&self, text: String, ty: &CType) -> Value {
        if ty.is_pointer() || self.spec.is_handle(&ty.base) {
            Value::Pointer(text)
        } else if self.spec.enum_of(&ty.base).is_some() || self.spec.flags_of(&ty.base).is_some() {
            Value::Int(format!("u64::from({text}.0)"))
        } else {
            Value::Int(format!("({text} as u64)"))
        }
    }
}
