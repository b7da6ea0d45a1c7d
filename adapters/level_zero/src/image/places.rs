//! The native images of an image on the devices of a context.
//!
//! A native image is current if it has all that commands have written. A device uses its own alone: no list reaches the
//! images of another card. What one has goes to another through host memory:
//!
//! | current | a command reads on device A | a command writes on device A |
//! |---|---|---|
//! | none, before the first write | A's, with any contents | A's is current |
//! | A's, perhaps others | A's | A's alone is current |
//! | others | a list of the other device copies its image to host memory, unless that is current too, and A's list copies that to A's image, which is current too | the same, A's alone |
//!
//! States change as commands are submitted. Users order commands that write an image against all others with it, and
//! submissions keep that order. Commands that read may come at once: those that use an image which another list
//! still fills wait for it.

use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::hal::answers::ImageShape;
use ur::object::{Error, Object, Result};
use ur::stream::{self, Pitched};
use ur::sync::{Mutex, rank};

use super::copy::transfer;
use super::native::NativeImage;
use crate::context::NativeContext;
use crate::device::Device;
use crate::exec::{self, Event, Lane, Stream};
use crate::lz::*;

pub struct Places {
    context: Arc<NativeContext>,
    desc: Description,
    shape: ImageShape,
    /// In the context's order of devices.
    places: Box<[Place]>,
    state: Mutex<ImageCopies, { rank::DRIVER }>,
}

/// A description without a chain.
struct Description(ze_image_desc_t);

// SAFETY: the only pointer is the null end of the chain.
unsafe impl Send for Description {}
// SAFETY: the only pointer is the null end of the chain.
unsafe impl Sync for Description {}

struct Place {
    device: Arc<Object<Device>>,
    native: OnceLock<NativeImage>,
}

#[derive(Default)]
struct ImageCopies {
    places: Box<[PlaceState]>,
    /// Host memory of the driver's for all pixels, packed.
    staging: Option<usize>,
    /// The end of the copy to that memory, while the memory is current.
    filled: Option<Arc<Event>>,
}

#[derive(Default)]
struct PlaceState {
    is_current: bool,
    /// The end of the last copy to this place, and the list that it is on.
    arrival: Option<(ze_command_list_handle_t, Arc<Event>)>,
    /// A lane of this device's, for copies to host memory.
    lane: Option<Lane>,
    /// Whether the last copy to host memory failed within its submission.
    is_broken: bool,
}

/// An image without a native image on a device that needs one.
const NOWHERE: Error = Error::new(UR_RESULT_ERROR_INVALID_MEM_OBJECT);

impl Places {
    /// An image without native images yet. The description has no chain.
    pub fn new(
        context: &Arc<NativeContext>,
        devices: &[Arc<Object<Device>>],
        desc: ze_image_desc_t,
        shape: ImageShape,
    ) -> Arc<Self> {
        let place = |device: &Arc<Object<Device>>| Place {
            device: Arc::clone(device),
            native: OnceLock::new(),
        };
        Arc::new(Self {
            context: Arc::clone(context),
            desc: Description(desc),
            shape,
            places: devices.iter().map(place).collect(),
            state: Mutex::new(ImageCopies {
                places: devices.iter().map(|_| PlaceState::default()).collect(),
                ..ImageCopies::default()
            }),
        })
    }

    /// An image over a native image of the first device.
    pub fn adopted(
        native: NativeImage,
        context: &Arc<NativeContext>,
        devices: &[Arc<Object<Device>>],
        desc: ze_image_desc_t,
        shape: ImageShape,
    ) -> Arc<Self> {
        let own = Self::new(context, devices, desc, shape);
        // Nobody else knows the new image.
        let _ = own.places[0].native.set(native);
        own.state.lock().places[0].is_current = true;
        own
    }

    pub fn shape(&self) -> &ImageShape {
        &self.shape
    }

    /// Whether the image has one device alone, whose native image is always current.
    pub fn is_single(&self) -> bool {
        self.places.len() == 1
    }

    fn index(&self, device: &Object<Device>) -> Result<usize> {
        let found = Device::position(self.places.iter().map(|place| &place.device), device);
        found.ok_or(NOWHERE)
    }

    /// The native image of a device, made if it has none. `INVALID_MEM_OBJECT` for a device of another context.
    pub fn native(&self, device: &Object<Device>) -> Result<&NativeImage> {
        let place = &self.places[self.index(device)?];
        if let Some(native) = place.native.get() {
            return Ok(native);
        }
        let new = NativeImage::create(&self.context, &place.device, &self.desc.0)?;
        Ok(place.native.get_or_init(|| new))
    }

