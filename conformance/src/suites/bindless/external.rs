//! Memory that is exported and imported again.

use super::objects::*;
use crate::fixture::Fixture;
use crate::objects::{Context, Queue, alloc_info, released};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr::null_mut;
use ur::abi::*;

pub fn all() -> Vec<Test> {
    crate::tests!["bindless";
        imported_memory_is_the_exported, parts_of_imported_memory, imported_memory_as_an_image,
        wrong_imports, kinds_of_imports,
    ]
}

const OPAQUE: ur_exp_external_mem_type_t = UR_EXP_EXTERNAL_MEM_TYPE_OPAQUE_FD;

/// Bytes of the memory: a page of any device.
const BYTES: usize = 2 << 20;

/// Exportable memory, freed on drop, and a descriptor of it.
pub struct Exported<'a> {
    context: &'a Context,
    device: ur_device_handle_t,
    pub memory: *mut c_void,
    pub file: OwnedFd,
}

/// Memory of the device under test as another interface shares it. None if the device exports none.
pub fn export<'a>(
    fixture: &Fixture,
    context: &'a Context,
    bytes: usize,
) -> Result<Option<Exported<'a>>, Stop> {
    let property = UR_DEVICE_INFO_MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP;
    if !fixture.supports(property)? {
        return Ok(None);
    }
    let (ur, device, mut memory) = (fixture.ur, fixture.device, null_mut());
    ur.urMemoryExportAllocExportableMemoryExp(context.raw, device, 0, bytes, OPAQUE, &mut memory)
        .ok()?;
    let mut number: c_int = -1;
    let to = (&raw mut number).cast();
    ur.urMemoryExportExportMemoryHandleExp(context.raw, device, OPAQUE, memory, to)
        .ok()?;
    check!(number >= 0, "descriptor {number}");
    Ok(Some(Exported {
        context,
        device,
        memory,
        // SAFETY: exported just now, for the caller.
        file: unsafe { OwnedFd::from_raw_fd(number) },
    }))
}

impl Drop for Exported<'_> {
    fn drop(&mut self) {
        let (ur, context) = (self.context.ur, self.context.raw);
        released(ur.urMemoryExportFreeExportableMemoryExp(context, self.device, self.memory));
    }
}

/// Imported memory, released on drop.
struct Imported<'a> {
    context: &'a Context,
    device: ur_device_handle_t,
    raw: ur_exp_external_mem_handle_t,
}

impl<'a> Imported<'a> {
    fn new(
        fixture: &Fixture,
        context: &'a Context,
        file: &OwnedFd,
        size: usize,
    ) -> Result<Self, Stop> {
        // The driver takes a descriptor over.
        let file = file
            .try_clone()
            .map_err(|error| Stop::failed(error.to_string()))?;
        let mut own = ur_exp_file_descriptor_t {
            fd: file.as_raw_fd(),
            ..Default::default()
        };
        let mut desc = ur_exp_external_mem_desc_t {
            pNext: (&raw mut own).cast(),
            ..Default::default()
        };
        let (ur, device, mut raw) = (fixture.ur, fixture.device, null_mut());
        ur.urBindlessImagesImportExternalMemoryExp(
            context.raw,
            device,
            size,
            OPAQUE,
            &mut desc,
            &mut raw,
        )
        .ok()?;
        let _ = file.into_raw_fd();
        Ok(Self {
            context,
            device,
            raw,
        })
    }

    fn map(&self, offset: u64, size: u64) -> Result<Mapped<'a>, Stop> {
        let (ur, mut ptr) = (self.context.ur, null_mut());
        let (context, device) = (self.context.raw, self.device);
        ur.urBindlessImagesMapExternalLinearMemoryExp(
            context, device, offset, size, self.raw, &mut ptr,
        )
        .ok()?;
        Ok(Mapped {
            context: self.context,
            device,
            ptr,
        })
    }
}

impl Drop for Imported<'_> {
    fn drop(&mut self) {
        let (ur, context) = (self.context.ur, self.context.raw);
        released(ur.urBindlessImagesReleaseExternalMemoryExp(context, self.device, self.raw));
    }
}

/// A mapping of imported memory, freed on drop.
struct Mapped<'a> {
    context: &'a Context,
    device: ur_device_handle_t,
    ptr: *mut c_void,
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        let (ur, context) = (self.context.ur, self.context.raw);
        released(ur.urBindlessImagesFreeMappedLinearMemoryExp(context, self.device, self.ptr));
    }
}

