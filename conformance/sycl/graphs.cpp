// Graphs of commands: explicit and recorded, repeated, nested and updated.
//
// The device's support is queried first: "limited" graphs can be built and run, others can be updated, too.
#include "kernels.hpp"

#include <sycl/ext/oneapi/experimental/async_alloc/async_alloc.hpp>
#include <sycl/ext/oneapi/experimental/graph.hpp>

#include <numeric>
#include <vector>

using namespace client;
using sycl::handler;
using sycl::range;
using sycl::usm::alloc;
using oneapi::graph_state;
using Graph = oneapi::command_graph<graph_state::modifiable>;
using Runnable = oneapi::command_graph<graph_state::executable>;
namespace node_property = oneapi::property::node;

constexpr size_t count = 5000;

static sycl::queue make_queue(const sycl::property_list &properties = {}) {
  sycl::queue queue{rethrow, properties};
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_limited_graph))
    skip("the device has no graphs");
  return queue;
}

// Device memory and its copy on the host.
struct Memory {
  sycl::context context;
  uint32_t *data;
  Memory(const sycl::queue &queue, alloc kind = alloc::device)
      : context(queue.get_context()), data(sycl::malloc<uint32_t>(count, queue, kind)) {
    require(data != nullptr, "no memory");
  }
  Memory(const Memory &) = delete;
  ~Memory() { sycl::free(data, context); }
  std::vector<uint32_t> read(sycl::queue &queue) const {
    std::vector<uint32_t> back(count);
    queue.memcpy(back.data(), data, count * sizeof(uint32_t)).wait();
    return back;
  }
};

static void all_equal(const std::vector<uint32_t> &found, uint32_t wanted, const char *what) {
  for (uint32_t value : found)
    equal(value, wanted, what);
}

static void explicit_nodes() {
  sycl::queue queue = make_queue();
  Memory a(queue), b(queue), c(queue, alloc::shared);
  Graph graph{queue.get_context(), queue.get_device()};
  require(graph.empty(), "a new graph is not empty");
  auto fill = graph.add([&](handler &h) { client::fill(h, a.data, uint32_t(5), count); });
  auto copy = graph.add([&](handler &h) { h.memcpy(b.data, a.data, count * sizeof(uint32_t)); },
                        {node_property::depends_on(fill)});
  auto set = graph.add([&](handler &h) { h.memset(a.data, 0, count * sizeof(uint32_t)); });
  graph.make_edge(copy, set);
  auto join = graph.add({node_property::depends_on(copy, set)});
  graph.add([&](handler &h) { h.copy(b.data, c.data, count); }, {node_property::depends_on(join)});
  equal(graph.get_nodes().size(), size_t(5), "nodes");
  equal(graph.get_root_nodes().size(), size_t(1), "root nodes");
  require(fill.get_type() == oneapi::node_type::memfill, "a node's type");
  equal(copy.get_successors().size(), size_t(2), "successors of the copy");
  refused(sycl::errc::invalid, "a cycle", [&] { graph.make_edge(join, fill); });
  auto run = graph.finalize();
  for (uint32_t round = 0; round < 20; round++) {
    queue.memset(c.data, 1, count * sizeof(uint32_t)).wait();
    queue.ext_oneapi_graph(run).wait();
    all_equal(c.read(queue), 5, "data copied by the graph");
    all_equal(a.read(queue), 0, "data set by the graph");
  }
}

static void recorded() {
  for (bool in_order : {true, false}) {
    sycl::queue queue =
        make_queue(in_order ? sycl::property_list{sycl::property::queue::in_order{}} : sycl::property_list{});
    Memory a(queue), b(queue);
    Graph graph{queue};
    graph.begin_recording(queue);
    require(queue.ext_oneapi_get_state() == oneapi::queue_state::recording, "the queue does not record");
    sycl::event filled = client::fill(queue, a.data, uint32_t(8), count);
    sycl::event copied = queue.submit([&](handler &h) {
      h.depends_on(filled);
      h.memcpy(b.data, a.data, count * sizeof(uint32_t));
    });
    queue.submit([&](handler &h) {
      h.depends_on(copied);
      client::fill(h, a.data, uint32_t(9), count / 2);
    });
    graph.end_recording(queue);
    require(queue.ext_oneapi_get_state() == oneapi::queue_state::executing, "the queue still records");
    auto run = graph.finalize();
    queue.memset(a.data, 0, count * sizeof(uint32_t)).wait();
    all_equal(a.read(queue), 0, "recording ran a command");
    for (int round = 0; round < 20; round++)
      queue.ext_oneapi_graph(run);
    queue.wait();
    all_equal(b.read(queue), 8, "data copied by the graph");
    std::vector<uint32_t> back = a.read(queue);
    equal(back[count / 2 - 1], 9u, "data of the graph's last fill");
    equal(back[count / 2], 8u, "data of the graph's first fill");
  }
}

