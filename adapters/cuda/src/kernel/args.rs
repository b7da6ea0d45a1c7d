//! A launch's arguments, packed in the function's parameter layout.

use std::sync::Arc;

use ur::abi::*;
use ur::hal::{Exported, checks};
use ur::object::{Error, Object, Result, ensure};
use ur::stream::Use;

use super::code::Function;
use crate::Cuda;
use crate::cu::sys::CUstream;
use crate::device::Device;
use crate::exec::Gpu;
use crate::mem::{self, Mem};
use crate::sampler::Sampler;

/// Largest number of 8-byte words that are stored inline.
const MAX_INLINE_WORDS: usize = 16;

/// The bytes of all parameters. They are inline for most launches.
#[derive(Clone, Default)]
pub struct Packed {
    inline: [u64; MAX_INLINE_WORDS],
    /// Replaces `inline` if that is too small.
    heap: Option<Box<[u64]>>,
    bytes: usize,
}

/// Most bytes of parameters on any device.
const MAX_ARGS_BYTES: usize = 32 << 10;

/// Bytes of alignment of a local argument. A smaller one is aligned to its size, rounded up to a power of 2.
const LOCAL_ALIGN_BYTES: usize = 128;

impl Packed {
    /// Makes room for this many bytes, zeroed.
    fn resize(&mut self, bytes: usize) -> Result<()> {
        ensure(bytes <= MAX_ARGS_BYTES, UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
        self.bytes = bytes;
        if bytes > size_of_val(&self.inline) {
            self.heap = Some(vec![0; bytes.div_ceil(8)].into());
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn start(&self) -> *const u64 {
        self.heap.as_deref().unwrap_or(&self.inline).as_ptr()
    }

    fn words(&mut self) -> Words<'_> {
        Words(self.heap.as_deref_mut().unwrap_or(&mut self.inline))
    }
}

/// The memory of parameters, as `pack` writes it.
struct Words<'a>(&'a mut [u64]);

impl Words<'_> {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let (start, size) = (self.0.as_mut_ptr().cast::<u8>(), size_of_val(self.0));
        assert!(at + bytes.len() <= size, "places are checked before");
        // SAFETY: the range was just checked, and `self` borrows the words exclusively.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(at), bytes.len()) };
    }

    /// Writes an address or an offset of local memory, as wide as the parameter.
    #[inline]
    fn number(&mut self, (at, size): (usize, usize), number: usize) {
        match self.0.get_mut(at / 8) {
            // Nearly all parameters.
            Some(word) if size == 8 && at.is_multiple_of(8) => *word = number as u64,
            _ => {
                let bytes = number.to_ne_bytes();
                self.write(at, &bytes[..bytes.len().min(size)]);
            }
        }
    }
}

/// A layout of parameters with these sizes, for drivers that do not report it: each is aligned to the
/// largest power of two in its size, up to 16.
fn guess(sizes: &[usize]) -> Box<[(usize, usize)]> {
    let mut end = 0;
    let places = sizes.iter().map(|&bytes| {
        let align = 1usize << bytes.max(1).trailing_zeros().min(4);
        let at = usize::next_multiple_of(end, align);
        end = at + bytes;
        (at, bytes)
    });
    places.collect()
}

/// The size of an argument's parameter in bytes.
fn size(arg: &ur_exp_kernel_arg_properties_t) -> usize {
    match arg.r#type {
        UR_EXP_KERNEL_ARG_TYPE_VALUE => arg.size,
        UR_EXP_KERNEL_ARG_TYPE_LOCAL | UR_EXP_KERNEL_ARG_TYPE_SAMPLER => size_of::<u32>(),
        _ => size_of::<u64>(),
    }
}

/// A buffer or image whose place is known only with the launch.
#[derive(Clone)]
pub struct Moving {
    /// Offset and size in bytes of its parameter.
    place: (usize, usize),
    memory: mem::Moving,
    writes: bool,
}

/// Arguments of a launch.
#[derive(Clone, Default)]
pub struct Args {
    pub packed: Packed,
    pub moving: Vec<Moving>,
    /// Bytes of local memory in all.
    pub local_bytes: usize,
}

