//! The variables that users set for Intel's adapters, and what each means here. Read once.
//!
//! A variable without effect is named once in the log at `debug`, and a part of an honoured one that has none at
//! `warning`. Variables with the older prefix `SYCL_PI_LEVEL_ZERO_` are those with `UR_L0_`.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use ur::abi::*;
use ur::object::env::Env;
use ur::stream::Kind;

use Treatment::{Fixed, Honoured};

/// What becomes of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Treatment {
    Honoured,
    /// Has no effect: it tunes what is not here, or asks for what always holds.
    Fixed,
}

const PREFIX: &str = "UR_L0_";
const OLD_PREFIX: &str = "SYCL_PI_LEVEL_ZERO_";

/// The variables, each with its meaning. Any other with one of the prefixes has no effect.
#[rustfmt::skip]
const VARIABLES: &[(&str, Treatment, &str)] = &[
    (RELAXED, Honoured, "1: allocations above the device's limit, and kernels built for them"),
    (COMPUTE_ENGINE, Honoured, "the index of the compute engine; below 0: all of them in turn"),
    (COPY_ENGINE, Honoured, "0: no hint that copies may run on copy engines"),
    (NO_COPY_OFFLOAD, Honoured, "1: the same"),
    (SERIALIZE, Honoured, "2: each command is waited for; 1, submissions one by one, always holds for a lane"),
    (IN_ORDER_LISTS, Honoured, "0: barriers keep the order, and not the driver"),
    (COUNTER_EVENTS, Honoured, "0: markers are events of pools"),
    (NO_EVENT_CACHE, Honoured, "1: a queue takes each marker from its context, and keeps none of its own"),
    (DISABLE_ALLOCATOR, Honoured, "1: default pools release free memory"),
    (LEAKS_DEBUG, Honoured, "1: objects that are alive after the adapter's last release are written to stderr"),
    (FORCE_BATCHED, Honoured, "1: each queue batches its commands"),
    (IMMEDIATE_LISTS, Honoured, "0: queues batch their commands that do not ask for the contrary"),
    (BATCH_SIZE, Honoured, "commands of a batch"),
    (DEBUG, Honoured, "4: the same; 1 and 2 are UR_LOG_LEVEL_ZERO's and the layers'"),
    (SLICES, Honoured, "1: tiles split into compute slices by affinity domain too, on every product"),
    ("UR_L0_USM_ALLOCATOR_TRACE", Fixed, "UR_POOL_TRACE writes the pools' decisions"),
    ("SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P", Fixed, "memory is resident on its own device and on those that it is opened to"),
    (ALLOCATOR, Honoured, "whether and how much default pools keep; its other sizes have no meaning"),
    (VECTOR_WIDTH, Honoured, "the size of vectors whose widths a device reports"),
    (SKIPPED_DRIVERS, Honoured, "versions of drivers that are left out"),
    (SKIPPED_LOADERS, Honoured, "versions of the loader with which there is no device"),
    (IMPORT, Honoured, "not 0: a buffer over host memory imports it"),
];

/// This project's own variable.
const PAGES: &str = "UR_LEVEL_ZERO_PAGES";
const RELAXED: &str = "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS";
const COMPUTE_ENGINE: &str = "UR_L0_USE_COMPUTE_ENGINE";
const COPY_ENGINE: &str = "UR_L0_USE_COPY_ENGINE";
const NO_COPY_OFFLOAD: &str = "UR_L0_V2_FORCE_DISABLE_COPY_OFFLOAD";
const SERIALIZE: &str = "UR_L0_SERIALIZE";
const IN_ORDER_LISTS: &str = "UR_L0_USE_DRIVER_INORDER_LISTS";
const COUNTER_EVENTS: &str = "UR_L0_USE_DRIVER_COUNTER_BASED_EVENTS";
const NO_EVENT_CACHE: &str = "UR_L0_DISABLE_EVENTS_CACHING";
const DISABLE_ALLOCATOR: &str = "UR_L0_DISABLE_USM_ALLOCATOR";
const LEAKS_DEBUG: &str = "UR_L0_LEAKS_DEBUG";
const FORCE_BATCHED: &str = "UR_L0_V2_FORCE_BATCHED";
const IMMEDIATE_LISTS: &str = "UR_L0_USE_IMMEDIATE_COMMANDLISTS";
const BATCH_SIZE: &str = "UR_L0_BATCH_SIZE";
const DEBUG: &str = "UR_L0_DEBUG";
const SLICES: &str = "UR_L0_EXPOSE_CSLICE_IN_AFFINITY_PARTITIONING";
const ALLOCATOR: &str = "UR_L0_USM_ALLOCATOR";
const VECTOR_WIDTH: &str = "UR_L0_VECTOR_WIDTH_SIZE";
const SKIPPED_DRIVERS: &str = "SYCL_UR_L0_DRIVER_SKIPLIST";
const SKIPPED_LOADERS: &str = "SYCL_UR_L0_LOADER_SKIPLIST";
const IMPORT: &str = "SYCL_USM_HOSTPTR_IMPORT";

