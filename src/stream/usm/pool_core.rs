//! The memory behind a UR pool: one internal pool for each kind and device, limits over them all.

use crate::abi::*;
use crate::object::{Body, Error, Object, Result};
use crate::pool::{
    Acquired, Block, Config, Counters, ExtentVersion, Figures, Pool, PoolError, PoolKey,
    ProviderError, Request, StreamCache, Usage, WaitPolicy,
};
use crate::stream::settings::Settings;
use crate::stream::settings::pool_log::Report;
use crate::stream::usm::native_pool::{NativePart, block};
use crate::stream::usm::paged::Paged;
use crate::stream::usm::provider::{SlabSource, UserBlock};
use crate::stream::{Domain, Driver, Kind, NativeLimits};
use crate::sync::{Mutex, rank};
use crate::timeline::{Frontier, Lane};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Current and peak bytes, with a maximum that is never exceeded. Exact, with threads too.
#[derive(Debug)]
pub(crate) struct Gauge {
    most: u64,
    level: Mutex<(u64, u64)>,
}

impl Gauge {
    pub fn new(most: u64) -> Self {
        Self {
            most,
            level: Mutex::default(),
        }
    }

    /// Adds bytes. False, with no change, if that would exceed the maximum.
    pub fn add(&self, bytes: u64) -> bool {
        let mut level = self.level.lock();
        match level.0.checked_add(bytes) {
            Some(sum) if sum <= self.most => {
                *level = (sum, level.1.max(sum));
                true
            }
            _ => false,
        }
    }

    /// Replaces a part of it, whatever the maximum.
    pub fn shift(&self, was: u64, is: u64) {
        let mut level = self.level.lock();
        let sum = level.0.saturating_sub(was).saturating_add(is);
        *level = (sum, level.1.max(sum));
    }

    pub fn sub(&self, bytes: u64) {
        let mut level = self.level.lock();
        debug_assert!(level.0 >= bytes, "more bytes given back than reserved");
        level.0 = level.0.saturating_sub(bytes);
    }

    pub fn current(&self) -> u64 {
        self.level.lock().0
    }

    pub fn high(&self) -> u64 {
        self.level.lock().1
    }

    pub fn reset_high(&self) {
        let mut level = self.level.lock();
        level.1 = level.0;
    }
}

/// The plan of a new pool.
pub(crate) struct Plan<D: Driver> {
    pub devices: Vec<Arc<Object<D::Device>>>,
    /// Maximum bytes to reserve; 0 for no limit.
    pub max_bytes: u64,
    /// Bytes that settling leaves reserved.
    pub threshold: u64,
    /// Whether settling leaves free memory of a kind reserved at all.
    pub keeps: fn(Kind) -> bool,
    pub zeroed: bool,
    /// Whether the pool holds as little as it can ([`chain::TIGHT_POOL`](crate::object::chain::TIGHT_POOL)).
    pub tight: bool,
    pub user: Option<(Kind, UserBlock)>,
    /// Whether a pool of the backend may serve.
    pub native: bool,
}

/// The result of a request.
pub(crate) enum Answer {
    Served(Acquired),
    /// Nothing changed. The caller repeats the request once the host has waited for this frontier.
    Once(Frontier),
}

/// One kind of memory on one device, or on the host.
pub(crate) struct Part<D: Driver> {
    pub kind: Kind,
    pub device: Option<Arc<Object<D::Device>>>,
    /// Whether settling leaves its free memory reserved, below the pool's threshold.
    keeps: bool,
    pub pool: Pool<SlabSource<D>>,
    /// Serves instead of `pool`, if it is there.
    pub native: Option<NativePart<D>>,
}

impl<D: Driver> Part<D> {
    fn serves(&self, kind: Kind, device: &Object<D::Device>) -> bool {
        let own = self.device.as_deref();
        let here = own.is_none_or(|own| std::ptr::eq(own, device));
        self.kind == kind && (kind == Kind::Host || here)
    }

    /// The live allocation that holds `addr`.
    pub fn lookup(&self, addr: u64) -> Option<Block> {
        match &self.native {
            Some(native) => native.lookup(addr),
            None => self.pool.lookup(addr),
        }
    }
}

/// Keys of the parts that serve a device in block caches; 0 for unused ones.
struct Keys {
    device: usize,
    kinds: [u64; Kind::ALL.len()],
}

