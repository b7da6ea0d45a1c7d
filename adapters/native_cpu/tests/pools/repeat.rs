//! A deterministic run makes the same choices each time.

use super::fixture::*;
use std::ffi::c_void;
use ur::abi::*;

/// Random allocations, frees, work and waits on queues of both kinds, always the same; and where each
/// allocation lay. What is done with a block comes after its allocation, and its free after that.
pub fn program(fixture: &Fixture, jitter: bool) -> Vec<usize> {
    let pool = fixture.pool(0);
    let kinds = [IN_ORDER, IN_ORDER, IN_ORDER, OUT_OF_ORDER];
    let mut queues = kinds.map(|kind| fixture.queue(kind));
    let mut live: Vec<(*mut c_void, usize, ur_event_handle_t)> = Vec::new();
    let mut events: Vec<ur_event_handle_t> = Vec::new();
    let mut places = Vec::new();
    let mut state = 0x9e37_79b9_u64;
    let mut random = move |below: u64| {
        // Knuth's linear congruential generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..3000 {
        let queue = queues[random(4) as usize];
        let waits: Vec<_> = match events.len() {
            len @ 1.. if random(3) == 0 => vec![events[random(len as u64) as usize]],
            _ => vec![],
        };
        match random(16) {
            0..=6 => {
                let bytes = 1 << (8 + random(15));
                let made = fixture.alloc_with_event(queue, pool, bytes, &waits);
                let (block, made) = made.expect("memory");
                places.push(block.addr());
                live.push((block, bytes, made));
            }
            7..=12 if !live.is_empty() => {
                let at = random(live.len() as u64) as usize;
                let (block, bytes, mut last) = live.swap_remove(at);
                if random(2) == 0 {
                    let filled = fixture.fill_after(queue, block, bytes, &[last]);
                    fixture.release(std::mem::replace(&mut last, filled));
                }
                events.push(fixture.free_after(queue, block, &[last]));
                fixture.release(last);
            }
            13 if step % 7 == 0 => fixture.finish(queue),
            14 if step % 5 == 0 && !waits.is_empty() => {
                ok!(fixture, Event.pfnWait(1, waits.as_ptr()));
            }
            15 if step % 11 == 0 => {
                // A queue ends with work pending on it, and another takes its place.
                let at = random(3) as usize;
                ok!(fixture, Queue.pfnRelease(queues[at]));
                queues[at] = fixture.queue(IN_ORDER);
            }
            _ => {}
        }
        if jitter && random(40) == 0 {
            let time = std::process::id().is_multiple_of(7) as u64;
            std::thread::sleep(std::time::Duration::from_micros(50 + 400 * time));
        } else if !jitter {
            // The same numbers are drawn.
            random(40);
        }
        while events.len() > 24 {
            fixture.release(events.remove(0));
        }
    }
    println!("report: {}", fixture.report(pool));
    places
}

#[test]
fn a_deterministic_run_repeats_addresses_and_figures() {
    let name = "repeat::a_deterministic_run_repeats_addresses_and_figures";
    if is_child(name) {
        let fixture = Fixture::new();
        let places = program(&fixture, std::env::var_os("UR_TEST_JITTER").is_some());
        println!("places: {places:x?}");
        return;
    }
    let run = |jitter: bool, threads: &str| {
        let mut variables = vec![
            ("UR_POOL_DETERMINISTIC", "1"),
            ("SYCL_NATIVE_CPU_HOST_THREADS", threads),
        ];
        if jitter {
            variables.push(("UR_TEST_JITTER", "1"));
        }
        let (out, _) = child(name, &variables);
        let lines = out
            .lines()
            .filter(|line| line.contains("report:") || line.contains("places:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = run(false, "1");
    assert_eq!(first.len(), 2);
    for (jitter, threads) in [(false, "1"), (true, "1"), (true, "2"), (false, "2")] {
        assert_eq!(
            run(jitter, threads),
            first,
            "jitter {jitter}, {threads} threads"
        );
    }
    let ordered = first[0].split("ordered ").nth(1).expect("a report");
    let ordered: u64 = ordered
        .split(',')
        .next()
        .and_then(|count| count.parse().ok())
        .expect("a number");
    assert!(ordered > 0, "reuse goes on: {}", first[0]);
}
