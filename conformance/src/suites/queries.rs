//! The size protocol of queries whose objects have no suite of their own.
//!
//! These are samplers, images, address ranges, profiling times and peers.

use crate::api::Api;
use crate::fixture::Fixture;
use crate::objects::{Context, Event, Queue, info};
use crate::outcome::Stop;
use crate::registry::Test;
use crate::status::Status;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

const SUITE: &str = "queries";

pub fn all() -> Vec<Test> {
    let mut tests = info::tests(
        SUITE,
        "sampler_",
        ur_sampler_info_t::PROPERTIES,
        sampler,
        |f, made, name, size, value, ret| {
            let name = ur_sampler_info_t(name);
            f.ur.urSamplerGetInfo(made.raw, name, size, value, ret)
        },
    );
    tests.extend(info::tests(
        SUITE,
        "image_",
        ur_image_info_t::PROPERTIES,
        image,
        |f, made, name, size, value, ret| {
            let name = ur_image_info_t(name);
            f.ur.urMemImageGetInfo(made.raw, name, size, value, ret)
        },
    ));
    tests.extend(info::tests(
        SUITE,
        "granularity_",
        ur_virtual_mem_granularity_info_t::PROPERTIES,
        addresses,
        |f, range, name, size, value, ret| {
            let name = ur_virtual_mem_granularity_info_t(name);
            let context = range.context.raw;
            f.ur.urVirtualMemGranularityGetInfo(context, f.device, 1 << 20, name, size, value, ret)
        },
    ));
    tests.extend(info::tests(
        SUITE,
        "addresses_",
        ur_virtual_mem_info_t::PROPERTIES,
        addresses,
        |f, range, name, size, value, ret| {
            let (context, name) = (range.context.raw, ur_virtual_mem_info_t(name));
            f.ur.urVirtualMemGetInfo(context, range.start, range.size, name, size, value, ret)
        },
    ));
    tests.extend(info::tests(
        SUITE,
        "profiling_",
        ur_profiling_info_t::PROPERTIES,
        event,
        |f, event, name, size, value, ret| {
            let name = ur_profiling_info_t(name);
            f.ur.urEventGetProfilingInfo(event.raw, name, size, value, ret)
        },
    ));
    tests.extend(info::tests(
        SUITE,
        "peer_",
        ur_exp_peer_info_t::PROPERTIES,
        peer,
        |f, (), name, size, value, ret| {
            let name = ur_exp_peer_info_t(name);
            f.ur.urUsmP2PPeerAccessGetInfoExp(f.device, f.device, name, size, value, ret)
        },
    ));
    tests
}

/// A handle with its release function.
struct Made<T: Copy> {
    ur: &'static Api,
    raw: T,
    release: fn(&Api, T) -> Status,
    _context: Context,
}

impl<T: Copy> Drop for Made<T> {
    fn drop(&mut self) {
        let _ = (self.release)(self.ur, self.raw);
    }
}

fn sampler(fixture: &Fixture) -> Result<Made<ur_sampler_handle_t>, Stop> {
    let context = Context::new(fixture)?;
    let desc = ur_sampler_desc_t::default();
    let mut raw = null_mut();
    fixture.require(UR_DEVICE_INFO_IMAGE_SUPPORT, || {
        fixture.ur.urSamplerCreate(context.raw, &desc, &mut raw)
    })?;
    fixture
        .ur
        .urSamplerCreate(context.raw, &desc, &mut raw)
        .ok()?;
    Ok(Made {
        ur: fixture.ur,
        raw,
        release: Api::urSamplerRelease,
        _context: context,
    })
}

fn image(fixture: &Fixture) -> Result<Made<ur_mem_handle_t>, Stop> {
    let context = Context::new(fixture)?;
    let format = ur_image_format_t {
        channelOrder: UR_IMAGE_CHANNEL_ORDER_RGBA,
        channelType: UR_IMAGE_CHANNEL_TYPE_UNORM_INT8,
    };
    let desc = ur_image_desc_t {
        r#type: UR_MEM_TYPE_IMAGE2D,
        width: 16,
        height: 16,
        depth: 1,
        ..Default::default()
    };
    let mut raw = null_mut();
    let flags = UR_MEM_FLAG_READ_WRITE;
    let mut create = || {
        let (ur, host) = (fixture.ur, null_mut());
        ur.urMemImageCreate(context.raw, flags, &format, &desc, host, &mut raw)
    };
    fixture.require(UR_DEVICE_INFO_IMAGE_SUPPORT, &mut create)?;
    create().ok()?;
    Ok(Made {
        ur: fixture.ur,
        raw,
        release: Api::urMemRelease,
        _context: context,
    })
}

/// A reserved address range.
struct Addresses {
    ur: &'static Api,
    context: Context,
    start: *mut c_void,
    size: usize,
}

impl Drop for Addresses {
    fn drop(&mut self) {
        let _ = self
            .ur
            .urVirtualMemFree(self.context.raw, self.start, self.size);
    }
}

fn addresses(fixture: &Fixture) -> Result<Addresses, Stop> {
    let (context, size) = (Context::new(fixture)?, 4 << 20);
    let mut start = null_mut();
    let ur = fixture.ur;
    fixture.require(UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT, || {
        ur.urVirtualMemReserve(context.raw, null(), size, &mut start)
    })?;
    ur.urVirtualMemReserve(context.raw, null(), size, &mut start)
        .ok()?;
    Ok(Addresses {
        ur,
        context,
        start,
        size,
    })
}

/// The event of a command on a queue with profiling.
fn event(fixture: &Fixture) -> Result<Event, Stop> {
    let context = Context::new(fixture)?;
    let queue = Queue::new(&context, fixture.device, UR_QUEUE_FLAG_PROFILING_ENABLE)?;
    let event = queue.marker(&[])?;
    event.wait()?;
    Ok(event)
}

/// Stops the test where the device refuses peer queries. A device is its own peer here.
fn peer(fixture: &Fixture) -> Result<(), Stop> {
    let mut size = 0;
    let (ur, device) = (fixture.ur, fixture.device);
    let name = UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT;
    let status = ur.urUsmP2PPeerAccessGetInfoExp(device, device, name, 0, null_mut(), &mut size);
    if status.is_unsupported() {
        return fixture.require(UR_DEVICE_INFO_USM_P2P_SUPPORT_EXP, || status);
    }
    status.ok()
}
