//! The objects behind OpenCL's handles, and the one lock that every entry point takes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, c_void};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use opencl_sys::*;

use crate::queue::{Commands, Due};
use crate::script::Script;

/// The result of an entry point: a value, or OpenCL's error code.
pub type Answer<T = ()> = Result<T, cl_int>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Context,
    Queue,
    Event,
    Mem,
    Sampler,
    Program,
    Kernel,
}

impl Kind {
    /// OpenCL's error code for a handle of another kind.
    pub fn invalid(self) -> cl_int {
        match self {
            Kind::Context => CL_INVALID_CONTEXT,
            Kind::Queue => CL_INVALID_COMMAND_QUEUE,
            Kind::Event => CL_INVALID_EVENT,
            Kind::Mem => CL_INVALID_MEM_OBJECT,
            Kind::Sampler => CL_INVALID_SAMPLER,
            Kind::Program => CL_INVALID_PROGRAM,
            Kind::Kernel => CL_INVALID_KERNEL,
        }
    }
}

/// One object. Objects without a field leave it at its default.
pub struct Object {
    pub kind: Kind,
    pub refs: u32,
    /// The handle of its context.
    pub context: usize,
    pub queue: usize,
    /// Flags, properties or the command's type.
    pub bits: u64,
    /// An event's status.
    pub status: cl_int,
    pub times: [u64; 4],
    /// The address and the size of a buffer's bytes.
    pub at: usize,
    pub bytes: usize,
    /// The object that this one retains.
    pub parent: usize,
    pub name: CString,
}

/// The library's state.
#[derive(Default)]
pub struct FakeDriver {
    pub script: Script,
    objects: HashMap<usize, Object>,
    pub commands: Commands,
    /// Allocated memory: its length, and whether it is USM.
    memory: BTreeMap<usize, (usize, bool)>,
    next: usize,
    clock: u64,
}

static DRIVER: Mutex<Option<FakeDriver>> = Mutex::new(None);
/// Signals that a command has completed.
pub static CHANGED: Condvar = Condvar::new();

