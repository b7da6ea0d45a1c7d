//! Conditions of the specification, `when` and `given`: parsed into a tree, written as Rust, or evaluated.
//!
//! The language has C's operators, `and`, `or`, `null`, and `.` for members, behind pointers too. A pointer
//! alone is true if it is not null. Arithmetic is in `u64`, where sums, differences and products wrap and a
//! remainder by 0 is 0.

use crate::model::{CType, Function, Spec};
use anyhow::{Context as _, Result, bail, ensure};

/// Rust for a condition over the parameters. It may follow pointers, so it belongs in an unsafe block after
/// the null checks of required parameters.
pub fn rust(spec: &Spec, function: &Function, text: &str) -> Result<String> {
    parse(spec, function, text)?.truth()
}

/// Rust for a condition over the members of a parameter struct `p`.
pub fn rust_behind(spec: &Spec, function: &Function, text: &str) -> Result<String> {
    read(spec, function, text, Arguments::Behind)?.truth()
}

/// Rust for a number in `u64`, over the members of a parameter struct `p`.
pub fn number_behind(spec: &Spec, function: &Function, text: &str) -> Result<String> {
    read(spec, function, text, Arguments::Behind)?.number()
}

/// Parses a condition.
pub fn parse(spec: &Spec, function: &Function, text: &str) -> Result<Expr> {
    read(spec, function, text, Arguments::Named)
}

/// How Rust text names a call's arguments.
#[derive(Clone, Copy)]
enum Arguments {
    /// By themselves: `size`.
    Named,
    /// By the parameter struct's pointers to them: `(*p.psize)`.
    Behind,
}

fn read(spec: &Spec, function: &Function, text: &str, arguments: Arguments) -> Result<Expr> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        spec,
        function,
        tokens,
        at: 0,
        arguments,
    };
    let tree = parser.or()?;
    ensure!(
        parser.at == parser.tokens.len(),
        "{}: cannot read `{text}` from token {}",
        function.name,
        parser.at
    );
    // Reports type errors here rather than at the first use.
    tree.truth()?;
    Ok(tree)
}

/// A condition, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    Number(String),
    Bool(bool),
    Null,
    /// An enumerator, or a macro of flags that are not defined.
    Constant(String),
    /// A parameter, or a member in or behind one.
    Leaf(Leaf),
    /// An element of a list.
    Element(Leaf, Box<Expr>),
    Not(Box<Expr>),
    /// `and`, `or`, a comparison or a sign of arithmetic.
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// As in the condition: `pUSMDesc.align`.
    pub name: String,
    /// As in Rust: `(*pUSMDesc).align`.
    text: String,
    pub ty: CType,
    pub form: Form,
}

/// How a leaf is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Pointer,
    Number,
    /// An enumeration or a set of flags.
    Enumerated,
}

impl Expr {
    /// Every leaf with its name, in order. The name of an element ends with its index.
    pub fn leaves(&self) -> Vec<(&Leaf, String)> {
        match self {
            Self::Leaf(leaf) => vec![(leaf, leaf.name.clone())],
            Self::Element(leaf, index) => {
                let index = index.eval(&|_| None);
                let named = index.map(|index| (leaf, format!("{}[{index}]", leaf.name)));
                named.into_iter().collect()
            }
            Self::Not(inner) => inner.leaves(),
            Self::Binary(_, left, right) => [left.leaves(), right.leaves()].concat(),
            Self::Choice(which, yes, no) => [which.leaves(), yes.leaves(), no.leaves()].concat(),
            Self::Number(_) | Self::Bool(_) | Self::Null | Self::Constant(_) => Vec::new(),
        }
    }

    /// The enumerators in the expression.
    pub fn constants(&self) -> Vec<&str> {
        match self {
            Self::Constant(name) => vec![name],
            Self::Not(inner) | Self::Element(_, inner) => inner.constants(),
            Self::Binary(_, left, right) => [left.constants(), right.constants()].concat(),
            Self::Choice(which, yes, no) => {
                [which.constants(), yes.constants(), no.constants()].concat()
            }
            Self::Leaf(_) | Self::Number(_) | Self::Bool(_) | Self::Null => Vec::new(),
        }
    }

