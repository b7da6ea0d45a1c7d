//! The properties in which ours and Intel's adapter "v2" differ, each with the reason.

/// A difference that is meant.
pub enum Differs {
    /// Theirs is offered and ours not yet.
    Later(&'static str),
    /// Ours is right, or more.
    Meant(&'static str),
    /// Neither has a value, and the errors differ.
    Error(&'static str),
    /// Ours is an error, and theirs another one or no parts.
    Refused(&'static str),
}

use Differs::{Error, Later, Meant, Refused};

impl Differs {
    /// Whether these two values are the difference.
    pub fn allows(&self, own: &str, their: &str) -> bool {
        let is_error = |text: &str| text.contains("UR_RESULT_ERROR_");
        match self {
            Later(_) => matches!(own, "false" | "0") && !is_error(their),
            Meant(_) => !is_error(own),
            Error(_) => own.contains("UNSUPPORTED_ENUMERATION") && is_error(their),
            Refused(_) => is_error(own) && (is_error(their) || their == "UR_RESULT_SUCCESS 0"),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Later(text) => format!("not yet: {text}"),
            Meant(text) | Refused(text) => (*text).to_owned(),
            Error(text) => format!("no value: {text}"),
        }
    }
}

const BINDLESS: Differs =
    Meant("the driver has no bindless images without a device, and theirs does not ask it");
const SHARING: Differs =
    Later("the driver exports no memory without a device, and theirs does not ask it");
const SYSMAN: Differs =
    Error("without the system interface the property is unknown, and not uninitialised");
const ENGINE: Differs = Meant("the engine has it on every driver");

pub const DIFFERENCES: &[(&str, Differs)] = &[
    ("BINDLESS_SAMPLED_IMAGE_FETCH_1D_SUPPORT_EXP", BINDLESS),
    ("BINDLESS_SAMPLED_IMAGE_FETCH_1D_USM_SUPPORT_EXP", BINDLESS),
    ("BINDLESS_SAMPLED_IMAGE_FETCH_2D_SUPPORT_EXP", BINDLESS),
    ("BINDLESS_SAMPLED_IMAGE_FETCH_2D_USM_SUPPORT_EXP", BINDLESS),
    ("BINDLESS_SAMPLED_IMAGE_FETCH_3D_SUPPORT_EXP", BINDLESS),
    ("COMMAND_BUFFER_EVENT_SUPPORT_EXP", ENGINE),
    ("COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP", ENGINE),
    ("ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP", ENGINE),
    ("GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP", ENGINE),
    ("CURRENT_CLOCK_THROTTLE_REASONS", SYSMAN),
    ("FAN_SPEED", SYSMAN),
    ("MAX_POWER_LIMIT", SYSMAN),
    ("MIN_POWER_LIMIT", SYSMAN),
    ("PCI_ADDRESS", SYSMAN),
    ("LUID", Error("Windows' identity, which no device has here")),
    (
        "NODE_MASK",
        Error("Windows' identity, which no device has here"),
    ),
    (
        "EXECUTION_CAPABILITIES",
        Meant("a GPU runs kernels; theirs lists native functions alone"),
    ),
    (
        "EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP",
        Meant("the driver imports none without a device, and theirs does not ask it"),
    ),
    (
        "IPC_EVENT_SUPPORT_EXP",
        Meant("events of pools cross where the driver has no counter-based ones for that"),
    ),
    ("IPC_PHYSICAL_MEMORY_SUPPORT_EXP", SHARING),
    ("MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP", SHARING),
    ("IMAGE_ARRAY_SUPPORT_EXP", BINDLESS),
    (
        "LOW_POWER_EVENTS_SUPPORT_EXP",
        Later("waits that let the processor sleep"),
    ),
    (
        "QUEUE_ON_HOST_PROPERTIES",
        Meant("flags of the engine; theirs names none for a queue of the host"),
    ),
    (
        "QUEUE_PROPERTIES",
        Meant("flags of the engine, which takes more of them"),
    ),
];

/// The properties of parts, what becomes of partitions (`BY_`), and the engines of queues.
pub const PARTS: &[(&str, Differs)] = &[
    (
        "QUEUE",
        Meant("a queue of a slice is on the slice's engine; theirs is always on the first"),
    ),
    (
        "REFERENCE_COUNT",
        Meant("parts live as long as the adapter, so that nobody counts"),
    ),
    (
        "COMPOSITE_DEVICE",
        Meant(
            "composite devices are of tiles that are devices; theirs names the card of a part too",
        ),
    ),
    ("XE_STACK_COUNT", STACKS),
    ("XE_CLUSTERS_PER_REGION", STACKS),
    (
        "BY_CSLICE_1",
        Meant("slices take no value; theirs refuses one, which some clients leave uninitialised"),
    ),
    ("BY_CSLICE", NO_PARTS),
    ("BY_CSLICE_1", NO_PARTS),
    ("BY_NEXT", NO_PARTS),
    ("BY_NUMA", NO_PARTS),
    ("BY_L3", OTHER_WAYS),
    ("BY_EQUALLY", OTHER_WAYS),
    ("BY_COUNTS", OTHER_WAYS),
    (
        "BY_NOTHING",
        Refused("no enumerator is INVALID_ENUMERATION; theirs is INVALID_VALUE"),
    ),
];

const STACKS: Differs = Meant(
    "the stacks of the device itself, on every product; theirs are the card's, of Ponte Vecchio alone",
);
const NO_PARTS: Differs =
    Refused("a split without parts is DEVICE_PARTITION_FAILED; theirs succeeds with none");
const OTHER_WAYS: Differs =
    Refused("a split that no device has is UNSUPPORTED_FEATURE; theirs is INVALID_VALUE");
