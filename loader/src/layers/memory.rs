//! Memory that the application has, and what else a program makes and must end that is no handle
//! with references: records by address. `classes` has the functions that make and end each.
//!
//! Owns [`Memory`], which layers that need records have one of each, and the description of an
//! allocation in messages. Must never know what a layer reports.
//!
//! | state of a record | left by |
//! |---|---|
//! | live | a free, or new memory at its address, which implies a free that was not seen |
//! | live, and its context released | a free |
//!
//! Memory in a live allocation belongs to a pool over it. Both are live. Records of different classes
//! do not replace each other.

mod classes;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ur::abi::*;

use super::maker::{Handle, Maker, Makers};
use super::parents;

pub use self::classes::{ALLOCATES, Class, Ended, FREES};

/// What a successful call made.
#[derive(Clone, Copy)]
pub struct Returned {
    class: Class,
    at: At,
    size: Option<usize>,
    kind: &'static str,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    queue: ur_queue_handle_t,
}

/// Where a call has the address of what it made.
#[derive(Clone, Copy)]
enum At {
    Output(*const *mut c_void),
    /// A number that is no address.
    Number(*const usize),
    /// The caller's own memory.
    Argument(*mut c_void),
}

impl Returned {
    /// Memory of `size` bytes whose address is behind `output`. `kind` is a noun for messages.
    const fn new(kind: &'static str, output: *mut *mut c_void, size: Option<usize>) -> Returned {
        Returned::at(kind, At::Output(output.cast_const()), size)
    }

    /// A handle that is a number, behind `output`.
    const fn number(kind: &'static str, output: *mut usize) -> Returned {
        Returned::at(kind, At::Number(output.cast_const()), None)
    }

    /// The caller's own memory of `size` bytes.
    const fn given(kind: &'static str, memory: *mut c_void, size: usize) -> Returned {
        Returned::at(kind, At::Argument(memory), Some(size))
    }

    const fn at(kind: &'static str, at: At, size: Option<usize>) -> Returned {
        Returned {
            class: Class::Memory,
            at,
            size,
            kind,
            context: std::ptr::null_mut(),
            device: std::ptr::null_mut(),
            queue: std::ptr::null_mut(),
        }
    }

    const fn of(mut self, class: Class) -> Returned {
        self.class = class;
        self
    }

    const fn within(self, context: ur_context_handle_t) -> Returned {
        self.on(context, std::ptr::null_mut())
    }

    const fn on(mut self, context: ur_context_handle_t, device: ur_device_handle_t) -> Returned {
        self.context = context;
        self.device = device;
        self
    }

    const fn queued(mut self, queue: ur_queue_handle_t) -> Returned {
        self.queue = queue;
        self
    }
}

/// The value of an output; none through a null pointer. Some adapters accept outputs that are not
/// aligned.
///
/// # Safety
/// The pointer is null or readable.
pub unsafe fn written<T: Copy>(output: *const T) -> Option<T> {
    // SAFETY: not null, and the caller guarantees a readable pointer.
    (!output.is_null()).then(|| unsafe { output.read_unaligned() })
}

/// The context of a queue, if the adapter reports it.
///
/// # Safety
/// The queue is null or live.
pub unsafe fn context_of_queue(
    table: &ur_dditable_t,
    queue: ur_queue_handle_t,
) -> Option<ur_context_handle_t> {
    let get_info = table.Queue.pfnGetInfo.filter(|_| !queue.is_null())?;
    let mut context: ur_context_handle_t = std::ptr::null_mut();
    let what = UR_QUEUE_INFO_CONTEXT;
    let value = (&raw mut context).cast();
    let none = std::ptr::null_mut();
    // SAFETY: the value has the size of its property; the caller guarantees a live queue.
    let result = unsafe { get_info(queue, what, size_of_val(&context), value, none) };
    (result == UR_RESULT_SUCCESS && !context.is_null()).then_some(context)
}

/// An allocation, as messages describe it. A handle that there is not has the address 0.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    pub class: Class,
    /// The address, or the number of a handle that is none.
    pub address: usize,
    /// The size in bytes, if it is known.
    pub size: Option<usize>,
    /// A noun: `device memory`.
    pub kind: &'static str,
    /// Whether `address` is a number that is no address.
    pub is_number: bool,
    /// None if the layer did not see the allocation.
    pub maker: Option<Maker>,
    pub context: Handle,
    pub device: Handle,
    pub queue: Handle,
}