    /// The value, where `look` knows leaves and constants; null is 0. It is unknown if an operand is, unless
    /// `and` or `or` does not need that operand.
    pub fn eval(&self, look: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
        let truth = |expr: &Self| expr.eval(look).map(|value| value != 0);
        match self {
            Self::Number(text) => text.strip_prefix("0x").map_or_else(
                || text.parse().ok(),
                |hex| u64::from_str_radix(hex, 16).ok(),
            ),
            Self::Bool(value) => Some(u64::from(*value)),
            Self::Null => Some(0),
            Self::Constant(name) => look(name),
            Self::Leaf(leaf) => look(&leaf.name),
            Self::Element(leaf, index) => look(&format!("{}[{}]", leaf.name, index.eval(look)?)),
            Self::Not(inner) => Some(u64::from(!truth(inner)?)),
            Self::Choice(which, yes, no) => {
                if truth(which)? {
                    yes.eval(look)
                } else {
                    no.eval(look)
                }
            }
            Self::Binary("and", left, right) => Some(u64::from(truth(left)? && truth(right)?)),
            Self::Binary("or", left, right) => Some(u64::from(truth(left)? || truth(right)?)),
            Self::Binary(sign, left, right) => {
                let (left, right) = (left.eval(look)?, right.eval(look)?);
                Some(match *sign {
                    "==" => u64::from(left == right),
                    "!=" => u64::from(left != right),
                    "<=" => u64::from(left <= right),
                    ">=" => u64::from(left >= right),
                    "<" => u64::from(left < right),
                    ">" => u64::from(left > right),
                    "&" => left & right,
                    "|" => left | right,
                    "+" => left.wrapping_add(right),
                    "-" => left.wrapping_sub(right),
                    "*" => left.wrapping_mul(right),
                    _ => left.checked_rem(right).unwrap_or(0),
                })
            }
        }
    }

    fn is_pointer(&self) -> bool {
        matches!(self, Self::Leaf(leaf) if leaf.form == Form::Pointer)
    }

    /// Rust for it as a condition.
    fn truth(&self) -> Result<String> {
        Ok(match self {
            Self::Bool(value) => value.to_string(),
            Self::Null => "false".to_owned(),
            Self::Leaf(leaf) if leaf.form == Form::Pointer => format!("!{}.is_null()", leaf.text),
            Self::Not(inner) => match &**inner {
                Self::Binary(..) => format!("!({})", inner.truth()?),
                _ => format!("!{}", inner.truth()?),
            },
            Self::Binary("and", left, right) => {
                format!("{} && {}", left.below("or")?, right.below("or")?)
            }
            Self::Binary("or", left, right) => {
                format!("{} || {}", left.below("and")?, right.below("and")?)
            }
            Self::Binary(sign @ ("==" | "!="), left, right)
                if left.is_pointer() && **right == Self::Null =>
            {
                let Self::Leaf(leaf) = &**left else {
                    bail!("a pointer is wanted");
                };
                let not = if *sign == "!=" { "!" } else { "" };
                format!("{not}{}.is_null()", leaf.text)
            }
            Self::Binary(sign @ ("==" | "!=" | "<=" | ">=" | "<" | ">"), left, right) => {
                let (left, right) = match unify(left.own_type(), right.own_type()) {
                    Some(_) => (left.own_number()?, right.own_number()?),
                    None => (left.compared()?, right.compared()?),
                };
                format!("{left} {sign} {right}")
            }
            _ if self.own_type().is_some() => format!("{} != 0", self.own_number()?),
            _ => format!("{} != 0", self.number()?),
        })
    }

    /// Rust for a side of a comparison of `u64`.
    fn compared(&self) -> Result<String> {
        match self {
            Self::Number(text) => Ok(text.clone()),
            _ => self.number(),
        }
    }

    /// Rust for it as a `u64` that is an argument or a block's value.
    fn bare(&self) -> Result<String> {
        let text = self.compared()?;
        let mut open = 0;
        let close = text.char_indices().find_map(|(at, letter)| {
            match letter {
                '(' => open += 1,
                ')' => open -= 1,
                _ => {}
            }
            (open == 0).then_some(at)
        });
        Ok(match close {
            Some(at) if at > 0 && at + 1 == text.len() => text[1..at].to_owned(),
            _ => text,
        })
    }

