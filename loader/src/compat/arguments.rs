//! Kernel arguments that were set one at a time.
//!
//! Owns the table from kernel to arguments. The kernel's first argument creates an entry. The entry
//! ends at the kernel's last release, when a new kernel gets its address, or when the loader is
//! torn down. Programs that set no argument this way pay one load of a counter.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ur::abi::*;

static KERNELS: Mutex<BTreeMap<usize, Kernel>> = Mutex::new(BTreeMap::new());

/// The number of entries in [`KERNELS`]; at 0 no lock is taken.
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Kernel {
    /// An upper bound of the application's references to the kernel. A stale entry does no harm,
    /// since a new kernel replaces it. An entry removed too early would lose arguments.
    references: u32,
    arguments: Arc<Arguments>,
}

/// A kernel's arguments by index.
#[derive(Clone, Default)]
pub struct Arguments {
    by_index: BTreeMap<u32, Argument>,
}

#[derive(Clone)]
pub enum Argument {
    Value(Value),
    /// A USM pointer.
    Pointer(Opaque),
    MemObj {
        handle: Opaque,
        access: ur_mem_flags_t,
    },
    /// Bytes of local memory.
    Local(usize),
    Sampler(Opaque),
}

/// Plain data, copied to storage aligned for every kernel argument type.
#[derive(Clone)]
pub struct Value {
    storage: Box<[u128]>,
    size: usize,
}

/// A pointer or handle that is forwarded and never dereferenced.
#[derive(Clone, Copy)]
pub struct Opaque(pub *mut c_void);

// SAFETY: the pointer is never dereferenced, and the specification allows handles on every thread.
unsafe impl Send for Opaque {}
// SAFETY: the pointer is never dereferenced, and the specification allows handles on every thread.
unsafe impl Sync for Opaque {}

impl Value {
    pub fn new(bytes: &[u8]) -> Value {
        let mut storage = vec![0u128; bytes.len().div_ceil(size_of::<u128>())].into_boxed_slice();
        // SAFETY: `storage` has at least `bytes.len()` bytes and is a new allocation.
        unsafe {
            storage
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Value {
            storage,
            size: bytes.len(),
        }
    }
}

impl Arguments {
    /// The list for the current launch functions, by ascending index. It points into `self`.
    pub fn list(&self) -> Vec<ur_exp_kernel_arg_properties_t> {
        self.by_index
            .iter()
            .map(|(&index, argument)| argument.properties(index))
            .collect()
    }
}

impl Argument {
    fn properties(&self, index: u32) -> ur_exp_kernel_arg_properties_t {
        let pointer_size = size_of::<*const c_void>();
        let (r#type, size, value) = match self {
            Argument::Value(value) => (
                UR_EXP_KERNEL_ARG_TYPE_VALUE,
                value.size,
                ur_exp_kernel_arg_value_t {
                    value: value.storage.as_ptr().cast(),
                },
            ),
            Argument::Pointer(pointer) => (
                UR_EXP_KERNEL_ARG_TYPE_POINTER,
                pointer_size,
                ur_exp_kernel_arg_value_t { pointer: pointer.0 },
            ),
            Argument::MemObj { handle, access } => (
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ,
                pointer_size,
                ur_exp_kernel_arg_value_t {
                    memObjTuple: ur_exp_kernel_arg_mem_obj_tuple_t {
                        hMem: handle.0.cast(),
                        flags: *access,
                    },
                },
            ),
            Argument::Local(size) => (
                UR_EXP_KERNEL_ARG_TYPE_LOCAL,
                *size,
                ur_exp_kernel_arg_value_t {
                    value: std::ptr::null(),
                },
            ),
            Argument::Sampler(handle) => (
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER,
                pointer_size,
                ur_exp_kernel_arg_value_t {
                    sampler: handle.0.cast(),
                },
            ),
        };
        ur_exp_kernel_arg_properties_t {
            r#type,
            index,
            size,
            value,
            ..ur_exp_kernel_arg_properties_t::default()
        }
    }
}

/// Sets an argument. `references` queries the kernel's reference count; it is called for the first
/// argument only.
pub fn set(
    kernel: ur_kernel_handle_t,
    index: u32,
    argument: Argument,
    references: impl FnOnce() -> u32,
) {
    // Count the entry before the query. A concurrent retain or release then waits for the lock, and
    // is at worst counted twice.
    COUNT.fetch_add(1, Ordering::SeqCst);
    let mut kernels = lock();
    let entry = kernels.entry(key(kernel)).or_insert_with(|| Kernel {
        references: references().max(1),
        arguments: Arc::default(),
    });
    Arc::make_mut(&mut entry.arguments)
        .by_index
        .insert(index, argument);
    COUNT.store(kernels.len(), Ordering::SeqCst);
}

/// The kernel's stored arguments; none if no argument was set.
pub fn of(kernel: ur_kernel_handle_t) -> Option<Arc<Arguments>> {
    if COUNT.load(Ordering::SeqCst) == 0 {
        return None;
    }
    lock()
        .get(&key(kernel))
        .map(|entry| Arc::clone(&entry.arguments))
}

/// Counts a reference that the application has added.
pub fn retained(kernel: ur_kernel_handle_t) {
    if COUNT.load(Ordering::SeqCst) != 0
        && let Some(entry) = lock().get_mut(&key(kernel))
    {
        entry.references = entry.references.saturating_add(1);
    }
}

/// Counts a reference that the application is about to release.
pub fn released(kernel: ur_kernel_handle_t) {
    if COUNT.load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut kernels = lock();
    if let Some(entry) = kernels.get_mut(&key(kernel)) {
        entry.references = entry.references.saturating_sub(1);
        if entry.references == 0 {
            kernels.remove(&key(kernel));
            COUNT.store(kernels.len(), Ordering::SeqCst);
        }
    }
}

/// Drops the arguments of an earlier kernel at the address of a new one.
pub fn created(kernel: ur_kernel_handle_t) {
    if COUNT.load(Ordering::SeqCst) != 0 {
        let mut kernels = lock();
        kernels.remove(&key(kernel));
        COUNT.store(kernels.len(), Ordering::SeqCst);
    }
}

pub fn clear() {
    let mut kernels = lock();
    kernels.clear();
    COUNT.store(0, Ordering::SeqCst);
}

fn key(kernel: ur_kernel_handle_t) -> usize {
    kernel.addr()
}

fn lock() -> MutexGuard<'static, BTreeMap<usize, Kernel>> {
    KERNELS.lock().unwrap_or_else(PoisonError::into_inner)
}
