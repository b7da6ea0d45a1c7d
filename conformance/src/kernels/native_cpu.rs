//! Kernels for the host's CPU: functions of this program.
//!
//! They stand in a table of names and pointers that ends with a null entry, as DPC++ emits it. The state has
//! the layout of DPC++'s runtime.

use super::{ALL, Ids, KernelProvider, Source, Triple, Variable};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct NativeCpu;

impl KernelProvider for NativeCpu {
    fn source(&self, _: bool) -> Source {
        Source::Binary {
            data: (&raw const TABLE).cast(),
            size: size_of_val(&TABLE),
        }
    }

    fn argument_counts(&self) -> &'static [(&'static CStr, u32)] {
        &[
            (c"iota@num_args", 2),
            (c"add@num_args", 2),
            (c"sum@num_args", 3),
            (c"verify@num_args", 3),
            (c"ids@num_args", 1),
            (c"through_local@num_args", 2),
            (c"mixed@num_args", 6),
            (c"reach@num_args", 2),
        ]
    }

    fn tells_argument_sizes(&self) -> bool {
        false
    }

    /// The C library as a program, with `opterr` as its global variable.
    ///
    /// A program may be the path of a shared object. The C library always exists, and nothing here reads
    /// `opterr`.
    fn variable(&self) -> Option<Variable> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let paths = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]));
        let path = paths.into_iter().find(|path| path.contains("/libc.so"))?;
        let mut binary = path.as_bytes().to_vec();
        binary.push(0);
        Some(Variable {
            binary,
            name: c"opterr",
            size: size_of::<std::ffi::c_int>(),
        })
    }
}

/// A work-item's position, as the runtime gives it to the kernel.
#[repr(C)]
pub struct WorkItemState {
    global_id: [usize; 3],
    global_range: [usize; 3],
    group_size: [usize; 3],
    group_id: [usize; 3],
    local_id: [usize; 3],
    groups: [usize; 3],
    offset: [usize; 3],
    sub_groups: u32,
    sub_group_id: u32,
    sub_group_local_id: u32,
    sub_group_size: u32,
}

/// An argument: a pointer argument itself, or the address of a value's bytes.
type Function = unsafe extern "C" fn(args: *const *mut c_void, state: *mut WorkItemState);

#[repr(C)]
struct Entry {
    name: *const c_char,
    function: Option<Function>,
}

// SAFETY: the entries point to static names and functions only.
unsafe impl Sync for Entry {}

const fn entry(index: usize, function: Function) -> Entry {
    Entry {
        name: ALL[index].as_ptr(),
        function: Some(function),
    }
}

static TABLE: [Entry; ALL.len() + 1] = [
    entry(0, iota),
    entry(1, add),
    entry(2, sum),
    entry(3, verify),
    entry(4, ids),
    entry(5, through_local),
    entry(6, mixed),
    entry(7, reach),
    Entry {
        name: std::ptr::null(),
        function: None,
    },
];

/// A pointer argument.
///
/// # Safety
/// `args` has more than `index` entries, and that one is a pointer argument.
unsafe fn pointer<T>(args: *const *mut c_void, index: usize) -> *mut T {
    // SAFETY: the caller passes an index of such an argument.
    unsafe { *args.add(index) }.cast()
}

/// A value argument.
///
/// # Safety
/// `args` has more than `index` entries, and that one is a `T` by value.
unsafe fn value<T: Copy>(args: *const *mut c_void, index: usize) -> T {
    // SAFETY: the caller passes an index of such an argument.
    unsafe { (*args.add(index)).cast::<T>().read_unaligned() }
}

/// The linear position of a work-item, without its offset.
///
/// # Safety
/// `state` points to the work-item's state.
unsafe fn position(state: *const WorkItemState) -> usize {
    // SAFETY: the caller passes a work-item's state.
    let state = unsafe { &*state };
    let at = |d: usize| state.global_id[d] - state.offset[d];
    (at(2) * state.global_range[1] + at(1)) * state.global_range[0] + at(0)
}

unsafe extern "C" fn iota(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `iota(u32 *out, u32 base)` with room for every work-item.
    unsafe {
        let at = position(state);
        let base = value::<u32>(args, 1);
        pointer::<u32>(args, 0)
            .add(at)
            .write(base.wrapping_add(at as u32));
    }
}

unsafe extern "C" fn add(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `add(u32 *data, u32 amount)` with an element for every work-item.
    unsafe {
        let at = pointer::<u32>(args, 0).add(position(state));
        at.write(at.read().wrapping_add(value::<u32>(args, 1)));
    }
}

unsafe extern "C" fn sum(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `sum(u32 *out, u32 *a, u32 *b)` with an element for every work-item.
    unsafe {
        let at = position(state);
        let total = pointer::<u32>(args, 1)
            .add(at)
            .read()
            .wrapping_add(pointer::<u32>(args, 2).add(at).read());
        pointer::<u32>(args, 0).add(at).write(total);
    }
}

unsafe extern "C" fn verify(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `verify(u32 *data, u32 base, u32 *wrong)`, with an element for every work-item and
    // an aligned counter that is accessed through atomics only.
    unsafe {
        let at = position(state);
        let want = value::<u32>(args, 1).wrapping_add(at as u32);
        if pointer::<u32>(args, 0).add(at).read() != want {
            AtomicU32::from_ptr(pointer::<u32>(args, 2)).fetch_add(1, Ordering::Relaxed);
        }
    }
}

unsafe extern "C" fn ids(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `ids(Ids *out)` with a record for every work-item.
    unsafe {
        let record = {
            let state = &*state;
            let small = |wide: [usize; 3]| wide.map(|number| number as u32);
            Ids {
                global: small(state.global_id),
                local: small(state.local_id),
                group: small(state.group_id),
                range: small(state.global_range),
                size: small(state.group_size),
                groups: small(state.groups),
                offset: small(state.offset),
            }
        };
        pointer::<Ids>(args, 0).add(position(state)).write(record);
    }
}

unsafe extern "C" fn through_local(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `through_local(u32 *out, u32 *scratch)`, with an element of `out` for every
    // work-item and one of `scratch` for every work-item of a group.
    unsafe {
        let local = (*state).local_id[0];
        let scratch = pointer::<u32>(args, 1).add(local);
        scratch.write_volatile(local as u32);
        pointer::<u32>(args, 0)
            .add(position(state))
            .write(scratch.read_volatile());
    }
}

unsafe extern "C" fn mixed(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `mixed(u64 *out, u8, u16, u32, u64, Triple)`.
    unsafe {
        let triple = value::<Triple>(args, 5);
        let total = u64::from(value::<u8>(args, 1))
            + u64::from(value::<u16>(args, 2))
            + u64::from(value::<u32>(args, 3))
            + value::<u64>(args, 4)
            + u64::from(triple.a)
            + triple.b
            + u64::from(triple.c);
        pointer::<u64>(args, 0).add(position(state)).write(total);
    }
}

unsafe extern "C" fn reach(args: *const *mut c_void, state: *mut WorkItemState) {
    // SAFETY: launched as `reach(const u64 *addresses, u32 amount)` with the address of a word for every work-item.
    unsafe {
        let address = pointer::<u64>(args, 0).add(position(state)).read();
        let word = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
        word.write(word.read().wrapping_add(value::<u32>(args, 1)));
    }
}
