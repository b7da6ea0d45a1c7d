//! The handle header. A handle is the address of an [`Object`], which always lives in an `Arc`.
//!
//! There are two counts. `api_refs` counts `ur*Retain` and `ur*Release`; all API references
//! together hold one Rust reference. An object that others keep alive survives its last API
//! release, and a handle obtained through a query may be retained again.
//!
//! | from | to | by |
//! |---|---|---|
//! | no API reference | one | `into_handle` of a new object, `retain` |
//! | n | n + 1, n - 1 | `retain`, `release` |
//! | one | none | `release`: `Body::released` runs, the API's Rust reference is dropped |

use super::spare::SpareMemory;
use super::{Error, Result, census, ensure};
use crate::abi::*;
use std::alloc::Layout;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The kind of the object behind a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    Adapter = 1,
    Platform,
    Device,
    Context,
    Event,
    Program,
    Kernel,
    Queue,
    Sampler,
    Mem,
    PhysicalMem,
    UsmPool,
    ExternalMem,
    ExternalSemaphore,
    CommandBuffer,
    CommandBufferCommand,
    Graph,
    ExecutableGraph,
}

impl Kind {
    pub const ALL: [Self; 18] = [
        Self::Adapter,
        Self::Platform,
        Self::Device,
        Self::Context,
        Self::Event,
        Self::Program,
        Self::Kernel,
        Self::Queue,
        Self::Sampler,
        Self::Mem,
        Self::PhysicalMem,
        Self::UsmPool,
        Self::ExternalMem,
        Self::ExternalSemaphore,
        Self::CommandBuffer,
        Self::CommandBufferCommand,
        Self::Graph,
        Self::ExecutableGraph,
    ];

    /// The error for a handle of another kind or of another adapter.
    pub const fn invalid(self) -> ur_result_t {
        match self {
            Self::Platform => UR_RESULT_ERROR_INVALID_PLATFORM,
            Self::Device => UR_RESULT_ERROR_INVALID_DEVICE,
            Self::Context => UR_RESULT_ERROR_INVALID_CONTEXT,
            Self::Event => UR_RESULT_ERROR_INVALID_EVENT,
            Self::Program => UR_RESULT_ERROR_INVALID_PROGRAM,
            Self::Kernel => UR_RESULT_ERROR_INVALID_KERNEL,
            Self::Queue => UR_RESULT_ERROR_INVALID_QUEUE,
            Self::Sampler => UR_RESULT_ERROR_INVALID_SAMPLER,
            Self::Mem | Self::PhysicalMem => UR_RESULT_ERROR_INVALID_MEM_OBJECT,
            Self::CommandBuffer => UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_EXP,
            Self::CommandBufferCommand => UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP,
            Self::Graph | Self::ExecutableGraph => UR_RESULT_ERROR_INVALID_GRAPH,
            Self::Adapter | Self::UsmPool | Self::ExternalMem | Self::ExternalSemaphore => {
                UR_RESULT_ERROR_INVALID_VALUE
            }
        }
    }
}

/// The body of an object, behind the header of its handle.
pub trait Body: Sized + Send + Sync + 'static {
    const KIND: Kind;

    /// Called when the last API reference is released. The object lives on while others hold it.
    /// Not called for events, which come and go with every command.
    fn released(_this: &Object<Self>) {}
}

/// The header of every handle.
#[repr(C)]
struct Head {
    ddi: &'static ur_dditable_t,
    kind: u32,
}

/// The object behind a handle. Its first word is read by the loader and points to the adapter's
/// table.
#[repr(C)]
pub struct Object<T> {
    ddi: &'static ur_dditable_t,
    kind: u32,
    api_refs: AtomicU32,
    immortal: bool,
    body: T,
}

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.body
    }
}

