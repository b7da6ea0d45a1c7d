//! Commands on memory of devices that their own device does not reach.
//!
//! | command | runs |
//! |---|---|
//! | on memory that its device reaches by now | as any other |
//! | a copy between two devices | as one copy of the driver's between their contexts |
//! | any other | on a stream of the memory's own device |
//!
//! A helper is a stream of the other device that belongs to one stream of this device. It waits for the stream
//! before the command, and the stream waits for it afterwards, both on the devices.

use std::ptr::null_mut;
use std::sync::Arc;

use ur::abi::*;
use ur::object::{Error, Result, ensure};
use ur::stream::{Pitched, Work};
use ur::sync::Mutex;

use super::gpu::{Event, Gpu};
use super::memory::log_failed;
use super::work::{self, described};
use crate::Cuda;
use crate::cu::sys::{CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype, CUstream};
use crate::cu::{home, is_captured, is_default, on_stream};

/// A copy or fill, and the devices of its memory: none where every device reaches it.
pub struct Remote {
    pub work: Work<Cuda>,
    pub dst: Option<Arc<Gpu>>,
    pub src: Option<Arc<Gpu>>,
    /// Whether other devices never reach the memory, whatever [`Gpu::reaches`] says of pools.
    pub is_foreign: bool,
}

impl Remote {
    /// The command that the driver has refused on this device with this error, if the cause is memory of another
    /// device.
    pub fn refused(gpu: &Gpu, work: Work<Cuda>, error: Error) -> Option<Self> {
        if error.code() != UR_RESULT_ERROR_UNSUPPORTED_FEATURE {
            return None;
        }
        let home = |addr: Option<usize>| addr.and_then(|addr| owner(gpu, addr));
        let [dst, src] = work::ends(&work)?.map(home);
        let mut homes = dst.iter().chain(&src);
        let is_remote = homes.any(|home| home.device != gpu.device);
        is_remote.then_some(Self {
            work,
            dst,
            src,
            is_foreign: true,
        })
    }

    /// Submits the command to a stream. The context is current.
    pub fn enqueue(&self, gpu: &Arc<Gpu>, stream: CUstream) -> Result<()> {
        let mut homes = self.dst.iter().chain(&self.src);
        let is_far = |home: &&Arc<Gpu>| match self.is_foreign {
            true => home.device != gpu.device,
            false => !gpu.reaches(home),
        };
        let Some(far) = homes.find(is_far) else {
            return work::enqueue_here(gpu, stream, self.work.clone());
        };
        // The far device must reach the other end, too, which may be this device's own.
        let [dst_at, src_at] = work::ends(&self.work).unwrap_or_default();
        let home_of = |known: &Option<Arc<Gpu>>, at: Option<usize>| match known {
            None => at.and_then(|at| owner(gpu, at)),
            known => known.clone(),
        };
        let (dst, src) = (home_of(&self.dst, dst_at), home_of(&self.src, src_at));
        match (&dst, &src) {
            (Some(dst), Some(src)) if dst.device != src.device => {
                match [dst, src].iter().any(|home| home.device == gpu.device) {
                    true => self.copy_between(gpu, stream, dst, src),
                    // The driver takes a stream of one of the two.
                    false => gpu.on_helper(stream, dst, |dst, stream| {
                        self.copy_between(dst, stream, dst, src)
                    }),
                }
            }
            _ => gpu.on_helper(stream, far, |far, stream| {
                work::enqueue_here(far, stream, self.work.clone())
            }),
        }
    }

    /// Copies between the memory of two devices. The context of `gpu` is current.
    fn copy_between(&self, gpu: &Gpu, stream: CUstream, dst: &Gpu, src: &Gpu) -> Result<()> {
        match self.work {
            Work::Copy {
                dst: to,
                src: from,
                bytes,
            } => copy_peer(gpu, stream, (dst, to), (src, from), bytes),
            Work::CopyRect {
                dst: to,
                src: from,
                region,
            } => work::each_box(to, from, region, |to, from, region| {
                copy_box(gpu, stream, (dst, to), (src, from), region)
            }),
            // Only copies have two homes.
            _ => Err(Error::unsupported()),
        }
    }
}

/// The device that owns the memory at an address, if its context is retained.
fn owner(gpu: &Gpu, addr: usize) -> Option<Arc<Gpu>> {
    home(gpu.api, addr).and_then(Gpu::of)
}

/// Copies a range between the memory of two devices. The context of `gpu` is current.
pub fn copy_peer(
    gpu: &Gpu,
    stream: CUstream,
    (dst, to): (&Gpu, usize),
    (src, from): (&Gpu, usize),
    bytes: usize,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let (to_context, from_context) = (dst.context(), src.context());
    let copy = gpu.api.cuMemcpyPeerAsync;
    // SAFETY: the caller keeps both ranges until the command has ended, and both contexts are retained.
    let code = unsafe {
        copy(
            to as u64,
            to_context,
            from as u64,
            from_context,
            bytes,
            stream,
        )
    };
    gpu.check(code, "cuMemcpyPeerAsync")
}

fn copy_box(
    gpu: &Gpu,
    stream: CUstream,
    (dst, to): (&Gpu, (Pitched, usize)),
    (src, from): (&Gpu, (Pitched, usize)),
    region: [usize; 3],
) -> Result<()> {
    let what = CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        ..described(to, from, region)
    };
    copy_described(gpu, stream, dst, src, &what)
}

