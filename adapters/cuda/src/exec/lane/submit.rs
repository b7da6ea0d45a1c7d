//! Submission to a stream.
//!
//! Nearly every copy, fill and plain launch is one successful call of the driver. That call is inlined into
//! the engine's code. Everything else is in functions of their own: deferred work, work of several calls, and
//! calls that the driver refused, which come with its code.

use std::hint::cold_path;
use std::sync::Arc;

use ur::object::Result;
use ur::stream::{Progress, Timestamps, Work};

use super::{Gpu, Lane, fill};
use crate::Cuda;
use crate::kernel::{Launch, Plain};
use crate::vendor::{Code, Entered, LAUNCH, check, is_default, is_final};

impl Lane {
    /// Makes the one call of a command, unless it has none or the lane defers work. The error is the code of
    /// a failed call, none if no call was made.
    #[inline(always)]
    fn call(&self, call: Option<impl FnOnce() -> Code>) -> std::result::Result<(), Option<Code>> {
        if let Some(call) = call
            && !is_default(self.raw)
            && !self.stream.is_deferring()
        {
            let code = call();
            if code.is_success() {
                return Ok(());
            }
            cold_path();
            return Err(Some(code));
        }
        cold_path();
        Err(None)
    }

    /// Returns a refused call's error if the call would fail with the stream's context current, too. Memory of
    /// another device may be reached in another way.
    fn check_refused(&self, refused: Option<Code>, name: &str, addrs: &[usize]) -> Result<()> {
        match refused {
            Some(Code::INVALID_VALUE) if !addrs.is_empty() && Gpu::is_one_of_several() => Ok(()),
            Some(code) if is_final(self.api, self.context, code) => {
                self.stream.gpu.check_at(code, name, addrs)
            }
            _ => Ok(()),
        }
    }

    /// Submits work as the command with this epoch.
    pub fn submit(
        &self,
        epoch: u64,
        work: Work<Cuda>,
        timestamps: Option<Arc<Timestamps>>,
    ) -> Result<()> {
        match (work, timestamps) {
            #[rustfmt::skip]
            (Work::Fill { dst, pattern, bytes }, None) => {
                self.fill(epoch, dst, &pattern, bytes).map(drop)
            },
            (work, None) if !self.stream.is_deferring() => self.stream.enqueue(work, None),
            (work, timestamps) => self.submit_any(work, timestamps),
        }
    }

    /// Submits any work, or defers it while the lane waits for the host.
    #[inline(never)]
    fn submit_any(&self, work: Work<Cuda>, timestamps: Option<Arc<Timestamps>>) -> Result<()> {
        if !self.stream.is_deferring() {
            return self.stream.enqueue(work, timestamps);
        }
        let now = |(work, timestamps)| self.stream.enqueue(work, timestamps);
        self.stream.deferred.submit((work, timestamps), now, Ok)
    }

    #[inline(always)]
    pub fn copy(&self, dst: usize, src: usize, bytes: usize) -> Result<Progress> {
        let run = (bytes > 0 && dst != src).then_some(|| {
            // SAFETY: the caller promises both ranges until the command has ended.
            unsafe { (self.api.cuMemcpyAsync)(dst as u64, src as u64, bytes, self.raw) }
        });
        if let Err(refused) = self.call(run) {
            self.copy_slowly(refused, dst, src, bytes)?;
        }
        Ok(Progress::Pending)
    }

    #[cold]
    #[inline(never)]
    fn copy_slowly(
        &self,
        refused: Option<Code>,
        dst: usize,
        src: usize,
        bytes: usize,
    ) -> Result<()> {
        self.check_refused(refused, "cuMemcpyAsync", &[dst, src])?;
        self.submit_any(Work::Copy { dst, src, bytes }, None)
    }

    #[inline(always)]
    pub fn fill(&self, epoch: u64, dst: usize, pattern: &[u8], bytes: usize) -> Result<Progress> {
        let run = fill::word(dst, pattern, bytes).map(|word| {
            move || {
                let words = bytes / size_of_val(&word);
                // SAFETY: the caller promises the range until the command has ended.
                unsafe { (self.api.cuMemsetD32Async)(dst as u64, word, words, self.raw) }
            }
        });
        if let Err(refused) = self.call(run) {
            self.fill_slowly(refused, (epoch, dst), pattern, bytes)?;
        }
        Ok(Progress::Pending)
    }

    /// [`Lane::fill`] for other patterns, or after the driver refused the call.
    #[inline(never)]
    fn fill_slowly(
        &self,
        refused: Option<Code>,
        (epoch, dst): (u64, usize),
        pattern: &[u8],
        bytes: usize,
    ) -> Result<()> {
        self.check_refused(refused, "cuMemsetD32Async", &[dst])?;
        if !self.stream.is_deferring() {
            return self.stream.fill(epoch, dst, pattern, bytes);
        }
        let pattern = pattern.into();
        #[rustfmt::skip]
        let work = Work::Fill { dst, pattern, bytes };
        self.submit_any(work, None)
    }

    /// Submits a plain launch. `make` returns one that can be deferred.
    #[inline(always)]
    pub fn launch_plain(
        &self,
        plain: &mut Plain,
        timestamps: Option<Arc<Timestamps>>,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<Progress> {
        plain.goes_to(self.raw);
        let run = timestamps.is_none().then_some(|| plain.enqueue(self.api));
        if let Err(refused) = self.call(run) {
            self.launch_slowly(refused, plain, timestamps, make)?;
        }
        Ok(Progress::Pending)
    }

    /// [`Lane::launch_plain`] of a deferred or timed launch, or after the driver refused the call.
    #[cold]
    #[inline(never)]
    fn launch_slowly(
        &self,
        refused: Option<Code>,
        plain: &Plain,
        timestamps: Option<Arc<Timestamps>>,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<()> {
        if timestamps.is_some() || self.stream.is_deferring() {
            return self.submit_any(Work::Launch(make()?), timestamps);
        }
        self.check_refused(refused, LAUNCH, &[])?;
        let _current = Entered::new(self.api, self.context)?;
        check(self.api, plain.enqueue(self.api), LAUNCH)
    }
}
