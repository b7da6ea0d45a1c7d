//! The arrays of an image on the devices of a context.
//!
//! An array is current if it has all that commands have written. A device uses its own array alone:
//!
//! | current | a command reads on device A | a command writes on device A |
//! |---|---|---|
//! | no array, before the first write | A's, with any contents | A's array is current |
//! | A's array, perhaps others | A's | A's array alone is current |
//! | others | the driver copies one to A's; A's is current too | the same, A's alone |
//!
//! States change as commands are submitted. Users order commands that write an image against all others with
//! it, and submissions keep that order. Commands that read may come at once: those that use an array which
//! the driver still fills wait for it on their streams.

use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::object::{Error, Result};
use ur::sync::{Mutex, rank};

use super::{Array, Shape, Surface, Texel};
use crate::cu::sys::{CUdevice, CUstream};
use crate::exec::{BoxEnd, Boxes, Event, Gpu};

/// An array of a device, and the surface over it that kernels take.
pub struct Placed {
    /// None if the driver makes none: a foreign array may not be meant for surfaces.
    surface: Option<Surface>,
    // Fields are dropped in order, and an array outlives what is made over it.
    array: Array,
}

impl Placed {
    fn create(gpu: &Arc<Gpu>, shape: &Shape, texel: Texel) -> Result<Self> {
        let array = Array::create(gpu, shape, texel, Surface::ARRAY_FLAGS)?;
        Ok(Self {
            surface: Some(Surface::create(&array)?),
            array,
        })
    }

    /// One end of a copy: bytes, rows and slices from the array's start.
    pub fn end(&self, origin: [usize; 3]) -> BoxEnd {
        BoxEnd::Array {
            raw: self.array.raw(),
            origin,
        }
    }

    pub fn array(&self) -> &Array {
        &self.array
    }

    /// What a kernel takes. `INVALID_OPERATION` if the array is not meant for surfaces.
    pub fn surface(&self) -> Result<usize> {
        let surface = self.surface.as_ref();
        let surface = surface.ok_or(Error::new(UR_RESULT_ERROR_INVALID_OPERATION))?;
        Ok(surface.raw() as usize)
    }
}

/// An image's arrays.
pub struct Arrays {
    shape: Shape,
    texel: Texel,
    /// All of an array: bytes, rows, slices.
    region: [usize; 3],
    /// In the context's order of devices.
    places: Box<[Place]>,
    state: Mutex<Vec<PlaceState>, { rank::DRIVER }>,
}

struct Place {
    gpu: Arc<Gpu>,
    placed: OnceLock<Arc<Placed>>,
}

#[derive(Default)]
struct PlaceState {
    is_current: bool,
    /// The end of the driver's last copy to this place, and its stream.
    arrival: Option<(usize, Event)>,
}

/// An image without an array on a device that needs one.
const NOWHERE: Error = Error::new(UR_RESULT_ERROR_INVALID_MEM_OBJECT);

impl Arrays {
    /// An image without arrays yet.
    pub fn new(gpus: impl Iterator<Item = Arc<Gpu>>, shape: Shape, texel: Texel) -> Arc<Self> {
        let place = |gpu| Place {
            gpu,
            placed: OnceLock::new(),
        };
        let places: Box<[_]> = gpus.map(place).collect();
        Arc::new(Self {
            shape,
            texel,
            region: [
                shape.width * texel.bytes,
                shape.height.max(1),
                shape.depth.max(1),
            ],
            state: Mutex::new(places.iter().map(|_| PlaceState::default()).collect()),
            places,
        })
    }

    /// An image over an array of a device.
    pub fn adopted(array: Array, shape: Shape, texel: Texel) -> Arc<Self> {
        let own = Self::new(std::iter::once(Arc::clone(array.gpu())), shape, texel);
        let surface = Surface::create(&array);
        let surface = surface.inspect_err(|error| {
            log::debug!("a foreign array has no surface: {:?}", error.code());
        });
        let placed = Placed {
            surface: surface.ok(),
            array,
        };
        // Nobody else knows the new image.
        let _ = own.places[0].placed.set(Arc::new(placed));
        own.state.lock()[0].is_current = true;
        own
    }

