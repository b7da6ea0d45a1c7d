//! One call of every function with valid arguments.
//!
//! The call succeeds or fails with an error that the specification allows for valid arguments. Where the
//! device reports that it lacks the feature, the call must fail with the documented error. The other suites
//! check the effect of the functions.

use super::arguments::Objects;
use crate::calls::{FUNCTIONS, Function, Kind, UNCHANGED};
use crate::fixture::Fixture;
use crate::objects::{self, Usm};
use crate::outcome::{Done, Stop};
use crate::registry::Test;
use crate::status::{VALID, provoked};
use std::ffi::c_void;
use ur::abi::*;

/// Functions left to suites that know more than types.
///
/// They would change the device for later tests, run a kernel without its arguments, or need particular
/// values.
const NOT_HERE: [&str; 16] = [
    "urAdapterSetLoggerCallback",
    "urAdapterSetLoggerCallbackLevel",
    "urUSMPoolSetDevicePoolExp",
    "urEnqueueKernelLaunchWithArgsExp",
    "urDeviceSelectBinary",
    "urDevicePartition",
    "urVirtualMemReserve",
    "urVirtualMemMap",
    "urVirtualMemSetAccess",
    "urVirtualMemGetInfo",
    "urProgramCreateWithBinary",
    "urKernelSetExecInfo",
    "urUSMPoolSetInfoExp",
    "urEnqueueDeviceGlobalVariableWrite",
    "urEnqueueDeviceGlobalVariableRead",
    "urGraphDumpContentsExp",
];

/// The beginnings of functions that `sharing` calls where the device has their feature: they need blobs and
/// memory of particular functions. Here they are called only to be refused.
const SHARED: [&str; 2] = ["urIPC", "urMemoryExport"];

/// Functions whose valid arguments need more than types.
///
/// Examples are an existing native handle, an unbuilt program, copies that do not overlap, a supported format
/// and a graph with commands. They are called and may fail; other suites call them with suitable arguments.
const ANY_ANSWER: [&str; 11] = [
    "urBindlessImages",
    "urProgramLink",
    "CreateWithNativeHandle",
    "urProgramBuild",
    "urProgramCompile",
    "urEnqueueMemBufferCopy",
    "urEnqueueMemImage",
    "urMemImageCreate",
    "urMemImageGetInfo",
    "urGraphInstantiateGraphExp",
    "urGraphGetNativeHandleExp",
];

const MEMORY_IMPORT: ur_device_info_t = UR_DEVICE_INFO_EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP;
const SEMAPHORE_IMPORT: ur_device_info_t = UR_DEVICE_INFO_EXTERNAL_SEMAPHORE_IMPORT_SUPPORT_EXP;

/// The beginnings of function names, each with the property that says whether the functions work. The first one counts.
const FEATURES: [(&str, ur_device_info_t); 45] = [
    ("urProgramGetGlobal", UR_DEVICE_INFO_GLOBAL_VARIABLE_SUPPORT),
    ("urVirtualMem", UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT),
    ("urPhysicalMem", UR_DEVICE_INFO_VIRTUAL_MEMORY_SUPPORT),
    ("urUsmP2PEnable", UR_DEVICE_INFO_USM_P2P_SUPPORT_EXP),
    ("urUsmP2PDisable", UR_DEVICE_INFO_USM_P2P_SUPPORT_EXP),
    ("urBindlessImagesImportExternalM", MEMORY_IMPORT),
    ("urBindlessImagesMapExternalL", MEMORY_IMPORT),
    ("urBindlessImagesReleaseExternalM", MEMORY_IMPORT),
    ("urBindlessImagesFreeMapped", MEMORY_IMPORT),
    ("urBindlessImagesSupportsImporting", MEMORY_IMPORT),
    ("urBindlessImagesImportExternalS", SEMAPHORE_IMPORT),
    ("urBindlessImagesReleaseExternalS", SEMAPHORE_IMPORT),
    ("urBindlessImagesWait", SEMAPHORE_IMPORT),
    ("urBindlessImagesSignal", SEMAPHORE_IMPORT),
    (
        "urBindlessImages",
        UR_DEVICE_INFO_BINDLESS_IMAGES_SUPPORT_EXP,
    ),
    ("urUSMPitched", UR_DEVICE_INFO_BINDLESS_IMAGES_SUPPORT_EXP),
    (
        "urEventCreateExp",
        UR_DEVICE_INFO_REUSABLE_EVENTS_SUPPORT_EXP,
    ),
    ("urIPCGetMem", UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP),
    ("urIPCPutMem", UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP),
    ("urIPCOpenMem", UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP),
    ("urIPCCloseMem", UR_DEVICE_INFO_IPC_MEMORY_SUPPORT_EXP),
    (
        "urIPCGetPhys",
        UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP,
    ),
    (
        "urIPCPutPhys",
        UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP,
    ),
    (
        "urIPCOpenPhys",
        UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP,
    ),
    (
        "urIPCClosePhys",
        UR_DEVICE_INFO_IPC_PHYSICAL_MEMORY_SUPPORT_EXP,
    ),
    ("urIPCGetEvent", UR_DEVICE_INFO_IPC_EVENT_SUPPORT_EXP),
    ("urIPCPutEvent", UR_DEVICE_INFO_IPC_EVENT_SUPPORT_EXP),
    ("urIPCOpenEvent", UR_DEVICE_INFO_IPC_EVENT_SUPPORT_EXP),
    (
        "urMemoryExport",
        UR_DEVICE_INFO_MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP,
    ),
    ("urCommandBuffer", UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP),
    (
        "urEnqueueCommandBuffer",
        UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP,
    ),
    (
        "urGraph",
        UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP,
    ),
    (
        "urEnqueueGraph",
        UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP,
    ),
    (
        "urQueueBegin",
        UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP,
    ),
    (
        "urQueueEnd",
        UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP,
    ),
    (
        "urQueueIsGraph",
        UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP,
    ),
    (
        "urQueueGetGraph",
        UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP,
    ),
    ("urMemImage", UR_DEVICE_INFO_IMAGE_SUPPORT),
    ("urEnqueueMemImage", UR_DEVICE_INFO_IMAGE_SUPPORT),
    ("urSampler", UR_DEVICE_INFO_IMAGE_SUPPORT),
    (
        "urEnqueueReadHostPipe",
        UR_DEVICE_INFO_HOST_PIPE_READ_WRITE_SUPPORT,
    ),
    (
        "urEnqueueWriteHostPipe",
        UR_DEVICE_INFO_HOST_PIPE_READ_WRITE_SUPPORT,
    ),
    (
        "urEnqueueNativeCommand",
        UR_DEVICE_INFO_ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP,
    ),
    (
        "urUSMHostAllocRegister",
        UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP,
    ),
    (
        "urUSMHostAllocUnregister",
        UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP,
    ),
];

