//! Extension chains: structs linked through `pNext`, whose types their tags tell.

use crate::abi::*;
use std::ffi::c_void;

/// The type of a struct in the chain of `ur_queue_native_properties_t`, with no contents beyond a
/// `ur_base_properties_t`. By it the caller promises to use the queue only while its native stream is not
/// captured, so that no command has to ask the backend. An extension of this implementation's.
pub const NEVER_CAPTURED: ur_structure_type_t = ur_structure_type_t(0x7f75_0001);

/// The type of a struct in the chain of `ur_usm_pool_desc_t`, with no contents beyond a `ur_base_desc_t`. By it the
/// caller asks for a pool that holds as little as it can, and takes longer to grow. An extension of this
/// implementation's.
pub const TIGHT_POOL: ur_structure_type_t = ur_structure_type_t(0x7f75_0002);

/// Maximum number of structs in a chain. A longer one counts as a loop.
const MAX_CHAIN_STRUCTS: usize = 64;

/// The first struct of this type in the chain.
///
/// # Safety
/// The chain consists of live structs that begin with a tag and a `pNext`, and a struct tagged
/// `tag` is a `T`.
pub unsafe fn find<'a, T>(first: *const c_void, tag: ur_structure_type_t) -> Option<&'a T> {
    let mut next = first.cast::<ur_base_desc_t>();
    for _ in 0..MAX_CHAIN_STRUCTS {
        if next.is_null() {
            return None;
        }
        // SAFETY: not null, and the caller guarantees live structs that start with a tag and
        // `pNext`.
        let base = unsafe { &*next };
        if base.stype == tag {
            // SAFETY: the caller guarantees that a struct tagged `tag` is a `T`.
            return Some(unsafe { &*next.cast::<T>() });
        }
        next = base.pNext.cast();
    }
    None
}

/// Whether a struct of the chain has none of these tags, or the chain is a loop.
///
/// # Safety
/// The chain consists of live structs that begin with a tag and a `pNext`.
pub unsafe fn has_other(first: *const c_void, known: &[ur_structure_type_t]) -> bool {
    let mut next = first.cast::<ur_base_desc_t>();
    for _ in 0..MAX_CHAIN_STRUCTS {
        if next.is_null() {
            return false;
        }
        // SAFETY: not null, and the caller guarantees live structs that start with a tag and
        // `pNext`.
        let base = unsafe { &*next };
        if !known.contains(&base.stype) {
            return true;
        }
        next = base.pNext.cast();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_tag_and_survives_a_loop() {
        let limits = &mut ur_usm_pool_limits_desc_t {
            maxPoolableSize: 3,
            ..Default::default()
        };
        let limits = std::ptr::from_mut(limits);
        let desc = ur_usm_host_desc_t {
            pNext: limits.cast(),
            ..Default::default()
        };
        let first = (&raw const desc).cast();
        // SAFETY: both structs live on this stack and have their types' tags.
        unsafe {
            let found: Option<&ur_usm_pool_limits_desc_t> =
                find(first, UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC);
            assert_eq!(found.map(|found| found.maxPoolableSize), Some(3));
            assert!(find::<ur_usm_pool_desc_t>(first, UR_STRUCTURE_TYPE_USM_POOL_DESC).is_none());
            assert!(has_other(first, &[UR_STRUCTURE_TYPE_USM_HOST_DESC]));
            (*limits).pNext = first;
            assert!(find::<ur_usm_pool_desc_t>(first, UR_STRUCTURE_TYPE_USM_POOL_DESC).is_none());
        }
    }
}