impl Allocation {
    /// The memory that a call returned; none without an address.
    ///
    /// # Safety
    /// The call succeeded, and its queue is live.
    pub unsafe fn read(returned: &Returned, table: Option<&ur_dditable_t>) -> Option<Allocation> {
        // SAFETY: the specification has the output null or written by a call that succeeded.
        let address = unsafe {
            match returned.at {
                At::Output(output) => written(output)?.addr(),
                At::Number(output) => written(output)?,
                At::Argument(memory) => memory.addr(),
            }
        };
        let queue = returned.queue;
        let context = match returned.context.is_null() {
            // SAFETY: the caller guarantees a live queue.
            true => table.and_then(|table| unsafe { context_of_queue(table, queue) }),
            false => Some(returned.context),
        };
        (address != 0).then_some(Allocation {
            class: returned.class,
            is_number: matches!(returned.at, At::Number(_)),
            address,
            size: returned.size,
            kind: returned.kind,
            maker: None,
            context: context.map_or(Handle::NONE, |context| parents::of(context.addr())),
            device: parents::of(returned.device.addr()),
            queue: parents::of(queue.addr()),
        })
    }

    fn end(&self) -> usize {
        self.address.saturating_add(self.size.unwrap_or(1).max(1))
    }

    /// Whether memory lies in this allocation, as a part of it.
    fn encloses(&self, inner: &Allocation) -> bool {
        let is_within = self.address <= inner.address && inner.end() <= self.end();
        is_within && self.size > inner.size
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(size) = self.size {
            write!(out, "{size} bytes of ")?;
        }
        let (kind, address, maker) = (self.kind, self.address, self.maker);
        let link = if self.is_number { " " } else { " at " };
        write!(out, "{kind}{link}{}", Handle { address, maker })?;
        for (word, handle) in [
            ("on queue", self.queue),
            ("on device", self.device),
            ("in context", self.context),
        ] {
            if handle.address != 0 {
                write!(out, ", {word} {handle}")?;
            }
        }
        Ok(())
    }
}

struct Entry<T> {
    allocation: Allocation,
    more: T,
    serial: u64,
    /// Whether the application has released the context. The adapter may then have freed the
    /// memory, and use its address again.
    context_released: bool,
}

struct KnownMemory<T> {
    /// By address; memory in other memory comes after it.
    live: BTreeMap<usize, Vec<Entry<T>>>,
    /// Memory of released contexts, whose addresses are in use again.
    replaced: Vec<Entry<T>>,
    makers: Makers,
    serials: u64,
}

/// Memory that was never freed.
pub struct Unfreed<T> {
    pub allocation: Allocation,
    pub more: T,
}

/// A free whose adapter call is in progress. [`Memory::restore`] undoes it.
pub struct PendingFree<T>(Entry<T>);

/// Records of live memory, each with what a layer knows of it beyond the allocation.
pub struct Memory<T>(Mutex<KnownMemory<T>>);

impl<T> Memory<T> {
    pub const fn new() -> Memory<T> {
        Memory(Mutex::new(KnownMemory {
            live: BTreeMap::new(),
            replaced: Vec::new(),
            makers: Makers::new(),
            serials: 0,
        }))
    }

    fn state(&self) -> MutexGuard<'_, KnownMemory<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records memory that `function` returned.
    pub fn allocated(&self, function: &'static str, mut allocation: Allocation, more: T) {
        let mut state = self.state();
        state.remove_overlapping(&allocation);
        allocation.maker = Some(state.makers.made(function));
        state.serials += 1;
        let entry = Entry {
            allocation,
            more,
            serial: state.serials,
            context_released: false,
        };
        state
            .live
            .entry(allocation.address)
            .or_default()
            .push(entry);
    }

