/* A libOpenCL.so.1 that counts the objects which an OpenCL adapter creates, retains and releases, and
 * forwards everything to the real library.
 *
 * It precedes the real library on LD_LIBRARY_PATH and links to it by its path, so that functions missing
 * here are found there:
 *
 *   real=/usr/lib/x86_64-linux-gnu/libOpenCL.so.1
 *   cc -shared -o stub.so -x c /dev/null -Wl,-soname,$real
 *   cc -shared -fPIC -o libOpenCL.so.1 opencl_counter.c stub.so -Wl,--no-as-needed
 *
 * rounds.c reads `opencl_counters`. It counts references: all objects of a type are gone when its creations
 * and retains equal its releases. Needs no header of OpenCL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t i32;
typedef uint32_t u32;
typedef uint64_t u64;
typedef void *object;
typedef const void *list;

/* --- the counts --- */

#define KINDS(X) X(context) X(queue) X(event) X(mem) X(sampler) X(program) X(kernel) X(device) X(usm)

#define DECLARE(kind) static atomic_long kind##_count; static long kind##_alive(void) { return atomic_load(&kind##_count); }
KINDS(DECLARE)

struct counter {
  const char *name;
  long (*alive)(void);
};

#define ROW(kind) {"references to a " #kind, kind##_alive},
const struct counter opencl_counters[] = {KINDS(ROW) {NULL, NULL}};

/* --- the real functions --- */

static void *real(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) {
    fprintf(stderr, "opencl_counter: the real library has no %s\n", name);
    abort();
  }
  return found;
}

/* ISO C has no cast from an object pointer to a function pointer; the bytes are the same. */
#define REAL(name, pointer) \
  do { \
    static _Atomic(void *) found; \
    void *known = atomic_load(&found); \
    if (!known) \
      atomic_store(&found, known = real(name)); \
    memcpy(&(pointer), &known, sizeof known); \
  } while (0)