/// Copies a box between two devices. The context of `gpu`, which is one of them, is current.
pub fn copy_described(
    gpu: &Gpu,
    stream: CUstream,
    dst: &Gpu,
    src: &Gpu,
    flat: &CUDA_MEMCPY3D,
) -> Result<()> {
    let what = CUDA_MEMCPY3D_PEER {
        srcXInBytes: flat.srcXInBytes,
        srcY: flat.srcY,
        srcZ: flat.srcZ,
        srcLOD: flat.srcLOD,
        srcMemoryType: flat.srcMemoryType,
        srcHost: flat.srcHost,
        srcDevice: flat.srcDevice,
        srcArray: flat.srcArray,
        srcContext: src.context(),
        srcPitch: flat.srcPitch,
        srcHeight: flat.srcHeight,
        dstXInBytes: flat.dstXInBytes,
        dstY: flat.dstY,
        dstZ: flat.dstZ,
        dstLOD: flat.dstLOD,
        dstMemoryType: flat.dstMemoryType,
        dstHost: flat.dstHost,
        dstDevice: flat.dstDevice,
        dstArray: flat.dstArray,
        dstContext: dst.context(),
        dstPitch: flat.dstPitch,
        dstHeight: flat.dstHeight,
        WidthInBytes: flat.WidthInBytes,
        Height: flat.Height,
        Depth: flat.Depth,
    };
    // SAFETY: the caller keeps both ends until the command has ended, and both contexts are retained.
    let code = unsafe { (gpu.api.cuMemcpy3DPeerAsync)(&what, stream) };
    gpu.check(code, "cuMemcpy3DPeerAsync")
}

/// Streams of other devices, each for one stream of this device.
#[derive(Default)]
pub struct Helpers {
    state: Mutex<HelperState>,
}

#[derive(Default)]
struct HelperState {
    all: Vec<Helper>,
    /// Number of lanes on a default stream of the device, which share its helpers.
    default_lanes: usize,
}

struct Helper {
    /// The stream of this device.
    of: usize,
    far: Arc<Gpu>,
    raw: usize,
}

impl Gpu {
    /// Calls `run` with a stream of another device, whose context is current. The work comes behind that of
    /// `stream` so far, and before that to come. This device's context is current.
    pub fn on_helper(
        self: &Arc<Self>,
        stream: CUstream,
        far: &Arc<Self>,
        run: impl FnOnce(&Arc<Self>, CUstream) -> Result<()>,
    ) -> Result<()> {
        // The far stream would join a capture of this one, and other commands of it, too.
        let captured = is_captured(self.api, self.context(), stream);
        ensure(!captured, UR_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED)?;
        let [before, after] = [self.event(false)?, far.event(false)?];
        before.record(stream)?;
        let helper = self.helper(stream, far)?;
        far.wait_on(helper, &before)?;
        let submitted = {
            let _current = far.enter()?;
            run(far, helper)
        };
        // What was submitted before an error is ordered, too.
        let ordered = after
            .record(helper)
            .and_then(|()| self.wait_on(stream, &after));
        if ordered.is_err() {
            let _current = far.enter()?;
            // SAFETY: `self.helpers` keeps the stream alive.
            let code = unsafe { (far.api.cuStreamSynchronize)(helper) };
            log_failed(code, "cuStreamSynchronize");
        }
        submitted.and(ordered)
    }

    /// Makes a stream of this device wait for an event of any device.
    pub fn wait_on(&self, stream: CUstream, event: &Event) -> Result<()> {
        let code = on_stream(self.api, self.context(), stream, || {
            // SAFETY: the caller passes a live stream, and `event` keeps its event alive.
            unsafe { (self.api.cuStreamWaitEvent)(stream, event.raw(), 0) }
        });
        self.check(code, "cuStreamWaitEvent")
    }

    fn helper(&self, stream: CUstream, far: &Arc<Self>) -> Result<CUstream> {
        let of = stream.addr();
        let find = |all: &[Helper]| {
            let mut all = all.iter();
            let found = all.find(|helper| helper.of == of && helper.far.device == far.device);
            found.map(|helper| std::ptr::with_exposed_provenance_mut(helper.raw))
        };
        if let Some(raw) = find(&self.helpers.state.lock().all) {
            return Ok(raw);
        }
        let _current = far.enter()?;
        let mut raw = null_mut();
        // SAFETY: `raw` is writable; 1 is `CU_STREAM_NON_BLOCKING`.
        let code = unsafe { (far.api.cuStreamCreateWithPriority)(&mut raw, 1, 0) };
        far.check(code, "cuStreamCreateWithPriority")?;
        // Only the default stream has several submitters, so that two threads can make a helper of one stream.
        let mut state = self.helpers.state.lock();
        let helper = Helper {
            of,
            far: Arc::clone(far),
            raw: raw.expose_provenance(),
        };
        state.all.push(helper);
        Ok(raw)
    }

    /// A lane on this stream begins.
    pub fn begin_lane(&self, stream: CUstream) {
        if is_default(stream) {
            self.helpers.state.lock().default_lanes += 1;
        }
    }

    /// A lane on this stream ends, all of whose commands have ended. Destroys helpers that no lane uses.
    pub fn end_lane(&self, stream: CUstream) {
        let ended: Vec<_> = {
            let mut state = self.helpers.state.lock();
            if is_default(stream) {
                // A lane that begins from here on finds no helper that ends.
                state.default_lanes -= 1;
                if state.default_lanes > 0 {
                    return;
                }
            }
            let of = |helper: &mut Helper| helper.of == stream.addr();
            state.all.extract_if(.., of).collect()
        };
        ended.into_iter().for_each(Helper::end);
    }
}

impl Helper {
    fn end(self) {
        let Ok(_current) = self.far.enter() else {
            return;
        };
        let raw: CUstream = std::ptr::with_exposed_provenance_mut(self.raw);
        // SAFETY: the helper owns the stream. The driver still runs its pending work.
        unsafe { (self.far.api.cuStreamDestroy)(raw) };
    }
}
