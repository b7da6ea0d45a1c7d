//! What work-items see: their place, arguments and local memory.

use super::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn every_item_runs_once_whatever_the_split() {
    let executor = executor(4);
    let mut lane = TestLane::new(&executor);
    for (items, local) in [(1, 1), (7, 7), (64, 1), (1000, 10), (100_000, 100)] {
        let cells: Vec<AtomicU64> = (0..items).map(|_| AtomicU64::new(0)).collect();
        let mut args = Args::default();
        pointer(&mut args, 0, &cells[0]);
        args.value(1, &5u64.to_ne_bytes());
        let done = lane.submit(launch(add_value, line(items, local), args));
        done.block().expect("the executor runs");
        let wrong = (0..items).find(|&at| cells[at].load(Ordering::Relaxed) != at as u64 + 5);
        assert_eq!(wrong, None, "{items} by {local}");
    }
}

/// args: Mutex<Vec<WorkItemState>>.
unsafe extern "C" fn record_state(args: *const *const c_void, state: *mut WorkItemState) {
    // SAFETY: the tests pass these arguments.
    let (list, state) = unsafe { (arg::<Mutex<Vec<WorkItemState>>>(args, 0), (*state).clone()) };
    list.lock().expect("no panic").push(state);
}

#[test]
fn a_work_item_knows_where_it_is() {
    let executor = executor(3);
    let mut lane = TestLane::new(&executor);
    let list: Mutex<Vec<WorkItemState>> = Mutex::default();
    let mut args = Args::default();
    pointer(&mut args, 0, &list);
    let range = NdRange {
        offset: [10, 20, 30],
        groups: [2, 3, 4],
        local: [4, 2, 1],
    };
    lane.submit(launch(record_state, range, args))
        .block()
        .expect("the executor runs");
    let mut states = list.into_inner().expect("no panic");
    assert_eq!(states.len(), 24 * 8);
    for state in &states {
        for axis in 0..3 {
            let base = state.group_id[axis] * range.local[axis] + range.offset[axis];
            assert_eq!(state.global_id[axis], base + state.local_id[axis]);
            assert!(state.local_id[axis] < range.local[axis]);
            assert!(state.group_id[axis] < range.groups[axis]);
        }
        assert_eq!((state.global_range, state.groups), ([8, 6, 4], [2, 3, 4]));
        assert_eq!(
            (state.group_size, state.global_offset),
            ([4, 2, 1], [10, 20, 30])
        );
        assert_eq!(
            state.sub_group_id as usize,
            state.local_id[0] + 4 * state.local_id[1]
        );
        assert_eq!((state.sub_groups, state.sub_group_size), (8, 1));
    }
    states.sort_by_key(|state| state.global_id);
    states.dedup_by_key(|state| state.global_id);
    assert_eq!(states.len(), 24 * 8);
}

/// args: AtomicUsize[groups], u32 local[group size], double by value, u64 local[1].
unsafe extern "C" fn sum_in_group(args: *const *const c_void, state: *mut WorkItemState) {
    // SAFETY: the tests pass these arguments; a group's items run one after the other.
    unsafe {
        let state = &*state;
        let [item, size] = [state.local_id[0], state.group_size[0]];
        let local = (*args.add(1)).cast_mut().cast::<u32>();
        local.add(item).write(state.global_id[0] as u32);
        let last = (*args.add(3)).cast_mut().cast::<u64>();
        last.write(item as u64);
        assert_eq!(*arg::<f64>(args, 2), 0.5);
        if item + 1 == size {
            let sum: usize = (0..size).map(|at| *local.add(at) as usize).sum();
            arg::<AtomicUsize>(args, 0)
                .as_ptr()
                .add(state.group_id[0])
                .write(sum + *last as usize);
        }
    }
}

#[test]
fn local_memory_is_the_group_s_own() {
    let executor = executor(4);
    let mut lane = TestLane::new(&executor);
    let sums: Vec<AtomicUsize> = (0..500).map(|_| AtomicUsize::new(0)).collect();
    let mut args = Args::default();
    pointer(&mut args, 0, &sums[0]);
    args.local(1, 16 * 4);
    args.value(2, &0.5f64.to_ne_bytes());
    args.local(3, 8);
    assert_eq!(args.local_bytes(), 256);
    lane.submit(launch(sum_in_group, line(8000, 16), args))
        .block()
        .expect("the executor runs");
    for (group, sum) in sums.iter().enumerate() {
        let expected = (group * 16..group * 16 + 16).sum::<usize>() + 15;
        assert_eq!(sum.load(Ordering::Relaxed), expected, "group {group}");
    }
}

