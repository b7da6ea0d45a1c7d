//! Buffers.

use super::{Context, Queue, info, owned};
use crate::outcome::{Done, Stop};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use ur::abi::*;

owned!(
    /// A buffer or a sub-buffer.
    Buffer, ur_mem_handle_t, urMemRetain, urMemRelease
);

impl Buffer {
    #[track_caller]
    pub fn new(context: &Context, flags: ur_mem_flags_t, size: usize) -> Result<Self, Stop> {
        let mut raw = null_mut();
        context
            .ur
            .urMemBufferCreate(context.raw, flags, size, null(), &mut raw)
            .ok()?;
        Ok(Self::adopt(context.ur, raw))
    }

    /// A buffer that starts with a copy of some data.
    #[track_caller]
    pub fn copied<T: Copy>(context: &Context, data: &mut [T]) -> Result<Self, Stop> {
        let properties = ur_buffer_properties_t {
            pHost: data.as_mut_ptr().cast(),
            ..Default::default()
        };
        let flags = UR_MEM_FLAG_READ_WRITE | UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER;
        let mut raw = null_mut();
        context
            .ur
            .urMemBufferCreate(context.raw, flags, size_of_val(data), &properties, &mut raw)
            .ok()?;
        Ok(Self::adopt(context.ur, raw))
    }

    /// A buffer over host memory.
    #[track_caller]
    pub fn over<T: Copy>(
        context: &Context,
        access: ur_mem_flags_t,
        memory: &mut [T],
    ) -> Result<Self, Stop> {
        let size = size_of_val(memory);
        Self::over_at(context, access, memory.as_mut_ptr().cast(), size)
    }

    /// A buffer over `size` bytes of host memory at an address.
    #[track_caller]
    pub fn over_at(
        context: &Context,
        access: ur_mem_flags_t,
        memory: *mut c_void,
        size: usize,
    ) -> Result<Self, Stop> {
        let properties = ur_buffer_properties_t {
            pHost: memory,
            ..Default::default()
        };
        let (flags, mut raw) = (access | UR_MEM_FLAG_USE_HOST_POINTER, null_mut());
        context
            .ur
            .urMemBufferCreate(context.raw, flags, size, &properties, &mut raw)
            .ok()?;
        Ok(Self::adopt(context.ur, raw))
    }

    /// A sub-buffer that shares the buffer's storage.
    #[track_caller]
    pub fn part(&self, origin: usize, size: usize) -> Result<Self, Stop> {
        let region = ur_buffer_region_t {
            origin,
            size,
            ..Default::default()
        };
        let mut raw = null_mut();
        let flags = UR_MEM_FLAG_READ_WRITE;
        self.ur
            .urMemBufferPartition(
                self.raw,
                flags,
                UR_BUFFER_CREATE_TYPE_REGION,
                &region,
                &mut raw,
            )
            .ok()?;
        Ok(Self::adopt(self.ur, raw))
    }

    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_mem_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| self.ur.urMemGetInfo(self.raw, property, size, value, ret))
    }

    /// Writes at an offset in bytes and waits for it.
    #[track_caller]
    pub fn write<T: Copy>(&self, queue: &Queue, offset: usize, data: &[T]) -> Done {
        let src = data.as_ptr().cast();
        self.ur
            .urEnqueueMemBufferWrite(
                queue.raw,
                self.raw,
                1,
                offset,
                size_of_val(data),
                src,
                0,
                null(),
                null_mut(),
            )
            .ok()
    }

    /// Reads from an offset in bytes and waits for it.
    #[track_caller]
    pub fn read<T: Copy + Default>(
        &self,
        queue: &Queue,
        offset: usize,
        count: usize,
    ) -> Result<Vec<T>, Stop> {
        let mut data = vec![T::default(); count];
        let size = count * size_of::<T>();
        let dst = data.as_mut_ptr().cast();
        self.ur
            .urEnqueueMemBufferRead(
                queue.raw,
                self.raw,
                1,
                offset,
                size,
                dst,
                0,
                null(),
                null_mut(),
            )
            .ok()?;
        Ok(data)
    }
}
