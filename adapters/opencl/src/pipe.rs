//! Host pipes: channels between the host and a running kernel, named by a variable of its program. They
//! are an extension of Intel's, and unsupported without it.

use std::ffi::{CStr, c_void};
use std::ptr;

use opencl_sys::*;
use ur::object::{Error, Object, Result};
use ur::stream::{Queue, Work};

use crate::OpenCl;
use crate::cl::check;
use crate::exec::{Native, Slot};
use crate::program::Program;

/// The command that reads `size` bytes from a pipe.
pub fn read(
    _: &Object<Queue<OpenCl>>,
    program: &Object<Program>,
    symbol: &CStr,
    dst: *mut c_void,
    size: usize,
) -> Result<Work<OpenCl>> {
    let ext = program.native().api().ext();
    let read = ext.clEnqueueReadHostPipeINTEL.ok_or(Error::unsupported())?;
    let (program, symbol) = (program.native().clone(), symbol.to_owned());
    let to = dst.expose_provenance();
    Ok(Work::Native(Native::new(move |_, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let (to, name) = (ptr::with_exposed_provenance_mut(to), symbol.as_ptr());
        // SAFETY: queue and program are alive, and the caller keeps memory for the data.
        let code = unsafe {
            read(
                queue,
                program.raw(),
                name,
                CL_FALSE,
                to,
                size,
                count,
                waits,
                event,
            )
        };
        check(code, "clEnqueueReadHostPipeINTEL")
    })))
}

/// The command that writes `size` bytes to a pipe.
pub fn write(
    _: &Object<Queue<OpenCl>>,
    program: &Object<Program>,
    symbol: &CStr,
    src: *mut c_void,
    size: usize,
) -> Result<Work<OpenCl>> {
    let ext = program.native().api().ext();
    let write = ext
        .clEnqueueWriteHostPipeINTEL
        .ok_or(Error::unsupported())?;
    let (program, symbol) = (program.native().clone(), symbol.to_owned());
    let from = src.expose_provenance();
    Ok(Work::Native(Native::new(move |_, slot| {
        let Slot {
            queue,
            count,
            waits,
            event,
        } = *slot;
        let (from, name) = (ptr::with_exposed_provenance(from), symbol.as_ptr());
        // SAFETY: queue and program are alive, and the caller keeps the data.
        let code = unsafe {
            write(
                queue,
                program.raw(),
                name,
                CL_FALSE,
                from,
                size,
                count,
                waits,
                event,
            )
        };
        check(code, "clEnqueueWriteHostPipeINTEL")
    })))
}
