//! The selector's parser. Every error has the byte offset at which the text stops being valid.

use std::fmt;

use super::{Backend, Duplicates, Index, Item, Kind, Root, Selector, Term};

/// A syntax error in a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    /// Offset in bytes; the text's length if something is missing at its end.
    pub at: usize,
    pub reason: String,
}

impl fmt::Display for ParseError {
    /// Writes the reason, the text, and a caret below the faulty character.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters of the input would break the layout of three lines.
        let shown = |text: &str| -> String {
            let plain = |c: char| if c.is_control() { '?' } else { c };
            text.chars().map(plain).collect()
        };
        let column = self
            .text
            .get(..self.at)
            .unwrap_or(&self.text)
            .chars()
            .count();
        writeln!(out, "{}", shown(&self.reason))?;
        writeln!(out, "  {}", shown(&self.text))?;
        write!(out, "  {:column$}^", "")
    }
}

impl std::error::Error for ParseError {}

/// An offset and a reason. [`selector`] adds the text.
struct Fault {
    at: usize,
    reason: String,
}

type Parsed<T> = Result<T, Fault>;

/// A part of the text and its offset in bytes.
#[derive(Clone, Copy)]
struct Span<'a> {
    text: &'a str,
    at: usize,
}

pub(super) fn selector(text: &str, duplicates: Duplicates) -> Result<Selector, ParseError> {
    if text.is_empty() {
        return Ok(Selector { terms: Vec::new() });
    }
    let whole = Span { text, at: 0 };
    let mut terms: Vec<Term> = Vec::new();
    for part in whole.split(';') {
        let fault = match term(part) {
            Ok(term) => match duplicate(&terms, &term) {
                Some(reason) if duplicates == Duplicates::Reject => part.fault(reason),
                _ => {
                    terms.push(term);
                    continue;
                }
            },
            Err(fault) => fault,
        };
        return Err(ParseError {
            text: text.to_owned(),
            at: fault.at,
            reason: fault.reason,
        });
    }
    Ok(Selector { terms })
}

fn duplicate(earlier: &[Term], term: &Term) -> Option<String> {
    let same = |other: &Term| other.discard == term.discard && other.backend == term.backend;
    let name = term.backend.map_or("*", Backend::name);
    let sign = if term.discard { "!" } else { "" };
    earlier.iter().any(same).then(|| {
        format!("backend `{sign}{name}` stands twice; join its lists as `{sign}{name}:a,b`")
    })
}

fn term(part: Span<'_>) -> Parsed<Term> {
    let (discard, part) = match part.text.strip_prefix('!') {
        Some(_) => (true, part.skip(1)),
        None => (false, part),
    };
    let Some(colon) = part.text.find(':') else {
        if part.text.is_empty() {
            return Err(part.fault("expected `backend:devices`"));
        }
        // Report an unknown backend first: it is likelier than a missing colon.
        backend(part)?;
        return Err(part
            .skip(part.text.len())
            .fault("expected `:` and a list of devices"));
    };
    let backend = backend(part.first(colon))?;
    let items = part
        .skip(colon + 1)
        .split(',')
        .map(item)
        .collect::<Parsed<_>>()?;
    Ok(Term {
        discard,
        backend,
        items,
    })
}

fn backend(name: Span<'_>) -> Parsed<Option<Backend>> {
    if name.text == "*" {
        return Ok(None);
    }
    if name.text.is_empty() {
        return Err(name.fault("expected a backend before `:`"));
    }
    let known = Backend::ALL
        .into_iter()
        .find(|b| b.name().eq_ignore_ascii_case(name.text));
    known.map(Some).ok_or_else(|| {
        let names = Backend::ALL.map(Backend::name).join(", ");
        name.fault(format!(
            "unknown backend `{}`; known are *, {names}",
            name.text
        ))
    })
}

fn item(part: Span<'_>) -> Parsed<Item> {
    let part = unquote(part)?;
    let mut components = part.split('.');
    let root_part = components.next().unwrap_or(part);
    let root = root(root_part)?;
    let mut above_any = root == Root::Any;
    let mut next = |what: &str| -> Parsed<Option<Index>> {
        let Some(span) = components.next() else {
            return Ok(None);
        };
        let index = index(span, what)?;
        if above_any && index != Index::Any {
            return Err(span.fault("only `*` may follow `*.`"));
        }
        above_any = index == Index::Any;
        Ok(Some(index))
    };
    let sub = next("a sub-device")?;
    let subsub = next("a sub-sub-device")?;
    match components.next() {
        None => Ok(Item { root, sub, subsub }),
        // The fault is at the dot before the extra component.
        Some(extra) => Err(Fault {
            at: extra.at - 1,
            reason: "a device has at most three components".to_owned(),
        }),
    }
}

fn root(part: Span<'_>) -> Parsed<Root> {
    const KINDS: [(&str, Kind); 3] = [("cpu", Kind::Cpu), ("gpu", Kind::Gpu), ("fpga", Kind::Fpga)];
    if part.text == "*" {
        return Ok(Root::Any);
    }
    if part.text.starts_with(|c: char| c.is_ascii_digit()) {
        return number(part).map(Root::Number);
    }
    let kind = KINDS
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(part.text));
    kind.map(|(_, kind)| Root::Kind(kind)).ok_or_else(|| {
        if part.text.is_empty() {
            part.fault("expected a device: *, a number, cpu, gpu or fpga")
        } else {
            part.fault(format!(
                "unknown device `{}`; *, a number, cpu, gpu or fpga",
                part.text
            ))
        }
    })
}

fn index(part: Span<'_>, what: &str) -> Parsed<Index> {
    if part.text == "*" {
        return Ok(Index::Any);
    }
    if part.text.is_empty() {
        return Err(part.fault(format!("expected {what}: * or a number")));
    }
    number(part).map(Index::Number)
}

fn number(part: Span<'_>) -> Parsed<u32> {
    if let Some(bad) = part.text.find(|c: char| !c.is_ascii_digit()) {
        return Err(part.skip(bad).fault("expected a digit"));
    }
    part.text
        .parse()
        .map_err(|_| part.fault("number too large"))
}

fn unquote(part: Span<'_>) -> Parsed<Span<'_>> {
    let Some(quote) = part.text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        return Ok(part);
    };
    let inner = part.skip(1);
    match inner.text.find(quote) {
        None => Err(part.fault("quote without its end")),
        Some(end) if end + 1 == inner.text.len() => Ok(inner.first(end)),
        Some(end) => Err(inner
            .skip(end + 1)
            .fault("unexpected text after a quoted device")),
    }
}

impl<'a> Span<'a> {
    fn split(self, separator: char) -> impl Iterator<Item = Span<'a>> {
        let mut at = self.at;
        self.text.split(separator).map(move |text| {
            let span = Span { text, at };
            at += text.len() + separator.len_utf8();
            span
        })
    }

    /// The text after the first `bytes`, which must end at a character boundary.
    fn skip(self, bytes: usize) -> Span<'a> {
        Span {
            text: self.text.get(bytes..).unwrap_or(""),
            at: self.at + bytes,
        }
    }

    fn first(self, bytes: usize) -> Span<'a> {
        Span {
            text: self.text.get(..bytes).unwrap_or(self.text),
            at: self.at,
        }
    }

    fn fault(self, reason: impl Into<String>) -> Fault {
        Fault {
            at: self.at,
            reason: reason.into(),
        }
    }
}
