//! Commands appended to lists.

use std::ffi::c_void;
use std::sync::Arc;

use ze::*;

use crate::entry::{Answer, array, chained, given, put};
use crate::event;
use crate::image;
use crate::kernel::{Counts, Launch};
use crate::list::{self, Kind};
use crate::worker::{Place, Step, Work};
use crate::{context, device, external};

/// The events that come with a command.
struct Events {
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
}

const NO_EVENTS: Events = Events {
    signal: ze_event_handle_t::NULL,
    count: 0,
    waits: std::ptr::null_mut(),
};

/// # Safety
/// The list of events to wait for has its count.
unsafe fn step(work: Work, events: &Events) -> Answer<Step> {
    Ok(Step {
        // SAFETY: as the caller promises.
        waits: unsafe { event::list(events.waits, events.count) }?,
        work: Arc::new(work),
        asked: Vec::new(),
        signal: event::maybe(events.signal)?,
    })
}

/// # Safety
/// As for [`step`].
unsafe fn append(list: ze_command_list_handle_t, work: Work, events: Events) -> Answer {
    let list = list::get(list)?;
    // SAFETY: as the caller promises.
    list.append(unsafe { step(work, &events) }?)
}

fn copy(to: *mut c_void, from: *const c_void, bytes: usize) -> Answer<Work> {
    if to.is_null() || from.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    let (to, from) = (to.expose_provenance(), from.expose_provenance());
    Ok(Work::Copy { to, from, bytes })
}

/// # Safety
/// The pattern is readable.
unsafe fn fill(
    list: ze_command_list_handle_t,
    to: *mut c_void,
    pattern: *const c_void,
    pattern_bytes: usize,
    bytes: usize,
) -> Answer<Work> {
    if to.is_null() || pattern.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    let limit = list::get(list)?.group().fill_bytes;
    if !pattern_bytes.is_power_of_two() || pattern_bytes > limit {
        return Err(ZE_RESULT_ERROR_INVALID_SIZE);
    }
    // SAFETY: as the caller promises.
    let pattern = unsafe { array(pattern.cast::<u8>(), pattern_bytes) }?.into();
    let to = to.expose_provenance();
    Ok(Work::Fill { to, pattern, bytes })
}

fn place(start: *const c_void, region: &ze_copy_region_t, pitch: u32, slice: u32) -> Place {
    let (pitch, slice) = (pitch as usize, slice as usize);
    let [x, y, z] = [region.originX, region.originY, region.originZ].map(|one| one as usize);
    Place {
        start: start.expose_provenance() + z * slice + y * pitch + x,
        pitch,
        slice,
    }
}

/// # Safety
/// The regions are readable.
unsafe fn region(
    (to, to_region, to_pitch, to_slice): (*const c_void, *const ze_copy_region_t, u32, u32),
    (from, from_region, from_pitch, from_slice): (*const c_void, *const ze_copy_region_t, u32, u32),
) -> Answer<Work> {
    if to.is_null() || from.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: as the caller promises.
    let (to_region, from_region) = unsafe { (given(to_region)?, given(from_region)?) };
    let extent =
        |own: &ze_copy_region_t| [own.width, own.height, own.depth].map(|one| one as usize);
    if extent(to_region) != extent(from_region) {
        return Err(ZE_RESULT_ERROR_INVALID_SIZE);
    }
    let [row, rows, slices] = extent(from_region);
    Ok(Work::Region {
        to: place(to, to_region, to_pitch, to_slice),
        from: place(from, from_region, from_pitch, from_slice),
        // A flat region may have a depth of 0.
        extent: [row, rows.max(1), slices.max(1)],
    })
}

/// # Safety
/// As for [`step`].
unsafe fn launch(list: ze_command_list_handle_t, launch: Launch, events: Events) -> Answer {
    let own = list::get(list)?;
    let flags = own.group().flags;
    if flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE == 0 {
        return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    }
    launch.check_device(own.device)?;
    // SAFETY: as the caller promises.
    unsafe { append(list, Work::Launch(launch), events) }
}

