//! Calls of an adapter's own table.

#![allow(clippy::macro_metavars_in_unsafe, reason = "a test consists of calls")]

use std::ptr::null_mut;

use ur::abi::*;
use ur::hal::Exported;

/// Calls a function of a backend's table: `call!(Cuda, Queue.pfnFinish(queue))`. Its arguments must be live handles and
/// pointers, or ones that the call refuses.
#[macro_export]
macro_rules! call {
    ($backend:ty, $table:ident.$slot:ident($($arg:expr),* $(,)?)) => {{
        let table = <$backend as ::ur::hal::Exported>::table();
        let function = table.$table.$slot.expect("no slot is null");
        // SAFETY: live handles and pointers, or ones that the call refuses.
        unsafe { function($($arg),*) }
    }};
}

/// The one adapter, with a reference. None if it finds no driver.
pub fn adapter<B: Exported>() -> Option<ur_adapter_handle_t> {
    let (mut adapter, mut count) = (null_mut(), 0);
    let code = call!(B, Adapter.pfnGet(1, &mut adapter, &mut count));
    assert_eq!(code, UR_RESULT_SUCCESS);
    (count > 0).then_some(adapter)
}

/// The devices of the one platform.
///
/// # Safety
/// The adapter is alive.
pub unsafe fn devices<B: Exported>(adapter: ur_adapter_handle_t) -> Vec<ur_device_handle_t> {
    let (mut platform, mut platforms, mut count) = (null_mut(), 0, 0);
    let code = call!(
        B,
        Platform.pfnGet(adapter, 1, &mut platform, &mut platforms)
    );
    assert_eq!((code, platforms), (UR_RESULT_SUCCESS, 1));
    let all = UR_DEVICE_TYPE_ALL;
    let code = call!(B, Device.pfnGet(platform, all, 0, null_mut(), &mut count));
    assert_eq!(code, UR_RESULT_SUCCESS);
    let mut devices = vec![null_mut(); count as usize];
    let list = devices.as_mut_ptr();
    let code = call!(B, Device.pfnGet(platform, all, count, list, null_mut()));
    assert_eq!(code, UR_RESULT_SUCCESS);
    devices
}