    fn index(&self, device: CUdevice) -> Result<usize> {
        let mut places = self.places.iter();
        let found = places.position(|place| place.gpu.device == device);
        found.ok_or(NOWHERE)
    }

    /// The array of the image's only device. None if it has several, or no array yet.
    pub fn only(&self) -> Option<&Arc<Placed>> {
        match &*self.places {
            [place] => place.placed.get(),
            _ => None,
        }
    }

    /// Whether a device is the image's only one, and has its array.
    pub fn is_only(&self, device: CUdevice) -> bool {
        self.only().is_some() && self.places[0].gpu.device == device
    }

    /// The array of a device, made if it has none. `INVALID_MEM_OBJECT` for a device of another context.
    pub fn prepare(&self, device: CUdevice) -> Result<&Arc<Placed>> {
        let place = &self.places[self.index(device)?];
        if let Some(placed) = place.placed.get() {
            return Ok(placed);
        }
        let new = Placed::create(&place.gpu, &self.shape, self.texel)?;
        Ok(place.placed.get_or_init(|| Arc::new(new)))
    }

    /// The array with which a command of a stream uses the image, made current before. The context of `gpu` is
    /// current, and the device was prepared.
    pub fn on(&self, gpu: &Arc<Gpu>, stream: CUstream, writes: bool) -> Result<Arc<Placed>> {
        let me = self.index(gpu.device)?;
        let placed = self.places[me].placed.get().ok_or(NOWHERE)?;
        if self.places.len() == 1 {
            return Ok(Arc::clone(placed));
        }
        let mut state = self.state.lock();
        if !state[me].is_current
            && let Some(from) = state.iter().position(|place| place.is_current)
        {
            self.migrate(&mut state, gpu, stream, (me, from))?;
        }
        self.wait(&state, gpu, stream, me)?;
        if writes {
            for (at, place) in state.iter_mut().enumerate() {
                place.is_current = at == me;
            }
        }
        Ok(Arc::clone(placed))
    }

    /// A device whose array is current. None if nothing has written the image.
    pub fn current(&self) -> Option<Arc<Gpu>> {
        let state = self.state.lock();
        let mut places = self.places.iter().zip(&*state);
        let found = places.find(|(_, own)| own.is_current);
        found.map(|(place, _)| Arc::clone(&place.gpu))
    }

    /// Copies the image to a place from another one.
    fn migrate(
        &self,
        state: &mut [PlaceState],
        gpu: &Arc<Gpu>,
        stream: CUstream,
        (me, from): (usize, usize),
    ) -> Result<()> {
        self.wait(state, gpu, stream, from)?;
        // An earlier copy to this place may be pending on another stream.
        self.wait(state, gpu, stream, me)?;
        let (own, other) = (&self.places[me], &self.places[from]);
        let dst = own.placed.get().ok_or(NOWHERE)?;
        let src = other.placed.get().ok_or(NOWHERE)?;
        let keeps = vec![Arc::clone(dst) as _, Arc::clone(src) as _];
        let boxes = Boxes::new(dst.end([0; 3]), src.end([0; 3]), self.region, keeps);
        let event = gpu.event(false)?;
        boxes.enqueue_between(gpu, stream, &own.gpu, &other.gpu)?;
        event.record(stream)?;
        state[me] = PlaceState {
            is_current: true,
            arrival: Some((stream.addr(), event)),
        };
        Ok(())
    }

    /// Makes a stream wait for the driver's copy to a place.
    fn wait(
        &self,
        state: &[PlaceState],
        gpu: &Arc<Gpu>,
        stream: CUstream,
        at: usize,
    ) -> Result<()> {
        match &state[at].arrival {
            Some((other, event)) if *other != stream.addr() => gpu.wait_on(stream, event),
            _ => Ok(()),
        }
    }

    /// Makes a device's array current, after it was written as a whole.
    pub fn is_written_on(&self, device: CUdevice) -> Result<()> {
        let me = self.index(device)?;
        let mut state = self.state.lock();
        for (at, place) in state.iter_mut().enumerate() {
            place.is_current = at == me;
        }
        Ok(())
    }
}
