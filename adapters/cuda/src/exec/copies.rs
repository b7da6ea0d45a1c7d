//! A buffer's copies on the devices of a context.
//!
//! A copy is current if it has all that commands have written. The states of a buffer:
//!
//! | current | a kernel reads on device A | a kernel writes on device A |
//! |---|---|---|
//! | no copy, before the first write | any contents | A's copy is current |
//! | A's copy, perhaps others | A's copy | A's copy alone is current |
//! | others, and A reaches one | that one | the driver copies it to A; A's copy alone is current |
//! | others, and A reaches none | the driver copies one to A; A's is current too | the same, A's alone |
//!
//! A copy or fill uses a current copy where it is, and moves nothing.
//!
//! States change as commands are submitted. Users order commands that write a buffer against all others with
//! it, and submissions keep that order. Commands that read may come at once: those that use a copy which
//! the driver still makes wait for it on their streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ur::abi::*;
use ur::object::{Error, Result};
use ur::stream::{Pitched, Work};
use ur::timeline::rank;
use ur::timeline::sync::Mutex;

use super::gpu::{Event, Gpu};
use super::remote::{Remote, copy_peer};
use super::work::{self, Native};
use crate::Cuda;
use crate::cu::RelaxedCapture;
use crate::cu::sys::{CUdevice, CUstream};

/// A buffer without a copy on a device that needs one: access was taken back while a command was pending.
const NO_COPY: Error = Error::new(UR_RESULT_ERROR_INVALID_OPERATION);

pub struct Copies {
    bytes: usize,
    /// In the context's order of devices.
    places: Box<[Place]>,
    /// One more than the index of a place whose copy alone is current and complete, or 0.
    settled: AtomicUsize,
    state: Mutex<State, { rank::DRIVER }>,
}

struct Place {
    gpu: Arc<Gpu>,
    /// Address of the copy; 0 for none.
    address: AtomicUsize,
}

impl Place {
    fn address(&self) -> Option<usize> {
        let address = self.address.load(Ordering::Acquire);
        (address != 0).then_some(address)
    }
}

struct State {
    places: Vec<PlaceState>,
}

#[derive(Default)]
struct PlaceState {
    is_current: bool,
    /// The end of the driver's last copy to this place, if it may be pending.
    arrival: Option<Arrival>,
}

struct Arrival {
    stream: usize,
    event: Event,
}

impl Copies {
    pub fn new(gpus: impl Iterator<Item = Arc<Gpu>>, bytes: usize) -> Arc<Self> {
        let place = |gpu| Place {
            gpu,
            address: AtomicUsize::new(0),
        };
        let places: Box<[_]> = gpus.map(place).collect();
        let states = places.iter().map(|_| PlaceState::default()).collect();
        Arc::new(Self {
            bytes,
            places,
            settled: AtomicUsize::new(0),
            state: Mutex::new(State { places: states }),
        })
    }

