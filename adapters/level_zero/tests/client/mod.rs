//! Clients of an adapter through our loader, each in a process of its own: the program of the test again, which runs on
//! a driver's own C library. What a client writes begins with `> `, so that it stands apart from what others write.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::{null, null_mut};

use ur::abi::property::{Form, Kind, Property};
use ur::abi::*;
use ur::dl::{Binding, Library};

/// The variables that say what a process does, and where the loader is.
pub const ROLE: &str = "LEVEL_ZERO_CLIENT";
pub const LOADER: &str = "LEVEL_ZERO_CLIENT_LOADER";
/// The blobs that a process opens.
pub const BLOBS: &str = "LEVEL_ZERO_CLIENT_BLOBS";

/// Calls a function of the loader, which succeeds.
macro_rules! done {
    ($ur:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments are live handles, and memory of the client's.
        let code = unsafe { ($ur.$name)($($argument),*) };
        assert_eq!(code, UR_RESULT_SUCCESS, "{}", stringify!($name));
    }};
}

ur::dl::symbols! {
    pub struct Functions {
        required {
            urLoaderInit: unsafe extern "C" fn(ur_device_init_flags_t, ur_loader_config_handle_t) -> ur_result_t,
            urAdapterGet: unsafe extern "C" fn(u32, *mut ur_adapter_handle_t, *mut u32) -> ur_result_t,
            urPlatformGet: unsafe extern "C" fn(ur_adapter_handle_t, u32, *mut ur_platform_handle_t, *mut u32) -> ur_result_t,
            urDeviceGet: unsafe extern "C" fn(ur_platform_handle_t, ur_device_type_t, u32, *mut ur_device_handle_t, *mut u32) -> ur_result_t,
            urDeviceGetInfo: unsafe extern "C" fn(ur_device_handle_t, ur_device_info_t, usize, *mut c_void, *mut usize) -> ur_result_t,
            urDevicePartition: unsafe extern "C" fn(ur_device_handle_t, *const ur_device_partition_properties_t, u32, *mut ur_device_handle_t, *mut u32) -> ur_result_t,
            urDeviceRelease: unsafe extern "C" fn(ur_device_handle_t) -> ur_result_t,
            urDeviceGetNativeHandle: unsafe extern "C" fn(ur_device_handle_t, *mut ur_native_handle_t) -> ur_result_t,
            urDeviceCreateWithNativeHandle: unsafe extern "C" fn(ur_native_handle_t, ur_adapter_handle_t, *const ur_device_native_properties_t, *mut ur_device_handle_t) -> ur_result_t,
            urContextCreate: unsafe extern "C" fn(u32, *const ur_device_handle_t, *const ur_context_properties_t, *mut ur_context_handle_t) -> ur_result_t,
            urContextRelease: unsafe extern "C" fn(ur_context_handle_t) -> ur_result_t,
            urQueueCreate: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_queue_properties_t, *mut ur_queue_handle_t) -> ur_result_t,
            urUSMDeviceAlloc: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_usm_desc_t, ur_usm_pool_handle_t, usize, *mut *mut c_void) -> ur_result_t,
            urUSMFree: unsafe extern "C" fn(ur_context_handle_t, *mut c_void) -> ur_result_t,
            urIPCGetMemHandleExp: unsafe extern "C" fn(ur_context_handle_t, *mut c_void, *mut *mut c_void, *mut usize) -> ur_result_t,
            urIPCPutMemHandleExp: unsafe extern "C" fn(ur_context_handle_t, *mut c_void) -> ur_result_t,
            urIPCOpenMemHandleExp: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *mut c_void, usize, *mut *mut c_void) -> ur_result_t,
            urIPCCloseMemHandleExp: unsafe extern "C" fn(ur_context_handle_t, *mut c_void) -> ur_result_t,
            urEventCreateExp: unsafe extern "C" fn(ur_context_handle_t, ur_device_handle_t, *const ur_exp_event_desc_t, *mut ur_event_handle_t) -> ur_result_t,
            urEventRelease: unsafe extern "C" fn(ur_event_handle_t) -> ur_result_t,
            urIPCGetEventHandleExp: unsafe extern "C" fn(ur_event_handle_t, *mut *mut c_void, *mut usize) -> ur_result_t,
            urIPCPutEventHandleExp: unsafe extern "C" fn(ur_context_handle_t, *mut c_void) -> ur_result_t,
            urIPCOpenEventHandleExp: unsafe extern "C" fn(ur_context_handle_t, *const c_void, usize, *mut ur_event_handle_t) -> ur_result_t,
            urQueueRelease: unsafe extern "C" fn(ur_queue_handle_t) -> ur_result_t,
        }
        optional {}
    }
}

