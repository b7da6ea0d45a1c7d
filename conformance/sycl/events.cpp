// Order and time: events, barriers, host tasks and profiling, on both types of queue.
#include "client.hpp"

#include <sycl/ext/oneapi/experimental/enqueue_functions.hpp>
#include <sycl/ext/oneapi/experimental/profiling_tag.hpp>

#include <atomic>
#include <thread>
#include <vector>

using namespace client;
namespace oneapi = sycl::ext::oneapi::experimental;
using sycl::handler;
using sycl::info::event_command_status;
namespace in_order = sycl::property::queue;

static event_command_status status(const sycl::event &event) {
  return event.get_info<sycl::info::event::command_execution_status>();
}

// A size in bytes whose fill takes some time.
constexpr size_t long_bytes = 32 << 20;

static sycl::queue ordered() { return sycl::queue{rethrow, in_order::in_order{}}; }

static void statuses() {
  require(status(sycl::event{}) == event_command_status::complete, "a default event is not complete");
  sycl::event{}.wait();
  sycl::queue queue{rethrow};
  int *memory = sycl::malloc_shared<int>(1, queue);
  Gate gate;
  sycl::event held = gate.close(queue);
  sycl::event filled = client::fill(queue, memory, 3, 1, held);
  require(status(held) != event_command_status::complete, "a waiting host task is complete");
  require(status(filled) != event_command_status::complete, "a command that waits for a host task is complete");
  gate.open();
  filled.wait();
  require(status(filled) == event_command_status::complete && status(held) == event_command_status::complete,
          "not complete after waiting");
  equal(*memory, 3, "filled data");
  sycl::event::wait({filled, held});
  sycl::free(memory, queue);
}

static void dependencies() {
  // Two hundred additions. Each depends on the one before, and none on the queue's order.
  sycl::queue queue{rethrow};
  int *memory = sycl::malloc_shared<int>(2, queue);
  memory[0] = 0;
  sycl::event last;
  for (int round = 0; round < 200; round++) {
    last = queue.memcpy(memory + 1, memory, sizeof(int), last);
    last = queue.submit([&](handler &h) {
      h.depends_on(last);
      h.host_task([=] { memory[0] = memory[1] + 1; });
    });
  }
  last.wait();
  equal(memory[0], 200, "after two hundred rounds");
  sycl::free(memory, queue);

  // A wide graph: many commands into one, and one into many.
  constexpr int count = 64;
  int *wide = sycl::malloc_shared<int>(count, queue), sum = 0;
  std::vector<sycl::event> parts;
  for (int at = 0; at < count; at++)
    parts.push_back(client::fill(queue, wide + at, at, 1));
  queue
      .submit([&](handler &h) {
        h.depends_on(parts);
        h.host_task([=, &sum] {
          for (int at = 0; at < count; at++)
            sum += wide[at];
        });
      })
      .wait();
  equal(sum, count * (count - 1) / 2, "the sum of what many filled");
  sycl::free(wide, queue);
}

static void in_order_queues() {
  sycl::queue queue = ordered();
  require(queue.is_in_order(), "is_in_order");
  constexpr size_t count = 10000;
  int *memory = sycl::malloc_device<int>(count, queue);
  std::vector<int> back(count);
  std::atomic<int> seen{0};
  for (int round = 1; round <= 100; round++) {
    client::fill(queue, memory, round, count);
    queue.memcpy(back.data(), memory, count * sizeof(int));
    queue.submit([&](handler &h) {
      h.host_task([&, round] { seen += back[0] == round && back[count - 1] == round; });
    });
  }
  queue.wait_and_throw();
  equal(seen.load(), 100, "rounds that saw their own values");
  queue.memset(memory, 0, 4);
  require(queue.ext_oneapi_get_last_event().has_value(), "no last event");
  queue.wait();
  require(queue.ext_oneapi_empty(), "not empty after waiting");
  sycl::free(memory, queue);

  // An event of another queue that the next command has to wait for.
  sycl::queue other{queue.get_context(), queue.get_device(), rethrow};
  char *large = sycl::malloc_device<char>(long_bytes, queue), last = 0;
  for (char round = 1; round <= 5; round++) {
    queue.ext_oneapi_set_external_event(other.memset(large, round, long_bytes));
    queue.memcpy(&last, large + long_bytes - 1, 1);
    queue.wait();
    equal(int(last), int(round), "data after an external event");
  }
  sycl::free(large, queue);
}

