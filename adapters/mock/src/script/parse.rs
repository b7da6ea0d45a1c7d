//! The parser: a cursor over the text, and a function for each part of the language.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ur::abi::*;

use super::value::{self, Value};
use super::{Action, Calls, Rule, Script};
use crate::functions::NAMES;
use crate::info;

/// A syntax error and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.reason
        )
    }
}

type Parsed<T> = Result<T, ParseError>;

pub(super) fn script(text: &str) -> Parsed<Script> {
    let mut cursor = Cursor { text, at: 0 };
    let mut script = Script::default();
    loop {
        cursor.skip_between();
        if cursor.rest().is_empty() {
            return Ok(script);
        }
        statement(&mut cursor, &mut script)?;
        cursor.skip_blanks();
        if !cursor.at_end_of_statement() {
            return Err(cursor.error("`;` or the end of the line expected"));
        }
    }
}

fn statement(cursor: &mut Cursor<'_>, script: &mut Script) -> Parsed<()> {
    let start = cursor.at;
    let word = cursor.word(|letter| is_name(letter) || letter == '*');
    if word.starts_with("UR_") {
        let (name, ty) = info::find(word)
            .ok_or_else(|| cursor.error_at(start, format!("unknown property `{word}`")))?;
        cursor.expect('=')?;
        cursor.skip_blanks();
        let begin = cursor.at;
        let bytes = match value(cursor)? {
            Value::None => None,
            given => {
                Some(value::bytes(&given, ty).map_err(|reason| cursor.error_at(begin, reason))?)
            }
        };
        script.values.insert(name, bytes);
        return Ok(());
    }
    let functions: Vec<usize> = (0..NAMES.len())
        .filter(|&index| fits(word, NAMES[index]))
        .collect();
    if functions.is_empty() {
        return Err(cursor.error_at(start, format!("no function `{word}`")));
    }
    let calls = calls(cursor)?;
    cursor.expect(':')?;
    let mut actions = vec![action(cursor)?];
    while cursor.take(',') {
        actions.push(action(cursor)?);
    }
    script.rules.push(Rule {
        pattern: word.to_owned(),
        functions,
        calls,
        actions,
        call_count: AtomicU64::new(0),
    });
    Ok(())
}

/// Whether a pattern, in which `*` matches any text, matches a whole name.
///
/// The text between two stars is matched at its first occurrence. A later one would leave less of
/// the name, so that no backtracking is needed.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name
        .strip_prefix(head)
        .and_then(|name| name.strip_suffix(tail));
    let mut left = inner;
    for part in middle.split('*') {
        left = left.and_then(|left| Some(left.split_once(part)?.1));
    }
    left.is_some()
}

fn calls(cursor: &mut Cursor<'_>) -> Parsed<Calls> {
    if !cursor.take('@') {
        return Ok(Calls::All);
    }
    if cursor.take('/') {
        return Ok(Calls::Every(cursor.count()?));
    }
    let first = cursor.count()?;
    if !cursor.take_text("..") {
        return Ok(Calls::FromTo(first, first));
    }
    if !cursor.next_is(|letter| letter.is_ascii_digit()) {
        return Ok(Calls::From(first));
    }
    let begin = cursor.at;
    let last = cursor.count()?;
    if last < first {
        return Err(cursor.error_at(begin, "the last call comes before the first".to_owned()));
    }
    Ok(Calls::FromTo(first, last))
}

fn action(cursor: &mut Cursor<'_>) -> Parsed<Action> {
    cursor.skip_blanks();
    let start = cursor.at;
    match cursor.word(is_name) {
        "delay" => {
            cursor.skip_blanks();
            let start = cursor.at;
            let amount = cursor.number()?;
            let unit = match cursor.word(is_name) {
                "ns" => 1,
                "us" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                _ => {
                    return Err(cursor.error_at(start, "a time in ns, us, ms or s expected".into()));
                }
            };
            let nanoseconds = amount
                .checked_mul(unit)
                .ok_or_else(|| cursor.error_at(start, "too long a time".to_owned()))?;
            Ok(Action::Delay(Duration::from_nanos(nanoseconds)))
        }
        "error" => {
            cursor.skip_blanks();
            let start = cursor.at;
            let name = cursor.word(is_name);
            let code = result(name)
                .ok_or_else(|| cursor.error_at(start, format!("no error is called `{name}`")))?;
            Ok(Action::Error(code))
        }
        _ => Err(cursor.error_at(start, "`delay` or `error` expected".to_owned())),
    }
}

