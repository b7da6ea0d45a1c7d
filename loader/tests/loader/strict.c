/* An adapter for tests of the loader's layers: it does nothing, counts references, and aborts the
 * process as soon as a handle reaches it that is not alive or of another kind. Memory is real; commands
 * never run. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ur_ddi.h>

enum kind { ADAPTER = 1, PLATFORM, DEVICE, CONTEXT, QUEUE, EVENT, MEM, PROGRAM, KERNEL, POOL, BUFFER };
static const char *const names[] = {"",      "adapter", "platform", "device", "context", "queue",
                                    "event", "mem",     "program",  "kernel", "pool",    "command buffer"};

struct object {
  const ur_dditable_t *ddi;
  unsigned magic, kind;
  int references;
  struct object *of; /* what it was made from */
  size_t size;
  ur_queue_flags_t flags;
};

static const ur_dditable_t table;
#define ALIVE 0x600dbeefu
#define DEAD 0xdeaddeadu

static struct object the_adapter = {&table, ALIVE, ADAPTER, 0, NULL, 0, 0};
static struct object the_platform = {&table, ALIVE, PLATFORM, 1, &the_adapter, 0, 0};
static struct object the_device = {&table, ALIVE, DEVICE, 1, &the_platform, 0, 0};

static int live_objects;
UR_APIEXPORT int strict_live(void) { return live_objects; }

/* 1: the next release, free, callback or host task fails and changes nothing. */
static int fail_release;
UR_APIEXPORT void strict_fail_release(int yes) { fail_release = yes; }

static struct object *check(void *handle, unsigned kind, const char *function) {
  struct object *object = (struct object *)handle;
  if (object && object->magic == ALIVE && object->kind == kind) return object;
  fprintf(stderr, "strict.c: %s got a bad %s\n", function, names[kind]);
  abort();
}
#define USE(handle, kind) check((void *)(handle), kind, __func__)

/* The dead stay mapped, so that a use of one is seen; two addresses are used again at once. */
static struct object *spare;

static struct object *make(unsigned kind, struct object *of, size_t size) {
  struct object *object = spare ? spare : (struct object *)calloc(1, sizeof(struct object));
  spare = NULL;
  *object = (struct object){&table, ALIVE, kind, 1, of, size, 0};
  if (of) of->references++;
  live_objects++;
  return object;
}

static void end(struct object *object) {
  struct object *of = object->of;
  if (--object->references > 0) return;
  if (object == &the_adapter || object == &the_platform || object == &the_device) return;
  object->magic = DEAD;
  spare = object;
  live_objects--;
  if (of) end(of);
}

static ur_result_t release(void *handle, unsigned kind, const char *function) {
  struct object *object = check(handle, kind, function);
  if (fail_release) {
    fail_release = 0;
    return UR_RESULT_ERROR_OUT_OF_RESOURCES;
  }
  end(object);
  return UR_RESULT_SUCCESS;
}

#define COUNTED(prefix, type, kind)                                                                \
  static ur_result_t UR_APICALL prefix##_retain(type handle) {                                     \
    USE(handle, kind)->references++;                                                               \
    return UR_RESULT_SUCCESS;                                                                      \
  }                                                                                                \
  static ur_result_t UR_APICALL prefix##_release(type handle) {                                    \
    return release((void *)handle, kind, __func__);                                                \
  }
COUNTED(adapter, ur_adapter_handle_t, ADAPTER)
COUNTED(device, ur_device_handle_t, DEVICE)
COUNTED(context, ur_context_handle_t, CONTEXT)
COUNTED(queue, ur_queue_handle_t, QUEUE)
COUNTED(event, ur_event_handle_t, EVENT)
COUNTED(mem, ur_mem_handle_t, MEM)
COUNTED(program, ur_program_handle_t, PROGRAM)
COUNTED(kernel, ur_kernel_handle_t, KERNEL)
COUNTED(pool, ur_usm_pool_handle_t, POOL)
COUNTED(command_buffer, ur_exp_command_buffer_handle_t, BUFFER)

