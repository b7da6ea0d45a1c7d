//! What is enqueued most: a copy, a fill or a launch that is one call of the driver's, and succeeds. What
//! else there may be to do stands apart, and is told what the call came to, if it was made.

use std::hint::cold_path;
use std::sync::Arc;

use ur::object::Result;
use ur::stream::{Progress, Work};

use super::{Lane, fill};
use crate::cu::{Code, Entered, LAUNCH, check, is_default, is_final};
use crate::kernel::{Launch, Plain};

impl Lane {
    /// Has a command's one call made, if that is what it is. An error if all is not done by that: what the
    /// call came to, if it was made.
    #[inline(always)]
    fn call(&self, give: Option<impl FnOnce() -> Code>) -> std::result::Result<(), Option<Code>> {
        if let Some(give) = give
            && !is_default(self.raw)
            && !self.stream.keeps()
        {
            let code = give();
            if code.is_success() {
                return Ok(());
            }
            cold_path();
            return Err(Some(code));
        }
        cold_path();
        Err(None)
    }

    /// Whether a call that came to nothing may succeed where the stream's context is current: an error if
    /// not.
    fn may_again(&self, refused: Option<Code>, name: &str, addrs: &[usize]) -> Result<()> {
        match refused {
            Some(code) if is_final(self.api, self.context, code) => {
                self.stream.gpu.check_at(code, name, addrs)
            }
            _ => Ok(()),
        }
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
        self.may_again(refused, "cuMemcpyAsync", &[dst, src])?;
        self.submit_slowly(Work::Copy { dst, src, bytes }, None)
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

    /// As [`Lane::fill`], of other patterns, or where the driver did not do it at once.
    #[inline(never)]
    fn fill_slowly(
        &self,
        refused: Option<Code>,
        (epoch, dst): (u64, usize),
        pattern: &[u8],
        bytes: usize,
    ) -> Result<()> {
        self.may_again(refused, "cuMemsetD32Async", &[dst])?;
        if !self.stream.keeps() {
            return self.stream.fill(epoch, dst, pattern, bytes);
        }
        let pattern = pattern.into();
        #[rustfmt::skip]
        let work = Work::Fill { dst, pattern, bytes };
        self.submit_slowly(work, None)
    }

    /// Submits a launch, which lasts no longer than the call; `make` gives one that does.
    #[inline(always)]
    pub fn launch_plain(
        &self,
        plain: &mut Plain,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<Progress> {
        plain.goes_to(self.raw);
        if let Err(refused) = self.call(Some(|| plain.enqueue(self.api))) {
            self.launch_plain_slowly(refused, plain, make)?;
        }
        Ok(Progress::Pending)
    }

    #[cold]
    #[inline(never)]
    fn launch_plain_slowly(
        &self,
        refused: Option<Code>,
        plain: &Plain,
        make: impl FnOnce() -> Result<Arc<Launch>>,
    ) -> Result<()> {
        match self.stream.keeps() {
            true => self.submit_slowly(Work::Launch(make()?), None),
            false => {
                self.may_again(refused, LAUNCH, &[])?;
                let _current = Entered::new(self.api, self.context)?;
                check(self.api, plain.enqueue(self.api), LAUNCH)
            }
        }
    }
}
