//! `UR_LAYER_BOUNDS_CHECKING`: refuses commands that exceed a buffer, an image or a USM allocation.
//! They fail with `INVALID_SIZE` on every adapter.
//!
//! Owns the queries to the adapter and the arithmetic. The ranges of each function's arguments are
//! rows of `ur::for_each_bound!`. A size that the adapter cannot report, or memory that it does not know,
//! passes.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::log::Level;
use ur::object::{Error, Result, boundary};

use super::maker::{Handle, Maker, Makers};
use super::memory::{ALLOCATES, Allocation, Class, FREES, Memory};
use super::wrappers::{NAMES, argument, by_function, number, rows, wrappers};
use super::{Layer, LayerContext, memory, parents, report};

/// USM allocations, which messages name.
static MEMORY: Memory<()> = Memory::new();
static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

/// Facts about objects that no query returns. An entry stays until a new object has its address.
#[derive(Default)]
struct Objects {
    /// The context of each command buffer.
    contexts: HashMap<usize, usize>,
    mems: HashMap<usize, Mem>,
    makers: Makers,
}

/// A buffer or an image.
#[derive(Clone, Copy)]
struct Mem {
    maker: Maker,
    parent: Parent,
}

/// The object that a buffer or an image was made from.
#[derive(Clone, Copy)]
enum Parent {
    Context(Handle),
    Buffer(usize),
}

struct Bounds;

pub fn make() -> Box<dyn Layer> {
    Box::new(Bounds)
}

