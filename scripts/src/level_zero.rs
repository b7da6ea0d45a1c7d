//! The ABI of Level Zero as facts.
//!
//! Reads scripts/abi/level_zero.json, which scripts/abi/level_zero.py makes from Debian's packages. Lists keep the
//! order of the headers.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The file of the facts, from the repository's root.
pub const FACTS: &str = "scripts/abi/level_zero.json";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelZero {
    /// The packages of the facts.
    pub source: Vec<String>,
    /// The newest version of the interface: major << 16 | minor.
    pub version: u32,
    pub macros: BTreeMap<String, u64>,
    /// Enums, with their enumerators.
    pub enums: BTreeMap<String, BTreeMap<String, u32>>,
    /// Handle typedefs, with the tags of their structs.
    pub handles: BTreeMap<String, String>,
    pub typedefs: BTreeMap<String, String>,
    pub callbacks: BTreeMap<String, Signature>,
    pub structs: BTreeMap<String, Layout>,
    pub unions: BTreeMap<String, Layout>,
    pub functions: BTreeMap<String, Signature>,
    /// Tables of a driver's functions, by the function that fills them.
    pub tables: BTreeMap<String, Table>,
    /// The functions that an older version, a number as text, does not have.
    pub since: BTreeMap<String, Vec<String>>,
}

/// The result, and name and type of each parameter.
#[derive(Debug, Deserialize)]
pub struct Signature(pub String, pub Vec<(String, String)>);

/// Size, alignment, and name, type and offset of each member.
#[derive(Debug, Deserialize)]
pub struct Layout(pub usize, pub usize, pub Vec<(String, String, usize)>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub table: String,
    /// How many entries an older version had.
    pub lengths: BTreeMap<String, usize>,
    /// Each member, with its function.
    pub entries: Vec<(String, String)>,
}

impl LevelZero {
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join(FACTS);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }
}
