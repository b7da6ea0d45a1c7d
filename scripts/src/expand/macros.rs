//! A small `macro_rules` expander, for macros over the list of functions.
//!
//! It knows the fragments and repetitions of this project's macros, by their tokens. A call of an unknown
//! macro, or one that no rule matches, stays a call.

use anyhow::{Context as _, Result, bail};
use proc_macro2::{Delimiter, Group, Ident, Literal, Spacing, Span, TokenStream, TokenTree};
use std::collections::BTreeMap;

/// Macro definitions by name. Several files may define one name.
#[derive(Default)]
pub struct Macros(BTreeMap<String, Vec<Definition>>);

struct Definition {
    /// The file or folder in which the definition is visible.
    place: String,
    rules: Vec<Rule>,
}

struct Rule {
    pattern: Vec<TokenTree>,
    body: Vec<TokenTree>,
}

/// The value of a metavariable: tokens, or a list of them under a repetition.
#[derive(Clone, Debug)]
enum Bound {
    Tokens(TokenStream),
    List(Vec<Bindings>),
}

type Bindings = BTreeMap<String, Bound>;

/// Limit on the depth of calls. The project's deepest is 6.
const MAX_DEPTH: usize = 16;

impl Macros {
    /// Adds the definitions in a file's tokens, nested ones included.
    pub fn define(&mut self, place: &str, tokens: TokenStream) -> Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for at in 0..tokens.len() {
            if let TokenTree::Group(group) = &tokens[at] {
                let definition = at.checked_sub(3).map(|from| &tokens[from..at]);
                match definition {
                    Some(
                        [
                            TokenTree::Ident(keyword),
                            TokenTree::Punct(bang),
                            TokenTree::Ident(name),
                        ],
                    ) if keyword == "macro_rules" && bang.as_char() == '!' => {
                        let rules = rules(group.stream()).with_context(|| name.to_string())?;
                        let place = place.to_owned();
                        let definitions = self.0.entry(name.to_string()).or_default();
                        definitions.push(Definition { place, rules });
                    }
                    _ => self.define(place, group.stream())?,
                }
            }
        }
        Ok(())
    }

    /// Replaces a macro's body, to shorten a list.
    pub fn replace_body(&mut self, name: &str, change: impl Fn(TokenStream) -> TokenStream) {
        for definition in self.0.get_mut(name).into_iter().flatten() {
            for rule in &mut definition.rules {
                let body: TokenStream = rule.body.drain(..).collect();
                rule.body = change(body).into_iter().collect();
            }
        }
    }

    /// The expansion of a call of `name` in the file `place`; none for an unknown macro.
    pub fn call(&self, place: &str, name: &str, input: TokenStream) -> Option<TokenStream> {
        self.expand_call(place, name, input, 0)
    }

    fn expand_call(
        &self,
        place: &str,
        name: &str,
        input: TokenStream,
        depth: usize,
    ) -> Option<TokenStream> {
        if depth > MAX_DEPTH {
            return None;
        }
        let definitions = self.0.get(name)?;
        let definition = definitions
            .iter()
            .max_by_key(|definition| common(&definition.place, place))?;
        let input: Vec<TokenTree> = input.into_iter().collect();
        let (bindings, body) = definition.rules.iter().find_map(|rule| {
            let mut bindings = Bindings::new();
            let used = matches(&rule.pattern, &input, &mut bindings)?;
            (used == input.len()).then_some((bindings, &rule.body))
        })?;
        let expanded = transcribe(body, &bindings).ok()?;
        Some(self.expand(place, expanded, depth + 1))
    }

    /// Expands every call within the tokens.
    fn expand(&self, place: &str, tokens: TokenStream, depth: usize) -> TokenStream {
        let mut out: Vec<TokenTree> = Vec::new();
        // Whether the last token came from an expansion that needs no `;` of the call.
        let mut is_whole = false;
        for token in tokens {
            let TokenTree::Group(group) = &token else {
                if !(is_whole && is_punct(Some(&token), ';')) {
                    out.push(token);
                }
                is_whole = false;
                continue;
            };
            is_whole = false;
            let called = match &out[..] {
                [.., TokenTree::Ident(name), bang] if is_punct(Some(bang), '!') => {
                    match name.to_string().as_str() {
                        "stringify" => Some(text_of(&group.stream())),
                        name => self.expand_call(place, name, group.stream(), depth),
                    }
                }
                _ => None,
            };
            let Some(expanded) = called else {
                let inner = self.expand(place, group.stream(), depth);
                out.push(Group::new(group.delimiter(), inner).into());
                continue;
            };
            out.truncate(out.len() - 2);
            drop_path(&mut out);
            let expanded: Vec<TokenTree> = expanded.into_iter().collect();
            is_whole = expanded.last().is_none_or(|last| is_punct(Some(last), ';'));
            out.extend(expanded);
        }
        out.into_iter().collect()
    }
}

/// `stringify!` of one name.
fn text_of(tokens: &TokenStream) -> TokenStream {
    TokenTree::from(Literal::string(&tokens.to_string())).into()
}