/// A context with a queue, and memory of the device that it exports.
fn start(fixture: &Fixture) -> Result<(Context, Queue), Stop> {
    let context = Context::new(fixture)?;
    let (ur, device, mut made) = (fixture.ur, fixture.device, null_mut());
    let mut desc = ur_exp_external_mem_desc_t::default();
    let property = UR_DEVICE_INFO_EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP;
    fixture.require(property, || {
        let (context, size) = (context.raw, BYTES);
        ur.urBindlessImagesImportExternalMemoryExp(
            context, device, size, OPAQUE, &mut desc, &mut made,
        )
    })?;
    let queue = context.in_order(fixture)?;
    Ok((context, queue))
}

fn exported<'a>(fixture: &Fixture, context: &'a Context) -> Result<Exported<'a>, Stop> {
    let found = export(fixture, context, BYTES)?;
    found.ok_or_else(|| Stop::skipped("the device exports no memory to import"))
}

/// Imported memory has the data of the exported memory, in both directions, and outlives its export.
fn imported_memory_is_the_exported(fixture: &Fixture) -> Done {
    let (context, queue) = start(fixture)?;
    let own = exported(fixture, &context)?;
    queue.fill(own.memory, 0x51_u8, BYTES, &[])?.wait()?;
    let imported = Imported::new(fixture, &context, &own.file, BYTES)?;
    let mapped = imported.map(0, BYTES as u64)?;
    check!(mapped.ptr != own.memory, "both have one address");
    let found: Vec<u8> = queue.read(mapped.ptr, BYTES, &[])?;
    check_all!(found, 0x51, "bytes of imported memory");
    queue.fill(mapped.ptr, 0x52_u8, BYTES, &[])?.wait()?;
    let found: Vec<u8> = queue.read(own.memory, BYTES, &[])?;
    check_all!(found, 0x52, "bytes of exported memory");
    let kind: ur_usm_type_t = alloc_info(&context, mapped.ptr, UR_USM_ALLOC_INFO_TYPE)?;
    check_eq!(kind, UR_USM_TYPE_DEVICE, "type of imported memory");
    drop(own);
    let found: Vec<u8> = queue.read(mapped.ptr, BYTES, &[])?;
    check_all!(found, 0x52, "bytes after the end of the export");
    Ok(())
}

/// Parts of imported memory are mapped at their offsets.
fn parts_of_imported_memory(fixture: &Fixture) -> Done {
    let (context, queue) = start(fixture)?;
    let own = exported(fixture, &context)?;
    queue.fill(own.memory, 0_u8, BYTES, &[])?.wait()?;
    let imported = Imported::new(fixture, &context, &own.file, BYTES)?;
    let half = BYTES / 2;
    let parts = [
        imported.map(0, half as u64)?,
        imported.map(half as u64, half as u64)?,
    ];
    queue.fill(parts[0].ptr, 1_u8, half, &[])?;
    queue.fill(parts[1].ptr, 2_u8, half, &[])?.wait()?;
    let found: Vec<u8> = queue.read(own.memory, BYTES, &[])?;
    check_all!(found[..half], 1, "bytes of the first half");
    check_all!(found[half..], 2, "bytes of the second half");
    let (ur, device, mut ptr) = (fixture.ur, fixture.device, null_mut());
    for (offset, size) in [(0, 0), (BYTES as u64, 1), (1, BYTES as u64), (u64::MAX, 2)] {
        ur.urBindlessImagesMapExternalLinearMemoryExp(
            context.raw,
            device,
            offset,
            size,
            imported.raw,
            &mut ptr,
        )
        .fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    }
    let nowhere = std::ptr::without_provenance_mut(0x1230);
    ur.urBindlessImagesFreeMappedLinearMemoryExp(context.raw, device, nowhere)
        .fails(UR_RESULT_ERROR_INVALID_VALUE)
}

