//! Access of other devices to the memory of one device.
//!
//! Each [`Gpu`] knows the access that every other device has to its memory:
//!
//! | access | commands of the other device reach | until |
//! |---|---|---|
//! | none | nothing: there is no link | |
//! | members | memory of contexts that both devices belong to | it is enabled or disabled |
//! | enabled | all memory of the device | it is disabled |
//! | disabled | nothing | it is enabled |
//!
//! Memory with pages gets the access of each device when it is mapped, and the driver's pools when they are
//! created. Other memory has the access of the primary context, which the adapter enables with the first
//! slab. A change of access goes over all mapped ranges and pools, which are recorded here.
//!
//! Access is read without a lock, and changed under one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use ur::abi::*;
use ur::object::env::Env;
use ur::object::{Error, Result, ensure};
use ur::sync::{Mutex, MutexGuard, rank};

use super::gpu::Gpu;
use super::memory::Pages;
use crate::cu::sys::*;
use crate::cu::{Api, Code, RelaxedCapture, failure, home};

const READ_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
const NO_ACCESS: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;

/// The access of one device to the memory of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Access {
    None,
    Members,
    Enabled,
    Disabled,
}

impl Access {
    fn of(number: u8) -> Self {
        const ALL: [Access; 4] = [
            Access::None,
            Access::Members,
            Access::Enabled,
            Access::Disabled,
        ];
        ALL.into_iter()
            .find(|access| *access as u8 == number)
            .unwrap_or(Self::None)
    }
}

/// Whether a primary context has access to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Link {
    Unknown,
    /// Enabled by the adapter.
    Own,
    /// Enabled by the application.
    Foreign,
    /// The driver has refused it.
    Refused,
}

/// One device as others see it.
#[derive(Default)]
struct Peer {
    access: AtomicU8,
    link: AtomicU8,
}

impl Peer {
    fn access(&self) -> Access {
        Access::of(self.access.load(Ordering::Acquire))
    }

    fn set_access(&self, access: Access) {
        self.access.store(access as u8, Ordering::Release);
    }

    fn is_linked(&self) -> bool {
        let link = self.link.load(Ordering::Acquire);
        link == Link::Own as u8 || link == Link::Foreign as u8
    }

    fn is_link(&self, link: Link) -> bool {
        self.link.load(Ordering::Acquire) == link as u8
    }

    fn set_link(&self, link: Link) {
        self.link.store(link as u8, Ordering::Release);
    }
}

/// The devices of a context, by their numbers.
pub type Members = Arc<[CUdevice]>;

/// The access of all devices to one device's memory.
pub struct Peers {
    /// By number of the device. Empty if there is no other.
    all: Box<[Peer]>,
    memory: Mutex<Memory, { rank::DRIVER }>,
}

/// All memory of the device with an access of its own.
#[derive(Default)]
struct Memory {
    /// Mapped ranges, by their start.
    ranges: BTreeMap<usize, Range>,
    pools: Vec<(SharedPool, Members)>,
}

/// Mapped pages of one context.
#[derive(Clone)]
struct Range {
    bytes: usize,
    access: CUmemAccess_flags,
    members: Members,
}

/// A pool of the driver's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SharedPool(CUmemoryPool);

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for SharedPool {}

/// Whether devices of a context reach each other's memory without `urUsmP2PEnablePeerAccessExp`.
fn members_have_access() -> bool {
    static HAVE: OnceLock<bool> = OnceLock::new();
    *HAVE.get_or_init(|| Env::process().flag("UR_CUDA_PEER_ACCESS", true))
}

impl Peers {
    /// The access of all other devices before anybody has changed it.
    pub fn of(api: &Api, home: CUdevice) -> Self {
        let mut count = 0;
        // SAFETY: `count` is writable.
        let code = unsafe { (api.cuDeviceGetCount)(&mut count) };
        let count = if code.is_success() { count.max(0) } else { 0 };
        let peer = |device: CUdevice| {
            let mut can = 0;
            let peer = Peer::default();
            if device == home {
                return peer;
            }
            // SAFETY: `can` is writable.
            let code = unsafe { (api.cuDeviceCanAccessPeer)(&mut can, device, home) };
            peer.set_access(match code.is_success() && can != 0 {
                true if members_have_access() => Access::Members,
                true => Access::Disabled,
                false => Access::None,
            });
            peer
        };
        let all = match count {
            0 | 1 => Box::default(),
            _ => (0..count).map(peer).collect(),
        };
        Self {
            all,
            memory: Mutex::default(),
        }
    }

