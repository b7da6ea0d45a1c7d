//! The machine's processors and memory, as the system reports them.

use std::fs;
use std::sync::OnceLock;

use ur::object::env::Env;

/// Most workers that a setting may ask for. No machine has more cores.
const MAX_THREADS: usize = 4096;

/// Number of workers: `SYCL_NATIVE_CPU_HOST_THREADS`, or the number of cores for this process.
pub fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let default = format!("{cores}, the cores for this process");
    let configured =
        Env::process().number("SYCL_NATIVE_CPU_HOST_THREADS", 1..=MAX_THREADS, &default);
    configured.unwrap_or(cores)
}

/// Facts that do not change while the machine runs.
pub struct Facts {
    pub model: String,
    pub vendor: String,
    pub max_mhz: u32,
    /// Bytes of the widest vector register.
    pub vector_bytes: u32,
}

pub fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        Facts::from(
            &read("/proc/cpuinfo"),
            &read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
        )
    })
}

impl Facts {
    fn from(cpuinfo: &str, max_khz: &str) -> Self {
        let text = |key| field(cpuinfo, key).map_or_else(|| "unknown".to_owned(), str::to_owned);
        let now = field(cpuinfo, "cpu MHz").and_then(|mhz| mhz.parse::<f64>().ok());
        let max_mhz = match max_khz.trim().parse::<u32>() {
            Ok(khz) => khz / 1000,
            // Without a known maximum, the present frequency stands for it.
            Err(_) => now.map_or(0, |mhz| mhz.round() as u32),
        };
        Self {
            model: text("model name"),
            vendor: text("vendor_id"),
            max_mhz,
            vector_bytes: vector_bytes(),
        }
    }

    /// The vendor's PCI id, or 0 for a vendor that is not listed here.
    pub fn vendor_id(&self) -> u32 {
        match self.vendor.as_str() {
            "GenuineIntel" => 0x8086,
            "AuthenticAMD" => 0x1022,
            _ => 0,
        }
    }
}

/// The first value of a key in a text of `key : value` lines.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(target_arch = "x86_64")]
fn vector_bytes() -> u32 {
    if std::arch::is_x86_feature_detected!("avx512f") {
        64
    } else if std::arch::is_x86_feature_detected!("avx2") {
        32
    } else {
        16
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn vector_bytes() -> u32 {
    16
}

/// Bytes of memory that the machine has.
pub fn memory_bytes() -> u64 {
    system(libc::_SC_PHYS_PAGES).saturating_mul(page_bytes() as u64)
}

/// Bytes of memory that could be allocated now. None if the system does not report it.
pub fn free_bytes() -> Option<u64> {
    let text = read("/proc/meminfo");
    let available = field(&text, "MemAvailable")?.strip_suffix("kB")?;
    Some(available.trim().parse::<u64>().ok()? * 1024)
}

pub fn page_bytes() -> usize {
    usize::try_from(system(libc::_SC_PAGESIZE))
        .unwrap_or(4096)
        .max(1)
}

pub fn cache_line_bytes() -> u32 {
    match system(libc::_SC_LEVEL1_DCACHE_LINESIZE) {
        0 => 64,
        bytes => u32::try_from(bytes).unwrap_or(64),
    }
}

/// Bytes of the last cache level.
pub fn cache_bytes() -> u64 {
    match system(libc::_SC_LEVEL3_CACHE_SIZE) {
        0 => system(libc::_SC_LEVEL2_CACHE_SIZE),
        bytes => bytes,
    }
}

/// A value of `sysconf`, or 0 if the system has none.
fn system(what: i32) -> u64 {
    // SAFETY: `sysconf` takes any number and returns -1 for an unknown one.
    u64::try_from(unsafe { libc::sysconf(what) }).unwrap_or(0)
}

/// An id of some of this machine's workers, the first and the count of `part`. It is equal in every
/// process and after a restart.
pub fn uuid(part: (usize, usize)) -> [u8; 16] {
    let machine = read("/etc/machine-id");
    let facts = facts();
    let text = format!(
        "native_cpu\0{}\0{}\0{}\0{part:?}",
        machine.trim(),
        facts.vendor,
        facts.model
    );
    // FNV-1a, 128 bits (Fowler, Noll, Vo).
    let hash = text.bytes().fold(
        0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
        |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        },
    );
    let mut id = hash.to_be_bytes();
    // Version 8, "made by the vendor's own method" (RFC 9562).
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_from_the_first_processor() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: One\ncpu MHz\t\t: 2445.528\n\n\
                    processor\t: 1\nmodel name\t: Two\n";
        let facts = Facts::from(text, "");
        assert_eq!(
            (facts.model.as_str(), facts.max_mhz, facts.vendor_id()),
            ("One", 2446, 0x8086)
        );
        assert_eq!(Facts::from(text, "3700000\n").max_mhz, 3700);
        let unknown = Facts::from("", "");
        assert_eq!(
            (unknown.model.as_str(), unknown.max_mhz, unknown.vendor_id()),
            ("unknown", 0, 0)
        );
    }

    #[test]
    fn this_machine_has_memory_and_a_name() {
        let (all, free) = (memory_bytes(), free_bytes());
        assert!(all > 0 && page_bytes().is_power_of_two());
        assert!(free.is_none_or(|free| 0 < free && free <= all));
        assert_eq!(uuid((0, 2)), uuid((0, 2)));
        assert_ne!(uuid((0, 2)), uuid((0, 1)));
    }
}
