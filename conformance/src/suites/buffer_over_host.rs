//! Buffers over host memory.
//!
//! The host owns the memory before the first command and after the last release.

use crate::fixture::Fixture;
use crate::kernels::IOTA;
use crate::objects::{Arg, Buffer, Context, Program, Queue};
use crate::outcome::Done;
use crate::registry::Test;
use crate::suites::buffer::alignment;
use crate::suites::buffer_map::{map, unmap};
use crate::{check_all, check_eq, check_items};
use std::ptr::null;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["buffer";
        host_memory_is_read_at_first_use, release_writes_back, release_writes_back_sub_buffers, release_writes_back_kernel_output,
        adjacent_host_memory, read_only_host_memory, maps_are_the_host_memory, mapped_writes_are_seen, maps_of_sub_buffers,
        several_maps_of_host_memory,
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
fn fill(buffer: &Buffer, queue: &Queue, word: u32, offset: usize, size: usize) -> Done {
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

/// A map of a buffer over host memory is that memory, with all that commands have written.
fn maps_are_the_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let program = Program::new(fixture, &context)?;
    let kernel = program.kernel(IOTA)?;
    for queue in [context.in_order(fixture)?, context.out_of_order(fixture)?] {
        for start in STARTS {
            let mut memory = vec![1_u32; WORDS];
            let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory[start..])?;
            memory.fill(2);
            let own = memory[start..].as_ptr();
            for round in 0..3_u32 {
                let base = 1000 * round;
                let args = [Arg::Buffer(&buffer), Arg::of(&base)];
                queue.launch(&kernel, 64, &args, &[])?.wait()?;
                fill(&buffer, &queue, 7 + round, 400, 80)?;
                queue.finish()?;
                for (offset, size) in [(0, 1200), (40, 4), (440, 760)] {
                    let mapped = map(&queue, &buffer, UR_MAP_FLAG_READ, offset, size)?;
                    check_eq!(
                        mapped.addr(),
                        own.addr() + offset,
                        "address of a map at {offset}"
                    );
                    let word = |at: usize| match at {
                        0..64 => base + at as u32,
                        100..120 => 7 + round,
                        _ => 2,
                    };
                    // SAFETY: the mapped part of `memory`, until the unmap.
                    let words = unsafe {
                        std::slice::from_raw_parts(mapped.cast::<u32>().cast_const(), size / 4)
                    };
                    let wanted = (offset / 4..(offset + size) / 4).map(word);
                    check_items!(words.iter().copied(), wanted, "words mapped at {offset}");
                    unmap(&queue, &buffer, mapped)?;
                }
            }
            queue.finish()?;
        }
    }
    Ok(())
}

/// What the host writes into its own memory while it is mapped is in the buffer after the unmap.
fn mapped_writes_are_seen(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for start in STARTS {
        let mut memory = vec![1_u32; WORDS];
        let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory[start..])?;
        fill(&buffer, &queue, 2, 0, 400)?;
        let both = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
        for (flags, word) in [
            (both, 5),
            (UR_MAP_FLAG_WRITE, 6),
            (UR_MAP_FLAG_WRITE_INVALIDATE_REGION, 7),
        ] {
            let mapped = map(&queue, &buffer, flags, 40, 80)?;
            check_eq!(
                mapped.addr(),
                memory[start + 10..].as_ptr().addr(),
                "address of a map"
            );
            memory[start + 10..start + 30].fill(word);
            unmap(&queue, &buffer, mapped)?;
            let words = buffer.read::<u32>(&queue, 0, 110)?;
            let wanted = (0..110).map(|at| match at {
                10..30 => word,
                0..100 => 2,
                _ => 1,
            });
            check_items!(words, wanted, "words after a map with {flags:?}");
        }
        queue.finish()?;
        drop(buffer);
        check_all!(
            memory[start + 10..start + 30],
            7,
            "mapped words after the release"
        );
        check_all!(
            memory[start + 30..start + 100],
            2,
            "filled words after the release"
        );
        check_all!(memory[start + 100..], 1, "the remaining words");
    }
    Ok(())
}

/// A map of a sub-buffer is the host memory at its place, and the whole buffer has what is written there.
fn maps_of_sub_buffers(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    let words = alignment(fixture)?.max(256) / 4;
    for start in STARTS {
        let mut memory = vec![1_u32; 4 * words + start];
        let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory[start..])?;
        let part = buffer.part(4 * words, 8 * words)?;
        fill(&part, &queue, 2, 16, 16)?;
        let both = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
        let mapped = map(&queue, &part, both, 8, 32)?;
        let first = start + words + 2;
        check_eq!(
            mapped.addr(),
            memory[first..].as_ptr().addr(),
            "address of a sub-buffer's map"
        );
        check_eq!(
            memory[first..first + 8],
            [1, 1, 2, 2, 2, 2, 1, 1],
            "mapped words of a sub-buffer"
        );
        memory[first + 1] = 3;
        memory[first + 2] = 4;
        unmap(&queue, &part, mapped)?;
        let read = buffer.read::<u32>(&queue, 4 * words + 8, 8)?;
        check_eq!(read, [1, 3, 4, 2, 2, 2, 1, 1], "words of the whole buffer");
        let mapped = map(&queue, &buffer, UR_MAP_FLAG_READ, 0, 16 * words)?;
        check_eq!(
            mapped.addr(),
            memory[start..].as_ptr().addr(),
            "address of the whole buffer's map"
        );
        unmap(&queue, &buffer, mapped)?;
        queue.finish()?;
        drop(part);
        drop(buffer);
        check_eq!(
            memory[first..first + 8],
            [1, 3, 4, 2, 2, 2, 1, 1],
            "words after the release"
        );
    }
    Ok(())
}

/// Maps of several ranges of host memory live side by side and end in any order.
fn several_maps_of_host_memory(fixture: &Fixture) -> Done {
    let context = Context::new(fixture)?;
    let queue = context.in_order(fixture)?;
    for start in STARTS {
        let mut memory = vec![1_u32; WORDS];
        let buffer = Buffer::over(&context, UR_MEM_FLAG_READ_WRITE, &mut memory[start..])?;
        let both = UR_MAP_FLAG_READ | UR_MAP_FLAG_WRITE;
        let one = map(&queue, &buffer, both, 0, 40)?;
        let two = map(&queue, &buffer, both, 80, 40)?;
        let read = map(&queue, &buffer, UR_MAP_FLAG_READ, 20, 80)?;
        memory[start..start + 5].fill(2);
        memory[start + 25..start + 30].fill(3);
        // The map to read ends in between, and takes nothing back.
        unmap(&queue, &buffer, two)?;
        unmap(&queue, &buffer, read)?;
        unmap(&queue, &buffer, one)?;
        let words = buffer.read::<u32>(&queue, 0, 40)?;
        let wanted = (0..40).map(|at| match at {
            0..5 => 2,
            25..30 => 3,
            _ => 1,
        });
        check_items!(words, wanted, "words after three maps");
        queue.finish()?;
    }
    Ok(())
}