impl Layer for Bounds {
    fn wrap(
        &mut self,
        table: &mut ur_dditable_t,
        _: &[&'static str],
        context: &LayerContext,
    ) -> std::result::Result<(), ur_result_t> {
        report::begin(context);
        clear();
        wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        clear();
        report::end();
    }
}

fn clear() {
    *objects() = Objects::default();
    MEMORY.clear();
}

fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

type Creates = unsafe fn(*const c_void) -> (*mut ur_mem_handle_t, Parent);

by_function! {
    /// The functions that create buffers and images.
    CREATES: Creates => (*mut ur_mem_handle_t, Parent):
    urMemBufferCreate ur_mem_buffer_create_params_t |p|
        (*p.pphBuffer, Parent::Context(parents::of((*p.phContext).addr())));
    urMemBufferPartition ur_mem_buffer_partition_params_t |p|
        (*p.pphMem, Parent::Buffer((*p.phBuffer).addr()));
    urMemBufferCreateWithNativeHandle ur_mem_buffer_create_with_native_handle_params_t |p|
        (*p.pphMem, Parent::Context(parents::of((*p.phContext).addr())));
    urMemImageCreate ur_mem_image_create_params_t |p|
        (*p.pphMem, Parent::Context(parents::of((*p.phContext).addr())));
    urMemImageCreateWithNativeHandle ur_mem_image_create_with_native_handle_params_t |p|
        (*p.pphMem, Parent::Context(parents::of((*p.phContext).addr())));
}

/// The argument that a check is about.
pub struct Place {
    function: &'static str,
    argument: &'static str,
}

pub const fn place(function: &'static str, argument: &'static str) -> Place {
    Place { function, argument }
}

ur::for_each_bound! {
    rows
    /// Checks that a function's ranges end within what they are of.
    BOUNDS: Error:
}

/// The body of a function of this layer: its check, then the call.
macro_rules! bounded {
    (urCommandBufferCreateExp $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {{
        // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
        // contract.
        let result = unsafe { $below($( $arg ),*) };
        if result == UR_RESULT_SUCCESS {
            let params = $params { $( $field: argument(&$arg) ),* };
            // SAFETY: `params` points to the arguments, and the call succeeded, so that the output
            // is written.
            unsafe { command_buffer_created(*params.phContext, *params.pphCommandBuffer) }
        }
        result
    }};
    ($name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {
        match boundary(|| {
            let Some(check) = (const { BOUNDS[number::$name] }) else {
                return Ok(());
            };
            let params = $params { $( $field: argument(&$arg) ),* };
            // SAFETY: `params` is the function's parameter struct.
            unsafe { check((&raw const params).cast()) }
        }) {
            UR_RESULT_SUCCESS => {
                // SAFETY: the caller's arguments are forwarded unchanged, under the
                // specification's contract.
                let call = || unsafe { $below($( $arg ),*) };
                if !const { is_recorded(number::$name) } {
                    return call();
                }
                let params = $params { $( $field: argument(&$arg) ),* };
                // SAFETY: `params` is the function's parameter struct.
                unsafe { recorded(number::$name, (&raw const params).cast(), call) }
            }
            error => error,
        }
    };
}
ur::for_each_function! { wrappers bounded }

/// Functions with ranges, and those whose objects and memory messages name.
const fn wants(number: usize) -> bool {
    BOUNDS[number].is_some() || is_recorded(number) || number == number::urCommandBufferCreateExp
}

const fn is_recorded(number: usize) -> bool {
    ALLOCATES[number].is_some() || FREES[number].is_some() || CREATES[number].is_some()
}

/// Makes a call, and records the memory or object that it returns or frees.
///
/// # Safety
/// `params` is the parameter struct of the function with that number, which `call` forwards.
unsafe fn recorded(
    number: usize,
    params: *const c_void,
    call: impl FnOnce() -> ur_result_t,
) -> ur_result_t {
    // SAFETY: the caller guarantees the parameter struct.
    let free = FREES[number].and_then(|row| MEMORY.freed(unsafe { row(params) }));
    let result = call();
    if result != UR_RESULT_SUCCESS {
        if let Some(free) = free {
            MEMORY.restore(free);
        }
        return result;
    }
    if let Some(row) = ALLOCATES[number] {
        // SAFETY: the caller guarantees the parameter struct, and the call succeeded, so that its
        // queue was live.
        let allocation = unsafe { Allocation::read(&row(params), BELOW.table()) };
        if let Some(allocation) = allocation {
            MEMORY.allocated(NAMES[number], allocation, ());
        }
    }
    if let Some(row) = CREATES[number] {
        // SAFETY: the caller guarantees the parameter struct.
        let (output, parent) = unsafe { row(params) };
        // SAFETY: the specification has the output null or written by a call that succeeded.
        if let Some(mem) = unsafe { memory::written(output) } {
            let mut objects = objects();
            let maker = objects.makers.made(NAMES[number]);
            objects.mems.insert(mem.addr(), Mem { maker, parent });
        }
    }
    result
}

/// Checks that bytes `offset..offset + size` lie in a buffer.
///
/// # Safety
/// The handle is null or live.
pub unsafe fn buffer(place: &Place, mem: ur_mem_handle_t, offset: u64, size: u64) -> Result<()> {
    // SAFETY: the caller guarantees a null or live handle.
    let Some(whole) = (unsafe { buffer_size(mem) }) else {
        return Ok(());
    };
    let range = Range::new(offset, offset.checked_add(size));
    range.within(whole, || {
        place.refuse(&range, "bytes", whole, "", &named("buffer", mem.addr()))
    })
}

/// Checks that a box lies in a buffer. Origin, region and pitches are in bytes, rows and slices; a
/// pitch of 0 means packed.
///
/// # Safety
/// The handle is null or live.
pub unsafe fn buffer_box(
    place: &Place,
    mem: ur_mem_handle_t,
    origin: ur_rect_offset_t,
    region: ur_rect_region_t,
    row_pitch: u64,
    slice_pitch: u64,
) -> Result<()> {
    // SAFETY: the caller guarantees a null or live handle.
    let Some(whole) = (unsafe { buffer_size(mem) }) else {
        return Ok(());
    };
    let range = box_range(origin, region, row_pitch, slice_pitch);
    range.within(whole, || {
        let row_pitch = row_pitch_of(region, row_pitch);
        let shape = format!(
            " (a box of {} x {} x {} at {}, {}, {}, with a row pitch of {row_pitch})",
            region.width, region.height, region.depth, origin.x, origin.y, origin.z
        );
        place.refuse(&range, "bytes", whole, &shape, &named("buffer", mem.addr()))
    })
}

/// Checks that a box lies in an image; all lengths are in pixels.
///
/// # Safety
/// The handle is null or live.
pub unsafe fn image(
    place: &Place,
    image: ur_mem_handle_t,
    origin: ur_rect_offset_t,
    region: ur_rect_region_t,
) -> Result<()> {
    // SAFETY: the caller guarantees a null or live handle.
    let Some(extent) = (unsafe { image_extent(image) }) else {
        return Ok(());
    };
    let [width, height, depth] = extent;
    for (axis, from, length, whole) in [
        ("x", origin.x, region.width, width),
        ("y", origin.y, region.height, height),
        ("z", origin.z, region.depth, depth),
    ] {
        let range = Range::new(from, from.checked_add(length));
        range.within(whole, || {
            let image = named("image", image.addr());
            let whose = format!("{image}, of {width} x {height} x {depth} pixels");
            place.refuse(&range, "pixels", whole, &format!(" in {axis}"), &whose)
        })?;
    }
    Ok(())
}

/// Checks that bytes `offset..offset + size` from `pointer` lie in its USM allocation.
///
/// # Safety
/// The context is live.
pub unsafe fn usm(
    place: &Place,
    context: Option<ur_context_handle_t>,
    pointer: *const c_void,
    offset: u64,
    size: u64,
) -> Result<()> {
    // SAFETY: the caller guarantees a live context.
    unsafe { usm_range(place, context, pointer, offset, Some(size), String::new) }
}

/// Checks that `height` rows of `pitch` bytes each, from `offset` bytes after `pointer`, lie in its
/// USM allocation.
///
/// # Safety
/// The context is live.
pub unsafe fn usm_rows(
    place: &Place,
    context: Option<ur_context_handle_t>,
    pointer: *const c_void,
    offset: u64,
    pitch: u64,
    height: u64,
) -> Result<()> {
    let shape = || format!(" ({height} rows of {pitch} bytes)");
    let size = pitch.checked_mul(height);
    // SAFETY: the caller guarantees a live context.
    unsafe { usm_range(place, context, pointer, offset, size, shape) }
}

/// Checks a range of a USM allocation. `shape` describes it if it is more than consecutive bytes.
///
/// # Safety
/// The context is live.
unsafe fn usm_range(
    place: &Place,
    context: Option<ur_context_handle_t>,
    pointer: *const c_void,
    offset: u64,
    size: Option<u64>,
    shape: impl FnOnce() -> String,
) -> Result<()> {
    // SAFETY: the caller guarantees a live context.
    let Some(found) = (unsafe { Usm::find(context, pointer) }) else {
        return Ok(());
    };
    let whole = found.size as u64;
    let first = found.before.saturating_add(offset);
    let range = Range::new(first, size.and_then(|size| first.checked_add(size)));
    range.within(whole, || {
        let shape = format!("'s allocation{}", shape());
        // SAFETY: the caller guarantees a live context.
        let whose = unsafe { found.describe() }.to_string();
        place.refuse(&range, "bytes", whole, &shape, &whose)
    })
}

/// Records the context of a new command buffer.
///
/// # Safety
/// The pointer is null or readable.
pub unsafe fn command_buffer_created(
    context: ur_context_handle_t,
    made: *const ur_exp_command_buffer_handle_t,
) {
    // SAFETY: the caller guarantees a null or readable pointer.
    if let Some(made) = unsafe { made.as_ref() } {
        objects().contexts.insert(made.addr(), context.addr());
    }
}

/// The context of a command buffer that was created while the layer was in use.
pub fn context_of_command_buffer(
    buffer: ur_exp_command_buffer_handle_t,
) -> Option<ur_context_handle_t> {
    let context = objects().contexts.get(&buffer.addr()).copied()?;
    Some(std::ptr::with_exposed_provenance_mut(context))
}

/// The context of a queue, if the adapter reports it.
///
/// # Safety
/// The queue is null or live.
pub unsafe fn context_of_queue(queue: ur_queue_handle_t) -> Option<ur_context_handle_t> {
    // SAFETY: the caller guarantees a null or live queue.
    unsafe { memory::context_of_queue(BELOW.table()?, queue) }
}

/// The size of a buffer in bytes, if the adapter reports it.
///
/// # Safety
/// The handle is null or live.
unsafe fn buffer_size(mem: ur_mem_handle_t) -> Option<u64> {
    let get_info = BELOW.table()?.Mem.pfnGetInfo?;
    let size: usize = query(0, |size, value| {
        // SAFETY: `query` passes a buffer of `size` bytes; the caller guarantees a null or live
        // handle.
        unsafe { get_info(mem, UR_MEM_INFO_SIZE, size, value, std::ptr::null_mut()) }
    })?;
    Some(size as u64)
}

/// Width, height and depth of an image in pixels. The number of layers is the dimension after the
/// image's own.
///
/// # Safety
/// The handle is null or live.
unsafe fn image_extent(image: ur_mem_handle_t) -> Option<[u64; 3]> {
    let get_info = BELOW.table()?.Mem.pfnImageGetInfo?;
    let number = |what| {
        query(0usize, |size, value| {
            // SAFETY: `query` passes a buffer of `size` bytes; the caller guarantees a null or live
            // handle.
            unsafe { get_info(image, what, size, value, std::ptr::null_mut()) }
        })
    };
    let width = number(UR_IMAGE_INFO_WIDTH)?;
    let height = number(UR_IMAGE_INFO_HEIGHT)?;
    let depth = number(UR_IMAGE_INFO_DEPTH)?;
    let layers = number(UR_IMAGE_INFO_ARRAY_SIZE)?;
    let extent = match (height, depth) {
        (0, _) => [width, layers.max(1), 1],
        (_, 0) => [width, height, layers.max(1)],
        _ => [width, height, depth],
    };
    Some(extent.map(|length| length as u64))
}

/// A pointer into a USM allocation, as the adapter reports it.
struct Usm {
    context: ur_context_handle_t,
    base: *const c_void,
    /// The size of the allocation in bytes.
    size: usize,
    kind: ur_usm_type_t,
    /// The offset of the pointer in bytes.
    before: u64,
}

impl Usm {
    /// The allocation of a pointer; none outside of all allocations.
    ///
    /// # Safety
    /// The context is live.
    unsafe fn find(context: Option<ur_context_handle_t>, pointer: *const c_void) -> Option<Usm> {
        let context = context?;
        // SAFETY: the caller guarantees a live context, and the defaults have the types of their
        // properties.
        let (kind, base, size) = unsafe {
            (
                usm_info(
                    context,
                    pointer,
                    UR_USM_ALLOC_INFO_TYPE,
                    UR_USM_TYPE_UNKNOWN,
                )?,
                usm_info(
                    context,
                    pointer,
                    UR_USM_ALLOC_INFO_BASE_PTR,
                    std::ptr::null(),
                )?,
                usm_info(context, pointer, UR_USM_ALLOC_INFO_SIZE, 0usize)?,
            )
        };
        let base: *const c_void = base;
        if kind == UR_USM_TYPE_UNKNOWN || base.is_null() {
            return None;
        }
        let before = pointer.addr().checked_sub(base.addr())?;
        Some(Usm {
            context,
            base,
            size,
            kind,
            before: before.min(size) as u64,
        })
    }

    /// The allocation as the layer saw it made; as the adapter reports it, if the layer did not.
    ///
    /// # Safety
    /// The context is live.
    unsafe fn describe(&self) -> Allocation {
        let seen = MEMORY.at(self.base.addr());
        if let Some(seen) = seen.filter(|seen| seen.size == Some(self.size)) {
            return seen;
        }
        let none: ur_device_handle_t = std::ptr::null_mut();
        // SAFETY: the caller guarantees a live context; the property is a device.
        let device = unsafe { usm_info(self.context, self.base, UR_USM_ALLOC_INFO_DEVICE, none) };
        Allocation {
            class: Class::Memory,
            is_number: false,
            address: self.base.addr(),
            size: Some(self.size),
            kind: match self.kind {
                UR_USM_TYPE_HOST => "host memory",
                UR_USM_TYPE_DEVICE => "device memory",
                UR_USM_TYPE_SHARED => "shared memory",
                _ => "memory",
            },
            maker: None,
            context: parents::of(self.context.addr()),
            device: device.map_or(Handle::NONE, |device| parents::of(device.addr())),
            queue: Handle::NONE,
        }
    }
}

/// A property of a USM allocation, if the adapter reports it.
///
/// # Safety
/// The context is live, and `T` is the property's type.
unsafe fn usm_info<T>(
    context: ur_context_handle_t,
    pointer: *const c_void,
    what: ur_usm_alloc_info_t,
    default: T,
) -> Option<T> {
    let get_info = BELOW.table()?.USM.pfnGetMemAllocInfo?;
    query(default, |size, value| {
        // SAFETY: `query` passes a buffer of `size` bytes; the caller guarantees a live context.
        unsafe { get_info(context, pointer, what, size, value, std::ptr::null_mut()) }
    })
}

/// A buffer or an image in a message: its handle, what made it and from what.
fn named(kind: &str, address: usize) -> String {
    let found = objects().mems.get(&address).copied();
    let maker = found.map(|mem| mem.maker);
    let handle = Handle { address, maker };
    match found.map(|mem| mem.parent) {
        Some(Parent::Context(context)) => format!("{kind} {handle}, in context {context}"),
        Some(Parent::Buffer(buffer)) => format!("{kind} {handle}, of {}", named("buffer", buffer)),
        None => format!("{kind} {handle}"),
    }
}

/// Queries a property of a fixed size; `None` if the query fails.
fn query<T>(mut value: T, query: impl FnOnce(usize, *mut c_void) -> ur_result_t) -> Option<T> {
    let result = query(size_of::<T>(), (&raw mut value).cast());
    (result == UR_RESULT_SUCCESS).then_some(value)
}

/// Bytes or pixels from `first` up to `end`, which is not included; no end on overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u64,
    end: Option<u64>,
}

impl Range {
    fn new(first: u64, end: Option<u64>) -> Range {
        Range { first, end }
    }

    /// Calls `outside` unless the range ends within `whole`.
    fn within(self, whole: u64, outside: impl FnOnce() -> Error) -> Result<()> {
        match self.end {
            Some(end) if end <= whole => Ok(()),
            _ => Err(outside()),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first;
        match self.end {
            Some(end) if end > first => write!(out, "{first} to {}", end - 1),
            Some(_) => write!(out, "{first} to {first} (none)"),
            None => write!(out, "{first} to beyond 2^64"),
        }
    }
}

impl Place {
    /// Reports a range that ends outside of `whose`, which has `whole` bytes or pixels.
    #[cold]
    fn refuse(&self, range: &Range, unit: &str, whole: u64, part: &str, whose: &str) -> Error {
        let Place { function, argument } = self;
        let last = whole.checked_sub(1);
        let own = last.map_or("none".to_owned(), |last| format!("0 to {last}"));
        report::finding(
            Level::Error,
            format_args!(
                "{function}: {unit} {range} of {argument}{part} are used, but it has {own}: {whose}"
            ),
        );
        Error::new(UR_RESULT_ERROR_INVALID_SIZE)
    }
}

/// The bytes from the first to the last of a box, which is empty if a length is 0.
fn box_range(
    origin: ur_rect_offset_t,
    region: ur_rect_region_t,
    row_pitch: u64,
    slice_pitch: u64,
) -> Range {
    if region.width == 0 || region.height == 0 || region.depth == 0 {
        return Range::new(0, Some(0));
    }
    let row = row_pitch_of(region, row_pitch);
    let slice = match slice_pitch {
        0 => row.checked_mul(region.height),
        pitch => Some(pitch),
    };
    let at = |slices: u64, rows: u64| {
        let from = slices.checked_mul(slice?)?;
        let from = from.checked_add(rows.checked_mul(row)?)?;
        from.checked_add(origin.x)
    };
    let end = || {
        let slices = origin.z.checked_add(region.depth - 1)?;
        let rows = origin.y.checked_add(region.height - 1)?;
        at(slices, rows)?.checked_add(region.width)
    };
    Range::new(at(origin.z, origin.y).unwrap_or(u64::MAX), end())
}

/// The distance between the rows of a box in bytes; 0 means packed.
fn row_pitch_of(region: ur_rect_region_t, row_pitch: u64) -> u64 {
    match row_pitch {
        0 => region.width,
        pitch => pitch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_a_box_sets_its_end() {
        let range = |[x, y, z]: [u64; 3], [width, height, depth]: [u64; 3], row, slice| {
            let region = ur_rect_region_t {
                width,
                height,
                depth,
            };
            box_range(ur_rect_offset_t { x, y, z }, region, row, slice)
        };
        let end = |origin, region, row, slice| range(origin, region, row, slice).end;
        assert_eq!(range([2, 1, 1], [3, 1, 1], 10, 100).first, 112);
        assert_eq!(end([0; 3], [8, 4, 2], 0, 0), Some(64), "packed");
        assert_eq!(end([0; 3], [8, 4, 1], 16, 0), Some(56));
        assert_eq!(end([2, 1, 1], [3, 1, 1], 10, 100), Some(115));
        assert_eq!(end([9, 9, 9], [0, 4, 2], 0, 0), Some(0), "nothing");
        assert_eq!(end([0; 3], [u64::MAX, 2, 1], 0, 0), None);
        assert_eq!(end([u64::MAX, 0, 0], [1, 1, 1], 0, 0), None);
    }

    #[test]
    fn ranges_name_their_first_and_last_unit() {
        let text = |first, end| Range::new(first, end).to_string();
        assert_eq!(text(3, Some(4)), "3 to 3");
        assert_eq!(text(0, Some(257)), "0 to 256");
        assert_eq!(text(65, Some(65)), "65 to 65 (none)");
        assert_eq!(text(1, None), "1 to beyond 2^64");
    }
}
