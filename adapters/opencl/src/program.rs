//! Programs: native programs, built for all or some of their devices.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{self, null, null_mut};
use std::sync::Arc;

use opencl_sys::*;
use ur::abi::*;
use ur::hal::{self, ProgramBuildInfo, ProgramInfo};
use ur::object::{Body, Error, Handles, InfoOut, Kind, Object, Result, ensure};
use ur::stream::Context;

use crate::OpenCl;
use crate::cl::{self, Api, KernelRef, ProgramRef, Version, check, failure};
use crate::device::Device;
use crate::kernel::Kernel;

type OfContext = Object<Context<OpenCl>>;

pub struct Program {
    context: Arc<OfContext>,
    program: ProgramRef,
}

impl Program {
    fn new(context: &OfContext, program: ProgramRef) -> Arc<Object<Self>> {
        hal::new::<OpenCl, _>(Self {
            context: context.arc(),
            program,
        })
    }

    /// `urProgramCreateWithIL`
    pub fn from_il(
        context: &OfContext,
        il: &[u8],
        _: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let native = &context.domain().state().context;
        let api = native.api();
        let modern = context.devices().iter().all(|device| {
            device.version() >= Version::new(2, 1)
                && device.platform().version() >= Version::new(2, 1)
        });
        let core = api.core.clCreateProgramWithIL.filter(|_| modern);
        let extension = api.ext().clCreateProgramWithILKHR;
        let has = context.devices().iter().all(|device| device.accepts_il());
        ensure(has, UR_RESULT_ERROR_COMPILER_NOT_AVAILABLE)?;
        let mut code = 0;
        // SAFETY: the context is alive, and the slice has that many bytes.
        let raw = unsafe {
            match (core, extension) {
                (Some(create), _) => create(native.raw(), il.as_ptr().cast(), il.len(), &mut code),
                (None, Some(create)) => {
                    create(native.raw(), il.as_ptr().cast(), il.len(), &mut code)
                }
                (None, None) => return Err(Error::new(UR_RESULT_ERROR_COMPILER_NOT_AVAILABLE)),
            }
        };
        if code == CL_INVALID_VALUE {
            // The code stands for several mistakes. The checks above leave the size and the bytes.
            failure(code, "clCreateProgramWithIL");
            ensure(!il.is_empty(), UR_RESULT_ERROR_INVALID_SIZE)?;
            return Err(Error::new(UR_RESULT_ERROR_INVALID_BINARY));
        }
        // SAFETY: the call returned the program with a reference for the caller.
        let program = unsafe { ProgramRef::created(api, raw, code, "clCreateProgramWithIL") }?;
        Ok(Self::new(context, program))
    }

    /// `urProgramCreateWithBinary`
    pub fn from_binaries(
        context: &OfContext,
        devices: Handles<'_, Device>,
        lengths: &[usize],
        binaries: &[*const u8],
        _: Option<&ur_program_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let native = &context.domain().state().context;
        let ids: Vec<cl_device_id> = devices.iter().map(|device| device.raw()).collect();
        let mut binaries: Vec<*const u8> = binaries.to_vec();
        let mut status = vec![0; ids.len()];
        let mut code = 0;
        // SAFETY: the lists of lengths, binaries and statuses are as long as that of devices.
        let program = unsafe {
            let create = native.api().core.clCreateProgramWithBinary;
            let raw = create(
                native.raw(),
                ids.len() as cl_uint,
                ids.as_ptr(),
                lengths.as_ptr(),
                binaries.as_mut_ptr(),
                status.as_mut_ptr(),
                &mut code,
            );
            ProgramRef::created(native.api(), raw, code, "clCreateProgramWithBinary")
        }?;
        Ok(Self::new(context, program))
    }