    fn index(&self, device: CUdevice) -> Result<usize> {
        let found = self
            .places
            .iter()
            .position(|place| place.gpu.device == device);
        found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))
    }

    /// Whether a device's copy alone is current and complete: commands may use it without more ado.
    #[inline]
    pub fn is_settled(&self, device: CUdevice) -> bool {
        let settled = self.settled.load(Ordering::Acquire);
        let place = settled.checked_sub(1).and_then(|at| self.places.get(at));
        place.is_some_and(|place| place.gpu.device == device)
    }

    /// A pointer to the address of a device's copy, valid while this lives.
    pub fn address_slot(&self, device: CUdevice) -> Option<*const usize> {
        let place = &self.places[self.index(device).ok()?];
        Some(place.address.as_ptr().cast_const())
    }

    /// Whether a device needs an address of its own for a kernel that reads, or that writes.
    pub fn needs_address(&self, device: CUdevice, writes: bool) -> bool {
        let Ok(me) = self.index(device) else {
            return false;
        };
        let own = &self.places[me];
        if own.address().is_some() {
            return false;
        }
        let reached = |place: &Place| own.gpu.reaches(&place.gpu);
        writes || self.is_undefined() || !self.places.iter().all(reached)
    }

    /// Whether no command has written the buffer.
    pub fn is_undefined(&self) -> bool {
        !self
            .state
            .lock()
            .places
            .iter()
            .any(|place| place.is_current)
    }

    /// Sets the address of a device's copy. Returns it, or the given one if the device has a copy.
    pub fn set_address(&self, device: CUdevice, address: usize) -> Result<Option<usize>> {
        let place = &self.places[self.index(device)?].address;
        let order = Ordering::AcqRel;
        let set = place.compare_exchange(0, address, order, Ordering::Acquire);
        Ok(set.is_err().then_some(address))
    }

    pub fn address(&self, device: CUdevice) -> Result<usize> {
        self.places[self.index(device)?].address().ok_or(NO_COPY)
    }

    /// The addresses of all copies.
    pub fn addresses(&self) -> impl Iterator<Item = usize> {
        self.places.iter().filter_map(Place::address)
    }

    /// Whether a device's copy alone is current, though perhaps still being made.
    pub fn is_only_on(&self, device: CUdevice) -> bool {
        let state = self.state.lock();
        let mut places = self.places.iter().zip(&state.places);
        places.all(|(place, own)| own.is_current == (place.gpu.device == device))
    }

    /// Makes a device's copy the only current one, after it was written as a whole.
    pub fn is_written_on(&self, device: CUdevice) -> Result<()> {
        let me = self.index(device)?;
        self.set_only(&mut self.state.lock(), me);
        Ok(())
    }

    /// The address at which a kernel on a device uses the buffer. The context of `gpu` is current.
    pub fn for_kernel(&self, gpu: &Arc<Gpu>, stream: CUstream, writes: bool) -> Result<usize> {
        let me = self.index(gpu.device)?;
        let mut state = self.state.lock();
        let near = |at: usize| gpu.reaches(&self.places[at].gpu);
        let mut all = (0..self.places.len()).filter(|at| state.places[*at].is_current);
        let at = match all.clone().next() {
            _ if state.places[me].is_current => me,
            None => me,
            Some(_) if !writes && all.clone().any(near) => all.find(|at| near(*at)).unwrap_or(me),
            Some(from) => {
                self.migrate(&mut state, gpu, stream, (me, from))?;
                me
            }
        };
        self.wait(&state, gpu, stream, at)?;
        let address = self.places[at].address().ok_or(NO_COPY)?;
        if writes {
            self.set_only(&mut state, at);
            self.settle(&mut state, gpu, stream);
        }
        Ok(address)
    }

    /// The copy that a copy or fill uses: its address and device. The context of `gpu` is current.
    fn for_transfer(
        &self,
        gpu: &Arc<Gpu>,
        stream: CUstream,
        writes: bool,
    ) -> Result<(usize, Arc<Gpu>)> {
        let me = self.index(gpu.device)?;
        let mut state = self.state.lock();
        let current = |at: &usize| state.places[*at].is_current;
        let has = |at: &usize| self.places[*at].address().is_some();
        let all = || std::iter::once(me).chain(0..self.places.len());
        let near = |at: &usize| gpu.reaches(&self.places[*at].gpu);
        let found = all().find(|at| current(at) && near(at));
        let found = found.or_else(|| all().find(current));
        let at = found.or_else(|| all().find(has)).ok_or(NO_COPY)?;
        self.wait(&state, gpu, stream, at)?;
        if writes {
            self.set_only(&mut state, at);
            self.settle(&mut state, gpu, stream);
        }
        let place = &self.places[at];
        let address = place.address().ok_or(NO_COPY)?;
        Ok((address, Arc::clone(&place.gpu)))
    }

    /// Copies the buffer to a place from another one.
    fn migrate(
        &self,
        state: &mut State,
        gpu: &Arc<Gpu>,
        stream: CUstream,
        (me, from): (usize, usize),
    ) -> Result<()> {
        self.wait(state, gpu, stream, from)?;
        // An earlier copy to this place may be pending on another stream.
        self.wait(state, gpu, stream, me)?;
        let (own, other) = (&self.places[me], &self.places[from]);
        let dst = own.address().ok_or(NO_COPY)?;
        let src = other.address().ok_or(NO_COPY)?;
        let event = gpu.event(false)?;
        let bytes = self.bytes;
        match gpu.reaches(&other.gpu) {
            true => work::enqueue_here(gpu, stream, Work::Copy { dst, src, bytes })?,
            false => copy_peer(gpu, stream, (&own.gpu, dst), (&other.gpu, src), bytes)?,
        }
        event.record(stream)?;
        let stream = stream.expose_provenance();
        state.places[me] = PlaceState {
            is_current: true,
            arrival: Some(Arrival { stream, event }),
        };
        self.settled.store(0, Ordering::Release);
        Ok(())
    }

    /// Makes a stream wait for the driver's copy to a place.
    fn wait(&self, state: &State, gpu: &Arc<Gpu>, stream: CUstream, at: usize) -> Result<()> {
        match &state.places[at].arrival {
            Some(arrival) if arrival.stream != stream.addr() => gpu.wait_on(stream, &arrival.event),
            _ => Ok(()),
        }
    }

    fn set_only(&self, state: &mut State, me: usize) {
        for (at, place) in state.places.iter_mut().enumerate() {
            place.is_current = at == me;
        }
        let is_complete = state.places[me].arrival.is_none();
        let settled = if is_complete { me + 1 } else { 0 };
        self.settled.store(settled, Ordering::Release);
    }

    /// Forgets copies of the driver's that are complete.
    fn settle(&self, state: &mut State, gpu: &Gpu, stream: CUstream) {
        if state.places.iter().all(|place| place.arrival.is_none()) {
            return;
        }
        let relaxed = RelaxedCapture::new(gpu.api);
        if relaxed.is_captured(gpu.context(), stream) {
            return;
        }
        for place in &mut state.places {
            let done = |arrival: &mut Arrival| arrival.event.is_done().is_ok_and(|done| done);
            place.arrival.take_if(done);
        }
        if let Some(me) = state.places.iter().position(|place| place.is_current)
            && state.places.iter().filter(|place| place.is_current).count() == 1
        {
            self.set_only(state, me);
        }
    }
}

