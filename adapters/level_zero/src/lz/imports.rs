//! Plain host memory that the driver knows: imports, by Intel's functions for it.
//!
//! The driver counts nothing. An import within another one does nothing, and the first release of an address in a range
//! ends its import for all. So imports are counted here, for all contexts of the driver:
//!
//! | a new import | becomes |
//! |---|---|
//! | lies within a known range | one more holder of that range |
//! | overlaps a known range otherwise | an error of the driver's; a buffer's is not tried |
//! | overlaps none | a range with one holder |
//!
//! The driver's release comes with the last holder's.

use std::collections::BTreeMap;
use std::ffi::c_void;

use crate::lz::*;
use ur::dl::function;
use ur::object;
use ur::sync::{Mutex, rank};

type ImportPointer = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> ze_result_t;
type ReleasePointer = unsafe extern "C" fn(*mut c_void, *mut c_void) -> ze_result_t;

/// Both functions: a driver has both or neither. With them, what is imported.
pub struct Imports {
    api: &'static Api,
    driver: *mut c_void,
    import: ImportPointer,
    release: ReleasePointer,
    known: Mutex<Known, { rank::LEAF }>,
}

// SAFETY: the driver's handle is a name that the driver resolves; any thread may hold it.
unsafe impl Send for Imports {}
// SAFETY: the driver's handle is a name that the driver resolves; any thread may hold it.
unsafe impl Sync for Imports {}

/// Who wants memory to be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// The user, who knows of the import and says when it ends.
    User,
    /// A buffer over the memory. The import ends when nobody expects it.
    Buffer,
}

/// A range of the driver's.
#[derive(Default)]
struct Range {
    bytes: usize,
    users: usize,
    buffers: usize,
}

impl Range {
    fn holders(&mut self, holder: Holder) -> &mut usize {
        match holder {
            Holder::User => &mut self.users,
            Holder::Buffer => &mut self.buffers,
        }
    }
}

/// The start of a range that has one more holder, or why it has not.
type Entered = std::result::Result<usize, ze_result_t>;

/// The driver is called under the lock of this: another thread may import what one releases.
#[derive(Default)]
struct Known {
    /// By their starts.
    ranges: BTreeMap<usize, Range>,
    /// What the user imported until a release of the same address, in any context, and the range's start.
    imported: BTreeMap<usize, usize>,
}

impl Known {
    /// The range that all of these bytes lie in, found as the driver finds it: by the last start before them.
    fn within(&mut self, start: usize, bytes: usize) -> Option<(usize, &mut Range)> {
        let (own, range) = self.ranges.range_mut(..=start).next_back()?;
        let end = start.checked_add(bytes)?;
        (end <= own + range.bytes && start < end).then_some((*own, range))
    }

    fn overlaps(&self, start: usize, bytes: usize) -> bool {
        let end = start.saturating_add(bytes);
        let last = self.ranges.range(..end).next_back();
        last.is_some_and(|(own, range)| own + range.bytes > start)
    }

    /// Adds a holder to the range that these bytes lie in. Returns the range's start.
    fn share(&mut self, start: usize, bytes: usize, holder: Holder) -> Option<usize> {
        let (own, range) = self.within(start, bytes)?;
        *range.holders(holder) += 1;
        Some(own)
    }

