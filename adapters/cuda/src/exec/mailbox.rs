//! Small fills with patterns that the driver's memset does not support: consecutive ones on a stream
//! share a launch.
//!
//! A launch costs the host four times as much as a small memset, and the device ends no sooner. On an H100 a
//! fill of 4 KiB in a row takes some 300 ns through a mailbox, and 3,200 to 4,100 ns as a launch. So the
//! second of two consecutive fills goes into a mailbox, memory that host and device share. A kernel then
//! runs every fill that it finds there. Until that kernel runs, a further fill only needs a slot of the
//! mailbox: later work on the stream still comes after it.
//!
//! Kernel and host agree by Dekker's algorithm, so that no fill is lost. The kernel first closes its launch,
//! then reads the mailbox. The host first writes the fill, then reads which launch is closed. At least one
//! of them sees the other's write. Each fill names the last launch that may run it, since an earlier launch
//! still on the stream sees the fills of the next.
//!
//! | last on the stream | a small fill becomes | last on the stream afterwards |
//! |---|---|---|
//! | anything else | a launch of its own | a fill |
//! | a fill | a mailbox fill with a launch | an open launch |
//! | an open launch | a mailbox fill; if the launch closed meanwhile, with another launch | an open launch |
//!
//! Commands are numbered, so a gap in the numbers shows a command in between. Unnumbered work calls
//! [`MailboxFills::pass`].
//!
//! Used only on streams that no foreign code submits to and that do not wait for the default stream.
//! `UR_CUDA_MAILBOX_FILLS=0` turns it off.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use ur::object::Result;
use ur::object::env::Env;
use ur::sync::{Mutex, rank};

use super::fill::{self, GROUP_ITEMS};
use super::gpu::Gpu;
use crate::cu::sys::CUstream;
use crate::cu::{Api, LAUNCH, RelaxedCapture, check, launch_of};

/// Most bytes of a small fill: as many as the driver's memset writes without a launch.
const MAX_SMALL_FILL_BYTES: usize = 4096;

/// Slots of a mailbox: most fills that have not run.
const MAX_PENDING_FILLS: u64 = 128;

/// Whether small fills share launches: `UR_CUDA_MAILBOX_FILLS`.
pub fn is_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| Env::process().flag("UR_CUDA_MAILBOX_FILLS", true))
}

/// Memory that host and device share, laid out as `Box` in `fill.cu`.
#[repr(C, align(64))]
struct MailboxMemory {
    posted: AtomicU64,
    done: AtomicU64,
    unused: [u64; 6],
    /// The last launch that runs no further fills.
    closed: AtomicU64,
    more_unused: [u64; 7],
    fills: UnsafeCell<[SmallFill; MAX_PENDING_FILLS as usize]>,
}

/// One slot of a mailbox: a small fill.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SmallFill {
    to: u64,
    pattern: [u64; 2],
    launch: u32,
    /// In units of eight bytes.
    count: u32,
}

impl SmallFill {
    /// The fill, if it is small, aligned to eight bytes and its pattern has eight or 16 bytes.
    pub fn of(dst: usize, pattern: &[u8], bytes: usize) -> Option<Self> {
        let even = (dst | bytes).is_multiple_of(8);
        if !even || bytes == 0 || bytes > MAX_SMALL_FILL_BYTES {
            return None;
        }
        let pattern = fill::shortest(pattern);
        let (first, second) = match pattern.len() {
            8 => (pattern, pattern),
            16 => pattern.split_at(8),
            _ => return None,
        };
        let word = |half: &[u8]| half.try_into().map(u64::from_ne_bytes).ok();
        Some(Self {
            to: dst as u64,
            pattern: [word(first)?, word(second)?],
            launch: 0,
            count: (bytes / 8) as u32,
        })
    }
}

/// The last command of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Last {
    Other = 0,
    Fill = 1,
    Launch = 2,
}

impl Last {
    /// Packed with the number of the command.
    fn at(self, epoch: u64) -> u64 {
        epoch << 2 | self as u64
    }

    /// The command right before this number.
    fn before(epoch: u64, word: u64) -> Self {
        let is = |last: &Self| word == last.at(epoch.wrapping_sub(1));
        let found = [Self::Fill, Self::Launch].into_iter().find(is);
        found.unwrap_or(Self::Other)
    }
}