    fn peer(&self, device: CUdevice) -> Option<&Peer> {
        self.all.get(usize::try_from(device).ok()?)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// Whether a device reaches memory of a context with these members.
    fn admits(&self, device: CUdevice, members: &[CUdevice]) -> bool {
        self.peer(device).is_some_and(|peer| match peer.access() {
            Access::Enabled => true,
            Access::Members => members.contains(&device),
            Access::None | Access::Disabled => false,
        })
    }

    /// The devices besides the home that reach memory of a context with these members.
    fn admitted(&self, members: &[CUdevice]) -> Vec<CUdevice> {
        let devices = 0..self.all.len() as CUdevice;
        devices
            .filter(|device| self.admits(*device, members))
            .collect()
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device,
    }
}

impl Memory {
    /// Removes a part of the mapped ranges. Returns the removed pieces.
    fn remove(&mut self, addr: usize, bytes: usize) -> Vec<(usize, Range)> {
        let end = addr + bytes;
        let before = self.ranges.range(..addr).next_back();
        let before = before
            .filter(|(start, range)| *start + range.bytes > addr)
            .map(|(start, _)| *start);
        let inside = self.ranges.range(addr..end).map(|(start, _)| *start);
        let starts: Vec<usize> = before.into_iter().chain(inside).collect();
        let mut removed = Vec::new();
        for start in starts {
            let Some(range) = self.ranges.remove(&start) else {
                continue;
            };
            let last = start + range.bytes;
            let mut keep = |from: usize, to: usize| {
                if from < to {
                    let bytes = to - from;
                    #[rustfmt::skip]
                    let rest = Range { bytes, ..range.clone() };
                    self.ranges.insert(from, rest);
                }
            };
            keep(start, addr);
            keep(end, last);
            let (from, to) = (start.max(addr), last.min(end));
            removed.push((
                from,
                Range {
                    bytes: to - from,
                    ..range
                },
            ));
        }
        removed
    }
}

impl Gpu {
    /// Whether commands of this device reach memory of `home` in a context of both.
    pub fn reaches(&self, home: &Gpu) -> bool {
        if self.device == home.device {
            return true;
        }
        let peer = home.peers.peer(self.device);
        peer.is_some_and(|peer| match peer.access() {
            Access::Enabled => true,
            Access::Members => home.pages.is_some() || peer.is_linked(),
            Access::None | Access::Disabled => false,
        })
    }

    /// The device whose memory is at an address, if this device does not reach it as far as the driver knows.
    pub fn far_home(&self, addr: usize) -> Option<CUdevice> {
        let home = home(self.api, addr).filter(|home| *home != self.device)?;
        let _current = self.enter().ok()?;
        let mut access = 0_u64;
        let what = CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
        let query = self.api.cuPointerGetAttribute?;
        // SAFETY: the attribute is a number of at most this size, and `access` is writable.
        let code = unsafe { query((&raw mut access).cast(), what, addr as u64) };
        let reaches = code.is_success() && access == READ_WRITE as u64;
        (!reaches).then_some(home)
    }

    /// Maps pages of this device side by side, for the devices of a context that have access.
    pub fn map_shared(
        &self,
        pages: &Pages,
        addr: usize,
        all: &[u64],
        members: &Members,
        access: CUmemAccess_flags,
    ) -> Result<()> {
        let own = [pages.home];
        if self.peers.all.is_empty() {
            return pages.map_pages(self.api, addr, all, &own, access);
        }
        let mut memory = self.peers.memory();
        let admitted = self.peers.admitted(members);
        let others = admitted.iter().map(|device| location(*device));
        let who: Vec<_> = own.iter().copied().chain(others).collect();
        let mapped = pages.map_pages(self.api, addr, all, &who, access);
        if let Err(error) = mapped {
            let enabled = |device: &CUdevice| {
                let peer = self.peers.peer(*device);
                peer.is_some_and(|peer| peer.access() == Access::Enabled)
            };
            let short = error.code() == UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
            if short || admitted.is_empty() || admitted.iter().any(enabled) {
                return Err(error);
            }
            pages.map_pages(self.api, addr, all, &own, access)?;
            self.refuse(&admitted);
        }
        let bytes = all.len() * pages.bytes;
        let members = Arc::clone(members);
        let range = Range {
            bytes,
            access,
            members,
        };
        memory.ranges.insert(addr, range);
        Ok(())
    }

