//! What Level Zero does not tell and a module's SPIR-V does: the kinds and sizes of kernels' parameters, their required
//! sizes, and the sizes of specialization constants.
//!
//! Numbers are of the SPIR-V specification. A module that cannot be read is an error, never a panic.

use std::collections::HashMap;

/// What a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    Pointer,
    /// Local memory, of which the caller gives the size.
    Local,
    Value {
        bytes: usize,
    },
    Image,
    Sampler,
    /// What no caller has.
    Opaque,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    pub parameters: Vec<Parameter>,
    pub group_size: Option<[u32; 3]>,
    pub subgroup_size: u32,
}

#[derive(Debug, Default)]
pub struct Module {
    pub kernels: Vec<(String, Kernel)>,
    /// Sizes of specialization constants in bytes, by id.
    pub constants: HashMap<u32, usize>,
    /// Symbols that another module has to bring.
    pub imports: Vec<String>,
    /// Symbols that the module brings.
    pub exports: Vec<String>,
}

const MAGIC: u32 = 0x0723_0203;

enum Type {
    /// Size and alignment.
    Scalar(usize),
    Vector(u32, usize),
    Array(u32, u32),
    Struct(Vec<u32>),
    Pointer {
        storage: u32,
        to: Option<u32>,
    },
    Function(Vec<u32>),
    Image,
    Sampler,
    Opaque,
}

#[derive(Default)]
struct Reader {
    types: HashMap<u32, Type>,
    constants: HashMap<u32, u64>,
    packed: Vec<u32>,
    spec_ids: HashMap<u32, u32>,
    spec_types: Vec<(u32, Option<u32>)>,
    entries: Vec<(u32, String)>,
    group_sizes: HashMap<u32, [u32; 3]>,
    subgroup_sizes: HashMap<u32, u32>,
    functions: HashMap<u32, u32>,
    imports: Vec<String>,
    exports: Vec<String>,
}

pub fn is_spirv(bytes: &[u8]) -> bool {
    bytes.len() >= 20 && bytes.len().is_multiple_of(4) && bytes.starts_with(&MAGIC.to_le_bytes())
}

/// Reads a module. None if it is no SPIR-V of this byte order, or cut.
pub fn read(bytes: &[u8]) -> Option<Module> {
    if !is_spirv(bytes) {
        return None;
    }
    let words = bytes
        .chunks_exact(4)
        .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let words: Vec<u32> = words.collect();
    let mut reader = Reader::default();
    let mut rest = words.get(5..)?;
    while let [first, ..] = rest {
        let length = (first >> 16) as usize;
        if length == 0 || length > rest.len() {
            return None;
        }
        reader.instruction(first & 0xffff, &rest[1..length]);
        rest = &rest[length..];
    }
    Some(reader.module())
}

/// A string, and what follows it.
fn text(words: &[u32]) -> (String, &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let rest = words.get(end / 4 + 1..).unwrap_or(&[]);
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), rest)
}

