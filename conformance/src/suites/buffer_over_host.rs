//! Buffers over host memory.
//!
//! The host owns the memory before the first command and after the last release.

use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::objects::{Arg, Buffer, Context, Program};
use crate::outcome::Done;
use crate::registry::Test;
use crate::suites::buffer::alignment;
use crate::{check_all, check_eq, check_items};
use std::ptr::null;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["buffer";
        host_memory_is_read_at_first_use, release_writes_back, release_writes_back_sub_buffers, release_writes_back_kernel_output,
        adjacent_host_memory, read_only_host_memory,
    ]
}

const WORDS: usize = 3000;

/// Offsets in words at which the buffers begin in heap memory: aligned and unaligned ones.
const STARTS: [usize; 3] = [0, 1, 1500];

/// A buffer over host memory sees what the host wrote before the first command.
fn host_memory_is_read_at_first_use(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for start in STARTS {
        let mut memory = vec![1_u32; WORDS];
        let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory[start..])?;
        memory.fill(2);
        let words = buffer.read::<u32>(&queue, 0, WORDS - start)?;
        check_all!(words, 2, "words from {start} on");
        drop(buffer);
        check_all!(memory, 2, "memory that was only read");
    }
    Ok(())
}

/// Writes to a buffer over host memory are in that memory after its release.
fn release_writes_back(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for start in STARTS {
        let mut memory = vec![1_u32; WORDS];
        let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory[start..])?;
        memory.fill(2);
        fill(&buffer, &queue, 3, 8, 4)?;
        buffer.write(&queue, 20, &[4_u32])?;
        queue.finish()?;
        drop(buffer);
        let own = &memory[start..];
        check_eq!(own[..7], [2, 2, 3, 2, 2, 4, 2], "words from {start} on");
        check_all!(own[7..], 2, "the remaining words");
    }
    Ok(())
}

/// Fills `size` bytes at `offset` with a word.
fn fill(
    buffer: &Buffer,
    queue: &crate::objects::Queue,
    word: u32,
    offset: usize,
    size: usize,
) -> Done {
    let from = (&raw const word).cast();
    let (q, none) = (queue.raw, std::ptr::null_mut());
    queue
        .ur
        .urEnqueueMemBufferFill(q, buffer.raw, from, 4, offset, size, 0, null(), none)
        .ok()
}

/// Writes to a sub-buffer reach the host memory, whichever of the two is released first.
fn release_writes_back_sub_buffers(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let words = alignment(fixture)? / 4;
    for parent_first in [false, true] {
        let mut memory = vec![1_u32; words * 3];
        let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory)?;
        let part = buffer.part(words * 4, words * 4)?;
        memory[words..words * 2].fill(2);
        let seen = part.read::<u32>(&queue, 0, words)?;
        check_all!(seen, 2, "words of a sub-buffer");
        fill(&part, &queue, 3, 0, 8)?;
        queue.finish()?;
        if parent_first {
            drop(buffer);
            drop(part);
        } else {
            drop(part);
            drop(buffer);
        }
        check_eq!(
            memory[words - 1..words + 3],
            [1, 3, 3, 2],
            "words around the sub-buffer's start"
        );
    }
    Ok(())
}

/// What a kernel writes to a buffer over host memory is there after its release.
fn release_writes_back_kernel_output(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let (kernel, queue) = (program.kernel(IOTA)?, context.in_order(fixture)?);
    for start in STARTS {
        let mut memory = vec![1_u32; WORDS];
        let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory[start..])?;
        memory.fill(2);
        let base = 1000_u32;
        queue.launch(&kernel, 64, &[Arg::Buffer(&buffer), Arg::of(&base)], &[])?;
        queue.finish()?;
        drop(buffer);
        let own = &memory[start..];
        check_items!(
            own[..64].iter().copied(),
            1000..1064,
            "words from {start} on"
        );
        check_all!(own[64..], 2, "the remaining words");
    }
    Ok(())
}

/// Two buffers over host memory of the same page do not disturb each other.
fn adjacent_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let mut memory = vec![1_u32; 64];
    let (left, right) = memory.split_at_mut(32);
    let one = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, left)?;
    let other = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, right)?;
    memory.fill(2);
    fill(&one, &queue, 3, 124, 4)?;
    fill(&other, &queue, 4, 0, 4)?;
    check_eq!(
        one.read::<u32>(&queue, 120, 2)?,
        [2, 3],
        "words of the first buffer"
    );
    check_eq!(
        other.read::<u32>(&queue, 0, 2)?,
        [4, 2],
        "words of the second buffer"
    );
    drop(one);
    check_eq!(
        other.read::<u32>(&queue, 0, 2)?,
        [4, 2],
        "words of the second buffer after the first one's release"
    );
    drop(other);
    check_eq!(
        memory[30..34],
        [2, 3, 4, 2],
        "words of the memory after both releases"
    );
    Ok(())
}

/// A read-only buffer may lie over memory that cannot be written.
fn read_only_host_memory(fixture: &Fixture) -> Done {
    static CONSTANT: [u32; 1024] = [7; 1024];
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let start = CONSTANT.as_ptr().cast_mut();
    let buffer = Buffer::over_at(&context, UR_MEM_FLAG_READ_ONLY, start.cast(), 4096)?;
    check_eq!(buffer.read::<u32>(&queue, 400, 2)?, [7, 7], "constants");
    Ok(())
}