    /// Takes access from devices that the driver has refused it to, although its query says otherwise. They copy
    /// through it from now on.
    fn refuse(&self, devices: &[CUdevice]) {
        log::warn!(
            "devices {devices:?} get no access to device {}",
            self.device
        );
        let peers = devices.iter().filter_map(|device| self.peers.peer(*device));
        peers.for_each(|peer| peer.set_access(Access::Disabled));
    }

    /// Gives a device, and all devices of a context that have access, access to pages of this device that are
    /// mapped already, and records them. `UNSUPPORTED_FEATURE` if the device has no access.
    pub fn share_mapped(
        &self,
        pages: &Pages,
        (addr, bytes): (usize, usize),
        members: &Members,
        user: &Gpu,
    ) -> Result<()> {
        let own = [self.location()];
        if self.peers.all.is_empty() {
            return pages.set_access(self.api, addr, bytes, &own, READ_WRITE);
        }
        let mut memory = self.peers.memory();
        let admitted = self.peers.admitted(members);
        let has_access = user.device == self.device || admitted.contains(&user.device);
        ensure(has_access, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let give = |others: &[CUdevice]| {
            let others = others.iter().map(|device| location(*device));
            let who: Vec<_> = own.iter().copied().chain(others).collect();
            pages.set_access(self.api, addr, bytes, &who, READ_WRITE)
        };
        if let Err(error) = give(&admitted) {
            ensure(user.device == self.device, error.code())?;
            give(&[])?;
            self.refuse(&admitted);
        }
        let range = Range {
            bytes,
            access: READ_WRITE,
            members: Arc::clone(members),
        };
        memory.ranges.insert(addr, range);
        Ok(())
    }

    /// Whether the host has other devices.
    pub fn has_peers(&self) -> bool {
        !self.peers.all.is_empty()
    }

    /// Whether the driver can give this device access to memory of another one.
    pub fn can_reach(&self, home: CUdevice) -> bool {
        let mut can = 0;
        // SAFETY: `can` is writable.
        let code = unsafe { (self.api.cuDeviceCanAccessPeer)(&mut can, self.device, home) };
        code.is_success() && can != 0
    }

    /// Forgets mapped pages, which are then unmapped.
    pub fn unmap_shared(&self, addr: usize, bytes: usize) {
        if !self.peers.all.is_empty() {
            self.peers.memory().remove(addr, bytes);
        }
    }

    /// Sets the access of all devices that have any to mapped pages.
    pub fn set_shared_access(
        &self,
        pages: &Pages,
        (addr, bytes): (usize, usize),
        members: &Members,
        access: CUmemAccess_flags,
    ) -> Result<()> {
        let own = [pages.home];
        if self.peers.all.is_empty() {
            return pages.set_access(self.api, addr, bytes, &own, access);
        }
        let mut memory = self.peers.memory();
        let admitted = self.peers.admitted(members);
        let others = admitted.iter().map(|device| location(*device));
        let who: Vec<_> = own.iter().copied().chain(others).collect();
        pages.set_access(self.api, addr, bytes, &who, access)?;
        for (start, range) in memory.remove(addr, bytes) {
            memory.ranges.insert(start, Range { access, ..range });
        }
        Ok(())
    }

    /// Gives the devices of a context access to a new pool of the driver's, and records the pool. False if the
    /// driver refuses.
    pub fn share_pool(
        &self,
        pool: CUmemoryPool,
        members: &Members,
        set: impl Fn(&[CUmemAccessDesc]) -> Code,
    ) -> bool {
        if self.peers.all.is_empty() {
            return true;
        }
        let mut memory = self.peers.memory();
        let who: Vec<_> = (self.peers.admitted(members).iter())
            .map(|device| description(*device, READ_WRITE))
            .collect();
        if !who.is_empty() && !set(&who).is_success() {
            return false;
        }
        memory.pools.push((SharedPool(pool), Arc::clone(members)));
        true
    }

    /// Forgets a pool, which is then destroyed.
    pub fn forget_pool(&self, pool: CUmemoryPool) {
        let mut memory = self.peers.memory();
        memory.pools.retain(|(own, _)| own.0 != pool);
    }

    /// Gives the devices of a context access to memory without pages: to the primary context.
    pub fn open_to(&self, members: &[Arc<Gpu>]) {
        if self.peers.all.is_empty() {
            return;
        }
        let _memory = self.peers.memory();
        for gpu in members {
            let Some(peer) = self.peers.peer(gpu.device) else {
                continue;
            };
            if peer.access() == Access::Members && peer.is_link(Link::Unknown) {
                // Without access, copies go through the driver.
                let _ = self.link(gpu, peer);
            }
        }
    }

    /// Gives the primary context of a device access to this one.
    fn link(&self, gpu: &Gpu, peer: &Peer) -> Result<()> {
        let _current = gpu.enter()?;
        let _relaxed = RelaxedCapture::new(self.api);
        // SAFETY: `self` retains its context, and that of `gpu` is current.
        let code = unsafe { (self.api.cuCtxEnablePeerAccess)(self.context(), 0) };
        match code {
            Code::SUCCESS => peer.set_link(Link::Own),
            Code::PEER_ACCESS_ALREADY_ENABLED => peer.set_link(Link::Foreign),
            code => {
                peer.set_link(Link::Refused);
                return Err(failure(self.api, code, "cuCtxEnablePeerAccess"));
            }
        }
        Ok(())
    }

    /// Takes the access of a primary context back, if the adapter gave it.
    fn unlink(&self, gpu: &Gpu, peer: &Peer) -> Result<()> {
        if !peer.is_link(Link::Own) {
            peer.set_link(Link::Unknown);
            return Ok(());
        }
        let _current = gpu.enter()?;
        // SAFETY: `self` retains its context, and that of `gpu` is current.
        let code = unsafe { (self.api.cuCtxDisablePeerAccess)(self.context()) };
        match code {
            Code::SUCCESS | Code::PEER_ACCESS_NOT_ENABLED => {
                peer.set_link(Link::Unknown);
                Ok(())
            }
            code => Err(failure(self.api, code, "cuCtxDisablePeerAccess")),
        }
    }

    /// Lets a device reach all memory of this one. `UNSUPPORTED_FEATURE` without a link, `INVALID_OPERATION`
    /// if it is enabled.
    pub fn enable(&self, gpu: &Gpu) -> Result<()> {
        let peer = self.peers.peer(gpu.device);
        let peer = peer.ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))?;
        let memory = self.peers.memory();
        let before = peer.access();
        ensure(before != Access::None, UR_RESULT_ERROR_UNSUPPORTED_FEATURE)?;
        let enabled = before == Access::Enabled;
        ensure(!enabled, UR_RESULT_ERROR_INVALID_OPERATION)?;
        let was_linked = peer.is_linked();
        if !was_linked {
            self.link(gpu, peer)?;
        }
        let lacks = |members: &Members| before != Access::Members || !members.contains(&gpu.device);
        let given = self.change(gpu.device, &memory, lacks, true);
        if given.is_err() && !was_linked {
            self.unlink(gpu, peer)?;
        }
        given?;
        peer.set_access(Access::Enabled);
        Ok(())
    }

