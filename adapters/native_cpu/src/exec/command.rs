//! The commands of a lane, and their division into pieces for several threads.

use std::ops::Range;
use std::sync::Arc;

use ur::stream::Pitched;
use ur::stream::host::{copy_rows, fill, fill_rows, move_bytes};

use super::kernel::Launch;
use super::scratch::Scratch;

/// Work without conditions. The caller guarantees its addresses: readable and writable as far as
/// the command goes, until it has completed.
pub enum Command {
    Nothing,
    Copy {
        dst: usize,
        src: usize,
        bytes: usize,
    },
    CopyRect {
        dst: Pitched,
        src: Pitched,
        region: [usize; 3],
    },
    Fill {
        dst: usize,
        pattern: Arc<[u8]>,
        bytes: usize,
    },
    FillRect {
        dst: Pitched,
        pattern: Arc<[u8]>,
        region: [usize; 3],
    },
    Launch(Arc<Launch>),
}

/// How a command is cut: `pieces` of them, of which a thread claims `chunk` at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub pieces: usize,
    pub chunk: usize,
}

impl Plan {
    const WHOLE: Plan = Plan {
        pieces: 1,
        chunk: 1,
    };

    /// Pieces of unknown cost: enough portions that the threads end at about the same time.
    fn even(pieces: usize, threads: usize) -> Self {
        let chunk = (pieces / (threads * PORTIONS_PER_THREAD)).max(1);
        Plan { pieces, chunk }
    }
}

/// Portions that each thread gets of a command whose pieces may differ in cost.
const PORTIONS_PER_THREAD: usize = 8;

/// Bytes that one piece of a large copy or fill moves: some tens of microseconds.
const PIECE_BYTES: usize = 256 * 1024;

impl Command {
    /// How `threads` threads would share it; one piece if it is not worth it.
    pub fn plan(&self, threads: usize) -> Plan {
        let blocks = match *self {
            Command::Nothing => return Plan::WHOLE,
            Command::Copy { dst, src, bytes } if dst.abs_diff(src) < bytes => return Plan::WHOLE,
            Command::Copy { bytes, .. } => bytes.div_ceil(PIECE_BYTES),
            Command::Fill {
                ref pattern, bytes, ..
            } => bytes.div_ceil(fill_block(pattern)),
            Command::CopyRect { region, .. } | Command::FillRect { region, .. } => {
                let [width, rows, slices] = region;
                let block = rows_in_block(width);
                return match rows * slices {
                    small if small <= block => Plan {
                        pieces: small,
                        chunk: small.max(1),
                    },
                    pieces => Plan {
                        pieces,
                        chunk: block,
                    },
                };
            }
            Command::Launch(ref launch) => {
                return Plan::even(launch.range().group_count(), threads);
            }
        };
        Plan {
            pieces: blocks,
            chunk: 1,
        }
    }

    /// Whether a thread needs local memory to run it.
    pub fn needs_local(&self) -> bool {
        matches!(self, Command::Launch(launch) if launch.needs_local())
    }

    /// Runs some of the pieces that [`Command::plan`] counted.
    pub fn run(&self, pieces: Range<usize>, scratch: &mut Scratch) {
        match *self {
            Command::Nothing => {}
            // One piece whatever its size if the two overlap: then it is a move.
            Command::Copy { dst, src, bytes } if dst.abs_diff(src) < bytes => {
                move_bytes(dst, src, bytes)
            }
            Command::Copy { dst, src, bytes } => {
                let part = part(pieces, PIECE_BYTES, bytes);
                move_bytes(dst + part.start, src + part.start, part.len());
            }
            Command::Fill {
                dst,
                ref pattern,
                bytes,
            } => {
                let part = part(pieces, fill_block(pattern), bytes);
                fill(dst + part.start, pattern, part.len());
            }
            Command::CopyRect { dst, src, region } => copy_rows(dst, src, region, pieces),
            Command::FillRect {
                dst,
                ref pattern,
                region,
            } => fill_rows(dst, pattern, region, pieces),
            Command::Launch(ref launch) => launch.run(pieces, scratch),
        }
    }
}

