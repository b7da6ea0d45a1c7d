//! Several devices: whose memory is where, and who has access to it.
//!
//! | memory | other devices reach it |
//! |---|---|
//! | of `cuMemAlloc` | with access of their context, and copies without |
//! | of mapped pages | if `cuMemSetAccess` says so for each page |
//! | of a pool | if `cuMemPoolSetAccess` says so |
//! | of an array | never; the driver copies between arrays of two devices |
//! | of the host, managed or unknown | always |
//!
//! A copy or memset that a device does not reach is refused. A command that loses its access before it runs, or
//! a kernel without access, is an error of the caller's, which a real device answers with a fault.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::*;
use crate::image::boxes;
use crate::stream::Command;
use crate::strict::hold_idle;

type Handle = *mut c_void;

const INVALID_DEVICE: u32 = 101;
const PEER_ACCESS_UNSUPPORTED: u32 = 217;
const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
const PEER_ACCESS_NOT_ENABLED: u32 = 705;

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const READ_WRITE: u64 = 3;

/// The access of each device to a piece of memory, as flags of the driver.
pub type Access = [u64; MAX_DEVICES];

/// `CUmemAccessDesc`: a location's type and number, and flags.
#[repr(C)]
pub struct Description {
    kind: c_int,
    device: c_int,
    flags: c_int,
}

/// Whether a device can use memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    Yes,
    /// Only copies do, through the driver.
    ByCopy,
    No,
}

/// The device of a primary context.
pub fn device_of(context: usize) -> usize {
    (0..MAX_DEVICES)
        .find(|device| context_of(*device) == context)
        .unwrap_or(0)
}

impl FakeDriver {
    /// The access that each device has at an address, if a device owns it: its home comes first.
    pub fn access(&self, at: usize) -> Option<(usize, Access)> {
        if self.elsewhere.contains(&at) {
            let mut access = [0; MAX_DEVICES];
            access[1] = READ_WRITE;
            return Some((1, access));
        }
        if let Some((start, map)) = self.maps.range(..=at).next_back()
            && at - start < map.bytes
        {
            let home = self.pieces.get(&map.piece)?.home?;
            return Some((home, map.access));
        }
        if let Some(array) = self.array_at(at) {
            let mut access = [0; MAX_DEVICES];
            access[array.home] = READ_WRITE;
            return Some((array.home, access));
        }
        if let Some((home, access)) = self.pooled_access(at) {
            return Some((home, access));
        }
        let (start, block) = self.blocks.range(..=at).next_back()?;
        let home = block.home.filter(|_| at - start < block.bytes)?;
        let access = |device: usize| match device == home || self.links[device][home] {
            true => READ_WRITE,
            false => 0,
        };
        Some((home, std::array::from_fn(access)))
    }

    /// Whether a device can use this many bytes. `writes` if it must write them.
    pub fn reach(&self, device: usize, at: usize, bytes: usize, writes: bool) -> Reach {
        let needed = if writes { READ_WRITE } else { 1 };
        let mut at = at;
        let end = at + bytes.max(1);
        while at < end {
            if let Some((_, access)) = self.access(at)
                && access[device] & needed != needed
            {
                let block = self.blocks.range(..=at).next_back();
                let staged = block
                    .is_some_and(|(start, block)| at - start < block.bytes && block.home.is_some());
                return if staged { Reach::ByCopy } else { Reach::No };
            }
            at = (at / PAGE + 1) * PAGE;
        }
        Reach::Yes
    }

    /// Records an error if a running command has no access to its memory.
    pub fn check_reach(&mut self, device: usize, at: usize, bytes: usize, copies: bool) {
        // What is only read may be read-only.
        let reach = self.reach(device, at, bytes, false);
        if reach == Reach::No || reach == Reach::ByCopy && !copies {
            let _ = self.broken::<()>(&format!("device {device} uses memory without access"));
        }
    }

    /// Whether descriptions name devices that can have access to memory of a device.
    pub fn can_have(&self, home: Option<usize>, who: &[Description]) -> bool {
        who.iter().all(|who| {
            let device = who.device as usize;
            let known = who.kind != 1 || device <= self.more_devices;
            known && (who.kind != 1 || home.is_none_or(|home| home == device || self.can_peer))
        })
    }
}