/// A variable of DPC++'s runtime, which passes a user's memory to a buffer only with it.
const UNIFIED_MEMORY: &str = "SYCL_HOST_UNIFIED_MEMORY";

/// Which engine of a device runs a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComputeEngine {
    Index(u32),
    /// Each queue takes the next one.
    All,
}

impl ComputeEngine {
    /// The engine of a new queue on a device with so many.
    pub fn of(self, count: u32) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let last = count.saturating_sub(1);
        match self {
            Self::Index(index) => index.min(last),
            Self::All => NEXT.fetch_add(1, Ordering::Relaxed) % (last + 1),
        }
    }
}

/// Which queues batch their commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batching {
    All,
    /// Queues that do not ask for immediate submission.
    Usual,
    /// Queues that ask for batched submission.
    Asked,
}

/// Commands of a full batch.
const BATCH_COMMANDS: u32 = 120;

/// The accepted texts for pools.
const POOLS: &str =
    "[0 or 1];[the most bytes];[[host, device or shared:]largest,capacity,slab];...";

/// How much free memory default pools keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pools {
    /// Bytes that a pool keeps reserved, all kinds together.
    pub kept_bytes: u64,
    /// Whether free memory of host, device and shared memory is kept at all.
    kinds: [bool; Kind::ALL.len()],
    /// Whether the user gave sizes that have no meaning here.
    has_other_sizes: bool,
}

impl Pools {
    const KEEP_ALL: Self = Self {
        kept_bytes: u64::MAX,
        kinds: [true; Kind::ALL.len()],
        has_other_sizes: false,
    };

    const KEEP_NONE: Self = Self {
        kept_bytes: 0,
        ..Self::KEEP_ALL
    };

    pub fn keeps(&self, kind: Kind) -> bool {
        self.kinds[kind as usize]
    }

    /// Reads `[POOLING];[MOST];[KIND:]LARGEST,CAPACITY,SLAB;...`, each part optional. Pools of Intel's adapters have
    /// buckets of sizes; where these hold nothing, a kind is not pooled.
    fn parse(text: &str) -> Option<Self> {
        let mut pools = Self::KEEP_ALL;
        let parts = text.split(';').map(str::trim);
        for (at, part) in parts.enumerate().filter(|(_, part)| !part.is_empty()) {
            match (at, bytes(part)) {
                (0, Some(0)) => pools.kinds = [false; Kind::ALL.len()],
                (0, Some(_)) => {}
                (1, Some(most)) => pools.kept_bytes = most,
                _ => pools.limit(part)?,
            }
        }
        Some(pools)
    }

    /// Reads the limits of one kind, or of all kinds.
    fn limit(&mut self, part: &str) -> Option<()> {
        let (name, limits) = part.split_once(':').unwrap_or(("", part));
        let kinds = match name.trim() {
            "" => &Kind::ALL[..],
            "host" => &[Kind::Host],
            "device" => &[Kind::Device],
            "shared" => &[Kind::Shared],
            // Memory that devices only read is of the pools of all shared memory.
            "read_only_shared" => &[],
            _ => return None,
        };
        let limits = limits.split(',').map(str::trim);
        for (at, limit) in limits.enumerate().filter(|(_, limit)| !limit.is_empty()) {
            match (at, bytes(limit)?) {
                (0 | 1, 0) if !kinds.is_empty() => kinds
                    .iter()
                    .for_each(|kind| self.kinds[*kind as usize] = false),
                (0..=2, _) => self.has_other_sizes = true,
                _ => return None,
            }
        }
        Some(())
    }
}