fn part(pieces: Range<usize>, block: usize, bytes: usize) -> Range<usize> {
    (pieces.start * block).min(bytes)..(pieces.end * block).min(bytes)
}

/// A block of whole patterns.
fn fill_block(pattern: &[u8]) -> usize {
    PIECE_BYTES.next_multiple_of(pattern.len().max(1))
}

fn rows_in_block(width: usize) -> usize {
    (PIECE_BYTES / width.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_in_pieces(command: &Command, threads: usize) -> Plan {
        let plan = command.plan(threads);
        let mut scratch = Scratch::default();
        let mut next = 0;
        while next < plan.pieces {
            let end = (next + plan.chunk).min(plan.pieces);
            command.run(next..end, &mut scratch);
            next = end;
        }
        plan
    }

    fn address(bytes: &mut [u8]) -> usize {
        bytes.as_mut_ptr().expose_provenance()
    }

    #[test]
    fn fills_repeat_the_pattern_whatever_its_length() {
        for length in [1, 2, 3, 4, 7, 8, 16, 100, 128, 5000] {
            for times in [1, 2, 3, 60, 9000] {
                let pattern: Arc<[u8]> = (0..length).map(|at| (at * 7 + 1) as u8).collect();
                let bytes = length * times;
                let mut memory = vec![0; bytes + 1];
                let dst = address(&mut memory);
                run_in_pieces(
                    &Command::Fill {
                        dst,
                        pattern: pattern.clone(),
                        bytes,
                    },
                    4,
                );
                let expected = pattern.iter().cycle().take(bytes);
                assert!(memory[..bytes].iter().eq(expected), "{length} x {times}");
                assert_eq!(memory[bytes], 0, "wrote beyond {length} x {times}");
            }
        }
    }

    #[test]
    fn large_copies_are_cut_and_overlapping_ones_are_not() {
        let bytes = 3 * PIECE_BYTES + 17;
        let mut from: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let mut to = vec![0; bytes];
        let (dst, src) = (address(&mut to), address(&mut from));
        assert_eq!(
            run_in_pieces(&Command::Copy { dst, src, bytes }, 2).pieces,
            4
        );
        assert!(to == from);
        let moved = Command::Copy {
            dst: src + 1,
            src,
            bytes: bytes - 1,
        };
        assert_eq!(run_in_pieces(&moved, 2), Plan::WHOLE);
        assert!(from[1..] == to[..bytes - 1]);
    }

    #[test]
    fn rectangles_go_row_by_row() {
        let mut from: Vec<u8> = (0..=255).collect();
        let mut to = vec![0; 256];
        let pitched = |addr| Pitched {
            addr,
            row_pitch: 8,
            slice_pitch: 32,
        };
        let (dst, src) = (
            pitched(address(&mut to) + 2),
            pitched(address(&mut from) + 1),
        );
        run_in_pieces(
            &Command::CopyRect {
                dst,
                src,
                region: [3, 2, 2],
            },
            2,
        );
        let touched: Vec<usize> = (0..256).filter(|&at| to[at] != 0).collect();
        assert_eq!(touched, [2, 3, 4, 10, 11, 12, 34, 35, 36, 42, 43, 44]);
        assert!(touched.iter().all(|&at| to[at] == from[at - 1]));
        let pattern = Arc::new([9, 8]);
        run_in_pieces(
            &Command::FillRect {
                dst,
                pattern,
                region: [4, 2, 1],
            },
            2,
        );
        assert_eq!(to[2..6], [9, 8, 9, 8]);
        assert_eq!(to[10..14], [9, 8, 9, 8]);
        let empty = Command::CopyRect {
            dst,
            src,
            region: [3, 0, 2],
        };
        assert_eq!(run_in_pieces(&empty, 2).pieces, 0);
    }

    #[test]
    fn wide_rectangles_are_shared() {
        let pitched = |addr| Pitched {
            addr,
            row_pitch: PIECE_BYTES,
            slice_pitch: 0,
        };
        let command = Command::CopyRect {
            dst: pitched(0),
            src: pitched(0),
            region: [PIECE_BYTES, 8, 1],
        };
        assert_eq!(
            command.plan(4),
            Plan {
                pieces: 8,
                chunk: 1
            }
        );
    }
}