/// The loader with its one adapter.
pub struct Client {
    ur: Functions,
    adapter: ur_adapter_handle_t,
    platform: ur_platform_handle_t,
}

/// What this process does for a test; none if it is the test's own.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

impl Client {
    pub fn open() -> Self {
        let path = std::env::var_os(LOADER).expect("the loader's path");
        let library = Library::open(Path::new(&path), Binding::Usual).expect("the loader");
        let ur = Functions::from_library(library).expect("its functions");
        let (mut adapter, mut platform) = (null_mut(), null_mut());
        done!(ur, urLoaderInit(ur_device_init_flags_t(0), null_mut()));
        done!(ur, urAdapterGet(1, &mut adapter, null_mut()));
        done!(ur, urPlatformGet(adapter, 1, &mut platform, null_mut()));
        Self {
            ur,
            adapter,
            platform,
        }
    }

    pub fn devices(&self) -> Vec<ur_device_handle_t> {
        let (platform, mut count) = (self.platform, 0);
        let get = self.ur.urDeviceGet;
        // SAFETY: a live platform, and room for the answers.
        unsafe {
            let _ = get(platform, UR_DEVICE_TYPE_ALL, 0, null_mut(), &mut count);
            let mut all = vec![null_mut(); count as usize];
            let _ = get(
                platform,
                UR_DEVICE_TYPE_ALL,
                count,
                all.as_mut_ptr(),
                null_mut(),
            );
            all
        }
    }

    /// Writes each property of each device and of its parts, their native handles, the engines of their queues, and
    /// what becomes of partitions.
    pub fn write_devices(&self) {
        let mut known = Known::default();
        for (at, device) in self.devices().into_iter().enumerate() {
            self.write_device(&at.to_string(), device, &mut known);
        }
    }

    fn write_device(&self, path: &str, device: ur_device_handle_t, known: &mut Known) {
        known.devices.push((device, path.to_owned()));
        for property in ur_device_info_t::PROPERTIES {
            let value = match self.info(device, property) {
                Ok(bytes) if HANDLES.contains(&property.name) => known.paths(&bytes),
                Ok(bytes) if matches!(property.form, Form::One(of) if matches!(of.kind, Kind::Truth)) => {
                    bytes.iter().any(|byte| *byte != 0).to_string()
                }
                Ok(bytes) => text(&bytes),
                Err(error) => format!("{error:?}"),
            };
            println!("> {path} {} {value}", property.name);
        }
        self.write_native(path, device, known);
        self.write_queue(path, device);
        for (name, by) in WAYS {
            let (code, parts) = self.partition(device, *by);
            println!("> {path} BY_{name} {code:?} {}", parts.len());
            // The first way that has parts, as several may give the same.
            let is_new = known.paths_below(path) == 0;
            for (at, part) in parts.iter().enumerate().filter(|_| is_new) {
                self.write_device(&format!("{path}.{at}"), *part, known);
            }
            for part in parts {
                done!(self.ur, urDeviceRelease(part));
            }
        }
    }

