//! A buffer's copies on the devices of a context (`ur::stream::Copies`), as Level Zero makes them.
//!
//! Between devices of which neither reaches the other, a copy goes through memory of the host's: a list of the other
//! device copies there, and the command's own list copies from there. Each waits for the other on its device.

use std::sync::Arc;

use ur::abi::*;
use ur::object::{Object, Result};
use ur::stream::{BufferRange, Home, Kind as MemoryKind, Stream as _, Work};
use ur::sync::{Mutex, rank};

use super::event::{Event, Kind};
use super::lane::Lane;
use super::list::List;
use super::work::{self, Native};
use super::{alloc, free};
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::lz::*;

pub type Copies = ur::stream::Copies<Place>;

pub type Part = BufferRange<Place>;

const NO_EVENT: ze_event_handle_t = ze_event_handle_t::NULL;

/// A device of a buffer's context.
pub struct Place {
    context: Arc<NativeContext>,
    device: Arc<Object<Device>>,
    /// The devices whose memory this one reaches.
    near: Vec<ze_device_handle_t>,
    /// What lists may wait for or use, until the buffer ends and all commands have.
    kept: Mutex<Vec<Arrival>, { rank::LEAF }>,
}

/// The end of a copy, with what it uses.
pub struct Arrival {
    end: Arc<Event>,
    _staging: Option<Staging>,
}

/// Memory of the host's between two devices, and the list that fills it.
struct Staging {
    context: Arc<NativeContext>,
    start: usize,
    _lane: Lane,
}

impl Drop for Staging {
    fn drop(&mut self) {
        free(&self.context, self.start);
    }
}

/// The copies of a buffer on these devices.
pub fn copies(
    context: &Arc<NativeContext>,
    devices: &[Arc<Object<Device>>],
    bytes: usize,
) -> Arc<Copies> {
    let place = |device: &Arc<Object<Device>>| {
        let near = devices.iter().filter(|other| {
            let own = other.raw() == device.raw();
            own || device.reaches(other).unwrap_or(false)
        });
        Arc::new(Place {
            context: Arc::clone(context),
            device: Arc::clone(device),
            near: near.map(|other| other.raw()).collect(),
            kept: Mutex::default(),
        })
    };
    Copies::new(devices.iter().map(place), bytes)
}

/// The place of a device, or of the device that it is a part of.
pub fn home<'a>(copies: &'a Copies, device: &Device) -> Result<&'a Arc<Place>> {
    let own = copies.home(device.raw());
    match device.parent() {
        Some(whole) => own.or_else(|_| home(copies, whole)),
        None => own,
    }
}

impl Place {
    pub fn device(&self) -> &Arc<Object<Device>> {
        &self.device
    }

    /// An event behind all commands of a list so far.
    fn mark(&self, list: &List) -> Result<Arc<Event>> {
        let event = Event::new(&self.context, &list.device, Kind::Marker)?;
        // SAFETY: a live list and a live event of the same context.
        unsafe {
            call!(
                list.api,
                zeCommandListAppendSignalEvent(list.raw, event.raw)
            )
        }?;
        event.is_appended();
        list.keep_order()?;
        Ok(Arc::new(event))
    }

    fn wait_for(&self, list: &List, event: &Arc<Event>) -> Result<()> {
        let mut raw = event.raw;
        // SAFETY: a live list and a live event of the same context.
        unsafe {
            call!(
                list.api,
                zeCommandListAppendWaitOnEvents(list.raw, 1, &mut raw)
            )
        }?;
        if !event.is_counter_based {
            let end = Arc::clone(event);
            let _staging = None;
            self.kept.lock().push(Arrival { end, _staging });
        }
        list.keep_order()
    }
}

impl Home for Place {
    type Id = ze_device_handle_t;
    type Stream = List;
    type Arrival = Arrival;

    fn id(&self) -> ze_device_handle_t {
        self.device.raw()
    }

    fn reaches(&self, other: &Self) -> bool {
        self.near.contains(&other.device.raw())
    }

    fn bring(
        this: &Arc<Self>,
        list: &List,
        dst: usize,
        (other, src): (&Arc<Self>, usize),
        bytes: usize,
    ) -> Result<Arrival> {
        if this.reaches(other) {
            work::copy(list, NO_EVENT, dst, src, bytes)?;
            let end = this.mark(list)?;
            let _staging = None;
            return Ok(Arrival { end, _staging });
        }
        let context = &this.context;
        let lane = Lane::open(context, &other.device, ur_queue_flags_t(0))?;
        let before = this.mark(list)?;
        let host = alloc(context, &other.device, MemoryKind::Host, bytes, 0)?;
        let staging = Staging {
            context: Arc::clone(context),
            start: host,
            _lane: lane,
        };
        let stream = staging._lane.stream();
        stream.wait(&before)?;
        work::copy(&stream.list, NO_EVENT, host, src, bytes)?;
        let read = stream.record()?;
        let sent = this.wait_for(list, &read);
        let sent = sent.and_then(|()| work::copy(list, NO_EVENT, dst, host, bytes));
        match sent.and_then(|()| this.mark(list)) {
            Ok(end) => {
                let _staging = Some(staging);
                Ok(Arrival { end, _staging })
            }
            Err(error) => {
                // The other device may be writing there.
                let end = read;
                let _staging = Some(staging);
                this.kept.lock().push(Arrival { end, _staging });
                Err(error)
            }
        }
    }

    fn wait(this: &Arc<Self>, list: &List, arrival: &Arrival) -> Result<()> {
        this.wait_for(list, &arrival.end)
    }

    /// A pool's event could be used again before a list has come to its wait.
    fn has_arrived(arrival: &Arrival) -> bool {
        arrival.end.is_counter_based && arrival.end.is_done().is_ok_and(|done| done)
    }

    fn retire(this: &Arc<Self>, arrival: Arrival) {
        let mut kept = this.kept.lock();
        let ended: Vec<_> = kept.extract_if(.., |own| Self::has_arrived(own)).collect();
        kept.push(arrival);
        drop(kept);
        drop(ended);
    }

    fn name(list: &List) -> usize {
        list.raw.0.expose_provenance()
    }
}

/// The address at which a kernel of a list uses a part of a buffer.
pub fn for_kernel(list: &List, part: &Part, writes: bool) -> Result<usize> {
    let home = home(&part.copies, &list.device)?;
    let start = part.copies.for_kernel(home, list, writes)?;
    Ok(start + part.offset)
}

/// A copy or fill on buffers with copies. Their addresses in `work` count from the start of the whole buffer.
pub fn transfer(work: Work<LevelZero>, dst: Option<Part>, src: Option<Part>) -> Work<LevelZero> {
    let start = |list: &List, part: &Option<Part>, writes: bool| {
        let Some(part) = part else {
            return Ok(0);
        };
        let home = home(&part.copies, &list.device)?;
        match part.copies.is_near(home) {
            true => {
                let (start, _) = part.copies.for_transfer(home, list, writes)?;
                Ok(start)
            }
            false => part.copies.for_kernel(home, list, writes),
        }
    };
    Work::Native(Native::call(move |list| {
        let from = start(list, &src, false)?;
        let to = start(list, &dst, true)?;
        work::append(list, NO_EVENT, work.clone().moved(to, from))
    }))
}
