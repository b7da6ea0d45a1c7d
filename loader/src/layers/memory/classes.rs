//! What a program makes and must end, that is no handle with references: by class, the functions
//! that make it, those that end it, and the words of a report.
//!
//! A function ends only what one of its class made.

use std::ffi::c_void;

use ur::abi::*;

use super::{Returned, written};
use crate::layers::wrappers::by_function;

/// Reads what a call made from its parameter struct.
pub type Allocates = unsafe fn(*const c_void) -> Returned;

/// Reads what a call ends from its parameter struct.
pub type Frees = unsafe fn(*const c_void) -> Ended;

/// What a call ends, by its address or number.
#[derive(Clone, Copy)]
pub struct Ended {
    pub class: Class,
    pub address: usize,
}

macro_rules! classes {
    ($( $class:ident $never:literal $unit:literal {
        made { $( $makes:ident $makes_params:ident |$made:ident| $returned:expr; )* }
        ended { $( $ends:ident $ends_params:ident |$ended:ident| $address:expr; )* }
    } )*) => {
        /// What is made and ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Class {
            $( $class ),*
        }

        impl Class {
            pub const ALL: &[Class] = &[$( Class::$class ),*];

            /// What is said of one that was not ended: `never freed`.
            pub const fn never_ended(self) -> &'static str {
                match self {
                    $( Class::$class => $never ),*
                }
            }

            /// The noun by which a report counts.
            pub const fn unit(self) -> &'static str {
                match self {
                    $( Class::$class => $unit ),*
                }
            }
        }

        by_function! {
            /// The functions that make something.
            pub ALLOCATES: Allocates => Returned:
            $( $( $makes $makes_params |$made| $returned.of(Class::$class); )* )*
        }

        by_function! {
            /// The functions that end something.
            pub FREES: Frees => Ended:
            $( $( $ends $ends_params |$ended| {
                let (class, address) = (Class::$class, $address);
                Ended { class, address }
            }; )* )*
        }
    };
}