    /// Rust for an operand of `and` or `or`: in parentheses if it joins its own by the other sign.
    fn below(&self, other: &str) -> Result<String> {
        let text = self.truth()?;
        Ok(match self {
            Self::Binary(sign, ..) if *sign == other => format!("({text})"),
            _ => text,
        })
    }

    /// The unsigned Rust type in which it can be compared without a conversion.
    fn own_type(&self) -> Option<Own> {
        match self {
            Self::Number(_) => Some(Own::Any),
            Self::Constant(_) => Some(Own::Type("u32")),
            Self::Leaf(leaf) if leaf.form == Form::Enumerated => Some(Own::Type("u32")),
            Self::Leaf(leaf) if leaf.form == Form::Number => unsigned(&leaf.ty),
            Self::Element(leaf, _) => unsigned(&CType {
                pointers: 0,
                ..leaf.ty.clone()
            }),
            Self::Binary("&" | "|", left, right) => unify(left.own_type(), right.own_type()),
            _ => None,
        }
    }

    /// Rust for it as a number of its own type.
    fn own_number(&self) -> Result<String> {
        Ok(match self {
            Self::Number(text) => text.clone(),
            Self::Constant(name) if name.ends_with("_MASK") => name.clone(),
            Self::Constant(name) => format!("{name}.0"),
            Self::Leaf(leaf) => match leaf.form {
                Form::Enumerated => format!("{}.0", leaf.text),
                Form::Number => leaf.text.clone(),
                Form::Pointer => bail!("`{}` is no number", leaf.name),
            },
            Self::Element(leaf, index) => {
                format!("*{}.add({})", leaf.text, index.index()?)
            }
            Self::Binary(sign @ ("&" | "|"), left, right) => {
                let operand = |of: &Self| {
                    let text = of.own_number()?;
                    anyhow::Ok(match of {
                        Self::Binary(inner, ..) if inner != sign => format!("({text})"),
                        _ => text,
                    })
                };
                format!("{} {sign} {}", operand(left)?, operand(right)?)
            }
            _ => bail!("a number is wanted"),
        })
    }

    /// Rust for it as the number of an element, a `usize`.
    fn index(&self) -> Result<String> {
        match self {
            Self::Number(text) => Ok(text.clone()),
            _ => Ok(format!("{} as usize", self.number()?)),
        }
    }

    /// Rust for it as a number, a `u64`.
    pub fn number(&self) -> Result<String> {
        Ok(match self {
            Self::Number(text) => format!("{text}u64"),
            Self::Constant(_) => format!("u64::from({})", self.own_number()?),
            Self::Leaf(leaf) => match leaf.form {
                Form::Enumerated => format!("u64::from({})", self.own_number()?),
                Form::Number if unsigned(&leaf.ty) == Some(Own::Type("u64")) => leaf.text.clone(),
                Form::Number => format!("({} as u64)", leaf.text),
                Form::Pointer => bail!("`{}` is no number", leaf.name),
            },
            Self::Element(..) => format!("({} as u64)", self.own_number()?),
            Self::Choice(which, yes, no) => format!(
                "(if {} {{ {} }} else {{ {} }})",
                which.truth()?,
                yes.bare()?,
                no.bare()?
            ),
            Self::Binary(sign @ ("&" | "|"), left, right) => {
                format!("({} {sign} {})", left.number()?, right.number()?)
            }
            Self::Binary("+", left, right) => {
                format!("{}.wrapping_add({})", left.number()?, right.bare()?)
            }
            Self::Binary("-", left, right) => {
                format!("{}.wrapping_sub({})", left.number()?, right.bare()?)
            }
            Self::Binary("*", left, right) => {
                format!("{}.wrapping_mul({})", left.number()?, right.bare()?)
            }
            Self::Binary("%", left, right) => {
                format!("rest({}, {})", left.bare()?, right.bare()?)
            }
            _ => bail!("a number is wanted"),
        })
    }
}

/// The type of a number that needs no conversion for a comparison with a number of that type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// A literal takes the other side's type.
    Any,
    Type(&'static str),
}

/// The common type of two numbers, if no conversion is needed.
fn unify(left: Option<Own>, right: Option<Own>) -> Option<Own> {
    match (left?, right?) {
        (Own::Any, other) | (other, Own::Any) => Some(other),
        (left, right) => (left == right).then_some(left),
    }
}

