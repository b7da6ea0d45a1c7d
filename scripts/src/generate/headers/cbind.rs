//! Runs cbindgen over the ABI model, and splits its output into C declarations by name.
//!
//! Corrects in the text what cbindgen cannot express: hexadecimal enumerators, calling convention and
//! visibility, parameters' comments, types without tags.

use super::abi_model::{AbiModel, FORCE};
use super::comment::{self, Recurring};
use crate::model::Param;
use anyhow::{Context as _, Result};
use cbindgen::{Config, DocumentationLength, DocumentationStyle, Language, Layout, Style};
use std::collections::HashMap;

/// C declarations by name, each with its comment and without a final newline.
pub struct Declarations(HashMap<String, String>);

impl Declarations {
    /// A type's declaration.
    pub fn get(&self, name: &str) -> Result<String> {
        self.0
            .get(name)
            .cloned()
            .with_context(|| format!("cbindgen gave no declaration of {name}"))
    }

    /// A struct's declaration, with as many members on a line as fit.
    pub fn filled(&self, name: &str) -> Result<String> {
        let text = self.get(name)?;
        let (head, rest) = text
            .split_once('{')
            .with_context(|| format!("{name} is no struct"))?;
        let (members, tail) = rest
            .rsplit_once('}')
            .with_context(|| format!("{name} is no struct"))?;
        let members = members
            .split_inclusive(';')
            .map(str::trim)
            .filter(|member| !member.is_empty());
        let lines = comment::fill(members, comment::WIDTH);
        Ok(format!("{head}{{\n  {}\n}}{tail}", lines.join("\n  ")))
    }

    /// The typedef of a function pointer, with as many parameters on a line as fit.
    pub fn pointer(&self, name: &str) -> Result<String> {
        let (comment, head, arguments) = parts(&self.get(name)?)?;
        let head = head.replace("(*", "(UR_APICALL *");
        let lines = comment::fill(arguments.iter().map(String::as_str), comment::WIDTH);
        Ok(format!("{comment}{head}(\n    {});", lines.join("\n    ")))
    }

    /// A function's prototype, each parameter below its description.
    pub fn function(&self, name: &str, params: &[Param], recurring: &Recurring) -> Result<String> {
        let (comment, head, arguments) = parts(&self.get(name)?)?;
        let returns = head
            .strip_suffix(name)
            .unwrap_or_default()
            .trim_start_matches("extern ")
            .trim_end();
        let mut lines = Vec::new();
        let mut plain: Vec<&str> = Vec::new();
        for (at, argument) in arguments.iter().enumerate() {
            let text = params
                .get(at)
                .map(|param| recurring.param(param))
                .unwrap_or_default();
            if !text.is_empty() {
                lines.extend(comment::fill(plain.drain(..), comment::WIDTH));
                lines.extend(
                    comment::wrap(&text, comment::WIDTH - 4)
                        .iter()
                        .map(|line| format!("/// {line}")),
                );
                lines.push(argument.clone());
            } else {
                plain.push(argument);
            }
        }
        lines.extend(comment::fill(plain, comment::WIDTH));
        Ok(format!(
            "{comment}UR_APIEXPORT {returns} UR_APICALL {name}(\n    {});",
            lines.join("\n    ")
        ))
    }
}

pub fn declarations(model: &AbiModel) -> Result<Declarations> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("abi_model.rs");
    std::fs::write(&path, &model.source)?;
    let bindings = cbindgen::Builder::new()
        .with_config(config(&model.types))
        .with_src(&path)
        .generate()
        .context("cbindgen cannot read the ABI model")?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text)?;
    let blocks = text
        .split("\n\n")
        .map(str::trim)
        .filter(|block| !block.is_empty());
    Ok(Declarations(
        blocks
            .filter_map(|block| Some((name(block)?, tidy(block))))
            .collect(),
    ))
}

fn config(types: &[String]) -> Config {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        documentation_style: DocumentationStyle::Cxx,
        documentation_length: DocumentationLength::Full,
        no_includes: true,
        line_length: comment::WIDTH + 4,
        ..Config::default()
    };
    config.function.args = Layout::Vertical;
    config.export.include = types.to_vec();
    config
}

/// The name that a block declares.
fn name(block: &str) -> Option<String> {
    let code: Vec<&str> = block
        .lines()
        .filter(|line| !line.starts_with("//"))
        .collect();
    let first = code.first()?;
    let found = if let Some((_, rest)) = first.split_once("(*") {
        rest.split(')').next()?
    } else if first.starts_with("typedef") {
        code.last()?
            .trim_end_matches(';')
            .rsplit([' ', '*', '}'])
            .next()?
    } else {
        first.split('(').next()?.rsplit([' ', '*']).next()?
    };
    Some(found.to_owned())
}

fn tidy(block: &str) -> String {
    let bits = block.contains("_flag_t {");
    let lines = block.lines().map(|line| match line.split_once(" = ") {
        _ if line.trim_start().starts_with("//") => line.to_owned(),
        Some((head, tail)) => match tail.trim_end_matches(',').parse::<u32>() {
            Ok(value) => format!("{head} = {},", number(value, bits)),
            Err(_) => line.to_owned(),
        },
        None => untagged(line),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn number(value: u32, bits: bool) -> String {
    if bits || value == FORCE || value >= 0x100 {
        format!("{value:#x}")
    } else {
        value.to_string()
    }
}

/// Replaces tags by typedefs, except where a tag is declared.
fn untagged(line: &str) -> String {
    if line.starts_with("typedef") && (line.ends_with('{') || line.contains("_handle_t_ ")) {
        return line.to_owned();
    }
    ["enum ", "struct ", "union "]
        .iter()
        .fold(line.to_owned(), |line, tag| {
            line.replace(&format!("{tag}ur_"), "ur_")
        })
}

/// The comment, the text before the parameter list, and the parameters, each with its comma.
fn parts(block: &str) -> Result<(String, String, Vec<String>)> {
    let (comment, code): (Vec<&str>, Vec<&str>) =
        block.lines().partition(|line| line.starts_with("//"));
    let comment: String = comment.iter().map(|line| format!("{line}\n")).collect();
    let code = code
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ");
    let (head, list) = code
        .trim_end_matches(");")
        .rsplit_once('(')
        .with_context(|| format!("no parameter list: {code}"))?;
    Ok((
        comment,
        head.to_owned(),
        list.split_inclusive(", ")
            .map(|one| one.trim().to_owned())
            .collect(),
    ))
}