static void barriers() {
  // A barrier for everything before.
  //
  // No host task comes before it: libsycl keeps commands that wait for a host task to itself, and a barrier
  // does not see them.
  sycl::queue queue{rethrow};
  char *large = sycl::malloc_device<char>(long_bytes, queue), last = 0;
  for (char round = 1; round <= 5; round++) {
    queue.memset(large, round, long_bytes);
    queue.ext_oneapi_submit_barrier();
    queue.memcpy(&last, large + long_bytes - 1, 1).wait();
    equal(int(last), int(round), "data after a barrier");
    queue.ext_oneapi_submit_barrier();
  }
  queue.wait();
  sycl::free(large, queue);
  // A barrier for some events only, which waits for nothing else.
  {
    Gate one, two;
    sycl::event first = one.close(queue), second = two.close(queue);
    sycl::queue other{queue.get_context(), queue.get_device(), rethrow};
    sycl::event barrier = other.ext_oneapi_submit_barrier({first});
    require(status(barrier) != event_command_status::complete, "a barrier of events does not wait");
    one.open();
    barrier.wait();
    require(status(second) != event_command_status::complete, "the other gate is open");
    two.open();
  }
  // On an in-order queue, a barrier for an event of another queue.
  {
    sycl::queue line = ordered(), other{line.get_context(), line.get_device(), rethrow};
    Gate gate;
    line.ext_oneapi_submit_barrier({gate.close(other)});
    sycl::event after = line.submit([](handler &h) { h.host_task([] {}); });
    require(status(after) != event_command_status::complete, "an in-order queue passes a barrier");
    gate.open();
    line.wait();
  }
  queue.wait();
}

static void across_queues() {
  sycl::device device;
  sycl::queue a{sycl::context{device}, device, rethrow}, b{sycl::context{device}, device, rethrow, in_order::in_order{}};
  int *memory = sycl::malloc_shared<int>(1, a), seen = 0;
  Gate gate;
  sycl::event held = gate.close(a);
  sycl::event filled = client::fill(a, memory, 4, 1, held);
  sycl::event read = b.submit([&](handler &h) {
    h.depends_on(filled);
    h.host_task([=, &seen] { seen = *memory; });
  });
  sycl::event last = b.submit([&](handler &h) {
    h.depends_on(filled);
    h.memset(memory, 0, sizeof(int));
  });
  require(status(last) != event_command_status::complete, "an event of another context is not waited for");
  gate.open();
  b.wait();
  equal(seen, 4, "data of another context's command");
  equal(*memory, 0, "data of later commands");
  sycl::free(memory, a);
}

static void errors() {
  // An exception in a host task reaches the queue's handler, and other commands continue.
  int caught = 0;
  sycl::queue queue{[&](sycl::exception_list list) {
    for (const std::exception_ptr &error : list) {
      try {
        std::rethrow_exception(error);
      } catch (const std::runtime_error &) {
        caught++;
      }
    }
  }};
  queue.submit([](handler &h) { h.host_task([] { throw std::runtime_error("on purpose"); }); });
  queue.wait_and_throw();
  equal(caught, 1, "exceptions from a host task");
  int *memory = sycl::malloc_shared<int>(1, queue);
  client::fill(queue, memory, 9, 1).wait();
  equal(*memory, 9, "the queue afterwards");
  sycl::free(memory, queue);
}

