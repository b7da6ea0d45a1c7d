//! Reserved address ranges and the physical memory mapped to them.

use crate::api::Api;
use crate::fixture::Fixture;
use crate::objects::{Context, info};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::{check, check_all, check_eq};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

pub fn all() -> Vec<Test> {
    let mut tests = crate::tests!["virtual_memory";
        granularity, reserve_and_free, map_and_use, remap_keeps_data, two_mappings_of_one_memory,
        adjacent_mappings_form_one_range, access_mode, invalid_sizes, physical_for_ipc,
        physical_counts_references,
    ];
    let physical = |fixture: &Fixture| Setup::new(fixture)?.physical(1);
    tests.extend(info::tests(
        "virtual_memory",
        "physical_info_",
        ur_physical_mem_info_t::PROPERTIES,
        physical,
        |f, physical, name, size, value, ret| {
            f.ur.urPhysicalMemGetInfo(physical.raw, ur_physical_mem_info_t(name), size, value, ret)
        },
    ));
    tests
}

struct Setup<'a> {
    fixture: &'a Fixture,
    context: Context,
    granule: usize,
}

struct Physical {
    ur: &'static Api,
    raw: ur_physical_mem_handle_t,
}

impl Drop for Physical {
    fn drop(&mut self) {
        let _ = self.ur.urPhysicalMemRelease(self.raw);
    }
}

impl<'a> Setup<'a> {
    /// Stops the test where the device has no virtual memory.
    fn new(fixture: &'a Fixture) -> Result<Self, Stop> {
        let context = Context::new(fixture)?;
        let mut start = null_mut();
        fixture.require(UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT, || {
            fixture
                .ur
                .urVirtualMemReserve(context.raw, null(), 1 << 21, &mut start)
        })?;
        let granule = granularity_of(
            fixture,
            &context,
            UR_VIRTUAL_MEM_GRANULARITY_INFO_RECOMMENDED,
        )?;
        Ok(Self {
            fixture,
            context,
            granule,
        })
    }

    fn reserve(&self, granules: usize) -> Result<*mut c_void, Stop> {
        let mut start = null_mut();
        self.fixture
            .ur
            .urVirtualMemReserve(
                self.context.raw,
                null(),
                granules * self.granule,
                &mut start,
            )
            .ok()?;
        if start.is_null() {
            return Err(Stop::failed("urVirtualMemReserve: success, but no address"));
        }
        Ok(start)
    }

    fn free(&self, start: *mut c_void, granules: usize) -> Done {
        self.fixture
            .ur
            .urVirtualMemFree(self.context.raw, start, granules * self.granule)
            .ok()
    }

    fn physical(&self, granules: usize) -> Result<Physical, Stop> {
        self.physical_with(granules, None)
    }

    fn physical_with(
        &self,
        granules: usize,
        properties: Option<&ur_physical_mem_properties_t>,
    ) -> Result<Physical, Stop> {
        let (ur, mut raw) = (self.fixture.ur, null_mut());
        ur.urPhysicalMemCreate(
            self.context.raw,
            self.fixture.device,
            granules * self.granule,
            properties.map_or_else(null, std::ptr::from_ref),
            &mut raw,
        )
        .ok()?;
        Ok(Physical { ur, raw })
    }

    fn map(&self, start: *mut c_void, granules: usize, physical: &Physical, offset: usize) -> Done {
        let flags = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE;
        let size = granules * self.granule;
        self.fixture
            .ur
            .urVirtualMemMap(
                self.context.raw,
                start,
                size,
                physical.raw,
                offset * self.granule,
                flags,
            )
            .ok()
    }

    fn unmap(&self, start: *mut c_void, granules: usize) -> Done {
        self.fixture
            .ur
            .urVirtualMemUnmap(self.context.raw, start, granules * self.granule)
            .ok()
    }
}

fn granularity_of(
    fixture: &Fixture,
    context: &Context,
    property: ur_virtual_mem_granularity_info_t,
) -> Result<usize, Stop> {
    info::value(|size, value, ret| {
        fixture.ur.urVirtualMemGranularityGetInfo(
            context.raw,
            fixture.device,
            1 << 20,
            property,
            size,
            value,
            ret,
        )
    })
}

