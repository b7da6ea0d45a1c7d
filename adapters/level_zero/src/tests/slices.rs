//! Compute slices: the parts of a tile, which share all that the tile has but for its compute queues.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, adapter, alone_with, case, devices, ur};
use super::images;
use super::reported::ok;
use super::workload::{SIZE, Steps, arguments, host, iota, read};

const SLICES: usize = 4;
const VARIABLES: &[(&str, &str)] = &[
    ("SCRIPTED_LEVEL_ZERO_TILES", "2"),
    ("SCRIPTED_LEVEL_ZERO_COMPUTE_QUEUES", "4"),
];
const BY_DOMAIN: (&str, &str) = ("UR_L0_EXPOSE_CSLICE_IN_AFFINITY_PARTITIONING", "1");

const CSLICE: ur_device_partition_property_t = by(UR_DEVICE_PARTITION_BY_CSLICE, 0);
const NEXT: ur_device_partition_property_t = by(
    UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
    UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE.0,
);

const fn by(r#type: ur_device_partition_t, count: u32) -> ur_device_partition_property_t {
    let value = ur_device_partition_value_t { count };
    ur_device_partition_property_t { r#type, value }
}

/// The parts of a device, or why there are none.
fn partition(
    device: ur_device_handle_t,
    by: ur_device_partition_property_t,
) -> Result<Vec<ur_device_handle_t>, ur_result_t> {
    let properties = ur_device_partition_properties_t {
        pProperties: &by,
        PropCount: 1,
        ..Default::default()
    };
    let mut count = 0;
    match ur!(Device.pfnPartition(device, &properties, 0, null_mut(), &mut count)) {
        UR_RESULT_SUCCESS => {}
        error => return Err(error),
    }
    let mut parts = vec![null_mut(); count as usize];
    let to = parts.as_mut_ptr();
    ok(ur!(Device.pfnPartition(
        device,
        &properties,
        count,
        to,
        null_mut()
    )));
    Ok(parts)
}

fn release_all(devices: &[ur_device_handle_t]) {
    for device in devices {
        ok(ur!(Device.pfnRelease(*device)));
    }
}

/// A card, its tiles, and the slices of one of these.
struct Parts {
    driver: FakeDriver,
    adapter: ur_adapter_handle_t,
    card: ur_device_handle_t,
    tiles: Vec<ur_device_handle_t>,
    slices: Vec<ur_device_handle_t>,
}

impl Parts {
    fn of_tile(tile: usize) -> Self {
        let (driver, adapter) = (FakeDriver::open(), adapter());
        let card = devices(adapter)[0];
        let tiles = partition(card, NEXT).expect("tiles");
        let slices = partition(tiles[tile], CSLICE).expect("slices");
        Self {
            driver,
            adapter,
            card,
            tiles,
            slices,
        }
    }

    /// Releases all, and checks that nothing is left.
    fn end(self, case: &str) {
        release_all(&self.slices);
        release_all(&self.tiles);
        ok(ur!(Adapter.pfnRelease(self.adapter)));
        self.driver.check_end(case);
    }
}

fn context_of(devices: &[ur_device_handle_t]) -> ur_context_handle_t {
    let (mut context, count) = (null_mut(), devices.len() as u32);
    let first = devices.as_ptr();
    ok(ur!(Context.pfnCreate(count, first, null(), &mut context)));
    context
}

fn queue_of(context: ur_context_handle_t, device: ur_device_handle_t) -> ur_queue_handle_t {
    flagged_queue(context, device, ur_queue_flags_t(0))
}

fn flagged_queue(
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    flags: ur_queue_flags_t,
) -> ur_queue_handle_t {
    let properties = ur_queue_properties_t {
        flags,
        ..Default::default()
    };
    let mut queue = null_mut();
    ok(ur!(Queue.pfnCreate(
        context,
        device,
        &properties,
        &mut queue
    )));
    queue
}

fn memory_of(context: ur_context_handle_t, device: ur_device_handle_t) -> *mut c_void {
    let (mut at, pool) = (null_mut(), null_mut());
    ok(ur!(USM.pfnDeviceAlloc(
        context,
        device,
        null(),
        pool,
        SIZE,
        &mut at
    )));
    at
}

fn fill(queue: ur_queue_handle_t, to: *mut c_void, byte: u8) -> ur_event_handle_t {
    let (mut event, from) = (null_mut(), (&raw const byte).cast());
    ok(ur!(Enqueue.pfnUSMFill(
        queue,
        to,
        1,
        from,
        SIZE,
        0,
        null(),
        &mut event
    )));
    event
}

fn read_after(queue: ur_queue_handle_t, from: *mut c_void, after: ur_event_handle_t) -> Vec<u8> {
    let to = host(1).cast();
    ok(ur!(Enqueue.pfnUSMMemcpy(
        queue,
        true as _,
        to,
        from,
        SIZE,
        1,
        &after,
        null_mut()
    )));
    read(to, SIZE)
}

/// The index of the native list of an in-order queue.
fn index_of(driver: &FakeDriver, queue: ur_queue_handle_t) -> u32 {
    let mut native = 0;
    ok(ur!(Queue.pfnGetNativeHandle(
        queue,
        null_mut(),
        &mut native
    )));
    driver.list_index(native)
}

/// A context of two slices has memory of both, and commands of one's queue wait for the other's. Each queue is on its
/// slice's engine, batched or not.
#[test]
fn queues_of_slices_are_on_their_engines_and_share_data() {
    let name = "tests::slices::queues_of_slices_are_on_their_engines_and_share_data";
    alone_with(name, VARIABLES, || {
        let driver = FakeDriver::open();
        let adapter = adapter();
        case("parts");
        let tiles = partition(devices(adapter)[0], NEXT).expect("tiles");
        assert_eq!(tiles.len(), 2);
        for tile in &tiles {
            let slices = partition(*tile, CSLICE).expect("slices");
            assert_eq!(slices.len(), SLICES);
            let context = context_of(&slices);
            for flags in [ur_queue_flags_t(0), UR_QUEUE_FLAG_SUBMISSION_BATCHED] {
                case("queues");
                let queues = slices.iter().map(|one| flagged_queue(context, *one, flags));
                let queues: Vec<_> = queues.collect();
                case("data");
                for (at, queue) in queues.iter().enumerate() {
                    let byte = at as u8 + 1;
                    let memory = memory_of(context, slices[at]);
                    let filled = fill(*queue, memory, byte);
                    for other in &queues {
                        assert_eq!(read_after(*other, memory, filled), [byte; SIZE]);
                    }
                    ok(ur!(Event.pfnRelease(filled)));
                    ok(ur!(USM.pfnFree(context, memory)));
                }
                let indices: Vec<_> = queues.iter().map(|one| index_of(&driver, *one)).collect();
                assert_eq!(indices, [0, 1, 2, 3]);
                for queue in queues {
                    ok(ur!(Queue.pfnRelease(queue)));
                }
            }
            ok(ur!(Context.pfnRelease(context)));
            release_all(&slices);
        }
        release_all(&tiles);
        ok(ur!(Adapter.pfnRelease(adapter)));
        driver.check_end("slices");
    });
}

/// A buffer has one copy for all slices of a tile: what one writes moves nowhere before another one reads it.
#[test]
fn slices_share_a_buffers_copy() {
    let name = "tests::slices::slices_share_a_buffers_copy";
    alone_with(name, VARIABLES, || {
        case("a buffer");
        let own = Parts::of_tile(0);
        let Parts {
            ref driver,
            adapter,
            ref tiles,
            ref slices,
            ..
        } = own;
        let cards = devices(adapter);
        for members in [&slices[..], &tiles[..], &cards[..1], &cards[..]] {
            let context = context_of(members);
            let queues = [slices[0], slices[3]].map(|slice| queue_of(context, slice));
            let (mut buffer, flags) = (null_mut(), UR_MEM_FLAG_READ_WRITE);
            ok(ur!(Mem.pfnBufferCreate(
                context,
                flags,
                SIZE,
                null(),
                &mut buffer
            )));
            let (from, to) = (host(2), host(3));
            // SAFETY: memory of the test's.
            unsafe {
                from.write_bytes(9, SIZE);
                to.write_bytes(0, SIZE);
            }
            let [write, read_back] = queues;
            ok(ur!(Enqueue.pfnMemBufferWrite(
                write,
                buffer,
                true as _,
                0,
                SIZE,
                from.cast(),
                0,
                null(),
                null_mut()
            )));
            driver.reset();
            ok(ur!(Enqueue.pfnMemBufferRead(
                read_back,
                buffer,
                true as _,
                0,
                SIZE,
                to.cast(),
                0,
                null(),
                null_mut()
            )));
            assert_eq!(read(to.cast(), SIZE), [9; SIZE]);
            let copies = driver
                .counts()
                .get("zeCommandListAppendMemoryCopy")
                .copied();
            assert_eq!(copies, Some(1), "the read itself");
            for queue in queues {
                ok(ur!(Queue.pfnRelease(queue)));
            }
            ok(ur!(Mem.pfnRelease(buffer)));
            ok(ur!(Context.pfnRelease(context)));
        }
        own.end("a buffer of slices");
    });
}

/// Handles are released in orders in which each object still needs one that was released before it.
#[test]
fn slices_are_released_in_any_order() {
    let name = "tests::slices::slices_are_released_in_any_order";
    alone_with(name, VARIABLES, || {
        let driver = FakeDriver::open();
        let adapter = adapter();
        for order in 0..3 {
            case("an order");
            let tiles = partition(devices(adapter)[0], NEXT).expect("tiles");
            let slices = partition(tiles[1], CSLICE).expect("slices");
            let context = context_of(&slices[1..3]);
            let queue = queue_of(context, slices[2]);
            let memory = memory_of(context, slices[1]);
            if order < 2 {
                release_all(&tiles);
                release_all(&slices);
            }
            if order == 0 {
                ok(ur!(Context.pfnRetain(context)));
                ok(ur!(Context.pfnRelease(context)));
            }
            let filled = fill(queue, memory, 5);
            if order == 1 {
                ok(ur!(Queue.pfnRelease(queue)));
                ok(ur!(Event.pfnWait(1, &filled)));
            } else {
                assert_eq!(read_after(queue, memory, filled), [5; SIZE]);
                ok(ur!(Queue.pfnRelease(queue)));
            }
            ok(ur!(USM.pfnFree(context, memory)));
            ok(ur!(Context.pfnRelease(context)));
            // The event keeps its context.
            ok(ur!(Event.pfnRelease(filled)));
            if order == 2 {
                release_all(&slices);
                release_all(&tiles);
            }
        }
        ok(ur!(Adapter.pfnRelease(adapter)));
        driver.check_end("orders");
    });
}

/// Kernels run on slices: of programs of the slices' context, and of the tile's and the card's.
#[test]
fn kernels_run_on_slices() {
    let name = "tests::slices::kernels_run_on_slices";
    alone_with(name, VARIABLES, || {
        let own = Parts::of_tile(0);
        let Parts {
            ref driver,
            card,
            ref tiles,
            ref slices,
            ..
        } = own;
        for (what, members) in [
            ("of slices", &slices[..]),
            ("of the tile", &tiles[..1]),
            ("of the card", &[card]),
        ] {
            case(what);
            let context = context_of(members);
            let queue = queue_of(context, slices[1]);
            let memory = memory_of(context, members[0]);
            let mut steps = Steps::default();
            let (program, kernel) = iota(&mut steps, context);
            assert_eq!(steps.failed(), vec![], "{what}");
            let first = 3;
            let arguments = arguments(memory, &first);
            let (offset, size, dimensions) = ([0], [SIZE / 4], 1);
            driver.reset();
            ok(ur!(EnqueueExp.pfnKernelLaunchWithArgsExp(
                queue,
                kernel,
                dimensions,
                offset.as_ptr(),
                size.as_ptr(),
                null(),
                arguments.len() as u32,
                arguments.as_ptr(),
                null(),
                0,
                null(),
                null_mut()
            )));
            let launches: u64 = driver
                .counts()
                .iter()
                .filter(|(name, _)| name.starts_with("zeCommandListAppendLaunchKernel"))
                .map(|(_, count)| count)
                .sum();
            assert_eq!(launches, 1, "{what}");
            ok(ur!(Queue.pfnFinish(queue)));
            // A sampler and an image of the context's devices.
            images::look(&mut steps, context, queue);
            images::move_through(&mut steps, context, queue);
            assert_eq!((steps.failed(), steps.wrong), (vec![], vec![]), "{what}");
            ok(ur!(Kernel.pfnRelease(kernel)));
            ok(ur!(Program.pfnRelease(program)));
            ok(ur!(USM.pfnFree(context, memory)));
            ok(ur!(Queue.pfnRelease(queue)));
            ok(ur!(Context.pfnRelease(context)));
        }
        own.end("kernels on slices");
    });
}

/// An image of two slices, and of a tile and another tile's slice, has the contents that either wrote.
#[test]
fn images_move_between_slices() {
    let name = "tests::slices::images_move_between_slices";
    alone_with(name, VARIABLES, || {
        let own = Parts::of_tile(0);
        let Parts {
            ref tiles,
            ref slices,
            ..
        } = own;
        for pair in [[slices[0], slices[2]], [tiles[1], slices[1]]] {
            case("a pair");
            let mut steps = Steps::default();
            images::between(&mut steps, pair);
            assert_eq!((steps.failed(), steps.wrong), (vec![], vec![]));
        }
        own.end("images of slices");
    });
}

/// Takes its time.
unsafe extern "C" fn pause(_: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(50));
}

