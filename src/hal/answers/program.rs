//! Programs that have code for each device of their own: their properties, and how builds ended.

use crate::abi::*;
use crate::hal::{Backend, ProgramBuildInfo, ProgramInfo};
use crate::object::{InfoOut, Object, Result};
use std::borrow::Cow;
use std::ffi::CString;

/// The code of a program for one device.
pub trait ProgramPart<B: Backend> {
    fn device(&self) -> &Object<B::Device>;

    /// A binary that the part can be made of again; empty if there is none.
    fn binary(&self) -> Result<Cow<'_, [u8]>>;
}

/// How the last build of a program ended on one device.
#[derive(Clone, Debug)]
pub struct Build {
    pub status: ur_program_build_status_t,
    pub binary: ur_program_binary_type_t,
    pub options: CString,
    /// An error if the driver did not give it.
    pub log: Result<String>,
}

impl Build {
    /// The state before the first build, of a binary of this type.
    pub fn none(binary: ur_program_binary_type_t) -> Self {
        Self {
            status: UR_PROGRAM_BUILD_STATUS_NONE,
            binary,
            options: CString::default(),
            log: Ok(String::new()),
        }
    }

    /// The log as far as it is known.
    pub fn text(&self) -> &str {
        self.log.as_deref().unwrap_or_default()
    }

    /// `urProgramGetBuildInfo`
    pub fn get_info(&self, what: ProgramBuildInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            ProgramBuildInfo::Status => out.value(self.status),
            ProgramBuildInfo::Options => out.slice(self.options.to_bytes_with_nul()),
            ProgramBuildInfo::Log => out.string(self.log.as_ref().map_err(|error| *error)?),
            ProgramBuildInfo::BinaryType => out.value(self.binary),
        }
    }
}

/// `urProgramGetInfo` of a program without intermediate language. `kernel_names` has each kernel of any
/// device once.
pub fn program_info<B: Backend>(
    this: &Object<B::Program>,
    context: &Object<B::Context>,
    parts: &[impl ProgramPart<B>],
    kernel_names: impl FnOnce() -> Result<Vec<String>>,
    what: ProgramInfo,
    out: InfoOut<'_>,
) -> Result<()> {
    match what {
        ProgramInfo::ReferenceCount => out.value(this.api_refs()),
        ProgramInfo::Context => out.handle(Some(context)),
        ProgramInfo::NumDevices => out.value(parts.len() as u32),
        ProgramInfo::Devices => {
            let handles: Vec<_> = parts.iter().map(|part| part.device().handle()).collect();
            out.slice(&handles)
        }
        ProgramInfo::Il => out.string(""),
        ProgramInfo::BinarySizes => {
            let size = |part: &_| ProgramPart::binary(part).map(|binary| binary.len());
            let sizes: Result<Vec<_>> = parts.iter().map(size).collect();
            out.slice(&sizes?)
        }
        ProgramInfo::Binaries => {
            let binaries: Result<Vec<_>> = parts.iter().map(ProgramPart::binary).collect();
            // SAFETY: the caller gives each pointer the room that `BinarySizes` reports.
            unsafe { out.buffers(&binaries?) }
        }
        ProgramInfo::NumKernels => out.value(kernel_names()?.len()),
        ProgramInfo::KernelNames => out.string(&kernel_names()?.join(";")),
    }
}