/// The unsigned Rust type of a C number. A signed number is compared as `u64`.
fn unsigned(ty: &CType) -> Option<Own> {
    let is_number = ty.is_plain().then(|| super::rust::ctype(ty))?;
    let known = ["u8", "u16", "u32", "u64", "usize"];
    let found = known.into_iter().find(|known| is_number == *known);
    found.map(Own::Type)
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

struct Parser<'a> {
    spec: &'a Spec,
    function: &'a Function,
    tokens: Vec<Token>,
    at: usize,
    arguments: Arguments,
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

    /// Operands joined by any of these signs, left to right.
    fn chain(
        &mut self,
        signs: &[&'static str],
        operand: fn(&mut Self) -> Result<Expr>,
    ) -> Result<Expr> {
        let mut left = operand(self)?;
        while let Some(sign) = signs.iter().find(|sign| self.take(sign)) {
            left = Expr::Binary(sign, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn or(&mut self) -> Result<Expr> {
        self.chain(&["or"], Self::and)
    }

    fn and(&mut self) -> Result<Expr> {
        self.chain(&["and"], Self::compare)
    }

    fn compare(&mut self) -> Result<Expr> {
        self.chain(&["==", "!=", "<=", ">=", "<", ">"], Self::bits)
    }

    fn bits(&mut self) -> Result<Expr> {
        self.chain(&["&", "|"], Self::sum)
    }

    fn sum(&mut self) -> Result<Expr> {
        self.chain(&["+", "-"], Self::product)
    }

    fn product(&mut self) -> Result<Expr> {
        self.chain(&["*", "%"], Self::primary)
    }

    fn primary(&mut self) -> Result<Expr> {
        if self.take("!") {
            return Ok(Expr::Not(Box::new(self.primary()?)));
        }
        if self.take("(") {
            let value = self.or()?;
            if !self.take("?") {
                self.close(")")?;
                return Ok(value);
            }
            let yes = self.or()?;
            self.close(":")?;
            let no = self.or()?;
            self.close(")")?;
            return Ok(Expr::Choice(Box::new(value), Box::new(yes), Box::new(no)));
        }
        let token = self
            .tokens
            .get(self.at)
            .cloned()
            .context("an operand is wanted")?;
        self.at += 1;
        match token {
            Token::Number(text) => Ok(Expr::Number(text)),
            Token::Name(name) => self.name(&name),
            Token::Sign(sign) => bail!("{}: stray `{sign}`", self.function.name),
        }
    }

    fn close(&mut self, sign: &str) -> Result<()> {
        ensure!(
            self.take(sign),
            "{}: `{sign}` is wanted",
            self.function.name
        );
        Ok(())
    }

    fn name(&mut self, name: &str) -> Result<Expr> {
        match name {
            "null" => return Ok(Expr::Null),
            "true" => return Ok(Expr::Bool(true)),
            "false" => return Ok(Expr::Bool(false)),
            _ if name.starts_with("UR_") => return Ok(Expr::Constant(name.to_owned())),
            _ => {}
        }
        let leaf = self.leaf(name)?;
        if !self.take("[") {
            return Ok(Expr::Leaf(leaf));
        }
        let index = self.or()?;
        self.close("]")?;
        Ok(Expr::Element(leaf, Box::new(index)))
    }

    fn leaf(&self, name: &str) -> Result<Leaf> {
        let mut parts = name.split('.');
        let first = parts.next().unwrap_or_default();
        let param = self
            .function
            .params
            .iter()
            .find(|param| param.name == first)
            .with_context(|| format!("{}: `{first}` is no parameter", self.function.name))?;
        let mut text = match self.arguments {
            Arguments::Named => super::rust::ident(first),
            Arguments::Behind => format!("(*p.p{first})"),
        };
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
        let enumerated =
            self.spec.enum_of(&ty.base).is_some() || self.spec.flags_of(&ty.base).is_some();
        let form = if ty.is_pointer() || self.spec.is_handle(&ty.base) {
            Form::Pointer
        } else if enumerated {
            Form::Enumerated
        } else {
            Form::Number
        };
        Ok(Leaf {
            name: name.to_owned(),
            text,
            ty,
            form,
        })
    }
}
