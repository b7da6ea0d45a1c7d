//! The pool's behaviour as scripts: which memory is reused, and when the pool grows, waits or fails.

use ur::pool::oracle;

#[track_caller]
fn check(script: &str, expectation: &str) {
    if let Err(why) = oracle::check(script, expectation) {
        panic!("{why}");
    }
}

#[test]
fn reuse_follows_the_programs_order() {
    check(
        "a0 = alloc q0 64; free q0 a0; a1 = alloc q0 64",
        "a0 grows; a1 = a0, no wait",
    );
    check("a0 = alloc q0 64; free q0 a0; a1 = alloc q1 64", "a1 grows");
    check(
        "a0 = alloc q0 64; e = free q0 a0; a1 = alloc q1 64 after e",
        "a1 = a0, no wait",
    );
    // The event of the command before the free proves as much as that of the free.
    check(
        "k = run q0; a0 = alloc q0 64; j = run q0 a0; free q0 a0; a1 = alloc q1 64 after k; \
         a2 = alloc q1 64 after j",
        "a1 grows; a2 = a0, no wait",
    );
}

#[test]
fn ordered_memory_is_preferred_to_completed() {
    check(
        "pool chunk 192; a0 = alloc q0 64; e = free q0 a0; a1 = alloc q1 64 after e; \
         a2 = alloc q1 64; a3 = alloc q0 64",
        "a0 grows; a1 = a0, no wait; a2 fresh; a3 fresh",
    );
}

#[test]
fn order_is_transitive() {
    check(
        "a0 = alloc q0 64; e = free q0 a0; k = run q1 after e; a1 = alloc q2 64 after k",
        "a1 = a0, no wait",
    );
    check(
        "a0 = alloc q0 64; e = free q0 a0; k = run o0 after e; b = barrier o0; j = run o0; \
         a1 = alloc q2 64 after j",
        "a1 = a0, no wait",
    );
}

#[test]
fn observed_completion_frees_for_every_queue() {
    check(
        "a0 = alloc q0 64; e = free q0 a0; wait e; a1 = alloc q1 64",
        "a1 = a0, no wait",
    );
    check(
        "a0 = alloc q0 64; free q0 a0; finish q0; a1 = alloc host 64",
        "a1 = a0, no wait",
    );
    check(
        "a0 = alloc q0 64; free q0 a0; a1 = alloc host 64",
        "a1 grows",
    );
    // A wait also proves what its command had waited for on other queues.
    check(
        "a0 = alloc q0 64; e = free q0 a0; k = run q1 after e; wait k; a1 = alloc host 64",
        "a1 = a0, no wait",
    );
}

#[test]
fn a_free_carries_waits_that_no_command_follows() {
    check(
        "a0 = alloc q0 64; k = run q1 a0 after a0; barrier q0 after k; free q0 a0; \
         a1 = alloc q2 64; a2 = alloc q0 64",
        "a1 grows; a2 = a0, no wait",
    );
    // On an in-order queue an earlier free's wait list applies to a later free as well.
    check(
        "a0 = alloc q0 64; b0 = alloc q0 128; k = run q1 a0 b0 after b0; free q0 a0 after k; \
         free q0 b0; a1 = alloc q2 128",
        "a1 grows",
    );
}

#[test]
fn an_out_of_order_queue_reuses_by_wait_lists_only() {
    let head = "k = run o0; a0 = alloc o0 64; j = run o0 a0 after a0 k; f = free o0 a0 after j;";
    check(&format!("{head} a1 = alloc o0 64"), "a1 grows");
    check(&format!("{head} a1 = alloc o0 64 after k"), "a1 grows");
    check(
        &format!("{head} a1 = alloc o0 64 after f"),
        "a1 = a0, no wait",
    );
    check(
        &format!("{head} barrier o0; a1 = alloc o0 64"),
        "a1 = a0, no wait",
    );
    check(
        &format!("{head} a1 = alloc q0 64 after j"),
        "a1 = a0, no wait",
    );
    check(
        &format!("{head} finish o0; a1 = alloc o0 64"),
        "a1 = a0, no wait",
    );
}