/// A part of a buffer with copies, as a command uses it.
#[derive(Clone)]
pub struct Part {
    pub copies: Arc<Copies>,
    /// Bytes from the start of the whole buffer.
    pub offset: usize,
}

/// A copy or fill on buffers with copies. Their addresses in `work` count from the start of the whole buffer.
pub fn transfer(work: Work<Cuda>, dst: Option<Part>, src: Option<Part>) -> Work<Cuda> {
    Work::Native(Native::call(move |gpu, stream| {
        let (work, homes, is_foreign) = match &work {
            Work::Native(Native::Remote(remote)) => {
                let homes = [remote.dst.clone(), remote.src.clone()];
                (remote.work.clone(), homes, remote.is_foreign)
            }
            work => (work.clone(), [None, None], false),
        };
        let find = |part: &Option<Part>, writes: bool| {
            let part = part.as_ref();
            let found = part.map(|part| part.copies.for_transfer(gpu, stream, writes));
            found.transpose()
        };
        let (from, to) = (find(&src, false)?, find(&dst, true)?);
        let base = |found: &Option<(usize, Arc<Gpu>)>| found.as_ref().map_or(0, |found| found.0);
        let work = moved(work, base(&to), base(&from));
        let [dst, src] = homes;
        let remote = Remote {
            work,
            dst: to.map(|(_, gpu)| gpu).or(dst),
            src: from.map(|(_, gpu)| gpu).or(src),
            is_foreign,
        };
        remote.enqueue(gpu, stream)
    }))
}

/// The work with other starts of its destination and source.
fn moved(work: Work<Cuda>, to: usize, from: usize) -> Work<Cuda> {
    let at = |end: Pitched, start: usize| Pitched {
        addr: end.addr + start,
        ..end
    };
    match work {
        Work::Copy { dst, src, bytes } => Work::Copy {
            dst: dst + to,
            src: src + from,
            bytes,
        },
        Work::CopyRect { dst, src, region } => Work::CopyRect {
            dst: at(dst, to),
            src: at(src, from),
            region,
        },
        Work::Fill {
            dst,
            pattern,
            bytes,
        } => Work::Fill {
            dst: dst + to,
            pattern,
            bytes,
        },
        Work::FillRect {
            dst,
            pattern,
            region,
        } => Work::FillRect {
            dst: at(dst, to),
            pattern,
            region,
        },
        other => other,
    }
}