/// The locked driver.
pub struct DriverGuard(MutexGuard<'static, Option<FakeDriver>>);

impl std::ops::Deref for DriverGuard {
    type Target = FakeDriver;
    fn deref(&self) -> &FakeDriver {
        self.0
            .as_ref()
            .unwrap_or_else(|| unreachable!("made by `hold`"))
    }
}

impl std::ops::DerefMut for DriverGuard {
    fn deref_mut(&mut self) -> &mut FakeDriver {
        self.0.get_or_insert_default()
    }
}

impl DriverGuard {
    /// Waits until a command completes, for at most a tenth of a second.
    pub fn wait(self) -> Self {
        let (guard, _) = CHANGED
            .wait_timeout(self.0, std::time::Duration::from_millis(100))
            .unwrap_or_else(PoisonError::into_inner);
        Self(guard)
    }
}

pub fn hold() -> DriverGuard {
    let mut guard = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_default();
    DriverGuard(guard)
}

/// Runs an entry point.
///
/// The call is counted and fails if the script says so. Otherwise `body` runs, and then all commands that can
/// run. Callbacks are called without the lock.
pub fn enter<T>(name: &'static str, body: impl FnOnce(&mut FakeDriver) -> Answer<T>) -> Answer<T> {
    let mut driver = hold();
    let answer = match driver.script.called(name) {
        Some(code) => Err(code),
        None => body(&mut driver),
    };
    let due = driver.run();
    drop(driver);
    settle(due);
    answer
}

/// Calls the pending callbacks.
pub fn settle(due: Vec<Due>) {
    CHANGED.notify_all();
    for Due {
        run,
        event,
        status,
        data,
    } in due
    {
        // SAFETY: the caller of `clSetEventCallback` passed the function for this use.
        unsafe { run(event as cl_event, status, data as *mut c_void) };
    }
}

/// An entry point that returns a code.
pub fn code(answer: Answer) -> cl_int {
    answer.err().unwrap_or(CL_SUCCESS)
}

/// An entry point that returns a handle and writes a code.
pub fn made(answer: Answer<usize>, ret: *mut cl_int) -> *mut c_void {
    let (handle, code) = match answer {
        Ok(handle) => (handle, CL_SUCCESS),
        Err(code) => (0, code),
    };
    if !ret.is_null() {
        // SAFETY: the caller's output has room for a code.
        unsafe { ret.write(code) };
    }
    handle as *mut c_void
}

/// Writes a property as `clGet*Info` does.
pub fn write_property(bytes: &[u8], size: usize, value: *mut c_void, ret: *mut usize) -> Answer {
    if !value.is_null() {
        if size < bytes.len() {
            return Err(CL_INVALID_VALUE);
        }
        // SAFETY: the caller's buffer has that size.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), bytes.len()) };
    }
    if !ret.is_null() {
        // SAFETY: the caller's output has room for a size.
        unsafe { ret.write(bytes.len()) };
    }
    Ok(())
}

/// Text as OpenCL returns it.
pub fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

impl FakeDriver {
    pub fn tick(&mut self) -> u64 {
        self.clock += 1000;
        self.clock
    }

    fn blank(kind: Kind) -> Object {
        Object {
            kind,
            refs: 1,
            context: 0,
            queue: 0,
            bits: 0,
            status: CL_COMPLETE,
            times: [0; 4],
            at: 0,
            bytes: 0,
            parent: 0,
            name: CString::default(),
        }
    }

    /// A new object with one reference.
    pub fn make(&mut self, kind: Kind, fill: impl FnOnce(&mut Object)) -> usize {
        self.next += 16;
        let handle = 0x00c1_0000_0000 + self.next;
        let mut object = Self::blank(kind);
        fill(&mut object);
        for kept in [object.context, object.parent] {
            if let Some(kept) = self.objects.get_mut(&kept) {
                kept.refs += 1;
            }
        }
        self.objects.insert(handle, object);
        handle
    }

    pub fn get(&mut self, kind: Kind, handle: usize) -> Answer<&mut Object> {
        let known = self
            .objects
            .get(&handle)
            .is_some_and(|object| object.kind == kind);
        if !known {
            self.script.broken(format!("{kind:?} {handle:#x} is none"));
            return Err(kind.invalid());
        }
        self.objects.get_mut(&handle).ok_or(kind.invalid())
    }

    pub fn peek(&self, handle: usize) -> Option<&Object> {
        self.objects.get(&handle)
    }

    /// The object, if it is alive.
    pub fn find(&mut self, handle: usize) -> Option<&mut Object> {
        self.objects.get_mut(&handle)
    }

    pub fn retain(&mut self, kind: Kind, handle: usize) -> Answer {
        self.get(kind, handle)?.refs += 1;
        Ok(())
    }

    pub fn release(&mut self, kind: Kind, handle: usize) -> Answer {
        let object = self.get(kind, handle)?;
        object.refs -= 1;
        if object.refs > 0 {
            return Ok(());
        }
        let (context, parent) = (object.context, object.parent);
        let own = object.kind == Kind::Mem && parent == 0 && object.bits & CL_MEM_USE_HOST_PTR == 0;
        let at = object.at;
        self.objects.remove(&handle);
        if own {
            self.free(at);
        }
        for (kept, kind) in [
            (context, Kind::Context),
            (parent, Kind::Mem),
            (parent, Kind::Program),
        ] {
            if self
                .objects
                .get(&kept)
                .is_some_and(|object| object.kind == kind)
            {
                self.release(kind, kept)?;
            }
        }
        Ok(())
    }

    /// The number of live objects. Each USM allocation counts as one.
    pub fn live(&self) -> usize {
        self.objects.len() + self.memory.values().filter(|(_, usm)| *usm).count()
    }

    /// The live objects, for a message.
    pub fn report(&self) -> String {
        let mut lines: Vec<String> = self
            .objects
            .iter()
            .map(|(handle, object)| format!("{:?} {handle:#x} x{}", object.kind, object.refs))
            .collect();
        let usm = self.memory.iter().filter(|(_, (_, usm))| *usm);
        lines.extend(usm.map(|(at, (bytes, _))| format!("USM {at:#x} of {bytes}")));
        lines.sort();
        lines.join(", ")
    }

    /// Zeroed memory at a multiple of 64 KiB.
    pub fn alloc(&mut self, bytes: usize, usm: bool) -> usize {
        let layout = layout(bytes);
        // SAFETY: the size is not 0.
        let at = unsafe { alloc_zeroed(layout) } as usize;
        self.memory.insert(at, (bytes, usm));
        at
    }

    /// Frees memory. Returns false if no allocation begins there.
    pub fn free(&mut self, at: usize) -> bool {
        let Some((bytes, _)) = self.memory.remove(&at) else {
            return false;
        };
        // SAFETY: allocated with this layout, and its entry is removed.
        unsafe { dealloc(at as *mut u8, layout(bytes)) };
        true
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), 64 << 10)
        .unwrap_or_else(|_| Layout::from_size_align(1, 1).unwrap_or(Layout::new::<u8>()))
}
