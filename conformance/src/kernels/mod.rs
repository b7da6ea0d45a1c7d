//! The kernels that tests launch. Each backend has one provider.
//!
//! A test names a kernel and does not know the form that a backend takes.

mod cuda;
mod level_zero;
mod native_cpu;
mod opencl;

use std::ffi::{CStr, c_void};
use ur::abi::*;

/// `iota(u32 *out, u32 base)`: `out[i] = base + i`.
pub const IOTA: &CStr = c"iota";
/// The specialization constant of 32 bits that `iota` adds in intermediate code; 0 unless set.
pub const IOTA_SPECIAL: u32 = 7;
/// `add(u32 *data, u32 amount)`: `data[i] += amount`.
pub const ADD: &CStr = c"add";
/// `sum(u32 *out, const u32 *a, const u32 *b)`: `out[i] = a[i] + b[i]`.
pub const SUM: &CStr = c"sum";
/// `verify(const u32 *data, u32 base, u32 *wrong)`: adds 1 to `wrong[0]`, atomically, for each `i`
/// with `data[i] != base + i`.
pub const VERIFY: &CStr = c"verify";
/// `ids(Ids *out)`: one record for each work-item, at its place in the global range.
pub const IDS: &CStr = c"ids";
/// `through_local(u32 *out, u32 *scratch)`: writes its local id to local memory and reads it back.
pub const THROUGH_LOCAL: &CStr = c"through_local";
/// `mixed(u64 *out, u8 a, u16 b, u32 c, u64 d, Triple e)`: writes the sum of all its arguments.
pub const MIXED: &CStr = c"mixed";
/// `reach(const u64 *addresses, u32 amount)`: adds `amount` to the word at `addresses[i]`.
pub const REACH: &CStr = c"reach";

/// `texels(u32 *out, image)`, of a program of its own: `out[i]` is the word `i` of a 1D image of 32-bit channels.
pub const TEXELS: &CStr = c"texels";
/// `paint(image, u32 base)`, of that program: the word `i` becomes `base + i`.
pub const PAINT: &CStr = c"paint";

/// `sample(u32 *out, image, sampler, u32 shift)`, of that program where the backend samples: `out[i]` is the first word of
/// pixel `i - shift`.
pub const SAMPLE: &CStr = c"sample";

/// All kernels, in their order in a program.
pub const ALL: [&CStr; 8] = [IOTA, ADD, SUM, VERIFY, IDS, THROUGH_LOCAL, MIXED, REACH];

/// The record that `IDS` writes for a work-item.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    pub global: [u32; 3],
    pub local: [u32; 3],
    pub group: [u32; 3],
    pub range: [u32; 3],
    pub size: [u32; 3],
    pub groups: [u32; 3],
    pub offset: [u32; 3],
}

/// A struct that `MIXED` takes by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Triple {
    pub a: u8,
    pub b: u64,
    pub c: u16,
}

/// A program in a backend's form.
pub enum Source {
    /// For `urProgramCreateWithBinary`.
    Binary { data: *const c_void, size: usize },
    /// For `urProgramCreateWithIL`.
    Il { data: *const c_void, size: usize },
    /// For `urProgramCreateWithNativeHandle`: makes a program in a native context.
    Native {
        make: fn(ur_native_handle_t) -> Result<ur_native_handle_t, String>,
    },
}

/// The test kernels in the form of one backend.
pub trait KernelProvider: Sync {
    /// The kernels. `accepts_il`: whether the device takes intermediate code.
    fn source(&self, accepts_il: bool) -> Source;

    /// Metadata of a binary: `kernel@num_args` of each kernel whose code does not tell its number of arguments.
    fn argument_counts(&self) -> &'static [(&'static CStr, u32)] {
        &[]
    }

    /// Whether the code of a kernel tells the sizes of its arguments.
    fn tells_argument_sizes(&self) -> bool {
        true
    }

    /// The kernels that use images, if the backend has them.
    fn images(&self) -> Option<Source> {
        None
    }

    /// Whether [`KernelProvider::images`] has a kernel that takes a sampler.
    fn samples(&self) -> bool {
        false
    }

    /// A program that no compiler of the backend accepts.
    fn broken(&self) -> Option<Source> {
        None
    }

    /// A program of kernels on bindless images.
    fn bindless(&self) -> Option<Source> {
        None
    }

    /// A kernel and a function that are linked dynamically.
    fn halves(&self) -> Option<Halves> {
        None
    }

    /// A program with a global variable, if the backend takes one without a compiler.
    fn variable(&self) -> Option<Variable> {
        None
    }
}

/// Two programs.
pub struct Halves {
    /// The kernel [`IOTA`], which passes each value to a function of the other program.
    pub kernel: Source,
    /// The function, which adds seven.
    pub function: Source,
    /// Build options that keep a function for other programs.
    pub options: &'static CStr,
}

/// A binary with a global variable.
pub struct Variable {
    pub binary: Vec<u8>,
    pub name: &'static CStr,
    pub size: usize,
}

/// The kernels as a SPIR-V module, for programs without kernels of their own.
pub fn spirv() -> Vec<u8> {
    let words = opencl::words().iter();
    words.flat_map(|word| word.to_le_bytes()).collect()
}

/// The provider for a backend, if there is one.
pub fn provider(backend: ur_backend_t) -> Option<&'static dyn KernelProvider> {
    match backend {
        UR_BACKEND_NATIVE_CPU => Some(&native_cpu::NativeCpu),
        UR_BACKEND_CUDA => Some(&cuda::Cuda),
        UR_BACKEND_OPENCL => Some(&opencl::OpenCl),
        UR_BACKEND_LEVEL_ZERO => Some(&level_zero::LevelZero),
        _ => None,
    }
}
