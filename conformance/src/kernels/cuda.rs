//! Kernels for CUDA: PTX, compiled ahead from `cuda/kernels.cu`.

use super::{KernelProvider, Source, Variable};

pub struct Cuda;

/// The text has no terminating NUL: an adapter is given its length.
const PTX: &str = include_str!("cuda/kernels.ptx");

/// The kernels that use images.
const IMAGES: &str = include_str!("cuda/images.ptx");

/// A program that does not compile.
const BROKEN: &str = include_str!("cuda/broken.ptx");

/// Kernels on bindless images, compiled ahead from `cuda/bindless.cu`.
const BINDLESS: &str = include_str!("cuda/bindless.ptx");

/// A program with one variable and nothing else.
const VARIABLE: &str = include_str!("cuda/variable.ptx");

impl KernelProvider for Cuda {
    fn source(&self, _: bool) -> Source {
        Source::Binary {
            data: PTX.as_ptr().cast(),
            size: PTX.len(),
        }
    }

    fn images(&self) -> Option<Source> {
        Some(Source::Binary {
            data: IMAGES.as_ptr().cast(),
            size: IMAGES.len(),
        })
    }

    fn broken(&self) -> Option<Source> {
        Some(Source::Binary {
            data: BROKEN.as_ptr().cast(),
            size: BROKEN.len(),
        })
    }

    fn bindless(&self) -> Option<Source> {
        Some(Source::Binary {
            data: BINDLESS.as_ptr().cast(),
            size: BINDLESS.len(),
        })
    }

    fn variable(&self) -> Option<Variable> {
        Some(Variable {
            binary: VARIABLE.into(),
            name: c"ur_variable",
            size: 16,
        })
    }
}