    pub fn from_native(
        context: &OfContext,
        native: ur_native_handle_t,
        properties: Option<&ur_program_native_properties_t>,
    ) -> Result<Arc<Object<Self>>> {
        let owned = properties.is_some_and(|properties| properties.isNativeHandleOwned != 0);
        let raw = ptr::with_exposed_provenance_mut(native);
        let own = &context.domain().state().context;
        // SAFETY: `urProgramCreateWithNativeHandle` requires a native program.
        let program = unsafe { ProgramRef::adopted(own.api(), raw, false) }?;
        let object = Self {
            context: context.arc(),
            program,
        };
        let of: usize = object.property(CL_PROGRAM_CONTEXT)?;
        ensure(of == own.raw().addr(), UR_RESULT_ERROR_INVALID_CONTEXT)?;
        object.program.own(owned);
        Ok(hal::new::<OpenCl, _>(object))
    }

    pub fn context(&self) -> &Arc<OfContext> {
        &self.context
    }

    pub fn native(&self) -> &ProgramRef {
        &self.program
    }

    fn api(&self) -> &'static Api {
        self.program.api()
    }

    pub fn check_context(&self, context: &OfContext) -> Result<()> {
        ensure(
            ptr::eq(&*self.context, context),
            UR_RESULT_ERROR_INVALID_PROGRAM,
        )
    }

    /// `urProgramBuild`
    pub fn build_all(
        context: &OfContext,
        own: &Object<Self>,
        options: Option<&CStr>,
    ) -> Result<()> {
        own.check_context(context)?;
        own.build(&[], options)
    }

    /// `urProgramCompile`
    pub fn compile_all(
        context: &OfContext,
        own: &Object<Self>,
        options: Option<&CStr>,
    ) -> Result<()> {
        own.check_context(context)?;
        own.compile(&[], options)
    }

    /// Builds for these devices, or for all devices of the program if the list is empty.
    fn build(&self, devices: &[cl_device_id], options: Option<&CStr>) -> Result<()> {
        let (count, list) = counted(devices);
        let options = options.unwrap_or_default().as_ptr();
        let build = self.api().core.clBuildProgram;
        // SAFETY: program and devices are alive, and there is no callback.
        let code = unsafe { build(self.program.raw(), count, list, options, None, null_mut()) };
        check(code, "clBuildProgram")
    }

    fn compile(&self, devices: &[cl_device_id], options: Option<&CStr>) -> Result<()> {
        let (count, list) = counted(devices);
        let options = options.unwrap_or_default().as_ptr();
        let compile = self.api().core.clCompileProgram;
        // SAFETY: program and devices are alive, and there are no headers and no callback.
        let code = unsafe {
            compile(
                self.program.raw(),
                count,
                list,
                options,
                0,
                null(),
                null_mut(),
                None,
                null_mut(),
            )
        };
        check(code, "clCompileProgram")
    }

    pub fn link(
        context: &OfContext,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        programs: Handles<'_, Program>,
        options: Option<&CStr>,
    ) -> Result<Arc<Object<Self>>> {
        for program in programs.iter() {
            program.check_context(context)?;
        }
        let native = &context.domain().state().context;
        let devices = ids(devices);
        let (count, list) = counted(&devices);
        let inputs: Vec<cl_program> = programs
            .iter()
            .map(|program| program.program.raw())
            .collect();
        let options = options.unwrap_or_default().as_ptr();
        let mut code = 0;
        // SAFETY: context, devices and programs are alive, and there is no callback.
        let raw = unsafe {
            let link = native.api().core.clLinkProgram;
            link(
                native.raw(),
                count,
                list,
                options,
                inputs.len() as cl_uint,
                inputs.as_ptr(),
                None,
                null_mut(),
                &mut code,
            )
        };
        if code != CL_SUCCESS {
            return Err(Self::unlinked(context, raw, code));
        }
        // SAFETY: the call succeeded and returned the program with a reference for the caller.
        let program = unsafe { ProgramRef::created(native.api(), raw, code, "clLinkProgram") }?;
        Ok(Self::new(context, program))
    }

    /// The error of a failed link. The driver leaves a program with the log, which the caller does not get.
    /// So the log becomes the error's message.
    fn unlinked(context: &OfContext, raw: cl_program, code: cl_int) -> Error {
        let api = context.domain().state().context.api();
        // SAFETY: the call returned null, or a program with a reference for the caller.
        let failed = unsafe { ProgramRef::adopted(api, raw, true) };
        let failed = failed.map(|program| Self {
            context: context.arc(),
            program,
        });
        let mut logs: Vec<String> = Vec::new();
        for device in context.devices() {
            let log = failed
                .as_ref()
                .map(|failed| failed.build_property(device, CL_PROGRAM_BUILD_LOG));
            if let Ok(Ok(log)) = log {
                logs.push(
                    String::from_utf8_lossy(&log)
                        .trim_matches(['\0', '\n'])
                        .to_owned(),
                );
            }
        }
        logs.retain(|log| !log.is_empty());
        logs.dedup();
        // This call comes last, so that its code is the thread's last error.
        let error = match (failure(code, "clLinkProgram"), code) {
            // The reference reports wrong options as a failed link.
            (_, CL_INVALID_LINKER_OPTIONS) => Error::new(UR_RESULT_ERROR_PROGRAM_LINK_FAILURE),
            (error, _) => error,
        };
        error.explained(&logs.join("\n"))
    }

    fn property<T: Copy>(&self, what: cl_program_info) -> Result<T> {
        // SAFETY: `ProgramRef` holds a reference to the program, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetProgramInfo)(self.program.raw(), what, size, value, ret)
        };
        cl::value(query, "clGetProgramInfo")
    }

    fn list<T: Copy>(&self, what: cl_program_info) -> Result<Vec<T>> {
        // SAFETY: `ProgramRef` holds a reference to the program, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetProgramInfo)(self.program.raw(), what, size, value, ret)
        };
        cl::list(query, "clGetProgramInfo")
    }

    fn build_property<T: Copy>(
        &self,
        device: &Object<Device>,
        what: cl_program_build_info,
    ) -> Result<Vec<T>> {
        // SAFETY: program and device are alive, and `cl` passes a buffer of that size.
        let query = |size, value, ret| unsafe {
            (self.api().core.clGetProgramBuildInfo)(
                self.program.raw(),
                device.raw(),
                what,
                size,
                value,
                ret,
            )
        };
        cl::list(query, "clGetProgramBuildInfo")
    }

    /// The program's binary for each device.
    fn binaries(&self) -> Result<Vec<Vec<u8>>> {
        let sizes: Vec<usize> = self.list(CL_PROGRAM_BINARY_SIZES)?;
        let mut binaries: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
        let mut places: Vec<*mut u8> = binaries.iter_mut().map(Vec::as_mut_ptr).collect();
        let (bytes, places) = (size_of_val(&*places), places.as_mut_ptr().cast());
        let query = self.api().core.clGetProgramInfo;
        // SAFETY: the program is alive, and each binary has as many bytes as the driver reported.
        let code = unsafe {
            query(
                self.program.raw(),
                CL_PROGRAM_BINARIES,
                bytes,
                places,
                null_mut(),
            )
        };
        check(code, "clGetProgramInfo")?;
        Ok(binaries)
    }

    /// The program's devices: those of the context, or sub-devices of them.
    fn devices(&self) -> Result<Vec<Arc<Object<Device>>>> {
        let ids: Vec<usize> = self.list(CL_PROGRAM_DEVICES)?;
        let own = |id: &usize| {
            self.context
                .devices()
                .iter()
                .find(|device| device.raw().addr() == *id)
                .cloned()
        };
        let object = |id: &usize| own(id).map_or_else(|| Device::from_native(*id), Ok);
        ids.iter().map(object).collect()
    }

    /// The address of a function on a device.
    pub fn function(&self, device: &Object<Device>, name: &CStr) -> Result<*mut c_void> {
        let find = self
            .api()
            .ext()
            .clGetDeviceFunctionPointerINTEL
            .ok_or(Error::unsupported())?;
        let mut at = 0;
        // SAFETY: device and program are alive, and the name is a C string.
        let code = unsafe { find(device.raw(), self.program.raw(), name.as_ptr(), &mut at) };
        if code == CL_INVALID_ARG_VALUE || (code == CL_SUCCESS && at == 0) {
            // The name is unknown, or the function has no address.
            let names = self.list::<u8>(CL_PROGRAM_KERNEL_NAMES)?;
            let known = names
                .split(|byte| matches!(byte, b';' | 0))
                .any(|known| known == name.to_bytes());
            return Err(Error::new(match known {
                true => UR_RESULT_ERROR_FUNCTION_ADDRESS_NOT_AVAILABLE,
                false => UR_RESULT_ERROR_INVALID_KERNEL_NAME,
            }));
        }
        check(code, "clGetDeviceFunctionPointerINTEL")?;
        Ok(ptr::with_exposed_provenance_mut(at as usize))
    }

    /// Address and size in bytes of a global variable.
    pub fn global(&self, device: &Object<Device>, name: &CStr) -> Result<(usize, usize)> {
        let find = self
            .api()
            .ext()
            .clGetDeviceGlobalVariablePointerINTEL
            .ok_or(Error::unsupported())?;
        let (mut at, mut bytes) = (null_mut(), 0);
        // SAFETY: device and program are alive, the name is a C string, and both results are writable.
        let code = unsafe {
            find(
                device.raw(),
                self.program.raw(),
                name.as_ptr(),
                &mut bytes,
                &mut at,
            )
        };
        if code == CL_INVALID_ARG_VALUE {
            failure(code, "clGetDeviceGlobalVariablePointerINTEL");
            return Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        }
        check(code, "clGetDeviceGlobalVariablePointerINTEL")?;
        Ok((at.expose_provenance(), bytes))
    }
}

