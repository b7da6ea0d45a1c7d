/* An adapter whose every function succeeds and writes nothing, for tests of what stands before
 * adapters. urEnqueueNativeCommandExp runs its callback, inside of which the caller can call on;
 * urDeviceWaitExp ends the program at once, as a crash would. */
#include <stdlib.h>
#include <ur_ddi.h>

/* The C convention lets a function ignore what it was passed. */
static ur_result_t UR_APICALL succeed(void) { return UR_RESULT_SUCCESS; }

static ur_result_t UR_APICALL crash(ur_device_handle_t device) {
  (void)device;
  abort();
}

static ur_result_t UR_APICALL native_command(
    ur_queue_handle_t queue, ur_exp_enqueue_native_command_function_t function, void *data,
    uint32_t count, const ur_mem_handle_t *list,
    const ur_exp_enqueue_native_command_properties_t *properties, uint32_t waits,
    const ur_event_handle_t *wait_list, ur_event_handle_t *event) {
  (void)count, (void)list, (void)properties, (void)waits, (void)wait_list, (void)event;
  if (function) function(queue, data);
  return UR_RESULT_SUCCESS;
}

static union {
  ur_dditable_t tables;
  void *slots[sizeof(ur_dditable_t) / sizeof(void *)];
} all;

static struct {
  const ur_dditable_t *ddi;
} adapter = {&all.tables};

UR_APIEXPORT void *willing_handle(void) { return &adapter; }

static ur_result_t UR_APICALL adapter_get(uint32_t room, ur_adapter_handle_t *list, uint32_t *total) {
  if (list && room) list[0] = (ur_adapter_handle_t)&adapter;
  if (total) *total = 1;
  return UR_RESULT_SUCCESS;
}

__attribute__((constructor)) static void fill(void) {
  for (size_t at = 0; at < sizeof(all) / sizeof(void *); ++at) all.slots[at] = (void *)succeed;
  all.tables.Adapter.pfnGet = adapter_get;
  all.tables.DeviceExp.pfnWaitExp = crash;
  all.tables.EnqueueExp.pfnNativeCommandExp = native_command;
}

#define TABLE(Name, type)                                                                          \
  UR_APIEXPORT ur_result_t UR_APICALL urGet##Name##ProcAddrTable(ur_api_version_t version,         \
                                                                 type *to) {                       \
    if (version != UR_API_VERSION_CURRENT) return UR_RESULT_ERROR_UNSUPPORTED_VERSION;             \
    *to = all.tables.Name;                                                                         \
    return UR_RESULT_SUCCESS;                                                                      \
  }
TABLE(Adapter, ur_adapter_dditable_t)
TABLE(Platform, ur_platform_dditable_t)
TABLE(Context, ur_context_dditable_t)
TABLE(Event, ur_event_dditable_t)
TABLE(EventExp, ur_event_exp_dditable_t)
TABLE(Program, ur_program_dditable_t)
TABLE(ProgramExp, ur_program_exp_dditable_t)
TABLE(Kernel, ur_kernel_dditable_t)
TABLE(Queue, ur_queue_dditable_t)
TABLE(QueueExp, ur_queue_exp_dditable_t)
TABLE(Sampler, ur_sampler_dditable_t)
TABLE(Mem, ur_mem_dditable_t)
TABLE(PhysicalMem, ur_physical_mem_dditable_t)
TABLE(Enqueue, ur_enqueue_dditable_t)
TABLE(EnqueueExp, ur_enqueue_exp_dditable_t)
TABLE(USM, ur_usm_dditable_t)
TABLE(USMExp, ur_usm_exp_dditable_t)
TABLE(BindlessImagesExp, ur_bindless_images_exp_dditable_t)
TABLE(CommandBufferExp, ur_command_buffer_exp_dditable_t)
TABLE(GraphExp, ur_graph_exp_dditable_t)
TABLE(IPCExp, ur_ipc_exp_dditable_t)
TABLE(MemoryExportExp, ur_memory_export_exp_dditable_t)
TABLE(UsmP2PExp, ur_usm_p2p_exp_dditable_t)
TABLE(VirtualMem, ur_virtual_mem_dditable_t)
TABLE(Device, ur_device_dditable_t)
TABLE(DeviceExp, ur_device_exp_dditable_t)
