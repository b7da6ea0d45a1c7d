//! `UR_LAYER_BOUNDS_CHECKING`: refuses commands that exceed a buffer, an image or a USM allocation.
//! They fail with `INVALID_SIZE` on every adapter.
//!
//! Owns the queries to the adapter and the arithmetic. The ranges of each function's arguments are
//! rows of `ur::for_each_bound!`. A size that the adapter cannot report, or memory that it does not know,
//! passes.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use ur::abi::*;
use ur::object::log::Level;
use ur::object::{Error, Result, boundary};

use super::wrappers::{argument, number, rows, wrappers};
use super::{Layer, LayerContext, report};

/// The context of each command buffer, which no query returns. An entry stays until a new command
/// buffer has its address.
static CONTEXTS: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

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
        wrap(table);
        Ok(())
    }

    fn teardown(&mut self) {
        contexts().clear();
        report::end();
    }
}

fn contexts() -> MutexGuard<'static, HashMap<usize, usize>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
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
    BOUNDS:
}

/// The body of a function of this layer: its check, then the call.
macro_rules! bounded {
    ($number:literal urCommandBufferCreateExp $params:ident $leader:tt $below:ident (
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
    ($number:literal $name:ident $params:ident $leader:tt $below:ident (
        $( $arg:ident : $ty:ty = $field:ident $form:tt ),*
    )) => {
        match boundary(|| {
            let Some(check) = (const { BOUNDS[$number] }) else {
                return Ok(());
            };
            let params = $params { $( $field: argument(&$arg) ),* };
            // SAFETY: `params` is the function's parameter struct.
            unsafe { check((&raw const params).cast()) }
        }) {
            // SAFETY: the caller's arguments are forwarded unchanged, under the specification's
            // contract.
            UR_RESULT_SUCCESS => unsafe { $below($( $arg ),*) },
            error => error,
        }
    };
}
ur::for_each_function! { wrappers bounded }

/// Functions with ranges, and the creation of command buffers, which records their context.
const fn wants(number: usize) -> bool {
    BOUNDS[number].is_some() || number == number::urCommandBufferCreateExp
}

/// Checks that bytes `offset..offset + size` lie in a buffer or in physical memory.
///
/// # Safety
/// The handle is null or live.
pub unsafe fn buffer(place: &Place, mem: ur_mem_handle_t, offset: u64, size: u64) -> Result<()> {
    // SAFETY: the caller guarantees a null or live handle.
    let Some(whole) = (unsafe { buffer_size(mem) }) else {
        return Ok(());
    };
    within(place, offset.checked_add(size), whole)
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
    within(
        place,
        box_end(origin, region, row_pitch, slice_pitch),
        whole,
    )
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
    let Some([width, height, depth]) = (unsafe { image_extent(image) }) else {
        return Ok(());
    };
    for (from, length, whole) in [
        (origin.x, region.width, width),
        (origin.y, region.height, height),
        (origin.z, region.depth, depth),
    ] {
        within(place, from.checked_add(length), whole)?;
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
    let Some(left) = (unsafe { usm_remaining(context, pointer) }) else {
        return Ok(());
    };
    within(place, offset.checked_add(size), left)
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
    // SAFETY: the caller guarantees a live context.
    let Some(left) = (unsafe { usm_remaining(context, pointer) }) else {
        return Ok(());
    };
    let end = pitch
        .checked_mul(height)
        .and_then(|rows| rows.checked_add(offset));
    within(place, end, left)
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
        contexts().insert(made.addr(), context.addr());
    }
}

/// The context of a command buffer that was created while the layer was in use.
pub fn context_of_command_buffer(
    buffer: ur_exp_command_buffer_handle_t,
) -> Option<ur_context_handle_t> {
    let context = contexts().get(&buffer.addr()).copied()?;
    Some(std::ptr::with_exposed_provenance_mut(context))
}

/// The context of a queue, if the adapter reports it.
///
/// # Safety
/// The queue is null or live.
pub unsafe fn context_of_queue(queue: ur_queue_handle_t) -> Option<ur_context_handle_t> {
    let get_info = BELOW.table()?.Queue.pfnGetInfo?;
    query(std::ptr::null_mut(), |size, value| {
        // SAFETY: `query` passes a buffer of `size` bytes; the caller guarantees a null or live
        // queue.
        unsafe {
            get_info(
                queue,
                UR_QUEUE_INFO_CONTEXT,
                size,
                value,
                std::ptr::null_mut(),
            )
        }
    })
    .filter(|context: &ur_context_handle_t| !context.is_null() && !queue.is_null())
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

/// The bytes from a pointer to the end of its USM allocation; `None` outside of all allocations.
///
/// # Safety
/// The context is live.
unsafe fn usm_remaining(
    context: Option<ur_context_handle_t>,
    pointer: *const c_void,
) -> Option<u64> {
    let get_info = BELOW.table()?.USM.pfnGetMemAllocInfo?;
    let context = context?;
    let query_usm = |what, size, value| {
        // SAFETY: `query` passes a buffer of `size` bytes; the caller guarantees a live context.
        unsafe { get_info(context, pointer, what, size, value, std::ptr::null_mut()) }
    };
    let kind = query(UR_USM_TYPE_UNKNOWN, |size, value| {
        query_usm(UR_USM_ALLOC_INFO_TYPE, size, value)
    })?;
    let base: *const c_void = query(std::ptr::null(), |size, value| {
        query_usm(UR_USM_ALLOC_INFO_BASE_PTR, size, value)
    })?;
    let whole = query(0usize, |size, value| {
        query_usm(UR_USM_ALLOC_INFO_SIZE, size, value)
    })?;
    if kind == UR_USM_TYPE_UNKNOWN || base.is_null() {
        return None;
    }
    let before = pointer.addr().checked_sub(base.addr())?;
    Some(whole.saturating_sub(before) as u64)
}

/// Queries a property of a fixed size; `None` if the query fails.
fn query<T>(mut value: T, query: impl FnOnce(usize, *mut c_void) -> ur_result_t) -> Option<T> {
    let result = query(size_of::<T>(), (&raw mut value).cast());
    (result == UR_RESULT_SUCCESS).then_some(value)
}

/// The offset in bytes after a box; `None` on overflow.
fn box_end(
    origin: ur_rect_offset_t,
    region: ur_rect_region_t,
    row_pitch: u64,
    slice_pitch: u64,
) -> Option<u64> {
    let or = |pitch: u64, packed: u64| if pitch == 0 { packed } else { pitch };
    let row_pitch = or(row_pitch, region.width);
    let slice_pitch = or(slice_pitch, row_pitch.checked_mul(region.height)?);
    if region.width == 0 || region.height == 0 || region.depth == 0 {
        return Some(0);
    }
    let slices = origin.z.checked_add(region.depth - 1)?;
    let rows = origin.y.checked_add(region.height - 1)?;
    let from = slices
        .checked_mul(slice_pitch)?
        .checked_add(rows.checked_mul(row_pitch)?)?;
    from.checked_add(origin.x)?.checked_add(region.width)
}

fn within(place: &Place, end: Option<u64>, whole: u64) -> Result<()> {
    if end.is_some_and(|end| end <= whole) {
        return Ok(());
    }
    let Place { function, argument } = place;
    match end {
        Some(end) => report::finding(
            Level::Error,
            format_args!("{function}: {argument} is used up to {end}, but ends at {whole}"),
        ),
        None => report::finding(
            Level::Error,
            format_args!("{function}: the range of {argument} has no end"),
        ),
    }
    Err(Error::new(UR_RESULT_ERROR_INVALID_SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_a_box_sets_its_end() {
        let end = |[x, y, z]: [u64; 3], [width, height, depth]: [u64; 3], row, slice| {
            let region = ur_rect_region_t {
                width,
                height,
                depth,
            };
            box_end(ur_rect_offset_t { x, y, z }, region, row, slice)
        };
        assert_eq!(end([0; 3], [8, 4, 2], 0, 0), Some(64), "packed");
        assert_eq!(end([0; 3], [8, 4, 1], 16, 0), Some(56));
        assert_eq!(end([2, 1, 1], [3, 1, 1], 10, 100), Some(115));
        assert_eq!(end([9, 9, 9], [0, 4, 2], 0, 0), Some(0), "nothing");
        assert_eq!(end([0; 3], [u64::MAX, 2, 1], 0, 0), None);
        assert_eq!(end([u64::MAX, 0, 0], [1, 1, 1], 0, 0), None);
    }
}
