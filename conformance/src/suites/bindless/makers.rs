//! Interfaces that make semaphores for others: the scripted driver, and Vulkan.

use crate::fixture::Fixture;
use crate::objects::info;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::{null, null_mut};
use ur::abi::*;

/// A semaphore of another interface that counts.
pub trait Maker {
    /// A new descriptor of it.
    fn export(&self) -> Result<OwnedFd, String>;

    /// Sets the count, which must not be less than before.
    fn set(&self, count: u64) -> Result<(), String>;

    fn count(&self) -> Result<u64, String>;

    /// Ends every wait of a test: their counts are small.
    fn end(&self) {
        let _ = self.count().and_then(|count| self.set(count + 1000));
    }
}

ur::dl::symbols! {
    /// The scripted driver's semaphores of another interface.
    struct Functions {
        required {
            scripted_semaphore: extern "C" fn(counts: bool) -> c_int,
            scripted_semaphore_count: extern "C" fn(semaphore: c_int) -> u64,
            scripted_semaphore_set: extern "C" fn(semaphore: c_int, count: u64),
        }
        optional {}
    }
}

/// A semaphore of the scripted driver, which may be binary.
pub struct Scripted {
    functions: Functions,
    file: OwnedFd,
}

impl Scripted {
    pub fn new(counts: bool) -> Result<Self, String> {
        // The scripted drivers: CUDA's, Level Zero's alone, and Level Zero's behind a loader.
        let behind = std::env::var("ZE_ENABLE_ALT_DRIVERS").unwrap_or_default();
        let mut names = ["libcuda.so.1", "libze_loader.so.1", &behind].into_iter();
        let functions = names.find_map(|name| Functions::load(&[name]).ok());
        let functions = functions.ok_or("the driver is not the scripted one")?;
        let number = (functions.scripted_semaphore)(counts);
        if number < 0 {
            return Err("the scripted driver makes no semaphore".into());
        }
        // SAFETY: made just now, for the caller.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { functions, file })
    }
}

impl Maker for Scripted {
    fn export(&self) -> Result<OwnedFd, String> {
        self.file.try_clone().map_err(|error| error.to_string())
    }

    fn set(&self, count: u64) -> Result<(), String> {
        (self.functions.scripted_semaphore_set)(self.file.as_raw_fd(), count);
        Ok(())
    }

    fn count(&self) -> Result<u64, String> {
        Ok((self.functions.scripted_semaphore_count)(
            self.file.as_raw_fd(),
        ))
    }
}

type Handle = *mut c_void;

ur::dl::symbols! {
    /// Vulkan's loader.
    struct VulkanLibrary {
        required {
            vkCreateInstance: unsafe extern "C" fn(*const InstanceInfo, *const c_void, *mut Handle) -> c_int,
            vkDestroyInstance: unsafe extern "C" fn(Handle, *const c_void),
            vkEnumeratePhysicalDevices: unsafe extern "C" fn(Handle, *mut u32, *mut Handle) -> c_int,
            vkGetPhysicalDeviceProperties2: unsafe extern "C" fn(Handle, *mut Properties),
            vkCreateDevice: unsafe extern "C" fn(Handle, *const DeviceInfo, *const c_void, *mut Handle) -> c_int,
            vkDestroyDevice: unsafe extern "C" fn(Handle, *const c_void),
            vkGetDeviceProcAddr: unsafe extern "C" fn(Handle, *const c_char) -> Option<unsafe extern "C" fn()>,
            vkCreateSemaphore: unsafe extern "C" fn(Handle, *const Link, *const c_void, *mut u64) -> c_int,
            vkDestroySemaphore: unsafe extern "C" fn(Handle, u64, *const c_void),
            vkSignalSemaphore: unsafe extern "C" fn(Handle, *const SignalInfo) -> c_int,
            vkGetSemaphoreCounterValue: unsafe extern "C" fn(Handle, u64, *mut u64) -> c_int,
        }
        optional {}
    }
}

type GetDescriptor = unsafe extern "C" fn(Handle, *const DescriptorInfo, *mut c_int) -> c_int;

/// The beginning of Vulkan's structs, and flags that many continue with.
#[repr(C)]
struct Link {
    kind: u32,
    next: *const c_void,
    flags: u32,
}

/// `VkApplicationInfo`.
#[repr(C)]
struct Application {
    kind: u32,
    next: *const c_void,
    name: *const c_char,
    version: u32,
    engine: *const c_char,
    engine_version: u32,
    api: u32,
}

/// `VkInstanceCreateInfo`.
#[repr(C)]
struct InstanceInfo {
    link: Link,
    application: *const Application,
    layers: u32,
    layer_names: *const *const c_char,
    extensions: u32,
    extension_names: *const *const c_char,
}

/// `VkPhysicalDeviceProperties2`, whose last member has 824 bytes.
#[repr(C)]
struct Properties {
    kind: u32,
    next: *mut Identity,
    rest: [u64; 128],
}