/// The minimum granularity is a power of two that divides the recommended one.
fn granularity(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let least = granularity_of(
        fixture,
        &setup.context,
        UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM,
    )?;
    check!(
        least.is_power_of_two(),
        "the granularity {least} is no power of two"
    );
    check!(
        setup.granule.is_multiple_of(least),
        "the recommended granularity {} is no multiple of the minimum {least}",
        setup.granule
    );
    Ok(())
}

/// Two reserved address ranges do not overlap.
fn reserve_and_free(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let (a, b) = (setup.reserve(4)?, setup.reserve(4)?);
    let apart = a.addr().abs_diff(b.addr()) >= 4 * setup.granule;
    check!(apart, "two reserved ranges overlap: {a:?} and {b:?}");
    setup.free(a, 4)?;
    setup.free(b, 4)
}

/// Physical memory mapped to a reserved range takes commands.
fn map_and_use(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.context.in_order(fixture)?;
    let start = setup.reserve(2)?;
    let physical = setup.physical(2)?;
    setup.map(start, 2, &physical, 0)?;
    queue.fill(start, 0x6b_u8, 2 * setup.granule, &[])?;
    let data = queue.read::<u8>(start, 2 * setup.granule, &[])?;
    check_all!(data, 0x6b, "bytes of mapped memory");
    setup.unmap(start, 2)?;
    setup.free(start, 2)
}

/// Physical memory keeps its data when it is mapped to another address.
fn remap_keeps_data(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.context.in_order(fixture)?;
    let (first, second) = (setup.reserve(1)?, setup.reserve(1)?);
    let physical = setup.physical(1)?;
    setup.map(first, 1, &physical, 0)?;
    queue.fill(first, 0x17_u8, setup.granule, &[])?.wait()?;
    setup.unmap(first, 1)?;
    setup.map(second, 1, &physical, 0)?;
    let data = queue.read::<u8>(second, setup.granule, &[])?;
    check_all!(
        data,
        0x17,
        "bytes of physical memory mapped to another address"
    );
    setup.unmap(second, 1)?;
    setup.free(first, 1)?;
    setup.free(second, 1)
}

/// A write at one address is seen at another mapping of the same memory.
fn two_mappings_of_one_memory(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.context.in_order(fixture)?;
    let (first, second) = (setup.reserve(1)?, setup.reserve(1)?);
    let physical = setup.physical(2)?;
    setup.map(first, 1, &physical, 1)?;
    setup.map(second, 1, &physical, 1)?;
    queue.fill(first, 0x2d_u8, setup.granule, &[])?;
    let data = queue.read::<u8>(second, setup.granule, &[])?;
    check_all!(data, 0x2d, "bytes at the second address");
    for start in [first, second] {
        setup.unmap(start, 1)?;
        setup.free(start, 1)?;
    }
    Ok(())
}

/// A command may span two adjacent mappings of different physical memory.
fn adjacent_mappings_form_one_range(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let queue = setup.context.in_order(fixture)?;
    let start = setup.reserve(2)?;
    let next = start.wrapping_byte_add(setup.granule);
    let (first, second) = (setup.physical(1)?, setup.physical(1)?);
    setup.map(start, 1, &first, 0)?;
    queue.fill(start, 1_u8, setup.granule, &[])?.wait()?;
    setup.map(next, 1, &second, 0)?;
    queue.fill(
        start.wrapping_byte_add(setup.granule / 2),
        2_u8,
        setup.granule,
        &[],
    )?;
    let data = queue.read::<u8>(start, 2 * setup.granule, &[])?;
    let half = setup.granule / 2;
    check_all!(data[..half], 1, "bytes from before the range grew");
    check_all!(
        data[half..half + setup.granule],
        2,
        "bytes of a fill over both mappings"
    );
    setup.unmap(start, 1)?;
    setup.unmap(next, 1)?;
    setup.free(start, 2)
}