/// Removes a path such as `crate::module::` from the end.
fn drop_path(out: &mut Vec<TokenTree>) {
    while let [.., TokenTree::Ident(_), one, other] = &out[..]
        && is_punct(Some(one), ':')
        && is_punct(Some(other), ':')
    {
        out.truncate(out.len() - 3);
    }
}

/// The length of the common prefix of two paths.
fn common(one: &str, other: &str) -> usize {
    one.bytes()
        .zip(other.bytes())
        .take_while(|(a, b)| a == b)
        .count()
}

fn rules(tokens: TokenStream) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    let mut tokens = tokens.into_iter();
    while let Some(pattern) = tokens.next() {
        let arrow = [tokens.next(), tokens.next()];
        let (TokenTree::Group(pattern), [Some(_), Some(_)], Some(TokenTree::Group(body))) =
            (pattern, arrow, tokens.next())
        else {
            bail!("no rule of macro_rules");
        };
        rules.push(Rule {
            pattern: pattern.stream().into_iter().collect(),
            body: body.stream().into_iter().collect(),
        });
        tokens.next();
    }
    Ok(rules)
}

fn is_punct(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// A repetition after `$`: its inside, its separator, and the number of tokens after the `$`.
fn repetition(tokens: &[TokenTree]) -> Option<(Vec<TokenTree>, Option<TokenTree>, char, usize)> {
    let TokenTree::Group(group) = tokens.first()? else {
        return None;
    };
    let sign = |token: &TokenTree| match token {
        TokenTree::Punct(punct) if matches!(punct.as_char(), '*' | '+' | '?') => {
            Some(punct.as_char())
        }
        _ => None,
    };
    let inside = group.stream().into_iter().collect();
    match (tokens.get(1)?, tokens.get(2)) {
        (first, _) if sign(first).is_some() => Some((inside, None, sign(first)?, 2)),
        (separator, Some(second)) => Some((inside, Some(separator.clone()), sign(second)?, 3)),
        _ => None,
    }
}

/// Matches a pattern against the front of the input. Returns the number of matched tokens.
fn matches(pattern: &[TokenTree], input: &[TokenTree], bindings: &mut Bindings) -> Option<usize> {
    let mut at = 0;
    let mut of = 0;
    while let Some(token) = pattern.get(of) {
        of += 1;
        if is_punct(Some(token), '$') {
            if let Some((inside, separator, sign, length)) = repetition(&pattern[of..]) {
                of += length;
                at += repeated(&inside, separator.as_ref(), sign, &input[at..], bindings)?;
                continue;
            }
            let (TokenTree::Ident(name), TokenTree::Ident(fragment)) =
                (pattern.get(of)?, pattern.get(of + 2)?)
            else {
                return None;
            };
            of += 3;
            let length = fragment_length(&fragment.to_string(), &input[at..])?;
            let tokens: TokenStream = input[at..at + length].iter().cloned().collect();
            bindings.insert(name.to_string(), Bound::Tokens(tokens));
            at += length;
            continue;
        }
        match (token, input.get(at)?) {
            (TokenTree::Group(one), TokenTree::Group(other))
                if one.delimiter() == other.delimiter() =>
            {
                let inner: Vec<_> = other.stream().into_iter().collect();
                let within: Vec<_> = one.stream().into_iter().collect();
                (matches(&within, &inner, bindings)? == inner.len()).then_some(())?;
            }
            (TokenTree::Group(_), _) | (_, TokenTree::Group(_)) => return None,
            (one, other) if one.to_string() == other.to_string() => {}
            _ => return None,
        }
        at += 1;
    }
    Some(at)
}

fn repeated(
    inside: &[TokenTree],
    separator: Option<&TokenTree>,
    sign: char,
    input: &[TokenTree],
    bindings: &mut Bindings,
) -> Option<usize> {
    let mut rounds = Vec::new();
    let mut at = 0;
    while at < input.len() {
        let mut from = at;
        if let (Some(separator), false) = (separator, rounds.is_empty()) {
            if input[at].to_string() != separator.to_string() {
                break;
            }
            from += 1;
        }
        let mut round = Bindings::new();
        match matches(inside, &input[from..], &mut round) {
            Some(length) if length > 0 => at = from + length,
            _ => break,
        }
        rounds.push(round);
        if sign == '?' {
            break;
        }
    }
    if sign == '+' && rounds.is_empty() {
        return None;
    }
    for name in names(inside) {
        bindings.insert(name, Bound::List(rounds.clone()));
    }
    Some(at)
}

/// The metavariables of a pattern, or of a body.
fn names(tokens: &[TokenTree]) -> Vec<String> {
    let mut out = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                out.extend(names(&inner));
            }
            TokenTree::Ident(name) if at > 0 && is_punct(tokens.get(at - 1), '$') => {
                out.push(name.to_string());
            }
            _ => {}
        }
    }
    out
}