/// Imported memory can be an image, of one level or several.
fn imported_memory_as_an_image(fixture: &Fixture) -> Done {
    let (context, queue) = start(fixture)?;
    need_property(fixture, UR_DEVICE_INFO_BINDLESS_IMAGES_SUPPORT_EXP)?;
    let own = exported(fixture, &context)?;
    let imported = Imported::new(fixture, &context, &own.file, BYTES)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let sizes = [64, 32, 0];
    let most = match fixture.supports(UR_DEVICE_INFO_MIPMAP_SUPPORT_EXP)? {
        true => 3,
        false => 1,
    };
    for levels in [1, 3].into_iter().filter(|levels| *levels <= most) {
        let desc = mipmap(UR_MEM_TYPE_IMAGE2D, sizes, levels);
        let mut raw = 0;
        ur.urBindlessImagesMapExternalArrayExp(
            context.raw,
            device,
            &RGBA8,
            &desc,
            imported.raw,
            &mut raw,
        )
        .ok()?;
        let mapped = Memory::adopt(fixture, &context, RGBA8, desc, raw);
        let data = pixels(sizes, levels);
        if levels == 1 {
            write(&queue, &mapped, sizes, &data)?;
            let found: Vec<u32> = read(&queue, &mapped, sizes)?;
            check!(found == data, "pixels of imported memory");
            mapped.sampled(&nearest())?;
            mapped.unsampled()?;
            continue;
        }
        let (half, level) = ([32, 16, 0], mapped.image_of_level(fixture, 1)?);
        let data = pixels(half, levels);
        write(&queue, &level, half, &data)?;
        let found: Vec<u32> = read(&queue, &level, half)?;
        check!(found == data, "pixels of a level of imported memory");
    }
    let huge = image(UR_MEM_TYPE_IMAGE2D, [4096, 4096, 0]);
    let mut raw = 0;
    ur.urBindlessImagesMapExternalArrayExp(
        context.raw,
        device,
        &RGBA8,
        &huge,
        imported.raw,
        &mut raw,
    )
    .fails(UR_RESULT_ERROR_INVALID_IMAGE_SIZE)
}

/// An import without a descriptor, with one of nothing, without a size or of another system is refused.
fn wrong_imports(fixture: &Fixture) -> Done {
    let (context, _) = start(fixture)?;
    let (ur, device) = (fixture.ur, fixture.device);
    let mut made = null_mut();
    let mut attempt = |desc: &mut ur_exp_external_mem_desc_t, size, kind| {
        ur.urBindlessImagesImportExternalMemoryExp(context.raw, device, size, kind, desc, &mut made)
    };
    let mut bare = ur_exp_external_mem_desc_t::default();
    attempt(&mut bare, BYTES, OPAQUE).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    let file = std::fs::File::open("/dev/null").map_err(|error| Stop::failed(error.to_string()))?;
    let mut own = ur_exp_file_descriptor_t {
        fd: file.as_raw_fd(),
        ..Default::default()
    };
    let mut desc = ur_exp_external_mem_desc_t {
        pNext: (&raw mut own).cast(),
        ..Default::default()
    };
    attempt(&mut desc, 0, OPAQUE).fails(UR_RESULT_ERROR_INVALID_VALUE)?;
    let status = attempt(&mut desc, BYTES, OPAQUE);
    check!(!status.is_ok(), "a descriptor of nothing is imported");
    let status = attempt(&mut desc, BYTES, UR_EXP_EXTERNAL_MEM_TYPE_WIN32_NT);
    check!(!status.is_ok(), "a handle of another system is imported");
    let mut none = ur_exp_file_descriptor_t { fd: -1, ..own };
    desc.pNext = (&raw mut none).cast();
    attempt(&mut desc, BYTES, OPAQUE).fails(UR_RESULT_ERROR_INVALID_VALUE)
}

/// A device tells which kinds of handles it imports: file descriptors at least, if it imports any.
fn kinds_of_imports(fixture: &Fixture) -> Done {
    let (ur, device) = (fixture.ur, fixture.device);
    let property = UR_DEVICE_INFO_EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP;
    let able = fixture.supports(property)?;
    let mut found = 0xff;
    let mut ask = |kind| {
        let status = ur.urBindlessImagesSupportsImportingHandleTypeExp(device, kind, &mut found);
        (status, found)
    };
    if !able {
        return fixture.require(property, || ask(OPAQUE).0);
    }
    let (status, found) = ask(OPAQUE);
    status.ok()?;
    check_eq!(found, 1, "whether file descriptors are imported");
    let (status, found) = ask(UR_EXP_EXTERNAL_MEM_TYPE_WIN32_NT);
    status.ok()?;
    check_eq!(found, 0, "whether handles of another system are imported");
    ask(ur_exp_external_mem_type_t(77))
        .0
        .fails(UR_RESULT_ERROR_INVALID_ENUMERATION)
}
