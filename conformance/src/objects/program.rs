//! Programs of test kernels, and the arguments of launches.

use super::{Buffer, Context, Image, Sampler, info, owned};
use crate::fixture::Fixture;
use crate::kernels::{self, KernelProvider, Source};
use crate::outcome::{Done, Stop};
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use ur::abi::*;

/// Whether the device takes intermediate code.
fn accepts_il(fixture: &Fixture) -> Result<bool, Stop> {
    let what = UR_DEVICE_INFO_IL_VERSION;
    let query = |size, value, ret| {
        fixture
            .ur
            .urDeviceGetInfo(fixture.device, what, size, value, ret)
    };
    Ok(!info::text(query)?.is_empty())
}

owned!(
    /// A program.
    Program, ur_program_handle_t, urProgramRetain, urProgramRelease
);

owned!(
    /// A kernel of a program.
    Kernel, ur_kernel_handle_t, urKernelRetain, urKernelRelease
);

impl Program {
    /// The built test kernels for the device's backend. Skips the test if there are none.
    #[track_caller]
    pub fn new(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        Self::on(fixture, context, fixture.device)
    }

    /// The built test kernels for one of the context's devices.
    #[track_caller]
    pub fn on(
        fixture: &Fixture,
        context: &Context,
        device: ur_device_handle_t,
    ) -> Result<Self, Stop> {
        let program = Self::unbuilt_on(fixture, context, device)?;
        program
            .ur
            .urProgramBuild(context.raw, program.raw, null())
            .ok()?;
        Ok(program)
    }

    #[track_caller]
    pub fn unbuilt(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        Self::unbuilt_on(fixture, context, fixture.device)
    }

    #[track_caller]
    fn unbuilt_on(
        fixture: &Fixture,
        context: &Context,
        device: ur_device_handle_t,
    ) -> Result<Self, Stop> {
        let provider = kernels::provider(fixture.backend).ok_or_else(|| {
            Stop::skipped(format!("no test kernels for {:?} yet", fixture.backend))
        })?;
        let counts = provider.argument_counts().iter();
        let metadata: Vec<_> = counts
            .map(|&(name, count)| ur_program_metadata_t {
                pName: name.as_ptr(),
                r#type: UR_PROGRAM_METADATA_TYPE_UINT32,
                size: size_of::<u32>(),
                value: ur_program_metadata_value_t { data32: count },
            })
            .collect();
        let source = provider.source(accepts_il(fixture)?);
        Self::of(context, device, source, &metadata)
    }

    /// A program that does not build. Skips the test if no provider has one.
    #[track_caller]
    pub fn broken(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        let source = kernels::provider(fixture.backend).and_then(KernelProvider::broken);
        let source = source
            .ok_or_else(|| Stop::skipped(format!("no broken program for {:?}", fixture.backend)))?;
        Self::of(context, fixture.device, source, &[])
    }

    /// The built kernels that use images, for one of the context's devices. Skips the test if no provider has any.
    #[track_caller]
    pub fn of_images(
        fixture: &Fixture,
        context: &Context,
        device: ur_device_handle_t,
    ) -> Result<Self, Stop> {
        let source = kernels::provider(fixture.backend).and_then(KernelProvider::images);
        let source = source.ok_or_else(|| {
            Stop::skipped(format!("no kernels with images for {:?}", fixture.backend))
        })?;
        let program = Self::of(context, device, source, &[])?;
        program
            .ur
            .urProgramBuild(context.raw, program.raw, null())
            .ok()?;
        Ok(program)
    }

    /// The built kernels on bindless images. Skips the test if the backend has none.
    #[track_caller]
    pub fn of_bindless(fixture: &Fixture, context: &Context) -> Result<Self, Stop> {
        let source = kernels::provider(fixture.backend).and_then(KernelProvider::bindless);
        let source = source.ok_or_else(|| {
            Stop::skipped(format!(
                "no kernels on bindless images for {:?}",
                fixture.backend
            ))
        })?;
        let program = Self::of(context, fixture.device, source, &[])?;
        program
            .ur
            .urProgramBuild(context.raw, program.raw, null())
            .ok()?;
        Ok(program)
    }

    /// A kernel, the function that it imports, and build options of the function. Skips the test if no provider has them.
    #[track_caller]
    pub fn halves(
        fixture: &Fixture,
        context: &Context,
    ) -> Result<(Self, Self, &'static CStr), Stop> {
        let found = kernels::provider(fixture.backend).and_then(KernelProvider::halves);
        let found = found.ok_or_else(|| {
            Stop::skipped(format!("no program to link for {:?}", fixture.backend))
        })?;
        let of = |source| Self::of(context, fixture.device, source, &[]);
        Ok((of(found.kernel)?, of(found.function)?, found.options))
    }