/// The number of tokens of a fragment.
fn fragment_length(fragment: &str, input: &[TokenTree]) -> Option<usize> {
    let first = input.first()?;
    let until = |signs: &[char]| {
        let mut angles = 0;
        let end = input
            .iter()
            .enumerate()
            .position(|(at, token)| match token {
                TokenTree::Punct(punct) => {
                    let sign = punct.as_char();
                    let arrow = at > 0 && is_punct(input.get(at - 1), '-');
                    match sign {
                        '<' => angles += 1,
                        '>' if !arrow => angles -= 1,
                        _ => {}
                    }
                    angles <= 0 && signs.contains(&sign) && punct.spacing() == Spacing::Alone
                }
                _ => false,
            });
        end.or(Some(input.len())).filter(|length| *length > 0)
    };
    match (fragment, first) {
        ("tt", _) => Some(1),
        ("ident", TokenTree::Ident(_)) | ("literal", TokenTree::Literal(_)) => Some(1),
        ("block", TokenTree::Group(group)) => (group.delimiter() == Delimiter::Brace).then_some(1),
        ("ty" | "path", _) => until(&['=', ',', ';', '|', ':']),
        ("expr" | "meta", _) => until(&[',', ';']),
        ("stmt", _) => until(&[';']),
        _ => None,
    }
}

fn transcribe(body: &[TokenTree], bindings: &Bindings) -> Result<TokenStream> {
    let mut out = TokenStream::new();
    let mut at = 0;
    while let Some(token) = body.get(at) {
        at += 1;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => {
                if let Some((inside, separator, _, length)) = repetition(&body[at..]) {
                    at += length;
                    for (round, bindings) in rounds(&inside, bindings)?.iter().enumerate() {
                        if let (Some(separator), true) = (&separator, round > 0) {
                            out.extend([separator.clone()]);
                        }
                        out.extend(transcribe(&inside, bindings)?);
                    }
                    continue;
                }
                let Some(TokenTree::Ident(name)) = body.get(at) else {
                    bail!("a stray $");
                };
                at += 1;
                match bindings.get(&name.to_string()) {
                    Some(Bound::Tokens(tokens)) => out.extend(tokens.clone()),
                    Some(Bound::List(_)) => bail!("${name} is repeated"),
                    None if name == "crate" => {
                        out.extend([TokenTree::from(Ident::new("crate", Span::call_site()))]);
                    }
                    None => bail!("${name} is not bound"),
                }
            }
            TokenTree::Group(group) => {
                let inner: Vec<_> = group.stream().into_iter().collect();
                let inner = transcribe(&inner, bindings)?;
                out.extend([TokenTree::from(Group::new(group.delimiter(), inner))]);
            }
            other => out.extend([other.clone()]),
        }
    }
    Ok(out)
}

/// The bindings of each round of a repetition.
fn rounds(inside: &[TokenTree], bindings: &Bindings) -> Result<Vec<Bindings>> {
    let list = names(inside)
        .iter()
        .find_map(|name| match bindings.get(name) {
            Some(Bound::List(rounds)) => Some(rounds.clone()),
            _ => None,
        });
    let rounds = list.context("a repetition of nothing")?;
    let with_outer = |round: Bindings| {
        let mut all = bindings.clone();
        all.extend(round);
        all
    };
    Ok(rounds.into_iter().map(with_outer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str, call: &str, input: &str) -> String {
        let mut macros = Macros::default();
        macros
            .define("a.rs", text.parse().expect("tokens"))
            .expect("rules");
        let input = input.parse().expect("tokens");
        let out = macros.call("a.rs", call, input).expect("a rule matches");
        out.to_string().split_whitespace().collect()
    }

    #[test]
    fn repetitions_are_nested() {
        let text = "macro_rules! m { ($( $a:ident { $( $b:ident : $t:ty = $c:tt ),* } )*) => {
            $( $( fn $b(x: $t) { n!($a $c) } )* )* } }
            macro_rules! n { (A $c:tt) => { first($c) }; ($a:ident [$($c:tt)*]) => { $($c),* } }";
        assert_eq!(
            expanded(
                text,
                "m",
                "A { p: *mut u8 = [1] , q: u8 = [2] } B { r: u8 = [3 4] }"
            ),
            "fnp(x:*mutu8){first([1])}fnq(x:u8){first([2])}fnr(x:u8){3,4}"
        );
    }

    #[test]
    fn calls_that_become_nothing_leave_no_statement() {
        let text = "macro_rules! m { ($a:ident) => { $crate::x::n!($a); f(stringify!($a)); } }
            macro_rules! n { (other) => { g(); }; ($a:tt) => {}; }";
        assert_eq!(expanded(text, "m", "one"), "f(\"one\");");
        assert_eq!(expanded(text, "m", "other"), "g();f(\"other\");");
    }

    #[test]
    fn what_no_rule_matches_stays() {
        let text =
            "macro_rules! m { ($a:literal) => { n!($a); o![$a] } } macro_rules! n { (2) => {} }";
        assert_eq!(expanded(text, "m", "1"), "n!(1);o![1]");
    }
}
