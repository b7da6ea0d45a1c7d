/* Rounds of an asynchronous allocation, a fill, a copy and a free, from four threads with an in-order queue
 * each. The pool must not grow after the first round, every copied byte must be right, and no object may be
 * left.
 *
 *   rounds [ROUNDS [BYTES]]
 *
 * The environment chooses the adapter. The adapters of this project log their live objects when the last
 * reference is released, and libOpenCL.so.1 may be the counting one (opencl_counter.c). With
 * ROUNDS_NEED=objects,driver it is an error if either does not count. Prints "ok" and the counts and exits
 * with 0, or prints the error and exits with 1.
 */
#define _POSIX_C_SOURCE 200809L
#include "ur_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* KEPT: the allowed difference in references of a type between two rounds, since a queue remembers its
 * commands until the next query. A leak would add one in each round. */
enum { THREADS = 4, BATCH = 10, KEPT = 4 * BATCH * THREADS };

static void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "rounds: %s\n", what);
    exit(1);
  }
}

static void check(ur_result_t result, const char *function) {
  if (result != UR_RESULT_SUCCESS) {
    fprintf(stderr, "rounds: %s returned %#x\n", function, (unsigned)result);
    exit(1);
  }
}

#define CALL(function, ...) check(function(__VA_ARGS__), #function)

static long rounds = 1000;
static size_t bytes = 64 << 10;
static ur_adapter_handle_t adapter;
static ur_device_handle_t device;
static ur_context_handle_t context;
static ur_usm_pool_handle_t pool;
static pthread_barrier_t barrier;

/* --- objects left --- */

/* The adapter's log of its objects at its last release. */
static char alive[256];

static void on_log(ur_logger_level_t level, const char *message, void *data) {
  static const char said[] = "objects alive after the last release: ";
  const char *found = strstr(message, said);
  (void)level;
  (void)data;
  if (found)
    snprintf(alive, sizeof alive, "%s", found + sizeof said - 1);
}

typedef struct counter {
  const char *name;
  long (*alive)(void);
} counter;

/* The counters of the counting libOpenCL.so.1, if the adapter has opened it. */
static const counter *driver_counters(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return library ? dlsym(library, "opencl_counters") : NULL;
}

enum { KINDS = 16 };

static int count_driver(long *counts) {
  const counter *counters = driver_counters();
  int i;
  for (i = 0; counters && i < KINDS && counters[i].name; i++)
    counts[i] = counters[i].alive();
  return counters != NULL;
}

/* Checks that at most `slack` objects of each type were added since `before`. */
static void compare_driver(const long *before, long slack, const char *what) {
  const counter *counters = driver_counters();
  long now[KINDS] = {0};
  int i;
  count_driver(now);
  for (i = 0; counters && i < KINDS && counters[i].name; i++) {
    if (now[i] < before[i] - slack || now[i] > before[i] + slack) {
      fprintf(stderr, "rounds: %s: %ld %s, %ld before\n", what, now[i], counters[i].name, before[i]);
      exit(1);
    }
  }
}

/* --- the device --- */

static void set_up(void) {
  uint32_t adapters = 0;
  ur_platform_handle_t platform;
  CALL(urLoaderInit, 0, NULL);
  CALL(urAdapterGet, 0, NULL, &adapters);
  require(adapters > 0, "no adapter");
  CALL(urAdapterGet, 1, &adapter, NULL);
  CALL(urAdapterSetLoggerCallback, adapter, on_log, NULL, UR_LOGGER_LEVEL_DEBUG);
  CALL(urPlatformGet, adapter, 1, &platform, NULL);
  CALL(urDeviceGet, platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL);
}