fn result(name: &str) -> Option<ur_result_t> {
    let short = name.strip_prefix("UR_RESULT_ERROR_").unwrap_or(name);
    let code = ur::abi::constant(&format!("UR_RESULT_ERROR_{short}"))?;
    Some(ur_result_t(code))
}

fn value(cursor: &mut Cursor<'_>) -> Parsed<Value> {
    if cursor.take('"') {
        return text(cursor);
    }
    if cursor.take('[') {
        let mut list = Vec::new();
        while !cursor.take(']') {
            if !list.is_empty() {
                cursor.expect(',')?;
            }
            list.push(number(cursor)?);
        }
        return Ok(Value::List(list));
    }
    let before = cursor.at;
    cursor.skip_blanks();
    if cursor.word(is_name) == "none" {
        return Ok(Value::None);
    }
    cursor.at = before;
    Ok(Value::Number(number(cursor)?))
}

fn text(cursor: &mut Cursor<'_>) -> Parsed<Value> {
    let mut out = String::new();
    loop {
        match cursor.next() {
            Some('"') => return Ok(Value::Text(out)),
            Some('\\') => match cursor.next() {
                Some(letter @ ('"' | '\\')) => out.push(letter),
                _ => return Err(cursor.error("`\\` stands before `\"` or `\\` only")),
            },
            Some('\0') => return Err(cursor.error("a text holds no NUL")),
            Some(letter) if letter != '\n' => out.push(letter),
            _ => return Err(cursor.error("the text has no end")),
        }
    }
}

/// A number, an enumerator, or several joined by `|`.
fn number(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    let mut all = operand(cursor)?;
    while cursor.take('|') {
        all |= operand(cursor)?;
    }
    Ok(all)
}

fn operand(cursor: &mut Cursor<'_>) -> Parsed<u64> {
    cursor.skip_blanks();
    if cursor.next_is(|letter| letter.is_ascii_digit()) {
        return cursor.number();
    }
    let start = cursor.at;
    match cursor.word(is_name) {
        "true" => Ok(1),
        "false" => Ok(0),
        name => ur::abi::constant(name)
            .map(u64::from)
            .ok_or_else(|| cursor.error_at(start, format!("`{name}` is no value"))),
    }
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest().chars().next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn next_is(&self, is: impl Fn(char) -> bool) -> bool {
        self.rest().chars().next().is_some_and(is)
    }

    /// Skips blanks within a line.
    fn skip_blanks(&mut self) {
        self.word(|letter| letter == ' ' || letter == '\t' || letter == '\r');
    }

    /// Skips blanks, separators and comments between statements.
    fn skip_between(&mut self) {
        loop {
            self.word(|letter| letter.is_whitespace() || letter == ';');
            if !self.next_is(|letter| letter == '#') {
                return;
            }
            self.word(|letter| letter != '\n');
        }
    }

    fn at_end_of_statement(&self) -> bool {
        self.rest().is_empty() || self.next_is(|letter| matches!(letter, ';' | '\n' | '#'))
    }

    /// Takes the characters from here on for which `is` holds.
    fn word(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|letter| !is(letter)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Takes a character, and blanks before it, if it comes next.
    fn take(&mut self, sign: char) -> bool {
        let before = self.at;
        self.skip_blanks();
        if self.next() == Some(sign) {
            return true;
        }
        self.at = before;
        false
    }

    fn take_text(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn expect(&mut self, sign: char) -> Parsed<()> {
        if self.take(sign) {
            return Ok(());
        }
        Err(self.error(&format!("`{sign}` expected")))
    }

    /// Takes decimal digits, or `0x` and hexadecimal digits.
    fn number(&mut self) -> Parsed<u64> {
        let start = self.at;
        let number = if self.take_text("0x") {
            u64::from_str_radix(self.word(|letter| letter.is_ascii_hexdigit()), 16)
        } else {
            self.word(|letter| letter.is_ascii_digit()).parse()
        };
        number.map_err(|error| self.error_at(start, format!("a number expected: {error}")))
    }

    /// Takes a number of calls, which is at least 1.
    fn count(&mut self) -> Parsed<u64> {
        let start = self.at;
        match self.number()? {
            0 => Err(self.error_at(start, "calls are counted from 1".to_owned())),
            count => Ok(count),
        }
    }

    fn error(&self, reason: &str) -> ParseError {
        self.error_at(self.at, reason.to_owned())
    }

    fn error_at(&self, at: usize, reason: String) -> ParseError {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        ParseError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            reason,
        }
    }
}