/// A copy between an image and memory, with pitches of rows and slices or packed.
///
/// # Safety
/// The region is null or readable.
unsafe fn transfer(
    list: ze_command_list_handle_t,
    (image, region): (ze_image_handle_t, *const ze_image_region_t),
    (memory, pitches): (*const c_void, Option<(u32, u32)>),
    writes: bool,
) -> Answer<Work> {
    let image = image::get(image, list::get(list)?.device)?;
    if memory.is_null() {
        return Err(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    }
    // SAFETY: as the caller promises.
    let part = image.part(unsafe { region.as_ref() })?;
    let memory = image.place(memory.expose_provenance(), &part, pitches)?;
    Ok(Work::Transfer {
        image,
        part,
        memory,
        writes,
    })
}

/// A copy between two images.
///
/// # Safety
/// The regions are null or readable.
unsafe fn between(
    list: ze_command_list_handle_t,
    (to, to_region): (ze_image_handle_t, *const ze_image_region_t),
    (from, from_region): (ze_image_handle_t, *const ze_image_region_t),
) -> Answer<Work> {
    let device = list::get(list)?.device;
    let (to, from) = (image::get(to, device)?, image::get(from, device)?);
    // SAFETY: as the caller promises.
    let (part, from_part) = unsafe {
        (
            to.part(to_region.as_ref())?,
            from.part(from_region.as_ref())?,
        )
    };
    match to.is_like(&part, &from, &from_part) {
        true => Ok(Work::Image {
            to,
            part,
            from,
            from_part,
        }),
        false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
}

/// # Safety
/// As for [`step`]; the list of lists has its count.
unsafe fn lists(
    immediate: ze_command_list_handle_t,
    count: u32,
    lists: *mut ze_command_list_handle_t,
    events: Events,
) -> Answer {
    let own = list::get(immediate)?;
    if !matches!(own.kind, Kind::Immediate { .. }) {
        return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    }
    let (signal, waits) = (
        events.signal,
        Events {
            signal: ze_event_handle_t::NULL,
            ..events
        },
    );
    // SAFETY: as the caller promises.
    let mut steps = vec![unsafe { step(Work::Nothing, &waits) }?];
    // SAFETY: as the caller promises.
    for one in unsafe { array(lists, count as usize) }? {
        steps.append(&mut list::get(*one)?.closed()?);
    }
    let last = Events {
        signal,
        ..NO_EVENTS
    };
    // SAFETY: no events are waited for.
    steps.push(unsafe { step(Work::Nothing, &last) }?);
    own.append_all(&steps)
}

macro_rules! events {
    ($signal:ident $count:ident $waits:ident) => {
        Events {
            signal: $signal,
            count: $count,
            waits: $waits,
        }
    };
}

entries! {
    fn zeCommandListAppendBarrier(
        list: ze_command_list_handle_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        append(list, Work::Nothing, events!(signal count waits))
    }

    fn zeCommandListAppendMemoryRangesBarrier(
        list: ze_command_list_handle_t, ranges: u32, sizes: *const usize, starts: *mut *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        array(sizes, ranges as usize)?;
        array(starts.cast_const(), ranges as usize)?;
        append(list, Work::Nothing, events!(signal count waits))
    }

    fn zeCommandListAppendSignalEvent(list: ze_command_list_handle_t, event: ze_event_handle_t) {
        event::get(event)?;
        append(list, Work::Nothing, Events { signal: event, ..NO_EVENTS })
    }

    fn zeCommandListAppendWaitOnEvents(
        list: ze_command_list_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        append(list, Work::Nothing, Events { count, waits, ..NO_EVENTS })
    }

    fn zeCommandListAppendEventReset(list: ze_command_list_handle_t, event: ze_event_handle_t) {
        let event = event::get(event)?;
        match event.is_counter_based() {
            true => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
            false => append(list, Work::Reset(event), NO_EVENTS),
        }
    }

    fn zeCommandListAppendSignalExternalSemaphoreExt(
        list: ze_command_list_handle_t, number: u32, all: *mut ze_external_semaphore_ext_handle_t,
        how: *mut ze_external_semaphore_signal_params_ext_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let all = external::commands(number, all, how, |own| own.value, false)?;
        append(list, Work::Semaphores(all), events!(signal count waits))
    }

    fn zeCommandListAppendWaitExternalSemaphoreExt(
        list: ze_command_list_handle_t, number: u32, all: *mut ze_external_semaphore_ext_handle_t,
        how: *mut ze_external_semaphore_wait_params_ext_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let all = external::commands(number, all, how, |own| own.value, true)?;
        append(list, Work::Semaphores(all), events!(signal count waits))
    }

    fn zeCommandListAppendMemoryCopy(
        list: ze_command_list_handle_t, to: *mut c_void, from: *const c_void, bytes: usize,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        append(list, copy(to, from, bytes)?, events!(signal count waits))
    }

    fn zeCommandListAppendMemoryCopyWithParameters(
        list: ze_command_list_handle_t, to: *mut c_void, from: *const c_void, bytes: usize,
        _next: *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        append(list, copy(to, from, bytes)?, events!(signal count waits))
    }

    fn zeCommandListAppendMemoryCopyFromContext(
        list: ze_command_list_handle_t, to: *mut c_void, context: ze_context_handle_t,
        from: *const c_void, bytes: usize,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        context::check(context)?;
        append(list, copy(to, from, bytes)?, events!(signal count waits))
    }

    fn zeCommandListAppendMemoryFill(
        list: ze_command_list_handle_t, to: *mut c_void, pattern: *const c_void, pattern_bytes: usize,
        bytes: usize,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        append(list, fill(list, to, pattern, pattern_bytes, bytes)?, events!(signal count waits))
    }

    fn zeCommandListAppendMemoryFillWithParameters(
        list: ze_command_list_handle_t, to: *mut c_void, pattern: *const c_void, pattern_bytes: usize,
        bytes: usize, _next: *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        append(list, fill(list, to, pattern, pattern_bytes, bytes)?, events!(signal count waits))
    }

    fn zeCommandListAppendMemoryCopyRegion(
        list: ze_command_list_handle_t,
        to: *mut c_void, to_region: *const ze_copy_region_t, to_pitch: u32, to_slice: u32,
        from: *const c_void, from_region: *const ze_copy_region_t, from_pitch: u32, from_slice: u32,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let to = (to.cast_const(), to_region, to_pitch, to_slice);
        let work = region(to, (from, from_region, from_pitch, from_slice))?;
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendImageCopy(
        list: ze_command_list_handle_t, to: ze_image_handle_t, from: ze_image_handle_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let work = between(list, (to, std::ptr::null()), (from, std::ptr::null()))?;
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendImageCopyRegion(
        list: ze_command_list_handle_t, to: ze_image_handle_t, from: ze_image_handle_t,
        to_region: *const ze_image_region_t, from_region: *const ze_image_region_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let work = between(list, (to, to_region), (from, from_region))?;
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendImageCopyToMemory(
        list: ze_command_list_handle_t, to: *mut c_void, image: ze_image_handle_t,
        region: *const ze_image_region_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let work = transfer(list, (image, region), (to.cast_const(), None), false)?;
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendImageCopyFromMemory(
        list: ze_command_list_handle_t, image: ze_image_handle_t, from: *const c_void,
        region: *const ze_image_region_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let work = transfer(list, (image, region), (from, None), true)?;
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendImageCopyToMemoryExt(
        list: ze_command_list_handle_t, to: *mut c_void, image: ze_image_handle_t,
        region: *const ze_image_region_t, row: u32, slice: u32,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let pitches = Some((row, slice));
        let work = transfer(list, (image, region), (to.cast_const(), pitches), false)?;
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendImageCopyFromMemoryExt(
        list: ze_command_list_handle_t, image: ze_image_handle_t, from: *const c_void,
        region: *const ze_image_region_t, row: u32, slice: u32,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let work = transfer(list, (image, region), (from, Some((row, slice))), true)?;
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendMemoryPrefetch(list: ze_command_list_handle_t, start: *const c_void, _size: usize) {
        given(start.cast::<u8>())?;
        append(list, Work::Nothing, NO_EVENTS)
    }

    fn zeCommandListAppendMemAdvise(
        list: ze_command_list_handle_t, device: ze_device_handle_t, start: *const c_void, _size: usize,
        _advice: ze_memory_advice_t,
    ) {
        device::index(device)?;
        given(start.cast::<u8>())?;
        append(list, Work::Nothing, NO_EVENTS)
    }

    fn zeCommandListAppendWriteGlobalTimestamp(
        list: ze_command_list_handle_t, to: *mut u64,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        given(to)?;
        let to = to.expose_provenance();
        append(list, Work::Timestamp { to }, events!(signal count waits))
    }

    fn zeCommandListAppendQueryKernelTimestamps(
        list: ze_command_list_handle_t, number: u32, asked: *mut ze_event_handle_t, to: *mut c_void,
        offsets: *const usize,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        given(to.cast::<u8>())?;
        let offsets = match offsets.is_null() {
            true => None,
            false => Some(array(offsets, number as usize)?.into()),
        };
        let work = Work::Timestamps { to: to.expose_provenance(), offsets };
        let mut step = step(work, &events!(signal count waits))?;
        step.asked = event::list(asked, number)?;
        list::get(list)?.append(step)
    }

    fn zeCommandListAppendHostFunction(
        list: ze_command_list_handle_t, function: ze_host_function_callback_t, data: *mut c_void,
        _next: *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let function = function.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)?;
        let work = Work::Host { function, data: data.expose_provenance() };
        append(list, work, events!(signal count waits))
    }

    fn zeCommandListAppendLaunchKernel(
        list: ze_command_list_handle_t, kernel: ze_kernel_handle_t, counts: *const ze_group_count_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let own = Launch::of(kernel, Counts::Given(*given(counts)?))?;
        launch(list, own, events!(signal count waits))
    }

    fn zeCommandListAppendLaunchCooperativeKernel(
        list: ze_command_list_handle_t, kernel: ze_kernel_handle_t, counts: *const ze_group_count_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let own = Launch::of(kernel, Counts::Given(*given(counts)?))?;
        own.check_cooperative()?;
        launch(list, own, events!(signal count waits))
    }

    fn zeCommandListAppendLaunchKernelIndirect(
        list: ze_command_list_handle_t, kernel: ze_kernel_handle_t, counts: *const ze_group_count_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        given(counts)?;
        let own = Launch::of(kernel, Counts::At(counts.expose_provenance()))?;
        launch(list, own, events!(signal count waits))
    }

    fn zeCommandListAppendLaunchKernelWithParameters(
        list: ze_command_list_handle_t, kernel: ze_kernel_handle_t, counts: *const ze_group_count_t,
        next: *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let own = Launch::of(kernel, Counts::Given(*given(counts)?))?;
        check_cooperative(&own, next)?;
        launch(list, own, events!(signal count waits))
    }

    fn zeCommandListAppendLaunchKernelWithArguments(
        list: ze_command_list_handle_t, kernel: ze_kernel_handle_t, counts: ze_group_count_t,
        sizes: ze_group_size_t, arguments: *mut *mut c_void, next: *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let own = Launch::with_arguments(kernel, counts, sizes, arguments)?;
        check_cooperative(&own, next)?;
        launch(list, own, events!(signal count waits))
    }

    fn zeCommandListImmediateAppendCommandListsExp(
        immediate: ze_command_list_handle_t, number: u32, all: *mut ze_command_list_handle_t,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        lists(immediate, number, all, events!(signal count waits))
    }

    fn zeCommandListImmediateAppendCommandListsWithParameters(
        immediate: ze_command_list_handle_t, number: u32, all: *mut ze_command_list_handle_t,
        _next: *const c_void,
        signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
    ) {
        lists(immediate, number, all, events!(signal count waits))
    }

    fn zeDeviceGetAggregatedCopyOffloadIncrementValue(device: ze_device_handle_t, out: *mut u32) {
        device::index(device)?;
        put(out, 1)
    }
}

/// # Safety
/// `next` is a chain.
unsafe fn check_cooperative(launch: &Launch, next: *const c_void) -> Answer {
    // SAFETY: as the caller promises.
    let desc =
        unsafe { chained::<ze_command_list_append_launch_kernel_param_cooperative_desc_t>(next) };
    match desc {
        Some(desc) if desc.isCooperative != 0 => launch.check_cooperative(),
        _ => Ok(()),
    }
}