    /// Makes the native image of a lane's device current, for the lane's next command, which may write it.
    pub fn bring(&self, lane: &Stream, writes: bool) -> Result<()> {
        if self.is_single() {
            return Ok(());
        }
        let me = self.index(&lane.list.device)?;
        let mut state = self.state.lock();
        if !state.places[me].is_current
            && let Some(from) = state.places.iter().position(|place| place.is_current)
        {
            self.fetch(&mut state, lane, (me, from))?;
        }
        if let Some((list, event)) = &state.places[me].arrival
            && *list != lane.list.raw
        {
            stream::Stream::wait(lane, event)?;
        }
        if writes {
            state.is_written_on(me);
        }
        Ok(())
    }

    /// Copies the image to a place from another one.
    fn fetch(
        &self,
        state: &mut ImageCopies,
        lane: &Stream,
        (me, from): (usize, usize),
    ) -> Result<()> {
        let (memory, filled) = self.copy_to_host(state, lane, from)?;
        // Until the lane has what waits for that copy.
        state.places[from].is_broken = true;
        stream::Stream::wait(lane, &filled)?;
        let native = self.placed(me)?;
        transfer(
            &lane.list,
            (native, &self.shape),
            &self.shape.whole(),
            memory,
            true,
        )?;
        let event = stream::Stream::record(lane)?;
        state.places[from].is_broken = false;
        state.places[me].is_current = true;
        state.places[me].arrival = Some((lane.list.raw, event));
        Ok(())
    }

    /// Copies a place's image to host memory, behind what a lane has been given so far, unless that is current. Returns
    /// the memory, and the end of the copy.
    fn copy_to_host(
        &self,
        state: &mut ImageCopies,
        lane: &Stream,
        from: usize,
    ) -> Result<(Pitched, Arc<Event>)> {
        let device = &self.places[from].device;
        let start = match state.staging {
            Some(start) => start,
            None => {
                let (kind, bytes) = (stream::Kind::Host, self.shape.bytes());
                let start = exec::alloc(&self.context, device, kind, bytes, 0)?;
                *state.staging.insert(start)
            }
        };
        let pitch = self.shape.packed();
        let memory = Pitched {
            addr: start,
            row_pitch: pitch.row,
            slice_pitch: pitch.slice,
        };
        if let Some(filled) = &state.filled {
            return Ok((memory, Arc::clone(filled)));
        }
        let place = &mut state.places[from];
        if place.lane.is_none() {
            let lane = Lane::open(&self.context, device, ur_queue_flags_t(0))?;
            place.lane = Some(lane);
        }
        place.is_broken = true;
        let own = place.lane.as_ref().ok_or(NOWHERE)?.stream();
        let before = stream::Stream::record(lane)?;
        stream::Stream::wait(&**own, &before)?;
        if let Some((_, arrival)) = &place.arrival {
            stream::Stream::wait(&**own, arrival)?;
        }
        let native = self.placed(from)?;
        transfer(
            &own.list,
            (native, &self.shape),
            &self.shape.whole(),
            memory,
            false,
        )?;
        let filled = stream::Stream::record(&**own)?;
        place.is_broken = false;
        state.filled = Some(Arc::clone(&filled));
        Ok((memory, filled))
    }

    fn placed(&self, at: usize) -> Result<ze_image_handle_t> {
        let native = self.places[at].native.get();
        Ok(native.ok_or(NOWHERE)?.raw)
    }

    /// A device whose native image is current. None if nothing has written the image, which has several.
    pub fn current(&self) -> Option<&Arc<Object<Device>>> {
        if let [only] = &*self.places {
            return Some(&only.device);
        }
        let state = self.state.lock();
        let at = state.places.iter().position(|place| place.is_current)?;
        Some(&self.places[at].device)
    }
}

impl ImageCopies {
    fn is_written_on(&mut self, me: usize) {
        for (at, place) in self.places.iter_mut().enumerate() {
            place.is_current = at == me;
        }
        self.filled = None;
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        // No command waited for a copy to host memory that was not submitted whole.
        let broken = state.places.iter().filter(|place| place.is_broken);
        for lane in broken.filter_map(|place| place.lane.as_ref()) {
            let over = stream::Stream::record(&**lane.stream()).and_then(|event| event.block());
            if let Err(error) = over {
                log::debug!("a copy of an image may still run: {:?}", error.code());
            }
        }
        if let Some(start) = state.staging {
            exec::free(&self.context, start);
        }
    }
}