impl<T: Body> Object<T> {
    /// A new object without API references, to be returned through an output or kept inside.
    pub fn new(ddi: &'static ur_dditable_t, body: T) -> Arc<Self> {
        census::slot().count(T::KIND as u32, 1);
        Arc::new(Self {
            ddi,
            kind: T::KIND as u32,
            api_refs: AtomicU32::new(0),
            immortal: false,
            body,
        })
    }

    /// An object that lives as long as its adapter: retain and release succeed and change nothing,
    /// and its reference count reads 1.
    pub fn immortal(ddi: &'static ur_dditable_t, body: T) -> Arc<Self> {
        Arc::new(Self {
            ddi,
            kind: T::KIND as u32,
            api_refs: AtomicU32::new(1),
            immortal: true,
            body,
        })
    }

    /// Another Rust reference to this object.
    pub fn arc(&self) -> Arc<Self> {
        // SAFETY: `new` and `immortal` are the only constructors and create every object in an
        // `Arc`. `self` is a live reference.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// The number of API references.
    pub fn api_refs(&self) -> u32 {
        self.api_refs.load(Ordering::Relaxed)
    }

    /// The handle that C sees. Adds no reference.
    pub fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The handle with one more API reference.
    pub fn into_handle(self: &Arc<Self>) -> *mut c_void {
        self.retain();
        self.handle()
    }

    /// The handle of a new object with one API reference. Its memory is allocated first, so that
    /// `body` is constructed in place.
    #[inline]
    pub fn new_handle(ddi: &'static ur_dditable_t, body: impl FnOnce() -> T) -> *mut c_void {
        let slot = census::slot();
        slot.count(T::KIND as u32, 1);
        let object = Self::memory(&slot.spares);
        // SAFETY: the memory is new and has no other reference; all fields are written. A panic in
        // `body` leaks the memory.
        unsafe {
            (&raw mut (*object).ddi).write(ddi);
            (&raw mut (*object).kind).write(T::KIND as u32);
            (&raw mut (*object).api_refs).write(AtomicU32::new(1));
            (&raw mut (*object).immortal).write(false);
            (&raw mut (*object).body).write(body());
        }
        object.cast()
    }

    /// Whether the memory of dropped objects is reused: only that of events, which are created with
    /// every command.
    const REUSES_MEMORY: bool =
        T::KIND as u32 == Kind::Event as u32 && SpareMemory::fits(Layout::new::<Self>());

    /// Uninitialised memory for an object, in an `Arc`.
    #[inline]
    fn memory(spares: &SpareMemory) -> *mut Self {
        let spare = match Self::REUSES_MEMORY {
            true => spares.allocate(Layout::new::<Self>()),
            false => None,
        };
        match spare {
            Some(memory) => memory.cast(),
            None => Arc::into_raw(Arc::new(MaybeUninit::<Self>::uninit()))
                .cast_mut()
                .cast(),
        }
    }

    /// Drops the API's Rust reference.
    ///
    /// # Safety
    /// The caller owns the API's Rust reference and does not use the object any more. If `sole` is
    /// set, it is the only reference.
    /// no other.
    #[inline(always)]
    unsafe fn drop_api_reference(this: *const Self, sole: bool) {
        // SAFETY: the caller guarantees that it owns this reference.
        let own = unsafe { Arc::from_raw(this) };
        // Without other references, only the memory and its `Arc` header are left of the object.
        if Self::REUSES_MEMORY && (sole || is_sole(&own)) {
            let slot = census::slot();
            // Acquire: pairs with the release of references by other threads. `Arc::get_mut` would
            // exclude weak references as well, which events do not have.
            fence(Ordering::Acquire);
            let memory = Arc::into_raw(own).cast_mut();
            // SAFETY: this was the only reference, and the memory is not used after it is freed.
            // The object is mortal, so that these are all effects of its drop.
            unsafe {
                slot.count(T::KIND as u32, -1);
                (&raw mut (*memory).body).drop_in_place();
                if !slot.spares.free(memory.cast(), Layout::new::<Self>()) {
                    drop(Arc::from_raw(memory.cast::<MaybeUninit<Self>>()));
                }
            }
        }
    }

    /// The object behind a handle.
    ///
    /// Errors: `INVALID_NULL_HANDLE` for a null handle, the kind's error for a handle of another
    /// adapter or kind.
    ///
    /// # Safety
    /// The handle is null or points to a live object of some adapter.
    pub unsafe fn borrow<'a>(
        handle: *const c_void,
        ddi: &'static ur_dditable_t,
    ) -> Result<&'a Self> {
        ensure(!handle.is_null(), UR_RESULT_ERROR_INVALID_NULL_HANDLE)?;
        ensure(handle.is_aligned_to_word(), T::KIND.invalid())?;
        // SAFETY: the caller guarantees a live object, and every adapter's objects start with a
        // pointer to a table.
        let table = unsafe { handle.cast::<*const ur_dditable_t>().read() };
        ensure(std::ptr::eq(table, ddi), T::KIND.invalid())?;
        // SAFETY: the table is this adapter's, so that the object has this header.
        let head = unsafe { &*handle.cast::<Head>() };
        debug_assert!(std::ptr::eq(head.ddi, ddi));
        ensure(head.kind == T::KIND as u32, T::KIND.invalid())?;
        // SAFETY: table and kind agree, and an adapter has one body type for each kind.
        Ok(unsafe { &*handle.cast::<Self>() })
    }

    /// Adds an API reference. The first one takes the Rust reference that all API references share.
    pub fn retain(&self) {
        if !self.immortal && self.api_refs.fetch_add(1, Ordering::Relaxed) == 0 {
            std::mem::forget(self.arc());
        }
    }

    /// Whether the caller has the only reference, API or Rust. No other thread can then use the
    /// object, so that its count needs no atomic update.
    #[inline]
    fn is_the_only_reference(&self) -> bool {
        // SAFETY: `new` and `immortal` create every object in an `Arc`; this reference is not
        // dropped.
        let own = unsafe { ManuallyDrop::new(Arc::from_raw(self)) };
        // Acquire: pairs with the release of references by other threads.
        self.api_refs.load(Ordering::Acquire) == 1 && is_sole(&own)
    }

    #[inline]
    fn report_released(&self) {
        if !Self::REUSES_MEMORY {
            T::released(self);
        }
    }

    /// Removes an API reference. The last one drops the API's Rust reference. The kind's error
    /// without an API reference.
    pub fn release(&self) -> Result<()> {
        if self.immortal {
            return Ok(());
        }
        if self.is_the_only_reference() {
            self.api_refs.store(0, Ordering::Relaxed);
            self.report_released();
            // SAFETY: the API reference owns the Rust reference of the first `retain`, and `self`
            // is not used after. For events `released` is not called, so that nothing can have
            // added a reference.
            unsafe { Self::drop_api_reference(self, Self::REUSES_MEMORY) };
            return Ok(());
        }
        let less = |count: u32| count.checked_sub(1);
        match self
            .api_refs
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, less)
        {
            Err(_) => Err(Error::new(T::KIND.invalid())),
            Ok(1) => {
                self.report_released();
                // SAFETY: the API references owned the Rust reference of the first `retain`. Other
                // threads have their own.
                unsafe { Self::drop_api_reference(self, false) };
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Whether there is no other reference, strong or weak.
#[inline]
fn is_sole<T>(own: &Arc<T>) -> bool {
    Arc::strong_count(own) == 1 && Arc::weak_count(own) == 0
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        if !self.immortal {
            census::slot().count(self.kind, -1);
        }
    }
}

trait WordAligned {
    fn is_aligned_to_word(&self) -> bool;
}

impl WordAligned for *const c_void {
    fn is_aligned_to_word(&self) -> bool {
        self.addr().is_multiple_of(align_of::<usize>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Probe(Arc<AtomicU32>);

    impl Body for Probe {
        const KIND: Kind = Kind::Sampler;

        fn released(this: &Object<Self>) {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.fetch_add(16, Ordering::Relaxed);
        }
    }

    struct Kept(Arc<AtomicU32>);

    impl Body for Kept {
        const KIND: Kind = Kind::Event;
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Other;

    impl Body for Other {
        const KIND: Kind = Kind::Queue;
    }

    fn table() -> &'static ur_dditable_t {
        static TABLE: std::sync::OnceLock<ur_dditable_t> = std::sync::OnceLock::new();
        TABLE.get_or_init(ur_dditable_t::default)
    }

    #[test]
    fn memory_of_a_dropped_event_is_reused() {
        let count = Arc::new(AtomicU32::new(0));
        let make = || Object::<Kept>::new_handle(table(), || Kept(count.clone()));
        // SAFETY: the test holds a reference to the object.
        let end = |handle| unsafe { Object::<Kept>::borrow(handle, table()) }.map(Object::release);
        let all = [(); 3].map(|()| make());
        for handle in all {
            assert_eq!(end(handle), Ok(Ok(())));
        }
        assert_eq!(count.load(Ordering::Relaxed), 3, "each is dropped");
        // A released handle is refused until its memory holds an event again.
        let gone = Err(Error::new(UR_RESULT_ERROR_INVALID_EVENT));
        assert_eq!(end(all[2]), gone);
        assert_eq!([(); 3].map(|()| make()), [all[2], all[1], all[0]]);
        // Memory is not reused while a Rust reference exists.
        // SAFETY: the handle is that of a live object of the test.
        let inside = unsafe { Object::<Kept>::borrow(all[0], table()) }
            .unwrap()
            .arc();
        assert_eq!(end(all[0]), Ok(Ok(())));
        let other = make();
        assert_ne!(other, all[0]);
        drop(inside);
        for handle in [all[1], all[2], other] {
            assert_eq!(end(handle), Ok(Ok(())));
        }
        assert_eq!(count.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn the_last_release_frees_without_inner_references() {
        let count = Arc::new(AtomicU32::new(0));
        let inside = Object::new(table(), Probe(count.clone()));
        let handle = inside.into_handle();
        // SAFETY: the test holds a reference to the object.
        let seen = unsafe { Object::<Probe>::borrow(handle, table()) }.unwrap();
        seen.retain();
        assert_eq!(seen.api_refs(), 2);
        assert_eq!((seen.release(), seen.release()), (Ok(()), Ok(())));
        assert_eq!(
            count.load(Ordering::Relaxed),
            1,
            "released, but alive inside"
        );
        assert_eq!(
            inside.release(),
            Err(Error::new(UR_RESULT_ERROR_INVALID_SAMPLER))
        );
        inside.retain();
        assert_eq!(inside.release(), Ok(()));
        drop(inside);
        assert_eq!(count.load(Ordering::Relaxed), 18);
    }

    #[test]
    fn foreign_and_wrong_handles_are_distinguished() {
        let queue = Object::immortal(table(), Other);
        let foreign: &'static ur_dditable_t = Box::leak(Box::default());
        // SAFETY: null, or the handle of a live object of the test.
        unsafe {
            let code = |result: Result<&Object<Probe>>| result.err().map(Error::code);
            assert_eq!(
                code(Object::borrow(std::ptr::null(), table())),
                Some(UR_RESULT_ERROR_INVALID_NULL_HANDLE)
            );
            assert_eq!(
                code(Object::borrow(queue.handle(), table())),
                Some(UR_RESULT_ERROR_INVALID_SAMPLER)
            );
            assert!(Object::<Other>::borrow(queue.handle(), foreign).is_err());
            assert!(Object::<Other>::borrow(queue.handle(), table()).is_ok());
        }
        assert_eq!(
            (queue.release(), queue.release(), queue.api_refs()),
            (Ok(()), Ok(()), 1)
        );
    }
}