    fn info(&self, device: ur_device_handle_t, what: &Property) -> Result<Vec<u8>, ur_result_t> {
        let get = self.ur.urDeviceGetInfo;
        let (what, mut size) = (ur_device_info_t(what.value), 0);
        // SAFETY: a live device, and room for the answers.
        match unsafe { get(device, what, 0, null_mut(), &mut size) } {
            UR_RESULT_SUCCESS => {}
            error => return Err(error),
        }
        if size == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0_u8; size];
        let to = bytes.as_mut_ptr().cast();
        // The size again, as v2 crashes without room for it.
        // SAFETY: a live device, and room for the answers.
        match unsafe { get(device, what, size, to, &mut size) } {
            UR_RESULT_SUCCESS => Ok(bytes),
            error => Err(error),
        }
    }

    /// The first device with the same native handle, and the device that is made of that handle.
    fn write_native(&self, path: &str, device: ur_device_handle_t, known: &mut Known) {
        let (mut native, mut made) = (0, null_mut());
        done!(self.ur, urDeviceGetNativeHandle(device, &mut native));
        let first = known.natives.iter().find(|(own, _)| *own == native);
        let first = first.map_or(path.to_owned(), |(_, first)| first.clone());
        known.natives.push((native, path.to_owned()));
        println!("> {path} NATIVE_OF {first}");
        done!(
            self.ur,
            urDeviceCreateWithNativeHandle(native, self.adapter, null(), &mut made)
        );
        println!("> {path} MADE_OF_NATIVE {}", known.path(made));
    }

    /// Makes a queue. The driver writes the list's engine to standard error, between these lines.
    fn write_queue(&self, path: &str, device: ur_device_handle_t) {
        let (mut context, mut queue) = (null_mut(), null_mut());
        done!(self.ur, urContextCreate(1, &device, null(), &mut context));
        eprintln!("queue of {path}");
        done!(self.ur, urQueueCreate(context, device, null(), &mut queue));
        eprintln!("end");
        done!(self.ur, urQueueRelease(queue));
        done!(self.ur, urContextRelease(context));
    }

    fn partition(
        &self,
        device: ur_device_handle_t,
        by: ur_device_partition_property_t,
    ) -> (ur_result_t, Vec<ur_device_handle_t>) {
        let properties = ur_device_partition_properties_t {
            pProperties: &by,
            PropCount: 1,
            ..Default::default()
        };
        let (split, mut count) = (self.ur.urDevicePartition, 0);
        // SAFETY: a live device and a list of one; the count is writable.
        let code = unsafe { split(device, &properties, 0, null_mut(), &mut count) };
        let mut parts = vec![null_mut(); count as usize];
        if code == UR_RESULT_SUCCESS && count > 0 {
            done!(
                self.ur,
                urDevicePartition(device, &properties, count, parts.as_mut_ptr(), null_mut())
            );
        }
        (code, parts)
    }
}

/// Rounds of what may not grow.
const ROUNDS: usize = 100;

/// Open file descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The number of open descriptors that a hundred calls add, once the first few have opened what stays.
fn growth(mut call: impl FnMut()) -> isize {
    (0..ROUNDS / 10).for_each(|_| call());
    let before = descriptors();
    (0..ROUNDS).for_each(|_| call());
    descriptors().cast_signed() - before.cast_signed()
}

/// The bytes of a blob that a call returned.
fn bytes_of(at: *mut c_void, size: usize) -> Vec<u8> {
    // SAFETY: a call that succeeded has returned an address of so many bytes.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) }.to_vec()
}