static void two_queues_recorded() {
  sycl::queue one = make_queue(), two{one.get_context(), one.get_device(), rethrow};
  Memory a(one), b(one);
  Graph graph{one};
  graph.begin_recording({one, two});
  sycl::event filled = client::fill(one, a.data, uint32_t(3), count);
  two.submit([&](handler &h) {
    h.depends_on(filled);
    h.memcpy(b.data, a.data, count * sizeof(uint32_t));
  });
  graph.end_recording();
  auto run = graph.finalize();
  two.ext_oneapi_graph(run).wait();
  all_equal(b.read(one), 3, "data of commands that two queues recorded");
}

static void repeated() {
  // A graph that reads what it wrote in its last run. Runs of one graph follow each other on any queue.
  sycl::queue one = make_queue(), two{one.get_context(), one.get_device(), rethrow};
  Memory ring(one);
  std::vector<uint32_t> start(count);
  std::iota(start.begin(), start.end(), 0);
  one.memcpy(ring.data, start.data(), count * sizeof(uint32_t)).wait();
  Memory aside(one);
  Graph graph{one};
  auto out = graph.add([&](handler &h) { h.memcpy(aside.data, ring.data, count * sizeof(uint32_t)); });
  auto back = graph.add([&](handler &h) { h.memcpy(ring.data, aside.data + 1, (count - 1) * sizeof(uint32_t)); },
                        {node_property::depends_on(out)});
  graph.add([&](handler &h) { h.memcpy(ring.data + count - 1, aside.data, sizeof(uint32_t)); },
            {node_property::depends_on(back)});
  auto run = graph.finalize();
  for (int round = 0; round < 50; round++)
    (round % 3 ? one : two).ext_oneapi_graph(run);
  one.wait();
  two.wait();
  std::vector<uint32_t> found = ring.read(one);
  for (size_t at = 0; at < count; at++)
    equal(found[at], uint32_t((at + 50) % count), "an element moved by fifty runs");
}

static void with_events() {
  // Commands before and after a graph, ordered by events alone.
  sycl::queue queue = make_queue();
  Memory a(queue), b(queue);
  Graph graph{queue};
  graph.add([&](handler &h) { h.memcpy(b.data, a.data, count * sizeof(uint32_t)); });
  auto run = graph.finalize();
  sycl::event last;
  std::vector<uint32_t> back(count);
  for (uint32_t round = 0; round < 30; round++) {
    sycl::event filled = queue.submit([&](handler &h) {
      h.depends_on(last);
      client::fill(h, a.data, round, count);
    });
    sycl::event ran = queue.ext_oneapi_graph(run, filled);
    last = queue.memcpy(back.data(), b.data, count * sizeof(uint32_t), ran);
  }
  last.wait();
  all_equal(back, 29, "data after the last run");
}

static void nested() {
  sycl::queue queue = make_queue();
  Memory a(queue), b(queue);
  Graph inner{queue}, outer{queue};
  inner.add([&](handler &h) { h.memcpy(b.data, a.data, count * sizeof(uint32_t)); });
  auto piece = inner.finalize();
  auto before = outer.add([&](handler &h) { client::fill(h, a.data, uint32_t(6), count); });
  auto within =
      outer.add([&](handler &h) { h.ext_oneapi_graph(piece); }, {node_property::depends_on(before)});
  outer.add([&](handler &h) { client::fill(h, a.data, uint32_t(7), count); }, {node_property::depends_on(within)});
  auto run = outer.finalize();
  for (int round = 0; round < 5; round++)
    queue.ext_oneapi_graph(run).wait();
  all_equal(a.read(queue), 7, "data filled by the outer graph");
  all_equal(b.read(queue), 6, "data copied by the inner graph");
}

static void host_tasks() {
  // A host task splits a graph into parts, each a command buffer of its own.
  sycl::queue queue = make_queue();
  Memory a(queue, alloc::shared), b(queue);
  Graph graph{queue};
  auto first = graph.add([&](handler &h) { client::fill(h, a.data, uint32_t(1), count); });
  auto host = graph.add(
      [&](handler &h) {
        h.host_task([data = a.data] {
          for (size_t at = 0; at < count; at++)
            data[at] += 10;
        });
      },
      {node_property::depends_on(first)});
  graph.add([&](handler &h) { h.memcpy(b.data, a.data, count * sizeof(uint32_t)); }, {node_property::depends_on(host)});
  auto run = graph.finalize();
  for (int round = 0; round < 5; round++)
    queue.ext_oneapi_graph(run).wait();
  all_equal(b.read(queue), 11, "data through a host task");
}