static void profiling() {
  sycl::device device;
  if (!device.has(sycl::aspect::queue_profiling))
    skip("no profiling");
  namespace time = sycl::info::event_profiling;
  sycl::queue plain{rethrow};
  constexpr size_t bytes = 8 << 20;
  for (bool line : {true, false}) {
    sycl::property_list properties =
        line ? sycl::property_list{in_order::enable_profiling{}, in_order::in_order{}}
             : sycl::property_list{in_order::enable_profiling{}};
    sycl::queue queue{device, rethrow, properties};
    char *memory = sycl::malloc_device<char>(bytes, queue), *other = sycl::malloc_device<char>(bytes, queue);
    sycl::event first = queue.memset(memory, 1, bytes);
    sycl::event second = queue.memcpy(other, memory, bytes, first);
    sycl::event third = queue.ext_oneapi_submit_barrier({second});
    queue.wait();
    uint64_t before = 0;
    for (const sycl::event &event : {first, second, third}) {
      uint64_t submit = event.get_profiling_info<time::command_submit>();
      uint64_t start = event.get_profiling_info<time::command_start>();
      uint64_t end = event.get_profiling_info<time::command_end>();
      require(submit <= start, "started before it was submitted: " + std::to_string(submit) + " " + std::to_string(start));
      require(start <= end, "ended before it was started");
      require(start >= before, "started before what it depends on had ended");
      before = end;
    }
    uint64_t took = second.get_profiling_info<time::command_end>() - second.get_profiling_info<time::command_start>();
    require(took > 10'000 && took < 10'000'000'000, "8 MiB copied in " + std::to_string(took) + " ns");
    sycl::free(memory, queue);
    sycl::free(other, queue);
  }
  int value = 0, copy = 0;
  sycl::event event = plain.memcpy(&copy, &value, sizeof copy);
  event.wait();
  refused(sycl::errc::invalid, "times of a queue without profiling",
          [&] { event.get_profiling_info<time::command_start>(); });
}

static void tags() {
  sycl::device device;
  if (!device.has(sycl::aspect::ext_oneapi_queue_profiling_tag))
    skip("no timestamps");
  namespace time = sycl::info::event_profiling;
  sycl::queue queue{device, rethrow, in_order::in_order{}};
  constexpr size_t bytes = 8 << 20;
  char *memory = sycl::malloc_device<char>(bytes, queue);
  sycl::event before = oneapi::submit_profiling_tag(queue);
  queue.memset(memory, 1, bytes);
  sycl::event after = oneapi::submit_profiling_tag(queue);
  queue.wait();
  uint64_t took = after.get_profiling_info<time::command_start>() - before.get_profiling_info<time::command_end>();
  require(took > 10'000 && took < 10'000'000'000, "8 MiB set in " + std::to_string(took) + " ns");
  sycl::free(memory, queue);
}

static void without_events() {
  // The functions without an event leave the runtime more freedom, and must keep the order.
  sycl::queue queue = ordered();
  constexpr size_t count = 1000;
  int *memory = sycl::malloc_device<int>(count, queue);
  std::vector<int> back(count);
  for (int round = 0; round < 100; round++) {
    oneapi::submit(queue, [&](handler &h) { client::fill(h, memory, round, count); });
    oneapi::memcpy(queue, back.data(), memory, count * sizeof(int));
    oneapi::barrier(queue);
  }
  queue.wait();
  equal(back[count - 1], 99, "the last round");
  sycl::event event = oneapi::submit_with_event(queue, [&](handler &h) { oneapi::memset(h, memory, 0, 4); });
  sycl::queue other{queue.get_context(), queue.get_device(), rethrow};
  oneapi::partial_barrier(other, {event});
  other.wait();
  require(status(event) == event_command_status::complete, "a partial barrier");
  sycl::free(memory, queue);
}

