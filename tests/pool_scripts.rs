//! The pool's behaviour as scripts: what is reused when, and when it grows, waits or gives up.

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
    // The command that the free followed proves as much as the free.
    check(
        "k = run q0; a0 = alloc q0 64; j = run q0 a0; free q0 a0; a1 = alloc q1 64 after k; \
         a2 = alloc q1 64 after j",
        "a1 grows; a2 = a0, no wait",
    );
}

#[test]
fn what_is_ordered_goes_before_what_anybody_could_have() {
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
fn observed_completion_frees_for_everybody() {
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
    // A wait proves what its command had waited for, on other queues too.
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
    // On an in-order queue an earlier free's wait list holds for a later free as well.
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
fn neighbours_serve_as_one_as_far_as_their_deaths_allow() {
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
    // What died earlier can be had alone.
    check(
        &format!("{apart} a2 = alloc q1 64 after e"),
        "a2 = a0, no wait",
    );
    // One died here, the other has completed, a third was waited for.
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
fn remainders_stay_free_with_their_death() {
    check(
        "a0 = alloc q0 256; e = free q0 a0; a1 = alloc q0 64; a2 = alloc q1 128 after e; \
         a3 = alloc q2 64; a4 = alloc q0 64",
        "a1 = a0, no wait; a2 in a0; a3 grows; a4 in a0",
    );
    // The tightest of several.
    check(
        "a0 = alloc q0 512; a1 = alloc q0 128; free q0 a0; free q0 a1; a2 = alloc q0 128; \
         a3 = alloc q0 512",
        "a2 = a1, no wait; a3 = a0, no wait",
    );
}

#[test]
fn of_a_run_the_tightest_part_is_taken() {
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
    // The wait orders what follows.
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
    // Growth is cut to what is left.
    check(
        "pool max 192 chunk 128; a0 = alloc q0 128; a1 = alloc q0 64",
        "a1 grows",
    );
}

#[test]
fn the_least_wait_is_chosen() {
    // One lane rather than two.
    check(
        "pool max 256; a0 = alloc q0 128; a1 = alloc q0 128; k = run q1 a0 after a1; \
         free q0 a0 after k; free q1 a1 after k; a2 = alloc q2 128",
        "a2 = a1, waits",
    );
    // The shorter way to completion.
    check(
        "pool max 256; a0 = alloc q0 128; a1 = alloc q1 128; run q0; run q0; run q0; \
         free q0 a0; free q1 a1; a2 = alloc q2 128",
        "a2 = a1, waits",
    );
}

#[test]
fn idle_slabs_make_room_for_what_they_are_too_small_for() {
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

/// Four quarters of the maximum, each grown for by itself, and freed by these queues with that pending.
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
fn before_a_request_fails_the_host_waits_for_the_least_that_suffices() {
    let one = ["q1"; 4];
    let two = ["q1", "q2", "q2", "q2"];
    let several = ["q1", "q2", "o1", "o2"];
    let asks = ["q5", "q5 3072 nowait", "o5", "o5 3072 nowait", "host"];
    for ask in asks {
        let ask = match ask.contains(' ') {
            true => ask.to_string(),
            false => format!("{ask} 3072"),
        };
        // Slabs apart: those of the fewest lanes go back for a new one.
        for (queues, lanes) in [(one, 1), (two, 1), (several, 3)] {
            let script = format!("{}; x = alloc {ask}", quarters("grain 1024", queues));
            check(&script, &format!("x grows, blocks {lanes}"));
            let never = script.replace("blocks 1", "blocks 1 waits never");
            check(&never, "x exhausted");
        }
        // Pages lie together or are gathered: without the host where the lane or the event can wait.
        for (queues, lanes) in [(one, 1), (two, 1), (several, 3)] {
            let script = format!("{}; x = alloc {ask}", quarters("page 256", queues));
            let blocks = if ask.contains("nowait") { lanes } else { 0 };
            check(&script, &format!("x served, blocks {blocks}"));
        }
    }
    // Some of it is live, and one more quarter than is left suffices for no wait.
    check(
        "pool max 4096 blocks 1 grain 1024; a = alloc q0 1024; b = alloc q0 1024; c = alloc q0 1024; \
         d = alloc q0 1024; k = run q0 a b c d; free q0 a; free q0 b; x = alloc q1 3072; \
         y = alloc q1 2048",
        "x exhausted; y grows, blocks 1",
    );
    // One slab that is free in parts: no growth, and what has to complete is waited for.
    check(
        "pool max 4096 blocks 1 grain 4096; a = alloc q0 1024; b = alloc q1 1024; c = alloc q0 1024; \
         d = alloc q0 1024; k = run q1 b after b; free q0 a; free q1 b; free q0 c; \
         x = alloc o1 3072 nowait",
        "x = a, blocks 2",
    );
}

#[test]
fn thresholds_and_trims_give_back_no_more_than_is_idle() {
    // The runner compares what is reserved with the ledger after each of these.
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
fn scattered_pages_are_gathered() {
    // ARCHITECTURE.md's worked example, in MiB of 1024.
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
    // What lies together is taken as it is, and one page needs no company.
    check(
        "pool page 1024; a = alloc q0 1024; b = alloc q0 1024; free q0 a; free q0 b; c = alloc q0 2048",
        "b grows; c = a, no wait",
    );
    // Under a maximum, pages that have to be waited for move too.
    check(
        "pool page 1024 max 3072; a = alloc q0 1024; b = alloc q0 1024; c = alloc q0 1024; \
         free q0 a; free q0 c; d = alloc q1 2048 nowait; e = alloc q1 2048",
        "d exhausted; e fresh",
    );
}

#[test]
fn a_deterministic_pool_takes_what_was_awaited_and_nothing_that_was_only_seen() {
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
