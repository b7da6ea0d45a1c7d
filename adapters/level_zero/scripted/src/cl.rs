//! Kernels and images on Intel's OpenCL driver for CPUs: one device, one context, one queue, for all devices of this driver.
//!
//! That driver lets kernels use any memory of the process, so allocations need not be its own.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{self, null, null_mut};
use std::sync::{Mutex, OnceLock};

use opencl_sys::cl_function_types::*;
use opencl_sys::*;
use ur::dl::symbols;
use ur::hal::Unwrapped;
use ze::*;

use crate::entry::Answer;
use crate::image::Part;
use crate::kernel::Argument;
use crate::object::hold;

type F<T> = <T as Unwrapped>::Fn;

type FunctionPointer =
    unsafe extern "C" fn(cl_device_id, cl_program, *const c_char, *mut cl_ulong) -> cl_int;
type VariablePointer = unsafe extern "C" fn(
    cl_device_id,
    cl_program,
    *const c_char,
    *mut usize,
    *mut *mut c_void,
) -> cl_int;

symbols! {
    /// Functions that the library exports.
    struct Core {
        required {
            clGetPlatformIDs: F<clGetPlatformIDs_t>,
            clGetPlatformInfo: F<clGetPlatformInfo_t>,
            clGetDeviceIDs: F<clGetDeviceIDs_t>,
            clCreateContext: F<clCreateContext_t>,
            clCreateCommandQueueWithProperties: F<clCreateCommandQueueWithProperties_t>,
            clCreateProgramWithIL: F<clCreateProgramWithIL_t>,
            clSetProgramSpecializationConstant: F<clSetProgramSpecializationConstant_t>,
            clBuildProgram: F<clBuildProgram_t>,
            clCompileProgram: F<clCompileProgram_t>,
            clLinkProgram: F<clLinkProgram_t>,
            clReleaseProgram: F<clReleaseProgram_t>,
            clGetProgramBuildInfo: F<clGetProgramBuildInfo_t>,
            clCreateKernel: F<clCreateKernel_t>,
            clReleaseKernel: F<clReleaseKernel_t>,
            clGetKernelWorkGroupInfo: F<clGetKernelWorkGroupInfo_t>,
            clSetKernelArg: F<clSetKernelArg_t>,
            clEnqueueNDRangeKernel: F<clEnqueueNDRangeKernel_t>,
            clCreateImage: F<clCreateImage_t>,
            clReleaseMemObject: F<clReleaseMemObject_t>,
            clEnqueueReadImage: F<clEnqueueReadImage_t>,
            clEnqueueWriteImage: F<clEnqueueWriteImage_t>,
            clCreateSampler: F<clCreateSampler_t>,
            clReleaseSampler: F<clReleaseSampler_t>,
            clWaitForEvents: F<clWaitForEvents_t>,
            clReleaseEvent: F<clReleaseEvent_t>,
            clGetExtensionFunctionAddressForPlatform: F<clGetExtensionFunctionAddressForPlatform_t>,
        }
        optional {}
    }
}

symbols! {
    /// The driver's extensions.
    struct Extensions {
        required {
            clSetKernelArgMemPointerINTEL: F<clSetKernelArgMemPointerINTEL_t>,
        }
        optional {
            clGetDeviceFunctionPointerINTEL: FunctionPointer,
            clGetDeviceGlobalVariablePointerINTEL: VariablePointer,
        }
    }
}

/// The driver, its device, and what was made there once.
pub struct Cl {
    core: Core,
    ext: Extensions,
    device: cl_device_id,
    context: cl_context,
    queue: cl_command_queue,
}

// SAFETY: OpenCL's objects may be used by any thread.
unsafe impl Send for Cl {}
// SAFETY: OpenCL's functions are safe to call concurrently, but for a kernel's arguments, which are behind a lock.
unsafe impl Sync for Cl {}

/// Intel's driver for CPUs, if it is there.
pub fn get() -> Option<&'static Cl> {
    static FOUND: OnceLock<Option<Cl>> = OnceLock::new();
    FOUND.get_or_init(Cl::find).as_ref()
}

