//! A kernel's function on one device, with the driver's properties of it.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::object::{Error, Result, ensure};
use ur::sync::Mutex;

use super::plain::MAX_PLAIN_ARGS;
use crate::cu::sys::{CUfunc_cache, CUfunction, CUfunction_attribute};
use crate::device::Limits;
use crate::exec::Gpu;
use crate::program::Module;

/// A function of the driver.
#[repr(C)]
pub struct Function {
    pub raw: CUfunction,
    pub group_items: usize,
    pub local_bytes: usize,
    /// The number of parameters, and the bytes of each. `usize::MAX` if there are more than
    /// [`MAX_PLAIN_ARGS`], or the driver does not report them: no launch is plain then.
    pub count: usize,
    pub sizes: [u16; MAX_PLAIN_ARGS],
    /// Offset and size in bytes of each parameter; none if the driver does not report them.
    pub layout: Option<Box<[(usize, usize)]>>,
    pub registers: usize,
    pub private_bytes: usize,
    /// Bytes of dynamic shared memory that the driver was asked to allow.
    local_bytes_set: AtomicUsize,
    /// Held while that is set.
    setting: Mutex<()>,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Function {}

impl Function {
    /// Queries a function's properties. The context is current.
    fn of(gpu: &Gpu, raw: CUfunction) -> Result<Self> {
        use CUfunction_attribute::*;
        let read = |what| -> Result<usize> {
            let mut value = 0;
            // SAFETY: the function's module is loaded, and `value` is writable.
            let code = unsafe { (gpu.api.cuFuncGetAttribute)(&mut value, what, raw) };
            gpu.check(code, "cuFuncGetAttribute")?;
            Ok(value.max(0) as usize)
        };
        let layout = layout(gpu, raw);
        let (count, sizes) = layout
            .as_deref()
            .and_then(sizes)
            .unwrap_or((usize::MAX, [0; MAX_PLAIN_ARGS]));
        Ok(Self {
            raw,
            count,
            sizes,
            layout,
            registers: read(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: read(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            private_bytes: read(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            group_items: read(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            local_bytes_set: AtomicUsize::new(0),
            setting: Mutex::default(),
        })
    }

    /// Allows launches with this many bytes of dynamic shared memory.
    #[inline]
    pub fn allow(&self, gpu: &Gpu, limits: &Limits, bytes: usize) -> Result<()> {
        let usual = limits.local_bytes.min(limits.max_local_bytes);
        match self.local_bytes.saturating_add(bytes) <= usual {
            true => Ok(()),
            false => self.allow_much(gpu, limits, bytes),
        }
    }

    #[cold]
    fn allow_much(&self, gpu: &Gpu, limits: &Limits, bytes: usize) -> Result<()> {
        let all = self.local_bytes.checked_add(bytes);
        ensure(
            all.is_some_and(|all| all <= limits.max_local_bytes),
            UR_RESULT_ERROR_OUT_OF_RESOURCES,
        )?;
        if self.local_bytes + bytes <= limits.local_bytes
            || bytes <= self.local_bytes_set.load(Ordering::Acquire)
        {
            return Ok(());
        }
        let _current = gpu.enter()?;
        let _setting = self.setting.lock();
        // Another launch may have set more meanwhile, which must stay.
        if bytes <= self.local_bytes_set.load(Ordering::Acquire) {
            return Ok(());
        }
        let what = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function's module is loaded.
        let code = unsafe { (gpu.api.cuFuncSetAttribute)(self.raw, what, bytes as i32) };
        gpu.check(code, "cuFuncSetAttribute")?;
        self.local_bytes_set.store(bytes, Ordering::Release);
        Ok(())
    }
}

/// The number of parameters, and the bytes of each. None if they are too many or too large.
fn sizes(layout: &[(usize, usize)]) -> Option<(usize, [u16; MAX_PLAIN_ARGS])> {
    let mut sizes = [0; MAX_PLAIN_ARGS];
    let places = sizes.get_mut(..layout.len())?;
    for (param, (_, bytes)) in places.iter_mut().zip(layout) {
        *param = u16::try_from(*bytes).ok()?;
    }
    Some((layout.len(), sizes))
}

fn layout(gpu: &Gpu, raw: CUfunction) -> Option<Box<[(usize, usize)]>> {
    let query = gpu.api.cuFuncGetParamInfo?;
    let parameter = |index| {
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: the function's module is loaded, and both numbers are writable. The driver refuses an index
        // beyond the last.
        let code = unsafe { query(raw, index, &mut offset, &mut bytes) };
        code.is_success().then_some((offset, bytes))
    };
    Some((0..).map_while(parameter).collect())
}

/// A kernel on one device.
#[repr(C)]
pub struct Code {
    pub plain: Function,
    pub module: Arc<Module>,
    /// Runs launches with an offset, which is one more parameter.
    pub with_offset: Option<Function>,
    best: OnceLock<usize>,
}

impl Code {
    /// Finds a kernel in a module. None if the module has no such kernel.
    pub fn find(module: &Arc<Module>, name: &CStr) -> Result<Option<Self>> {
        let gpu = module.gpu();
        let _current = gpu.enter()?;
        let Some(plain) = module.function(name)? else {
            return Ok(None);
        };
        Self::of(module, plain, name).map(Some)
    }

    /// The kernel of a function of a module.
    pub fn of(module: &Arc<Module>, plain: CUfunction, name: &CStr) -> Result<Self> {
        let gpu = module.gpu();
        let _current = gpu.enter()?;
        let longer = [name.to_bytes(), b"_with_offset"].concat();
        let longer = CString::new(longer).map_err(|_| Error::new(UR_RESULT_ERROR_UNKNOWN))?;
        let with_offset = module.function(&longer)?;
        Ok(Self {
            module: Arc::clone(module),
            plain: Function::of(gpu, plain)?,
            with_offset: with_offset.map(|raw| Function::of(gpu, raw)).transpose()?,
            best: OnceLock::new(),
        })
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        self.module.gpu()
    }

    /// The work-group size with the best occupancy.
    pub fn best_items(&self) -> usize {
        let query = || -> Result<usize> {
            let _current = self.gpu().enter()?;
            let (mut groups, mut items) = (0, 0);
            let query = self.gpu().api.cuOccupancyMaxPotentialBlockSize;
            // SAFETY: the function's module is loaded, and both numbers are writable.
            let code = unsafe { query(&mut groups, &mut items, self.plain.raw, None, 0, 0) };
            self.gpu().check(code, "cuOccupancyMaxPotentialBlockSize")?;
            Ok(items.max(1) as usize)
        };
        *self
            .best
            .get_or_init(|| query().unwrap_or(self.plain.group_items.clamp(1, 256)))
    }

    /// The number of work-groups that the device can hold at once.
    pub fn resident_groups(&self, limits: &Limits, items: usize, local: usize) -> Result<u32> {
        self.plain.allow(self.gpu(), limits, local)?;
        let _current = self.gpu().enter()?;
        let query = self.gpu().api.cuOccupancyMaxActiveBlocksPerMultiprocessor;
        let mut groups = 0;
        // SAFETY: the function's module is loaded, and `groups` is writable.
        let code = unsafe { query(&mut groups, self.plain.raw, items as i32, local) };
        self.gpu()
            .check(code, "cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(groups.max(0) as u32 * limits.processors as u32)
    }

    pub fn prefer(&self, cache: CUfunc_cache) -> Result<()> {
        let _current = self.gpu().enter()?;
        for function in [Some(&self.plain), self.with_offset.as_ref()]
            .into_iter()
            .flatten()
        {
            // SAFETY: the function's module is loaded.
            let code = unsafe { (self.gpu().api.cuFuncSetCacheConfig)(function.raw, cache) };
            self.gpu().check(code, "cuFuncSetCacheConfig")?;
        }
        Ok(())
    }
}