/// A wait for a tile waits for its slices' queues.
#[test]
fn a_wait_for_a_tile_waits_for_its_slices() {
    let name = "tests::slices::a_wait_for_a_tile_waits_for_its_slices";
    alone_with(name, VARIABLES, || {
        case("a wait");
        let own = Parts::of_tile(0);
        let Parts {
            adapter,
            ref tiles,
            ref slices,
            ..
        } = own;
        let context = context_of(slices);
        let queue = queue_of(context, slices[3]);
        let memory = memory_of(context, slices[3]);
        for whole in [slices[3], tiles[0], devices(adapter)[0]] {
            ok(ur!(EnqueueExp.pfnHostTaskExp(
                queue,
                Some(pause),
                null_mut(),
                null(),
                0,
                null(),
                null_mut()
            )));
            let event = fill(queue, memory, 1);
            ok(ur!(DeviceExp.pfnWaitExp(whole)));
            let mut status = UR_EVENT_STATUS_QUEUED;
            let (bytes, what) = (size_of_val(&status), UR_EVENT_INFO_COMMAND_EXECUTION_STATUS);
            let out = (&raw mut status).cast();
            ok(ur!(Event.pfnGetInfo(event, what, bytes, out, null_mut())));
            assert_eq!(status, UR_EVENT_STATUS_COMPLETE);
            ok(ur!(Event.pfnRelease(event)));
        }
        ok(ur!(USM.pfnFree(context, memory)));
        ok(ur!(Queue.pfnRelease(queue)));
        ok(ur!(Context.pfnRelease(context)));
        own.end("a wait for a tile");
    });
}

