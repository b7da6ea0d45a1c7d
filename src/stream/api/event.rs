//! The `hal` trait of events, for every driver.

use crate::abi::*;
use crate::hal::{self, EventInfo, ProfilingInfo, Unwrapped};
use crate::object::{Handles, InfoOut, Object, Result};
use crate::stream::event::CommandQueue;
use crate::stream::{Event, Hooks, Runtime};
use std::ffi::c_void;
use std::sync::Arc;

impl<B: Runtime> hal::Event<B> for Event<B> {
    fn get_info(this: &Object<Self>, prop_name: EventInfo, out: InfoOut<'_>) -> Result<()> {
        Self::info(this, prop_name, out, |marker| {
            let queue = <B as Hooks<B>>::queue_of_adopted(this.context(), marker)?;
            Ok(queue.map(|queue| queue as Arc<dyn CommandQueue<B>>))
        })
    }

    fn get_profiling_info(
        this: &Object<Self>,
        prop_name: ProfilingInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        this.profiling_info(prop_name, out)
    }

    fn wait(event_wait_list: Handles<'_, Self>) -> Result<()> {
        let mut result = Ok(());
        for event in event_wait_list.iter() {
            result = result.and(event.wait_here());
        }
        for event in event_wait_list.iter() {
            event.context().domain().settle();
        }
        result
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        <B as Hooks<B>>::event_native_handle(this)
    }

    fn set_callback(
        this: &Object<Self>,
        exec_status: ur_execution_info_t,
        notify: <ur_event_callback_t as Unwrapped>::Fn,
        user_data: *mut c_void,
    ) -> Result<()> {
        Self::add_callback(this, exec_status, notify, user_data)
    }
}