impl Reader {
    fn instruction(&mut self, code: u32, words: &[u32]) {
        match (code, words) {
            // Entry points of kernels.
            (15, [6, id, name @ ..]) => self.entries.push((*id, text(name).0)),
            // Execution modes: group size, subgroup size.
            (16, [id, 17, x, y, z]) => drop(self.group_sizes.insert(*id, [*x, *y, *z])),
            (16, [id, 35, size]) => drop(self.subgroup_sizes.insert(*id, *size)),
            // Types.
            (20, [id]) => self.add(*id, Type::Scalar(1)),
            (21 | 22, [id, bits, ..]) => self.add(*id, Type::Scalar((*bits as usize).div_ceil(8))),
            (23, [id, element, count]) => self.add(*id, Type::Vector(*element, *count as usize)),
            (25, [id, ..]) => self.add(*id, Type::Image),
            (26, [id, ..]) => self.add(*id, Type::Sampler),
            (27 | 31 | 34..=38, [id, ..]) => self.add(*id, Type::Opaque),
            (28, [id, element, length]) => self.add(*id, Type::Array(*element, *length)),
            (30, [id, members @ ..]) => self.add(*id, Type::Struct(members.to_vec())),
            (32, [id, storage, to]) => self.add(
                *id,
                Type::Pointer {
                    storage: *storage,
                    to: Some(*to),
                },
            ),
            (4417, [id, storage]) => self.add(
                *id,
                Type::Pointer {
                    storage: *storage,
                    to: None,
                },
            ),
            (33, [id, _, parameters @ ..]) => self.add(*id, Type::Function(parameters.to_vec())),
            // Constants: an array's length is one.
            (43, [_, id, low]) => drop(self.constants.insert(*id, u64::from(*low))),
            (43, [_, id, low, high]) => {
                self.constants
                    .insert(*id, u64::from(*high) << 32 | u64::from(*low));
            }
            (48 | 49, [_, id]) => self.spec_types.push((*id, None)),
            (50, [kind, id, ..]) => self.spec_types.push((*id, Some(*kind))),
            (54, [_, id, _, kind]) => drop(self.functions.insert(*id, *kind)),
            // Decorations: constant's id, packed structure, linkage.
            (71, [id, 1, number]) => drop(self.spec_ids.insert(*id, *number)),
            (71, [id, 10]) => self.packed.push(*id),
            (71, [_, 41, name @ ..]) => {
                let (name, rest) = text(name);
                match rest {
                    [0] => self.exports.push(name),
                    // A built-in variable is the compiler's.
                    [1] if !name.starts_with("__spirv_BuiltIn") => self.imports.push(name),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, id: u32, kind: Type) {
        self.types.insert(id, kind);
    }

    /// A type's size and alignment. None for what no kernel takes by value.
    fn layout(&self, id: u32, depth: usize) -> Option<(usize, usize)> {
        // A type that holds itself is no type.
        let depth = depth.checked_sub(1)?;
        match self.types.get(&id)? {
            Type::Scalar(bytes) => Some((*bytes, *bytes)),
            Type::Vector(element, count) => {
                let (bytes, _) = self.layout(*element, depth)?;
                let all = bytes.checked_mul(if *count == 3 { 4 } else { *count })?;
                Some((all, all))
            }
            Type::Array(element, length) => {
                let (bytes, align) = self.layout(*element, depth)?;
                let count = usize::try_from(*self.constants.get(length)?).ok()?;
                Some((bytes.checked_mul(count)?, align))
            }
            Type::Struct(members) => {
                let is_packed = self.packed.contains(&id);
                let (mut end, mut most) = (0_usize, 1);
                for member in members {
                    let (bytes, align) = self.layout(*member, depth)?;
                    let align = if is_packed { 1 } else { align.max(1) };
                    end = end.checked_next_multiple_of(align)?.checked_add(bytes)?;
                    most = most.max(align);
                }
                Some((end.checked_next_multiple_of(most)?, most))
            }
            Type::Pointer { .. } => Some((8, 8)),
            Type::Function(_) | Type::Image | Type::Sampler | Type::Opaque => None,
        }
    }

    fn parameter(&self, id: u32) -> Parameter {
        let value = |id| match self.layout(id, 64) {
            Some((bytes, _)) => Parameter::Value { bytes },
            None => Parameter::Opaque,
        };
        match self.types.get(&id) {
            Some(Type::Pointer { storage: 4, .. }) => Parameter::Local,
            // A structure by value.
            Some(Type::Pointer {
                storage: 7,
                to: Some(to),
            }) => value(*to),
            Some(Type::Pointer { to: Some(to), .. })
                if matches!(self.types.get(to), Some(Type::Opaque)) =>
            {
                Parameter::Pointer
            }
            Some(Type::Pointer { .. }) => Parameter::Pointer,
            Some(Type::Image) => Parameter::Image,
            Some(Type::Sampler) => Parameter::Sampler,
            _ => value(id),
        }
    }

    fn module(self) -> Module {
        let kernel = |id: &u32| {
            let kind = self.functions.get(id).and_then(|kind| self.types.get(kind));
            let parameters = match kind {
                Some(Type::Function(all)) => all.iter().map(|one| self.parameter(*one)).collect(),
                _ => Vec::new(),
            };
            Kernel {
                parameters,
                group_size: self.group_sizes.get(id).copied(),
                subgroup_size: self.subgroup_sizes.get(id).copied().unwrap_or(0),
            }
        };
        let kernels = self
            .entries
            .iter()
            .map(|(id, name)| (name.clone(), kernel(id)));
        let constants = self.spec_types.iter().filter_map(|(id, kind)| {
            let bytes = match kind {
                Some(kind) => self.layout(*kind, 64)?.0,
                None => 1,
            };
            Some((*self.spec_ids.get(id)?, bytes))
        });
        Module {
            kernels: kernels.collect(),
            constants: constants.collect(),
            imports: self.imports,
            exports: self.exports,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module of instructions: the code, and the words behind it.
    fn assemble(all: &[(u32, &[u32])]) -> Vec<u8> {
        let mut words = vec![MAGIC, 0x1_0000, 0, 100, 0];
        for (code, rest) in all {
            let length = u32::try_from(rest.len() + 1).unwrap_or(u32::MAX);
            words.push(length << 16 | code);
            words.extend_from_slice(rest);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const K: u32 = u32::from_le_bytes(*b"k\0\0\0");

    #[test]
    fn parameters_have_kinds_and_sizes() {
        let bytes = assemble(&[
            (15, &[6, 1, K]),
            (16, &[1, 17, 8, 2, 1]),
            (71, &[9, 1, 7]),
            (21, &[2, 32, 0]),
            (21, &[3, 8, 0]),
            (21, &[4, 64, 0]),
            // Bytes, a number of 64 bits, bytes: 24 with padding.
            (30, &[5, 3, 4, 3]),
            (32, &[6, 5, 2]),
            (32, &[7, 4, 2]),
            (32, &[8, 7, 5]),
            (50, &[2, 9, 1]),
            (23, &[10, 2, 3]),
            (43, &[2, 11, 5]),
            (28, &[12, 2, 11]),
            (30, &[13, 12]),
            (25, &[14, 2, 1, 0, 0, 0, 0, 0]),
            (26, &[15]),
            (33, &[20, 0, 6, 7, 8, 3, 10, 13, 14, 15]),
            (54, &[0, 1, 0, 20]),
        ]);
        let module = read(&bytes).expect("a module");
        let value = |bytes| Parameter::Value { bytes };
        let expected = Kernel {
            parameters: vec![
                Parameter::Pointer,
                Parameter::Local,
                value(24),
                value(1),
                value(16),
                value(20),
                Parameter::Image,
                Parameter::Sampler,
            ],
            group_size: Some([8, 2, 1]),
            subgroup_size: 0,
        };
        assert_eq!(module.kernels, [("k".to_owned(), expected)]);
        assert_eq!(module.constants, HashMap::from([(7, 4)]));
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let whole = assemble(&[(21, &[2, 32, 0]), (30, &[5, 5])]);
        assert!(read(&whole).is_some());
        assert!(read(&whole[..whole.len() - 4]).is_none(), "cut");
        assert!(read(b"kernel void f() {}..").is_none());
        assert!(read(&assemble(&[])[..16]).is_none(), "no header");
        let mut empty = whole.clone();
        empty[20..24].fill(0);
        assert!(read(&empty).is_none(), "an instruction of no words");
    }

    #[test]
    fn a_type_within_itself_has_no_size() {
        let bytes = assemble(&[
            (15, &[6, 1, K]),
            (30, &[5, 5]),
            (33, &[20, 0, 5]),
            (54, &[0, 1, 0, 20]),
        ]);
        let module = read(&bytes).expect("a module");
        assert_eq!(module.kernels[0].1.parameters, [Parameter::Opaque]);
    }
}