    #[track_caller]
    fn of(
        context: &Context,
        device: ur_device_handle_t,
        source: Source,
        metadata: &[ur_program_metadata_t],
    ) -> Result<Self, Stop> {
        let properties = ur_program_properties_t {
            count: metadata.len() as u32,
            pMetadatas: metadata.as_ptr(),
            ..Default::default()
        };
        let properties = match metadata {
            [] => null(),
            _ => &raw const properties,
        };
        let mut raw = null_mut();
        let ur = context.ur;
        match source {
            Source::Binary { data, mut size } => {
                let (mut device, mut data) = (device, data.cast::<u8>());
                ur.urProgramCreateWithBinary(
                    context.raw,
                    1,
                    &mut device,
                    &mut size,
                    &mut data,
                    properties,
                    &mut raw,
                )
                .ok()?;
            }
            Source::Il { data, size } => {
                ur.urProgramCreateWithIL(context.raw, data, size, null(), &mut raw)
                    .ok()?;
            }
            Source::Native { make } => {
                let mut native = 0;
                ur.urContextGetNativeHandle(context.raw, &mut native).ok()?;
                let program = make(native).map_err(Stop::failed)?;
                let properties = ur_program_native_properties_t {
                    isNativeHandleOwned: 1,
                    ..Default::default()
                };
                ur.urProgramCreateWithNativeHandle(program, context.raw, &properties, &mut raw)
                    .ok()?;
            }
        }
        Ok(Self::adopt(ur, raw))
    }

    #[track_caller]
    pub fn kernel(&self, name: &CStr) -> Result<Kernel, Stop> {
        let mut raw = null_mut();
        self.ur
            .urKernelCreate(self.raw, name.as_ptr(), &mut raw)
            .ok()?;
        Ok(Kernel::adopt(self.ur, raw))
    }

    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_program_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| {
            self.ur
                .urProgramGetInfo(self.raw, property, size, value, ret)
        })
    }
}

impl Kernel {
    #[track_caller]
    pub fn get<T: Copy>(&self, property: ur_kernel_info_t) -> Result<T, Stop> {
        info::value(|size, value, ret| {
            self.ur
                .urKernelGetInfo(self.raw, property, size, value, ret)
        })
    }

    /// Says that the kernel uses memory that is not among its arguments.
    #[track_caller]
    pub fn use_any_memory(&self) -> Done {
        let (what, yes): (_, ur_bool_t) = (UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS, 1);
        let (bytes, yes) = (size_of::<ur_bool_t>(), (&raw const yes).cast());
        self.ur
            .urKernelSetExecInfo(self.raw, what, bytes, std::ptr::null(), yes)
            .ok()
    }

    /// Stops the test unless the adapter knows how many arguments the kernel takes.
    pub fn need_arguments(&self) -> Done {
        match self.get::<u32>(UR_KERNEL_INFO_NUM_ARGS) {
            Err(Stop::Unsupported { .. }) => Err(Stop::skipped(
                "the adapter does not know how many arguments a kernel takes",
            )),
            result => result.map(drop),
        }
    }
}

/// An argument of a launch.
pub enum Arg<'a> {
    /// A USM pointer.
    Pointer(*const c_void),
    /// Plain data.
    Value(&'a [u8]),
    Buffer(&'a Buffer),
    Image(&'a Image),
    Sampler(&'a Sampler),
    /// Bytes of local memory.
    Local(usize),
}

impl<'a> Arg<'a> {
    /// A value of any plain type.
    pub fn of<T: Copy>(value: &'a T) -> Self {
        // SAFETY: a value of a plain type is `size_of` readable bytes for as long as it is borrowed.
        Arg::Value(unsafe {
            std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>())
        })
    }

    pub fn properties(args: &[Arg]) -> Vec<ur_exp_kernel_arg_properties_t> {
        args.iter()
            .enumerate()
            .map(|(index, arg)| arg.property(index as u32))
            .collect()
    }

    fn property(&self, index: u32) -> ur_exp_kernel_arg_properties_t {
        let (ty, size, value) = match self {
            Arg::Pointer(pointer) => (
                UR_EXP_KERNEL_ARG_TYPE_POINTER,
                size_of::<*const c_void>(),
                ur_exp_kernel_arg_value_t { pointer: *pointer },
            ),
            Arg::Value(bytes) => {
                let value = bytes.as_ptr().cast();
                (
                    UR_EXP_KERNEL_ARG_TYPE_VALUE,
                    bytes.len(),
                    ur_exp_kernel_arg_value_t { value },
                )
            }
            Arg::Buffer(Buffer { raw, .. }) | Arg::Image(Image { raw, .. }) => {
                let flags = UR_MEM_FLAG_READ_WRITE;
                let tuple = ur_exp_kernel_arg_mem_obj_tuple_t { hMem: *raw, flags };
                let size = size_of::<ur_mem_handle_t>();
                (
                    UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ,
                    size,
                    ur_exp_kernel_arg_value_t { memObjTuple: tuple },
                )
            }
            Arg::Sampler(sampler) => (
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER,
                size_of::<ur_sampler_handle_t>(),
                ur_exp_kernel_arg_value_t {
                    sampler: sampler.raw,
                },
            ),
            Arg::Local(size) => (
                UR_EXP_KERNEL_ARG_TYPE_LOCAL,
                *size,
                ur_exp_kernel_arg_value_t { value: null() },
            ),
        };
        ur_exp_kernel_arg_properties_t {
            r#type: ty,
            index,
            size,
            value,
            ..Default::default()
        }
    }
}
