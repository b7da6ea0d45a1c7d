//! Handles by address: which are alive, and the calls that created and released them.
//!
//! | state | `references` | `lenders` | may be used | left by |
//! |---|---|---|---|---|
//! | owned | 1 or more | any | yes | as many releases |
//! | lent | 0 | one that is alive, or `pinned` | yes, but not released | the end of all lenders |
//! | dead | 0 | none alive | no | a new handle at its address |
//!
//! A lender is the object whose query returned the handle. A dead handle's entry stays for error
//! messages, until a new handle has its address or the shard has too many entries. An entry is
//! changed under its shard's lock only. A thread holds one lock at a time, and none while it calls
//! outside.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ur::object::Kind;

use super::stacks::Stack;
use crate::layers::maker::Maker;

const SHARDS: usize = 64;

/// Maximum number of a shard's entries. Beyond it, dead ones are removed.
const MAX_SHARD_ENTRIES: usize = if cfg!(test) { 1 << 6 } else { 1 << 14 };

/// Maximum length of a chain of lenders. It ends cycles of lenders.
const MAX_LENDER_DEPTH: usize = 8;

/// A call of the application: its function, stack and source location.
#[derive(Clone)]
pub struct CallSite {
    pub function: &'static str,
    pub stack: Option<Arc<Stack>>,
    pub place: Option<Arc<str>>,
}

/// The call that returned a handle or memory.
#[derive(Clone)]
pub struct Origin {
    pub maker: Maker,
    pub site: CallSite,
}

struct Entry {
    kind: Kind,
    references: u32,
    /// Distinguishes handles that had the same address.
    serial: u64,
    /// Lent by an object that outlives every use.
    pinned: bool,
    lenders: Vec<Lender>,
    created: Origin,
    released: Option<CallSite>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Lender {
    address: usize,
    serial: u64,
}

/// Why a handle cannot be used.
pub enum HandleError {
    Unknown,
    OtherKind {
        kind: Kind,
        created: Origin,
    },
    Dead {
        created: Origin,
        released: Option<CallSite>,
    },
    /// The handle is alive, but the application has no reference to release.
    Borrowed {
        created: Origin,
    },
}

/// A handle that the application did not release.
pub struct Leak {
    pub kind: Kind,
    pub address: usize,
    pub references: u32,
    pub serial: u64,
    pub created: Origin,
}

/// A release whose adapter call is in progress. [`Registry::restore`] undoes it.
pub struct PendingRelease {
    kind: Kind,
    address: usize,
    serial: u64,
    /// Whether it is the release of the application's last reference.
    last: bool,
}

impl PendingRelease {
    /// The context whose last reference is released, if it is one.
    pub fn last_of_context(&self) -> Option<usize> {
        (self.last && self.kind == Kind::Context).then_some(self.address)
    }
}

impl Entry {
    fn lent(kind: Kind, serial: u64, created: Origin) -> Entry {
        Entry {
            kind,
            references: 0,
            serial,
            pinned: false,
            lenders: Vec::new(),
            created,
            released: None,
        }
    }
}

type Shard = Mutex<HashMap<usize, Entry>>;

pub struct Registry {
    shards: LazyLock<[Shard; SHARDS]>,
    serials: AtomicU64,
}

impl Registry {
    pub const fn new() -> Registry {
        Registry {
            shards: LazyLock::new(|| std::array::from_fn(|_| Mutex::default())),
            serials: AtomicU64::new(1),
        }
    }

    fn shard(&self, address: usize) -> MutexGuard<'_, HashMap<usize, Entry>> {
        // Objects are at least 16 bytes apart, so that the lowest bits are equal.
        let at = (address >> 4) ^ (address >> 12);
        self.shards[at % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a reference of the application, to a new object or to a known one.
    pub fn created(&self, kind: Kind, address: usize, by: impl FnOnce() -> Origin) {
        let mut shard = self.shard(address);
        let existing = shard.get_mut(&address).filter(|entry| entry.kind == kind);
        let entry = match existing {
            Some(entry) if entry.references > 0 => {
                // A kind without a reference count has one reference: this one.
                if counted(kind) {
                    entry.references = entry.references.saturating_add(1);
                }
                return;
            }
            existing => Entry {
                kind,
                references: 1,
                // A lent handle is the same object; a released one is not.
                serial: match &existing {
                    Some(entry) if entry.released.is_none() => entry.serial,
                    _ => self.serial(),
                },
                pinned: existing.as_ref().is_some_and(|entry| entry.pinned),
                // Lenders of an earlier object are dead and do no harm.
                lenders: existing.map_or_else(Vec::new, |entry| std::mem::take(&mut entry.lenders)),
                created: by(),
                released: None,
            },
        };
        if shard.len() >= MAX_SHARD_ENTRIES {
            remove_dead(&mut shard);
        }
        shard.insert(address, entry);
    }

    /// Adds a reference to a handle that the application had.
    pub fn retained(&self, kind: Kind, address: usize, by: impl FnOnce() -> Origin) {
        if let Some(entry) = self.shard(address).get_mut(&address)
            && entry.kind == kind
        {
            if entry.references == 0 {
                entry.created = by();
                entry.released = None;
            }
            entry.references = entry.references.saturating_add(1);
            return;
        }
        self.created(kind, address, by);
    }

    /// Records a handle that the application has no reference to. It is alive while `lender` is, or
    /// always without a lender.
    pub fn lent(&self, kind: Kind, address: usize, lender: Option<usize>, by: impl Fn() -> Origin) {
        let lender = lender.and_then(|address| {
            let serial = self.shard(address).get(&address)?.serial;
            Some(Lender { address, serial })
        });
        let mut shard = self.shard(address);
        if shard.len() >= MAX_SHARD_ENTRIES {
            remove_dead(&mut shard);
        }
        let entry = match shard.entry(address) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(place) => place.insert(Entry::lent(kind, self.serial(), by())),
        };
        if entry.kind != kind {
            *entry = Entry::lent(kind, self.serial(), by());
        }
        if entry.references == 0 && entry.released.take().is_some() {
            // A released handle that is lent again has a new creation record, though the object may
            // be the old one.
            entry.created = by();
        }
        match lender {
            Some(lender) if !entry.lenders.contains(&lender) => {
                // A lender with the address of this one has ended.
                entry
                    .lenders
                    .retain(|existing| existing.address != lender.address);
                entry.lenders.push(lender);
            }
            Some(_) => {}
            None => entry.pinned = true,
        }
    }

