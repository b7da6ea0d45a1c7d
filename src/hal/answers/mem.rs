//! Memory objects: their properties, and the parts of buffers.

use crate::abi::*;
use crate::hal::{Backend, MemInfo, PhysicalMemInfo};
use crate::object::{InfoOut, Object, Result, ensure};

const ACCESS: u32 = UR_MEM_FLAG_READ_WRITE.0 | UR_MEM_FLAG_READ_ONLY.0 | UR_MEM_FLAG_WRITE_ONLY.0;

/// The access that flags name, or none. `INVALID_VALUE` if they name several.
pub fn access_of(flags: ur_mem_flags_t) -> Result<Option<ur_mem_flags_t>> {
    let named = ur_mem_flags_t(flags.0 & ACCESS);
    ensure(named.0.count_ones() <= 1, UR_RESULT_ERROR_INVALID_VALUE)?;
    Ok((named.0 != 0).then_some(named))
}

/// The flags that a new buffer has: those given, and `READ_WRITE` where they name no access.
/// `INVALID_VALUE` if they name several, or use the caller's memory and ask for memory at once.
pub fn buffer_flags(flags: ur_mem_flags_t) -> Result<ur_mem_flags_t> {
    let own = UR_MEM_FLAG_ALLOC_HOST_POINTER | UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER;
    let uses = flags.contains(UR_MEM_FLAG_USE_HOST_POINTER);
    ensure(
        !(uses && flags.intersects(own)),
        UR_RESULT_ERROR_INVALID_VALUE,
    )?;
    Ok(flags | access_of(flags)?.unwrap_or(UR_MEM_FLAG_READ_WRITE))
}

/// A buffer that `urMemBufferPartition` is asked to take a part of.
pub struct WholeBuffer {
    pub flags: ur_mem_flags_t,
    pub bytes: usize,
    /// Whether it is a part of another buffer.
    pub is_part: bool,
}

/// A part of a buffer that may be made.
pub struct BufferPart {
    /// The whole buffer's flags, with the part's own access.
    pub flags: ur_mem_flags_t,
    /// The part's first byte within the whole buffer.
    pub offset: usize,
    pub bytes: usize,
}

impl WholeBuffer {
    /// Checks a part: `flags` may restrict the whole buffer's access, and `region` lies within it.
    pub fn part(
        &self,
        flags: ur_mem_flags_t,
        kind: ur_buffer_create_type_t,
        region: &ur_buffer_region_t,
    ) -> Result<BufferPart> {
        ensure(
            kind == UR_BUFFER_CREATE_TYPE_REGION,
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        )?;
        ensure(!self.is_part, UR_RESULT_ERROR_INVALID_MEM_OBJECT)?;
        ensure(flags.0 & !ACCESS == 0, UR_RESULT_ERROR_INVALID_VALUE)?;
        let allowed = access_of(self.flags)?.unwrap_or(UR_MEM_FLAG_READ_WRITE);
        let wanted = access_of(flags)?.unwrap_or(allowed);
        ensure(
            allowed == UR_MEM_FLAG_READ_WRITE || wanted == allowed,
            UR_RESULT_ERROR_INVALID_VALUE,
        )?;
        let end = region.origin.checked_add(region.size);
        let inside = region.size > 0 && end.is_some_and(|end| end <= self.bytes);
        ensure(inside, UR_RESULT_ERROR_INVALID_BUFFER_SIZE)?;
        Ok(BufferPart {
            flags: ur_mem_flags_t(self.flags.0 & !ACCESS | wanted.0),
            offset: region.origin,
            bytes: region.size,
        })
    }
}

/// `urMemGetInfo`. `bytes` is called if the size is asked for.
pub fn mem_info<B: Backend>(
    this: &Object<B::Mem>,
    context: &Object<B::Context>,
    bytes: impl FnOnce() -> Result<usize>,
    what: MemInfo,
    out: InfoOut<'_>,
) -> Result<()> {
    match what {
        MemInfo::Size => out.value(bytes()?),
        MemInfo::Context => out.handle(Some(context)),
        MemInfo::ReferenceCount => out.value(this.api_refs()),
    }
}

/// `urPhysicalMemGetInfo` of so many bytes on a device, made with these flags.
pub fn physical_mem_info<B: Backend>(
    this: &Object<B::PhysicalMem>,
    (context, device): (&Object<B::Context>, &Object<B::Device>),
    (bytes, flags): (usize, ur_physical_mem_flags_t),
    what: PhysicalMemInfo,
    out: InfoOut<'_>,
) -> Result<()> {
    match what {
        PhysicalMemInfo::Context => out.handle(Some(context)),
        PhysicalMemInfo::Device => out.handle(Some(device)),
        PhysicalMemInfo::Size => out.value(bytes),
        PhysicalMemInfo::Properties => out.value(ur_physical_mem_properties_t {
            flags,
            ..Default::default()
        }),
        PhysicalMemInfo::ReferenceCount => out.value(this.api_refs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Error;

    fn part(
        whole: ur_mem_flags_t,
        flags: ur_mem_flags_t,
        range: std::ops::Range<usize>,
    ) -> Result<u32> {
        let whole = WholeBuffer {
            flags: whole,
            bytes: 64,
            is_part: false,
        };
        let region = ur_buffer_region_t {
            origin: range.start,
            size: range.len(),
            ..Default::default()
        };
        let part = whole.part(flags, UR_BUFFER_CREATE_TYPE_REGION, &region)?;
        assert_eq!((part.offset, part.bytes), (region.origin, region.size));
        Ok(part.flags.0)
    }

    #[test]
    fn a_part_restricts_access_and_inherits_the_rest() {
        let host = UR_MEM_FLAG_USE_HOST_POINTER;
        let (reads, writes) = (UR_MEM_FLAG_READ_ONLY, UR_MEM_FLAG_WRITE_ONLY);
        let none = ur_mem_flags_t(0);
        assert_eq!(part(none, none, 0..64), Ok(UR_MEM_FLAG_READ_WRITE.0));
        assert_eq!(part(host, reads, 0..1), Ok((host | reads).0));
        assert_eq!(part(reads | host, none, 0..1), Ok((host | reads).0));
        let refused = Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        assert_eq!(part(reads, writes, 0..1), refused);
        assert_eq!(part(reads, UR_MEM_FLAG_READ_WRITE, 0..1), refused);
        assert_eq!(part(none, reads | writes, 0..1), refused);
        assert_eq!(part(none, host, 0..1), refused);
    }

    #[test]
    fn a_part_lies_within_the_whole() {
        let none = ur_mem_flags_t(0);
        let refused = Err(Error::new(UR_RESULT_ERROR_INVALID_BUFFER_SIZE));
        assert_eq!(part(none, none, 63..64), Ok(UR_MEM_FLAG_READ_WRITE.0));
        for range in [
            0..0,
            63..65,
            64..65,
            usize::MAX - 1..usize::MAX,
            1..usize::MAX,
        ] {
            assert_eq!(part(none, none, range), refused);
        }
    }
}