impl Args {
    /// The parameters with the addresses of buffers for a launch now on a stream. The context is current.
    pub fn resolved(&self, gpu: &Arc<Gpu>, stream: CUstream) -> Result<Packed> {
        let mut packed = self.packed.clone();
        let is_same = |one: &Moving, other: &Moving| match (&one.memory, &other.memory) {
            (mem::Moving::Buffer(one), mem::Moving::Buffer(other)) => {
                Arc::ptr_eq(&one.copies, &other.copies)
            }
            (mem::Moving::Image(one), mem::Moving::Image(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        for (at, own) in self.moving.iter().enumerate() {
            // A buffer may be an argument twice, or several parts of it.
            if self.moving[..at].iter().any(|other| is_same(own, other)) {
                continue;
            }
            let all = || self.moving.iter().filter(|other| is_same(own, other));
            let writes = all().any(|other| other.writes);
            let start = match &own.memory {
                mem::Moving::Buffer(part) => part.copies.for_kernel(gpu, &stream, writes)?,
                mem::Moving::Image(image) => image.arrays.on(gpu, stream, writes)?.surface()?,
            };
            for Moving { place, memory, .. } in all() {
                let offset = match memory {
                    mem::Moving::Buffer(part) => part.offset,
                    mem::Moving::Image(_) => 0,
                };
                packed.words().number(*place, start + offset);
            }
        }
        Ok(packed)
    }
}

/// Packs arguments for a device, followed by the offset if there is one. `args` is new.
pub fn pack(
    device: &Object<Device>,
    function: &Function,
    list: &[ur_exp_kernel_arg_properties_t],
    offset: Option<[u32; 3]>,
    args: &mut Args,
) -> Result<()> {
    let guessed;
    let layout = match &function.layout {
        Some(layout) => layout,
        None => {
            let mut sizes = vec![0; list.len()];
            for arg in list {
                let slot = sizes.get_mut(arg.index as usize);
                *slot.ok_or(Error::new(UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX))? = size(arg);
            }
            sizes.extend(offset.map(|_| size_of::<[u32; 3]>()));
            guessed = guess(&sizes);
            &guessed
        }
    };
    let explicit = layout.len() - usize::from(offset.is_some()).min(layout.len());
    let bytes = layout.last().map_or(0, |(at, bytes)| at + bytes);
    args.packed.resize(bytes)?;
    let mut words = args.packed.words();
    let moving = &mut args.moving;
    let mut locals: Vec<(usize, usize)> = Vec::new();
    let mut given = 0u64;
    for arg in list {
        let index = arg.index as usize;
        ensure(
            index < explicit,
            UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
        )?;
        given |= 1 << index.min(63);
        let (at, size) = layout[index];
        // SAFETY: the type names the valid member, whose memory lasts for the call.
        unsafe {
            match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                    ensure(
                        0 < arg.size && arg.size <= size,
                        UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                    )?;
                    words.write(at, checks::slice(arg.value.value.cast(), arg.size)?);
                }
                UR_EXP_KERNEL_ARG_TYPE_POINTER => {
                    words.number((at, size), arg.value.pointer.expose_provenance());
                }
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    let given = arg.value.memObjTuple;
                    let address = match given.hMem.is_null() {
                        true => 0,
                        false => {
                            let mem = Object::<Mem>::borrow(given.hMem.cast(), Cuda::table())?;
                            if let Some(image) = mem.as_image() {
                                image.check_for_kernels()?;
                            }
                            let uses = mem.use_by(given.flags);
                            mem.begin(device, uses)?;
                            if let Some(memory) = mem.moving() {
                                moving.push(Moving {
                                    place: (at, size),
                                    memory,
                                    writes: uses == Use::Writes,
                                });
                            }
                            mem.address()
                        }
                    };
                    words.number((at, size), address);
                }
                UR_EXP_KERNEL_ARG_TYPE_LOCAL => locals.push((index, arg.size)),
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => {
                    let given = arg.value.sampler;
                    let sampler = Object::<Sampler>::borrow(given.cast(), Cuda::table())?;
                    let number = sampler.number().to_ne_bytes();
                    ensure(
                        number.len() <= size,
                        UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                    )?;
                    words.write(at, &number);
                }
                _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
            }
        }
    }
    let complete = given.trailing_ones() as usize >= explicit.min(63);
    ensure(complete, UR_RESULT_ERROR_INVALID_KERNEL_ARGS)?;
    if let (Some(offset), Some(slot)) = (offset, layout.get(explicit)) {
        let bytes: Vec<u8> = offset.iter().flat_map(|axis| axis.to_ne_bytes()).collect();
        words.write(slot.0, &bytes[..bytes.len().min(slot.1)]);
    }
    locals.sort_unstable();
    let mut local = 0usize;
    for (index, bytes) in locals {
        let align = bytes.max(1).next_power_of_two().min(LOCAL_ALIGN_BYTES);
        local = local.next_multiple_of(align);
        words.number(layout[index], local);
        local = local
            .checked_add(bytes)
            .ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
    }
    args.local_bytes = local;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_guessed_as_c_has_them() {
        let all = guess(&[8, 1, 2, 4, 8, 24, 12]);
        let want = [
            (0, 8),
            (8, 1),
            (10, 2),
            (12, 4),
            (16, 8),
            (24, 24),
            (48, 12),
        ];
        assert_eq!(*all, want);
        assert_eq!(*guess(&[]), []);
    }
}
