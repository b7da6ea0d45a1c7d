//! Exported blocks, reusable events, and memory that a context knows beside its pools.

use crate::abi::*;
use crate::hal::answers::LinearRows;
use crate::hal::{self, UsmAllocInfo};
use crate::object::OutHandle;
use crate::stream::queue::{alloc, reusable};
use crate::stream::testing::vm::PAGE_BYTES;
use crate::stream::testing::*;
use crate::stream::{Event, Kind};
use std::sync::Arc;

on_both! {
    an_exported_page_is_never_reused_or_moved
    memory_without_pages_is_exported_as_none
    a_reusable_event_stands_for_its_last_command
    reusable_events_end
    foreign_memory_is_known
    rows_of_an_image_lie_in_memory_that_its_device_reaches
}

fn shared<D: AnyFake>(queue: &QueueArc<D>, pool: &PoolArc<D>, bytes: usize) -> usize {
    let made = without(&[], |waits, out| {
        alloc::alloc(queue, Kind::Shared, Some(&**pool), bytes, waits, out)
    });
    made.unwrap().addr()
}

fn an_exported_page_is_never_reused_or_moved<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let memory = &fixture.context.domain().memory;
    let pool = fixture.pool(0, usize::MAX);
    let queue = fixture.in_order();
    let blocks = [(); 3].map(|()| shared(&queue, &pool, PAGE_BYTES));
    let block = memory.find(blocks[1]).unwrap().block;
    let pages = memory.pages_at(&block).unwrap();
    assert_eq!(pages.len(), 1);
    assert_eq!(
        (pages[0].0, pages[0].1.bytes),
        (blocks[1] as u64, PAGE_BYTES as u64)
    );
    memory.pin(blocks[1] as u64);
    memory.pin(blocks[1] as u64);
    for block in blocks {
        free_only(&queue, block, &[]).unwrap();
    }
    assert_eq!(
        code(free_only(&queue, blocks[1], &[])),
        Some(UR_RESULT_ERROR_INVALID_MEM_OBJECT),
        "freed twice"
    );
    fixture.driver.run();
    hal::Queue::<D>::finish(&queue).unwrap();
    pool.core().trim(0);
    let held = |page| fixture.driver.vm.lock().unwrap().pages.contains(&page);
    assert!(held(pages[0].1.name), "a trim leaves it");
    let large = shared(&queue, &pool, 3 * PAGE_BYTES);
    assert!(!(large..large + 3 * PAGE_BYTES).contains(&blocks[1]));
    let own = |addr: u64| {
        fixture
            .driver
            .vm
            .lock()
            .unwrap()
            .mapped
            .get(&(addr as usize))
            .copied()
    };
    assert_eq!(
        own(pages[0].0),
        Some(pages[0].1.name),
        "it stays where it was"
    );
    memory.unpin(blocks[1] as u64);
    assert!(memory.is_exported(blocks[1]), "one export is left");
    memory.unpin(blocks[1] as u64);
    assert!(!memory.is_exported(blocks[1]) && memory.is_regular());
    free_only(&queue, large, &[]).unwrap();
    fixture.driver.run();
    hal::Queue::<D>::finish(&queue).unwrap();
    pool.core().trim(0);
    assert!(!held(pages[0].1.name), "the free took effect");
}

fn memory_without_pages_is_exported_as_none<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    let block = alloc_only(&queue, None, 64, &[]).unwrap();
    let refused = code(fixture.context.export_block(block + 1));
    assert_eq!(refused, Some(UR_RESULT_ERROR_INVALID_VALUE));
    let exported = fixture.context.export_block(block).unwrap();
    assert_eq!((exported.offset, exported.bytes), (0, 64));
    assert!(exported.pages.is_empty());
    drop(exported);
    assert!(
        fixture.context.domain().memory.is_regular(),
        "nothing is left of it"
    );
    free_only(&queue, block, &[]).unwrap();
    fixture.driver.run();
}

fn reusable<D: AnyFake>(fixture: &Fixture<D>) -> EventArc<D> {
    let desc = ur_exp_event_desc_t::default();
    Event::reusable(&fixture.context, &fixture.device, &desc).unwrap()
}

/// Signals the event by a barrier behind these events.
fn signal<D: AnyFake>(queue: &QueueArc<D>, event: &EventArc<D>, waits: &[&EventArc<D>]) {
    let handles: Vec<_> = waits.iter().map(|event| event.handle()).collect();
    let mut own = event.handle();
    // SAFETY: `own` outlives the call.
    let out = unsafe { OutHandle::new(&raw mut own) };
    reusable::barrier(queue, list::<D, _>(&handles), out).unwrap();
    assert_eq!(own, event.handle(), "no new event");
}

