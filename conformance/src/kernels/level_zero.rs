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

    /// The driver takes values that are larger than their arguments.
    fn tells_argument_sizes(&self) -> bool {
        false
    }

    fn halves(&self) -> Option<[Source; 2]> {
        let [kernel, function] = opencl::halves();
        Some([il(kernel), il(function)])
    }

    /// SPIR-V that ends within an instruction.
    fn broken(&self) -> Option<Source> {
        // Five words of a header, and one of two.
        opencl::words().get(..6).map(il)
    }
}
