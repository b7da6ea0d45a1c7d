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

use crate::abi::*;
use crate::object::{Error, Result};
use crate::sync::{Mutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A buffer without a copy on a device that needs one: access was taken back while a command was pending.
const NO_COPY: Error = Error::new(UR_RESULT_ERROR_INVALID_OPERATION);

/// A device with memory of its own, as a buffer's copies need it.
pub trait Home: Send + Sync {
    /// Names a device.
    type Id: Copy + PartialEq;
    /// What commands are submitted to.
    type Stream;
    /// The end of a copy that the driver makes.
    type Arrival: Send;

    fn id(&self) -> Self::Id;

    /// Whether commands of this device can use another one's copy.
    fn reaches(&self, other: &Self) -> bool;

    /// Submits a copy to this device's memory from another one's, which it may not reach.
    fn bring(
        this: &Arc<Self>,
        stream: &Self::Stream,
        dst: usize,
        src: (&Arc<Self>, usize),
        bytes: usize,
    ) -> Result<Self::Arrival>;

    /// Makes later commands of a stream wait for a copy.
    fn wait(this: &Arc<Self>, stream: &Self::Stream, arrival: &Self::Arrival) -> Result<()>;

    /// Whether a copy is seen complete.
    fn has_arrived(arrival: &Self::Arrival) -> bool;

    /// Ends a copy that another one follows. Streams may wait for it still.
    fn retire(this: &Arc<Self>, arrival: Self::Arrival) {
        let _ = (this, arrival);
    }

    /// Names a stream.
    fn name(stream: &Self::Stream) -> usize;

    /// Whether the stream is captured, so that its commands do not run now.
    fn is_captured(&self, stream: &Self::Stream) -> bool {
        let _ = stream;
        false
    }
}

pub struct Copies<H: Home> {
    bytes: usize,
    /// In the context's order of devices.
    places: Box<[Place<H>]>,
    /// One more than the index of a place whose copy alone is current and complete, or 0.
    settled: AtomicUsize,
    state: Mutex<Vec<PlaceState<H>>, { rank::DRIVER }>,
}

struct Place<H> {
    home: Arc<H>,
    /// Address of the copy; 0 for none.
    address: AtomicUsize,
}

impl<H> Place<H> {
    fn address(&self) -> Option<usize> {
        let address = self.address.load(Ordering::Acquire);
        (address != 0).then_some(address)
    }
}

struct PlaceState<H: Home> {
    is_current: bool,
    /// The end of the driver's last copy to this place, if it may be pending.
    arrival: Option<Arrival<H>>,
}

struct Arrival<H: Home> {
    /// The name of the stream that makes it.
    stream: usize,
    end: H::Arrival,
}

impl<H: Home> Copies<H> {
    pub fn new(homes: impl Iterator<Item = Arc<H>>, bytes: usize) -> Arc<Self> {
        let place = |home| Place {
            home,
            address: AtomicUsize::new(0),
        };
        let places: Box<[_]> = homes.map(place).collect();
        let unwritten = |_: &Place<H>| PlaceState {
            is_current: false,
            arrival: None,
        };
        let states = places.iter().map(unwritten).collect();
        Arc::new(Self {
            bytes,
            places,
            settled: AtomicUsize::new(0),
            state: Mutex::new(states),
        })
    }

    fn index(&self, device: H::Id) -> Result<usize> {
        let found = self
            .places
            .iter()
            .position(|place| place.home.id() == device);
        found.ok_or(Error::new(UR_RESULT_ERROR_INVALID_DEVICE))
    }

    /// The device as this knows it. `INVALID_DEVICE` if it is none of the context's.
    pub fn home(&self, device: H::Id) -> Result<&Arc<H>> {
        Ok(&self.places[self.index(device)?].home)
    }

    /// Whether a device reaches a current copy, or there is none.
    pub fn is_near(&self, home: &H) -> bool {
        let state = self.state.lock();
        let both = self.places.iter().zip(state.iter());
        let mut current = both.filter(|(_, own)| own.is_current).peekable();
        current.peek().is_none() || current.any(|(place, _)| home.reaches(&place.home))
    }

    /// Whether a device's copy alone is current and complete: commands may use it without more ado.
    #[inline]
    pub fn is_settled(&self, device: H::Id) -> bool {
        let settled = self.settled.load(Ordering::Acquire);
        let place = settled.checked_sub(1).and_then(|at| self.places.get(at));
        place.is_some_and(|place| place.home.id() == device)
    }

    /// A pointer to the address of a device's copy, valid while this lives.
    pub fn address_slot(&self, device: H::Id) -> Option<*const usize> {
        let place = &self.places[self.index(device).ok()?];
        Some(place.address.as_ptr().cast_const())
    }

    /// Whether a device needs an address of its own for a kernel that reads, or that writes.
    pub fn needs_address(&self, device: H::Id, writes: bool) -> bool {
        let Ok(me) = self.index(device) else {
            return false;
        };
        let own = &self.places[me];
        if own.address().is_some() {
            return false;
        }
        let reached = |place: &Place<H>| own.home.reaches(&place.home);
        writes || self.is_undefined() || !self.places.iter().all(reached)
    }

    /// Whether no command has written the buffer.
    pub fn is_undefined(&self) -> bool {
        !self.state.lock().iter().any(|place| place.is_current)
    }

    /// Sets the address of a device's copy. Returns it, or the given one if the device has a copy.
    pub fn set_address(&self, device: H::Id, address: usize) -> Result<Option<usize>> {
        let place = &self.places[self.index(device)?].address;
        let order = Ordering::AcqRel;
        let set = place.compare_exchange(0, address, order, Ordering::Acquire);
        Ok(set.is_err().then_some(address))
    }

    pub fn address(&self, device: H::Id) -> Result<usize> {
        self.places[self.index(device)?].address().ok_or(NO_COPY)
    }

    /// The addresses of all copies.
    pub fn addresses(&self) -> impl Iterator<Item = usize> {
        self.places.iter().filter_map(Place::address)
    }

    /// Whether a device's copy alone is current, though perhaps still being made.
    pub fn is_only_on(&self, device: H::Id) -> bool {
        let state = self.state.lock();
        let mut places = self.places.iter().zip(state.iter());
        places.all(|(place, own)| own.is_current == (place.home.id() == device))
    }

    /// Makes a device's copy the only current one, after it was written as a whole.
    pub fn is_written_on(&self, device: H::Id) -> Result<()> {
        let me = self.index(device)?;
        self.set_only(&mut self.state.lock(), me);
        Ok(())
    }

    /// The address at which a kernel on a device uses the buffer.
    pub fn for_kernel(&self, home: &Arc<H>, stream: &H::Stream, writes: bool) -> Result<usize> {
        let me = self.index(home.id())?;
        let mut state = self.state.lock();
        let near = |at: usize| home.reaches(&self.places[at].home);
        let mut all = (0..self.places.len()).filter(|at| state[*at].is_current);
        let at = match all.clone().next() {
            _ if state[me].is_current => me,
            None => me,
            Some(_) if !writes && all.clone().any(near) => all.find(|at| near(*at)).unwrap_or(me),
            Some(from) => {
                self.migrate(&mut state, home, stream, (me, from))?;
                me
            }
        };
        self.wait(&state, home, stream, at)?;
        let address = self.places[at].address().ok_or(NO_COPY)?;
        if writes {
            self.set_only(&mut state, at);
            self.settle(&mut state, home, stream);
        }
        Ok(address)
    }

    /// The copy that a copy or fill uses: its address and device.
    pub fn for_transfer(
        &self,
        home: &Arc<H>,
        stream: &H::Stream,
        writes: bool,
    ) -> Result<(usize, Arc<H>)> {
        let me = self.index(home.id())?;
        let mut state = self.state.lock();
        let current = |at: &usize| state[*at].is_current;
        let has = |at: &usize| self.places[*at].address().is_some();
        let all = || std::iter::once(me).chain(0..self.places.len());
        let near = |at: &usize| home.reaches(&self.places[*at].home);
        let found = all().find(|at| current(at) && near(at));
        let found = found.or_else(|| all().find(current));
        let at = found.or_else(|| all().find(has)).ok_or(NO_COPY)?;
        self.wait(&state, home, stream, at)?;
        if writes {
            self.set_only(&mut state, at);
            self.settle(&mut state, home, stream);
        }
        let place = &self.places[at];
        let address = place.address().ok_or(NO_COPY)?;
        Ok((address, Arc::clone(&place.home)))
    }

    /// Copies the buffer to a place from another one.
    fn migrate(
        &self,
        state: &mut [PlaceState<H>],
        home: &Arc<H>,
        stream: &H::Stream,
        (me, from): (usize, usize),
    ) -> Result<()> {
        self.wait(state, home, stream, from)?;
        // An earlier copy to this place may be pending on another stream.
        self.wait(state, home, stream, me)?;
        let (own, other) = (&self.places[me], &self.places[from]);
        let dst = own.address().ok_or(NO_COPY)?;
        let src = other.address().ok_or(NO_COPY)?;
        let end = H::bring(home, stream, dst, (&other.home, src), self.bytes)?;
        let new = PlaceState {
            is_current: true,
            arrival: Some(Arrival {
                stream: H::name(stream),
                end,
            }),
        };
        let old = std::mem::replace(&mut state[me], new);
        if let Some(old) = old.arrival {
            H::retire(home, old.end);
        }
        self.settled.store(0, Ordering::Release);
        Ok(())
    }

    /// Makes a stream wait for the driver's copy to a place.
    fn wait(
        &self,
        state: &[PlaceState<H>],
        home: &Arc<H>,
        stream: &H::Stream,
        at: usize,
    ) -> Result<()> {
        match &state[at].arrival {
            Some(arrival) if arrival.stream != H::name(stream) => {
                H::wait(home, stream, &arrival.end)
            }
            _ => Ok(()),
        }
    }

    fn set_only(&self, state: &mut [PlaceState<H>], me: usize) {
        for (at, place) in state.iter_mut().enumerate() {
            place.is_current = at == me;
        }
        let is_complete = state[me].arrival.is_none();
        let settled = if is_complete { me + 1 } else { 0 };
        self.settled.store(settled, Ordering::Release);
    }

    /// Forgets copies of the driver's that are complete.
    fn settle(&self, state: &mut [PlaceState<H>], home: &H, stream: &H::Stream) {
        if state.iter().all(|place| place.arrival.is_none()) {
            return;
        }
        if home.is_captured(stream) {
            return;
        }
        for place in state.iter_mut() {
            let done = |arrival: &mut Arrival<H>| H::has_arrived(&arrival.end);
            place.arrival.take_if(done);
        }
        if let Some(me) = state.iter().position(|place| place.is_current)
            && state.iter().filter(|place| place.is_current).count() == 1
        {
            self.set_only(state, me);
        }
    }
}

/// A part of a buffer with copies, as a command uses it.
pub struct BufferRange<H: Home> {
    pub copies: Arc<Copies<H>>,
    /// Bytes from the start of the whole buffer.
    pub offset: usize,
}

impl<H: Home> Clone for BufferRange<H> {
    fn clone(&self) -> Self {
        Self {
            copies: Arc::clone(&self.copies),
            offset: self.offset,
        }
    }
}
