//! Kernels for Level Zero: the SPIR-V of OpenCL's.

use super::{Halves, KernelProvider, Source, Variable, opencl};

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

    fn variable(&self) -> Option<Variable> {
        let words = opencl::variable();
        Some(Variable {
            binary: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            name: opencl::VARIABLE,
            size: 16,
        })
    }

    fn halves(&self) -> Option<Halves> {
        let [kernel, function] = opencl::halves();
        Some(Halves {
            kernel: il(kernel),
            function: il(function),
            options: c"-library-compilation -ze-take-global-address",
        })
    }

    /// SPIR-V that ends within an instruction.
    fn broken(&self) -> Option<Source> {
        // Five words of a header, and one of two.
        opencl::words().get(..6).map(il)
    }
}