static void tear_down(void) {
  CALL(urDeviceRelease, device);
  CALL(urAdapterRelease, adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
}

static size_t figure(ur_usm_pool_info_t property) {
  size_t value = 0;
  CALL(urUSMPoolGetInfoExp, pool, property, &value, NULL);
  return value;
}

/* --- the rounds --- */

typedef struct worker {
  int index;
  ur_queue_handle_t queue;
  unsigned char *host;
} worker;

static unsigned char pattern_of(const worker *w, long round) { return (unsigned char)(1 + w->index * 61 + round * 7); }

/* Allocates, fills, copies to the round's range of the host memory, and frees. Odd rounds ask for the
 * events of all commands, even rounds for none. `held` is called while the block is live. */
static void one_round(const worker *w, long round, void (*held)(void)) {
  unsigned char pattern = pattern_of(w, round), *place = w->host + (size_t)(round % BATCH) * bytes;
  ur_event_handle_t events[4] = {NULL, NULL, NULL, NULL};
  int all = round % 2, i;
  void *memory = NULL;
  CALL(urEnqueueUSMDeviceAllocExp, w->queue, pool, bytes, NULL, 0, NULL, &memory, all ? &events[0] : NULL);
  require(memory != NULL, "success, but no memory");
  if (held)
    held();
  CALL(urEnqueueUSMFill, w->queue, memory, 1, &pattern, bytes, 0, NULL, all ? &events[1] : NULL);
  CALL(urEnqueueUSMMemcpy, w->queue, false, place, memory, bytes, 0, NULL, all ? &events[2] : NULL);
  CALL(urEnqueueUSMFreeExp, w->queue, pool, memory, 0, NULL, all ? &events[3] : NULL);
  for (i = 0; all && i < 4; i++) {
    uint32_t references = 0;
    CALL(urEventGetInfo, events[i], UR_EVENT_INFO_REFERENCE_COUNT, sizeof references, &references, NULL);
    require(references == 1, "an event has more than one reference");
    CALL(urEventRelease, events[i]);
  }
}

/* Finishes the queue and checks every byte that was copied since the last time. */
static void verify(const worker *w, long first, long end) {
  long round;
  size_t i;
  CALL(urQueueFinish, w->queue);
  for (round = first; round < end; round++) {
    const unsigned char *place = w->host + (size_t)(round % BATCH) * bytes;
    for (i = 0; i < bytes; i++)
      require(place[i] == pattern_of(w, round), "a byte is not what the fill wrote");
    memset(w->host + (size_t)(round % BATCH) * bytes, 0, bytes);
  }
}

static void all_together(void) { pthread_barrier_wait(&barrier); }

static size_t first_reserved;
static long first_driver[KINDS];

static void *work(void *argument) {
  const worker *w = argument;
  long round, end;
  /* In the first round every thread holds its block before any thread frees one. */
  one_round(w, 0, all_together);
  verify(w, 0, 1);
  all_together();
  if (w->index == 0) {
    first_reserved = figure(UR_USM_POOL_INFO_RESERVED_CURRENT_EXP);
    count_driver(first_driver);
  }
  all_together();
  for (round = 1, end = 1; round < rounds; round++) {
    one_round(w, round, NULL);
    if (round + 1 == rounds || round + 1 == end + BATCH) {
      verify(w, end, round + 1);
      end = round + 1;
    }
  }
  return NULL;
}

static void run(void) {
  pthread_t threads[THREADS];
  worker workers[THREADS];
  ur_usm_pool_desc_t desc = {.stype = UR_STRUCTURE_TYPE_USM_POOL_DESC};
  int i;
  CALL(urContextCreate, 1, &device, NULL, &context);
  CALL(urUSMPoolCreateExp, context, device, &desc, &pool);
  for (i = 0; i < THREADS; i++) {
    workers[i].index = i;
    workers[i].host = calloc(BATCH, bytes);
    require(workers[i].host != NULL, "no memory on the host");
    CALL(urQueueCreate, context, device, NULL, &workers[i].queue);
  }
  for (i = 0; i < THREADS; i++)
    require(pthread_create(&threads[i], NULL, work, &workers[i]) == 0, "pthread_create");
  for (i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  require(figure(UR_USM_POOL_INFO_RESERVED_HIGH_EXP) == first_reserved, "the pool grew after the first round");
  require(figure(UR_USM_POOL_INFO_RESERVED_CURRENT_EXP) == first_reserved, "the pool shrank, though it has no threshold");
  require(figure(UR_USM_POOL_INFO_USED_CURRENT_EXP) == 0, "something is still in use");
  compare_driver(first_driver, KEPT, "driver objects after the last round");
  for (i = 0; i < THREADS; i++) {
    CALL(urQueueRelease, workers[i].queue);
    free(workers[i].host);
  }
  CALL(urUSMPoolDestroyExp, context, device, pool);
  CALL(urContextRelease, context);
}

int main(int argc, char **argv) {
  const char *need = getenv("ROUNDS_NEED");
  long before[KINDS] = {0};
  int counted;
  if (argc > 1)
    rounds = atol(argv[1]);
  if (argc > 2)
    bytes = (size_t)atol(argv[2]);
  require(rounds > 0 && bytes > 0, "rounds and bytes are at least 1");
  pthread_barrier_init(&barrier, NULL, THREADS);
  set_up();
  counted = count_driver(before);
  run();
  tear_down();
  compare_driver(before, 0, "driver objects after the last release");
  require(alive[0] || !need || !strstr(need, "objects"), "the adapter did not say what objects are alive");
  require(!alive[0] || !strcmp(alive, "none"), alive);
  require(counted || !need || !strstr(need, "driver"), "nobody counted driver objects");
  printf("ok: %d threads of %ld rounds with %zu bytes, %zu bytes reserved after the first and at the end; "
         "objects left: %s; driver objects left: %s\n",
         THREADS, rounds, bytes, first_reserved, alive[0] ? alive : "not counted", counted ? "none" : "not counted");
  return 0;
}