/// `VkPhysicalDeviceIDProperties`.
#[repr(C)]
struct Identity {
    kind: u32,
    next: *mut c_void,
    device: [u8; 16],
    driver: [u8; 16],
    luid: [u8; 8],
    nodes: u32,
    is_luid_valid: u32,
}

/// `VkDeviceQueueCreateInfo`.
#[repr(C)]
struct QueueInfo {
    kind: u32,
    next: *const c_void,
    flags: u32,
    family: u32,
    count: u32,
    priorities: *const f32,
}

/// `VkDeviceCreateInfo`.
#[repr(C)]
struct DeviceInfo {
    kind: u32,
    next: *const c_void,
    flags: u32,
    queues: u32,
    queue_infos: *const QueueInfo,
    layers: u32,
    layer_names: *const *const c_char,
    extensions: u32,
    extension_names: *const *const c_char,
    features: *const c_void,
}

// Offsets of the specification on 64-bit machines. A struct that holds `Link` has padding behind it, so that a number
// cannot follow.
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(InstanceInfo, application) == 24 && size_of::<InstanceInfo>() == 64);
    assert!(offset_of!(QueueInfo, family) == 20 && offset_of!(QueueInfo, count) == 24);
    assert!(offset_of!(QueueInfo, priorities) == 32 && size_of::<QueueInfo>() == 40);
    assert!(offset_of!(DeviceInfo, queues) == 20 && offset_of!(DeviceInfo, queue_infos) == 24);
    assert!(offset_of!(DeviceInfo, extensions) == 48 && size_of::<DeviceInfo>() == 72);
    assert!(size_of::<Link>() == 24 && size_of::<Timeline>() == 32);
    assert!(size_of::<DescriptorInfo>() == 32 && size_of::<SignalInfo>() == 32);
};

/// `VkSemaphoreTypeCreateInfo`.
#[repr(C)]
struct Timeline {
    kind: u32,
    next: *const c_void,
    of: u32,
    first: u64,
}

/// `VkSemaphoreGetFdInfoKHR`.
#[repr(C)]
struct DescriptorInfo {
    kind: u32,
    next: *const c_void,
    semaphore: u64,
    handle: u32,
}

/// `VkSemaphoreSignalInfo`.
#[repr(C)]
struct SignalInfo {
    kind: u32,
    next: *const c_void,
    semaphore: u64,
    value: u64,
}

/// `VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT`.
const OPAQUE_FD: u32 = 1;

/// A timeline semaphore of Vulkan on the device under test.
pub struct Vulkan {
    library: &'static VulkanLibrary,
    instance: Handle,
    device: Handle,
    semaphore: u64,
}

fn checked(code: c_int, call: &str) -> Result<(), String> {
    match code {
        0.. => Ok(()),
        code => Err(format!("{call} failed with {code}")),
    }
}

impl Vulkan {
    pub fn new(fixture: &Fixture) -> Result<Self, String> {
        let library =
            VulkanLibrary::load(&["libvulkan.so.1"]).map_err(|error| error.to_string())?;
        // Vulkan's drivers have threads, so that the library stays.
        let mut own = Self {
            library: Box::leak(Box::new(library)),
            instance: null_mut(),
            device: null_mut(),
            semaphore: 0,
        };
        own.open_instance()?;
        let ours: [u8; 16] = info::value(|size, value, ret| {
            let (ur, what) = (fixture.ur, UR_DEVICE_INFO_UUID);
            ur.urDeviceGetInfo(fixture.device, what, size, value, ret)
        })
        .map_err(|_| "the device has no UUID".to_owned())?;
        let physical = own.physical(ours)?;
        own.open_device(physical)?;
        own.make_semaphore()?;
        Ok(own)
    }

    fn open_instance(&mut self) -> Result<(), String> {
        let application = Application {
            kind: 0,
            next: null(),
            name: null(),
            version: 0,
            engine: null(),
            engine_version: 0,
            // 1.2 has timeline semaphores.
            api: 1 << 22 | 2 << 12,
        };
        let what = InstanceInfo {
            link: Link {
                kind: 1,
                next: null(),
                flags: 0,
            },
            application: &application,
            layers: 0,
            layer_names: null(),
            extensions: 0,
            extension_names: null(),
        };
        // SAFETY: a readable description, and room for a handle.
        let code = unsafe { (self.library.vkCreateInstance)(&what, null(), &mut self.instance) };
        checked(code, "vkCreateInstance")
    }

