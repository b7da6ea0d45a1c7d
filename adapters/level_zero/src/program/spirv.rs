//! What the adapter reads of SPIR-V: whether its instructions are whole, and its specialization constants. The driver's
//! compiler does not survive a module that ends within an instruction, and accepts the id of a constant that is not
//! there.

use std::collections::HashMap;

/// A specialization constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constant {
    pub id: u32,
    /// Bytes of its value.
    pub bytes: usize,
}

/// The first word of a module.
const MAGIC: u32 = 0x0723_0203;
/// Words before the first instruction.
const HEADER_WORDS: usize = 5;

// Instructions, and the decoration, by the specification's numbers.
const TYPE_INT: u16 = 21;
const TYPE_FLOAT: u16 = 22;
const SPEC_CONSTANT_TRUE: u16 = 48;
const SPEC_CONSTANT_FALSE: u16 = 49;
const SPEC_CONSTANT: u16 = 50;
const DECORATE: u16 = 71;
const SPEC_ID: u32 = 1;

/// Whether code begins as SPIR-V does, in either order of bytes.
pub fn is_spirv(code: &[u8]) -> bool {
    code.starts_with(&MAGIC.to_le_bytes()) || code.starts_with(&MAGIC.to_be_bytes())
}

/// The specialization constants of a module. None if its instructions are not whole.
pub fn constants(code: &[u8]) -> Option<Vec<Constant>> {
    let swapped = code.starts_with(&MAGIC.to_be_bytes());
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap_or_default();
        match swapped {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        }
    };
    if !is_spirv(code) || !code.len().is_multiple_of(4) {
        return None;
    }
    let words: Vec<u32> = code.chunks_exact(4).map(word).collect();
    let mut rest = words.get(HEADER_WORDS..)?;
    let (mut sizes, mut types, mut ids) = (HashMap::new(), HashMap::new(), Vec::new());
    while let Some(&first) = rest.first() {
        let (count, operation) = ((first >> 16) as usize, first as u16);
        let operands = rest.get(1..count).filter(|_| count > 0)?;
        match (operation, operands) {
            (TYPE_INT | TYPE_FLOAT, &[result, width, ..]) => {
                sizes.insert(result, width as usize / 8);
            }
            (SPEC_CONSTANT, &[kind, result, ..]) => {
                types.insert(result, Some(kind));
            }
            (SPEC_CONSTANT_TRUE | SPEC_CONSTANT_FALSE, &[_, result, ..]) => {
                types.insert(result, None);
            }
            (DECORATE, &[target, SPEC_ID, id, ..]) => ids.push((target, id)),
            _ => {}
        }
        rest = &rest[count..];
    }
    let constant = |(target, id): (u32, u32)| {
        let bytes = match types.get(&target)? {
            Some(kind) => *sizes.get(kind)?,
            None => 1,
        };
        Some(Constant { id, bytes })
    };
    Some(ids.into_iter().filter_map(constant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(instructions: &[&[u32]]) -> Vec<u8> {
        let mut words = vec![MAGIC, 0x1_0000, 0, 100, 0];
        for instruction in instructions {
            let [operation, operands @ ..] = instruction else {
                continue;
            };
            words.push((instruction.len() as u32) << 16 | operation);
            words.extend_from_slice(operands);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn constants_have_their_types_size() {
        let code = module(&[
            &[71, 10, 1, 7],
            &[71, 11, 1, 8],
            &[71, 12, 0, 9],
            &[21, 1, 16, 0],
            &[22, 2, 64],
            &[20, 3],
            &[50, 2, 10, 0, 0],
            &[48, 3, 11],
            &[50, 1, 12, 0],
        ]);
        let found = constants(&code).expect("a whole module");
        let expected = [(7, 8), (8, 1)].map(|(id, bytes)| Constant { id, bytes });
        assert_eq!(found, expected);
        let swapped: Vec<u8> = code
            .chunks(4)
            .flat_map(|word| word.iter().rev().copied())
            .collect();
        assert_eq!(constants(&swapped), Some(found));
    }

    #[test]
    fn a_module_that_is_not_whole_is_refused() {
        let code = module(&[&[71, 10, 1, 7]]);
        for end in [0, 3, 8, 19, code.len() - 4, code.len() - 1] {
            assert_eq!(constants(&code[..end]), None, "{end} bytes");
        }
        let mut empty = module(&[&[71]]);
        empty.extend(0_u32.to_le_bytes());
        assert_eq!(constants(&empty), None, "an instruction of no words");
        assert_eq!(constants(&module(&[])), Some(Vec::new()));
    }
}
