//! Arrays, mipmapped arrays, and the textures and surfaces over them.
//!
//! An array's texels lie packed in host memory. Its level or layer is no object of its own: a level of a mipmapped
//! array has a handle that lives as long as the whole.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::*;
use crate::memory::{allocate, deallocate};
use crate::peers::device_of;
use crate::stream::Command;
use crate::strict::hold_idle;

type Handle = *mut c_void;

/// Bits of `CUDA_ARRAY3D_*`.
const LAYERED: c_uint = 1;
const SURFACE: c_uint = 2;
const CUBEMAP: c_uint = 4;
const GATHER: c_uint = 8;

/// `CU_RESOURCE_TYPE_*`.
const OF_ARRAY: c_uint = 0;
const OF_MIPMAP: c_uint = 1;
const OF_LINEAR: c_uint = 2;
const OF_PITCHED: c_uint = 3;

/// `CUDA_ARRAY3D_DESCRIPTOR`. Sizes count texels.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayDescription {
    width: usize,
    height: usize,
    depth: usize,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

/// An array, or a level of a mipmapped one.
pub struct Array {
    what: ArrayDescription,
    pub start: usize,
    pub bytes: usize,
    pub home: usize,
    /// The mipmapped array that it is a level of.
    whole: Option<usize>,
    /// Whether the texels lie in a mapping of imported memory.
    is_mapped: bool,
    /// Number of textures and surfaces over it.
    users: usize,
}

pub struct Mipmap {
    levels: Vec<usize>,
    users: usize,
}

/// The texture or surface behind an object: the array or the mipmapped array, none over linear memory.
pub struct View {
    pub over: Option<usize>,
    is_surface: bool,
}

/// Bytes of a channel, if the format is known.
fn channel_bytes(format: c_uint) -> Option<usize> {
    match format {
        1 | 8 => Some(1),
        2 | 9 | 16 => Some(2),
        3 | 10 | 32 => Some(4),
        _ => None,
    }
}

impl ArrayDescription {
    fn texel_bytes(&self) -> usize {
        channel_bytes(self.format).unwrap_or(0) * self.channels as usize
    }

    /// Texels along each axis as copies count them: an axis that the array lacks has one.
    fn extent(&self) -> [usize; 3] {
        [self.width, self.height.max(1), self.depth.max(1)]
    }

    /// Whether the driver makes such an array: which sizes must be 0 depends on its kind.
    fn is_valid(&self) -> bool {
        let (layered, cube) = (self.flags & LAYERED != 0, self.flags & CUBEMAP != 0);
        let known = self.flags & !(LAYERED | SURFACE | CUBEMAP | GATHER) == 0;
        let limit = |size: usize, max: usize| size <= max;
        let shape = match (layered, cube) {
            (false, false) => match (self.height, self.depth) {
                (0, 0) => limit(self.width, 131_072),
                (_, 0) => limit(self.width, 131_072) && limit(self.height, 65_536),
                (0, _) => false,
                _ => limit(self.width.max(self.height).max(self.depth), 16_384),
            },
            (true, false) => {
                self.depth > 0
                    && limit(self.width.max(self.height), 32_768)
                    && limit(self.depth, 2_048)
            }
            (layers, true) => {
                self.width == self.height
                    && limit(self.width, 32_768)
                    && self.depth > 0
                    && match layers {
                        true => self.depth.is_multiple_of(6) && limit(self.depth, 2_046),
                        false => self.depth == 6,
                    }
            }
        };
        let gathers = self.flags & GATHER == 0 || self.height > 0 && self.depth == 0;
        known
            && shape
            && gathers
            && self.width > 0
            && channel_bytes(self.format).is_some()
            && [1, 2, 4].contains(&self.channels)
    }

    fn bytes(&self) -> usize {
        self.extent().iter().product::<usize>() * self.texel_bytes()
    }

    /// Bytes of so many levels, if the driver makes such a mipmapped array.
    pub fn bytes_of_levels(&self, levels: usize) -> Option<usize> {
        let known = self.is_valid() && levels > 0 && levels <= self.max_levels();
        known.then(|| (0..levels).map(|level| self.level(level).bytes()).sum())
    }

    /// The description of a level of a mipmapped array. Layers stay as many.
    fn level(&self, level: usize) -> Self {
        let half = |size: usize| match size {
            0 => 0,
            size => (size >> level).max(1),
        };
        let layers = self.flags & (LAYERED | CUBEMAP) != 0;
        Self {
            width: half(self.width),
            height: half(self.height),
            depth: if layers { self.depth } else { half(self.depth) },
            ..*self
        }
    }