impl Cl {
    fn find() -> Option<Self> {
        let core = Core::load(&["libOpenCL.so.1", "libOpenCL.so"]).ok()?;
        let mut platforms = [null_mut(); 16];
        let mut count = 0;
        // SAFETY: the array has room for 16.
        let code = unsafe { (core.clGetPlatformIDs)(16, platforms.as_mut_ptr(), &mut count) };
        if code != CL_SUCCESS {
            return None;
        }
        let all = platforms.into_iter().take((count as usize).min(16));
        all.filter(|one| core.is_intel(*one))
            .find_map(|platform| {
                let mut device = null_mut();
                // SAFETY: a listed platform; there is room for one device.
                let code = unsafe {
                    (core.clGetDeviceIDs)(platform, CL_DEVICE_TYPE_CPU, 1, &mut device, null_mut())
                };
                (code == CL_SUCCESS).then_some((platform, device))
            })
            .and_then(|(platform, device)| Self::open(core, platform, device))
    }

    fn open(core: Core, platform: cl_platform_id, device: cl_device_id) -> Option<Self> {
        let find = core.clGetExtensionFunctionAddressForPlatform;
        // SAFETY: a listed platform.
        let lookup = |name: &CStr| unsafe { find(platform, name.as_ptr()) }.cast_const();
        let ext = Extensions::resolve(lookup, "platform").ok()?;
        let mut code = 0;
        // SAFETY: a listed device.
        let context =
            unsafe { (core.clCreateContext)(null(), 1, &device, None, null_mut(), &mut code) };
        if code != CL_SUCCESS {
            return None;
        }
        let properties: [cl_queue_properties; 3] = [
            cl_queue_properties::from(CL_QUEUE_PROPERTIES),
            CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
            0,
        ];
        // SAFETY: the context's device.
        let queue = unsafe {
            (core.clCreateCommandQueueWithProperties)(
                context,
                device,
                properties.as_ptr(),
                &mut code,
            )
        };
        (code == CL_SUCCESS).then_some(Self {
            core,
            ext,
            device,
            context,
            queue,
        })
    }
}

impl Cl {
    /// Waits for a command's end, and releases its event.
    fn finish(&self, event: cl_event) -> cl_int {
        // SAFETY: a command's event, which is released once.
        unsafe {
            let code = (self.core.clWaitForEvents)(1, &event);
            (self.core.clReleaseEvent)(event);
            code
        }
    }
}

impl Core {
    fn is_intel(&self, platform: cl_platform_id) -> bool {
        let mut name = [0_u8; 256];
        // SAFETY: a listed platform; the buffer has its size.
        let code = unsafe {
            (self.clGetPlatformInfo)(
                platform,
                CL_PLATFORM_NAME,
                name.len(),
                name.as_mut_ptr().cast(),
                null_mut(),
            )
        };
        code == CL_SUCCESS && name.starts_with(b"Intel(R) OpenCL")
    }
}

/// A module's source.
pub struct Input<'a> {
    pub spirv: &'a [u8],
    /// Id and bytes of each constant.
    pub constants: &'a [(u32, Vec<u8>)],
    /// Level Zero's flags.
    pub flags: &'a str,
}

/// OpenCL's options for Level Zero's. Others have no meaning on a CPU.
fn options(flags: &str) -> CString {
    let known = flags.split_whitespace().filter_map(|flag| match flag {
        "-ze-opt-disable" => Some("-cl-opt-disable"),
        flag if flag.starts_with("-cl-intel") => None,
        flag if flag.starts_with("-cl-") => Some(flag),
        _ => None,
    });
    CString::new(known.collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

pub struct Program {
    cl: &'static Cl,
    raw: cl_program,
}

// SAFETY: OpenCL's objects may be used by any thread.
unsafe impl Send for Program {}
// SAFETY: functions on programs are safe to call concurrently.
unsafe impl Sync for Program {}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: this is the only reference.
        unsafe { (self.cl.core.clReleaseProgram)(self.raw) };
    }
}

