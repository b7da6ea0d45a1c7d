// Shared code of the programs in this folder.
//
// A program is a list of parts, each of which passes, fails or is skipped. It prints one line for each part,
// which `cargo xtask real-client` reads. This file knows SYCL only.
#pragma once

#include <sycl/sycl.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

namespace client {

// The exit status of a program whose parts were all skipped.
constexpr int all_skipped = 77;

struct Skip {
  std::string why;
};

[[noreturn]] inline void skip(const std::string &why) { throw Skip{why}; }

inline void require(bool condition, const std::string &what) {
  if (!condition)
    throw std::runtime_error(what);
}

template <class A, class B> void equal(const A &found, const B &wanted, const std::string &what) {
  if (!(found == static_cast<A>(wanted)))
    throw std::runtime_error(what + ": " + std::to_string(found) + ", not " + std::to_string(wanted));
}

// The call must throw a sycl::exception with this code.
template <class F> void refused(sycl::errc code, const std::string &what, F &&call) {
  try {
    call();
  } catch (const sycl::exception &error) {
    if (error.code() == code)
      return;
    throw std::runtime_error(what + ": refused with " + std::to_string(error.code().value()) + " (" + error.what() +
                             "), not with " + std::to_string(static_cast<int>(code)));
  }
  throw std::runtime_error(what + ": not refused");
}

// The command behind `handler::fill`, a private member, which an explicit instantiation may name.
using Fill = void (sycl::handler::*)(void *, const void *, size_t, size_t);
Fill plain_fill();
template <Fill member> struct Named {
  friend Fill plain_fill() { return member; }
};
template struct Named<&sycl::handler::fill_impl>;

// Fills USM as `handler::fill` does. On Level Zero that launches a kernel instead, which needs a device compiler.
template <class T> void fill(sycl::handler &h, void *memory, const T &pattern, size_t count) {
  static const bool launches = sycl::device().get_backend() == sycl::backend::ext_oneapi_level_zero;
  if (launches)
    (h.*plain_fill())(memory, &pattern, sizeof(T), count);
  else
    h.fill(memory, pattern, count);
}

template <class T, class... Events>
sycl::event fill(sycl::queue &queue, void *memory, const T &pattern, size_t count, const Events &...before) {
  return queue.submit([&](sycl::handler &h) {
    (h.depends_on(before), ...);
    fill(h, memory, pattern, count);
  });
}

// The errors given to a queue's asynchronous handler. None may be left unread.
inline void rethrow(sycl::exception_list errors) {
  for (const std::exception_ptr &error : errors)
    std::rethrow_exception(error);
}

class Program {
public:
  Program() {
    sycl::device device;
    std::printf("device %s\n", device.get_info<sycl::info::device::name>().c_str());
  }

  void part(const char *name, const std::function<void()> &body) {
    try {
      body();
      passed++;
      std::printf("part %s ok\n", name);
    } catch (const Skip &reason) {
      skipped++;
      std::printf("part %s skipped: %s\n", name, reason.why.c_str());
    } catch (const std::exception &error) {
      failed++;
      std::string what = error.what();
      std::replace(what.begin(), what.end(), '\n', ' ');
      std::printf("part %s failed: %s\n", name, what.c_str());
    }
    std::fflush(stdout);
  }

  // The exit status.
  //
  // Prints the libraries of Unified Runtime that ran, since nothing else shows which ones they were.
  int conclude() const {
    std::set<std::string> names;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      size_t path = line.find('/');
      if (path != std::string::npos && line.find("/libur_", path) != std::string::npos)
        names.insert(line.substr(path));
    }
    for (const std::string &name : names)
      std::printf("library %s\n", name.c_str());
    if (failed)
      return 1;
    return passed ? 0 : all_skipped;
  }

private:
  int passed = 0, skipped = 0, failed = 0;
};

// A host task that blocks its dependents until it is opened.
//
// It opens by itself when it is destroyed, so that a failed check does not hang.
class Gate {
public:
  Gate() : state(std::make_shared<State>()) {}
  Gate(const Gate &) = delete;
  ~Gate() { open(); }

  sycl::event close(sycl::queue &queue) {
    return queue.submit([&](sycl::handler &h) {
      h.host_task([state = state] {
        std::unique_lock lock(state->mutex);
        state->changed.wait(lock, [&] { return state->opened; });
      });
    });
  }

  void open() {
    std::lock_guard lock(state->mutex);
    state->opened = true;
    state->changed.notify_all();
  }

private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool opened = false;
  };
  std::shared_ptr<State> state;
};

} // namespace client