    /// The device with this identity.
    fn physical(&self, ours: [u8; 16]) -> Result<Handle, String> {
        let (mut count, mut all) = (16, [null_mut(); 16]);
        let list = self.library.vkEnumeratePhysicalDevices;
        // SAFETY: room for as many handles as is said.
        let code = unsafe { list(self.instance, &mut count, all.as_mut_ptr()) };
        checked(code, "vkEnumeratePhysicalDevices")?;
        let is_ours = |device: &Handle| {
            let mut identity = Identity {
                kind: 1_000_071_004,
                next: null_mut(),
                device: [0; 16],
                driver: [0; 16],
                luid: [0; 8],
                nodes: 0,
                is_luid_valid: 0,
            };
            let mut properties = Properties {
                kind: 1_000_059_001,
                next: &mut identity,
                rest: [0; 128],
            };
            // SAFETY: a live device, and a chain of writable structs.
            unsafe { (self.library.vkGetPhysicalDeviceProperties2)(*device, &mut properties) };
            identity.device == ours
        };
        let mut found = all.iter().take(count as usize);
        let found = found.find(|device| is_ours(device)).copied();
        found.ok_or_else(|| "Vulkan does not know the device".to_owned())
    }

    fn open_device(&mut self, physical: Handle) -> Result<(), String> {
        // `VkPhysicalDeviceTimelineSemaphoreFeatures`.
        let feature = Link {
            kind: 1_000_207_000,
            next: null(),
            flags: 1,
        };
        let priority = 1.0_f32;
        let queue = QueueInfo {
            kind: 2,
            next: null(),
            flags: 0,
            family: 0,
            count: 1,
            priorities: &priority,
        };
        let extension = c"VK_KHR_external_semaphore_fd".as_ptr();
        let what = DeviceInfo {
            kind: 3,
            next: (&raw const feature).cast(),
            flags: 0,
            queues: 1,
            queue_infos: &queue,
            layers: 0,
            layer_names: null(),
            extensions: 1,
            extension_names: &extension,
            features: null(),
        };
        // SAFETY: a live device, a readable description, and room for a handle.
        let code =
            unsafe { (self.library.vkCreateDevice)(physical, &what, null(), &mut self.device) };
        checked(code, "vkCreateDevice")
    }

    fn make_semaphore(&mut self) -> Result<(), String> {
        let timeline = Timeline {
            kind: 1_000_207_002,
            next: null(),
            of: 1,
            first: 0,
        };
        // `VkExportSemaphoreCreateInfo`.
        let export = Link {
            kind: 1_000_077_000,
            next: (&raw const timeline).cast(),
            flags: OPAQUE_FD,
        };
        let what = Link {
            kind: 9,
            next: (&raw const export).cast(),
            flags: 0,
        };
        let create = self.library.vkCreateSemaphore;
        // SAFETY: a live device, a chain of readable structs, and room for a handle.
        let code = unsafe { create(self.device, &what, null(), &mut self.semaphore) };
        checked(code, "vkCreateSemaphore")
    }
}

impl Maker for Vulkan {
    fn export(&self) -> Result<OwnedFd, String> {
        let name = c"vkGetSemaphoreFdKHR";
        // SAFETY: a live device and a C string.
        let get = unsafe { (self.library.vkGetDeviceProcAddr)(self.device, name.as_ptr()) };
        let get = get.ok_or("Vulkan has no vkGetSemaphoreFdKHR")?;
        // SAFETY: the function has this type.
        let get = unsafe { std::mem::transmute::<unsafe extern "C" fn(), GetDescriptor>(get) };
        let what = DescriptorInfo {
            kind: 1_000_079_001,
            next: null(),
            semaphore: self.semaphore,
            handle: OPAQUE_FD,
        };
        let mut number = -1;
        // SAFETY: a live device, a readable description, and room for a descriptor.
        let code = unsafe { get(self.device, &what, &mut number) };
        checked(code, "vkGetSemaphoreFdKHR")?;
        match number {
            // SAFETY: exported just now, for the caller.
            0.. => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
            _ => Err(format!("descriptor {number}")),
        }
    }

    fn set(&self, count: u64) -> Result<(), String> {
        let what = SignalInfo {
            kind: 1_000_207_005,
            next: null(),
            semaphore: self.semaphore,
            value: count,
        };
        // SAFETY: a live device and semaphore.
        let code = unsafe { (self.library.vkSignalSemaphore)(self.device, &what) };
        checked(code, "vkSignalSemaphore")
    }

    fn count(&self) -> Result<u64, String> {
        let mut count = 0;
        let get = self.library.vkGetSemaphoreCounterValue;
        // SAFETY: a live device and semaphore, and room for a number.
        let code = unsafe { get(self.device, self.semaphore, &mut count) };
        checked(code, "vkGetSemaphoreCounterValue")?;
        Ok(count)
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: each handle is live or null, and nothing uses it any more.
        unsafe {
            if !self.device.is_null() {
                (self.library.vkDestroySemaphore)(self.device, self.semaphore, null());
                (self.library.vkDestroyDevice)(self.device, null());
            }
            if !self.instance.is_null() {
                (self.library.vkDestroyInstance)(self.instance, null());
            }
        }
    }
}
