//! Kernels for CUDA: PTX, made ahead from `cuda/kernels.cu`.

use super::{KernelProvider, Source};

pub struct Cuda;

/// Ends in no zero: an adapter is told the length.
const PTX: &str = include_str!("cuda/kernels.ptx");

impl KernelProvider for Cuda {
    fn source(&self, _: bool) -> Source {
        Source::Binary {
            data: PTX.as_ptr().cast(),
            size: PTX.len(),
        }
    }
}
