//! Semaphores of another interface: imports, and the commands of queues on them.

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::hal;
use ur::hal::answers::file_descriptor;
use ur::object::{Body, Error, Kind, Object, Result, ensure};
use ur::stream::{Queue, Work};

use super::{OfContext, check_home, gpu};
use crate::Cuda;
use crate::cu::ExternalSemaphores;
use crate::cu::sys::*;
use crate::device::Device;
use crate::exec::{Gpu, Native};

/// An imported semaphore. Commands on it keep it.
pub struct ExternalSemaphore {
    own: Arc<Imported>,
}

struct Imported {
    gpu: Arc<Gpu>,
    calls: ExternalSemaphores,
    raw: CUexternalSemaphore,
}

// SAFETY: the driver's objects may be used from any thread.
unsafe impl Send for Imported {}
// SAFETY: the driver's objects may be used from any thread.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: imported by `ExternalSemaphore::import`, and no command uses it.
            let code = unsafe { (self.calls.destroy)(self.raw) };
            if !code.is_success() {
                log::error!("cuDestroyExternalSemaphore failed with {}", code.0);
            }
        }
    }
}

impl Body for ExternalSemaphore {
    const KIND: Kind = Kind::ExternalSemaphore;
}

impl hal::ExternalSemaphore<Cuda> for ExternalSemaphore {}

impl ExternalSemaphore {
    /// `urBindlessImagesImportExternalSemaphoreExp`. The driver takes the file descriptor over if this succeeds.
    ///
    /// `INVALID_VALUE` without a descriptor, `UNSUPPORTED_FEATURE` for handles of other systems.
    pub fn import(
        this: &OfContext,
        device: &Object<Device>,
        kind: ur_exp_external_semaphore_type_t,
        desc: &ur_exp_external_semaphore_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        use CUexternalSemaphoreHandleType::*;
        let gpu = gpu(this, device)?;
        let calls = gpu.api.external_semaphores().ok_or(Error::unsupported())?;
        let native = match kind {
            UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD => CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
            UR_EXP_EXTERNAL_SEMAPHORE_TYPE_TIMELINE_FD => {
                CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
            }
            _ => return Err(Error::unsupported()),
        };
        let what = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: native,
            handle: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 {
                // SAFETY: the caller's chain consists of live structs tagged as what they are.
                fd: unsafe { file_descriptor(desc.pNext) }?,
            },
            flags: 0,
            reserved: [0; 16],
        };
        let _current = gpu.enter()?;
        let mut raw = null_mut();
        // SAFETY: room for a handle, and a readable description.
        let code = unsafe { (calls.import)(&mut raw, &what) };
        gpu.check(code, "cuImportExternalSemaphore")?;
        let own = Arc::new(Imported {
            gpu: Arc::clone(&gpu),
            calls,
            raw,
        });
        Ok(hal::new::<Cuda, _>(Self { own }))
    }

    /// `urBindlessImagesReleaseExternalSemaphoreExp`
    pub fn end(this: &OfContext, device: &Object<Device>, own: &Object<Self>) -> Result<()> {
        check_home(&own.own.gpu, &gpu(this, device)?)?;
        let native = Arc::clone(&own.own);
        own.release()?;
        this.drop_after_use(native);
        Ok(())
    }
}

/// The work of a command on a semaphore. `INVALID_VALUE` for a queue of another device.
fn work(
    this: &Object<Queue<Cuda>>,
    semaphore: &Object<ExternalSemaphore>,
    run: impl Fn(&Imported, CUstream) -> Result<()> + Send + Sync + 'static,
) -> Result<Work<Cuda>> {
    let own = Arc::clone(&semaphore.own);
    let same = Arc::ptr_eq(&own.gpu, &this.device().gpu()?);
    ensure(same, UR_RESULT_ERROR_INVALID_VALUE)?;
    Ok(Work::Native(Native::call(move |_, stream| {
        run(&own, stream)
    })))
}

/// `urBindlessImagesWaitExternalSemaphoreExp`
pub fn wait(
    this: &Object<Queue<Cuda>>,
    semaphore: &Object<ExternalSemaphore>,
    value: u64,
) -> Result<Work<Cuda>> {
    work(this, semaphore, move |own, stream| {
        // SAFETY: plain numbers, all of which may be 0.
        let mut how: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = unsafe { std::mem::zeroed() };
        how.params.fence.value = value;
        // SAFETY: one live semaphore with its parameters, and a live stream.
        let code = unsafe { (own.calls.wait)(&own.raw, &how, 1, stream) };
        own.gpu.check(code, "cuWaitExternalSemaphoresAsync")
    })
}

/// `urBindlessImagesSignalExternalSemaphoreExp`
pub fn signal(
    this: &Object<Queue<Cuda>>,
    semaphore: &Object<ExternalSemaphore>,
    value: u64,
) -> Result<Work<Cuda>> {
    work(this, semaphore, move |own, stream| {
        // SAFETY: plain numbers, all of which may be 0.
        let mut how: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
        how.params.fence.value = value;
        // SAFETY: one live semaphore with its parameters, and a live stream.
        let code = unsafe { (own.calls.signal)(&own.raw, &how, 1, stream) };
        own.gpu.check(code, "cuSignalExternalSemaphoresAsync")
    })
}
