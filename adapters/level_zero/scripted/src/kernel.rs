//! Kernels: arguments, sizes, and launches, which take a copy of both.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use ze::*;

use crate::device::MAX_GROUP_SIZE;
use crate::entry::{Answer, array, bytes_out, chained, given, put};
use crate::image::{self, IMAGES, Image, SAMPLERS, Sampler, Uses, Using};
use crate::object::{Objects, hold};
use crate::spirv::{self, Parameter};
use crate::{cl, module};

/// Groups that may wait for each other: OpenCL's driver for CPUs runs a group to its end before it starts another.
const WAITING_GROUPS: u32 = 1;
/// The most groups of a cooperative launch.
const COOPERATIVE_GROUPS: u32 = 64;

/// The value of a parameter.
#[derive(Clone)]
pub enum Argument {
    Pointer(usize),
    Local(usize),
    Value(Box<[u8]>),
    Image(Arc<Image>),
    Sampler(Arc<Sampler>),
}

#[derive(Clone)]
struct Settings {
    arguments: Vec<Option<Argument>>,
    group_size: [u32; 3],
    offset: [u32; 3],
    indirect: ze_kernel_indirect_access_flags_t,
}

pub struct Kernel {
    name: CString,
    facts: spirv::Kernel,
    /// None without OpenCL: a launch does nothing.
    code: Option<Arc<cl::Kernel>>,
    settings: Mutex<Settings>,
    uses: Uses,
    /// The code needs its module.
    module: Arc<module::Module>,
}

pub static KERNELS: Objects<Kernel> = Objects::of("kernel");

fn get(kernel: ze_kernel_handle_t) -> Answer<Arc<Kernel>> {
    KERNELS.get(kernel.0)
}

/// The numbers of groups: known when the launch is appended, or read when it is executed.
#[derive(Clone)]
pub enum Counts {
    Given(ze_group_count_t),
    At(usize),
}

/// A launch, independent of its kernel's later settings.
#[derive(Clone)]
pub struct Launch {
    kernel: Arc<Kernel>,
    arguments: Vec<Argument>,
    group_size: [u32; 3],
    offset: [u32; 3],
    counts: Counts,
}

impl Launch {
    pub fn of(kernel: ze_kernel_handle_t, counts: Counts) -> Answer<Self> {
        let kernel = get(kernel)?;
        let settings = hold(&kernel.settings).clone();
        Self::with_settings(kernel.clone(), settings, counts)
    }

    /// A launch with all arguments, which the kernel keeps as if they had been set.
    ///
    /// # Safety
    /// There is a pointer for each of the kernel's parameters, to its value.
    pub unsafe fn with_arguments(
        kernel: ze_kernel_handle_t,
        counts: ze_group_count_t,
        size: ze_group_size_t,
        arguments: *mut *mut c_void,
    ) -> Answer<Self> {
        let kernel = get(kernel)?;
        let parameters = &kernel.facts.parameters;
        // SAFETY: as the caller promises.
        let all = unsafe { array(arguments.cast_const(), parameters.len()) }?;
        let mut settings = hold(&kernel.settings);
        kernel.check_size([size.groupSizeX, size.groupSizeY, size.groupSizeZ])?;
        for (index, (parameter, from)) in parameters.iter().zip(all).enumerate() {
            // SAFETY: as the caller promises; the size is the parameter's.
            let argument = unsafe {
                match parameter {
                    Parameter::Local => Argument::Local(*given(from.cast::<usize>())?),
                    Parameter::Pointer | Parameter::Image | Parameter::Sampler => {
                        argument(*parameter, 8, *from)?
                    }
                    Parameter::Value { bytes } => argument(*parameter, *bytes, *from)?,
                    Parameter::Opaque => return Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
                }
            };
            settings.arguments[index] = Some(argument);
        }
        settings.group_size = [size.groupSizeX, size.groupSizeY, size.groupSizeZ];
        let settings = settings.clone();
        Self::with_settings(kernel.clone(), settings, Counts::Given(counts))
    }