impl Program {
    /// Builds a program. Returns the log with it, or alone.
    pub fn build(cl: &'static Cl, inputs: &[Input<'_>]) -> Result<(Self, String), String> {
        if let [one] = inputs {
            let program = Self::open(cl, one)?;
            let options = options(one.flags);
            // SAFETY: the program is new; the options are a string.
            let code = unsafe {
                (cl.core.clBuildProgram)(
                    program.raw,
                    1,
                    &cl.device,
                    options.as_ptr(),
                    None,
                    null_mut(),
                )
            };
            return program.with_log(code);
        }
        let parts = inputs.iter().map(|one| Self::compiled(cl, one));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let raws: Vec<_> = parts.iter().map(|part| part.raw).collect();
        let count = u32::try_from(raws.len()).unwrap_or(0);
        let mut code = 0;
        // SAFETY: compiled programs of the context.
        let raw = unsafe {
            (cl.core.clLinkProgram)(
                cl.context,
                1,
                &cl.device,
                c"".as_ptr(),
                count,
                raws.as_ptr(),
                None,
                null_mut(),
                &mut code,
            )
        };
        if raw.is_null() {
            return Err(format!("linking failed with {code}"));
        }
        Self { cl, raw }.with_log(code)
    }

    /// Whether code compiles, apart from what it imports.
    pub fn compile(cl: &'static Cl, input: &Input<'_>) -> Result<(), String> {
        Self::compiled(cl, input).map(drop)
    }

    fn compiled(cl: &'static Cl, input: &Input<'_>) -> Result<Self, String> {
        let part = Self::open(cl, input)?;
        let options = options(input.flags);
        // SAFETY: the program is new; there are no headers.
        let code = unsafe {
            (cl.core.clCompileProgram)(
                part.raw,
                1,
                &cl.device,
                options.as_ptr(),
                0,
                null(),
                null_mut(),
                None,
                null_mut(),
            )
        };
        Ok(part.with_log(code)?.0)
    }

    fn open(cl: &'static Cl, input: &Input<'_>) -> Result<Self, String> {
        let mut code = 0;
        // SAFETY: the code has its size.
        let raw = unsafe {
            (cl.core.clCreateProgramWithIL)(
                cl.context,
                input.spirv.as_ptr().cast(),
                input.spirv.len(),
                &mut code,
            )
        };
        if code != CL_SUCCESS || raw.is_null() {
            return Err(format!("the code is refused with {code}"));
        }
        let program = Self { cl, raw };
        for (id, value) in input.constants {
            // SAFETY: the value has its size.
            let code = unsafe {
                (cl.core.clSetProgramSpecializationConstant)(
                    raw,
                    *id,
                    value.len(),
                    value.as_ptr().cast(),
                )
            };
            if code != CL_SUCCESS {
                return Err(format!("constant {id} is refused with {code}"));
            }
        }
        Ok(program)
    }

    fn with_log(self, code: cl_int) -> Result<(Self, String), String> {
        let ask = self.cl.core.clGetProgramBuildInfo;
        let mut size = 0;
        // SAFETY: the program's device; a size is asked for.
        unsafe {
            ask(
                self.raw,
                self.cl.device,
                CL_PROGRAM_BUILD_LOG,
                0,
                null_mut(),
                &mut size,
            )
        };
        let mut bytes = vec![0_u8; size];
        // SAFETY: the buffer has its size.
        unsafe {
            ask(
                self.raw,
                self.cl.device,
                CL_PROGRAM_BUILD_LOG,
                size,
                bytes.as_mut_ptr().cast(),
                null_mut(),
            )
        };
        let log = String::from_utf8_lossy(&bytes)
            .trim_end_matches('\0')
            .to_owned();
        match code {
            CL_SUCCESS => Ok((self, log)),
            code => Err(format!("building failed with {code}\n{log}")),
        }
    }

    /// A global variable's address and size.
    pub fn variable(&self, name: &CStr) -> Option<(*mut c_void, usize)> {
        let (mut start, mut size) = (null_mut(), 0);
        let ask = self.cl.ext.clGetDeviceGlobalVariablePointerINTEL?;
        // SAFETY: the program is built for the device.
        let code = unsafe {
            ask(
                self.cl.device,
                self.raw,
                name.as_ptr(),
                &mut size,
                &mut start,
            )
        };
        (code == CL_SUCCESS && !start.is_null()).then_some((start, size))
    }

    /// A function's address.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        let mut address = 0;
        let ask = self.cl.ext.clGetDeviceFunctionPointerINTEL?;
        // SAFETY: the program is built for the device.
        let code = unsafe { ask(self.cl.device, self.raw, name.as_ptr(), &mut address) };
        let address = usize::try_from(address).ok()?;
        (code == CL_SUCCESS && address != 0).then(|| ptr::with_exposed_provenance_mut(address))
    }

    pub fn kernel(&self, name: &CStr) -> Option<Kernel> {
        let mut code = 0;
        // SAFETY: the program is built.
        let raw = unsafe { (self.cl.core.clCreateKernel)(self.raw, name.as_ptr(), &mut code) };
        (code == CL_SUCCESS && !raw.is_null()).then(|| Kernel {
            cl: self.cl,
            raw: Mutex::new(raw),
        })
    }
}

