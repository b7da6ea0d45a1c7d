//! A valid call of each function, and an invalid call for each condition that the specification declares.

use std::ffi::{c_char, c_void};

use ur::abi::*;

use crate::api::callers;
use crate::calls::*;

ur::for_each_callback! { callbacks }
ur::for_each_call! { functions }