/// A stream's mailbox. Calls come one at a time, under the lane's lock.
#[derive(Default)]
pub struct MailboxFills {
    last: AtomicU64,
    mailbox: Mutex<Option<Mailbox>, { rank::DRIVER }>,
}

impl MailboxFills {
    /// Records a command that is no small fill.
    pub fn pass(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// Posts a fill to the mailbox if the last command was a fill, else calls `alone` to launch it.
    pub fn fill(
        &self,
        gpu: &Arc<Gpu>,
        (stream, epoch): (CUstream, u64),
        small_fill: SmallFill,
        alone: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let last = Last::before(epoch, self.last.swap(0, Ordering::Relaxed));
        let mut mailbox = self.mailbox.lock();
        if last != Last::Other && mailbox.is_none() {
            // Without memory for a mailbox each fill is launched alone.
            *mailbox = Mailboxes::acquire(gpu).ok();
        }
        let filled = match &mut *mailbox {
            Some(own) if last != Last::Other && own.has_free_slot() => {
                let posted = own.post(gpu, stream, small_fill, last == Last::Launch);
                if posted.is_err() {
                    // The fill must never run, so the mailbox is abandoned.
                    *mailbox = None;
                }
                posted.map(|()| Last::Launch)
            }
            _ => alone().map(|()| Last::Fill),
        }?;
        self.last.store(filled.at(epoch), Ordering::Relaxed);
        Ok(())
    }

    /// Releases the mailbox at the end of the stream.
    pub fn end(&mut self, gpu: &Gpu) {
        let mailbox = self.mailbox.get_mut();
        if let Some(mailbox) = mailbox.take() {
            gpu.mailboxes.release(mailbox);
        }
    }
}

/// A mailbox, as the host writes to it.
struct Mailbox {
    memory: *mut MailboxMemory,
    posted: u64,
    launch: u32,
}

// SAFETY: the memory's counters are atomics, and only the owner of the `Mailbox` writes its slots.
unsafe impl Send for Mailbox {}

impl Mailbox {
    fn memory(&self) -> &MailboxMemory {
        // SAFETY: `Mailboxes` keeps the memory until the context closes. The device writes only its atomics.
        unsafe { &*self.memory }
    }

    /// The slot with this index.
    fn slot(&self, at: usize) -> *mut SmallFill {
        let first = self.memory().fills.get().cast::<SmallFill>();
        first.wrapping_add(at)
    }

    fn has_free_slot(&self) -> bool {
        self.posted - self.memory().done.load(Ordering::Acquire) < MAX_PENDING_FILLS
    }

    /// Writes a fill to a free slot. Launches the kernel unless the last launch is open and will run it.
    fn post(
        &mut self,
        gpu: &Gpu,
        stream: CUstream,
        small_fill: SmallFill,
        open: bool,
    ) -> Result<()> {
        let launch = self.launch.wrapping_add(u32::from(!open));
        let slot = (self.posted % MAX_PENDING_FILLS) as usize;
        // SAFETY: `has_free_slot` was checked, so the device no longer reads this slot.
        unsafe {
            self.slot(slot).write(SmallFill {
                launch,
                ..small_fill
            })
        };
        self.posted += 1;
        let memory = self.memory();
        memory.posted.store(self.posted, Ordering::Release);
        // Orders the store of `posted` before the load of `closed`. The kernel orders the opposite pair.
        fence(Ordering::SeqCst);
        let closed = memory.closed.load(Ordering::Acquire);
        if open && closed != u64::from(self.launch) {
            return Ok(());
        }
        self.launch = self.launch.wrapping_add(1);
        self.launch_last(gpu, stream).inspect_err(|_| {
            // An earlier launch may still find the fill.
            // SAFETY: the slot is in the mailbox's memory; a device that reads it meanwhile sees either count.
            unsafe { (&raw mut (*self.slot(slot)).count).write_volatile(0) };
        })
    }

