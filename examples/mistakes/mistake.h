/* What the planted mistakes share: a device with a context and two in-order queues. */
#ifndef EXAMPLES_MISTAKES_MISTAKE_H
#define EXAMPLES_MISTAKES_MISTAKE_H

#include "../common.h"

typedef struct setup {
  ur_adapter_handle_t adapter;
  ur_device_handle_t device;
  ur_context_handle_t context;
  ur_queue_handle_t first, second;
} setup;

static inline setup start(void) {
  setup s;
  s.device = first_device(UR_BACKEND_UNKNOWN, &s.adapter);
  CALL(urContextCreate, 1, &s.device, NULL, &s.context);
  CALL(urQueueCreate, s.context, s.device, NULL, &s.first);
  CALL(urQueueCreate, s.context, s.device, NULL, &s.second);
  return s;
}

/* Releases what `start` made. */
static inline int end(setup s) {
  CALL(urQueueFinish, s.first);
  CALL(urQueueFinish, s.second);
  CALL(urQueueRelease, s.first);
  CALL(urQueueRelease, s.second);
  CALL(urContextRelease, s.context);
  CALL(urDeviceRelease, s.device);
  CALL(urAdapterRelease, s.adapter);
  check(urLoaderTearDown(), "urLoaderTearDown");
  return 0;
}

#endif