    /// Records a free. It must be called before the adapter, since other memory may get the address
    /// afterwards. None if the memory is not known.
    pub fn freed(&self, ended: Ended) -> Option<PendingFree<T>> {
        let Ended { class, address } = ended;
        let mut state = self.state();
        let entries = state.live.get_mut(&address)?;
        let of_class = |entry: &Entry<T>| entry.allocation.class == class;
        let entry = entries.remove(entries.iter().rposition(of_class)?);
        if entries.is_empty() {
            state.live.remove(&address);
        }
        Some(PendingFree(entry))
    }

    /// Undoes a free that failed.
    pub fn restore(&self, PendingFree(entry): PendingFree<T>) {
        let mut state = self.state();
        let address = entry.allocation.address;
        state.live.entry(address).or_default().push(entry);
    }

    /// Records that the application released its last reference to a context.
    pub fn context_released(&self, context: usize) {
        for entry in self.state().live.values_mut().flatten() {
            entry.context_released |= entry.allocation.context.address == context;
        }
    }

    /// The live memory that begins at an address.
    pub fn at(&self, address: usize) -> Option<Allocation> {
        let state = self.state();
        let entries = state.live.get(&address)?.iter().rev();
        let mut found = entries.map(|entry| entry.allocation);
        found.find(|allocation| !allocation.is_number)
    }

    /// Removes all records, and returns the memory that was never freed, oldest first.
    pub fn clear(&self) -> Vec<Unfreed<T>> {
        let mut state = self.state();
        state.makers = Makers::new();
        let mut entries = std::mem::take(&mut state.replaced);
        entries.extend(std::mem::take(&mut state.live).into_values().flatten());
        drop(state);
        entries.sort_by_key(|entry| entry.serial);
        let unfreed = entries.into_iter().map(|entry| Unfreed {
            allocation: entry.allocation,
            more: entry.more,
        });
        unfreed.collect()
    }
}

