/* A process with a finding of UR_LAYER_LIFETIME_VALIDATION, and its exit status.
 *
 *   on_finding MODE LOADER
 *
 *   fails    exits with 3
 *   ends     exits with 0, after output that is still buffered and a function of `atexit`
 *   late     has the finding in a function of `atexit` only
 *   unloads  closes the loader before it exits with 0
 *   forks    exits with 0 if its child does, which has no finding of its own
 *
 * Prints "ends" at its end.
 */
#define _POSIX_C_SOURCE 200809L
#include "ur_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ISO C has no cast from an object pointer to a function pointer; the bytes are the same. */
static void symbol(void *library, const char *name, void *to) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "on_finding: no %s\n", name);
    exit(1);
  }
  memcpy(to, &found, sizeof found);
}

static int late;
static ur_result_t (*finish)(ur_queue_handle_t);
static ur_result_t (*tear_down)(void);

/* The finding: a handle that no adapter returned. */
static void find(void) {
  static void *nothing[16];
  if (finish((ur_queue_handle_t)nothing) != UR_RESULT_ERROR_INVALID_QUEUE)
    _exit(1);
}

static void at_end(void) {
  if (late)
    find();
  puts("ends");
}

int main(int count, char **arguments) {
  ur_result_t (*init)(ur_device_init_flags_t, ur_loader_config_handle_t);
  void *loader = count == 3 ? dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL) : NULL;
  int status = 0;
  if (!loader)
    return 1;
  symbol(loader, "urLoaderInit", &init);
  symbol(loader, "urQueueFinish", &finish);
  symbol(loader, "urLoaderTearDown", &tear_down);
  atexit(at_end);
  if (init(0, NULL) != UR_RESULT_SUCCESS)
    return 1;
  late = !strcmp(arguments[1], "late");
  if (!late)
    find();
  if (!strcmp(arguments[1], "forks")) {
    pid_t child = fork();
    if (child == 0)
      exit(0);
    if (waitpid(child, &status, 0) != child || status != 0)
      _exit(1);
  }
  if (!late && tear_down() != UR_RESULT_SUCCESS)
    return 1;
  if (!strcmp(arguments[1], "unloads"))
    dlclose(loader);
  printf("buffered, ");
  return strcmp(arguments[1], "fails") ? 0 : 3;
}