/// A number of bytes, as `64K`, `4M` or `1G`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let end = text.find(['k', 'm', 'g']);
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit {
        "" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return None,
    };
    let number: u64 = number.trim().parse().ok()?;
    number.checked_mul(1 << shift)
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Whether allocations may exceed the device's limit.
    pub relaxed_limits: bool,
    pub compute_engine: ComputeEngine,
    /// Whether the driver may run copies on copy engines.
    pub copy_offload: bool,
    /// Whether each command is waited for in its call.
    pub synchronous: bool,
    /// Whether the driver keeps a list's order.
    pub in_order_lists: bool,
    /// Whether markers are counter-based events.
    pub counter_based_events: bool,
    /// Whether a lane gives its own markers out again.
    pub caches_events: bool,
    /// What default pools keep.
    pub pools: Pools,
    /// Which queues batch their commands.
    pub batching: Batching,
    /// Commands of a full batch.
    pub batch_size: u32,
    /// Whether leaks are written to standard error.
    pub leaks: bool,
    /// Whether pools have device memory in pages, where the driver has virtual memory.
    pub pages: bool,
    /// Whether compute slices are parts by affinity domain too, and of every product's tiles.
    pub slices_by_domain: bool,
    /// Whether a buffer over host memory imports it.
    pub imports_buffers: bool,
    /// The size of vectors whose widths a device reports, if it has them.
    pub vector_size: Option<u32>,
    /// Versions of drivers that are left out.
    pub skipped_drivers: Vec<String>,
    /// Versions of the loader with which there is no device.
    pub skipped_loaders: Vec<String>,
}

impl Settings {
    pub fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| Self::read(&Env::process()))
    }

    fn read(env: &Env<'_>) -> Self {
        let flag = |name, default| env.flag(&set(env, name), default);
        let number = |name, accepted, default| -> Option<i64> {
            let parse = |text: &str| text.trim().parse().ok();
            env.read(&set(env, name), accepted, default, parse)
        };
        let versions = |name| {
            let parse = |text: &str| ur::object::env::list(text).ok();
            env.read(name, "versions with commas between", "none", parse)
                .unwrap_or_default()
        };
        let serialize = number(SERIALIZE, "0, 1, 2, 3", "0").unwrap_or(0);
        let debug = number(DEBUG, "0 to 7", "0").unwrap_or(0);
        let engine = number(COMPUTE_ENGINE, "a number", "0").unwrap_or(0);
        Self {
            relaxed_limits: flag(RELAXED, false),
            compute_engine: match u32::try_from(engine) {
                Ok(index) => ComputeEngine::Index(index),
                Err(_) => ComputeEngine::All,
            },
            // `1`, or a range of engines, which the driver chooses from.
            copy_offload: env.text(&set(env, COPY_ENGINE)).as_deref() != Some("0")
                && !flag(NO_COPY_OFFLOAD, false),
            synchronous: serialize & 2 != 0,
            in_order_lists: flag(IN_ORDER_LISTS, true),
            counter_based_events: flag(COUNTER_EVENTS, true),
            caches_events: !flag(NO_EVENT_CACHE, false),
            pools: match flag(DISABLE_ALLOCATOR, false) {
                true => Pools::KEEP_NONE,
                false => env
                    .read(&set(env, ALLOCATOR), POOLS, "pools keep all", Pools::parse)
                    .unwrap_or(Pools::KEEP_ALL),
            },
            batching: match flag(FORCE_BATCHED, false) {
                true => Batching::All,
                false if number(IMMEDIATE_LISTS, "0, 1, 2", "1") == Some(0) => Batching::Usual,
                false => Batching::Asked,
            },
            // 0 leaves the size to the adapter.
            batch_size: number(BATCH_SIZE, "a number", "120")
                .and_then(|size| u32::try_from(size).ok())
                .filter(|size| *size > 0)
                .unwrap_or(BATCH_COMMANDS),
            pages: env.flag(PAGES, false),
            leaks: flag(LEAKS_DEBUG, false) || debug & 4 != 0,
            slices_by_domain: flag(SLICES, false),
            imports_buffers: number(IMPORT, "a number", "0").is_some_and(|value| value != 0),
            // 0 leaves the size to the adapter.
            vector_size: number(VECTOR_WIDTH, "a number", "the largest")
                .and_then(|size| u32::try_from(size).ok())
                .filter(|size| *size > 0),
            skipped_drivers: versions(SKIPPED_DRIVERS),
            skipped_loaders: versions(SKIPPED_LOADERS),
        }
    }

    /// The flags of a queue's lanes: batched ones have the flag for it.
    pub fn submission(&self, flags: ur_queue_flags_t) -> ur_queue_flags_t {
        let is_batched = match self.batching {
            Batching::All => true,
            Batching::Usual => !flags.contains(UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE),
            Batching::Asked => return flags,
        };
        match is_batched {
            true => flags | UR_QUEUE_FLAG_SUBMISSION_BATCHED,
            false => flags,
        }
    }

    /// What honoured variables ask for and do not get, and why.
    fn shortfalls(&self, env: &Env<'_>) -> Vec<String> {
        let mut all = Vec::new();
        if self.pools.has_other_sizes {
            all.push(format!(
                "{ALLOCATOR}: the sizes of pooled allocations, capacities and slabs have no effect"
            ));
        }
        if self.imports_buffers && env.text(UNIFIED_MEMORY).as_deref() != Some("1") {
            all.push(format!("{IMPORT}: a SYCL program needs {UNIFIED_MEMORY}=1 too, or its buffers are over no memory of the user's"));
        }
        all
    }

    /// Names the variables of the process that are not honoured.
    pub fn report() {
        for shortfall in Self::get().shortfalls(&Env::process()) {
            log::warn!("{shortfall}");
        }
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        let fixed = unheeded(names);
        if !fixed.is_empty() {
            log::debug!("variables without effect: {}", fixed.join(", "));
        }
    }
}