    /// Takes back what [`Gpu::enable`] gave. `INVALID_OPERATION` if it is not enabled.
    pub fn disable(&self, gpu: &Gpu) -> Result<()> {
        let peer = self.peers.peer(gpu.device);
        let peer = peer.ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))?;
        let memory = self.peers.memory();
        let enabled = peer.access() == Access::Enabled;
        ensure(enabled, UR_RESULT_ERROR_INVALID_OPERATION)?;
        // No command that is submitted from now on relies on the access.
        peer.set_access(Access::Disabled);
        let taken = self.change(gpu.device, &memory, |_| true, false);
        let taken = taken.and_then(|()| {
            let unlinked = self.unlink(gpu, peer);
            unlinked.inspect_err(|_| {
                // An error is logged there, and the first one is returned.
                let _ = self.change(gpu.device, &memory, |_| true, true);
            })
        });
        taken.inspect_err(|_| peer.set_access(Access::Enabled))
    }

    /// Gives a device access to the ranges and pools of contexts with such members, or takes it. After an error
    /// nothing has changed.
    fn change(
        &self,
        device: CUdevice,
        memory: &Memory,
        concerns: impl Fn(&Members) -> bool,
        give: bool,
    ) -> Result<()> {
        let ranges = memory
            .ranges
            .iter()
            .filter(|(_, range)| concerns(&range.members));
        let ranges: Vec<_> = ranges.collect();
        let pools = memory.pools.iter().filter(|(_, members)| concerns(members));
        let pools: Vec<_> = pools.collect();
        let set_range = |(addr, range): &(&usize, &Range), give: bool| {
            let Some(pages) = self.pages else {
                return Ok(());
            };
            let access = if give { range.access } else { NO_ACCESS };
            pages.set_access(self.api, **addr, range.bytes, &[location(device)], access)
        };
        let set_pool = |(pool, _): &&(SharedPool, Members), give: bool| {
            let Some(calls) = self.api.pooling() else {
                return Ok(());
            };
            let who = description(device, if give { READ_WRITE } else { NO_ACCESS });
            // SAFETY: a live pool, and one description.
            let code = unsafe { (calls.set_access)(pool.0, &who, 1) };
            self.check(code, "cuMemPoolSetAccess")
        };
        let mut done = (0, 0);
        let mut change = || {
            for range in &ranges {
                set_range(range, give)?;
                done.0 += 1;
            }
            for pool in &pools {
                set_pool(pool, give)?;
                done.1 += 1;
            }
            Ok(())
        };
        change().inspect_err(|_| {
            let ranges = ranges[..done.0].iter().map(|range| set_range(range, !give));
            let pools = pools[..done.1].iter().map(|pool| set_pool(pool, !give));
            for error in ranges.chain(pools).filter_map(Result::err) {
                log::error!(
                    "access of device {device} stays changed: {:?}",
                    error.code()
                );
            }
        })
    }

    /// Takes the access of primary contexts back, as the adapter ends.
    pub fn close_to(&self, gpus: &[Arc<Gpu>]) {
        for gpu in gpus {
            let peer = self.peers.peer(gpu.device);
            let Some(peer) = peer.filter(|peer| peer.is_link(Link::Own)) else {
                continue;
            };
            if let Err(error) = self.unlink(gpu, peer) {
                log::debug!("access stays enabled: {:?}", error.code());
            }
        }
    }
}