    fn launch_last(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        let _current = gpu.enter()?;
        let function = gpu.fills()?.mailbox();
        let params: [*mut c_void; 2] = [
            (&raw const self.memory).cast_mut().cast(),
            (&raw const self.launch).cast_mut().cast(),
        ];
        let config = launch_of([1; 3], [GROUP_ITEMS, 1, 1], stream);
        // SAFETY: the function has these two parameters; the caller's stream is alive. Each fill's caller
        // promises its range until the command has ended.
        let code = unsafe { gpu.api.launch(&config, function, params.as_ptr(), null()) };
        check(gpu.api, code, LAUNCH)
    }
}

/// The mailboxes of one context.
#[derive(Default)]
pub struct Mailboxes(Mutex<Stock>);

#[derive(Default)]
struct Stock {
    free: Vec<Mailbox>,
    blocks: Vec<usize>,
}

/// Mailboxes of one allocation.
const MAILBOXES_PER_BLOCK: usize = 8;

impl Mailboxes {
    fn acquire(gpu: &Arc<Gpu>) -> Result<Mailbox> {
        let mut stock = gpu.mailboxes.0.lock();
        if let Some(mailbox) = stock.free.pop() {
            return Ok(mailbox);
        }
        let _current = gpu.enter()?;
        let _relaxed = RelaxedCapture::new(gpu.api);
        let bytes = MAILBOXES_PER_BLOCK * size_of::<MailboxMemory>();
        // `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
        let (mut start, flags): (*mut c_void, _) = (null_mut(), 3);
        // SAFETY: `start` has room for a pointer.
        let code = unsafe { (gpu.api.cuMemHostAlloc)(&mut start, bytes, flags) };
        check(gpu.api, code, "cuMemHostAlloc")?;
        // SAFETY: the allocation has that size and the alignment of a page. Zeroed bytes are an empty mailbox.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        stock.blocks.push(start.expose_provenance());
        let memories = start.cast::<MailboxMemory>();
        let mailbox = |at| Mailbox {
            // SAFETY: `at` is less than the number of mailboxes in the allocation.
            memory: unsafe { memories.add(at) },
            posted: 0,
            launch: 0,
        };
        stock.free.extend((1..MAILBOXES_PER_BLOCK).map(mailbox));
        Ok(mailbox(0))
    }

    fn release(&self, mailbox: Mailbox) {
        let mut stock = self.0.lock();
        stock.free.push(mailbox);
    }

    /// Frees the memory. No launch is pending. The context is current.
    pub fn close(&mut self, api: &Api) {
        let stock = self.0.get_mut();
        stock.free.clear();
        for block in stock.blocks.drain(..) {
            // SAFETY: allocated by `acquire`; the caller promises that no launch is pending.
            unsafe { (api.cuMemFreeHost)(std::ptr::with_exposed_provenance_mut(block)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_fills_are_those_that_the_kernel_does() {
        let wide: [u8; 16] = std::array::from_fn(|at| at as u8);
        let small = |dst, pattern: &[u8], bytes| SmallFill::of(dst, pattern, bytes).is_some();
        assert!(small(64, &wide, 4096) && small(8, &wide[..8], 8) && small(8, &wide, 48));
        assert!(!small(64, &wide, 4112), "too many bytes");
        assert!(
            !small(4, &wide, 64) && !small(8, &wide, 12),
            "not at eights"
        );
        assert!(!small(64, &wide, 0));
        assert!(!small(64, &[1; 16], 64), "the driver's own memset");
        assert!(!small(64, &wide[..12], 48), "another kernel's");
    }

    #[test]
    fn shorter_patterns_are_repeated() {
        let twice = [1_u8, 2, 3, 4, 5, 6, 7, 8].repeat(2);
        let small_fill = SmallFill::of(8, &twice, 16).unwrap();
        assert_eq!(small_fill.pattern[0], small_fill.pattern[1]);
        assert_eq!((small_fill.to, small_fill.count), (8, 2));
    }

    #[test]
    fn the_kernel_has_it_the_same_way() {
        assert_eq!(
            (size_of::<SmallFill>(), size_of::<MailboxMemory>()),
            (32, 128 + 4096)
        );
        assert_eq!(std::mem::offset_of!(MailboxMemory, closed), 64);
        assert_eq!(std::mem::offset_of!(SmallFill, launch), 24);
    }
}
