//! A fake driver that runs nothing by itself: tests complete its commands step by step.
//!
//! It comes in two variants: one tracks the completion of its lanes, the other has to be queried.

mod fake_driver;
mod fixture;
pub mod vm;

pub use fake_driver::{FakeDriver, FakeLane, FakeStream, Flag, Marker};
pub use fixture::*;

use super::{
    Compiled, CompletionCallback, Devices, Driver, FAILED, Hooked, Kind, LaunchRequest, Payload,
    Progress, QueueOptions, Runtime, Step, Timestamps, Work,
};
use crate::abi::*;
use crate::hal::{self, Backend};
use crate::object::{Body, Error, Object, Result};
use crate::timeline::Clock;
use fake_driver::{Item, refuse};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Fake<const TRACKS: bool>;
pub type Tracked = Fake<true>;
pub type Polled = Fake<false>;

crate::export!(@table Tracked);
crate::export!(@table Polled);

/// Fake backends: what the helpers below need of one.
pub trait AnyFake:
    Runtime
    + Driver<
        ContextData = Arc<FakeDriver>,
        Device = FakeDevice,
        Mem = FakeMem,
        Launch = u32,
        Lane = FakeLane,
    >
{
}
impl AnyFake for Tracked {}
impl AnyFake for Polled {}

/// Launches made one object. It takes over labels below 50 and has to be made anew for others.
struct Several(Mutex<Vec<u32>>);

