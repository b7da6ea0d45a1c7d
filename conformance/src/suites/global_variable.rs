//! Global variables of programs: found by name, written and read by commands.

use crate::check_eq;
use crate::fixture::Fixture;
use crate::kernels;
use crate::objects::{Context, Program};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["global_variable"; is_found_by_name, is_found_by_id, is_written_and_read]
}

struct Setup {
    context: Context,
    program: Program,
    name: &'static CStr,
    size: usize,
}

impl Setup {
    fn new(fixture: &Fixture) -> Result<Self, Stop> {
        Self::with_metadata(fixture, |_| Vec::new())
    }

    /// A program with metadata: names, and byte arrays made of the variable's name.
    fn with_metadata(
        fixture: &Fixture,
        entries: impl FnOnce(&CStr) -> Vec<(&'static CStr, Vec<u8>)>,
    ) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let variable = kernels::provider(fixture.backend).and_then(|provider| provider.variable());
        let Some(variable) = variable else {
            return Err(Stop::skipped(
                "no provider has a program with a global variable",
            ));
        };
        let (mut device, mut size) = (fixture.device, variable.binary.len());
        let mut binary = variable.binary.as_ptr();
        let mut raw = null_mut();
        let ur = fixture.ur;
        let mut arrays = entries(variable.name);
        let entries: Vec<_> = arrays.iter_mut().map(entry).collect();
        let properties = ur_program_properties_t {
            count: entries.len() as u32,
            pMetadatas: if entries.is_empty() {
                null()
            } else {
                entries.as_ptr()
            },
            ..Default::default()
        };
        ur.urProgramCreateWithBinary(
            context.raw,
            1,
            &mut device,
            &mut size,
            &mut binary,
            &properties,
            &mut raw,
        )
        .ok()?;
        let program = Program::adopt(ur, raw);
        ur.urProgramBuild(context.raw, program.raw, null()).ok()?;
        Ok(Self {
            context,
            program,
            name: variable.name,
            size: variable.size,
        })
    }
}

fn entry((name, bytes): &mut (&'static CStr, Vec<u8>)) -> ur_program_metadata_t {
    ur_program_metadata_t {
        pName: name.as_ptr(),
        r#type: UR_PROGRAM_METADATA_TYPE_BYTE_ARRAY,
        size: bytes.len(),
        value: ur_program_metadata_value_t {
            pData: bytes.as_mut_ptr().cast(),
        },
    }
}

/// A global variable is found by its name with its size.
fn is_found_by_name(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (mut size, mut pointer) = (0, null_mut());
    let find = |size: &mut usize, pointer: &mut *mut c_void| {
        let (device, program, name) = (fixture.device, setup.program.raw, setup.name.as_ptr());
        let ur = fixture.ur;
        ur.urProgramGetGlobalVariablePointer(device, program, name, size, pointer)
    };
    fixture.require(UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT, || {
        find(&mut size, &mut pointer)
    })?;
    find(&mut size, &mut pointer).ok()?;
    check_eq!(size, setup.size, "size of the variable");
    check_eq!(
        pointer.is_null(),
        false,
        "whether the variable's address is null"
    );
    Ok(())
}

/// A global variable is found by the ids that the program's metadata gives it.
///
/// The first eight bytes of such an entry are no part of the name, whatever they hold.
fn is_found_by_id(fixture: &Fixture) -> Done {
    let ids = [c"id_in_bits", c"id_of_nothing", c"id_with_zero"];
    let setup = Setup::with_metadata(fixture, |name| {
        let (name, ended) = (name.to_bytes(), name.to_bytes_with_nul());
        let bits = name.len() as u64 * 8;
        let array = |before: u64, name: &[u8]| [&before.to_ne_bytes(), name].concat();
        vec![
            (c"id_in_bits@global_id_mapping", array(bits, name)),
            (c"id_of_nothing@global_id_mapping", array(u64::MAX, name)),
            (c"id_with_zero@global_id_mapping", array(0, ended)),
        ]
    })?;
    let (program, ur) = (setup.program.raw, fixture.ur);
    let find = |name: &CStr, pointer: &mut *mut c_void| {
        let mut size = 0;
        let (device, name) = (fixture.device, name.as_ptr());
        ur.urProgramGetGlobalVariablePointer(device, program, name, &mut size, pointer)
    };
    let mut by_name = null_mut();
    fixture.require(UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT, || {
        find(setup.name, &mut by_name)
    })?;
    find(setup.name, &mut by_name).ok()?;
    for id in ids {
        let mut by_id = null_mut();
        find(id, &mut by_id).ok()?;
        check_eq!(by_id, by_name, "address of the variable {id:?}");
    }
    Ok(())
}

/// A global variable holds what was written to it, in whole and at an offset.
fn is_written_and_read(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.context.in_order(fixture)?;
    let (ur, q, program, name) = (
        fixture.ur,
        queue.raw,
        setup.program.raw,
        setup.name.as_ptr(),
    );
    let read = |to: &mut Vec<u8>, event| {
        let (size, to) = (to.len(), to.as_mut_ptr().cast());
        ur.urEnqueueDeviceGlobalVariableRead(
            q,
            program,
            name,
            true as u8,
            size,
            0,
            to,
            0,
            null(),
            event,
        )
    };
    let mut before = vec![0_u8; setup.size];
    fixture.require(UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT, || {
        read(&mut before, null_mut())
    })?;
    read(&mut before, null_mut()).ok()?;
    let write = |data: &[u8], offset, event| {
        let from = data.as_ptr().cast();
        let size = data.len();
        ur.urEnqueueDeviceGlobalVariableWrite(
            q,
            program,
            name,
            0,
            size,
            offset,
            from,
            0,
            null(),
            event,
        )
    };
    let written = queue.event(|event| write(&[1, 2, 3, 4], 0, event))?;
    check_eq!(
        written.get::<ur_command_t>(UR_EVENT_INFO_COMMAND_TYPE)?,
        UR_COMMAND_DEVICE_GLOBAL_VARIABLE_WRITE,
        "command type"
    );
    write(&[9], 3, null_mut()).ok()?;
    queue.finish()?;
    let mut after = vec![0_u8; setup.size];
    read(&mut after, null_mut()).ok()?;
    check_eq!(after[..4], [1, 2, 3, 9], "bytes of the variable");
    // Other programs may use the variable, so its value is restored.
    write(&before, 0, null_mut()).ok()?;
    queue.finish()
}
