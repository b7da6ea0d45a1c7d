//! What pools tell and what the environment changes of them and of the adapter, through the built
//! library. Each case that
//! sets variables runs as a child: this very program, with one test to run.

#[macro_use]
mod scene;
mod environment;
mod repeat;
mod trace;

use scene::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

#[test]
fn counters_tell_how_requests_were_served() {
    let scene = Scene::new();
    let pool = scene.pool(0);
    let (p, q) = (scene.queue(IN_ORDER), scene.queue(IN_ORDER));
    let counts = |what: [ur_usm_pool_info_t; 5]| what.map(|what| scene.counter(pool, what));
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
        |queue, waits: Events<'_>| scene.alloc(queue, pool, 4 * MIB, waits).expect("memory");
    let block = alloc(p, &[]);
    assert_eq!(hits(), [1, 0, 0, 0, 0]);
    for turn in 1..=3 {
        scene.fill(p, block, MIB);
        scene.free(p, block);
        assert_eq!((alloc(p, &[]), hits()), (block, [1, turn, 0, 0, 0]));
    }
    // The host holds the first queue up, so that nothing on it is complete.
    let opened = gate(&scene, p);
    scene.fill(p, block, MIB);
    let freed = scene.free(p, block);
    let other = alloc(q, &[]);
    assert_eq!((other != block, hits()), (true, [2, 3, 0, 0, 0]));
    assert_eq!((alloc(q, &[freed]), hits()), (block, [2, 3, 1, 0, 0]));
    opened.store(true, std::sync::atomic::Ordering::Release);
    scene.finish(p);
    scene.finish(q);
    scene.free(q, other);
    scene.finish(q);
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
    scene.free(q, block);
    scene.free(p, other);
    scene.finish(p);
    scene.finish(q);
    ok!(
        scene,
        USMExp.pfnPoolTrimToExp(scene.context, scene.device, pool, 0)
    );
    let trims = scene.counter(pool, UR_USM_POOL_INFO_TRIMMED_BYTES_EXT);
    assert_eq!(trims, 8 * MIB as u64);
    let report = scene.report(pool);
    assert!(
        report.contains("7 served: own 3, ordered 1, completed 1, waited 0 (0 waits), grown 2"),
        "{report}"
    );
    assert!(report.contains("trims of 8388608 bytes"), "{report}");
    // No counter can be set.
    let zero = 0_u64;
    let at = (&raw const zero).cast_mut().cast();
    let set = try_ur!(
        scene,
        USMExp.pfnPoolSetInfoExp(pool, UR_USM_POOL_INFO_FREES_EXT, at, 8)
    );
    assert_eq!(set, Err(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
}

/// Holds an in-order queue up until it is opened.
fn gate(scene: &Scene, queue: Queue) -> &'static std::sync::atomic::AtomicBool {
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
        scene,
        EnqueueExp.pfnHostTaskExp(queue, Some(hold), data, null(), 0, null(), null_mut())
    );
    open
}

#[test]
fn a_pool_is_logged_when_asked_and_when_it_ends() {
    let name = "a_pool_is_logged_when_asked_and_when_it_ends";
    if is_child(name) {
        let scene = Scene::new();
        let (pool, queue) = (scene.pool(0), scene.queue(IN_ORDER));
        let block = scene.alloc(queue, pool, MIB, &[]).expect("memory");
        let nothing = 0_u8;
        let at = (&raw const nothing).cast_mut().cast();
        ok!(
            scene,
            USMExp.pfnPoolSetInfoExp(pool, UR_USM_POOL_INFO_REPORT_EXT, at, 1)
        );
        scene.free(queue, block);
        scene.finish(queue);
        ok!(scene, USM.pfnPoolRelease(pool));
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
        let scene = Scene::new();
        // Room for one block, so that a second one has to wait for the first one's death or fail.
        let (tight, wide) = (scene.pool(4 * MIB), scene.pool(0));
        let (p, q) = (scene.queue(IN_ORDER), scene.queue(IN_ORDER));
        let opened = gate(&scene, p);
        for (label, pool) in [("tight", tight), ("wide", wide)] {
            let block = scene.alloc(p, pool, 4 * MIB, &[]).expect("memory");
            scene.fill(p, block, MIB);
            scene.free(p, block);
            let next = scene.alloc(q, pool, 4 * MIB, &[]);
            let waits = scene.counter(pool, UR_USM_POOL_INFO_WAITS_EXT);
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
        scene.finish(p);
        scene.finish(q);
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