impl Keys {
    fn of<D: Driver>(device: &Arc<Object<D::Device>>, parts: &[Part<D>]) -> Self {
        let key = |kind| {
            let part = parts.iter().find(|part| part.serves(kind, device))?;
            part.native.is_none().then(|| part.pool.key().get())
        };
        Self {
            device: Arc::as_ptr(device).addr(),
            kinds: Kind::ALL.map(|kind| key(kind).unwrap_or_default()),
        }
    }
}

pub(crate) struct PoolCore<D: Driver> {
    /// Number of the pool, in the order of creation.
    number: u64,
    domain: Weak<Domain<D>>,
    /// Where that is: each allocation asks.
    domain_at: usize,
    parts: Vec<Part<D>>,
    keys: Vec<Keys>,
    max_bytes: u64,
    threshold: AtomicU64,
    closed: AtomicBool,
    pub reserved: Arc<Gauge>,
    /// Counts all the parts.
    pub used: Arc<Usage>,
    /// Whether the pool is over user memory, whose addresses belong to another pool too: block
    /// caches could not tell them apart.
    nested: bool,
    extent_version: Arc<ExtentVersion>,
    /// The native parts' share of `reserved` at the last query.
    native: Mutex<u64, { rank::NATIVE_PARTS }>,
    handle: OnceLock<Weak<dyn Any + Send + Sync>>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl<D: Driver> PoolCore<D> {
    pub fn new(domain: &Arc<Domain<D>>, mut plan: Plan<D>) -> Arc<Self> {
        let user = plan.user.take();
        let nested = user.is_some();
        let used = Arc::<Usage>::default();
        let kinds = kinds(&plan.devices, user.as_ref().map(|(kind, _)| *kind));
        let unit = kinds
            .iter()
            .map(|(device, kind)| D::granularity(device.as_deref(), *kind).max(1));
        let unit = unit.max().unwrap_or(1) as u64;
        let max_bytes = match &user {
            Some((_, block)) => block.bytes as u64,
            None => plan
                .max_bytes
                .checked_next_multiple_of(unit)
                .unwrap_or(plan.max_bytes),
        };
        let most = if max_bytes == 0 { u64::MAX } else { max_bytes };
        let reserved = Arc::new(Gauge::new(most));
        let block = user.as_ref().map(|(_, block)| block);
        let config = Config {
            options: domain.engine().pool_options(plan.tight),
            ..config(max_bytes, plan.threshold, block)
        };
        let mut block = user.map(|(_, block)| block);
        let core = Arc::new_cyclic(|core| {
            let mut part = |at: usize, device: Option<Arc<Object<D::Device>>>, kind: Kind| {
                let provider = SlabSource {
                    domain: Arc::clone(domain),
                    core: Weak::clone(core),
                    part: at,
                    device: device.clone(),
                    kind,
                    zeroed: plan.zeroed,
                    budget: Arc::clone(&reserved),
                    user: block.take(),
                    paged: match nested {
                        true => None,
                        false => Paged::new(domain, device.as_ref(), kind, plan.zeroed),
                    },
                };
                let limits = NativeLimits {
                    max_bytes,
                    threshold: plan.threshold,
                };
                let native = (plan.native && !plan.zeroed && !nested)
                    .then(|| D::native_pool(domain, device.as_deref(), kind, &limits))
                    .flatten();
                let mut config = config;
                let keeps = (plan.keeps)(kind);
                if !keeps {
                    config.release_threshold = 0;
                }
                Part {
                    kind,
                    native: native.map(NativePart::new),
                    device,
                    keeps,
                    pool: Pool::with_usage(provider, config, Arc::clone(&used)),
                }
            };
            let kinds = (0..).zip(kinds);
            let parts = kinds.map(|(at, (device, kind))| part(at, device, kind));
            let parts: Vec<_> = parts.collect();
            Self {
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                domain: Arc::downgrade(domain),
                domain_at: Arc::as_ptr(domain).addr(),
                keys: plan
                    .devices
                    .iter()
                    .map(|own| Keys::of(own, &parts))
                    .collect(),
                parts,
                max_bytes,
                threshold: AtomicU64::new(plan.threshold),
                closed: AtomicBool::new(false),
                reserved: Arc::clone(&reserved),
                used: Arc::clone(&used),
                nested,
                extent_version: Arc::clone(&domain.memory.extent_version),
                native: Mutex::default(),
                handle: OnceLock::new(),
            }
        });
        domain.memory.add_pool(&core);
        core
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn parts(&self) -> &[Part<D>] {
        &self.parts
    }

    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The part that serves this kind on this device of the context.
    pub fn part(&self, kind: Kind, device: &Object<D::Device>) -> Option<usize> {
        self.parts.iter().position(|part| part.serves(kind, device))
    }

    /// The key of the part that serves this kind on a device of the pool, in block caches.
    #[inline]
    pub fn key(&self, kind: Kind, device: &Object<D::Device>) -> Option<PoolKey> {
        let device = std::ptr::from_ref(device).addr();
        let keys = self.keys.iter().find(|keys| keys.device == device)?;
        let key = keys.kinds[kind as usize];
        (key > 0).then(|| PoolKey::from_raw(key))
    }

    /// Serves a request, giving back idle memory of the other kinds if that makes room for it.
    ///
    /// With the cache of the lane whose order it has, the block is lent to that. Before it fails it names
    /// the least that the host may wait for so that it need not.
    pub fn acquire(
        &self,
        part: usize,
        request: &Request<'_>,
        cache: Option<&Arc<StreamCache>>,
    ) -> Result<Answer> {
        let part = &self.parts[part];
        let ask = || match cache.filter(|_| !self.nested) {
            Some(cache) => part.pool.acquire_on(cache, request),
            None => part.pool.acquire(request),
        };
        let mut answer = ask();
        if is_out_of_memory(&answer) && self.release_idle() {
            answer = ask();
        }
        if is_out_of_memory(&answer)
            && self.is_within(request.bytes)
            && self.release_idle_everywhere()
        {
            answer = ask();
        }
        if is_short(&answer)
            && let Some(mut wait) = self.awaited(part, request)
        {
            if wait.is_empty() {
                // It has completed since.
                self.release_idle();
                answer = ask();
                wait = match is_short(&answer) {
                    true => self.awaited(part, request).unwrap_or_default(),
                    false => wait,
                };
            }
            if !wait.is_empty() {
                self.extent_version.change();
                return Ok(Answer::Once(wait));
            }
        }
        self.extent_version.change();
        answer.map(Answer::Served).map_err(|error| {
            part.pool.record_failure();
            convert(error, part.kind)
        })
    }

    /// The frontier that the host may wait for so that a failed request is served.
    fn awaited(&self, part: &Part<D>, request: &Request<'_>) -> Option<Frontier> {
        let others = self
            .parts
            .iter()
            .filter(|other| !std::ptr::eq(*other, part));
        let mut elsewhere: Vec<_> = others.flat_map(|other| other.pool.releasable()).collect();
        let dry = self.is_within(request.bytes);
        if dry && let Some(domain) = self.domain.upgrade() {
            let pools = domain.memory.pools();
            let pools = pools.iter().filter(|core| !std::ptr::eq(&***core, self));
            for core in pools {
                elsewhere.extend(core.parts.iter().flat_map(|other| other.pool.releasable()));
            }
        }
        let room = (!dry).then(|| self.max_bytes.saturating_sub(self.reserved.current()));
        let wait = part.pool.awaited(request, room, elsewhere);
        if wait.is_none() && part.pool.config().waits == WaitPolicy::Never {
            log::info!("an allocation fails without a wait, as UR_POOL_WAITS demands");
        }
        wait
    }

    /// Whether the request fits under the maximum, so that only the driver can be out of memory.
    fn is_within(&self, bytes: u64) -> bool {
        let room = self.max_bytes.saturating_sub(self.reserved.current());
        self.max_bytes == 0 || bytes <= room
    }

    /// For a lane that may do again what it did with some of these pools. Not where what is found for it
    /// would be given back.
    pub fn plan(&self, keys: &[PoolKey], cache: &Arc<StreamCache>, lane: &Lane) {
        if self.exceeds() {
            return;
        }
        let parts = self
            .parts
            .iter()
            .filter(|part| part.keeps && keys.contains(&part.pool.key()));
        parts.for_each(|part| part.pool.plan(cache, lane));
    }

    /// Frees the live block at `addr`; false if there is none.
    pub fn release(&self, part: usize, addr: u64, death: Frontier) -> bool {
        self.parts[part].pool.release(addr, death).is_some()
    }

    /// Counters of all parts together.
    pub fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for part in &self.parts {
            all += part.pool.counters();
        }
        all
    }

    pub fn report(&self) -> Report {
        self.refresh_native();
        let (used, used_high) = self.used.read();
        Report {
            number: self.number,
            figures: Figures {
                reserved: self.reserved.current(),
                reserved_high: self.reserved.high(),
                used,
                used_high,
            },
            counters: self.counters(),
        }
    }

    pub fn threshold(&self) -> u64 {
        self.threshold.load(Ordering::Relaxed)
    }

    pub fn set_threshold(&self, bytes: u64) {
        self.threshold.store(bytes, Ordering::Relaxed);
        let parts = self.parts.iter().filter(|part| part.keeps);
        parts.for_each(|part| part.pool.set_release_threshold(bytes));
        let natives = self.parts.iter().filter_map(|part| part.native.as_ref());
        natives.for_each(|native| native.pool.set_threshold(bytes));
        self.mark_dirty();
    }

    /// See [`Memory::mark_dirty`](crate::stream::usm::memory::Memory::mark_dirty).
    fn mark_dirty(&self) {
        if let Some(domain) = self.domain.upgrade() {
            domain.memory.mark_dirty();
        }
    }

    pub fn wants_settling(&self) -> bool {
        self.exceeds()
            || self.has_aliases()
            || self.unkept().any(|part| part.figures().reserved > 0)
    }

    /// Whether growth alone is no reason to settle.
    pub fn keeps_all(&self) -> bool {
        self.threshold() == u64::MAX && self.unkept().next().is_none()
    }

    /// The pools of kinds of which no free memory stays reserved.
    fn unkept(&self) -> impl Iterator<Item = &Pool<SlabSource<D>>> {
        let parts = self.parts.iter().filter(|part| !part.keeps);
        parts.map(|part| &part.pool)
    }

    /// Whether it holds more than its threshold.
    fn exceeds(&self) -> bool {
        // Without a threshold, as mostly, nobody need be asked.
        let threshold = self.threshold();
        self.closed.load(Ordering::Acquire)
            || threshold < u64::MAX && self.reserved.current() > threshold
    }

    /// Whether there are addresses that memory has left.
    fn has_aliases(&self) -> bool {
        self.parts.iter().any(|part| part.pool.has_aliases())
    }

    /// Releases completed free memory beyond the threshold.
    pub fn settle(&self) {
        self.refresh_native();
        if self.has_aliases() {
            self.parts.iter().for_each(|part| part.pool.expire());
        }
        self.unkept().for_each(|pool| pool.shrink(0));
        if self.closed.load(Ordering::Acquire) {
            self.shrink(0);
        } else {
            self.shrink(self.threshold());
        }
    }

    /// Releases free memory as long as at least `keep` bytes stay reserved, all kinds together.
    pub fn trim(&self, keep: u64) {
        self.release_by(keep, Pool::trim);
    }

    /// Releases free memory until at most `keep` bytes are reserved, all kinds together.
    fn shrink(&self, keep: u64) {
        self.release_by(keep, Pool::shrink);
    }

    fn release_by(&self, keep: u64, release: impl Fn(&Pool<SlabSource<D>>, u64)) {
        for part in &self.parts {
            let excess = self.reserved.current().saturating_sub(keep);
            if excess == 0 {
                return;
            }
            match &part.native {
                Some(native) if native.has_begun() => {
                    let own = native.reserved();
                    native.pool.trim(own.saturating_sub(excess));
                    self.refresh_native();
                }
                Some(_) => {}
                None => {
                    let own = part.pool.figures().reserved;
                    release(&part.pool, own.saturating_sub(excess));
                }
            }
        }
    }

    /// Serves no more requests; live blocks stay, and memory goes as they end.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for part in &self.parts {
            part.pool.close();
        }
        self.mark_dirty();
    }

    pub fn is_drained(&self) -> bool {
        let drained = |part: &Part<D>| match &part.native {
            Some(native) => native.is_idle(),
            None => part.pool.is_drained(),
        };
        self.closed.load(Ordering::Acquire) && self.parts.iter().all(drained)
    }

    /// The handle of the pool, while there is one.
    pub fn handle<P: Body>(&self) -> Option<Arc<Object<P>>> {
        self.handle.get()?.upgrade()?.downcast().ok()
    }

    pub fn set_handle<P: Body>(&self, handle: &Arc<Object<P>>) {
        // Set once, when the handle is made.
        let _ = self.handle.set(Arc::downgrade(handle) as _);
    }

    /// Whether it is a pool of this domain.
    pub fn belongs_to(&self, domain: &Arc<Domain<D>>) -> bool {
        self.domain_at == Arc::as_ptr(domain).addr()
    }

    /// Releases all idle memory of this pool. True if there was any.
    pub fn release_idle(&self) -> bool {
        let before = self.reserved.current();
        self.shrink(0);
        self.reserved.current() < before
    }

    pub fn domain(&self) -> Option<Arc<Domain<D>>> {
        self.domain.upgrade()
    }

    /// Updates `reserved` with the native parts' reserved bytes.
    pub fn refresh_native(&self) {
        let natives = self.parts.iter().filter_map(|part| part.native.as_ref());
        let mut begun = natives.filter(|native| native.has_begun()).peekable();
        if begun.peek().is_none() {
            return;
        }
        let mut level = self.native.lock();
        let now = begun.map(NativePart::reserved).sum();
        self.reserved.shift(*level, now);
        *level = now;
    }

    /// Counts bytes of a native part as used, unless that would exceed the maximum.
    pub fn admit(&self, bytes: u64) -> bool {
        let _one_by_one = self.native.lock();
        let most = if self.max_bytes == 0 {
            u64::MAX
        } else {
            self.max_bytes
        };
        let sum = self.used.read().0.checked_add(bytes);
        let fits = sum.is_some_and(|sum| sum <= most);
        if fits {
            self.used.alloc(&block(0, bytes));
        }
        fits
    }

    /// After a native part may have grown: the backend keeps each of them within the maximum, and what
    /// the others have idle must make room.
    pub fn after_growth(&self) {
        self.refresh_native();
        if self.max_bytes > 0 && self.reserved.current() > self.max_bytes {
            self.shrink(self.max_bytes);
        }
    }

    /// Releases idle memory for a native part. True if there was any.
    pub fn release_idle_for(&self, part: usize) -> bool {
        let kind = self.parts[part].kind;
        log::debug!("the backend's pool has no {kind:?} memory left");
        self.release_idle() | (self.max_bytes == 0 && self.release_idle_everywhere())
    }

    fn release_idle_everywhere(&self) -> bool {
        let Some(domain) = self.domain.upgrade() else {
            return false;
        };
        let released = domain
            .memory
            .pools()
            .iter()
            .filter(|core| core.release_idle())
            .count();
        released > 0
    }
}