    fn with_settings(kernel: Arc<Kernel>, settings: Settings, counts: Counts) -> Answer<Self> {
        let set = |one: Option<Argument>| one.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        let arguments = settings.arguments.into_iter().map(set);
        Ok(Self {
            kernel,
            arguments: arguments.collect::<Answer<_>>()?,
            group_size: settings.group_size,
            offset: settings.offset,
            counts,
        })
    }

    /// Changes an argument of a recorded launch.
    ///
    /// # Safety
    /// The value is null or has its size.
    pub unsafe fn set_argument(&mut self, index: u32, size: usize, value: *const c_void) -> Answer {
        let parameter = self.kernel.facts.parameters.get(index as usize);
        let parameter = *parameter.ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX)?;
        // SAFETY: as the caller promises.
        self.arguments[index as usize] = unsafe { argument(parameter, size, value) }?;
        Ok(())
    }

    /// The addresses among the arguments.
    pub fn pointers(&self) -> impl Iterator<Item = usize> {
        self.arguments.iter().filter_map(|one| match one {
            Argument::Pointer(at) => Some(*at),
            Argument::Local(_) | Argument::Value(_) | Argument::Image(_) | Argument::Sampler(_) => {
                None
            }
        })
    }

    pub fn set_counts(&mut self, counts: ze_group_count_t) {
        self.counts = Counts::Given(counts);
    }

    pub fn set_group_size(&mut self, size: [u32; 3]) -> Answer {
        self.kernel.check_size(size)?;
        self.group_size = size;
        Ok(())
    }

    pub fn set_offset(&mut self, offset: [u32; 3]) {
        self.offset = offset;
    }

    /// Refuses more groups than a device could have run at once. Groups that wait for each other hang here if they
    /// are more than [`WAITING_GROUPS`].
    pub fn check_cooperative(&self) -> Answer {
        let Counts::Given(counts) = self.counts else {
            return Ok(());
        };
        let all = [counts.groupCountX, counts.groupCountY, counts.groupCountZ];
        let all = all.iter().try_fold(1_u32, |all, one| all.checked_mul(*one));
        match all.is_some_and(|all| all <= COOPERATIVE_GROUPS) {
            true => Ok(()),
            false => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    /// Refuses images and samplers of another device than the list's.
    pub fn check_device(&self, list: ze_device_handle_t) -> Answer {
        self.arguments.iter().try_for_each(|one| match one {
            Argument::Image(image) => image::check_device("image", image.device, list),
            Argument::Sampler(sampler) => image::check_device("sampler", sampler.device, list),
            _ => Ok(()),
        })
    }

    /// The uses of the code, images and samplers, from the submission to the end.
    pub fn uses(&self) -> Vec<Using> {
        let of = |one: &Argument| match one {
            Argument::Image(image) => Some(image.uses.begin()),
            Argument::Sampler(sampler) => Some(sampler.uses.begin()),
            Argument::Pointer(at) => image::begin_by_number(*at as u64),
            Argument::Value(bytes) => {
                let number = bytes
                    .first_chunk()
                    .filter(|first| first.len() == bytes.len());
                image::begin_by_number(u64::from_ne_bytes(*number?))
            }
            Argument::Local(_) => None,
        };
        let arguments = self.arguments.iter().filter_map(of);
        let code = [self.kernel.uses.begin(), self.kernel.module.uses.begin()];
        arguments.chain(code).collect()
    }

    pub fn run(&self) -> Answer {
        let counts = match self.counts {
            Counts::Given(counts) => counts,
            // SAFETY: the caller keeps the numbers until the launch is done.
            Counts::At(address) => unsafe {
                ptr::with_exposed_provenance::<ze_group_count_t>(address).read_unaligned()
            },
        };
        let counts =
            [counts.groupCountX, counts.groupCountY, counts.groupCountZ].map(|one| one as usize);
        let local = self.group_size.map(|one| one as usize);
        let global = [0, 1, 2].map(|axis| counts[axis] * local[axis]);
        match &self.kernel.code {
            Some(code) if !global.contains(&0) => code
                .run(
                    &self.arguments,
                    self.offset.map(|one| one as usize),
                    global,
                    local,
                )
                .map_err(|code| {
                    crate::script::broken(format!("OpenCL's launch failed with {code}"));
                    ZE_RESULT_ERROR_UNKNOWN
                }),
            _ => Ok(()),
        }
    }
}

impl Kernel {
    fn check_size(&self, size: [u32; 3]) -> Answer {
        let all = size
            .iter()
            .try_fold(1_u32, |all, one| all.checked_mul(*one));
        let fits = all.is_some_and(|all| (1..=MAX_GROUP_SIZE).contains(&all));
        match fits
            && self
                .facts
                .group_size
                .is_none_or(|required| required == size)
        {
            true => Ok(()),
            false => Err(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION),
        }
    }

    /// Group sizes for a launch: those required, else divisors of the whole, up to 64 items and 32 in a dimension.
    fn suggest(&self, global: [u32; 3]) -> [u32; 3] {
        if let Some(required) = self.facts.group_size {
            return required;
        }
        let mut left = 64;
        global.map(|whole| {
            let most = left.min(32).min(whole.max(1));
            let best = (1..=most)
                .rev()
                .find(|size| whole.is_multiple_of(*size))
                .unwrap_or(1);
            left /= best;
            best
        })
    }
}

/// # Safety
/// The value is null or has its size.
unsafe fn argument(parameter: Parameter, size: usize, value: *const c_void) -> Answer<Argument> {
    match parameter {
        Parameter::Local if size > 0 => Ok(Argument::Local(size)),
        Parameter::Pointer if value.is_null() => Ok(Argument::Pointer(0)),
        // SAFETY: as the caller promises.
        Parameter::Pointer if size == 8 => Ok(Argument::Pointer(unsafe {
            value.cast::<usize>().read_unaligned()
        })),
        // As Intel's driver: no value is a value of zeros.
        Parameter::Value { bytes } if value.is_null() => Ok(Argument::Value(vec![0; bytes].into())),
        Parameter::Value { bytes } if size <= bytes => {
            let mut all = vec![0_u8; bytes];
            // SAFETY: as the caller promises; the size is not above the buffer's.
            unsafe { ptr::copy_nonoverlapping(value.cast::<u8>(), all.as_mut_ptr(), size) };
            Ok(Argument::Value(all.into()))
        }
        Parameter::Image if size == 8 && !value.is_null() => {
            // SAFETY: as the caller promises.
            let handle = unsafe { value.cast::<ze_image_handle_t>().read_unaligned() };
            Ok(Argument::Image(IMAGES.get(handle.0)?))
        }
        Parameter::Sampler if size == 8 && !value.is_null() => {
            // SAFETY: as the caller promises.
            let handle = unsafe { value.cast::<ze_sampler_handle_t>().read_unaligned() };
            Ok(Argument::Sampler(SAMPLERS.get(handle.0)?))
        }
        Parameter::Opaque => Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
        _ => Err(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE),
    }
}

entries! {
    fn zeKernelCreate(
        module: ze_module_handle_t, desc: *const ze_kernel_desc_t, out: *mut ze_kernel_handle_t,
    ) {
        let module = module::get(module)?;
        given(out)?;
        let name = given(desc)?.pKernelName;
        given(name)?;
        let name = CStr::from_ptr(name);
        let found = module.kernels.iter().find(|(own, _)| own.as_c_str() == name);
        let (name, facts) = found.ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)?.clone();
        let code = match module.program()? {
            Some(program) => {
                let code = program.kernel(&name).ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)?;
                Some(Arc::new(code))
            }
            None => None,
        };
        let settings = Settings {
            arguments: vec![None; facts.parameters.len()],
            group_size: facts.group_size.unwrap_or([1, 1, 1]),
            offset: [0; 3],
            indirect: 0,
        };
        let kernel = Kernel { name, facts, code, settings: Mutex::new(settings), uses: Uses::default(), module };
        put(out, ze_kernel_handle_t(KERNELS.add(|_| kernel)))
    }

    fn zeKernelDestroy(kernel: ze_kernel_handle_t) {
        let own = KERNELS.remove(kernel.0)?;
        own.uses.check_over("kernel", own.module.device);
        Ok(())
    }

    fn zeKernelSetGroupSize(kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32) {
        let own = get(kernel)?;
        own.check_size([x, y, z])?;
        hold(&own.settings).group_size = [x, y, z];
        Ok(())
    }

    fn zeKernelSuggestGroupSize(
        kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32,
        out_x: *mut u32, out_y: *mut u32, out_z: *mut u32,
    ) {
        let size = get(kernel)?.suggest([x, y, z]);
        for (to, one) in [out_x, out_y, out_z].into_iter().zip(size) {
            put(to, one)?;
        }
        Ok(())
    }

    fn zeKernelSuggestMaxCooperativeGroupCount(kernel: ze_kernel_handle_t, out: *mut u32) {
        get(kernel)?;
        put(out, WAITING_GROUPS)
    }

    fn zeKernelSetArgumentValue(
        kernel: ze_kernel_handle_t, index: u32, size: usize, value: *const c_void,
    ) {
        let own = get(kernel)?;
        let parameter = own.facts.parameters.get(index as usize);
        let parameter = *parameter.ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX)?;
        let argument = argument(parameter, size, value)?;
        hold(&own.settings).arguments[index as usize] = Some(argument);
        Ok(())
    }

    fn zeKernelSetIndirectAccess(kernel: ze_kernel_handle_t, flags: ze_kernel_indirect_access_flags_t) {
        hold(&get(kernel)?.settings).indirect = flags;
        Ok(())
    }

    fn zeKernelGetIndirectAccess(kernel: ze_kernel_handle_t, out: *mut ze_kernel_indirect_access_flags_t) {
        let flags = hold(&get(kernel)?.settings).indirect;
        put(out, flags)
    }

    fn zeKernelSetCacheConfig(kernel: ze_kernel_handle_t, _flags: ze_cache_config_flags_t) {
        get(kernel).map(drop)
    }

    fn zeKernelSchedulingHintExp(kernel: ze_kernel_handle_t, hint: *mut ze_scheduling_hint_exp_desc_t) {
        get(kernel)?;
        given(hint).map(drop)
    }

    fn zeKernelSetGlobalOffsetExp(kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32) {
        hold(&get(kernel)?.settings).offset = [x, y, z];
        Ok(())
    }

    fn zeKernelGetSourceAttributes(kernel: ze_kernel_handle_t, size: *mut u32, out: *mut *mut c_char) {
        get(kernel)?;
        put(size, 1)?;
        if !out.is_null() && !(*out).is_null() {
            (*out).write(0);
        }
        Ok(())
    }

    fn zeKernelGetName(kernel: ze_kernel_handle_t, size: *mut usize, out: *mut c_char) {
        bytes_out(size, out, get(kernel)?.name.as_bytes_with_nul())
    }

    fn zeKernelGetProperties(kernel: ze_kernel_handle_t, out: *mut ze_kernel_properties_t) {
        let own = get(kernel)?;
        given(out)?;
        let out = &mut *out;
        if let Some(preferred) = chained::<ze_kernel_preferred_group_size_properties_t>(out.pNext) {
            preferred.preferredMultiple = 16;
        }
        if let Some(most) = chained::<ze_kernel_max_group_size_properties_ext_t>(out.pNext) {
            most.maxGroupSize = MAX_GROUP_SIZE;
        }
        let [local, private] = own.code.as_ref().map_or([0, 0], |code| code.memory());
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let [x, y, z] = own.facts.group_size.unwrap_or_default();
        let subgroup = own.facts.subgroup_size;
        let most = if subgroup == 0 { 32 } else { subgroup };
        *out = ze_kernel_properties_t {
            stype: out.stype,
            pNext: out.pNext,
            numKernelArgs: u32::try_from(own.facts.parameters.len()).unwrap_or(u32::MAX),
            requiredGroupSizeX: x,
            requiredGroupSizeY: y,
            requiredGroupSizeZ: z,
            requiredSubgroupSize: subgroup,
            maxSubgroupSize: most,
            maxNumSubgroups: MAX_GROUP_SIZE / most.max(1),
            localMemSize: small(local),
            privateMemSize: small(private),
            ..Default::default()
        };
        Ok(())
    }
}