static void hints() {
  sycl::queue queue = make_queue();
  Memory a(queue, alloc::shared), b(queue);
  Graph graph{queue};
  auto fill = graph.add([&](handler &h) { client::fill(h, a.data, uint32_t(2), count); });
  auto fetch = graph.add([&](handler &h) { h.prefetch(a.data, count * sizeof(uint32_t)); },
                         {node_property::depends_on(fill)});
  auto advise = graph.add([&](handler &h) { h.mem_advise(a.data, count * sizeof(uint32_t), 0); },
                          {node_property::depends_on(fetch)});
  graph.add([&](handler &h) { h.memcpy(b.data, a.data, count * sizeof(uint32_t)); },
            {node_property::depends_on(advise)});
  auto run = graph.finalize();
  queue.ext_oneapi_graph(run).wait();
  all_equal(b.read(queue), 2, "data after hints");
}

static void buffers() {
  sycl::queue queue = make_queue();
  sycl::buffer<uint32_t> a{range<1>(count)}, b{range<1>(count)};
  a.set_write_back(false);
  b.set_write_back(false);
  {
    Graph graph{queue, {oneapi::property::graph::assume_buffer_outlives_graph{}}};
    graph.begin_recording(queue);
    queue.submit([&](handler &h) {
      sycl::accessor out(a, h, sycl::write_only, sycl::no_init);
      h.fill(out, uint32_t(12));
    });
    queue.submit([&](handler &h) {
      sycl::accessor in(a, h, sycl::read_only);
      sycl::accessor out(b, h, sycl::write_only, sycl::no_init);
      h.copy(in, out);
    });
    graph.end_recording();
    auto run = graph.finalize();
    queue.ext_oneapi_graph(run);
    queue.ext_oneapi_graph(run).wait();
  }
  sycl::host_accessor host(b, sycl::read_only);
  equal(host[0], 12u, "the first element of a buffer");
  equal(host[count - 1], 12u, "the last element of a buffer");
}

static void profiled() {
  sycl::queue queue = make_queue({sycl::property::queue::enable_profiling{}});
  Memory a(queue), b(queue);
  Graph graph{queue};
  auto fill = graph.add([&](handler &h) { client::fill(h, a.data, uint32_t(2), count); });
  graph.add([&](handler &h) { h.memcpy(b.data, a.data, count * sizeof(uint32_t)); }, {node_property::depends_on(fill)});
  auto run = graph.finalize({oneapi::property::graph::enable_profiling{}});
  sycl::event event = queue.ext_oneapi_graph(run);
  event.wait();
  namespace time = sycl::info::event_profiling;
  uint64_t submit = event.get_profiling_info<time::command_submit>(),
           start = event.get_profiling_info<time::command_start>(), end = event.get_profiling_info<time::command_end>();
  require(submit <= start && start <= end, "the times of a graph");
}

static void kernels() {
  sycl::queue queue = make_queue();
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel iota = bundle.ext_oneapi_get_kernel("iota"), add = bundle.ext_oneapi_get_kernel("add"),
               sum = bundle.ext_oneapi_get_kernel("sum");
  Memory a(queue), b(queue), c(queue);
  Graph graph{queue};
  graph.begin_recording(queue);
  auto one = queue.submit([&](handler &h) {
    h.set_args(a.data, uint32_t(1));
    h.parallel_for(range<1>(count), iota);
  });
  auto two = queue.submit([&](handler &h) {
    h.set_args(b.data, uint32_t(100));
    h.parallel_for(sycl::nd_range<1>(range<1>(count), range<1>(100)), iota);
  });
  auto three = queue.submit([&](handler &h) {
    h.depends_on({one, two});
    h.set_args(c.data, a.data, b.data);
    h.parallel_for(range<1>(count), sum);
  });
  queue.submit([&](handler &h) {
    h.depends_on(three);
    h.set_args(c.data, uint32_t(1000));
    h.parallel_for(range<1>(count), add);
  });
  graph.end_recording();
  auto run = graph.finalize();
  for (int round = 0; round < 10; round++)
    queue.ext_oneapi_graph(run);
  queue.wait();
  std::vector<uint32_t> back = c.read(queue);
  for (size_t at = 0; at < count; at++)
    equal(back[at], uint32_t(1101 + 2 * at), "data of the graph's kernels");
}