#[test]
fn a_diamond_needs_both_sides() {
    let head = "a0 = alloc o0 64; l = run o0 a0 after a0; r = run o0 a0 after a0; \
                f = free o0 a0 after l r;";
    check(&format!("{head} a1 = alloc q0 64 after l"), "a1 grows");
    check(&format!("{head} a1 = alloc q0 64 after r"), "a1 grows");
    check(
        &format!("{head} a1 = alloc q0 64 after l r"),
        "a1 = a0, no wait",
    );
    check(
        &format!("{head} wait l; a1 = alloc q0 64 after r"),
        "a1 = a0, no wait",
    );
}

#[test]
fn neighbours_merge_as_far_as_their_frees_allow() {
    let head = "pool chunk 128; a0 = alloc q0 64; a1 = alloc q0 64;";
    check(
        &format!("{head} free q0 a0; run q0; free q0 a1; a2 = alloc q0 128"),
        "a2 = a0, no wait",
    );
    let apart = format!("{head} e = free q0 a0; run q0; f = free q0 a1;");
    check(&format!("{apart} a2 = alloc q1 128 after e"), "a2 grows");
    check(
        &format!("{apart} a2 = alloc q1 128 after f"),
        "a2 = a0, no wait",
    );
    // The block that was freed earlier can be reused alone.
    check(
        &format!("{apart} a2 = alloc q1 64 after e"),
        "a2 = a0, no wait",
    );
    // One was freed on this queue, one has completed, and one was waited for.
    let mixed = "pool chunk 192; a0 = alloc q0 64; a1 = alloc q0 64; a2 = alloc q0 64; \
                 k = run q1; f0 = free q1 a0 after k a0; wait f0; free q0 a1; \
                 k = run q2 a2 after a2; f2 = free q2 a2;";
    check(
        &format!("{mixed} a3 = alloc q0 192 after f2"),
        "a3 = a0, no wait",
    );
    check(&format!("{mixed} a3 = alloc q0 192"), "a3 grows");
}

#[test]
fn remainders_keep_the_dependencies_of_their_free() {
    check(
        "a0 = alloc q0 256; e = free q0 a0; a1 = alloc q0 64; a2 = alloc q1 128 after e; \
         a3 = alloc q2 64; a4 = alloc q0 64",
        "a1 = a0, no wait; a2 in a0; a3 grows; a4 in a0",
    );
    // The tightest of several free blocks is taken.
    check(
        "a0 = alloc q0 512; a1 = alloc q0 128; free q0 a0; free q0 a1; a2 = alloc q0 128; \
         a3 = alloc q0 512",
        "a2 = a1, no wait; a3 = a0, no wait",
    );
}

#[test]
fn the_tightest_part_of_a_free_range_is_taken() {
    check(
        "pool chunk 384; a0 = alloc q0 192; a1 = alloc q0 64; a2 = alloc q0 128; free q0 a0; \
         e = free q0 a2; run q0; free q0 a1; a3 = alloc q1 128 after e; a4 = alloc q0 256",
        "a3 = a2, no wait; a4 = a0, no wait",
    );
}

#[test]
fn alignment_skips_but_does_not_lose() {
    check(
        "pool chunk 4096 grain 4096; a0 = alloc q0 64; a1 = alloc q0 64 align 1024; \
         a2 = alloc q0 960",
        "a0 grows; a1 fresh; a2 fresh",
    );
    check("a0 = alloc q0 64 align 8192", "a0 grows");
}

