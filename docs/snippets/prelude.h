/* What the snippets beside this file assume; a test compiles each inside a function behind this. */
#include "ur_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern ur_adapter_handle_t adapter;
extern ur_platform_handle_t platform;
extern ur_device_handle_t device, peer;
extern ur_context_handle_t context;
extern ur_queue_handle_t queue, other_queue;
extern ur_program_handle_t program, library;
extern ur_kernel_handle_t kernel;
extern ur_event_handle_t event;
extern const void *spirv;
extern size_t spirv_size;
/* device memory, and host memory of 1 MiB */
extern void *memory, *host;
void host_function(void *data);
void native_function(ur_queue_handle_t queue, void *data);