    /// Fails unless the application may use this handle as one of `kind`.
    pub fn check(&self, kind: Kind, address: usize) -> Result<(), HandleError> {
        let shard = self.shard(address);
        let entry = shard.get(&address).ok_or(HandleError::Unknown)?;
        if entry.references > 0 && entry.kind == kind {
            return Ok(());
        }
        if entry.kind != kind {
            return Err(HandleError::OtherKind {
                kind: entry.kind,
                created: entry.created.clone(),
            });
        }
        if entry.pinned {
            return Ok(());
        }
        let lenders = entry.lenders.clone();
        let (created, released) = (entry.created.clone(), entry.released.clone());
        drop(shard);
        if lenders
            .iter()
            .any(|lender| self.alive(*lender, MAX_LENDER_DEPTH))
        {
            return Ok(());
        }
        Err(HandleError::Dead { created, released })
    }

    fn alive(&self, which: Lender, depth: usize) -> bool {
        let shard = self.shard(which.address);
        let Some(entry) = shard.get(&which.address) else {
            return false;
        };
        if entry.serial != which.serial {
            return false;
        }
        if entry.references > 0 || entry.pinned {
            return true;
        }
        let lenders = entry.lenders.clone();
        drop(shard);
        depth > 0 && lenders.iter().any(|lender| self.alive(*lender, depth - 1))
    }

    /// Removes a reference of the application. It must be called before the adapter, since another
    /// handle may get the address after the last release.
    pub fn release(
        &self,
        kind: Kind,
        address: usize,
        by: impl FnOnce() -> CallSite,
    ) -> Result<PendingRelease, HandleError> {
        let mut shard = self.shard(address);
        if let Some(entry) = shard.get_mut(&address)
            && entry.kind == kind
            && entry.references > 0
        {
            entry.references -= 1;
            if entry.references == 0 {
                entry.released = Some(by());
            }
            return Ok(PendingRelease {
                kind,
                address,
                serial: entry.serial,
                last: entry.references == 0,
            });
        }
        let created = shard.get(&address).map(|entry| entry.created.clone());
        drop(shard);
        self.check(kind, address)?;
        match created {
            Some(created) => Err(HandleError::Borrowed { created }),
            None => Err(HandleError::Unknown),
        }
    }

    /// Undoes a release that failed.
    pub fn restore(&self, pending: &PendingRelease) {
        if let Some(entry) = self.shard(pending.address).get_mut(&pending.address)
            && entry.serial == pending.serial
        {
            entry.references = entry.references.saturating_add(1);
            entry.released = None;
        }
    }

    /// Removes all entries, and returns the handles that the application has references to, oldest
    /// first.
    pub fn clear(&self) -> Vec<Leak> {
        let mut leaks = Vec::new();
        for shard in self.shards.iter() {
            let entries =
                std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            let owned = entries
                .into_iter()
                .filter(|(_, entry)| entry.references > 0);
            leaks.extend(owned.map(|(address, entry)| Leak {
                kind: entry.kind,
                address,
                references: entry.references,
                serial: entry.serial,
                created: entry.created,
            }));
        }
        leaks.sort_by_key(|leak| leak.serial);
        leaks
    }
}

/// Whether a kind has a reference count. Kinds without one are destroyed, and a handle returned
/// again is the same reference.
fn counted(kind: Kind) -> bool {
    !matches!(kind, Kind::Graph | Kind::ExecutableGraph)
}

fn remove_dead(shard: &mut HashMap<usize, Entry>) {
    shard.retain(|_, entry| entry.references > 0 || entry.pinned || !entry.lenders.is_empty());
}
