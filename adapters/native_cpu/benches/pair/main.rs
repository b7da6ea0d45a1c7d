//! What an asynchronous allocation and its free cost together, through the C API: the built loader
//! and adapter, an in-order queue, no wait list, no event. In the same run: malloc and free of
//! mimalloc and of the C library, and one uncontended atomic read-modify-write.
//!
//! ```text
//! cargo build --release --workspace && cargo bench -p ur-adapter-native-cpu
//! ```
//!
//! `--figures` prints what is no mean of one thing; `--repeat CASE TIMES` does one thing so often and
//! prints nothing, to count instructions. `cargo xtask bench pool` runs it all.

mod api;
mod cases;
mod clock;
mod figures;

use api::Fixture;
use criterion::{BenchmarkId, Criterion};
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

const SIZES: [usize; 6] = [1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [flag, case, times] if flag == "--repeat" => {
            let times = times.parse().expect("a number");
            cases::repeat(case, times).expect("a case");
        }
        [flag, ..] if flag == "--figures" => figures::print(),
        _ => measure(),
    }
}

fn measure() {
    let mut criterion = Criterion::default().configure_from_args();
    let fixture = Fixture::new();
    let mut group = criterion.benchmark_group("pair");
    let queue = fixture.queue();
    for bytes in SIZES {
        group.bench_function(BenchmarkId::new("async", bytes), |b| {
            b.iter(|| fixture.pair(queue, black_box(bytes)));
        });
        group.bench_function(BenchmarkId::new("mimalloc", bytes), |b| {
            b.iter(|| heap(&MiMalloc, bytes));
        });
        group.bench_function(BenchmarkId::new("malloc", bytes), |b| {
            b.iter(|| heap(&System, bytes));
        });
    }
    fixture.release(queue);
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::new("async 4096, threads", threads), |b| {
            b.iter_custom(|pairs| figures::pairs(&fixture, threads, pairs));
        });
    }
    group.bench_function("atomic add", |b| {
        let counter = AtomicU64::new(0);
        b.iter(|| black_box(&counter).fetch_add(1, Ordering::AcqRel));
    });
    group.finish();
    criterion.final_summary();
}

/// Memory of the heap, taken and given back untouched.
fn heap(heap: &impl GlobalAlloc, bytes: usize) {
    let layout = Layout::from_size_align(black_box(bytes), 16).expect("a layout");
    // SAFETY: the size is not 0, and it is freed once, as it was allocated.
    unsafe { heap.dealloc(black_box(heap.alloc(layout)), layout) };
}