fn hex(blob: &[u8]) -> String {
    blob.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first device's context, in one of two processes that share memory and events.
pub struct Sharing {
    client: Client,
    device: ur_device_handle_t,
    context: ur_context_handle_t,
}

impl Sharing {
    pub fn open() -> Self {
        let client = Client::open();
        let (device, mut context) = (client.devices()[0], null_mut());
        done!(client.ur, urContextCreate(1, &device, null(), &mut context));
        #[rustfmt::skip]
        let own = Self { client, device, context };
        own
    }

    fn get(&self, memory: *mut c_void) -> (*mut c_void, Vec<u8>) {
        let (mut at, mut size) = (null_mut(), 0);
        done!(
            self.client.ur,
            urIPCGetMemHandleExp(self.context, memory, &mut at, &mut size)
        );
        (at, bytes_of(at, size))
    }

    /// An event that other processes can open, and its blob.
    fn event(&self) -> Result<(ur_event_handle_t, *mut c_void, Vec<u8>), ur_result_t> {
        let desc = ur_exp_event_desc_t {
            flags: UR_EXP_EVENT_FLAG_IPC_EXP,
            ..Default::default()
        };
        let (ur, mut event) = (&self.client.ur, null_mut());
        // SAFETY: live handles, a description with its tag, and room for the event.
        match unsafe { (ur.urEventCreateExp)(self.context, self.device, &desc, &mut event) } {
            UR_RESULT_SUCCESS => {}
            error => return Err(error),
        }
        let (mut at, mut size) = (null_mut(), 0);
        done!(ur, urIPCGetEventHandleExp(event, &mut at, &mut size));
        Ok((event, at, bytes_of(at, size)))
    }

    fn end_event(&self, event: ur_event_handle_t, at: *mut c_void) {
        done!(self.client.ur, urIPCPutEventHandleExp(self.context, at));
        done!(self.client.ur, urEventRelease(event));
    }

    fn open_event(&self, blob: &[u8]) -> ur_result_t {
        let (ur, mut event) = (&self.client.ur, null_mut());
        let at = blob.as_ptr().cast();
        // SAFETY: a live context, a blob of so many bytes, and room for the event.
        let code =
            unsafe { (ur.urIPCOpenEventHandleExp)(self.context, at, blob.len(), &mut event) };
        if code == UR_RESULT_SUCCESS {
            done!(ur, urEventRelease(event));
        }
        code
    }

    fn put(&self, at: *mut c_void) -> ur_result_t {
        // SAFETY: a live context; the address may be anything.
        unsafe { (self.client.ur.urIPCPutMemHandleExp)(self.context, at) }
    }

    /// Writes the blobs of a large and of a small block, and of an event. Gives them back once it reads a line, and ends
    /// with the next.
    pub fn export(self) {
        let ur = &self.client.ur;
        let mut blobs = Vec::new();
        let mut blocks = Vec::new();
        for bytes in [5 << 20, 4096] {
            let mut memory = null_mut();
            done!(
                ur,
                urUSMDeviceAlloc(
                    self.context,
                    self.device,
                    null(),
                    null_mut(),
                    bytes,
                    &mut memory
                )
            );
            let added = growth(|| {
                let (at, _) = self.get(memory);
                assert_eq!(self.put(at), UR_RESULT_SUCCESS);
            });
            let (at, blob) = self.get(memory);
            println!("> {bytes} BLOB {}", hex(&blob));
            println!("> {bytes} EXPORTS_ADD {added}");
            blobs.push(at);
            blocks.push(memory);
        }
        let event = self.event();
        match &event {
            Ok((_, _, blob)) => {
                println!("> event BLOB {}", hex(blob));
                let added = growth(|| {
                    let (event, at, _) = self.event().expect("one more event");
                    self.end_event(event, at);
                });
                println!("> event EXPORTS_ADD {added}");
            }
            Err(error) => println!("> event NONE {error:?}"),
        }
        let mut line = String::new();
        println!("> all READY -");
        let _ = std::io::stdin().read_line(&mut line);
        if let Ok((event, at, _)) = event {
            self.end_event(event, at);
        }
        for (at, memory) in blobs.into_iter().zip(blocks) {
            let codes = [self.put(at), self.put(at)];
            println!("> all PUT {codes:?}");
            done!(ur, urUSMFree(self.context, memory));
        }
        let _ = std::io::stdin().read_line(&mut line);
        done!(ur, urContextRelease(self.context));
    }

    /// Opens blobs of memory, memory and an event again and again, whole and spoiled, and writes what becomes of it.
    pub fn import(self) {
        let ur = &self.client.ur;
        let blobs = std::env::var(BLOBS).expect("blobs of the other process");
        for (at, hex) in blobs.split(',').enumerate() {
            let digits = hex.as_bytes().as_chunks::<2>().0.iter();
            let byte = |two: &[u8; 2]| {
                let two = std::str::from_utf8(two).expect("digits");
                u8::from_str_radix(two, 16).expect("digits")
            };
            let blob: Vec<u8> = digits.map(byte).collect();
            let open = |blob: &[u8]| match at {
                0 | 1 => self.open_memory(blob),
                _ => self.open_event(blob),
            };
            let mut codes = BTreeSet::new();
            let added = growth(|| {
                codes.insert(format!("{:?}", open(&blob)));
            });
            println!("> {at} WHOLE {}", joined(&codes));
            println!("> {at} IMPORTS_ADD {added}");
            let mut codes = BTreeSet::new();
            let added = growth(|| {
                codes.insert(format!("{:?}", open(&blob[1..])));
                codes.insert(format!("{:?}", open(&blob[..blob.len() - 1])));
                codes.insert(format!("{:?}", open(&[&blob[..], &[0]].concat())));
            });
            println!("> {at} CUT {}", joined(&codes));
            println!("> {at} CUTS_ADD {added}");
            let before = descriptors();
            let codes: BTreeSet<_> = (0..blob.len())
                .map(|byte| {
                    let mut spoiled = blob.clone();
                    spoiled[byte] ^= 0x40;
                    format!("{:?}", open(&spoiled))
                })
                .collect();
            println!("> {at} SPOILED {}", joined(&codes));
            let added = descriptors().cast_signed() - before.cast_signed();
            println!("> {at} SPOILED_ADD {added}");
        }
        // SAFETY: a live context; no memory is there.
        let close = |at| unsafe { (ur.urIPCCloseMemHandleExp)(self.context, at) };
        println!(
            "> all CLOSE {:?}",
            close(std::ptr::without_provenance_mut(1))
        );
        done!(ur, urContextRelease(self.context));
    }

    /// The result of an open. Opened memory is closed.
    fn open_memory(&self, blob: &[u8]) -> ur_result_t {
        let (ur, mut memory) = (&self.client.ur, null_mut());
        let at = blob.as_ptr().cast_mut().cast();
        // SAFETY: live handles, a blob of so many bytes, and room for the address.
        let code = unsafe {
            (ur.urIPCOpenMemHandleExp)(self.context, self.device, at, blob.len(), &mut memory)
        };
        if code == UR_RESULT_SUCCESS {
            done!(ur, urIPCCloseMemHandleExp(self.context, memory));
        }
        code
    }
}

fn joined(codes: &BTreeSet<String>) -> String {
    codes.iter().cloned().collect::<Vec<_>>().join(",")
}

/// Properties that are handles of devices.
const HANDLES: [&str; 3] = [
    "UR_DEVICE_INFO_PARENT_DEVICE",
    "UR_DEVICE_INFO_COMPOSITE_DEVICE",
    "UR_DEVICE_INFO_COMPONENT_DEVICES",
];

const fn by(r#type: ur_device_partition_t, count: u32) -> ur_device_partition_property_t {
    let value = ur_device_partition_value_t { count };
    ur_device_partition_property_t { r#type, value }
}

const fn by_domain(domain: ur_device_affinity_domain_flags_t) -> ur_device_partition_property_t {
    by(UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, domain.0)
}

const WAYS: &[(&str, ur_device_partition_property_t)] = &[
    ("CSLICE", by(UR_DEVICE_PARTITION_BY_CSLICE, 0)),
    (
        "NEXT",
        by_domain(UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE),
    ),
    ("NUMA", by_domain(UR_DEVICE_AFFINITY_DOMAIN_FLAG_NUMA)),
    ("L3", by_domain(UR_DEVICE_AFFINITY_DOMAIN_FLAG_L3_CACHE)),
    ("CSLICE_1", by(UR_DEVICE_PARTITION_BY_CSLICE, 1)),
    ("EQUALLY", by(UR_DEVICE_PARTITION_EQUALLY, 1)),
    ("COUNTS", by(UR_DEVICE_PARTITION_BY_COUNTS, 1)),
    ("NOTHING", by(ur_device_partition_t(0x7777), 0)),
];

/// The devices so far, each with its path: the numbers of a device and of its parts.
#[derive(Default)]
struct Known {
    devices: Vec<(ur_device_handle_t, String)>,
    natives: Vec<(ur_native_handle_t, String)>,
}

impl Known {
    fn path(&self, device: ur_device_handle_t) -> String {
        let found = self.devices.iter().find(|(own, _)| *own == device);
        match found {
            Some((_, path)) => path.clone(),
            None if device.is_null() => "none".to_owned(),
            None => "another".to_owned(),
        }
    }

    fn paths(&self, handles: &[u8]) -> String {
        let handles = handles.as_chunks::<{ size_of::<usize>() }>().0.iter();
        let paths = handles.map(|bytes| {
            let address = usize::from_ne_bytes(*bytes);
            self.path(std::ptr::with_exposed_provenance_mut(address))
        });
        paths.collect::<Vec<_>>().join(",")
    }

    fn paths_below(&self, path: &str) -> usize {
        let start = format!("{path}.");
        let below = self
            .devices
            .iter()
            .filter(|(_, own)| own.starts_with(&start));
        below.count()
    }
}

/// A small value as a number, and any other as bytes.
fn text(bytes: &[u8]) -> String {
    let mut number = [0; size_of::<u64>()];
    match number.get_mut(..bytes.len()) {
        Some(low) if !bytes.is_empty() => {
            low.copy_from_slice(bytes);
            u64::from_le_bytes(number).to_string()
        }
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