#[test]
fn the_maximum_binds_and_pending_frees_serve_under_it() {
    let head = "pool max 128; a0 = alloc q0 128;";
    check(&format!("{head} a1 = alloc q0 64"), "a1 exhausted");
    check(
        &format!("{head} free q0 a0; a1 = alloc q1 64"),
        "a1 = a0, waits",
    );
    check(
        &format!("{head} free q0 a0; a1 = alloc q1 64 nowait"),
        "a1 exhausted",
    );
    check(
        &format!("{head} free q0 a0; a1 = alloc host 64"),
        "a1 = a0, waits",
    );
    // The wait orders later requests too.
    check(
        &format!("{head} free q0 a0; a1 = alloc q1 64; a2 = alloc q1 64"),
        "a1 = a0, waits; a2 in a0",
    );
    check(
        "pool max 128 waits never; a0 = alloc q0 128; free q0 a0; a1 = alloc q1 64",
        "a1 exhausted",
    );
    check(
        "pool waits always; a0 = alloc q0 128; free q0 a0; a1 = alloc q1 64",
        "a1 = a0, waits",
    );
    // Growth is cut to the remaining bytes.
    check(
        "pool max 192 chunk 128; a0 = alloc q0 128; a1 = alloc q0 64",
        "a1 grows",
    );
}

#[test]
fn the_least_wait_is_chosen() {
    // A wait for one lane is preferred to a wait for two.
    check(
        "pool max 256; a0 = alloc q0 128; a1 = alloc q0 128; k = run q1 a0 after a1; \
         free q0 a0 after k; free q1 a1 after k; a2 = alloc q2 128",
        "a2 = a1, waits",
    );
    // The lane with fewer pending commands is preferred.
    check(
        "pool max 256; a0 = alloc q0 128; a1 = alloc q1 128; run q0; run q0; run q0; \
         free q0 a0; free q1 a1; a2 = alloc q2 128",
        "a2 = a1, waits",
    );
}

#[test]
fn idle_slabs_are_released_for_a_larger_one() {
    check(
        "pool max 256; a0 = alloc q0 128; a1 = alloc q0 128; free q0 a0; free q0 a1; finish q0; \
         a2 = alloc q0 256",
        "a2 grows",
    );
    check(
        "pool max 256; a0 = alloc q0 128; a1 = alloc q0 128; free q0 a0; free q0 a1; \
         a2 = alloc q0 256",
        "a2 exhausted",
    );
}

/// Allocates four quarters of the maximum in slabs of their own, and frees them on these queues with their
/// uses pending.
fn quarters(memory: &str, queues: [&str; 4]) -> String {
    let mut out = format!("pool max 4096 blocks 1 {memory};");
    for (at, queue) in queues.iter().enumerate() {
        out += &format!("a{at} = alloc {queue} 1024; k{at} = run {queue} a{at} after a{at};");
    }
    for (at, queue) in queues.iter().enumerate() {
        out += &format!("free {queue} a{at} after k{at};");
    }
    out
}

#[test]
fn before_a_request_fails_the_host_waits_for_as_little_as_suffices() {
    let one = ["q1"; 4];
    let two = ["q1", "q2", "q2", "q2"];
    let several = ["q1", "q2", "o1", "o2"];
    let asks = ["q5", "q5 3072 nowait", "o5", "o5 3072 nowait", "host"];
    for ask in asks {
        let ask = match ask.contains(' ') {
            true => ask.to_string(),
            false => format!("{ask} 3072"),
        };
        // The slabs are not contiguous: those of the fewest lanes are released for a new one.
        for (queues, lanes) in [(one, 1), (two, 1), (several, 3)] {
            let script = format!("{}; x = alloc {ask}", quarters("grain 1024", queues));
            check(&script, &format!("x grows, blocks {lanes}"));
            let never = script.replace("blocks 1", "blocks 1 waits never");
            check(&never, "x exhausted");
        }
        // Pages are contiguous or are remapped. The host waits only if neither the lane nor the event can.
        for (queues, lanes) in [(one, 1), (two, 1), (several, 3)] {
            let script = format!("{}; x = alloc {ask}", quarters("page 256", queues));
            let blocks = if ask.contains("nowait") { lanes } else { 0 };
            check(&script, &format!("x served, blocks {blocks}"));
        }
    }
    // One quarter is live, and no wait makes room for one more than the rest.
    check(
        "pool max 4096 blocks 1 grain 1024; a = alloc q0 1024; b = alloc q0 1024; c = alloc q0 1024; \
         d = alloc q0 1024; k = run q0 a b c d; free q0 a; free q0 b; x = alloc q1 3072; \
         y = alloc q1 2048",
        "x exhausted; y grows, blocks 1",
    );
    // One slab is free in parts: it does not grow, and the host waits for the pending parts.
    check(
        "pool max 4096 blocks 1 grain 4096; a = alloc q0 1024; b = alloc q1 1024; c = alloc q0 1024; \
         d = alloc q0 1024; k = run q1 b after b; free q0 a; free q1 b; free q0 c; \
         x = alloc o1 3072 nowait",
        "x = a, blocks 2",
    );
}