/// What each kind of device splits into, with the variable and without.
#[test]
fn splits_without_parts_are_refused() {
    let name = "tests::slices::splits_without_parts_are_refused";
    for is_by_domain in [false, true] {
        let own = [BY_DOMAIN];
        let variables = [VARIABLES, &own[..usize::from(is_by_domain)]].concat();
        alone_with(name, &variables, || {
            let is_by_domain = std::env::var_os(BY_DOMAIN.0).is_some();
            let driver = FakeDriver::open();
            let adapter = adapter();
            let failed = Err(UR_RESULT_ERROR_DEVICE_PARTITION_FAILED);
            let count = |device, by| {
                partition(device, by).map(|parts| {
                    release_all(&parts);
                    parts.len()
                })
            };
            let card = devices(adapter)[0];
            assert_eq!([NEXT, CSLICE].map(|by| count(card, by)), [Ok(2), failed]);
            let tiles = partition(card, NEXT).expect("tiles");
            let by_next = if is_by_domain { Ok(SLICES) } else { failed };
            let all = [NEXT, CSLICE].map(|by| count(tiles[0], by));
            assert_eq!(all, [by_next, Ok(SLICES)]);
            // A value that some clients leave uninitialised.
            let spoiled = by(UR_DEVICE_PARTITION_BY_CSLICE, 77);
            assert_eq!(count(tiles[0], spoiled), Ok(SLICES));
            let slices = partition(tiles[0], CSLICE).expect("slices");
            let all = [NEXT, CSLICE].map(|by| count(slices[0], by));
            assert_eq!(all, [failed, failed]);
            release_all(&slices);
            release_all(&tiles);
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.check_end("partitions");
        });
    }
}