impl<const TRACKS: bool> Compiled<Fake<TRACKS>> for Several
where
    Fake<TRACKS>: AnyFake,
{
    fn submit(
        &self,
        lane: &FakeLane,
        epoch: u64,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<Progress> {
        lane.submit(epoch, self.0.lock().unwrap().clone(), timestamps, TRACKS)
    }

    fn update(&self, at: usize, work: &Work<Fake<TRACKS>>) -> bool {
        match work {
            Work::Launch(label) if *label < 50 => self.0.lock().unwrap()[at] = *label,
            _ => return false,
        }
        true
    }
}

pub struct FakeDevice;
impl Body for FakeDevice {
    const KIND: crate::object::Kind = crate::object::Kind::Device;
}
impl<const T: bool> hal::Device<Fake<T>> for FakeDevice where Fake<T>: Driver {}

/// A buffer: its address and its bytes.
pub struct FakeMem(pub usize, pub usize);
impl Body for FakeMem {
    const KIND: crate::object::Kind = crate::object::Kind::Mem;
}
impl<const T: bool> hal::Mem<Fake<T>> for FakeMem where Fake<T>: Driver {}

macro_rules! fake {
    ($fake:ty, $tracks:literal) => {
        impl Backend for $fake {
            type Adapter = hal::NoAdapter;
            type Platform = hal::NoPlatform;
            type Device = FakeDevice;
            type Program = hal::NoProgram;
            type Kernel = hal::NoKernel;
            type Sampler = hal::NoSampler;
            type Mem = FakeMem;
            type PhysicalMem = hal::NoPhysicalMem;
            type ExternalMem = hal::NoExternalMem;
            type ExternalSemaphore = hal::NoExternalSemaphore;
            crate::engine_types!();
            const BACKEND: ur_backend_t = UR_BACKEND_UNKNOWN;

            fn adapter() -> Result<Option<Arc<Object<Self::Adapter>>>> {
                Ok(None)
            }
        }

        impl Hooked for $fake {}

        impl Payload for $fake {
            type Launch = u32;
            type Native = std::convert::Infallible;
        }

        impl Driver for $fake {
            type ContextData = Arc<FakeDriver>;
            type Lane = FakeLane;
            type Marker = Marker;
            type Signal = (Arc<FakeDriver>, Arc<Flag>);
            type Plain = ();
            const TRACKS: bool = $tracks;
            const SPANS: bool = $tracks;
            const REGISTERS: bool = true;

            fn lane(
                devices: &Devices<Self>,
                _device: &Object<FakeDevice>,
                _: &QueueOptions,
                clock: &Arc<Clock>,
            ) -> Result<FakeLane> {
                let driver = Arc::clone(devices.state());
                let line = Arc::new(FakeStream {
                    number: driver.next.fetch_add(1, Ordering::Relaxed),
                    clock: Arc::clone(clock),
                    items: Mutex::default(),
                    done: AtomicU64::new(0),
                    callbacks: Mutex::default(),
                    failed: AtomicBool::new(false),
                });
                if $tracks {
                    // It raises the clock by noticing each epoch; see `submit`.
                    assert_eq!(clock.completed(), 0);
                }
                driver.lanes.lock().unwrap().push(Arc::clone(&line));
                let open = AtomicBool::new(false);
                Ok(FakeLane { driver, line, open })
            }

            fn open(lane: &FakeLane, open: bool) -> Result<()> {
                lane.open.store(open, Ordering::Relaxed);
                Ok(())
            }

            fn submit(
                lane: &FakeLane,
                epoch: u64,
                work: Work<Self>,
                timestamps: Option<Arc<Timestamps>>,
            ) -> Result<Progress> {
                let label = match work {
                    Work::Launch(label) => Some(label),
                    _ => None,
                };
                lane.submit(epoch, label.into_iter().collect(), timestamps, $tracks)
            }

            fn compile(
                devices: &Devices<Self>,
                _device: &Object<FakeDevice>,
                steps: &[Step<'_, Self>],
                from: usize,
                _updatable: bool,
            ) -> Option<(usize, Arc<dyn Compiled<Self>>)> {
                let most = devices.state().compiles.load(Ordering::Relaxed);
                let launches = steps[from..].iter().map_while(|step| match step.work {
                    Work::Launch(label) => Some(*label),
                    _ => None,
                });
                let labels: Vec<u32> = launches.take(most).collect();
                let count = labels.len();
                (count > 1).then(|| (count, Arc::new(Several(Mutex::new(labels))) as Arc<_>))
            }

            fn is_idle(lane: &FakeLane) -> Result<bool> {
                Ok(lane.line.items.lock().unwrap().is_empty())
            }

            fn mark(lane: &FakeLane, epoch: u64) -> Result<Marker> {
                refuse(&lane.driver.refused_marks)?;
                lane.driver.marks.fetch_add(1, Ordering::Relaxed);
                if $tracks {
                    return Ok(Marker::Epoch(
                        Arc::clone(&lane.driver),
                        Arc::clone(&lane.line),
                        epoch,
                    ));
                }
                let flag = Arc::new(Flag::default());
                lane.line
                    .items
                    .lock()
                    .unwrap()
                    .push_back(Item::Record(Arc::clone(&flag)));
                Ok(Marker::Flag(Arc::clone(&lane.driver), flag))
            }

            fn wait(lane: &FakeLane, marker: &Marker) -> Result<()> {
                let own = std::ptr::eq(marker.driver(), &*lane.driver);
                assert!(own || Self::SPANS, "a lane waits for another context");
                lane.driver.waits.fetch_add(1, Ordering::Relaxed);
                lane.line
                    .items
                    .lock()
                    .unwrap()
                    .push_back(Item::Wait(marker.clone()));
                Ok(())
            }

            fn is_done(marker: &Marker) -> Result<bool> {
                match marker.driver().broken.load(Ordering::Relaxed) {
                    true => Err(Error::new(UR_RESULT_ERROR_DEVICE_LOST)),
                    false if marker.is_done() && marker.has_failed() => Err(FAILED),
                    false => Ok(marker.is_done()),
                }
            }

            fn block(marker: &Marker) -> Result<()> {
                refuse(&marker.driver().refused_blocks)?;
                for _ in 0..5000 {
                    if marker.driver().broken.load(Ordering::Relaxed) {
                        return Err(Error::new(UR_RESULT_ERROR_DEVICE_LOST));
                    }
                    if marker.is_done() {
                        return Self::is_done(marker).map(drop);
                    }
                    // Only a host wait of the test's own makes progress; see `Fixture::drive`.
                    if std::thread::current().name() != Some("ur-host") {
                        marker.driver().run();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                // It hangs; whatever the test does next fails.
                marker.driver().broken.store(true, Ordering::Relaxed);
                Err(Error::new(UR_RESULT_ERROR_UNKNOWN))
            }

            fn notify(marker: &Marker, then: CompletionCallback) -> Option<CompletionCallback> {
                let Marker::Epoch(_, line, epoch) = marker else {
                    let Marker::Flag(_, flag) = marker else {
                        return Some(then);
                    };
                    let mut callbacks = flag.callbacks.lock().unwrap();
                    if !$tracks {
                        return Some(then);
                    }
                    if !marker.is_done() {
                        callbacks.push(then);
                        return None;
                    }
                    drop(callbacks);
                    then();
                    return None;
                };
                let mut callbacks = line.callbacks.lock().unwrap();
                if !marker.is_done() {
                    callbacks.push((*epoch, then));
                    return None;
                }
                drop(callbacks);
                then();
                None
            }

            fn settle(lane: &FakeLane, _: u64) -> Result<()> {
                lane.driver.run();
                Ok(())
            }

            fn recover(lane: &FakeLane) -> bool {
                lane.line.failed.swap(false, Ordering::Relaxed)
            }

            fn host_point(devices: &Devices<Self>) -> Result<(Marker, Self::Signal)> {
                let flag = Arc::new(Flag::default());
                let driver = Arc::clone(devices.state());
                Ok((
                    Marker::Flag(Arc::clone(&driver), Arc::clone(&flag)),
                    (driver, flag),
                ))
            }

            fn signal((_, flag): Self::Signal) {
                flag.raise();
            }

            fn fail((_, flag): Self::Signal) {
                flag.failed.store(true, Ordering::Relaxed);
                flag.raise();
            }

            fn launch(
                _device: &Object<FakeDevice>,
                _kernel: &Object<Self::Kernel>,
                _request: &LaunchRequest<'_>,
            ) -> Result<u32> {
                Err(Error::unsupported())
            }

            fn acquire(
                devices: &Devices<Self>,
                _device: Option<&Object<FakeDevice>>,
                kind: Kind,
                bytes: usize,
                zeroed: bool,
            ) -> Result<usize> {
                let driver = devices.state();
                driver.acquires.fetch_add(1, Ordering::Relaxed);
                let mut slabs = driver.slabs.lock().unwrap();
                let out: usize = slabs.values().map(|(_, bytes)| bytes).sum();
                if driver
                    .room
                    .lock()
                    .unwrap()
                    .is_some_and(|room| out + bytes > room)
                {
                    return Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES));
                }
                driver
                    .zeroed
                    .fetch_add(usize::from(zeroed), Ordering::Relaxed);
                let base = (driver.next.fetch_add(1, Ordering::Relaxed) + 1) << 32;
                slabs.insert(base, (kind, bytes));
                Ok(base)
            }

            fn release(devices: &Devices<Self>, kind: Kind, addr: usize, bytes: usize) {
                let slab = devices.state().slabs.lock().unwrap().remove(&addr);
                assert_eq!(slab, Some((kind, bytes)));
            }

            fn granularity(_device: Option<&Object<FakeDevice>>, _kind: Kind) -> usize {
                vm::PAGE_BYTES
            }

            fn page(_device: Option<&Object<FakeDevice>>, kind: Kind) -> Option<usize> {
                (kind == Kind::Shared).then_some(vm::PAGE_BYTES)
            }

            fn reserve(devices: &Devices<Self>, _page: usize, bytes: usize) -> Result<usize> {
                let base = devices.state().vm.lock().unwrap().reserve(bytes);
                base.ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))
            }

            fn unreserve(devices: &Devices<Self>, addr: usize, bytes: usize) {
                devices.state().vm.lock().unwrap().unreserve(addr, bytes);
            }

            fn create_pages(
                devices: &Devices<Self>,
                _device: Option<&Object<FakeDevice>>,
                _kind: Kind,
                _page: usize,
                count: usize,
                zeroed: bool,
            ) -> Result<Vec<u64>> {
                let driver = devices.state();
                driver.acquires.fetch_add(1, Ordering::Relaxed);
                driver
                    .zeroed
                    .fetch_add(usize::from(zeroed), Ordering::Relaxed);
                Ok(driver.vm.lock().unwrap().create(count))
            }

            fn destroy_pages(devices: &Devices<Self>, pages: &[u64]) {
                devices.state().vm.lock().unwrap().destroy(pages);
            }

            fn map_pages(
                devices: &Devices<Self>,
                _device: Option<&Object<FakeDevice>>,
                _kind: Kind,
                _page: usize,
                addr: usize,
                pages: &[u64],
            ) -> Result<()> {
                match devices.state().vm.lock().unwrap().map(addr, pages) {
                    true => Ok(()),
                    false => Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES)),
                }
            }

            const LEAVES_MAPPED: bool = !$tracks;

            fn unmap_pages(devices: &Devices<Self>, addr: usize, bytes: usize) {
                let count = bytes / vm::PAGE_BYTES;
                devices.state().vm.lock().unwrap().unmap(addr, count);
            }

            fn buffer(
                mem: &Object<FakeMem>,
                _device: &Object<FakeDevice>,
            ) -> Result<(usize, usize)> {
                Ok((mem.0, mem.1))
            }

            fn now(_device: &Object<FakeDevice>) -> Result<u64> {
                Ok(1)
            }
        }
    };
}
fake!(Tracked, true);
fake!(Polled, false);
