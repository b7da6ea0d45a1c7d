//! The `hal` traits of graphs, for every driver.

use crate::abi::*;
use crate::hal::{self, Unwrapped};
use crate::object::{Object, Result};
use crate::stream::{ExecutableGraph, Graph, Runtime};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

impl<B: Runtime> hal::Graph<B> for Graph<B> {
    fn instantiate_graph_exp(this: &Object<Self>) -> Result<Arc<Object<ExecutableGraph<B>>>> {
        Self::instantiate(this)
    }

    fn destroy_exp(this: &Object<Self>) -> Result<()> {
        Self::destroy(this)
    }

    fn is_empty_exp(this: &Object<Self>) -> Result<u8> {
        Ok(this.is_empty().into())
    }

    fn get_id_exp(this: &Object<Self>) -> Result<u64> {
        Ok(this.id())
    }

    fn set_destruction_callback_exp(
        this: &Object<Self>,
        run: <ur_exp_graph_destruction_callback_t as Unwrapped>::Fn,
        data: *mut c_void,
    ) -> Result<()> {
        this.add_callback(run, data);
        Ok(())
    }

    fn dump_contents_exp(this: &Object<Self>, file_path: &CStr) -> Result<()> {
        this.dump(file_path)
    }
}

impl<B: Runtime> hal::ExecutableGraph<B> for ExecutableGraph<B> {
    fn destroy_exp(this: &Object<Self>) -> Result<()> {
        Self::destroy(this)
    }
}