/// A card's tiles are there where its slices cannot be read, and the card where its tiles cannot.
#[test]
fn slices_that_cannot_be_read_are_left_out() {
    let name = "tests::slices::slices_that_cannot_be_read_are_left_out";
    // The card's properties are read first, then each tile's, then its first slice's.
    for (nth, tiles, slices) in [("4", 2, 0), ("2", 0, 0)] {
        let fault = format!("zeDeviceGetComputeProperties:{nth}:70000001");
        let expected = format!("{tiles} {slices}");
        let own = [
            ("SCRIPTED_LEVEL_ZERO_FAIL", fault.as_str()),
            ("SCRIPTED_LEVEL_ZERO_DEVICES", "1"),
            ("SLICES_EXPECTED", &expected),
        ];
        let variables = [VARIABLES, &own].concat();
        alone_with(name, &variables, || {
            let driver = FakeDriver::open();
            let adapter = adapter();
            let tiles = partition(devices(adapter)[0], NEXT).unwrap_or_default();
            let first = tiles.first().map(|tile| partition(*tile, CSLICE));
            let slices = first.and_then(Result::ok).unwrap_or_default();
            let found = format!("{} {}", tiles.len(), slices.len());
            assert_eq!(std::env::var("SLICES_EXPECTED"), Ok(found));
            release_all(&slices);
            release_all(&tiles);
            ok(ur!(Adapter.pfnRelease(adapter)));
            driver.check_end("partitions");
        });
    }
}

