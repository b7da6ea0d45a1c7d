/* A client's view of the life cycle: initialisation, teardown, threads, fork.
 *
 *   lifecycle TEST LOADER [LOADER]
 *
 * The environment chooses the adapter. Prints "ok TEST" and exits with 0, or prints the error and exits
 * with 1. Loaders are opened by path, so that two copies of one are two loaders over one adapter library.
 */
#define _POSIX_C_SOURCE 200809L
#include "ur_api.h"
#include "ur_ddi.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct loader {
  void *library;
  ur_result_t (*init)(ur_device_init_flags_t, ur_loader_config_handle_t);
  ur_result_t (*tear_down)(void);
  ur_pfnAdapterGet_t adapter_get;
  ur_pfnAdapterRelease_t adapter_release;
  ur_pfnPlatformGet_t platform_get;
  ur_pfnDeviceGet_t device_get;
  ur_pfnDeviceRelease_t device_release;
  ur_pfnContextCreate_t context_create;
  ur_pfnContextRelease_t context_release;
  ur_pfnQueueCreate_t queue_create;
  ur_pfnQueueRelease_t queue_release;
  ur_pfnQueueFinish_t queue_finish;
  ur_pfnEnqueueUSMDeviceAllocExp_t alloc;
  ur_pfnEnqueueUSMFreeExp_t free;
  ur_pfnEnqueueUSMFill_t fill;
} loader_t;

static void fail(const char *what, long got) {
  fprintf(stderr, "lifecycle: %s (%ld)\n", what, got);
  exit(1);
}

static void check(ur_result_t result, const char *what) {
  if (result != UR_RESULT_SUCCESS)
    fail(what, (long)result);
}

/* ISO C has no cast from an object pointer to a function pointer; the bytes are the same. */
static void symbol(void *library, const char *name, void *to) {
  void *found = dlsym(library, name);
  if (!found)
    fail(name, 0);
  memcpy(to, &found, sizeof found);
}

static loader_t load(const char *path) {
  loader_t l;
  l.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!l.library)
    fail(dlerror(), 0);
  symbol(l.library, "urLoaderInit", &l.init);
  symbol(l.library, "urLoaderTearDown", &l.tear_down);
  symbol(l.library, "urAdapterGet", &l.adapter_get);
  symbol(l.library, "urAdapterRelease", &l.adapter_release);
  symbol(l.library, "urPlatformGet", &l.platform_get);
  symbol(l.library, "urDeviceGet", &l.device_get);
  symbol(l.library, "urDeviceRelease", &l.device_release);
  symbol(l.library, "urContextCreate", &l.context_create);
  symbol(l.library, "urContextRelease", &l.context_release);
  symbol(l.library, "urQueueCreate", &l.queue_create);
  symbol(l.library, "urQueueRelease", &l.queue_release);
  symbol(l.library, "urQueueFinish", &l.queue_finish);
  symbol(l.library, "urEnqueueUSMDeviceAllocExp", &l.alloc);
  symbol(l.library, "urEnqueueUSMFreeExp", &l.free);
  symbol(l.library, "urEnqueueUSMFill", &l.fill);
  return l;
}

typedef struct session {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t queue;
} session_t;

static session_t open_session(const loader_t *l) {
  session_t s;
  ur_platform_handle_t platform;
  uint32_t count = 0;
  check(l->adapter_get(1, &s.adapter, &count), "urAdapterGet");
  if (count == 0)
    fail("no adapter", 0);
  check(l->platform_get(s.adapter, 1, &platform, NULL), "urPlatformGet");
  check(l->device_get(platform, UR_DEVICE_TYPE_ALL, 1, &s.device, NULL), "urDeviceGet");
  check(l->context_create(1, &s.device, NULL, &s.context), "urContextCreate");
  check(l->queue_create(s.context, s.device, NULL, &s.queue), "urQueueCreate");
  return s;
}

/* Some work that needs the adapter's threads: allocate, fill, free, finish. */
static void work(const loader_t *l, const session_t *s) {
  void *memory = NULL;
  unsigned char pattern = 7;
  check(l->alloc(s->queue, NULL, 4096, NULL, 0, NULL, &memory, NULL), "alloc");
  check(l->fill(s->queue, memory, 1, &pattern, 4096, 0, NULL, NULL), "fill");
  check(l->free(s->queue, NULL, memory, 0, NULL, NULL), "free");
  check(l->queue_finish(s->queue), "finish");
}

static void close_session(const loader_t *l, session_t *s) {
  check(l->queue_release(s->queue), "urQueueRelease");
  check(l->context_release(s->context), "urContextRelease");
  check(l->device_release(s->device), "urDeviceRelease");
  check(l->adapter_release(s->adapter), "urAdapterRelease");
}

static void whole_life(const loader_t *l) {
  session_t s;
  check(l->init(0, NULL), "urLoaderInit");
  s = open_session(l);
  work(l, &s);
  close_session(l, &s);
  check(l->tear_down(), "urLoaderTearDown");
}