pub struct Kernel {
    cl: &'static Cl,
    /// Locked while arguments are set and a launch takes them.
    raw: Mutex<cl_kernel>,
}

// SAFETY: OpenCL's objects may be used by any thread.
unsafe impl Send for Kernel {}
// SAFETY: the kernel is behind a lock.
unsafe impl Sync for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: this is the only reference.
        unsafe { (self.cl.core.clReleaseKernel)(*hold(&self.raw)) };
    }
}

impl Kernel {
    /// Bytes of local and of private memory.
    pub fn memory(&self) -> [u64; 2] {
        let raw = hold(&self.raw);
        [CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_PRIVATE_MEM_SIZE].map(|what| {
            let mut value = 0_u64;
            // SAFETY: both answers are numbers of 64 bits.
            unsafe {
                (self.cl.core.clGetKernelWorkGroupInfo)(
                    *raw,
                    self.cl.device,
                    what,
                    8,
                    (&raw mut value).cast(),
                    null_mut(),
                )
            };
            value
        })
    }

    /// Runs the kernel to its end. Returns OpenCL's code if that fails.
    pub fn run(
        &self,
        arguments: &[Argument],
        offset: [usize; 3],
        global: [usize; 3],
        local: [usize; 3],
    ) -> Result<(), cl_int> {
        let raw = hold(&self.raw);
        for (index, argument) in (0..).zip(arguments) {
            // SAFETY: the kernel is live; each value has its size.
            let code = unsafe {
                match argument {
                    Argument::Pointer(address) => (self.cl.ext.clSetKernelArgMemPointerINTEL)(
                        *raw,
                        index,
                        ptr::with_exposed_provenance(*address),
                    ),
                    Argument::Local(bytes) => {
                        (self.cl.core.clSetKernelArg)(*raw, index, *bytes, null())
                    }
                    Argument::Value(bytes) => (self.cl.core.clSetKernelArg)(
                        *raw,
                        index,
                        bytes.len(),
                        bytes.as_ptr().cast(),
                    ),
                    Argument::Image(image) => {
                        let own = image.code().map_or(null_mut(), |code| code.raw);
                        let size = size_of::<cl_mem>();
                        (self.cl.core.clSetKernelArg)(*raw, index, size, (&raw const own).cast())
                    }
                    Argument::Sampler(sampler) => {
                        let own = sampler.code.as_ref().map_or(null_mut(), |code| code.raw);
                        let size = size_of::<cl_sampler>();
                        (self.cl.core.clSetKernelArg)(*raw, index, size, (&raw const own).cast())
                    }
                }
            };
            check(code)?;
        }
        let mut event = null_mut();
        // SAFETY: three dimensions; the launch takes the arguments.
        check(unsafe {
            (self.cl.core.clEnqueueNDRangeKernel)(
                self.cl.queue,
                *raw,
                3,
                offset.as_ptr(),
                global.as_ptr(),
                local.as_ptr(),
                0,
                null(),
                &mut event,
            )
        })?;
        drop(raw);
        check(self.cl.finish(event))
    }
}