/// Length and address of a list of devices. An empty list has a null address, which means all devices.
fn counted(devices: &[cl_device_id]) -> (cl_uint, *const cl_device_id) {
    match devices {
        [] => (0, null()),
        some => (some.len() as cl_uint, some.as_ptr()),
    }
}

pub fn ids(devices: Handles<'_, Device>) -> Vec<cl_device_id> {
    devices.iter().map(|device| device.raw()).collect()
}

impl Body for Program {
    const KIND: Kind = Kind::Program;
}

impl hal::Program<OpenCl> for Program {
    fn get_info(this: &Object<Self>, what: ProgramInfo, out: InfoOut<'_>) -> Result<()> {
        match what {
            ProgramInfo::ReferenceCount => out.value(this.api_refs()),
            ProgramInfo::Context => out.handle(Some(&this.context)),
            ProgramInfo::NumDevices => out.value(this.property::<cl_uint>(CL_PROGRAM_NUM_DEVICES)?),
            ProgramInfo::Devices => {
                let handles: Vec<_> = this
                    .devices()?
                    .iter()
                    .map(|device| device.handle())
                    .collect();
                out.slice(&handles)
            }
            ProgramInfo::Il => match this.api().core.clCreateProgramWithIL {
                Some(_) => out.slice(&this.list::<u8>(CL_PROGRAM_IL).unwrap_or_default()),
                None => out.slice::<u8>(&[]),
            },
            ProgramInfo::BinarySizes => out.slice(&this.list::<usize>(CL_PROGRAM_BINARY_SIZES)?),
            ProgramInfo::Binaries => {
                let binaries = this.binaries()?;
                // SAFETY: the caller gives each pointer the room that `BinarySizes` reports.
                unsafe { out.buffers(&binaries) }
            }
            ProgramInfo::NumKernels => out.value(this.property::<usize>(CL_PROGRAM_NUM_KERNELS)?),
            ProgramInfo::KernelNames => out.slice(&this.list::<c_char>(CL_PROGRAM_KERNEL_NAMES)?),
        }
    }