/// The name by which a variable is set: the present or the older one.
fn set(env: &Env<'_>, name: &str) -> String {
    let old = name
        .strip_prefix(PREFIX)
        .map(|rest| format!("{OLD_PREFIX}{rest}"));
    let is_set = |name: &String| env.text(name).is_some();
    let old = old.filter(|old| env.text(name).is_none() && is_set(old));
    old.unwrap_or_else(|| name.to_owned())
}

/// The variables among these names that have no effect, each with what is known of it.
fn unheeded(names: impl Iterator<Item = String>) -> Vec<String> {
    let names: BTreeSet<_> = names.collect();
    let mut found = Vec::new();
    for name in names {
        let present = match name.strip_prefix(OLD_PREFIX) {
            Some(rest) => format!("{PREFIX}{rest}"),
            None => name.clone(),
        };
        let known = VARIABLES.iter().find(|(own, ..)| *own == present);
        match known {
            Some((_, Honoured, _)) => {}
            Some((_, Fixed, meaning)) => found.push(format!("{name} ({meaning})")),
            None if present.starts_with(PREFIX) => found.push(name),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Settings {
        let get = |name: &str| {
            let found = pairs.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&Env::new(&get, &|complaint| panic!("{complaint}")))
    }

    #[test]
    fn each_honoured_variable_has_its_effect() {
        let usual = parse(&[]);
        assert!(usual.copy_offload && usual.in_order_lists && usual.counter_based_events);
        assert!(!usual.relaxed_limits && !usual.synchronous && !usual.leaks);
        assert!(!usual.imports_buffers && usual.pools == Pools::KEEP_ALL);
        assert_eq!(usual.compute_engine, ComputeEngine::Index(0));
        let changes = [
            (RELAXED, "1"),
            (COMPUTE_ENGINE, "3"),
            (COPY_ENGINE, "0"),
            (NO_COPY_OFFLOAD, "1"),
            (SERIALIZE, "2"),
            (IN_ORDER_LISTS, "0"),
            (COUNTER_EVENTS, "0"),
            (NO_EVENT_CACHE, "1"),
            (DISABLE_ALLOCATOR, "1"),
            (LEAKS_DEBUG, "1"),
            (FORCE_BATCHED, "1"),
            (IMMEDIATE_LISTS, "0"),
            (BATCH_SIZE, "7"),
            (DEBUG, "4"),
            (SLICES, "1"),
            (ALLOCATOR, "0"),
            (VECTOR_WIDTH, "16"),
            (SKIPPED_DRIVERS, "1.3.27642+40"),
            (SKIPPED_LOADERS, "1.32.0"),
            (IMPORT, "1"),
        ];
        let honoured = VARIABLES.iter().filter(|(_, use_, _)| *use_ == Honoured);
        let names: Vec<_> = honoured.map(|(name, ..)| *name).collect();
        assert_eq!(names, changes.map(|(name, _)| name));
        for (name, value) in changes {
            let changed = parse(&[(name, value)]);
            assert_ne!(changed, usual, "{name}");
            if let Some(rest) = name.strip_prefix(PREFIX) {
                let old = format!("{OLD_PREFIX}{rest}");
                assert_eq!(parse(&[(&old, value)]), changed, "{old}");
            }
        }
        assert_eq!(
            parse(&[(COMPUTE_ENGINE, "-1")]).compute_engine,
            ComputeEngine::All
        );
        assert_eq!(
            parse(&[(COPY_ENGINE, "0:2"), (SERIALIZE, "1"), (DEBUG, "3")]),
            usual
        );
        assert_eq!(parse(&[(IMMEDIATE_LISTS, "2"), (BATCH_SIZE, "0")]), usual);
        assert_eq!(parse(&[(VECTOR_WIDTH, "0"), (IMPORT, "0")]), usual);
        let versions = parse(&[(SKIPPED_DRIVERS, "1.3.27642+40,1.3.27191")]).skipped_drivers;
        assert_eq!(versions, ["1.3.27642+40", "1.3.27191"]);
    }

    #[test]
    fn pools_keep_what_the_variable_says() {
        let kinds = |text| {
            let pools = Pools::parse(text)?;
            let sizes = pools.has_other_sizes;
            Some((
                pools.kept_bytes,
                [Kind::Device, Kind::Shared, Kind::Host].map(|kind| pools.keeps(kind)),
                sizes,
            ))
        };
        let all = u64::MAX;
        assert_eq!(kinds("1"), Some((all, [true; 3], false)));
        assert_eq!(kinds("0"), Some((all, [false; 3], false)));
        assert_eq!(kinds(";32M"), Some((32 << 20, [true; 3], false)));
        assert_eq!(kinds("1;16K;"), Some((16 << 10, [true; 3], false)));
        assert_eq!(kinds("1;1gb;4M,4,64K"), Some((1 << 30, [true; 3], true)));
        // The form of Intel's documents.
        let documented = "1;32M;host:1M,4,64K;device:1M,4,64K;shared:0,0,2M";
        assert_eq!(
            kinds(documented),
            Some((32 << 20, [true, false, true], true))
        );
        assert_eq!(kinds("host:,0"), Some((all, [true, true, false], false)));
        assert_eq!(kinds("2M,0"), Some((all, [false; 3], true)));
        assert_eq!(kinds("read_only_shared:0"), Some((all, [true; 3], true)));
        for wrong in [
            "on",
            "1;2;3;what:4",
            "host:1,2,3,4",
            "device:much",
            "99999999999G",
        ] {
            assert_eq!(kinds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_an_honoured_variable_cannot_do_is_reported() {
        let shortfalls = |pairs: &[(&str, &str)]| {
            let get = |name: &str| {
                let found = pairs.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            parse(pairs).shortfalls(&Env::new(&get, &|_| {}))
        };
        assert_eq!(
            shortfalls(&[(ALLOCATOR, "1;32M;device:0"), (IMPORT, "0")]),
            [""; 0]
        );
        let [sizes] = &shortfalls(&[(ALLOCATOR, "device:1M")])[..] else {
            panic!("sizes have no effect");
        };
        assert!(sizes.starts_with(ALLOCATOR), "{sizes}");
        let [alone] = &shortfalls(&[(IMPORT, "1")])[..] else {
            panic!("a SYCL program needs another variable");
        };
        assert!(alone.contains(UNIFIED_MEMORY), "{alone}");
        assert_eq!(shortfalls(&[(IMPORT, "1"), (UNIFIED_MEMORY, "1")]), [""; 0]);
    }

    #[test]
    fn queues_batch_as_the_variables_say() {
        let [none, batched, immediate] = [
            ur_queue_flags_t(0),
            UR_QUEUE_FLAG_SUBMISSION_BATCHED,
            UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE,
        ];
        let batches = |pairs: &[(&str, &str)]| {
            let settings = parse(pairs);
            [none, batched, immediate].map(|flags| {
                let flags = settings.submission(flags);
                flags.contains(UR_QUEUE_FLAG_SUBMISSION_BATCHED)
            })
        };
        assert_eq!(batches(&[]), [false, true, false]);
        assert_eq!(batches(&[(IMMEDIATE_LISTS, "0")]), [true, true, false]);
        assert_eq!(batches(&[(IMMEDIATE_LISTS, "1")]), [false, true, false]);
        assert_eq!(batches(&[(FORCE_BATCHED, "1")]), [true; 3]);
        let lists = [(FORCE_BATCHED, "1"), (IMMEDIATE_LISTS, "1")];
        assert_eq!(batches(&lists), [true; 3]);
    }

    #[test]
    fn variables_without_effect_are_named() {
        let set = [
            RELAXED,
            UNIFIED_MEMORY,
            "SYCL_PI_LEVEL_ZERO_USM_ALLOCATOR_TRACE",
            "UR_L0_BATCH_EVENT_SIZE",
            "UR_LOG_LEVEL_ZERO",
            "HOME",
        ];
        let fixed = unheeded(set.map(str::to_owned).into_iter());
        let trace =
            "SYCL_PI_LEVEL_ZERO_USM_ALLOCATOR_TRACE (UR_POOL_TRACE writes the pools' decisions)";
        assert_eq!(fixed, [trace, "UR_L0_BATCH_EVENT_SIZE"]);
    }
}