static ur_result_t put(const void *value, size_t bytes, size_t size, void *to, size_t *ret) {
  if (to && size < bytes) return UR_RESULT_ERROR_INVALID_SIZE;
  if (to) memcpy(to, value, bytes);
  if (ret) *ret = bytes;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL adapter_get(uint32_t room, ur_adapter_handle_t *list, uint32_t *total) {
  if (list && room) list[0] = (ur_adapter_handle_t)&the_adapter, the_adapter.references++;
  if (total) *total = 1;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL platform_get(ur_adapter_handle_t adapter, uint32_t room,
                                           ur_platform_handle_t *list, uint32_t *total) {
  USE(adapter, ADAPTER);
  if (list && room) list[0] = (ur_platform_handle_t)&the_platform;
  if (total) *total = 1;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL device_get(ur_platform_handle_t platform, ur_device_type_t type,
                                         uint32_t room, ur_device_handle_t *list, uint32_t *total) {
  USE(platform, PLATFORM);
  (void)type;
  /* More room than devices: what lies behind is nobody's. */
  if (list && room) list[0] = (ur_device_handle_t)&the_device, the_device.references++;
  if (total) *total = 1;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL device_get_info(ur_device_handle_t device, ur_device_info_t what,
                                              size_t size, void *value, size_t *ret) {
  struct object *object = USE(device, DEVICE);
  ur_device_usm_access_capability_flags_t none = 0;
  if (what == UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT)
    return put(&none, sizeof(none), size, value, ret);
  if (what == UR_DEVICE_INFO_PLATFORM) return put(&object->of, sizeof(void *), size, value, ret);
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL context_create(uint32_t count, const ur_device_handle_t *devices,
                                             const ur_context_properties_t *properties,
                                             ur_context_handle_t *context) {
  (void)properties;
  for (uint32_t at = 0; at < count; ++at) USE(devices[at], DEVICE);
  *context = (ur_context_handle_t)make(CONTEXT, (struct object *)devices[0], 0);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL context_get_info(ur_context_handle_t context, ur_context_info_t what,
                                               size_t size, void *value, size_t *ret) {
  struct object *object = USE(context, CONTEXT);
  if (what == UR_CONTEXT_INFO_DEVICES) return put(&object->of, sizeof(void *), size, value, ret);
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL queue_create(ur_context_handle_t context, ur_device_handle_t device,
                                           const ur_queue_properties_t *properties,
                                           ur_queue_handle_t *queue) {
  struct object *made = make(QUEUE, USE(context, CONTEXT), 0);
  USE(device, DEVICE);
  if (properties) made->flags = properties->flags;
  *queue = (ur_queue_handle_t)made;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL queue_get_info(ur_queue_handle_t queue, ur_queue_info_t what,
                                             size_t size, void *value, size_t *ret) {
  struct object *object = USE(queue, QUEUE);
  if (what == UR_QUEUE_INFO_CONTEXT) return put(&object->of, sizeof(void *), size, value, ret);
  if (what == UR_QUEUE_INFO_FLAGS)
    return put(&object->flags, sizeof(object->flags), size, value, ret);
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL queue_finish(ur_queue_handle_t queue) {
  USE(queue, QUEUE);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL queue_native(ur_queue_handle_t queue, ur_queue_native_desc_t *desc,
                                           ur_native_handle_t *native) {
  (void)desc;
  *native = (ur_native_handle_t)USE(queue, QUEUE);
  return UR_RESULT_SUCCESS;
}

/* A command: its wait list is looked at, its event made. */
static ur_result_t command(ur_queue_handle_t queue, uint32_t count, const ur_event_handle_t *waits,
                           ur_event_handle_t *event) {
  struct object *object = USE(queue, QUEUE);
  for (uint32_t at = 0; at < count; ++at) USE(waits[at], EVENT);
  if (event) *event = (ur_event_handle_t)make(EVENT, object, 0);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL events_wait(ur_queue_handle_t queue, uint32_t count,
                                          const ur_event_handle_t *waits, ur_event_handle_t *event) {
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL event_wait(uint32_t count, const ur_event_handle_t *list) {
  for (uint32_t at = 0; at < count; ++at) USE(list[at], EVENT);
  return UR_RESULT_SUCCESS;
}

static ur_event_status_t status = UR_EVENT_STATUS_SUBMITTED;
UR_APIEXPORT void strict_complete(int yes) {
  status = yes ? UR_EVENT_STATUS_COMPLETE : UR_EVENT_STATUS_SUBMITTED;
}

static ur_result_t UR_APICALL event_get_info(ur_event_handle_t event, ur_event_info_t what,
                                             size_t size, void *value, size_t *ret) {
  struct object *object = USE(event, EVENT);
  if (what == UR_EVENT_INFO_COMMAND_QUEUE) return put(&object->of, sizeof(void *), size, value, ret);
  if (what == UR_EVENT_INFO_CONTEXT) return put(&object->of->of, sizeof(void *), size, value, ret);
  if (what == UR_EVENT_INFO_COMMAND_EXECUTION_STATUS)
    return put(&status, sizeof(status), size, value, ret);
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL event_native(ur_event_handle_t event, ur_native_handle_t *native) {
  *native = (ur_native_handle_t)USE(event, EVENT);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL event_from_native(ur_native_handle_t native,
                                                ur_context_handle_t context,
                                                const ur_event_native_properties_t *properties,
                                                ur_event_handle_t *event) {
  (void)native, (void)properties;
  *event = (ur_event_handle_t)make(EVENT, USE(context, CONTEXT), 0);
  return UR_RESULT_SUCCESS;
}

/* Calls back at once, or refuses. */
static ur_result_t UR_APICALL event_callback(ur_event_handle_t event, ur_execution_info_t state,
                                             ur_event_callback_t notify, void *data) {
  USE(event, EVENT);
  if (fail_release) {
    fail_release = 0;
    return UR_RESULT_ERROR_OUT_OF_RESOURCES;
  }
  notify(event, state, data);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL host_task(ur_queue_handle_t queue, ur_exp_host_task_function_t task,
                                        void *data, const ur_exp_host_task_properties_t *properties,
                                        uint32_t count, const ur_event_handle_t *waits,
                                        ur_event_handle_t *event) {
  (void)properties;
  if (fail_release) {
    fail_release = 0;
    return UR_RESULT_ERROR_OUT_OF_RESOURCES;
  }
  task(data);
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL buffer_create(ur_context_handle_t context, ur_mem_flags_t flags,
                                            size_t size, const ur_buffer_properties_t *properties,
                                            ur_mem_handle_t *mem) {
  (void)flags, (void)properties;
  *mem = (ur_mem_handle_t)make(MEM, USE(context, CONTEXT), size);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL mem_get_info(ur_mem_handle_t mem, ur_mem_info_t what, size_t size,
                                           void *value, size_t *ret) {
  struct object *object = USE(mem, MEM);
  if (what == UR_MEM_INFO_SIZE) return put(&object->size, sizeof(size_t), size, value, ret);
  if (what == UR_MEM_INFO_CONTEXT) return put(&object->of, sizeof(void *), size, value, ret);
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

/* An image of 16 by 8 pixels, or of 4 layers of 16 if its size is odd. */
static ur_result_t UR_APICALL image_get_info(ur_mem_handle_t mem, ur_image_info_t what, size_t size,
                                             void *value, size_t *ret) {
  struct object *object = USE(mem, MEM);
  size_t layered = object->size & 1, number = 0;
  if (what == UR_IMAGE_INFO_WIDTH) number = 16;
  if (what == UR_IMAGE_INFO_HEIGHT) number = layered ? 0 : 8;
  if (what == UR_IMAGE_INFO_ARRAY_SIZE) number = layered ? 4 : 0;
  return put(&number, sizeof(number), size, value, ret);
}

static ur_result_t UR_APICALL buffer_read(ur_queue_handle_t queue, ur_mem_handle_t mem, bool blocking,
                                          size_t offset, size_t size, void *to, uint32_t count,
                                          const ur_event_handle_t *waits, ur_event_handle_t *event) {
  (void)blocking, (void)offset, (void)size, (void)to;
  USE(mem, MEM);
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL buffer_read_rect(ur_queue_handle_t queue, ur_mem_handle_t mem,
                                               bool blocking, ur_rect_offset_t origin,
                                               ur_rect_offset_t host_origin, ur_rect_region_t region,
                                               size_t row, size_t slice, size_t host_row,
                                               size_t host_slice, void *to, uint32_t count,
                                               const ur_event_handle_t *waits,
                                               ur_event_handle_t *event) {
  (void)blocking, (void)origin, (void)host_origin, (void)region, (void)row, (void)slice;
  (void)host_row, (void)host_slice, (void)to;
  USE(mem, MEM);
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL image_read(ur_queue_handle_t queue, ur_mem_handle_t mem, bool blocking,
                                         ur_rect_offset_t origin, ur_rect_region_t region, size_t row,
                                         size_t slice, void *to, uint32_t count,
                                         const ur_event_handle_t *waits, ur_event_handle_t *event) {
  (void)blocking, (void)origin, (void)region, (void)row, (void)slice, (void)to;
  USE(mem, MEM);
  return command(queue, count, waits, event);
}

/* USM: a block's address comes again for the next allocation of its size. */
struct block {
  char *base;
  size_t size;
  int live;
};
static struct block blocks[64];

UR_APIEXPORT void strict_forget_blocks(void) {
  for (int at = 0; at < 64; ++at) free(blocks[at].base);
  memset(blocks, 0, sizeof(blocks));
}

static void *allocate(size_t size) {
  struct block *place = NULL;
  for (int at = 0; at < 64; ++at) {
    struct block *block = &blocks[at];
    if (block->base && !block->live && block->size == size) {
      block->live = 1;
      return block->base;
    }
    if (!block->base && !place) place = block;
  }
  if (!place) return NULL;
  *place = (struct block){(char *)malloc(size), size, 1};
  return place->base;
}

static struct block *find(const void *pointer) {
  for (int at = 0; at < 64; ++at) {
    struct block *block = &blocks[at];
    if (block->live && (char *)pointer >= block->base &&
        (char *)pointer < block->base + block->size)
      return block;
  }
  return NULL;
}

static ur_result_t UR_APICALL usm_host(ur_context_handle_t context, const ur_usm_desc_t *desc,
                                       ur_usm_pool_handle_t pool, size_t size, void **to) {
  (void)desc, (void)pool;
  USE(context, CONTEXT);
  *to = allocate(size);
  return *to ? UR_RESULT_SUCCESS : UR_RESULT_ERROR_OUT_OF_RESOURCES;
}

static ur_result_t UR_APICALL usm_device(ur_context_handle_t context, ur_device_handle_t device,
                                         const ur_usm_desc_t *desc, ur_usm_pool_handle_t pool,
                                         size_t size, void **to) {
  USE(device, DEVICE);
  return usm_host(context, desc, pool, size, to);
}

static ur_result_t UR_APICALL usm_free(ur_context_handle_t context, void *pointer) {
  USE(context, CONTEXT);
  if (fail_release) {
    fail_release = 0;
    return UR_RESULT_ERROR_OUT_OF_RESOURCES;
  }
  struct block *block = find(pointer);
  if (!block) return UR_RESULT_ERROR_INVALID_MEM_OBJECT;
  block->live = 0;
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL usm_info(ur_context_handle_t context, const void *pointer,
                                       ur_usm_alloc_info_t what, size_t size, void *value,
                                       size_t *ret) {
  USE(context, CONTEXT);
  struct block *block = find(pointer);
  ur_usm_type_t type = block ? UR_USM_TYPE_DEVICE : UR_USM_TYPE_UNKNOWN;
  if (what == UR_USM_ALLOC_INFO_TYPE) return put(&type, sizeof(type), size, value, ret);
  if (!block) return UR_RESULT_ERROR_INVALID_VALUE;
  if (what == UR_USM_ALLOC_INFO_BASE_PTR) return put(&block->base, sizeof(void *), size, value, ret);
  if (what == UR_USM_ALLOC_INFO_SIZE) return put(&block->size, sizeof(size_t), size, value, ret);
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL enqueue_alloc(ur_queue_handle_t queue, ur_usm_pool_handle_t pool,
                                            const size_t size,
                                            const ur_exp_async_usm_alloc_properties_t *properties,
                                            uint32_t count, const ur_event_handle_t *waits, void **to,
                                            ur_event_handle_t *event) {
  (void)properties;
  if (pool) USE(pool, POOL);
  *to = allocate(size);
  return *to ? command(queue, count, waits, event) : UR_RESULT_ERROR_OUT_OF_RESOURCES;
}

static ur_result_t UR_APICALL enqueue_free(ur_queue_handle_t queue, ur_usm_pool_handle_t pool,
                                           void *pointer, uint32_t count,
                                           const ur_event_handle_t *waits, ur_event_handle_t *event) {
  (void)pool;
  struct block *block = find(pointer);
  if (!block) return UR_RESULT_ERROR_INVALID_MEM_OBJECT;
  block->live = 0;
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL usm_fill(ur_queue_handle_t queue, void *pointer, size_t pattern_size,
                                       const void *pattern, size_t size, uint32_t count,
                                       const ur_event_handle_t *waits, ur_event_handle_t *event) {
  (void)pointer, (void)pattern_size, (void)pattern, (void)size;
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL usm_copy(ur_queue_handle_t queue, bool blocking, void *to,
                                       const void *from, size_t size, uint32_t count,
                                       const ur_event_handle_t *waits, ur_event_handle_t *event) {
  (void)blocking, (void)to, (void)from, (void)size;
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL usm_fill_2d(ur_queue_handle_t queue, void *pointer, size_t pitch,
                                          size_t pattern_size, const void *pattern, size_t width,
                                          size_t height, uint32_t count,
                                          const ur_event_handle_t *waits, ur_event_handle_t *event) {
  (void)pointer, (void)pitch, (void)pattern_size, (void)pattern, (void)width, (void)height;
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL usm_copy_2d(ur_queue_handle_t queue, bool blocking, void *to,
                                          size_t to_pitch, const void *from, size_t from_pitch,
                                          size_t width, size_t height, uint32_t count,
                                          const ur_event_handle_t *waits, ur_event_handle_t *event) {
  (void)blocking, (void)to, (void)to_pitch, (void)from, (void)from_pitch, (void)width, (void)height;
  return command(queue, count, waits, event);
}

static ur_result_t UR_APICALL program_create(ur_context_handle_t context, const void *text,
                                             size_t size, const ur_program_properties_t *properties,
                                             ur_program_handle_t *program) {
  (void)text, (void)size, (void)properties;
  *program = (ur_program_handle_t)make(PROGRAM, USE(context, CONTEXT), 0);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL kernel_create(ur_program_handle_t program, const char *name,
                                            ur_kernel_handle_t *kernel) {
  (void)name;
  *kernel = (ur_kernel_handle_t)make(KERNEL, USE(program, PROGRAM), 0);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL kernel_get_info(ur_kernel_handle_t kernel, ur_kernel_info_t what,
                                              size_t size, void *value, size_t *ret) {
  struct object *object = USE(kernel, KERNEL);
  uint32_t references = (uint32_t)object->references;
  if (what == UR_KERNEL_INFO_PROGRAM) return put(&object->of, sizeof(void *), size, value, ret);
  if (what == UR_KERNEL_INFO_REFERENCE_COUNT)
    return put(&references, sizeof(references), size, value, ret);
  if (what == UR_KERNEL_INFO_FUNCTION_NAME) return put("add", 4, size, value, ret);
  return UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
}

static ur_result_t UR_APICALL launch(ur_queue_handle_t queue, ur_kernel_handle_t kernel, uint32_t dim,
                                     const size_t *offset, const size_t *global, const size_t *local,
                                     uint32_t count, const ur_exp_kernel_arg_properties_t *list,
                                     const ur_kernel_launch_ext_properties_t *properties,
                                     uint32_t waits, const ur_event_handle_t *wait_list,
                                     ur_event_handle_t *event) {
  (void)dim, (void)offset, (void)global, (void)local, (void)properties;
  USE(kernel, KERNEL);
  for (uint32_t at = 0; at < count; ++at)
    if (list[at].type == UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ && list[at].value.memObjTuple.hMem)
      USE(list[at].value.memObjTuple.hMem, MEM);
  return command(queue, waits, wait_list, event);
}

static ur_result_t UR_APICALL pool_create(ur_context_handle_t context, ur_device_handle_t device,
                                          ur_usm_pool_desc_t *desc, ur_usm_pool_handle_t *pool) {
  (void)desc;
  USE(device, DEVICE);
  *pool = (ur_usm_pool_handle_t)make(POOL, USE(context, CONTEXT), 0);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL pool_destroy(ur_context_handle_t context, ur_device_handle_t device,
                                           ur_usm_pool_handle_t pool) {
  USE(context, CONTEXT), USE(device, DEVICE);
  return release((void *)pool, POOL, __func__);
}

static ur_result_t UR_APICALL command_buffer_create(ur_context_handle_t context,
                                                    ur_device_handle_t device,
                                                    const ur_exp_command_buffer_desc_t *desc,
                                                    ur_exp_command_buffer_handle_t *buffer) {
  (void)desc;
  USE(device, DEVICE);
  *buffer = (ur_exp_command_buffer_handle_t)make(BUFFER, USE(context, CONTEXT), 0);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL append_fill(
    ur_exp_command_buffer_handle_t buffer, void *pointer, const void *pattern, size_t pattern_size,
    size_t size, uint32_t points, const ur_exp_command_buffer_sync_point_t *point_list,
    uint32_t waits, const ur_event_handle_t *wait_list, ur_exp_command_buffer_sync_point_t *point,
    ur_event_handle_t *event, ur_exp_command_buffer_command_handle_t *made) {
  (void)pointer, (void)pattern, (void)pattern_size, (void)size, (void)points, (void)point_list;
  (void)waits, (void)wait_list, (void)point, (void)event, (void)made;
  USE(buffer, BUFFER);
  return UR_RESULT_SUCCESS;
}

static ur_result_t UR_APICALL enqueue_command_buffer(ur_queue_handle_t queue,
                                                     ur_exp_command_buffer_handle_t buffer,
                                                     uint32_t count, const ur_event_handle_t *waits,
                                                     ur_event_handle_t *event) {
  USE(buffer, BUFFER);
  return command(queue, count, waits, event);
}

static const ur_dditable_t table = {
    .Adapter = {.pfnGet = adapter_get, .pfnRelease = adapter_release, .pfnRetain = adapter_retain},
    .Platform = {.pfnGet = platform_get},
    .Device = {.pfnGet = device_get,
               .pfnGetInfo = device_get_info,
               .pfnRetain = device_retain,
               .pfnRelease = device_release},
    .Context = {.pfnCreate = context_create,
                .pfnGetInfo = context_get_info,
                .pfnRetain = context_retain,
                .pfnRelease = context_release},
    .Queue = {.pfnCreate = queue_create,
              .pfnGetInfo = queue_get_info,
              .pfnRetain = queue_retain,
              .pfnRelease = queue_release,
              .pfnGetNativeHandle = queue_native,
              .pfnFinish = queue_finish},
    .Event = {.pfnGetInfo = event_get_info,
              .pfnRetain = event_retain,
              .pfnRelease = event_release,
              .pfnWait = event_wait,
              .pfnGetNativeHandle = event_native,
              .pfnCreateWithNativeHandle = event_from_native,
              .pfnSetCallback = event_callback},
    .Mem = {.pfnBufferCreate = buffer_create,
            .pfnGetInfo = mem_get_info,
            .pfnImageGetInfo = image_get_info,
            .pfnRetain = mem_retain,
            .pfnRelease = mem_release},
    .USM = {.pfnHostAlloc = usm_host,
            .pfnDeviceAlloc = usm_device,
            .pfnSharedAlloc = usm_device,
            .pfnFree = usm_free,
            .pfnGetMemAllocInfo = usm_info,
            .pfnPoolRetain = pool_retain,
            .pfnPoolRelease = pool_release},
    .USMExp = {.pfnPoolCreateExp = pool_create, .pfnPoolDestroyExp = pool_destroy},
    .Program = {.pfnCreateWithIL = program_create,
                .pfnRetain = program_retain,
                .pfnRelease = program_release},
    .Kernel = {.pfnCreate = kernel_create,
               .pfnGetInfo = kernel_get_info,
               .pfnRetain = kernel_retain,
               .pfnRelease = kernel_release},
    .Enqueue = {.pfnEventsWait = events_wait,
                .pfnEventsWaitWithBarrier = events_wait,
                .pfnMemBufferRead = buffer_read,
                .pfnMemBufferReadRect = buffer_read_rect,
                .pfnMemImageRead = image_read,
                .pfnUSMFill = usm_fill,
                .pfnUSMMemcpy = usm_copy,
                .pfnUSMFill2D = usm_fill_2d,
                .pfnUSMMemcpy2D = usm_copy_2d},
    .EnqueueExp = {.pfnUSMDeviceAllocExp = enqueue_alloc,
                   .pfnUSMSharedAllocExp = enqueue_alloc,
                   .pfnUSMHostAllocExp = enqueue_alloc,
                   .pfnUSMFreeExp = enqueue_free,
                   .pfnCommandBufferExp = enqueue_command_buffer,
                   .pfnHostTaskExp = host_task,
                   .pfnKernelLaunchWithArgsExp = launch},
    .CommandBufferExp = {.pfnCreateExp = command_buffer_create,
                         .pfnRetainExp = command_buffer_retain,
                         .pfnReleaseExp = command_buffer_release,
                         .pfnAppendUSMFillExp = append_fill},
};

static ur_result_t fill(ur_api_version_t version, void *to, const void *from, size_t size) {
  if (version != UR_API_VERSION_CURRENT) return UR_RESULT_ERROR_UNSUPPORTED_VERSION;
  if (!to) return UR_RESULT_ERROR_INVALID_NULL_POINTER;
  memcpy(to, from, size);
  return UR_RESULT_SUCCESS;
}

#include "tables.h"