fn description(device: CUdevice, access: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: location(device),
        flags: access,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(bytes: usize) -> Range {
        Range {
            bytes,
            access: READ_WRITE,
            members: Arc::new([]),
        }
    }

    fn all(memory: &Memory) -> Vec<(usize, usize)> {
        let ranges = memory.ranges.iter();
        ranges.map(|(start, range)| (*start, range.bytes)).collect()
    }

    #[test]
    fn ranges_are_forgotten_in_parts() {
        let mut memory = Memory::default();
        memory.ranges.insert(0, range(10));
        memory.ranges.insert(10, range(10));
        memory.ranges.insert(30, range(10));
        let removed = memory.remove(4, 2);
        let removed: Vec<_> = removed
            .iter()
            .map(|(at, range)| (*at, range.bytes))
            .collect();
        assert_eq!(removed, [(4, 2)]);
        assert_eq!(all(&memory), [(0, 4), (6, 4), (10, 10), (30, 10)]);
        assert_eq!(memory.remove(8, 24).len(), 3);
        assert_eq!(all(&memory), [(0, 4), (6, 2), (32, 8)]);
        assert_eq!(memory.remove(8, 24).len(), 0);
        memory.remove(0, 100);
        assert_eq!(all(&memory), []);
    }

    #[test]
    fn access_is_what_was_set() {
        let peer = Peer::default();
        assert_eq!(peer.access(), Access::None);
        for access in [
            Access::Members,
            Access::Disabled,
            Access::Enabled,
            Access::None,
        ] {
            peer.set_access(access);
            assert_eq!(peer.access(), access);
        }
    }
}