classes! {
    Memory "never freed" "allocation" {
        made {
            urUSMHostAlloc ur_usm_host_alloc_params_t |p|
                Returned::new("host memory", *p.pppMem, Some(*p.psize)).within(*p.phContext);
            urUSMDeviceAlloc ur_usm_device_alloc_params_t |p|
                Returned::new("device memory", *p.pppMem, Some(*p.psize))
                    .on(*p.phContext, *p.phDevice);
            urUSMSharedAlloc ur_usm_shared_alloc_params_t |p|
                Returned::new("shared memory", *p.pppMem, Some(*p.psize))
                    .on(*p.phContext, *p.phDevice);
            urUSMPitchedAllocExp ur_usm_pitched_alloc_exp_params_t |p|
                Returned::new("device memory", *p.pppMem, rows_of(*p.ppResultPitch, *p.pheight))
                    .on(*p.phContext, *p.phDevice);
            urEnqueueUSMHostAllocExp ur_enqueue_usm_host_alloc_exp_params_t |p|
                Returned::new("host memory", *p.pppMem, Some(*p.psize)).queued(*p.phQueue);
            urEnqueueUSMDeviceAllocExp ur_enqueue_usm_device_alloc_exp_params_t |p|
                Returned::new("device memory", *p.pppMem, Some(*p.psize)).queued(*p.phQueue);
            urEnqueueUSMSharedAllocExp ur_enqueue_usm_shared_alloc_exp_params_t |p|
                Returned::new("shared memory", *p.pppMem, Some(*p.psize)).queued(*p.phQueue);
            urMemoryExportAllocExportableMemoryExp ur_memory_export_alloc_exportable_memory_exp_params_t |p|
                Returned::new("exportable device memory", *p.pppMem, Some(*p.psize))
                    .on(*p.phContext, *p.phDevice);
            urIPCOpenMemHandleExp ur_ipc_open_mem_handle_exp_params_t |p|
                Returned::new("memory of another process", *p.pppMem, None)
                    .on(*p.phContext, *p.phDevice);
            urBindlessImagesMapExternalLinearMemoryExp ur_bindless_images_map_external_linear_memory_exp_params_t |p|
                Returned::new("mapped external memory", *p.pppRetMem, usize::try_from(*p.psize).ok())
                    .on(*p.phContext, *p.phDevice);
        }
        ended {
            urUSMFree ur_usm_free_params_t |p| (*p.ppMem).addr();
            urEnqueueUSMFreeExp ur_enqueue_usm_free_exp_params_t |p| (*p.ppMem).addr();
            urMemoryExportFreeExportableMemoryExp ur_memory_export_free_exportable_memory_exp_params_t |p|
                (*p.ppMem).addr();
            urIPCCloseMemHandleExp ur_ipc_close_mem_handle_exp_params_t |p| (*p.ppMem).addr();
            urBindlessImagesFreeMappedLinearMemoryExp ur_bindless_images_free_mapped_linear_memory_exp_params_t |p|
                (*p.ppMem).addr();
        }
    }
    Reservation "never freed" "reservation" {
        made {
            urVirtualMemReserve ur_virtual_mem_reserve_params_t |p|
                Returned::new("reserved addresses", *p.pppStart, Some(*p.psize))
                    .within(*p.phContext);
        }
        ended {
            urVirtualMemFree ur_virtual_mem_free_params_t |p| (*p.ppStart).addr();
        }
    }
    Registration "never unregistered" "registration" {
        made {
            urUSMHostAllocRegisterExp ur_usm_host_alloc_register_exp_params_t |p|
                Returned::given("registered host memory", *p.ppHostMem, *p.psize)
                    .within(*p.phContext);
        }
        ended {
            urUSMHostAllocUnregisterExp ur_usm_host_alloc_unregister_exp_params_t |p|
                (*p.ppHostMem).addr();
        }
    }
    Import "never released" "import" {
        made {
            urUSMImportExp ur_usm_import_exp_params_t |p|
                Returned::given("imported host memory", *p.ppMem, *p.psize).within(*p.phContext);
        }
        ended {
            urUSMReleaseExp ur_usm_release_exp_params_t |p| (*p.ppMem).addr();
        }
    }
    IpcHandle "never given back" "IPC handle" {
        made {
            urIPCGetMemHandleExp ur_ipc_get_mem_handle_exp_params_t |p|
                Returned::new("IPC handle of memory", *p.pppIPCMemHandleData, None)
                    .within(*p.phContext);
            urIPCGetPhysMemHandleExp ur_ipc_get_phys_mem_handle_exp_params_t |p|
                Returned::new("IPC handle of physical memory", *p.pppIPCPhysMemHandleData, None)
                    .within(*p.phContext);
            urIPCGetEventHandleExp ur_ipc_get_event_handle_exp_params_t |p|
                Returned::new("IPC handle of an event", *p.pppIPCEventHandleData, None);
        }
        ended {
            urIPCPutMemHandleExp ur_ipc_put_mem_handle_exp_params_t |p|
                (*p.ppIPCMemHandleData).addr();
            urIPCPutPhysMemHandleExp ur_ipc_put_phys_mem_handle_exp_params_t |p|
                (*p.ppIPCPhysMemHandleData).addr();
            urIPCPutEventHandleExp ur_ipc_put_event_handle_exp_params_t |p|
                (*p.ppIPCEventHandleData).addr();
        }
    }
    ImageMemory "never freed" "image" {
        made {
            urBindlessImagesImageAllocateExp ur_bindless_images_image_allocate_exp_params_t |p|
                Returned::number("image memory", *p.pphImageMem).on(*p.phContext, *p.phDevice);
            urBindlessImagesMapExternalArrayExp ur_bindless_images_map_external_array_exp_params_t |p|
                Returned::number("mapped external image", *p.pphImageMem)
                    .on(*p.phContext, *p.phDevice);
        }
        ended {
            urBindlessImagesImageFreeExp ur_bindless_images_image_free_exp_params_t |p| *p.phImageMem;
            urBindlessImagesMipmapFreeExp ur_bindless_images_mipmap_free_exp_params_t |p| *p.phMem;
        }
    }
    SampledImage "never destroyed" "sampled image" {
        made {
            urBindlessImagesSampledImageCreateExp ur_bindless_images_sampled_image_create_exp_params_t |p|
                Returned::number("sampled image", *p.pphImage).on(*p.phContext, *p.phDevice);
        }
        ended {
            urBindlessImagesSampledImageHandleDestroyExp ur_bindless_images_sampled_image_handle_destroy_exp_params_t |p|
                *p.phImage;
        }
    }
    UnsampledImage "never destroyed" "unsampled image" {
        made {
            urBindlessImagesUnsampledImageCreateExp ur_bindless_images_unsampled_image_create_exp_params_t |p|
                Returned::number("unsampled image", *p.pphImage).on(*p.phContext, *p.phDevice);
        }
        ended {
            urBindlessImagesUnsampledImageHandleDestroyExp ur_bindless_images_unsampled_image_handle_destroy_exp_params_t |p|
                *p.phImage;
        }
    }
}

/// The size in bytes of rows with a pitch that the call returned.
///
/// # Safety
/// The pitch is null or readable.
unsafe fn rows_of(pitch: *const usize, height: usize) -> Option<usize> {
    // SAFETY: the caller guarantees a null or readable pointer.
    unsafe { written(pitch) }?.checked_mul(height)
}