/// Changes the access of the devices in a list.
///
/// # Safety
/// `list` has `count` descriptions.
pub unsafe fn descriptions<'a>(list: *const Description, count: usize) -> &'a [Description] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(list, count) }
}

pub fn grant(access: &mut Access, who: &[Description]) {
    for who in who.iter().filter(|who| who.kind == 1) {
        access[who.device as usize] = who.flags as u64;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, from: c_int, to: c_int) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuDeviceCanAccessPeer") {
        return code;
    }
    // SAFETY: room for a number, as for all outputs here.
    unsafe { can.write((driver.can_peer && from != to).into()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    what: c_int,
    from: c_int,
    to: c_int,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuDeviceGetP2PAttribute") {
        return code;
    }
    if from == to {
        return INVALID_DEVICE;
    }
    // Access is attribute 2. Native atomics, 3, work upwards only, so that a test can tell the two apart.
    let found = match what {
        2 => driver.can_peer,
        3 => driver.can_peer && from < to,
        _ => return INVALID_VALUE,
    };
    // SAFETY: room for a number, as for all outputs here.
    unsafe { value.write(found.into()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) -> u32 {
    let mut driver = hold_idle(None);
    if let Some(code) = driver.acts("cuCtxEnablePeerAccess") {
        return code;
    }
    let (from, to) = (device_of(current()), device_of(peer.addr()));
    if flags != 0 || from == to || driver.retained[to] == 0 {
        return code(driver.broken("access to a context that is none"));
    }
    if !driver.can_peer {
        return PEER_ACCESS_UNSUPPORTED;
    }
    match std::mem::replace(&mut driver.links[from][to], true) {
        true => PEER_ACCESS_ALREADY_ENABLED,
        false => SUCCESS,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDisablePeerAccess(peer: Handle) -> u32 {
    let mut driver = hold_idle(None);
    if let Some(code) = driver.acts("cuCtxDisablePeerAccess") {
        return code;
    }
    let (from, to) = (device_of(current()), device_of(peer.addr()));
    driver.pump();
    match std::mem::take(&mut driver.links[from][to]) {
        true => SUCCESS,
        false => PEER_ACCESS_NOT_ENABLED,
    }
}

/// Submits copies between the memory of two contexts. Each side needs the access of its own context only.
fn copy_between(
    name: &'static str,
    stream: Handle,
    (to, from): (Handle, Handle),
    all: impl FnOnce(&FakeDriver) -> Result<Vec<Command>, u32>,
) -> u32 {
    let mut driver = hold();
    let own = driver.context_of_stream(stream);
    if let Some(code) = driver.belongs(name, own) {
        return code;
    }
    let (to, from) = (device_of(to.addr()), device_of(from.addr()));
    if [to, from]
        .iter()
        .any(|device| driver.retained[*device] == 0)
    {
        return code(driver.broken("a copy between contexts that are none"));
    }
    let on = device_of(own.unwrap_or_else(current));
    if on != to && on != from {
        return code(driver.broken("a copy between contexts on a stream of a third"));
    }
    let all = match all(&driver) {
        Ok(all) => all,
        Err(code) => return code,
    };
    for command in all {
        let Command::Copy { dst, src, bytes } = command else {
            continue;
        };
        let reached = driver.reach(to, dst, bytes, true) == Reach::Yes
            && driver.reach(from, src, bytes, false) == Reach::Yes;
        if !reached {
            return INVALID_VALUE;
        }
        let between = Command::CopyBetween {
            dst: (to, dst),
            src: (from, src),
            bytes,
        };
        if let Err(code) = driver.submit(stream.addr(), between) {
            return code;
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeerAsync(
    dst: u64,
    to: Handle,
    src: u64,
    from: Handle,
    bytes: usize,
    stream: Handle,
) -> u32 {
    let (dst, src) = (dst as usize, src as usize);
    let copy = Command::Copy { dst, src, bytes };
    copy_between("cuMemcpyPeerAsync", stream, (to, from), |_| Ok(vec![copy]))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3DPeerAsync(what: *const usize, stream: Handle) -> u32 {
    let context = |at: usize| -> Handle {
        // SAFETY: the struct has 25 words, among them both contexts.
        let context = unsafe { what.add(at).read() };
        std::ptr::without_provenance_mut(context)
    };
    let contexts = (context(19), context(8));
    copy_between("cuMemcpy3DPeerAsync", stream, contexts, |driver| {
        boxes(driver, what)
    })
}