    /// Adds a holder to the range that these bytes lie in, or to a new one. Returns the range's start.
    fn enter(&mut self, driver: &Imports, start: usize, bytes: usize, holder: Holder) -> Entered {
        if let Some(own) = self.share(start, bytes, holder) {
            return Ok(own);
        }
        if holder == Holder::Buffer && self.overlaps(start, bytes) {
            return Err(ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
        }
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the caller keeps the range until it is released.
        match unsafe { (driver.import)(driver.driver, at, bytes) } {
            ZE_RESULT_SUCCESS => {}
            code => return Err(code),
        }
        // Another driver may accept a longer range of the same start.
        let range = self.ranges.entry(start).or_default();
        range.bytes = range.bytes.max(bytes);
        *range.holders(holder) += 1;
        Ok(start)
    }

    /// Takes a holder away, and the range with the last one. No command uses the memory for this holder.
    fn leave(&mut self, driver: &Imports, start: usize, holder: Holder) -> ze_result_t {
        let Some(range) = self.ranges.get_mut(&start) else {
            return ZE_RESULT_SUCCESS;
        };
        let holders = range.holders(holder);
        *holders = holders.saturating_sub(1);
        if range.users + range.buffers > 0 {
            return ZE_RESULT_SUCCESS;
        }
        self.ranges.remove(&start);
        if driver.api.is_torn_down() {
            return ZE_RESULT_SUCCESS;
        }
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range was imported, and nobody holds it.
        unsafe { (driver.release)(driver.driver, at) }
    }
}

/// The error of an import.
fn checked(start: Entered) -> object::Result<usize> {
    start.or_else(|code| check(code, "zexDriverImportExternalPointer").map(|()| 0))
}

/// Tells of a release that failed.
fn report(code: ze_result_t) {
    if let Err(error) = check(code, "zexDriverReleaseImportedPointer") {
        log::error!("host memory stays imported: {:?}", error.code());
    }
}

/// A holder of a range, until the drop.
pub struct Import {
    of: &'static Imports,
    start: usize,
    holder: Holder,
}

impl Drop for Import {
    fn drop(&mut self) {
        let left = (self.of.known.lock()).leave(self.of, self.start, self.holder);
        report(left);
    }
}

impl Imports {
    pub fn find(api: &'static Api, driver: ze_driver_handle_t) -> Option<Self> {
        let address = |name| by_address::find(api, driver, name);
        // SAFETY: the driver's functions of these names have these types.
        let (import, release) = unsafe {
            (
                function::<ImportPointer>(address(c"zexDriverImportExternalPointer"))?,
                function::<ReleasePointer>(address(c"zexDriverReleaseImportedPointer"))?,
            )
        };
        Some(Self {
            api,
            driver: by_address::own_handle(api, driver)?,
            import,
            release,
            known: Mutex::default(),
        })
    }

    /// Makes a range known. Its address stays.
    pub fn import(
        &'static self,
        start: usize,
        bytes: usize,
        holder: Holder,
    ) -> object::Result<Import> {
        let start = self.known.lock().enter(self, start, bytes, holder);
        let start = checked(start)?;
        #[rustfmt::skip]
        let import = Import { of: self, start, holder };
        Ok(import)
    }

    /// A holder of the known range that these bytes lie in. None if they do not.
    pub fn share(&'static self, start: usize, bytes: usize, holder: Holder) -> Option<Import> {
        let start = self.known.lock().share(start, bytes, holder)?;
        #[rustfmt::skip]
        let import = Import { of: self, start, holder };
        Some(import)
    }

    /// Makes a range known until [`Imports::release_of_user`] of its address. Does nothing if it is until then.
    pub fn import_of_user(&self, start: usize, bytes: usize) -> object::Result<()> {
        let mut known = self.known.lock();
        if known.imported.contains_key(&start) {
            return Ok(());
        }
        let own = known.enter(self, start, bytes, Holder::User);
        known.imported.extend(own.map(|own| (start, own)));
        drop(known);
        checked(own).map(drop)
    }

    /// Ends an import. An address that the user has not imported is no error.
    pub fn release_of_user(&self, start: usize) {
        let mut known = self.known.lock();
        let Some(own) = known.imported.remove(&start) else {
            return;
        };
        let left = known.leave(self, own, Holder::User);
        drop(known);
        report(left);
    }

    /// Whether bytes lie within a known range.
    pub fn knows(&self, start: usize, bytes: usize) -> bool {
        self.known.lock().within(start, bytes).is_some()
    }

    /// Whether an address is imported for buffers alone, so that the import may end at any time.
    pub fn is_of_buffers(&self, address: usize) -> bool {
        let mut known = self.known.lock();
        let found = known.within(address, 1);
        found.is_some_and(|(_, range)| range.users == 0)
    }
}