/* A function that returns an object, or null. */
#define GIVES(kind, name, parameters, arguments) \
  object name parameters { \
    object (*call) parameters; \
    object made; \
    REAL(#name, call); \
    made = call arguments; \
    if (made) \
      atomic_fetch_add(&kind##_count, 1); \
    return made; \
  }

/* A function whose last parameter, `event`, receives an event on success. */
#define ENQUEUES(name, parameters, arguments) \
  i32 name parameters { \
    i32 (*call) parameters; \
    i32 code; \
    REAL(#name, call); \
    code = call arguments; \
    if (code == 0 && event) \
      atomic_fetch_add(&event_count, 1); \
    return code; \
  }

#define COUNTS(kind, name, by) \
  i32 name(object what) { \
    i32 (*call)(object); \
    i32 code; \
    REAL(#name, call); \
    code = call(what); \
    if (code == 0) \
      atomic_fetch_add(&kind##_count, by); \
    return code; \
  }

#define REFERENCES(kind, Kind) COUNTS(kind, clRetain##Kind, 1) COUNTS(kind, clRelease##Kind, -1)

REFERENCES(context, Context)
REFERENCES(queue, CommandQueue)
REFERENCES(event, Event)
REFERENCES(mem, MemObject)
REFERENCES(sampler, Sampler)
REFERENCES(program, Program)
REFERENCES(kernel, Kernel)
REFERENCES(device, Device)

GIVES(context, clCreateContext, (list p, u32 n, list d, object f, object u, i32 *e), (p, n, d, f, u, e))
GIVES(queue, clCreateCommandQueue, (object c, object d, u64 p, i32 *e), (c, d, p, e))
GIVES(queue, clCreateCommandQueueWithProperties, (object c, object d, list p, i32 *e), (c, d, p, e))
GIVES(mem, clCreateBuffer, (object c, u64 f, size_t n, object h, i32 *e), (c, f, n, h, e))
GIVES(mem, clCreateSubBuffer, (object b, u64 f, u32 t, list i, i32 *e), (b, f, t, i, e))
GIVES(mem, clCreateImage, (object c, u64 f, list m, list d, object h, i32 *e), (c, f, m, d, h, e))
GIVES(sampler, clCreateSampler, (object c, u32 n, u32 a, u32 f, i32 *e), (c, n, a, f, e))
GIVES(program, clCreateProgramWithBinary, (object c, u32 n, list d, list l, list b, i32 *s, i32 *e), (c, n, d, l, b, s, e))
GIVES(program, clCreateProgramWithIL, (object c, list i, size_t n, i32 *e), (c, i, n, e))
GIVES(program, clLinkProgram,
      (object c, u32 n, list d, const char *o, u32 m, list p, object f, object u, i32 *e), (c, n, d, o, m, p, f, u, e))
GIVES(kernel, clCreateKernel, (object p, const char *n, i32 *e), (p, n, e))
GIVES(event, clCreateUserEvent, (object c, i32 *e), (c, e))
GIVES(usm, clSVMAlloc, (object c, u64 f, size_t n, u32 a), (c, f, n, a))

#define WAITS u32 n, list w, object *event
#define WAITED n, w, event

ENQUEUES(clEnqueueReadBuffer, (object q, object b, u32 k, size_t o, size_t s, object p, WAITS), (q, b, k, o, s, p, WAITED))
ENQUEUES(clEnqueueWriteBuffer, (object q, object b, u32 k, size_t o, size_t s, list p, WAITS), (q, b, k, o, s, p, WAITED))
ENQUEUES(clEnqueueReadBufferRect,
         (object q, object b, u32 k, list x, list y, list z, size_t r, size_t s, size_t t, size_t u, object p, WAITS),
         (q, b, k, x, y, z, r, s, t, u, p, WAITED))
ENQUEUES(clEnqueueWriteBufferRect,
         (object q, object b, u32 k, list x, list y, list z, size_t r, size_t s, size_t t, size_t u, list p, WAITS),
         (q, b, k, x, y, z, r, s, t, u, p, WAITED))
ENQUEUES(clEnqueueCopyBuffer, (object q, object a, object b, size_t o, size_t p, size_t s, WAITS), (q, a, b, o, p, s, WAITED))
ENQUEUES(clEnqueueCopyBufferRect,
         (object q, object a, object b, list x, list y, list z, size_t r, size_t s, size_t t, size_t u, WAITS),
         (q, a, b, x, y, z, r, s, t, u, WAITED))
ENQUEUES(clEnqueueFillBuffer, (object q, object b, list p, size_t z, size_t o, size_t s, WAITS), (q, b, p, z, o, s, WAITED))
ENQUEUES(clEnqueueReadImage, (object q, object i, u32 k, list o, list r, size_t x, size_t y, object p, WAITS),
         (q, i, k, o, r, x, y, p, WAITED))
ENQUEUES(clEnqueueWriteImage, (object q, object i, u32 k, list o, list r, size_t x, size_t y, list p, WAITS),
         (q, i, k, o, r, x, y, p, WAITED))
ENQUEUES(clEnqueueCopyImage, (object q, object a, object b, list o, list p, list r, WAITS), (q, a, b, o, p, r, WAITED))
ENQUEUES(clEnqueueUnmapMemObject, (object q, object m, object p, WAITS), (q, m, p, WAITED))
ENQUEUES(clEnqueueNDRangeKernel, (object q, object k, u32 d, list o, list g, list l, WAITS), (q, k, d, o, g, l, WAITED))
ENQUEUES(clEnqueueMarkerWithWaitList, (object q, WAITS), (q, WAITED))
ENQUEUES(clEnqueueBarrierWithWaitList, (object q, WAITS), (q, WAITED))
ENQUEUES(clEnqueueSVMMemcpy, (object q, u32 k, object d, list s, size_t z, WAITS), (q, k, d, s, z, WAITED))
ENQUEUES(clEnqueueSVMMemFill, (object q, object d, list p, size_t z, size_t s, WAITS), (q, d, p, z, s, WAITED))

/* Maps return the address and write the code through their last parameter. */
#define MAPS(name, parameters, arguments) \
  object name parameters { \
    object (*call) parameters; \
    object at; \
    REAL(#name, call); \
    at = call arguments; \
    if (at && event) \
      atomic_fetch_add(&event_count, 1); \
    return at; \
  }

MAPS(clEnqueueMapBuffer, (object q, object b, u32 k, u64 f, size_t o, size_t s, WAITS, i32 *e), (q, b, k, f, o, s, WAITED, e))
MAPS(clEnqueueMapImage, (object q, object i, u32 k, u64 f, list o, list r, size_t *x, size_t *y, WAITS, i32 *e),
     (q, i, k, f, o, r, x, y, WAITED, e))

i32 clCreateSubDevices(object device, list properties, u32 room, object *out, u32 *count) {
  i32 (*call)(object, list, u32, object *, u32 *);
  u32 made = 0;
  i32 code;
  REAL("clCreateSubDevices", call);
  code = call(device, properties, room, out, &made);
  if (code == 0 && out)
    atomic_fetch_add(&device_count, made < room ? made : room);
  if (count)
    *count = made;
  return code;
}

void clSVMFree(object context, object memory) {
  void (*call)(object, object);
  REAL("clSVMFree", call);
  call(context, memory);
  if (memory)
    atomic_fetch_sub(&usm_count, 1);
}

/* --- extension functions, of one platform only --- */

static _Atomic(void *) host_alloc, device_alloc, shared_alloc, mem_free, blocking_free, fill, copy, migrate, advise;

#define CALL_OF(slot, pointer) \
  do { \
    void *known = atomic_load(&slot); \
    memcpy(&(pointer), &known, sizeof known); \
  } while (0)

static object count_memory(object memory) {
  if (memory)
    atomic_fetch_add(&usm_count, 1);
  return memory;
}

static object count_host_alloc(object c, list p, size_t s, u32 a, i32 *e) {
  object (*call)(object, list, size_t, u32, i32 *);
  CALL_OF(host_alloc, call);
  return count_memory(call(c, p, s, a, e));
}

#define ALLOCATES(slot) \
  static object count_##slot(object c, object d, list p, size_t s, u32 a, i32 *e) { \
    object (*call)(object, object, list, size_t, u32, i32 *); \
    CALL_OF(slot, call); \
    return count_memory(call(c, d, p, s, a, e)); \
  }
ALLOCATES(device_alloc)
ALLOCATES(shared_alloc)

#define FREES(slot) \
  static i32 count_##slot(object c, object m) { \
    i32 (*call)(object, object); \
    i32 code; \
    CALL_OF(slot, call); \
    code = call(c, m); \
    if (code == 0 && m) \
      atomic_fetch_sub(&usm_count, 1); \
    return code; \
  }
FREES(mem_free)
FREES(blocking_free)

#define ENQUEUES_BY(slot, parameters, arguments) \
  static i32 count_##slot parameters { \
    i32 (*call) parameters; \
    i32 code; \
    CALL_OF(slot, call); \
    code = call arguments; \
    if (code == 0 && event) \
      atomic_fetch_add(&event_count, 1); \
    return code; \
  }
ENQUEUES_BY(fill, (object q, object d, list p, size_t z, size_t s, WAITS), (q, d, p, z, s, WAITED))
ENQUEUES_BY(copy, (object q, u32 k, object d, list f, size_t s, WAITS), (q, k, d, f, s, WAITED))
ENQUEUES_BY(migrate, (object q, list p, size_t s, u64 f, WAITS), (q, p, s, f, WAITED))
ENQUEUES_BY(advise, (object q, list p, size_t s, u32 a, WAITS), (q, p, s, a, WAITED))

typedef void (*function)(void);

/* The counting function of a name, once its entry knows the real function. */
static void *counting(const char *name, void *found) {
  static const struct extension {
    const char *name;
    _Atomic(void *) * slot;
    function ours;
  } extensions[] = {
      {"clHostMemAllocINTEL", &host_alloc, (function)count_host_alloc},
      {"clDeviceMemAllocINTEL", &device_alloc, (function)count_device_alloc},
      {"clSharedMemAllocINTEL", &shared_alloc, (function)count_shared_alloc},
      {"clMemFreeINTEL", &mem_free, (function)count_mem_free},
      {"clMemBlockingFreeINTEL", &blocking_free, (function)count_blocking_free},
      {"clEnqueueMemFillINTEL", &fill, (function)count_fill},
      {"clEnqueueMemcpyINTEL", &copy, (function)count_copy},
      {"clEnqueueMigrateMemINTEL", &migrate, (function)count_migrate},
      {"clEnqueueMemAdviseINTEL", &advise, (function)count_advise},
  };
  size_t i;
  for (i = 0; i < sizeof extensions / sizeof *extensions; i++) {
    void *ours;
    if (strcmp(extensions[i].name, name))
      continue;
    atomic_store(extensions[i].slot, found);
    memcpy(&ours, &extensions[i].ours, sizeof ours);
    return ours;
  }
  return found;
}

object clGetExtensionFunctionAddressForPlatform(object platform, const char *name) {
  object (*call)(object, const char *);
  object found;
  REAL("clGetExtensionFunctionAddressForPlatform", call);
  found = call(platform, name);
  return found ? counting(name, found) : NULL;
}