static long threads(void) {
  long count = 0;
  DIR *tasks = opendir("/proc/self/task");
  struct dirent *entry;
  if (!tasks)
    fail("no /proc/self/task", 0);
  while ((entry = readdir(tasks)))
    count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

static void pause_ms(long ms) {
  struct timespec time;
  time.tv_sec = ms / 1000;
  time.tv_nsec = ms % 1000 * 1000000;
  nanosleep(&time, NULL);
}

/* Two loaders over one adapter library: the teardown of one leaves the library usable for the other. */
static void two_loaders(const loader_t *a, const loader_t *b) {
  session_t first, second;
  check(a->init(0, NULL), "first urLoaderInit");
  check(b->init(0, NULL), "second urLoaderInit");
  first = open_session(a);
  second = open_session(b);
  work(a, &first);
  close_session(a, &first);
  check(a->tear_down(), "first urLoaderTearDown");
  work(b, &second);
  close_session(b, &second);
  check(b->tear_down(), "second urLoaderTearDown");
  whole_life(a);
}

/* Calls before the initialisation and after the teardown are refused, and a later initialisation works as
 * the first. */
static void again(const loader_t *l) {
  uint32_t count = 0;
  int round;
  for (round = 0; round < 20; round++) {
    if (l->adapter_get(0, NULL, &count) != UR_RESULT_ERROR_UNINITIALIZED)
      fail("a call before urLoaderInit is not refused, round", round);
    whole_life(l);
    if (l->tear_down() != UR_RESULT_ERROR_UNINITIALIZED)
      fail("one teardown too many is not refused, round", round);
  }
}

/* No thread of the adapter outlives the last release and teardown. */
static void quiet(const loader_t *l) {
  long before = threads();
  long after = before + 1;
  int wait;
  whole_life(l);
  for (wait = 0; wait < 200 && after != before; wait++) {
    after = threads();
    if (after != before)
      pause_ms(10);
  }
  if (after != before)
    fail("threads left behind", after - before);
}

static void *life_of_a_thread(void *argument) {
  int round;
  for (round = 0; round < 10; round++)
    whole_life(argument);
  return NULL;
}

static void *work_of_a_thread(void *argument) {
  const loader_t *l = argument;
  session_t s = open_session(l);
  work(l, &s);
  close_session(l, &s);
  pause_ms(50);
  return NULL;
}

/* Threads that initialise and tear down at the same time, and threads that end after the teardown. */
static void many_threads(loader_t *l) {
  pthread_t thread[8];
  int i;
  for (i = 0; i < 8; i++)
    if (pthread_create(&thread[i], NULL, life_of_a_thread, l))
      fail("pthread_create", i);
  for (i = 0; i < 8; i++)
    pthread_join(thread[i], NULL);
  check(l->init(0, NULL), "urLoaderInit");
  for (i = 0; i < 8; i++)
    if (pthread_create(&thread[i], NULL, work_of_a_thread, l))
      fail("pthread_create", i);
  pause_ms(25);
  for (i = 0; i < 8; i++)
    pthread_join(thread[i], NULL);
  check(l->tear_down(), "urLoaderTearDown");
}

/* The time from urLoaderInit to the first device. It is printed and not checked. */
static void startup(const loader_t *l) {
  struct timespec begin, end;
  ur_adapter_handle_t adapter;
  ur_platform_handle_t platform;
  ur_device_handle_t device;
  double best = 1e9;
  int round;
  for (round = 0; round < 20; round++) {
    double ms;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    check(l->init(0, NULL), "urLoaderInit");
    check(l->adapter_get(1, &adapter, NULL), "urAdapterGet");
    check(l->platform_get(adapter, 1, &platform, NULL), "urPlatformGet");
    check(l->device_get(platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL), "urDeviceGet");
    clock_gettime(CLOCK_MONOTONIC, &end);
    ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
    if (round == 0)
      printf("first: %.3f ms\n", ms);
    if (ms < best)
      best = ms;
    check(l->device_release(device), "urDeviceRelease");
    check(l->adapter_release(adapter), "urAdapterRelease");
    check(l->tear_down(), "urLoaderTearDown");
  }
  printf("best of 20: %.3f ms\n", best);
}

/* Calls of a forked child fail with DEVICE_LOST and do not hang. The parent continues. */
static void forked(const loader_t *l) {
  session_t s;
  pid_t child;
  int status = 0, wait;
  check(l->init(0, NULL), "urLoaderInit");
  s = open_session(l);
  work(l, &s);
  child = fork();
  if (child < 0)
    fail("fork", 0);
  if (child == 0) {
    void *memory = NULL;
    unsigned char pattern = 7;
    ur_result_t result = l->alloc(s.queue, NULL, 4096, NULL, 0, NULL, &memory, NULL);
    if (result == UR_RESULT_SUCCESS)
      result = l->fill(s.queue, memory, 1, &pattern, 4096, 0, NULL, NULL);
    if (result == UR_RESULT_SUCCESS)
      result = l->queue_finish(s.queue);
    _exit(result == UR_RESULT_ERROR_DEVICE_LOST ? 0 : 1);
  }
  for (wait = 0; wait < 500; wait++) {
    if (waitpid(child, &status, WNOHANG) == child)
      break;
    pause_ms(10);
  }
  if (wait == 500) {
    kill(child, SIGKILL);
    fail("the child hangs", 0);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail("the child is not told that the device is lost", status);
  work(l, &s);
  close_session(l, &s);
  check(l->tear_down(), "urLoaderTearDown");
}

int main(int argc, char **argv) {
  loader_t l;
  if (argc < 3)
    fail("usage: lifecycle TEST LOADER [LOADER]", argc);
  l = load(argv[2]);
  if (!strcmp(argv[1], "two-loaders") && argc > 3) {
    loader_t other = load(argv[3]);
    two_loaders(&l, &other);
  } else if (!strcmp(argv[1], "again"))
    again(&l);
  else if (!strcmp(argv[1], "quiet"))
    quiet(&l);
  else if (!strcmp(argv[1], "threads"))
    many_threads(&l);
  else if (!strcmp(argv[1], "startup"))
    startup(&l);
  else if (!strcmp(argv[1], "fork"))
    forked(&l);
  else
    fail("no such test", 0);
  printf("ok %s\n", argv[1]);
  return 0;
}
