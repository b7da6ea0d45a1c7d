//! Handles by address: which are alive, who made them, and who gave them back.
//!
//! | state | `references` | `lenders` | may be used | left by |
//! |---|---|---|---|---|
//! | owned | 1 or more | any | yes | as many releases |
//! | lent | 0 | one that is alive, or `pinned` | yes, but not released | the end of all lenders |
//! | dead | 0 | none alive | no | a new handle at its address |
//!
//! A dead handle's entry stays, so that its story can be told, until a new handle has its address or
//! the shard has too many entries. An entry is changed under its shard's lock alone; no two locks are
//! held at once, and none while anything outside is called.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ur::object::Kind;

use super::stacks::Stack;

const SHARDS: usize = 64;

/// Most entries of a shard. Beyond, released ones are removed.
const MAX_SHARD_ENTRIES: usize = if cfg!(test) { 1 << 6 } else { 1 << 14 };

/// Lenders that lend to each other end here.
const DEEPEST: usize = 8;

/// Who did something, and where.
#[derive(Clone)]
pub struct Record {
    pub function: &'static str,
    pub stack: Option<Arc<Stack>>,
    pub place: Option<Arc<str>>,
}

struct Entry {
    kind: Kind,
    references: u32,
    /// Tells apart handles that had the same address.
    serial: u64,
    /// Lent by something that outlives every use.
    pinned: bool,
    lenders: Vec<Lender>,
    made: Record,
    released: Option<Record>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Lender {
    address: usize,
    serial: u64,
}

/// Why a handle cannot be used.
pub enum Trouble {
    Unknown,
    OtherKind(Kind),
    Dead {
        made: Record,
        released: Option<Record>,
    },
    /// Alive, but none of the references are the application's.
    Borrowed {
        made: Record,
    },
}

/// A handle that nobody released.
pub struct Leak {
    pub kind: Kind,
    pub address: usize,
    pub references: u32,
    pub serial: u64,
    pub made: Record,
}

/// A release in progress, which is undone if it fails.
pub struct PendingRelease {
    address: usize,
    serial: u64,
}

impl Entry {
    fn lent(kind: Kind, serial: u64, made: Record) -> Entry {
        Entry {
            kind,
            references: 0,
            serial,
            pinned: false,
            lenders: Vec::new(),
            made,
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
        // Objects are far apart: the lowest bits say nothing.
        let at = (address >> 4) ^ (address >> 12);
        self.shards[at % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// The application got a reference, to a new object or to one that it knew.
    pub fn made(&self, kind: Kind, address: usize, by: impl FnOnce() -> Record) {
        let mut shard = self.shard(address);
        let existing = shard.get_mut(&address).filter(|entry| entry.kind == kind);
        let entry = match existing {
            Some(entry) if entry.references > 0 => {
                // A kind without a count is there once: this is the same reference.
                if counted(kind) {
                    entry.references = entry.references.saturating_add(1);
                }
                return;
            }
            existing => Entry {
                kind,
                references: 1,
                // What was only lent until now is the same object; what was released is not.
                serial: match &existing {
                    Some(entry) if entry.released.is_none() => entry.serial,
                    _ => self.serial(),
                },
                pinned: existing.as_ref().is_some_and(|entry| entry.pinned),
                // Those of an earlier object are dead.
                lenders: existing.map_or_else(Vec::new, |entry| std::mem::take(&mut entry.lenders)),
                made: by(),
                released: None,
            },
        };
        if shard.len() >= MAX_SHARD_ENTRIES {
            forget_dead(&mut shard);
        }
        shard.insert(address, entry);
    }

    /// The application took a further reference to a handle that it had.
    pub fn retained(&self, kind: Kind, address: usize, by: impl FnOnce() -> Record) {
        if let Some(entry) = self.shard(address).get_mut(&address)
            && entry.kind == kind
        {
            if entry.references == 0 {
                entry.made = by();
                entry.released = None;
            }
            entry.references = entry.references.saturating_add(1);
            return;
        }
        self.made(kind, address, by);
    }

    /// The application got a handle that it has no reference to. It may use it while `lender` lives,
    /// or always if there is none.
    pub fn lent(&self, kind: Kind, address: usize, lender: Option<usize>, by: impl Fn() -> Record) {
        let lender = lender.and_then(|address| {
            let serial = self.shard(address).get(&address)?.serial;
            Some(Lender { address, serial })
        });
        let mut shard = self.shard(address);
        if shard.len() >= MAX_SHARD_ENTRIES {
            forget_dead(&mut shard);
        }
        let entry = match shard.entry(address) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(place) => place.insert(Entry::lent(kind, self.serial(), by())),
        };
        if entry.kind != kind {
            *entry = Entry::lent(kind, self.serial(), by());
        }
        if entry.references == 0 && entry.released.take().is_some() {
            // Of a new life, though perhaps of the old object, only the loan is known.
            entry.made = by();
        }
        match lender {
            Some(lender) if !entry.lenders.contains(&lender) => {
                // Those of an address whose handle changed are of no use any more.
                entry
                    .lenders
                    .retain(|existing| existing.address != lender.address);
                entry.lenders.push(lender);
            }
            Some(_) => {}
            None => entry.pinned = true,
        }
    }

    /// Whether the application may use this handle as one of `kind`.
    pub fn check(&self, kind: Kind, address: usize) -> Result<(), Trouble> {
        let shard = self.shard(address);
        let entry = shard.get(&address).ok_or(Trouble::Unknown)?;
        if entry.references > 0 && entry.kind == kind {
            return Ok(());
        }
        if entry.kind != kind {
            return Err(Trouble::OtherKind(entry.kind));
        }
        if entry.pinned {
            return Ok(());
        }
        let lenders = entry.lenders.clone();
        let (made, released) = (entry.made.clone(), entry.released.clone());
        drop(shard);
        if lenders.iter().any(|lender| self.alive(*lender, DEEPEST)) {
            return Ok(());
        }
        Err(Trouble::Dead { made, released })
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

    /// The application is about to give a reference back. To be called before the adapter is: after
    /// its last release, the address may be another handle's.
    pub fn release(
        &self,
        kind: Kind,
        address: usize,
        by: impl FnOnce() -> Record,
    ) -> Result<PendingRelease, Trouble> {
        let mut shard = self.shard(address);
        if let Some(entry) = shard.get_mut(&address)
            && entry.kind == kind
            && entry.references > 0
        {
            entry.references -= 1;
            if entry.references == 0 {
                entry.released = Some(by());
            }
            let serial = entry.serial;
            return Ok(PendingRelease { address, serial });
        }
        let made = shard.get(&address).map(|entry| entry.made.clone());
        drop(shard);
        self.check(kind, address)?;
        match made {
            Some(made) => Err(Trouble::Borrowed { made }),
            None => Err(Trouble::Unknown),
        }
    }

    /// The release failed: the application has its reference still.
    pub fn restore(&self, pending: &PendingRelease) {
        if let Some(entry) = self.shard(pending.address).get_mut(&pending.address)
            && entry.serial == pending.serial
        {
            entry.references = entry.references.saturating_add(1);
            entry.released = None;
        }
    }

    /// Forgets everything, and gives what the application has references to, oldest first.
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
                made: entry.made,
            }));
        }
        leaks.sort_by_key(|leak| leak.serial);
        leaks
    }
}

/// Kinds that are destroyed rather than released: a handle that comes again is the same reference.
fn counted(kind: Kind) -> bool {
    !matches!(kind, Kind::Graph | Kind::ExecutableGraph)
}

fn forget_dead(shard: &mut HashMap<usize, Entry>) {
    shard.retain(|_, entry| entry.references > 0 || entry.pinned || !entry.lenders.is_empty());
}
