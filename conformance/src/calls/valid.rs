//! Handles and memory for the calls of a test.

use std::ffi::c_void;
use ur::abi::*;

macro_rules! kinds {
    ($($Kind:ident $field:ident $handle:ident)*) => {
        /// Kinds of handle, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($Kind),* }

        /// One live handle of each kind that the device offers, and memory to point to.
        pub struct Valid {
            $(pub $field: $handle,)*
            pub scratch: *mut c_void,
        }

        impl Valid {
            /// No handles yet.
            pub fn new(scratch: *mut c_void) -> Self {
                Self { $($field: std::ptr::null_mut(),)* scratch }
            }

            /// The handle of that kind, or null.
            pub fn get(&self, kind: Kind) -> *mut c_void {
                match kind { $(Kind::$Kind => self.$field.cast()),* }
            }
        }
    };
}

kinds! {
    Adapter adapter ur_adapter_handle_t
    CommandBuffer command_buffer ur_exp_command_buffer_handle_t
    CommandBufferCommand command_buffer_command ur_exp_command_buffer_command_handle_t
    Context context ur_context_handle_t
    Device device ur_device_handle_t
    Event event ur_event_handle_t
    ExecutableGraph executable_graph ur_exp_executable_graph_handle_t
    ExternalMem external_mem ur_exp_external_mem_handle_t
    ExternalSemaphore external_semaphore ur_exp_external_semaphore_handle_t
    Graph graph ur_exp_graph_handle_t
    Kernel kernel ur_kernel_handle_t
    LoaderConfig loader_config ur_loader_config_handle_t
    Mem mem ur_mem_handle_t
    PhysicalMem physical_mem ur_physical_mem_handle_t
    Platform platform ur_platform_handle_t
    Program program ur_program_handle_t
    Queue queue ur_queue_handle_t
    Sampler sampler ur_sampler_handle_t
    UsmPool usm_pool ur_usm_pool_handle_t
}

impl Valid {
    /// Memory for the argument at a position.
    pub fn at(&self, position: usize) -> *mut u8 {
        self.scratch.cast::<u8>().wrapping_add(128 * position)
    }

    /// Whether there is a handle of that kind.
    pub fn has(&self, kind: Kind) -> bool {
        !self.get(kind).is_null()
    }

    /// Whether there are handles of all these kinds.
    pub fn has_all(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.has(*kind))
    }
}
