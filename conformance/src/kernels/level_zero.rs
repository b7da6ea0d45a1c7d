//! Kernels for Level Zero: the SPIR-V of OpenCL's.

use super::{KernelProvider, Source, opencl};

pub struct LevelZero;

fn il(words: &'static [u32]) -> Source {
    Source::Il {
        data: words.as_ptr().cast(),
        size: size_of_val(words),
    }
}

impl KernelProvider for LevelZero {
    fn source(&self, _: bool) -> Source {
        il(opencl::words())
    }

    fn images(&self) -> Option<Source> {
        Some(il(opencl::image_words()))
    }

    fn samples(&self) -> bool {
        true
    }

    /// The driver takes values that are larger than their arguments.
    fn tells_argument_sizes(&self) -> bool {
        false
    }

    /// SPIR-V that ends within an instruction.
    fn broken(&self) -> Option<Source> {
        // Five words of a header, and one of two.
        opencl::words().get(..6).map(il)
    }
}