    /// The most levels of a mipmapped array.
    fn max_levels(&self) -> usize {
        let depth = match self.flags & (LAYERED | CUBEMAP) {
            0 => self.depth,
            _ => 0,
        };
        1 + self.width.max(self.height).max(depth).ilog2() as usize
    }
}

impl FakeDriver {
    fn new_array(&mut self, what: ArrayDescription, whole: Option<usize>) -> Result<usize, u32> {
        let start = allocate(what.bytes()).ok_or(OUT_OF_MEMORY)?;
        Ok(self.array_over(what, whole, start, false))
    }

    fn array_over(
        &mut self,
        what: ArrayDescription,
        whole: Option<usize>,
        start: usize,
        is_mapped: bool,
    ) -> usize {
        let name = self.name();
        let array = Array {
            what,
            start,
            bytes: what.bytes(),
            home: device_of(current()),
            whole,
            is_mapped,
            users: 0,
        };
        self.array_memory.insert(start, name);
        self.arrays.insert(name, array);
        name
    }

    /// A mipmapped array whose levels' texels lie packed from an address on.
    pub fn mapped_mipmap(&mut self, what: ArrayDescription, levels: usize, start: usize) -> usize {
        let (whole, mut at) = (self.name(), start);
        let made = (0..levels).map(|level| {
            let what = what.level(level);
            let array = self.array_over(what, Some(whole), at, true);
            at += what.bytes();
            array
        });
        let levels = made.collect();
        self.mipmaps.insert(whole, Mipmap { levels, users: 0 });
        whole
    }

    /// Frees an array. One that a pending command still uses stays, and is an error of the caller's.
    fn free_array(&mut self, name: usize) -> Result<(), u32> {
        self.pump();
        let Some(array) = self.arrays.get(&name) else {
            return self.broken("an array destroyed twice");
        };
        if array.users > 0 {
            return self.broken("an array destroyed before the objects over it");
        }
        let range = array.start..array.start + array.bytes;
        let uses = |command: &Command| match command {
            Command::Copy { dst, src, .. } => range.contains(dst) || range.contains(src),
            Command::CopyBetween { dst, src, .. } => {
                range.contains(&dst.1) || range.contains(&src.1)
            }
            Command::Run { kernel, args, .. } => {
                let touched = kernel.touches(*args);
                touched.iter().any(|start| range.contains(start))
            }
            _ => false,
        };
        let pending = |stream: &crate::stream::Stream| stream.commands.iter().any(uses);
        if self.streams.values().any(pending) {
            return self.broken("an array destroyed under a command");
        }
        let (start, bytes, is_mapped) = (range.start, range.len(), array.is_mapped);
        self.arrays.remove(&name);
        self.array_memory.remove(&start);
        if !is_mapped {
            deallocate(start, bytes);
        }
        Ok(())
    }

    /// The array whose texels lie at an address.
    pub fn array_at(&self, at: usize) -> Option<&Array> {
        let (start, name) = self.array_memory.range(..=at).next_back()?;
        let array = self.arrays.get(name)?;
        (at - start < array.bytes).then_some(array)
    }

    /// The texels behind a surface or texture over an array: where they start, and their bytes.
    pub fn texels_of(&self, view: usize) -> Option<(usize, usize)> {
        let array = self.arrays.get(&self.views.get(&view)?.over?)?;
        Some((array.start, array.bytes))
    }