fn a_reusable_event_stands_for_its_last_command<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let event = reusable(&fixture);
    assert_eq!(status(&event), UR_EVENT_STATUS_COMPLETE);
    for queue in [fixture.in_order(), fixture.out_of_order()] {
        for label in 1..4 {
            let first = launch(&queue, label, &[]);
            signal(&queue, &event, &[&first]);
            assert_ne!(status(&event), UR_EVENT_STATUS_COMPLETE);
            let other = fixture.in_order();
            let after = launch(&other, label, &[&event]);
            assert_ne!(status(&after), UR_EVENT_STATUS_COMPLETE);
            fixture.driver.run();
            assert_eq!(status(&event), UR_EVENT_STATUS_COMPLETE);
            assert_eq!(status(&after), UR_EVENT_STATUS_COMPLETE);
        }
    }
    assert_eq!(
        code(event.shared_marker().map(drop)),
        Some(UR_RESULT_ERROR_INVALID_EVENT)
    );
    let desc = ur_exp_event_desc_t {
        flags: UR_EXP_EVENT_FLAG_IPC_EXP,
        ..Default::default()
    };
    assert_eq!(
        code(Event::<D>::reusable(
            &fixture.context,
            &fixture.device,
            &desc
        )),
        Some(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
    );
}

fn reusable_events_end<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let queue = fixture.in_order();
    for _ in 0..1000 {
        let event = reusable(&fixture);
        signal(&queue, &event, &[]);
        assert_eq!(Arc::strong_count(&event), 1, "nobody else keeps it");
    }
    // A handle that is no reusable event's is an output like any other.
    let plain = launch(&queue, 1, &[]);
    let mut own = plain.handle();
    // SAFETY: `own` outlives the call.
    let out = unsafe { OutHandle::new(&raw mut own) };
    reusable::barrier(&queue, list::<D, _>(&[]), out).unwrap();
    assert_ne!(own, plain.handle(), "a new event");
    // SAFETY: the call wrote a handle with one reference.
    let made = unsafe { crate::object::Object::<Event<D>>::borrow(own, D::table()) };
    made.unwrap().release().unwrap();
    fixture.driver.run();
}

fn rows_of_an_image_lie_in_memory_that_its_device_reaches<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    fixture
        .context
        .add_foreign(4096, 64, &fixture.device)
        .unwrap();
    let memory = fixture.context.usm_at(4100).unwrap();
    // The last row ends 28 bytes after the first one begins.
    let rows = LinearRows::new(2, 12, 16);
    let check = |at, reached| code(memory.check_rows(at, &rows, |_| Ok(reached)));
    assert_eq!(check(4132, true), None);
    assert_eq!(check(4133, true), Some(UR_RESULT_ERROR_INVALID_IMAGE_SIZE));
    assert_eq!(
        check(4132, false),
        Some(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
    );
}

fn foreign_memory_is_known<D: AnyFake>() {
    let fixture = Fixture::<D>::new();
    let context = &fixture.context;
    context.add_foreign(4096, 64, &fixture.device).unwrap();
    let invalid = Some(UR_RESULT_ERROR_INVALID_VALUE);
    assert_eq!(
        code(context.add_foreign(4159, 64, &fixture.device)),
        invalid
    );
    assert_eq!(code(context.add_foreign(4090, 7, &fixture.device)), invalid);
    assert_eq!(
        code(context.add_foreign(usize::MAX, 2, &fixture.device)),
        invalid
    );
    context.add_foreign(4160, 64, &fixture.device).unwrap();
    let kind = |addr| -> ur_usm_type_t {
        info(|out| context.alloc_info(addr, UsmAllocInfo::Type, out)).unwrap()
    };
    assert_eq!(
        [kind(4095), kind(4159)],
        [UR_USM_TYPE_UNKNOWN, UR_USM_TYPE_DEVICE]
    );
    let base: usize = info(|out| context.alloc_info(4159, UsmAllocInfo::BasePtr, out)).unwrap();
    assert_eq!(base, 4096);
    assert_eq!(code(context.remove_foreign(4097)), invalid);
    assert_eq!(
        code(context.unregister_host(4096)),
        invalid,
        "not the host's"
    );
    context.remove_foreign(4096).unwrap();
    assert_eq!(kind(4096), UR_USM_TYPE_UNKNOWN);
    // This driver refuses each registration, as one may that lacks memory.
    assert_eq!(
        code(context.register_host(1 << 20, 64, None)),
        Some(UR_RESULT_ERROR_UNSUPPORTED_FEATURE)
    );
    assert_eq!(kind(1 << 20), UR_USM_TYPE_UNKNOWN);
}