pub fn all() -> Vec<Test> {
    // Functions that release an object or free memory run when the test drops its objects. They are called
    // here only where the device must refuse them.
    let here = FUNCTIONS.iter().filter(|function| {
        let ends = function.consumes && feature(function.name).is_none();
        function.in_tables && !ends && !NOT_HERE.contains(&function.name)
    });
    here.map(|function| {
        Test::new("every_function", function.name, move |fixture| {
            valid_call(fixture, function)
        })
    })
    .collect()
}

/// Functions that return memory, with the position of the output for its address.
const ALLOCATES: [(&str, usize); 8] = [
    ("urUSMHostAlloc", 4),
    ("urUSMDeviceAlloc", 5),
    ("urUSMSharedAlloc", 5),
    ("urUSMPitchedAllocExp", 7),
    ("urEnqueueUSMHostAllocExp", 6),
    ("urEnqueueUSMDeviceAllocExp", 6),
    ("urEnqueueUSMSharedAllocExp", 6),
    (EXPORTABLE, 5),
];

const EXPORTABLE: &str = "urMemoryExportAllocExportableMemoryExp";

/// Frees memory that a function of [`ALLOCATES`] returned.
fn free(fixture: &Fixture, objects: &Objects, function: &str, memory: *mut c_void) -> Done {
    let (ur, context, device) = (fixture.ur, objects.context.raw, fixture.device);
    let status = match function {
        EXPORTABLE => ur.urMemoryExportFreeExportableMemoryExp(context, device, memory),
        _ => ur.urUSMFree(context, memory),
    };
    status.ok()
}

const IMPORT: &str = "urUSMImportExp";
/// Functions that make host memory known, and the position of its address.
const REGISTERS: [(&str, usize); 2] = [(IMPORT, 1), ("urUSMHostAllocRegisterExp", 1)];

/// Ends what a function of [`REGISTERS`] has done.
fn unregister(fixture: &Fixture, objects: &Objects, function: &str, memory: *mut c_void) -> Done {
    let (ur, context) = (fixture.ur, objects.context.raw);
    let status = match function {
        IMPORT => ur.urUSMReleaseExp(context, memory),
        _ => ur.urUSMHostAllocUnregisterExp(context, memory),
    };
    status.ok()
}

/// The property that says whether a function works.
fn feature(function: &str) -> Option<ur_device_info_t> {
    let found = FEATURES
        .iter()
        .find(|(prefix, _)| function.starts_with(prefix));
    found.map(|(_, property)| *property)
}