    fn get_build_info(
        this: &Object<Self>,
        device: &Object<Device>,
        what: ProgramBuildInfo,
        out: InfoOut<'_>,
    ) -> Result<()> {
        let invalid = Error::new(UR_RESULT_ERROR_INVALID_DEVICE);
        match what {
            ProgramBuildInfo::Status => {
                let status =
                    this.build_property::<cl_build_status>(device, CL_PROGRAM_BUILD_STATUS)?;
                out.value(match *status.first().ok_or(invalid)? {
                    CL_BUILD_SUCCESS => UR_PROGRAM_BUILD_STATUS_SUCCESS,
                    CL_BUILD_ERROR => UR_PROGRAM_BUILD_STATUS_ERROR,
                    CL_BUILD_IN_PROGRESS => UR_PROGRAM_BUILD_STATUS_IN_PROGRESS,
                    _ => UR_PROGRAM_BUILD_STATUS_NONE,
                })
            }
            ProgramBuildInfo::Options => {
                out.slice(&this.build_property::<u8>(device, CL_PROGRAM_BUILD_OPTIONS)?)
            }
            ProgramBuildInfo::Log => {
                out.slice(&this.build_property::<u8>(device, CL_PROGRAM_BUILD_LOG)?)
            }
            ProgramBuildInfo::BinaryType => {
                let kind =
                    this.build_property::<cl_program_binary_type>(device, CL_PROGRAM_BINARY_TYPE)?;
                out.value(match *kind.first().ok_or(invalid)? {
                    CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT => {
                        UR_PROGRAM_BINARY_TYPE_COMPILED_OBJECT
                    }
                    CL_PROGRAM_BINARY_TYPE_LIBRARY => UR_PROGRAM_BINARY_TYPE_LIBRARY,
                    CL_PROGRAM_BINARY_TYPE_EXECUTABLE => UR_PROGRAM_BINARY_TYPE_EXECUTABLE,
                    _ => UR_PROGRAM_BINARY_TYPE_NONE,
                })
            }
        }
    }

