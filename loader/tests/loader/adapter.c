/* An adapter for the loader's tests, shaped by macros:
 *   BACKEND      what it calls itself (UR_BACKEND_HIP)
 *   ADAPTERS     how many adapters it has (1)
 *   TAG          a number that names it in answers (0)
 *   BROKEN       0 whole, 1 of another version, 2 a table fails, 3 without urAdapterGet,
 *                4 of 2026.1: no EventExp table, and any call of a table function aborts,
 *                5 urAdapterGet fails, 6 handles without a table
 * Objects are an address with a table in front; devices are counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ur_ddi.h>

#ifndef BACKEND
#define BACKEND UR_BACKEND_HIP
#endif
#ifndef ADAPTERS
#define ADAPTERS 1
#endif
#ifndef TAG
#define TAG 0
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

static const ur_dditable_t table;
#define OBJECT_TABLE (BROKEN == 6 ? NULL : &table)

struct object {
  const ur_dditable_t *ddi;
  int references;
  int type;
  int parts; /* of a device: how many sub-devices; of a platform: its number */
  char name[16];
  struct object *children[2];
};

static struct object adapters[4] = {
    {OBJECT_TABLE, 0, 0, 0, "", {0}}, {OBJECT_TABLE, 0, 0, 0, "", {0}},
    {OBJECT_TABLE, 0, 0, 0, "", {0}}, {OBJECT_TABLE, 0, 0, 0, "", {0}}};
static struct object platforms[3] = {{&table, 0, 0, 0, "", {0}},
                                     {&table, 0, 0, 1, "", {0}},
                                     {&table, 0, 0, 2, "", {0}}};

/* Platform 0 has a CPU, platform 1 nothing, platform 2 a GPU of two tiles with two parts each, a CPU
 * that cannot be divided and an FPGA. */
#define PART(n) {&table, 0, UR_DEVICE_TYPE_GPU, 0, n, {0}}
static struct object parts[4] = {PART("g.0.0"), PART("g.0.1"), PART("g.1.0"), PART("g.1.1")};
static struct object tiles[2] = {
    {&table, 0, UR_DEVICE_TYPE_GPU, 2, "g.0", {&parts[0], &parts[1]}},
    {&table, 0, UR_DEVICE_TYPE_GPU, 2, "g.1", {&parts[2], &parts[3]}}};
static struct object devices[4] = {
    {&table, 0, UR_DEVICE_TYPE_CPU, 0, "first", {0}},
    {&table, 0, UR_DEVICE_TYPE_GPU, 2, "g", {&tiles[0], &tiles[1]}},
    {&table, 0, UR_DEVICE_TYPE_CPU, 0, "c", {0}},
    {&table, 0, UR_DEVICE_TYPE_FPGA, 0, "f", {0}}};

static uint32_t adapter_count = ADAPTERS;
static int live_devices;
static char last_launch[1024];

UR_APIEXPORT int fake_live_devices(void) { return live_devices; }
UR_APIEXPORT const char *fake_last_launch(void) { return last_launch; }
UR_APIEXPORT int fake_tag(void *adapter) {
  for (int at = 0; at < 4; ++at)
    if (adapter == &adapters[at]) return TAG + at;
  return -1;
}
UR_APIEXPORT void *fake_platform(int at) { return &platforms[at]; }

/* A kernel lives at one of two addresses, so that a new one takes an old one's place. */
static struct object kernels[2] = {{&table, 0, 0, 0, "k0", {0}}, {&table, 0, 0, 0, "k1", {0}}};
UR_APIEXPORT void *fake_queue(void) { return &platforms[0]; }

