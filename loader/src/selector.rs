//! `ONEAPI_DEVICE_SELECTOR`: the devices that a user wants to see.
//!
//! Owns the grammar and its meaning, as pure functions over text and numbers. It may use the
//! standard library only. It must never know a handle, an adapter or the environment.
//!
//! ```text
//! selector = term { ";" term }
//! term     = [ "!" ] backend ":" item { "," item }
//! backend  = "*" | "level_zero" | "opencl" | "cuda" | "hip" | "native_cpu" | "offload"
//! item     = root [ "." index [ "." index ] ]          quotes around an item are allowed
//! root     = "*" | number | "cpu" | "gpu" | "fpga"
//! index    = "*" | number                              only "*" may follow "*."
//! ```
//!
//! Words are case-insensitive. A backend may have one accepting term and one discarding term (with
//! `!`).
//!
//! A device is selected if an accepting item of its depth matches it and no discarding item matches
//! it or one of its ancestors. Discarding items take precedence wherever they stand. A selector
//! without accepting terms accepts every root device.

mod parse;
#[cfg(test)]
mod tests;

pub use parse::ParseError;

/// A backend by the name that selectors use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    LevelZero,
    OpenCl,
    Cuda,
    Hip,
    NativeCpu,
    Offload,
}

impl Backend {
    pub const ALL: [Backend; 6] = [
        Backend::LevelZero,
        Backend::OpenCl,
        Backend::Cuda,
        Backend::Hip,
        Backend::NativeCpu,
        Backend::Offload,
    ];

    /// The backend's name in a selector.
    pub fn name(self) -> &'static str {
        match self {
            Backend::LevelZero => "level_zero",
            Backend::OpenCl => "opencl",
            Backend::Cuda => "cuda",
            Backend::Hip => "hip",
            Backend::NativeCpu => "native_cpu",
            Backend::Offload => "offload",
        }
    }
}

/// The type of a root device. Sub-devices have the type of their root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Cpu,
    Gpu,
    Fpga,
    /// A type that selectors cannot name; matched by number or `*` only.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Any,
    Kind(Kind),
    Number(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Any,
    Number(u32),
}

/// One item: matches root devices, sub-devices or sub-sub-devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    root: Root,
    sub: Option<Index>,
    subsub: Option<Index>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    discard: bool,
    /// `None` matches every backend (`*`).
    backend: Option<Backend>,
    items: Vec<Item>,
}

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    terms: Vec<Term>,
}

/// How to treat a backend with two accepting or two discarding terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    Reject,
    Merge,
}

impl Selector {
    /// Parses `text`. An empty text selects every root device.
    pub fn parse(text: &str, duplicates: Duplicates) -> Result<Selector, ParseError> {
        parse::selector(text, duplicates)
    }

    /// Whether an adapter for `backend` with devices of `kinds` may have a selected device.
    ///
    /// The answer may be yes without need: a discarded number does not show that an adapter has no
    /// other device.
    pub fn keeps_adapter(&self, backend: Backend, kinds: &[Kind]) -> bool {
        let selection = self.for_backend(Some(backend));
        kinds.iter().any(|&kind| {
            selection
                .accepts
                .iter()
                .any(|item| item.root.may_match(kind))
                && !selection.discards.iter().any(|item| item.covers_all(kind))
        })
    }

    /// The items that apply to devices of `backend`. Only `*` applies to a backend that selectors
    /// cannot name.
    pub fn for_backend(&self, backend: Option<Backend>) -> Selection {
        let items = |discard: bool| -> Vec<Item> {
            self.terms
                .iter()
                .filter(|term| term.discard == discard)
                .filter(|term| term.backend.is_none() || term.backend == backend)
                .flat_map(|term| term.items.iter().copied())
                .collect()
        };
        let mut accepts = items(false);
        if self.terms.iter().all(|term| term.discard) {
            accepts.push(Item::EVERY_ROOT);
        }
        Selection {
            accepts,
            discards: items(true),
        }
    }
}

/// A selector's items for one backend.
#[derive(Clone, Debug)]
pub struct Selection {
    accepts: Vec<Item>,
    discards: Vec<Item>,
}

impl Selection {
    /// Whether no device of the backend can be selected.
    pub fn is_empty(&self) -> bool {
        self.accepts.is_empty()
    }

    /// Whether an item names a root device by number.
    pub fn uses_root_numbers(&self) -> bool {
        let numbered = |item: &Item| matches!(item.root, Root::Number(_));
        self.accepts.iter().any(numbered) || self.discards.iter().any(numbered)
    }

    /// Whether the device at `path` (root number, then sub-device numbers) is selected.
    pub fn selects(&self, path: &[u32], kind: Kind) -> bool {
        let accepted = |item: &Item| item.depth() == path.len() && item.matches(path, kind);
        self.accepts.iter().any(accepted) && !self.discarded(path, kind)
    }

    /// Whether a part of the device at `path` may be selected, so that it must be partitioned.
    pub fn descends(&self, path: &[u32], kind: Kind) -> bool {
        let deeper = |item: &Item| item.depth() > path.len() && item.matches(path, kind);
        self.accepts.iter().any(deeper) && !self.discarded(path, kind)
    }

    fn discarded(&self, path: &[u32], kind: Kind) -> bool {
        self.discards
            .iter()
            .any(|item| item.depth() <= path.len() && item.matches(path, kind))
    }
}

impl Item {
    const EVERY_ROOT: Item = Item {
        root: Root::Any,
        sub: None,
        subsub: None,
    };

    fn depth(&self) -> usize {
        1 + usize::from(self.sub.is_some()) + usize::from(self.subsub.is_some())
    }

    /// Whether the item agrees with `path` in every component that both have.
    fn matches(&self, path: &[u32], kind: Kind) -> bool {
        let root = match (self.root, path.first()) {
            (Root::Any, _) | (_, None) => true,
            (Root::Kind(own), _) => own == kind,
            (Root::Number(own), Some(&number)) => own == number,
        };
        let component = |own: Option<Index>, number: Option<&u32>| match (own, number) {
            (Some(Index::Number(own)), Some(&number)) => own == number,
            _ => true,
        };
        root && component(self.sub, path.get(1)) && component(self.subsub, path.get(2))
    }

    /// Whether the item matches every root device of `kind`.
    fn covers_all(&self, kind: Kind) -> bool {
        let root = match self.root {
            Root::Any => true,
            Root::Kind(own) => own == kind,
            Root::Number(_) => false,
        };
        root && self.sub.is_none()
    }
}

impl Root {
    fn may_match(self, kind: Kind) -> bool {
        match self {
            Root::Any | Root::Number(_) => true,
            Root::Kind(own) => own == kind,
        }
    }
}