    fn change_users(&mut self, over: Option<usize>, by: isize) {
        let Some(over) = over else { return };
        if let Some(array) = self.arrays.get_mut(&over) {
            array.users = array.users.wrapping_add_signed(by);
        } else if let Some(mipmap) = self.mipmaps.get_mut(&over) {
            mipmap.users = mipmap.users.wrapping_add_signed(by);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuArray3DCreate_v2(
    array: *mut Handle,
    what: *const ArrayDescription,
) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.acts("cuArray3DCreate") {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let what = unsafe { what.read() };
    if !what.is_valid() {
        return INVALID_VALUE;
    }
    let made = driver.new_array(what, None);
    // SAFETY: room for a handle, as for all outputs here.
    code(made.map(|name| unsafe { array.write(std::ptr::without_provenance_mut(name)) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuArrayDestroy(array: Handle) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.acts("cuArrayDestroy") {
        return code;
    }
    let own = driver.arrays.get(&array.addr());
    if own.is_some_and(|array| array.whole.is_some()) {
        return code(driver.broken("a level of a mipmapped array destroyed by itself"));
    }
    code(driver.free_array(array.addr()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuArray3DGetDescriptor_v2(
    what: *mut ArrayDescription,
    array: Handle,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuArray3DGetDescriptor") {
        return code;
    }
    match driver.arrays.get(&array.addr()).map(|array| array.what) {
        Some(own) => {
            // SAFETY: room for a description.
            unsafe { what.write(own) };
            SUCCESS
        }
        None => INVALID_HANDLE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMipmappedArrayCreate(
    mipmap: *mut Handle,
    what: *const ArrayDescription,
    levels: c_uint,
) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.acts("cuMipmappedArrayCreate") {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let (what, levels) = (unsafe { what.read() }, levels as usize);
    if !what.is_valid() || levels == 0 || levels > what.max_levels() {
        return INVALID_VALUE;
    }
    let whole = driver.name();
    let mut made = Vec::new();
    for level in 0..levels {
        match driver.new_array(what.level(level), Some(whole)) {
            Ok(array) => made.push(array),
            Err(code) => {
                for array in made {
                    let _ = driver.free_array(array);
                }
                return code;
            }
        }
    }
    let new = Mipmap {
        levels: made,
        users: 0,
    };
    driver.mipmaps.insert(whole, new);
    // SAFETY: room for a handle, as for all outputs here.
    unsafe { mipmap.write(std::ptr::without_provenance_mut(whole)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMipmappedArrayGetLevel(
    array: *mut Handle,
    mipmap: Handle,
    level: c_uint,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuMipmappedArrayGetLevel") {
        return code;
    }
    let Some(own) = driver.mipmaps.get(&mipmap.addr()) else {
        return INVALID_HANDLE;
    };
    match own.levels.get(level as usize) {
        Some(level) => {
            // SAFETY: room for a handle, as for all outputs here.
            unsafe { array.write(std::ptr::without_provenance_mut(*level)) };
            SUCCESS
        }
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMipmappedArrayDestroy(mipmap: Handle) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.acts("cuMipmappedArrayDestroy") {
        return code;
    }
    let name = mipmap.addr();
    match driver.mipmaps.get(&name) {
        None => return code(driver.broken("a mipmapped array destroyed twice")),
        Some(mipmap) if mipmap.users > 0 => {
            return code(driver.broken("a mipmapped array destroyed before the objects over it"));
        }
        Some(_) => {}
    }
    let levels = driver.mipmaps.remove(&name).map(|mipmap| mipmap.levels);
    let levels = levels.into_iter().flatten();
    let ended = levels.map(|level| driver.free_array(level));
    let ended: Vec<_> = ended.collect();
    driver.external_maps.remove(&name);
    code(ended.into_iter().find(Result::is_err).unwrap_or(Ok(())))
}

/// `CUDA_RESOURCE_DESC`: its type, a union of 128 bytes, and flags.
#[repr(C)]
pub struct Resource {
    kind: c_uint,
    words: [usize; 16],
    flags: c_uint,
}

/// `CUDA_TEXTURE_DESC`, as far as it is read.
#[repr(C)]
pub struct TextureDescription {
    addressing: [c_uint; 3],
    filter: c_uint,
    flags: c_uint,
}

/// `CU_TRSF_NORMALIZED_COORDINATES` and the addressing modes that need it, `CU_TR_ADDRESS_MODE_WRAP` and `_MIRROR`.
const NORMALIZED: c_uint = 2;
const REPEATED: [c_uint; 2] = [0, 2];

/// Makes a texture or surface.
fn view(
    name: &'static str,
    object: *mut u64,
    what: *const Resource,
    is_surface: bool,
    accepted: impl FnOnce() -> bool,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts(name) {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    let over = what.words[0];
    let over = match what.kind {
        _ if what.flags != 0 => return INVALID_VALUE,
        OF_ARRAY => match driver.arrays.get(&over) {
            None => return INVALID_HANDLE,
            Some(array) if is_surface && array.what.flags & SURFACE == 0 => return INVALID_VALUE,
            Some(_) => Some(over),
        },
        OF_MIPMAP if !is_surface => match driver.mipmaps.contains_key(&over) {
            true => Some(over),
            false => return INVALID_HANDLE,
        },
        OF_LINEAR | OF_PITCHED if !is_surface => match what.words[0] {
            0 => return INVALID_VALUE,
            _ => None,
        },
        _ => return INVALID_VALUE,
    };
    if !accepted() {
        return INVALID_VALUE;
    }
    let name = driver.name();
    driver.change_users(over, 1);
    driver.views.insert(name, View { over, is_surface });
    // SAFETY: room for an object, as for all outputs here.
    unsafe { object.write(name as u64) };
    SUCCESS
}

fn end_view(name: &'static str, object: u64, is_surface: bool) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts(name) {
        return code;
    }
    driver.pump();
    let object = object as usize;
    match driver.views.get(&object) {
        Some(view) if view.is_surface == is_surface => {
            let over = driver.views.remove(&object).and_then(|view| view.over);
            driver.change_users(over, -1);
            SUCCESS
        }
        _ => code(driver.broken("a texture or surface destroyed twice")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTexObjectCreate(
    object: *mut u64,
    what: *const Resource,
    how: *const TextureDescription,
    _: *const c_void,
) -> u32 {
    // SAFETY: the caller passes a readable description.
    let how = unsafe { &*how };
    let repeats = how.addressing.iter().all(|mode| REPEATED.contains(mode));
    let known = how.addressing.iter().all(|mode| *mode <= 3) && how.filter <= 1;
    let accepted = known && (how.flags & NORMALIZED != 0 || !repeats);
    view("cuTexObjectCreate", object, what, false, || accepted)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuTexObjectDestroy(object: u64) -> u32 {
    end_view("cuTexObjectDestroy", object, false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuSurfObjectCreate(object: *mut u64, what: *const Resource) -> u32 {
    view("cuSurfObjectCreate", object, what, true, || true)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuSurfObjectDestroy(object: u64) -> u32 {
    end_view("cuSurfObjectDestroy", object, true)
}

/// `CU_MEMORYTYPE_ARRAY`.
const IN_ARRAY: c_int = 3;

/// One end of a box: where row `(z, y)` starts.
enum BoxEnd {
    Linear {
        start: usize,
        pitch: usize,
        rows: usize,
    },
    Array {
        start: usize,
        row: usize,
        slice: usize,
    },
}

impl BoxEnd {
    fn row(&self, z: usize, y: usize) -> usize {
        match *self {
            Self::Linear { start, pitch, rows } => start + (z * rows + y) * pitch,
            Self::Array { start, row, slice } => start + z * slice + y * row,
        }
    }
}

/// Where each field of an end lies in `CUDA_MEMCPY3D` and its form for peers, in words.
struct Fields {
    x: usize,
    kind: usize,
    device: usize,
    array: usize,
    pitch: usize,
}

const SOURCE: Fields = Fields {
    x: 0,
    kind: 4,
    device: 6,
    array: 7,
    pitch: 9,
};

const TARGET: Fields = Fields {
    x: 11,
    kind: 15,
    device: 17,
    array: 18,
    pitch: 20,
};

/// The rows of a described copy, or the code with which the driver refuses it.
pub fn boxes(driver: &FakeDriver, what: *const usize) -> Result<Vec<Command>, u32> {
    // SAFETY: the struct has 25 words.
    let word = |at: usize| unsafe { what.add(at).read() };
    let [width, height, depth] = [word(22), word(23), word(24)];
    let mut texels = Vec::new();
    let mut end = |fields: &Fields| -> Result<BoxEnd, u32> {
        let [x, y, z] = [word(fields.x), word(fields.x + 1), word(fields.x + 2)];
        // SAFETY: the kind is a number of the struct, which padding follows.
        let kind = unsafe { what.add(fields.kind).cast::<c_int>().read() };
        if kind != IN_ARRAY {
            let (pitch, rows) = (word(fields.pitch), word(fields.pitch + 1));
            if pitch < x + width || rows < y + height {
                return Err(INVALID_VALUE);
            }
            let start = word(fields.device) + (z * rows + y) * pitch + x;
            return Ok(BoxEnd::Linear { start, pitch, rows });
        }
        let array = driver.arrays.get(&word(fields.array));
        let array = array.ok_or(INVALID_HANDLE)?;
        let (texel, extent) = (array.what.texel_bytes(), array.what.extent());
        let whole = x.is_multiple_of(texel) && width.is_multiple_of(texel);
        let inside =
            x + width <= extent[0] * texel && y + height <= extent[1] && z + depth <= extent[2];
        if !whole || !inside {
            return Err(INVALID_VALUE);
        }
        texels.push(texel);
        let row = extent[0] * texel;
        let slice = row * extent[1];
        let start = array.start + z * slice + y * row + x;
        Ok(BoxEnd::Array { start, row, slice })
    };
    let (src, dst) = (end(&SOURCE)?, end(&TARGET)?);
    if matches!(texels[..], [one, other] if one != other) {
        return Err(INVALID_VALUE);
    }
    let rows = (0..depth).flat_map(|z| (0..height).map(move |y| (z, y)));
    let row = |(z, y)| Command::Copy {
        dst: dst.row(z, y),
        src: src.row(z, y),
        bytes: width,
    };
    Ok(rows.map(row).collect())
}