fn check(code: cl_int) -> Result<(), cl_int> {
    match code {
        CL_SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// An image.
pub struct Image {
    cl: &'static Cl,
    raw: cl_mem,
    has_slices: bool,
}

// SAFETY: OpenCL's objects may be used by any thread.
unsafe impl Send for Image {}
// SAFETY: functions on images are safe to call concurrently.
unsafe impl Sync for Image {}

const R: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_R;
const G: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_G;
const B: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_B;
const A: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_A;
const ZERO: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_0;
const ONE: ze_image_format_swizzle_t = ZE_IMAGE_FORMAT_SWIZZLE_1;

const ORDERS: [([ze_image_format_swizzle_t; 4], cl_channel_order); 8] = [
    ([R, ZERO, ZERO, ONE], CL_R),
    ([ZERO, ZERO, ZERO, R], CL_A),
    ([R, R, R, R], CL_INTENSITY),
    ([R, R, R, ONE], CL_LUMINANCE),
    ([R, G, ZERO, ONE], CL_RG),
    ([R, ZERO, ZERO, G], CL_RA),
    ([R, G, B, A], CL_RGBA),
    ([B, G, R, A], CL_BGRA),
];

/// OpenCL's types of channels of 8, 16 and 32 bits.
const TYPES: [(ze_image_format_type_t, [Option<cl_channel_type>; 3]); 5] = [
    (
        ZE_IMAGE_FORMAT_TYPE_UINT,
        [
            Some(CL_UNSIGNED_INT8),
            Some(CL_UNSIGNED_INT16),
            Some(CL_UNSIGNED_INT32),
        ],
    ),
    (
        ZE_IMAGE_FORMAT_TYPE_SINT,
        [
            Some(CL_SIGNED_INT8),
            Some(CL_SIGNED_INT16),
            Some(CL_SIGNED_INT32),
        ],
    ),
    (
        ZE_IMAGE_FORMAT_TYPE_UNORM,
        [Some(CL_UNORM_INT8), Some(CL_UNORM_INT16), None],
    ),
    (
        ZE_IMAGE_FORMAT_TYPE_SNORM,
        [Some(CL_SNORM_INT8), Some(CL_SNORM_INT16), None],
    ),
    (
        ZE_IMAGE_FORMAT_TYPE_FLOAT,
        [None, Some(CL_HALF_FLOAT), Some(CL_FLOAT)],
    ),
];

/// OpenCL's order of channels, and their types.
fn channels(
    format: &ze_image_format_t,
) -> Option<(cl_channel_order, [Option<cl_channel_type>; 3])> {
    let swizzles = [format.x, format.y, format.z, format.w];
    let order = ORDERS.iter().find(|(own, _)| *own == swizzles)?.1;
    let types = TYPES.iter().find(|(own, _)| *own == format.r#type)?.1;
    Some((order, types))
}

/// Whether a format may be that of an image.
pub fn is_known(format: &ze_image_format_t) -> bool {
    channels(format).is_some()
}

impl Image {
    /// An image with so many pixels along the axes, of which layers are the last, and bytes of a channel.
    pub fn create(
        cl: &'static Cl,
        desc: &ze_image_desc_t,
        [width, second, third]: [usize; 3],
        bytes: usize,
    ) -> Answer<Self> {
        let unknown = ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT;
        let (order, types) = channels(&desc.format).ok_or(unknown)?;
        let format = cl_image_format {
            image_channel_order: order,
            image_channel_data_type: types[bytes.ilog2() as usize].ok_or(unknown)?,
        };
        let (kind, height, depth, layers) = match desc.r#type {
            ZE_IMAGE_TYPE_1D => (CL_MEM_OBJECT_IMAGE1D, 0, 0, 0),
            ZE_IMAGE_TYPE_2D => (CL_MEM_OBJECT_IMAGE2D, second, 0, 0),
            ZE_IMAGE_TYPE_3D => (CL_MEM_OBJECT_IMAGE3D, second, third, 0),
            ZE_IMAGE_TYPE_1DARRAY => (CL_MEM_OBJECT_IMAGE1D_ARRAY, 0, 0, second),
            _ => (CL_MEM_OBJECT_IMAGE2D_ARRAY, second, 0, third),
        };
        let shape = cl_image_desc {
            image_type: kind,
            image_width: width,
            image_height: height,
            image_depth: depth,
            image_array_size: layers,
            image_row_pitch: 0,
            image_slice_pitch: 0,
            num_mip_levels: 0,
            num_samples: 0,
            buffer: null_mut(),
        };
        let mut code = 0;
        // SAFETY: both descriptions last for the call; there is no host memory.
        let raw = unsafe {
            (cl.core.clCreateImage)(
                cl.context,
                CL_MEM_READ_WRITE,
                &format,
                &shape,
                null_mut(),
                &mut code,
            )
        };
        match code {
            CL_SUCCESS => Ok(Self {
                cl,
                raw,
                has_slices: !matches!(desc.r#type, ZE_IMAGE_TYPE_1D | ZE_IMAGE_TYPE_2D),
            }),
            CL_IMAGE_FORMAT_NOT_SUPPORTED => Err(unknown),
            _ => Err(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
        }
    }

    /// Copies a box to memory, or with `writes` from there. The memory has its address and its pitches.
    ///
    /// # Safety
    /// The memory has room for the box.
    pub unsafe fn transfer(
        &self,
        part: &Part,
        (start, row, slice): (usize, usize, usize),
        writes: bool,
    ) -> Answer {
        let (core, queue, wait) = (&self.cl.core, self.cl.queue, CL_FALSE);
        let (origin, region) = (part.origin.as_ptr(), part.region.as_ptr());
        let memory: *mut c_void = ptr::with_exposed_provenance_mut(start);
        // OpenCL takes no pitch of slices for an image without any.
        let slice = if self.has_slices { slice } else { 0 };
        let mut event = null_mut();
        // SAFETY: as the caller promises, until the end that is waited for below.
        let code = unsafe {
            match writes {
                true => (core.clEnqueueWriteImage)(
                    queue,
                    self.raw,
                    wait,
                    origin,
                    region,
                    row,
                    slice,
                    memory,
                    0,
                    null(),
                    &mut event,
                ),
                false => (core.clEnqueueReadImage)(
                    queue,
                    self.raw,
                    wait,
                    origin,
                    region,
                    row,
                    slice,
                    memory,
                    0,
                    null(),
                    &mut event,
                ),
            }
        };
        // A blocking write would return once the memory was read.
        let code = match code {
            CL_SUCCESS => self.cl.finish(event),
            code => code,
        };
        match code {
            CL_SUCCESS => Ok(()),
            code => {
                crate::script::broken(format!("OpenCL's copy of an image failed with {code}"));
                Err(ZE_RESULT_ERROR_UNKNOWN)
            }
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: this is the only reference.
        unsafe { (self.cl.core.clReleaseMemObject)(self.raw) };
    }
}

/// A sampler.
pub struct Sampler {
    cl: &'static Cl,
    raw: cl_sampler,
}

// SAFETY: OpenCL's objects may be used by any thread.
unsafe impl Send for Sampler {}
// SAFETY: functions on samplers are safe to call concurrently.
unsafe impl Sync for Sampler {}

const ADDRESSES: [(ze_sampler_address_mode_t, cl_addressing_mode); 5] = [
    (ZE_SAMPLER_ADDRESS_MODE_NONE, CL_ADDRESS_NONE),
    (ZE_SAMPLER_ADDRESS_MODE_REPEAT, CL_ADDRESS_REPEAT),
    (ZE_SAMPLER_ADDRESS_MODE_CLAMP, CL_ADDRESS_CLAMP_TO_EDGE),
    (ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER, CL_ADDRESS_CLAMP),
    (ZE_SAMPLER_ADDRESS_MODE_MIRROR, CL_ADDRESS_MIRRORED_REPEAT),
];

impl Sampler {
    pub fn create(cl: &'static Cl, desc: &ze_sampler_desc_t) -> Answer<Self> {
        let found = ADDRESSES.iter().find(|(own, _)| *own == desc.addressMode);
        let (_, address) = *found.ok_or(ZE_RESULT_ERROR_INVALID_ENUMERATION)?;
        let filter = match desc.filterMode {
            ZE_SAMPLER_FILTER_MODE_LINEAR => CL_FILTER_LINEAR,
            _ => CL_FILTER_NEAREST,
        };
        let (is_normalized, mut code) = (u32::from(desc.isNormalized != 0), 0);
        // SAFETY: plain values.
        let raw = unsafe {
            (cl.core.clCreateSampler)(cl.context, is_normalized, address, filter, &mut code)
        };
        match code {
            CL_SUCCESS => Ok(Self { cl, raw }),
            _ => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: this is the only reference.
        unsafe { (self.cl.core.clReleaseSampler)(self.raw) };
    }
}
