//! What pools tell and what the environment changes of them and of the adapter, through the built
//! library. Each case that
//! sets variables runs as a child: this very program, with one test to run.

#[macro_use]
mod fixture;
mod environment;
mod repeat;
mod trace;

use fixture::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

#[test]
fn counters_show_how_requests_were_served() {
    let fixture = Fixture::new();
    let pool = fixture.pool(0);
    let (p, q) = (fixture.queue(IN_ORDER), fixture.queue(IN_ORDER));
    let counts = |what: [ur_usm_pool_info_t; 5]| what.map(|what| fixture.counter(pool, what));
    let hits = || {
        counts([
            UR_USM_POOL_INFO_HITS_GROWN_EXT,
            UR_USM_POOL_INFO_HITS_OWN_EXT,
            UR_USM_POOL_INFO_HITS_ORDERED_EXT,
            UR_USM_POOL_INFO_HITS_COMPLETED_EXT,
            UR_USM_POOL_INFO_HITS_WAITED_EXT,
        ])
    };
    assert_eq!(hits(), [0; 5]);
    let alloc =
        |queue, waits: Events<'_>| fixture.alloc(queue, pool, 4 * MIB, waits).expect("memory");
    let block = alloc(p, &[]);
    assert_eq!(hits(), [1, 0, 0, 0, 0]);
    for turn in 1..=3 {
        fixture.fill(p, block, MIB);
        fixture.free(p, block);
        assert_eq!((alloc(p, &[]), hits()), (block, [1, turn, 0, 0, 0]));
    }
    // The host holds the first queue up, so that nothing on it is complete.
    let opened = gate(&fixture, p);
    fixture.fill(p, block, MIB);
    let freed = fixture.free(p, block);
    let other = alloc(q, &[]);
    assert_eq!((other != block, hits()), (true, [2, 3, 0, 0, 0]));
    assert_eq!((alloc(q, &[freed]), hits()), (block, [2, 3, 1, 0, 0]));
    opened.store(true, std::sync::atomic::Ordering::Release);
    fixture.finish(p);
    fixture.finish(q);
    fixture.free(q, other);
    fixture.finish(q);
    assert_eq!((alloc(p, &[]), hits()), (other, [2, 3, 1, 1, 0]));
    let growth = counts([
        UR_USM_POOL_INFO_GROWTHS_EXT,
        UR_USM_POOL_INFO_GROWN_BYTES_EXT,
        UR_USM_POOL_INFO_FREES_EXT,
        UR_USM_POOL_INFO_WAITS_EXT,
        UR_USM_POOL_INFO_FAILED_EXT,
    ]);
    assert_eq!(growth, [2, 8 * MIB as u64, 5, 0, 0]);
    // Memory goes back when asked for.
    fixture.free(q, block);
    fixture.free(p, other);
    fixture.finish(p);
    fixture.finish(q);
    ok!(
        fixture,
        USMExp.pfnPoolTrimToExp(fixture.context, fixture.device, pool, 0)
    );
    let trims = fixture.counter(pool, UR_USM_POOL_INFO_TRIMMED_BYTES_EXT);
    assert_eq!(trims, 8 * MIB as u64);
    let report = fixture.report(pool);
    assert!(
        report.contains("7 served: own 3, ordered 1, completed 1, waited 0 (0 waits), grown 2"),
        "{report}"
    );
    assert!(report.contains("trims of 8388608 bytes"), "{report}");
    // No counter can be set.
    let zero = 0_u64;
    let at = (&raw const zero).cast_mut().cast();
    let set = try_ur!(
        fixture,
        USMExp.pfnPoolSetInfoExp(pool, UR_USM_POOL_INFO_FREES_EXT, at, 8)
    );
    assert_eq!(set, Err(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
}

/// Holds an in-order queue up until it is opened.
fn gate(fixture: &Fixture, queue: Queue) -> &'static std::sync::atomic::AtomicBool {
    use std::sync::atomic::{AtomicBool, Ordering};
    unsafe extern "C" fn hold(data: *mut c_void) {
        // SAFETY: the flag is there for ever.
        let open = unsafe { &*data.cast::<AtomicBool>() };
        while !open.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    let open: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let data = (&raw const *open).cast_mut().cast();
    ok!(
        fixture,
        EnqueueExp.pfnHostTaskExp(queue, Some(hold), data, null(), 0, null(), null_mut())
    );
    open
}

#[test]
fn a_pool_is_logged_when_asked_and_when_it_ends() {
    let name = "a_pool_is_logged_when_asked_and_when_it_ends";
    if is_child(name) {
        let fixture = Fixture::new();
        let (pool, queue) = (fixture.pool(0), fixture.queue(IN_ORDER));
        let block = fixture.alloc(queue, pool, MIB, &[]).expect("memory");
        let nothing = 0_u8;
        let at = (&raw const nothing).cast_mut().cast();
        ok!(
            fixture,
            USMExp.pfnPoolSetInfoExp(pool, UR_USM_POOL_INFO_REPORT_EXT, at, 1)
        );
        fixture.free(queue, block);
        fixture.finish(queue);
        ok!(fixture, USM.pfnPoolRelease(pool));
        return;
    }
    let lines = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("<POOL>[INFO]: pool "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (_, err) = child(name, &[("UR_LOG_POOL", "level:info")]);
    let found = lines(&err);
    assert_eq!(found.len(), 2, "{err}");
    assert!(
        found[0].contains("used 1048576 high 1048576; 1 served") && found[0].contains("0 freed")
    );
    assert!(found[1].contains("used 0 high 1048576; 1 served") && found[1].contains("1 freed"));
    let (_, err) = child(name, &[]);
    assert!(lines(&err).is_empty(), "{err}");
}

#[test]
fn waits_are_inserted_as_the_environment_says() {
    let name = "waits_are_inserted_as_the_environment_says";
    if is_child(name) {
        let fixture = Fixture::new();
        // Room for one block, so that a second one has to wait for the first one's death or fail.
        let (tight, wide) = (fixture.pool(4 * MIB), fixture.pool(0));
        let (p, q) = (fixture.queue(IN_ORDER), fixture.queue(IN_ORDER));
        let opened = gate(&fixture, p);
        for (label, pool) in [("tight", tight), ("wide", wide)] {
            let block = fixture.alloc(p, pool, 4 * MIB, &[]).expect("memory");
            fixture.fill(p, block, MIB);
            fixture.free(p, block);
            let next = fixture.alloc(q, pool, 4 * MIB, &[]);
            let waits = fixture.counter(pool, UR_USM_POOL_INFO_WAITS_EXT);
            println!(
                "{label}: {} {waits}",
                match next {
                    Ok(next) if next == block => "same",
                    Ok(_) => "other",
                    Err(_) => "none",
                }
            );
        }
        opened.store(true, std::sync::atomic::Ordering::Release);
        fixture.finish(p);
        fixture.finish(q);
        return;
    }
    for (policy, tight, wide) in [
        ("never", "none 0", "other 0"),
        ("bounded", "same 1", "other 0"),
        ("", "same 1", "other 0"),
        ("always", "same 1", "same 1"),
        ("perhaps", "same 1", "other 0"),
    ] {
        let (out, err) = child(name, &[("UR_POOL_WAITS", policy)]);
        let found =
            out.contains(&format!("tight: {tight}")) && out.contains(&format!("wide: {wide}"));
        assert!(found, "{policy}: {out}");
        let complains =
            err.contains("UR_POOL_WAITS: `perhaps` is not understood; accepted: bounded");
        assert_eq!(complains, policy == "perhaps", "{err}");
    }
}
