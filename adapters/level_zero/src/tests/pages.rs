//! Pools whose device memory comes in pages, each of which has one address at a time.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{alone_with, ur};
use super::faults::MEMORY;
use super::reported::{Own, ok};
use super::workload::read;

const PAGES: &[(&str, &str)] = &[("UR_LEVEL_ZERO_PAGES", "1")];
const CHUNKS: &[(&str, &str)] = &[("UR_LEVEL_ZERO_PAGES", "0")];

/// Bytes of a block, and of the pool.
const BLOCK: usize = 4 << 20;
const MAX_POOL_BYTES: usize = 4 * BLOCK;

/// What happens before an allocation that needs pages to move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// Everything is complete.
    Finish,
    /// Everything is complete, and the driver refuses the next mapping.
    FinishAndRefuse,
}

/// A pool of four blocks in one piece of memory, two of which are free and apart. Returns the result of an allocation of
/// both, and how many times the driver mapped for it.
fn allocate_apart(own: &Own, before: Before) -> (ur_result_t, u64) {
    let queue = own.queue(0, ur_queue_flags_t(0));
    let limits = ur_usm_pool_limits_desc_t {
        maxPoolableSize: MAX_POOL_BYTES,
        minDriverAllocSize: usize::MAX,
        ..Default::default()
    };
    let mut desc = ur_usm_pool_desc_t {
        pNext: (&raw const limits).cast(),
        ..Default::default()
    };
    let mut pool = null_mut();
    ok(ur!(USM.pfnPoolCreate(own.context, &mut desc, &mut pool)));
    let alloc = |bytes: usize| {
        let (mut at, none) = (null_mut(), null_mut());
        let code = ur!(EnqueueExp.pfnUSMDeviceAllocExp(
            queue,
            pool,
            bytes,
            null(),
            0,
            null(),
            &mut at,
            none
        ));
        (code, at)
    };
    let fill = |at: *mut c_void, byte: u8, bytes: usize| {
        let from = (&raw const byte).cast();
        let none = null_mut();
        ok(ur!(Enqueue.pfnUSMFill(
            queue,
            at,
            1,
            from,
            bytes,
            0,
            null(),
            none
        )));
    };
    let free = |at: *mut c_void| {
        ok(ur!(EnqueueExp.pfnUSMFreeExp(
            queue,
            pool,
            at,
            0,
            null(),
            null_mut()
        )));
    };
    // The blocks share what comes from the driver at once.
    let (code, whole) = alloc(MAX_POOL_BYTES);
    ok(code);
    free(whole);
    let blocks = [0_u8; 4].map(|_| alloc(BLOCK)).map(|(code, at)| {
        ok(code);
        at
    });
    for (number, at) in (1..).zip(blocks) {
        fill(at, number, BLOCK);
    }
    free(blocks[0]);
    free(blocks[2]);
    if before != Before::Nothing {
        ok(ur!(Queue.pfnFinish(queue)));
    }
    let (mut code, mut both) = (UR_RESULT_SUCCESS, null_mut());
    let mapped = own.calls("zeVirtualMemMap", || {
        if before == Before::FinishAndRefuse {
            own.driver.fail_nth("zeVirtualMemMap", 1, MEMORY.0);
        }
        (code, both) = alloc(2 * BLOCK);
    });
    if code == UR_RESULT_SUCCESS {
        fill(both, 9, 2 * BLOCK);
        ok(ur!(Queue.pfnFinish(queue)));
        assert_eq!(read(both, 2 * BLOCK), vec![9; 2 * BLOCK]);
        free(both);
    }
    ok(ur!(Queue.pfnFinish(queue)));
    for number in [2_u8, 4] {
        let at = blocks[usize::from(number) - 1];
        assert_eq!(read(at, BLOCK), vec![number; BLOCK], "a block that stays");
        free(at);
    }
    ok(ur!(Queue.pfnFinish(queue)));
    ok(ur!(USM.pfnPoolRelease(pool)));
    ok(ur!(Queue.pfnRelease(queue)));
    (code, mapped)
}

/// At its maximum a pool moves free pages together; chunks stay where they are.
#[test]
fn free_pages_move_together() {
    alone_with("tests::pages::free_pages_move_together", PAGES, || {
        let own = Own::new();
        // Commands that may use the pages are waited for.
        for before in [Before::Finish, Before::Nothing] {
            let (code, mapped) = allocate_apart(&own, before);
            assert_eq!(code, UR_RESULT_SUCCESS);
            assert!(mapped > 0, "nothing was mapped");
        }
        own.end(&[]);
    });
}

/// Pages whose move the driver refuses are mapped where they were, and move when the pool tries again.
#[test]
fn a_refused_move_changes_nothing() {
    let name = "tests::pages::a_refused_move_changes_nothing";
    alone_with(name, PAGES, || {
        let own = Own::new();
        let (code, once) = allocate_apart(&own, Before::Finish);
        assert_eq!(code, UR_RESULT_SUCCESS);
        let (code, mapped) = allocate_apart(&own, Before::FinishAndRefuse);
        assert_eq!(code, UR_RESULT_SUCCESS);
        assert_eq!(mapped, 1 + 2 * once, "refused, back, and moved");
        own.end(&[]);
    });
}

#[test]
fn chunks_stay_where_they_are() {
    alone_with("tests::pages::chunks_stay_where_they_are", CHUNKS, || {
        let own = Own::new();
        let refused = allocate_apart(&own, Before::Finish);
        assert_eq!(refused, (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, 0));
        own.end(&[]);
    });
}