/// A queue with an index is on the engine of that index, and an index that the device does not have is refused when the
/// queue is created. A slice has its own engine alone.
#[test]
fn queues_are_on_the_engine_that_they_ask_for() {
    let name = "tests::slices::queues_are_on_the_engine_that_they_ask_for";
    alone_with(name, VARIABLES, || {
        let own = Parts::of_tile(1);
        let Parts {
            ref driver,
            card,
            ref tiles,
            ref slices,
            ..
        } = own;
        let context = context_of(&[card]);
        let create = |device, flags, index| {
            let mut index = ur_queue_index_properties_t {
                computeIndex: index,
                ..Default::default()
            };
            let properties = ur_queue_properties_t {
                flags,
                pNext: (&raw mut index).cast(),
                ..Default::default()
            };
            let mut queue = null_mut();
            match ur!(Queue.pfnCreate(context, device, &properties, &mut queue)) {
                UR_RESULT_SUCCESS => Ok(queue),
                error => Err(error),
            }
        };
        let refused = Some(UR_RESULT_ERROR_INVALID_ARGUMENT);
        for flags in [
            ur_queue_flags_t(0),
            UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
        ] {
            case("a card and a tile");
            for device in [card, tiles[1]] {
                for wanted in 0..SLICES as u32 {
                    let queue = create(device, flags, wanted).expect("a queue");
                    assert_eq!(index_of(driver, queue), wanted);
                    ok(ur!(Queue.pfnRelease(queue)));
                }
                assert_eq!(create(device, flags, SLICES as u32).err(), refused);
            }
            case("a slice");
            let queue = create(slices[2], flags, 0).expect("a queue");
            assert_eq!(index_of(driver, queue), 2);
            ok(ur!(Queue.pfnRelease(queue)));
            assert_eq!(create(slices[2], flags, 1).err(), refused);
        }
        ok(ur!(Context.pfnRelease(context)));
        own.end("indices");
    });
}