#[test]
fn values_are_aligned_as_their_size_may_need() {
    let mut args = Args::default();
    for (index, bytes) in [1, 64, 3, 128, 200, 0, 32].into_iter().enumerate() {
        args.value(index, &vec![index as u8; bytes]);
    }
    args.pointer(9, 0);
    let executor = executor(1);
    let mut lane = TestLane::new(&executor);
    /// args: seven values, then nothing.
    unsafe extern "C" fn check(args: *const *const c_void, _: *mut WorkItemState) {
        for (index, align) in [(0, 8), (1, 64), (2, 8), (3, 128), (4, 128), (6, 32)] {
            // SAFETY: the test passes these arguments.
            let address = unsafe { *args.add(index) };
            assert_eq!(address.addr() % align, 0, "argument {index}");
            // SAFETY: each holds its index in its first byte.
            assert_eq!(unsafe { *address.cast::<u8>() }, index as u8);
        }
        // SAFETY: the test passes ten arguments, two of which it left out.
        unsafe {
            assert_eq!(arg::<[u64; 512]>(args, 7), &[0; 512]);
            assert_eq!(arg::<[u64; 512]>(args, 8), &[0; 512]);
        }
    }
    lane.submit(launch(check, line(1, 1), args))
        .block()
        .expect("the executor runs");
}

#[test]
fn arguments_are_counted_up_to_a_missing_one() {
    let mut args = Args::with_capacity(4);
    assert_eq!(args.count(), Some(0));
    args.pointer(0, 0);
    args.value(1, &[7]);
    args.local(2, 64);
    assert_eq!(args.count(), Some(3));
    args.value(4, &[7]);
    assert_eq!(args.count(), None);
    args.pointer(3, 0);
    assert_eq!(args.count(), Some(5));
}

#[test]
fn missing_arguments_behind_the_last_one_are_zeros() {
    unsafe extern "C" fn check(args: *const *const c_void, _: *mut WorkItemState) {
        // SAFETY: a launch has room for 32 arguments behind the last one given.
        unsafe {
            assert_eq!(arg::<u64>(args, 0), &5);
            for index in 2..=32 {
                assert_eq!(arg::<[u64; 512]>(args, index), &[0; 512], "{index}");
            }
        }
    }
    let executor = executor(2);
    let mut lane = TestLane::new(&executor);
    for local in [false, true] {
        let mut args = Args::with_capacity(1);
        args.value(0, &5u64.to_ne_bytes());
        if local {
            // Each thread gets a copy of the arguments, with its own local memory.
            args.local(1, 64);
        }
        let done = lane.submit(launch(check, line(4, 1), args));
        done.block().expect("the executor runs");
    }
}

#[test]
fn a_function_of_whole_groups_is_called_once_a_group() {
    let executor = executor(2);
    let mut lane = TestLane::new(&executor);
    let list: Mutex<Vec<WorkItemState>> = Mutex::default();
    let mut args = Args::default();
    pointer(&mut args, 0, &list);
    let range = NdRange {
        offset: [1, 0, 0],
        groups: [3, 2, 1],
        local: [8, 4, 2],
    };
    // SAFETY: the kernel only notes its state.
    let launch = unsafe { Launch::new(record_state, Form::Group, range, args, None) };
    let done = lane.submit(Command::Launch(Arc::new(launch)));
    done.block().expect("the executor runs");
    let mut states = list.into_inner().expect("no panic");
    states.sort_by_key(|state| state.group_id);
    let groups: Vec<_> = states.iter().map(|state| state.group_id).collect();
    let expected = [
        [0, 0, 0],
        [0, 1, 0],
        [1, 0, 0],
        [1, 1, 0],
        [2, 0, 0],
        [2, 1, 0],
    ];
    assert_eq!(groups, expected);
    assert_eq!(states[4].global_id, [17, 0, 0]);
    assert!(
        states
            .iter()
            .all(|state| state.local_id == [0; 3] && state.sub_groups == 64)
    );
}
