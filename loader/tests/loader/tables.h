/* The 26 symbols of an adapter whose functions are in `table` and which has `fill`, a function that
 * copies a part of it out. */
#define TABLE(Name, type)                                                                          \
  UR_APIEXPORT ur_result_t UR_APICALL urGet##Name##ProcAddrTable(ur_api_version_t version,         \
                                                                 type *to) {                       \
    return fill(version, to, &table.Name, sizeof(table.Name));                                     \
  }
TABLE(Adapter, ur_adapter_dditable_t)
TABLE(Platform, ur_platform_dditable_t)
TABLE(Context, ur_context_dditable_t)
TABLE(Event, ur_event_dditable_t)
#ifndef WITHOUT_EVENT_EXP
TABLE(EventExp, ur_event_exp_dditable_t)
#endif
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