#[test]
fn thresholds_and_trims_release_only_idle_memory() {
    // The runner compares the reserved bytes with its model after each of these steps.
    check(
        "pool threshold 0; a0 = alloc q0 64; free q0 a0; settle; a1 = alloc q0 64",
        "a1 = a0, no wait",
    );
    check(
        "pool threshold 0; a0 = alloc q0 64; free q0 a0; finish q0; a1 = alloc q0 64",
        "a1 grows",
    );
    check(
        "a0 = alloc q0 64; free q0 a0; finish q0; trim 64; a1 = alloc q0 64",
        "a1 = a0, no wait",
    );
    check(
        "a0 = alloc q0 64; free q0 a0; finish q0; trim 63; a1 = alloc q0 64",
        "a1 grows",
    );
}

#[test]
fn a_block_is_freed_once() {
    check("a0 = alloc q0 64; free q0 a0; f = free q0 a0", "f unknown");
    check("a0 = alloc q0 0", "");
}

#[test]
fn the_notation_survives_a_round_trip() {
    let text = "pool chunk 0 align 64 grain 64 waits never max 4096 threshold 0; \
                a0 = alloc q0 64 align 128 nowait; k1 = run o2 a0 after a0; b2 = barrier q1; \
                f3 = free host a0 after k1; wait k1; finish q0; settle; trim 5; threshold 7";
    let script = oracle::Script::parse(text).expect("parses");
    assert_eq!(script.to_string(), text);
    for broken in [
        "a = alloc",
        "a = alloc x0 64",
        "free q0 a9",
        "frob",
        "pool max",
        "run z",
    ] {
        assert!(oracle::Script::parse(broken).is_err(), "{broken}");
    }
}

#[test]
fn scattered_pages_are_compacted() {
    // A worked example, in units of 1024 bytes for a MiB.
    let example = "pool page 2048; a = alloc q0 3072; b = alloc q0 1024; c = alloc q0 2048; \
        k = run q0 a b c; free q0 a; e = free q0 c; d = alloc q1 5120; x = alloc q0 4096; \
        free q1 d; y = alloc q0 5120 after e";
    check(
        example,
        "a grows; b fresh; c grows; d grows; x fresh; y grows",
    );
    let follows = example.replace("free q1 d", "f = free q1 d");
    let follows = follows.replace("after e", "after f");
    check(&follows, "x fresh; y = d, no wait");
    // Contiguous pages are taken as they are, and a single page needs no other.
    check(
        "pool page 1024; a = alloc q0 1024; b = alloc q0 1024; free q0 a; free q0 b; c = alloc q0 2048",
        "b grows; c = a, no wait",
    );
    // Under a maximum, pages with pending uses move too.
    check(
        "pool page 1024 max 3072; a = alloc q0 1024; b = alloc q0 1024; c = alloc q0 1024; \
         free q0 a; free q0 c; d = alloc q1 2048 nowait; e = alloc q1 2048",
        "d exhausted; e fresh",
    );
}

#[test]
fn a_deterministic_pool_reuses_only_after_waits() {
    let head = "pool deterministic 1; a0 = alloc q0 64; f0 = free q0 a0;";
    check(
        &format!("{head} k = run q1; k = run q1; a1 = alloc q1 64"),
        "a1 grows",
    );
    check(
        &format!("{head} wait f0; a1 = alloc q1 64"),
        "a1 = a0, no wait",
    );
    check(
        &format!("{head} finish q0; a1 = alloc q1 64"),
        "a1 = a0, no wait",
    );
    check(
        &format!("{head} a1 = alloc q1 64 after f0"),
        "a1 = a0, no wait",
    );
}