/// A mapping reports its access mode, and the mode can be changed.
fn access_mode(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let start = setup.reserve(1)?;
    let physical = setup.physical(1)?;
    setup.map(start, 1, &physical, 0)?;
    let mode = || {
        info::value::<ur_virtual_mem_access_flags_t>(|size, value, ret| {
            let property = UR_VIRTUAL_MEM_INFO_ACCESS_MODE;
            fixture.ur.urVirtualMemGetInfo(
                setup.context.raw,
                start,
                setup.granule,
                property,
                size,
                value,
                ret,
            )
        })
    };
    check_eq!(
        mode()?,
        UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE,
        "access after the map"
    );
    let flags = UR_VIRTUAL_MEM_ACCESS_FLAG_READ_ONLY;
    fixture
        .ur
        .urVirtualMemSetAccess(setup.context.raw, start, setup.granule, flags)
        .ok()?;
    check_eq!(mode()?, flags, "access after a change");
    setup.unmap(start, 1)?;
    setup.free(start, 1)
}

/// Sizes of 0 or off the granularity are refused and give no handle.
fn invalid_sizes(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let least = granularity_of(
        fixture,
        &setup.context,
        UR_VIRTUAL_MEM_GRANULARITY_INFO_MINIMUM,
    )?;
    let mut raw = null_mut();
    if least > 1 {
        let odd = fixture.ur.urPhysicalMemCreate(
            setup.context.raw,
            fixture.device,
            least + 1,
            null(),
            &mut raw,
        );
        odd.fails(UR_RESULT_ERROR_INVALID_SIZE)?;
    }
    fixture
        .ur
        .urPhysicalMemCreate(setup.context.raw, fixture.device, 0, null(), &mut raw)
        .refused()?;
    let mut start = null_mut();
    fixture
        .ur
        .urVirtualMemReserve(setup.context.raw, null(), 0, &mut start)
        .refused()?;
    check!(
        raw.is_null() && start.is_null(),
        "a refused call wrote its result"
    );
    Ok(())
}

/// Physical memory made for sharing with other processes is used as any other.
fn physical_for_ipc(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    for flags in [UR_PHYSICAL_MEM_FLAG_ENABLE_IPC, ur_physical_mem_flags_t(0)] {
        let properties = ur_physical_mem_properties_t {
            flags,
            ..Default::default()
        };
        let physical = setup.physical_with(1, Some(&properties))?;
        let reported: ur_physical_mem_properties_t = info::value(|size, value, ret| {
            let what = UR_PHYSICAL_MEM_INFO_PROPERTIES;
            fixture
                .ur
                .urPhysicalMemGetInfo(physical.raw, what, size, value, ret)
        })?;
        check_eq!(reported.flags, flags, "flags of the physical memory");
        let start = setup.reserve(1)?;
        setup.map(start, 1, &physical, 0)?;
        let queue = setup.context.in_order(fixture)?;
        queue.fill(start, 7_u8, setup.granule, &[])?;
        let data: Vec<u8> = queue.read(start, setup.granule, &[])?;
        check_all!(data, 7, "bytes of a fill");
        setup.unmap(start, 1)?;
        setup.free(start, 1)?;
    }
    Ok(())
}

/// A retain and a release of physical memory change its reference count by one.
fn physical_counts_references(fixture: &Fixture) -> Done {
    let setup = Setup::new(fixture)?;
    let physical = setup.physical(1)?;
    let references = || {
        info::value::<u32>(|size, value, ret| {
            fixture.ur.urPhysicalMemGetInfo(
                physical.raw,
                UR_PHYSICAL_MEM_INFO_REFERENCE_COUNT,
                size,
                value,
                ret,
            )
        })
    };
    check_eq!(references()?, 1, "references of new physical memory");
    fixture.ur.urPhysicalMemRetain(physical.raw).ok()?;
    check_eq!(references()?, 2, "references after a retain");
    fixture.ur.urPhysicalMemRelease(physical.raw).ok()?;
    check_eq!(references()?, 1, "references after a release");
    let size: usize = info::value(|size, value, ret| {
        fixture
            .ur
            .urPhysicalMemGetInfo(physical.raw, UR_PHYSICAL_MEM_INFO_SIZE, size, value, ret)
    })?;
    check_eq!(size, setup.granule, "size of physical memory");
    Ok(())
}