static void device_wait() {
  // A wait for everything on the device, on all queues of all contexts.
  sycl::device device;
  if (!device.has(sycl::aspect::ext_oneapi_device_wait))
    skip("no waiting for a device");
  sycl::queue a{sycl::context{device}, device, rethrow}, b{sycl::context{device}, device, rethrow};
  char *first = sycl::malloc_shared<char>(long_bytes, a), *second = sycl::malloc_shared<char>(long_bytes, b);
  for (char round = 1; round <= 3; round++) {
    sycl::event one = a.memset(first, round, long_bytes), two = b.memset(second, round, long_bytes);
    device.ext_oneapi_wait();
    require(status(one) == event_command_status::complete && status(two) == event_command_status::complete,
            "not complete after waiting for the device");
    equal(int(first[long_bytes - 1]), int(round), "data of one queue");
    equal(int(second[long_bytes - 1]), int(round), "data of the other queue");
  }
  sycl::free(first, a);
  sycl::free(second, b);
}

static void host_tasks() {
  // More host tasks at a time than the machine has cores. Each waits for the last one to be opened.
  sycl::queue queue{rethrow};
  constexpr int count = 24;
  std::vector<std::unique_ptr<Gate>> gates;
  std::atomic<int> done{0};
  int *memory = sycl::malloc_shared<int>(count, queue);
  for (int at = 0; at < count; at++) {
    gates.push_back(std::make_unique<Gate>());
    sycl::event held = gates.back()->close(queue);
    sycl::event filled = client::fill(queue, memory + at, at + 1, 1, held);
    queue.submit([&](handler &h) {
      h.depends_on(filled);
      h.host_task([&done, memory, at] { done += memory[at] == at + 1; });
    });
  }
  for (int at = 0; at < count; at++)
    gates[at]->open();
  queue.wait();
  equal(done.load(), count, "host tasks that saw their values");
  sycl::free(memory, queue);
}

static void threads() {
  // Four threads submit to one in-order and one out-of-order queue.
  sycl::queue line = ordered(), heap{line.get_context(), line.get_device(), rethrow};
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (int id = 0; id < 4; id++) {
    all.emplace_back([&, id] {
      int *memory = sycl::malloc_device<int>(256, line), back = 0;
      for (int round = 0; round < 100; round++) {
        sycl::queue &first = (id + round) % 2 ? line : heap, &second = (id + round) % 3 ? line : heap;
        sycl::event filled = client::fill(first, memory, id * 1000 + round, 256);
        second.memcpy(&back, memory + 255, sizeof back, filled).wait();
        wrong += back != id * 1000 + round;
      }
      sycl::free(memory, line);
    });
  }
  for (std::thread &thread : all)
    thread.join();
  equal(wrong.load(), 0, "wrong values");
}

static void priorities() {
  sycl::device device;
  for (sycl::property_list properties :
       {sycl::property_list{sycl::ext::oneapi::property::queue::priority_low{}},
        sycl::property_list{sycl::ext::oneapi::property::queue::priority_normal{}, in_order::in_order{}},
        sycl::property_list{sycl::ext::oneapi::property::queue::priority_high{}}}) {
    sycl::queue queue{device, rethrow, properties};
    int *memory = sycl::malloc_shared<int>(1, queue);
    client::fill(queue, memory, 2, 1).wait();
    equal(*memory, 2, "on a queue with a priority");
    sycl::free(memory, queue);
  }
}

int main() {
  Program program;
  program.part("statuses", statuses);
  program.part("dependencies", dependencies);
  program.part("in_order_queues", in_order_queues);
  program.part("barriers", barriers);
  program.part("across_queues", across_queues);
  program.part("errors", errors);
  program.part("profiling", profiling);
  program.part("tags", tags);
  program.part("without_events", without_events);
  program.part("device_wait", device_wait);
  program.part("host_tasks", host_tasks);
  program.part("threads", threads);
  program.part("priorities", priorities);
  return program.conclude();
}