static ur_result_t UR_APICALL adapter_get(uint32_t room, ur_adapter_handle_t *list, uint32_t *total) {
  if (BROKEN == 5) return UR_RESULT_ERROR_UNINITIALIZED;
  for (uint32_t at = 0; list && at < room && at < adapter_count; ++at) {
    adapters[at].references++;
    list[at] = (ur_adapter_handle_t)&adapters[at];
  }
  if (total) *total = adapter_count;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL adapter_release(ur_adapter_handle_t adapter) {
  struct object *object = (struct object *)adapter;
  if (object->references == 0) return UR_RESULT_ERROR_INVALID_ARGUMENT;
  object->references--;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL platform_get(ur_adapter_handle_t adapter, uint32_t room,
                                           ur_platform_handle_t *list, uint32_t *total) {
  (void)adapter;
  for (uint32_t at = 0; list && at < room && at < 3; ++at)
    list[at] = (ur_platform_handle_t)&platforms[at];
  if (total) *total = 3;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL platform_get_info(ur_platform_handle_t platform,
                                                ur_platform_info_t what, size_t size, void *value,
                                                size_t *needed) {
  (void)platform, (void)needed;
  if (what == UR_PLATFORM_INFO_BACKEND && size == sizeof(ur_backend_t)) {
    *(ur_backend_t *)value = BACKEND;
    return UR_RESULT_SUCCESS;
  }
  if (what == UR_PLATFORM_INFO_ADAPTER && size == sizeof(ur_adapter_handle_t)) {
    *(ur_adapter_handle_t *)value = (ur_adapter_handle_t)&adapters[0];
    return UR_RESULT_SUCCESS;
  }
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL device_get(ur_platform_handle_t platform, ur_device_type_t type,
                                         uint32_t room, ur_device_handle_t *list, uint32_t *total) {
  static const int first[] = {0, 1, 1}, end[] = {1, 1, 4};
  int number = ((struct object *)platform)->parts;
  uint32_t found = 0;
  for (int at = first[number]; at < end[number]; ++at) {
    int fits = type == UR_DEVICE_TYPE_ALL || devices[at].type == (int)type ||
               (type == UR_DEVICE_TYPE_DEFAULT && at == first[number]);
    if (!fits) continue;
    if (list && found < room) {
      list[found] = (ur_device_handle_t)&devices[at];
      devices[at].references++, live_devices++;
    }
    found++;
  }
  if (total) *total = found;
  return found ? UR_RESULT_SUCCESS : UR_RESULT_ERROR_DEVICE_NOT_FOUND;
}

static ur_result_t UR_APICALL device_get_info(ur_device_handle_t device, ur_device_info_t what,
                                              size_t size, void *value, size_t *needed) {
  struct object *object = (struct object *)device;
  (void)needed;
  if (what == UR_DEVICE_INFO_TYPE && size == sizeof(ur_device_type_t)) {
    *(ur_device_type_t *)value = (ur_device_type_t)object->type;
    return UR_RESULT_SUCCESS;
  }
  if (what == UR_DEVICE_INFO_NAME && size >= sizeof(object->name)) {
    memcpy(value, object->name, sizeof(object->name));
    return UR_RESULT_SUCCESS;
  }
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL device_partition(ur_device_handle_t device,
                                               const ur_device_partition_properties_t *properties,
                                               uint32_t room, ur_device_handle_t *list,
                                               uint32_t *total) {
  struct object *object = (struct object *)device;
  if (properties->stype != UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES ||
      properties->PropCount != 1 ||
      properties->pProperties[0].type != UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN ||
      properties->pProperties[0].value.affinity_domain !=
          UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE)
    return UR_RESULT_ERROR_INVALID_VALUE;
  if (object->parts == 0) return UR_RESULT_ERROR_DEVICE_PARTITION_FAILED;
  for (int at = 0; list && at < (int)room && at < object->parts; ++at) {
    list[at] = (ur_device_handle_t)object->children[at];
    object->children[at]->references++, live_devices++;
  }
  if (total) *total = (uint32_t)object->parts;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL device_release(ur_device_handle_t device) {
  struct object *object = (struct object *)device;
  if (object->references == 0) return UR_RESULT_ERROR_INVALID_DEVICE;
  object->references--, live_devices--;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL kernel_create(ur_program_handle_t program, const char *name,
                                            ur_kernel_handle_t *kernel) {
  struct object *object = &kernels[strcmp(name, "k1") == 0];
  (void)program;
  object->references = 1;
  *kernel = (ur_kernel_handle_t)object;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL kernel_retain(ur_kernel_handle_t kernel) {
  ((struct object *)kernel)->references++;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL kernel_release(ur_kernel_handle_t kernel) {
  ((struct object *)kernel)->references--;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL kernel_get_info(ur_kernel_handle_t kernel, ur_kernel_info_t what,
                                              size_t size, void *value, size_t *needed) {
  (void)needed;
  if (what != UR_KERNEL_INFO_REFERENCE_COUNT || size != sizeof(uint32_t))
    return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
  *(uint32_t *)value = (uint32_t)((struct object *)kernel)->references;
  return UR_RESULT_SUCCESS;
}

/* Writes down how it was launched: "launch k0 2: v0=[..] p1=10". */
static void write_down(const char *how, ur_kernel_handle_t kernel, uint32_t count,
                       const ur_exp_kernel_arg_properties_t *list) {
  char *to = last_launch, *end = last_launch + sizeof(last_launch);
  to += snprintf(to, (size_t)(end - to), "%s %s %u%s:", how, ((struct object *)kernel)->name, count,
                 list ? "" : " null");
  for (uint32_t at = 0; at < count; ++at) {
    const ur_exp_kernel_arg_properties_t *arg = &list[at];
    if (arg->stype != UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES || arg->pNext)
      to += snprintf(to, (size_t)(end - to), " BAD");
    switch (arg->type) {
    case UR_EXP_KERNEL_ARG_TYPE_VALUE:
      to += snprintf(to, (size_t)(end - to), " v%u=", arg->index);
      for (size_t byte = 0; byte < arg->size; ++byte)
        to += snprintf(to, (size_t)(end - to), "%02x", ((const unsigned char *)arg->value.value)[byte]);
      break;
    case UR_EXP_KERNEL_ARG_TYPE_POINTER:
      to += snprintf(to, (size_t)(end - to), " p%u=%zx", arg->index, (size_t)arg->value.pointer);
      break;
    case UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ:
      to += snprintf(to, (size_t)(end - to), " m%u=%zx/%u", arg->index,
                     (size_t)arg->value.memObjTuple.hMem, (unsigned)arg->value.memObjTuple.flags);
      break;
    case UR_EXP_KERNEL_ARG_TYPE_LOCAL:
      to += snprintf(to, (size_t)(end - to), " l%u=%zu", arg->index, arg->size);
      break;
    case UR_EXP_KERNEL_ARG_TYPE_SAMPLER:
      to += snprintf(to, (size_t)(end - to), " s%u=%zx", arg->index, (size_t)arg->value.sampler);
      break;
    default:
      to += snprintf(to, (size_t)(end - to), " ?%u", arg->index);
    }
  }
}

static ur_result_t UR_APICALL launch(ur_queue_handle_t queue, ur_kernel_handle_t kernel, uint32_t dim,
                                     const size_t *offset, const size_t *global, const size_t *local,
                                     uint32_t count, const ur_exp_kernel_arg_properties_t *list,
                                     const ur_kernel_launch_ext_properties_t *properties,
                                     uint32_t waits, const ur_event_handle_t *wait_list,
                                     ur_event_handle_t *event) {
  (void)queue, (void)offset, (void)local, (void)properties, (void)wait_list, (void)event;
  if (!global) return UR_RESULT_ERROR_INVALID_NULL_POINTER;
  if (dim != 1 || global[0] != 7 || waits != 0) return UR_RESULT_ERROR_INVALID_WORK_DIMENSION;
  write_down("launch", kernel, count, list);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL append_with_args(
    ur_exp_command_buffer_handle_t buffer, ur_kernel_handle_t kernel, uint32_t dim,
    const size_t *offset, const size_t *global, const size_t *local, uint32_t count,
    const ur_exp_kernel_arg_properties_t *list, uint32_t alternatives,
    ur_kernel_handle_t *alternative_list, uint32_t points,
    const ur_exp_command_buffer_sync_point_t *point_list, uint32_t waits,
    const ur_event_handle_t *wait_list, ur_exp_command_buffer_sync_point_t *point,
    ur_event_handle_t *event, ur_exp_command_buffer_command_handle_t *command) {
  (void)buffer, (void)dim, (void)offset, (void)global, (void)local, (void)alternatives;
  (void)alternative_list, (void)points, (void)point_list, (void)waits, (void)wait_list;
  (void)event, (void)command;
  write_down("append", kernel, count, list);
  if (point) *point = 42;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL append(
    ur_exp_command_buffer_handle_t buffer, ur_kernel_handle_t kernel, uint32_t dim,
    const size_t *offset, const size_t *global, const size_t *local, uint32_t alternatives,
    ur_kernel_handle_t *alternative_list, uint32_t points,
    const ur_exp_command_buffer_sync_point_t *point_list, uint32_t waits,
    const ur_event_handle_t *wait_list, ur_exp_command_buffer_sync_point_t *point,
    ur_event_handle_t *event, ur_exp_command_buffer_command_handle_t *command) {
  (void)buffer, (void)dim, (void)offset, (void)global, (void)local, (void)alternatives;
  (void)alternative_list, (void)points, (void)point_list, (void)waits, (void)wait_list;
  (void)event, (void)command;
  write_down("plain append", kernel, 0, NULL);
  if (point) *point = 41;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL suggest(ur_kernel_handle_t kernel, ur_queue_handle_t queue, uint32_t dim,
                                      const size_t *offset, const size_t *global, size_t *local) {
  (void)queue, (void)dim, (void)offset, (void)global;
  write_down("plain suggest", kernel, 0, NULL);
  *local = 1;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL suggest_with_args(ur_kernel_handle_t kernel, ur_queue_handle_t queue,
                                                uint32_t dim, const size_t *offset,
                                                const size_t *global, uint32_t count,
                                                const ur_exp_kernel_arg_properties_t *list,
                                                size_t *local) {
  (void)queue, (void)dim, (void)offset;
  /* A global size of 99 stands for an adapter that cannot do this. */
  if (global[0] == 99) return UR_RESULT_ERROR_UNSUPPORTED_FEATURE;
  write_down("suggest", kernel, count, list);
  *local = 2;
  return UR_RESULT_SUCCESS;
}

static const ur_dditable_t table = {
    .Adapter = {.pfnGet = BROKEN == 3 ? NULL : adapter_get, .pfnRelease = adapter_release},
    .Platform = {.pfnGet = platform_get, .pfnGetInfo = platform_get_info},
    .Kernel = {.pfnCreate = kernel_create,
               .pfnGetInfo = kernel_get_info,
               .pfnRetain = kernel_retain,
               .pfnRelease = kernel_release,
               .pfnGetSuggestedLocalWorkSize = suggest,
               .pfnGetSuggestedLocalWorkSizeWithArgs = suggest_with_args},
    .EnqueueExp = {.pfnKernelLaunchWithArgsExp = launch},
    .CommandBufferExp = {.pfnAppendKernelLaunchExp = append,
                         .pfnAppendKernelLaunchWithArgsExp = append_with_args},
    .Device = {.pfnGet = device_get,
               .pfnGetInfo = device_get_info,
               .pfnRelease = device_release,
               .pfnPartition = device_partition},
};

static ur_result_t fill(ur_api_version_t version, void *to, const void *from, size_t size) {
  if (BROKEN == 4) abort();
  if (version != UR_API_VERSION_CURRENT || BROKEN == 1) return UR_RESULT_ERROR_UNSUPPORTED_VERSION;
  if (!to) return UR_RESULT_ERROR_INVALID_NULL_POINTER;
  if (BROKEN == 2 && from == &table.UsmP2PExp) return UR_RESULT_ERROR_OUT_OF_RESOURCES;
  memcpy(to, from, size);
  return UR_RESULT_SUCCESS;
}

#if BROKEN == 4
#define WITHOUT_EVENT_EXP
#endif
#include "tables.h"
