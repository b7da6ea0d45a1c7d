//! Semaphores of another interface: imports, and the commands of queues on them.

use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr::{from_ref, null_mut};
use std::sync::Arc;

use ur::abi::*;
use ur::hal;
use ur::hal::answers::file_descriptor;
use ur::object::{Body, Error, Kind, Object, Result, ensure};
use ur::stream::{Queue, Work};

use super::{OfContext, check_home};
use crate::LevelZero;
use crate::context::NativeContext;
use crate::device::Device;
use crate::exec::{List, Native};
use crate::lz::*;

/// An imported semaphore. It lives until the commands on it have ended.
pub struct ExternalSemaphore {
    own: Arc<Imported>,
}

struct Imported {
    context: Arc<NativeContext>,
    device: Arc<Object<Device>>,
    calls: ExternalSemaphores,
    raw: ze_external_semaphore_ext_handle_t,
    /// The caller's, which the driver leaves open.
    _file: OwnedFd,
}

impl Drop for Imported {
    fn drop(&mut self) {
        if self.context.api.is_torn_down() {
            return;
        }
        // SAFETY: imported by `ExternalSemaphore::import`, and no command uses it.
        let code = unsafe { (self.calls.release)(self.raw) };
        if let Err(error) = check(code, "zeDeviceReleaseExternalSemaphoreExt") {
            log::error!("a semaphore is not released: {:?}", error.code());
        }
    }
}

impl Body for ExternalSemaphore {
    const KIND: Kind = Kind::ExternalSemaphore;
}

impl hal::ExternalSemaphore<LevelZero> for ExternalSemaphore {}

/// The kinds of descriptors, each with the driver's.
const KINDS: [(
    ur_exp_external_semaphore_type_t,
    ze_external_semaphore_ext_flag_t,
); 2] = [
    (
        UR_EXP_EXTERNAL_SEMAPHORE_TYPE_OPAQUE_FD,
        ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD,
    ),
    (
        UR_EXP_EXTERNAL_SEMAPHORE_TYPE_TIMELINE_FD,
        ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_FD,
    ),
];

impl ExternalSemaphore {
    /// `urBindlessImagesImportExternalSemaphoreExp`. This takes the file descriptor over if it succeeds.
    ///
    /// `INVALID_VALUE` without a descriptor, `UNSUPPORTED_FEATURE` for handles of other systems.
    pub fn import(
        this: &OfContext,
        device: &Object<Device>,
        kind: ur_exp_external_semaphore_type_t,
        desc: &ur_exp_external_semaphore_desc_t,
    ) -> Result<Arc<Object<Self>>> {
        this.check_device(device)?;
        let calls = device.external_semaphores().ok_or(Error::unsupported())?;
        let known = KINDS.iter().find(|(own, _)| *own == kind);
        let (_, native) = known.ok_or(Error::unsupported())?;
        let file = ze_external_semaphore_fd_ext_desc_t {
            // SAFETY: the caller's chain consists of live structs tagged as what they are.
            fd: unsafe { file_descriptor(desc.pNext) }?,
            ..Default::default()
        };
        let what = ze_external_semaphore_ext_desc_t {
            pNext: from_ref(&file).cast(),
            flags: *native,
            ..Default::default()
        };
        let mut raw = ze_external_semaphore_ext_handle_t::NULL;
        // SAFETY: the description has its tag, its chain lasts for the call, and there is room for the handle.
        let code = unsafe { (calls.import)(device.raw(), &what, &mut raw) };
        check(code, "zeDeviceImportExternalSemaphoreExt")?;
        let own = Arc::new(Imported {
            context: Arc::clone(&this.domain().state().native),
            device: device.arc(),
            calls,
            raw,
            // SAFETY: an open descriptor, which the caller hands over with the success of this call.
            _file: unsafe { OwnedFd::from_raw_fd(file.fd) },
        });
        Ok(hal::new::<LevelZero, _>(Self { own }))
    }

    /// `urBindlessImagesReleaseExternalSemaphoreExp`
    pub fn end(this: &OfContext, device: &Object<Device>, own: &Object<Self>) -> Result<()> {
        this.check_device(device)?;
        check_home(&own.own.device, device)?;
        let native = Arc::clone(&own.own);
        own.release()?;
        this.drop_after_use(native);
        Ok(())
    }
}

/// The work of a command on a semaphore. `INVALID_VALUE` for a queue of another device.
fn work(
    this: &Object<Queue<LevelZero>>,
    semaphore: &Object<ExternalSemaphore>,
    run: impl Fn(&Imported, &List) -> Result<()> + Send + Sync + 'static,
) -> Result<Work<LevelZero>> {
    let own = Arc::clone(&semaphore.own);
    let same = own.device.raw() == this.device().raw();
    ensure(same, UR_RESULT_ERROR_INVALID_VALUE)?;
    Ok(Work::Native(Native::call(move |list| run(&own, list))))
}

/// `urBindlessImagesWaitExternalSemaphoreExp`
pub fn wait(
    this: &Object<Queue<LevelZero>>,
    semaphore: &Object<ExternalSemaphore>,
    value: u64,
) -> Result<Work<LevelZero>> {
    work(this, semaphore, move |own, list| {
        let (mut raw, none) = (own.raw, ze_event_handle_t::NULL);
        let mut how = ze_external_semaphore_wait_params_ext_t {
            value,
            ..Default::default()
        };
        // SAFETY: one live semaphore with its parameters, and a live list; no events are given.
        let code =
            unsafe { (own.calls.wait)(list.raw, 1, &mut raw, &mut how, none, 0, null_mut()) };
        check(code, "zeCommandListAppendWaitExternalSemaphoreExt")
    })
}

/// `urBindlessImagesSignalExternalSemaphoreExp`
pub fn signal(
    this: &Object<Queue<LevelZero>>,
    semaphore: &Object<ExternalSemaphore>,
    value: u64,
) -> Result<Work<LevelZero>> {
    work(this, semaphore, move |own, list| {
        let (mut raw, none) = (own.raw, ze_event_handle_t::NULL);
        let mut how = ze_external_semaphore_signal_params_ext_t {
            value,
            ..Default::default()
        };
        // SAFETY: one live semaphore with its parameters, and a live list; no events are given.
        let code =
            unsafe { (own.calls.signal)(list.raw, 1, &mut raw, &mut how, none, 0, null_mut()) };
        check(code, "zeCommandListAppendSignalExternalSemaphoreExt")
    })
}