impl<T> KnownMemory<T> {
    /// Removes records of memory that new memory replaces. Memory of released contexts is kept as
    /// never freed.
    fn remove_overlapping(&mut self, new: &Allocation) {
        let reaches =
            |entries: &Vec<Entry<T>>| entries.iter().any(|old| old.allocation.end() > new.address);
        let overlapping: Vec<usize> = self
            .live
            .range(..new.end())
            .rev()
            .take_while(|(base, entries)| **base >= new.address || reaches(entries))
            .map(|(base, _)| *base)
            .collect();
        for base in overlapping {
            let entries = self.live.remove(&base).unwrap_or_default();
            let (kept, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| {
                let old = &entry.allocation;
                let is_other = old.class != new.class || old.end() <= new.address;
                is_other || (old.encloses(new) && !entry.context_released)
            });
            if !kept.is_empty() {
                self.live.insert(base, kept);
            }
            let never_freed = gone.into_iter().filter(|old| old.context_released);
            self.replaced.extend(never_freed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(address: usize, size: usize, context: usize) -> Allocation {
        Allocation {
            class: Class::Memory,
            address,
            size: Some(size),
            kind: "device memory",
            is_number: false,
            maker: None,
            context: unseen(context),
            device: unseen(0xd0),
            queue: Handle::NONE,
        }
    }

    fn unseen(address: usize) -> Handle {
        let maker = None;
        Handle { address, maker }
    }

    fn at(address: usize) -> Ended {
        let class = Class::Memory;
        Ended { class, address }
    }

    /// Memory that was never freed, as `address/size`.
    fn unfreed(memory: &Memory<()>) -> Vec<String> {
        let text = |unfreed: Unfreed<()>| {
            let Allocation { address, size, .. } = unfreed.allocation;
            format!("{address:#x}/{}", size.unwrap_or_default())
        };
        memory.clear().into_iter().map(text).collect()
    }

    #[test]
    fn freed_memory_is_not_unfreed() {
        let memory = Memory::new();
        for address in [0x100, 0x200, 0x300] {
            memory.allocated("alloc", allocation(address, 0x40, 0xc0), ());
        }
        assert!(memory.freed(at(0x110)).is_none(), "not the start");
        assert!(memory.freed(at(0x100)).is_some());
        assert!(memory.freed(at(0x100)).is_none(), "freed already");
        let refused = memory.freed(at(0x200)).expect("live");
        memory.restore(refused);
        assert_eq!(unfreed(&memory), ["0x200/64", "0x300/64"]);
        assert!(unfreed(&memory).is_empty());
    }

    #[test]
    fn new_memory_implies_a_free_that_was_not_seen() {
        let memory = Memory::new();
        memory.allocated("alloc", allocation(0x100, 0x40, 0xc0), ());
        memory.allocated("alloc", allocation(0x180, 0x40, 0xc0), ());
        memory.allocated("alloc", allocation(0x120, 0x100, 0xc0), ());
        assert_eq!(unfreed(&memory), ["0x120/256"]);
    }

    #[test]
    fn memory_of_a_released_context_is_not_freed_by_new_memory() {
        let memory = Memory::new();
        memory.allocated("alloc", allocation(0x100, 0x40, 0xc0), ());
        memory.allocated("alloc", allocation(0x200, 0x40, 0xc1), ());
        memory.context_released(0xc0);
        // The adapter returns the address again, in a new context at the old one's address.
        memory.allocated("alloc", allocation(0x100, 0x20, 0xc0), ());
        assert!(memory.freed(at(0x100)).is_some());
        assert_eq!(unfreed(&memory), ["0x100/64", "0x200/64"]);
    }

    #[test]
    fn memory_of_a_pool_over_memory_is_freed_first() {
        let memory = Memory::new();
        memory.allocated("alloc", allocation(0x100, 0x100, 0xc0), ());
        memory.allocated("inner", allocation(0x100, 0x40, 0xc0), ());
        memory.allocated("inner", allocation(0x180, 0x40, 0xc0), ());
        for address in [0x100, 0x180] {
            assert!(memory.freed(at(address)).is_some());
        }
        assert_eq!(memory.at(0x100).and_then(|outer| outer.size), Some(0x100));
        assert!(memory.freed(at(0x100)).is_some());
        assert!(unfreed(&memory).is_empty());
    }

    #[test]
    fn descriptions_name_what_made_the_memory_and_where() {
        let memory = Memory::new();
        for at in [0x100, 0x200] {
            memory.allocated("urUSMDeviceAlloc", allocation(at, 64, 0xc0), ());
        }
        let text = |at| memory.at(at).map(|found| found.to_string());
        assert_eq!(
            text(0x200).as_deref(),
            Some(
                "64 bytes of device memory at 0x200, 2nd of urUSMDeviceAlloc, on device 0xd0, \
                 in context 0xc0"
            )
        );
        let unseen = Allocation {
            size: None,
            kind: "memory of another process",
            device: Handle::NONE,
            queue: Handle {
                maker: Some(Makers::new().made("urQueueCreate")),
                ..unseen(0xa0)
            },
            ..allocation(0x300, 0, 0xc0)
        };
        assert_eq!(
            unseen.to_string(),
            "memory of another process at 0x300, on queue 0xa0, 1st of urQueueCreate, in context 0xc0"
        );
        assert_eq!(text(0x300), None);
    }

    #[test]
    fn a_class_is_ended_by_its_own_functions() {
        let memory = Memory::new();
        for class in Class::ALL {
            let made = Allocation {
                class: *class,
                ..allocation(0x100, 0x40, 0xc0)
            };
            memory.allocated("make", made, ());
        }
        let is_live = |class| {
            let address = 0x100;
            let pending = memory.freed(Ended { class, address });
            pending.map(|pending| memory.restore(pending)).is_some()
        };
        for class in Class::ALL {
            assert!(is_live(*class), "{class:?}");
        }
        let address = 0x100;
        let class = Class::Import;
        assert!(memory.freed(Ended { class, address }).is_some());
        assert!(!is_live(Class::Import) && is_live(Class::Registration) && is_live(Class::Memory));
        assert_eq!(memory.clear().len(), Class::ALL.len() - 1);
    }

    #[test]
    fn each_class_has_functions_that_make_and_end_it() {
        let count = |rows: &[bool]| rows.iter().filter(|row| **row).count();
        let makers: Vec<bool> = ALLOCATES.iter().map(Option::is_some).collect();
        let enders: Vec<bool> = FREES.iter().map(Option::is_some).collect();
        assert_eq!((count(&makers), count(&enders)), (20, 15));
        assert!(
            makers
                .iter()
                .zip(&enders)
                .all(|(made, ended)| !(*made && *ended))
        );
    }
}
