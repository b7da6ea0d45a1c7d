//! The reference's ABI as facts.
//!
//! Reads scripts/abi/reference.json, which scripts/abi/extract.py makes from Intel's wheels. Knows nothing of
//! our specification; tests compare the two.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Facts by name. Facts with an order are lists.
pub type Map<T> = BTreeMap<String, T>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The packages of the facts.
    pub source: Vec<String>,
    pub macros: Map<Macro>,
    /// Enum tags, with the values of their enumerators.
    pub enums: Map<Map<u32>>,
    /// Handle typedefs, with the tags of their structs.
    pub handles: Map<String>,
    pub typedefs: Map<String>,
    pub callbacks: Map<Signature>,
    pub structs: Map<Layout>,
    pub unions: Map<Layout>,
    pub functions: Map<Signature>,
    /// Function pointer types, with their functions.
    pub pointers: Map<String>,
    /// The structs of the DDI, with `ur_dditable_t`.
    pub tables: Map<Layout>,
    /// `urGet<Table>ProcAddrTable`.
    pub getters: Map<Signature>,
    /// `urPrint*`.
    pub printers: Map<Signature>,
    /// Entries of `ur_api_funcs.def`.
    pub function_list: Vec<String>,
    pub symbol_version: Vec<String>,
    /// Exports of `libur_loader.so.0`.
    pub symbols: Vec<String>,
    /// Imports of `libsycl.so.9` of 2026.1.2 from the loader.
    pub imports_of_libsycl_2026_1_2: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Macro {
    Object(String),
    Function { args: Vec<String>, body: String },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    pub returns: String,
    /// Name and type of each parameter.
    pub params: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub size: usize,
    pub align: usize,
    /// Name, type and byte offset of each member, in order.
    pub fields: Vec<(String, String, usize)>,
}

impl Reference {
    pub fn load() -> Result<Self> {
        let path = crate::repository().join("scripts/abi/reference.json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Structs, unions and tables: every type with a layout.
    pub fn layouts(&self) -> impl Iterator<Item = (&String, &Layout)> {
        self.structs.iter().chain(&self.unions).chain(&self.tables)
    }

    /// The signature of a function of the interface, or of a table's getter.
    pub fn signature(&self, function: &str) -> Option<&Signature> {
        self.functions
            .get(function)
            .or_else(|| self.getters.get(function))
    }
}

impl Signature {
    /// The types as a parameter list.
    pub fn types(&self) -> String {
        match self.params.len() {
            0 => "void".to_owned(),
            _ => self
                .params
                .iter()
                .map(|(_, ty)| ty.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}