impl<D: Driver> Drop for PoolCore<D> {
    fn drop(&mut self) {
        let Some(domain) = self.domain.upgrade() else {
            return;
        };
        // Live allocations end with the pool, and their addresses must not be found in it once
        // reused.
        let natives = self.parts.iter().filter_map(|part| part.native.as_ref());
        for addr in natives.flat_map(NativePart::starts) {
            domain.memory.remove_native(addr, &Weak::new());
        }
    }
}

fn kinds<T>(devices: &[Arc<T>], only: Option<Kind>) -> Vec<(Option<Arc<T>>, Kind)> {
    let mut out = Vec::with_capacity(2 * devices.len() + 1);
    for device in devices {
        out.push((Some(Arc::clone(device)), Kind::Device));
        out.push((Some(Arc::clone(device)), Kind::Shared));
    }
    out.push((None, Kind::Host));
    if let Some(only) = only {
        out.retain(|(_, kind)| *kind == only);
    }
    out
}

fn config(max_bytes: u64, threshold: u64, user: Option<&UserBlock>) -> Config {
    let mut config = Config {
        max_bytes: (max_bytes > 0).then_some(max_bytes),
        release_threshold: threshold,
        waits: Settings::get().waits,
        ..Config::default()
    };
    if let Some(block) = user {
        // The block is what it is: no more is lost to alignment than its own start demands.
        config.chunk_bytes = block.bytes as u64;
        config.min_align = config
            .min_align
            .min(1 << block.base.trailing_zeros().min(8));
    }
    config
}

fn is_out_of_memory(answer: &std::result::Result<Acquired, PoolError>) -> bool {
    let dry = [ProviderError::OutOfMemory, ProviderError::OutOfHostMemory];
    matches!(answer, Err(PoolError::Provider(error)) if dry.contains(error))
}

/// Whether the request fails only for lack of memory.
fn is_short(answer: &std::result::Result<Acquired, PoolError>) -> bool {
    is_out_of_memory(answer) || matches!(answer, Err(PoolError::Exhausted { .. }))
}

fn convert(error: PoolError, kind: Kind) -> Error {
    let dry = kind.exhausted();
    Error::new(match error {
        PoolError::Exhausted { .. } => dry,
        PoolError::Provider(ProviderError::OutOfMemory | ProviderError::OutOfHostMemory) => dry,
        PoolError::Provider(ProviderError::Other(code)) => ur_result_t(code as _),
        PoolError::InvalidSize => UR_RESULT_ERROR_INVALID_USM_SIZE,
        PoolError::InvalidAlignment | PoolError::Closed => UR_RESULT_ERROR_INVALID_VALUE,
    })
}