/// A call with valid arguments succeeds or fails with an error declared for a valid call.
fn valid_call(fixture: &Fixture, function: &Function) -> Done {
    let feature = feature(function.name);
    let lacking = match feature {
        Some(property) if !fixture.supports(property)? => Some(property),
        _ => None,
    };
    let elsewhere = SHARED.iter().any(|part| function.name.starts_with(part));
    if (function.consumes || elsewhere) && lacking.is_none() {
        return Ok(());
    }
    let needs = function.needs(UNCHANGED);
    let objects = Objects::new(fixture, &needs)?;
    let mut scratch = Scratch::new(fixture, &objects, function)?;
    let valid = objects.valid(fixture, scratch.start());
    let missing = needs.iter().find(|kind| !valid.has(**kind));
    if let (Some(kind), None) = (missing, lacking) {
        return Err(Stop::skipped(format!("the device makes no {kind:?}")));
    }
    if let (Some(kind), Some(property)) = (missing, lacking) {
        return Err(Stop::Unsupported {
            what: format!("{property:?} is false, so that there is no {kind:?}"),
            documented: true,
        });
    }
    let status = function.call(fixture.ur, &valid, UNCHANGED);
    if status.is_ok() {
        // SAFETY: a call that succeeded has written its outputs, which lie in `scratch`.
        let made = |at: usize| unsafe { valid.at(at).cast::<*mut c_void>().read() };
        for (kind, at) in function.made {
            release(fixture, *kind, made(*at))?;
        }
        if let Some(kind) = function.retains {
            release(fixture, kind, valid.get(kind))?;
        }
        if let Some((_, at)) = ALLOCATES.iter().find(|(name, _)| *name == function.name) {
            free(fixture, &objects, function.name, made(*at))?;
        }
        if let Some((_, at)) = REGISTERS.iter().find(|(name, _)| *name == function.name) {
            unregister(fixture, &objects, function.name, valid.at(*at).cast())?;
        }
    }
    objects.settle()?;
    if let Some(property) = lacking {
        if status.is_unsupported() {
            provoked(function.name, VALID);
        }
        return fixture.require(property, || status);
    }
    let no_property =
        status.code == UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION && function.name.contains("Info");
    let allowed = function.may.contains(&status.code) || is_resource(status.code) || no_property;
    if status.is_ok() || allowed {
        provoked(function.name, VALID);
        return Ok(());
    }
    if ANY_ANSWER.iter().any(|part| function.name.contains(part)) {
        return Ok(());
    }
    status.ok()
}

/// The memory that a call's pointers lead to: plain host memory, or host USM for commands on USM.
enum Scratch {
    Own(Vec<u64>),
    Usm(Usm),
}

impl Scratch {
    const BYTES: usize = 64 << 10;

    fn new(fixture: &Fixture, objects: &Objects, function: &Function) -> Result<Self, Stop> {
        let (context, host) = (&objects.context, objects::Kind::Host);
        if !function.name.starts_with("urEnqueueUSM") || !host.is_there(fixture)? {
            return Ok(Self::Own(vec![0; Self::BYTES / size_of::<u64>()]));
        }
        let mut usm = context.usm(fixture, host, Self::BYTES)?;
        usm.host_mut::<u64>().fill(0);
        Ok(Self::Usm(usm))
    }

    fn start(&mut self) -> *mut c_void {
        match self {
            Self::Own(words) => words.as_mut_ptr().cast(),
            Self::Usm(usm) => usm.ptr,
        }
    }
}

/// Whether the code means that memory or another resource ran out.
fn is_resource(code: ur_result_t) -> bool {
    [
        UR_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        UR_RESULT_ERROR_OUT_OF_RESOURCES,
    ]
    .contains(&code)
}

/// Releases an object that a call made.
///
/// Commands belong to their buffer and platforms to their adapter. External objects cannot be made without a
/// file descriptor from another process.
fn release(fixture: &Fixture, kind: Kind, handle: *mut c_void) -> Done {
    let ur = fixture.ur;
    let status = match kind {
        Kind::Adapter => ur.urAdapterRelease(handle.cast()),
        Kind::Device => ur.urDeviceRelease(handle.cast()),
        Kind::Context => ur.urContextRelease(handle.cast()),
        Kind::Event => ur.urEventRelease(handle.cast()),
        Kind::Kernel => ur.urKernelRelease(handle.cast()),
        Kind::Program => ur.urProgramRelease(handle.cast()),
        Kind::Queue => ur.urQueueRelease(handle.cast()),
        Kind::Mem => ur.urMemRelease(handle.cast()),
        Kind::Sampler => ur.urSamplerRelease(handle.cast()),
        Kind::UsmPool => ur.urUSMPoolRelease(handle.cast()),
        Kind::PhysicalMem => ur.urPhysicalMemRelease(handle.cast()),
        Kind::CommandBuffer => ur.urCommandBufferReleaseExp(handle.cast()),
        Kind::Graph => ur.urGraphDestroyExp(handle.cast()),
        Kind::ExecutableGraph => ur.urGraphExecutableGraphDestroyExp(handle.cast()),
        Kind::LoaderConfig => ur.urLoaderConfigRelease(handle.cast()),
        Kind::ExternalMem
        | Kind::ExternalSemaphore
        | Kind::CommandBufferCommand
        | Kind::Platform => return Ok(()),
    };
    status.ok()
}
