//! The logger callback of a program, for every adapter.

use crate::abi::*;
use crate::object::log::{self, Level, LevelFilter};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Sends this library's messages to `logger`, or to no callback if it is none.
///
/// # Safety
///
/// Any thread may call the logger with `user_data` while it is set.
pub unsafe fn set_logger(logger: ur_logger_callback_t, user_data: *mut c_void) {
    let user_data = user_data.expose_provenance();
    log::set_callback(logger.map(|logger| -> log::Callback {
        Arc::new(move |level, text| {
            let Ok(text) = CString::new(text) else { return };
            let user_data = std::ptr::with_exposed_provenance_mut(user_data);
            // SAFETY: the caller of `set_logger` guarantees that any thread may call the logger.
            unsafe { logger(ur_level(level), text.as_ptr(), user_data) }
        })
    }));
}

/// Sets the least severe level that the logger receives.
pub fn set_logger_level(level: ur_logger_level_t) {
    log::set_callback_level(match level {
        UR_LOGGER_LEVEL_DEBUG => LevelFilter::Debug,
        UR_LOGGER_LEVEL_INFO => LevelFilter::Info,
        UR_LOGGER_LEVEL_WARN => LevelFilter::Warn,
        UR_LOGGER_LEVEL_ERROR => LevelFilter::Error,
        _ => LevelFilter::Off,
    });
}

fn ur_level(level: Level) -> ur_logger_level_t {
    match level {
        Level::Error => UR_LOGGER_LEVEL_ERROR,
        Level::Warn => UR_LOGGER_LEVEL_WARN,
        Level::Info => UR_LOGGER_LEVEL_INFO,
        Level::Debug | Level::Trace => UR_LOGGER_LEVEL_DEBUG,
    }
}