    fn set_specialization_constants(
        this: &Object<Self>,
        constants: &[ur_specialization_constant_info_t],
    ) -> Result<()> {
        let modern = this
            .context
            .devices()
            .iter()
            .all(|device| device.specializes());
        let set = this
            .api()
            .core
            .clSetProgramSpecializationConstant
            .filter(|_| modern);
        let set = set.ok_or(Error::unsupported())?;
        for constant in constants {
            // SAFETY: the program is alive, and the caller's value has that many bytes.
            let code = unsafe {
                set(
                    this.program.raw(),
                    constant.id,
                    constant.size,
                    constant.pValue,
                )
            };
            check(code, "clSetProgramSpecializationConstant")?;
        }
        Ok(())
    }

    fn get_native_handle(this: &Object<Self>) -> Result<ur_native_handle_t> {
        Ok(this.program.raw().expose_provenance())
    }

    fn kernel_create(this: &Object<Self>, name: &CStr) -> Result<Arc<Object<Kernel>>> {
        let mut code = 0;
        // SAFETY: the program is alive, and the name is a C string.
        let kernel = unsafe {
            let raw =
                (this.api().core.clCreateKernel)(this.program.raw(), name.as_ptr(), &mut code);
            KernelRef::created(this.api(), raw, code, "clCreateKernel")
        }?;
        Ok(Kernel::new(this, kernel))
    }

    fn build_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        this.build(&ids(devices), options)
    }

    fn compile_exp(
        this: &Object<Self>,
        devices: Handles<'_, Device>,
        _: ur_exp_program_flags_t,
        options: Option<&CStr>,
    ) -> Result<()> {
        this.compile(&ids(devices), options)
    }
}