static void updated() {
  sycl::queue queue = make_queue();
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_graph))
    skip("the device's graphs cannot be updated");
  Executable bundle = build_kernels(queue.get_context());
  sycl::kernel add = bundle.ext_oneapi_get_kernel("add");
  Memory a(queue), b(queue);
  queue.memset(a.data, 0, count * sizeof(uint32_t)).wait();
  queue.memset(b.data, 0, count * sizeof(uint32_t)).wait();
  Graph graph{queue};
  oneapi::dynamic_parameter<uint32_t *> memory(a.data);
  oneapi::dynamic_parameter<uint32_t> amount(5);
  auto node = graph.add([&](handler &h) {
    h.set_arg(0, memory);
    h.set_arg(1, amount);
    h.parallel_for(range<1>(count), add);
  });
  auto run = graph.finalize({oneapi::property::graph::updatable{}});
  queue.ext_oneapi_graph(run).wait();
  all_equal(a.read(queue), 5, "before any update");
  memory.update(b.data);
  amount.update(uint32_t(7));
  run.update(node);
  queue.ext_oneapi_graph(run).wait();
  all_equal(a.read(queue), 5, "data of a replaced argument");
  all_equal(b.read(queue), 7, "after an update of the arguments");
  node.update_range(range<1>(10));
  run.update(node);
  queue.ext_oneapi_graph(run).wait();
  std::vector<uint32_t> back = b.read(queue);
  equal(back[9], 14u, "within the updated range");
  equal(back[10], 7u, "outside the updated range");
  // Updates a whole graph's arguments from another graph of the same shape.
  Graph other{queue};
  other.add([&](handler &h) {
    h.set_args(a.data, uint32_t(20));
    h.parallel_for(range<1>(count), add);
  });
  run.update(other);
  queue.ext_oneapi_graph(run).wait();
  all_equal(a.read(queue), 25, "after an update by another graph");
}

static void async_memory() {
  // libsycl places such memory itself, in virtual memory that it maps when the graph is finalized.
  sycl::queue queue = make_queue();
  if (!queue.get_device().has(sycl::aspect::ext_oneapi_virtual_mem))
    skip("the device has no virtual memory");
  constexpr size_t bytes = count * sizeof(uint32_t);
  std::vector<uint32_t> one(count), two(count);
  Graph graph{queue};
  void *first = nullptr, *second = nullptr;
  auto make = graph.add([&](handler &h) { first = oneapi::async_malloc(h, alloc::device, bytes); });
  require(first != nullptr, "no address while the graph is built");
  auto fill = graph.add([&](handler &h) { client::fill(h, static_cast<uint32_t *>(first), uint32_t(31), count); },
                        {node_property::depends_on(make)});
  auto read = graph.add([&](handler &h) { h.memcpy(one.data(), first, bytes); }, {node_property::depends_on(fill)});
  auto gone = graph.add([&](handler &h) { oneapi::async_free(h, first); }, {node_property::depends_on(read)});
  auto again = graph.add([&](handler &h) { second = oneapi::async_malloc(h, alloc::device, bytes); },
                         {node_property::depends_on(gone)});
  require(second == first, "freed memory does not serve a command that depends on its free");
  auto refill = graph.add([&](handler &h) { client::fill(h, static_cast<uint32_t *>(second), uint32_t(32), count); },
                          {node_property::depends_on(again)});
  auto reread = graph.add([&](handler &h) { h.memcpy(two.data(), second, bytes); }, {node_property::depends_on(refill)});
  graph.add([&](handler &h) { oneapi::async_free(h, second); }, {node_property::depends_on(reread)});
  auto run = graph.finalize();
  for (int round = 0; round < 10; round++) {
    std::fill(one.begin(), one.end(), 0);
    queue.ext_oneapi_graph(run).wait();
    all_equal(one, 31, "data through the memory of a graph");
    all_equal(two, 32, "data of the second use");
  }
  int local = 0;
  refused(sycl::errc::invalid, "a graph frees what it did not make",
          [&] { graph.add([&](handler &h) { oneapi::async_free(h, &local); }); });
}

static void many() {
  sycl::queue queue = make_queue({sycl::property::queue::in_order{}});
  Memory a(queue), b(queue);
  for (uint32_t round = 0; round < 50; round++) {
    Graph graph{queue};
    graph.begin_recording(queue);
    for (uint32_t step = 0; step < 20; step++) {
      client::fill(queue, a.data, round * 100 + step, count);
      queue.memcpy(b.data, a.data, count * sizeof(uint32_t));
    }
    graph.end_recording();
    auto run = graph.finalize();
    queue.ext_oneapi_graph(run);
    // The graph is destroyed while it may still run.
  }
  queue.wait();
  all_equal(b.read(queue), 4919, "data of the last of many graphs");
}

int main(int argc, char **argv) {
  read_kernels(argc, argv);
  Program program;
  program.part("explicit_nodes", explicit_nodes);
  program.part("recorded", recorded);
  program.part("two_queues_recorded", two_queues_recorded);
  program.part("repeated", repeated);
  program.part("with_events", with_events);
  program.part("nested", nested);
  program.part("host_tasks", host_tasks);
  program.part("hints", hints);
  program.part("buffers", buffers);
  program.part("profiled", profiled);
  program.part("kernels", kernels);
  program.part("updated", updated);
  program.part("async_memory", async_memory);
  program.part("many", many);
  return program.conclude();
}
