// A memory resource for RMM over Unified Runtime's pools: stream-ordered, for one device.
//
//   ur::memory_resource resource;                       // of the current device
//   rmm::mr::set_current_device_resource(resource);
//
// Needs RMM 26.10 and libur_loader. A resource is copied like a pointer: copies are equal and share one pool. The
// pool lives until the last copy is gone; that of memory which outlives it, until the memory is freed. Every
// member may be called by several threads at once. A resource keeps a queue for each stream that it has seen: before
// such a stream is destroyed, `forget` must be called.
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/error.hpp>

#include <cuda/memory_resource>
#include <cuda/stream>
#include <cuda_runtime_api.h>

#include <ur_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace ur {

class memory_resource final {
 public:
  // The figures of the pool, in bytes.
  struct figures {
    std::size_t used, used_high, reserved, reserved_high;
  };

  // A pool of a device, by the driver's ordinal, -1 for the current one. It reserves at most `maximum` bytes; 0 is
  // no limit. Throws rmm::logic_error if no adapter has the device.
  explicit memory_resource(int device = -1, std::size_t maximum = 0)
    : state_{std::make_shared<state>(device, maximum)}
  {
  }

  // Throws rmm::out_of_memory, or rmm::bad_alloc for another reason. A size of 0 gives null.
  [[nodiscard]] void* allocate(cuda::stream_ref stream,
                               std::size_t bytes,
                               std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT)
  {
    if (bytes == 0) { return nullptr; }
    auto const queue = state_->queue(stream.get());
    void* memory     = nullptr;
    auto const alloc = [&] {
      return urEnqueueUSMDeviceAllocExp(
        queue, state_->pool, bytes, nullptr, 0, nullptr, &memory, nullptr);
    };
    state_->allocate(alloc, "urEnqueueUSMDeviceAllocExp");
    if (!is_aligned(memory, alignment)) {
      urEnqueueUSMFreeExp(queue, state_->pool, memory, 0, nullptr, nullptr);
      throw rmm::bad_alloc{"the pool's blocks have a smaller alignment"};
    }
    return memory;
  }

  void deallocate(cuda::stream_ref stream,
                  void* memory,
                  std::size_t /* bytes */,
                  std::size_t /* alignment */ = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept
  {
    if (memory == nullptr) { return; }
    // Without a queue the program has no memory for one either: the block is lost, and nothing is thrown.
    try {
      urEnqueueUSMFreeExp(state_->queue(stream.get()), state_->pool, memory, 0, nullptr, nullptr);
    } catch (...) {
    }
  }

  [[nodiscard]] void* allocate_sync(std::size_t bytes,
                                    std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT)
  {
    if (bytes == 0) { return nullptr; }
    void* memory     = nullptr;
    auto const alloc = [&] {
      return urUSMDeviceAlloc(
        state_->context, state_->device, nullptr, state_->pool, bytes, &memory);
    };
    state_->allocate(alloc, "urUSMDeviceAlloc");
    if (!is_aligned(memory, alignment)) {
      urUSMFree(state_->context, memory);
      throw rmm::bad_alloc{"the pool's blocks have a smaller alignment"};
    }
    return memory;
  }

  void deallocate_sync(void* memory,
                       std::size_t /* bytes */,
                       std::size_t /* alignment */ = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept
  {
    if (memory != nullptr) { urUSMFree(state_->context, memory); }
  }

  // Returns free memory to the driver. Memory whose work is pending stays.
  void trim() { urUSMPoolTrimToExp(state_->context, state_->device, state_->pool, 0); }

  // Waits for a stream's work and releases its queue, so that the stream can be destroyed. No other thread may use
  // the stream with this resource during the call.
  void forget(cuda::stream_ref stream) { state_->forget(stream.get()); }

  [[nodiscard]] figures stats() const
  {
    return {state_->figure(UR_USM_POOL_INFO_USED_CURRENT_EXP),
            state_->figure(UR_USM_POOL_INFO_USED_HIGH_EXP),
            state_->figure(UR_USM_POOL_INFO_RESERVED_CURRENT_EXP),
            state_->figure(UR_USM_POOL_INFO_RESERVED_HIGH_EXP)};
  }

  // Resources are equal if each can free the other's memory.
  [[nodiscard]] bool operator==(memory_resource const& other) const noexcept
  {
    return state_ == other.state_;
  }
  [[nodiscard]] bool operator!=(memory_resource const& other) const noexcept
  {
    return !(*this == other);
  }

  friend constexpr void get_property(memory_resource const&, cuda::mr::device_accessible) noexcept {}

 private:
  static bool is_aligned(void* memory, std::size_t alignment)
  {
    return reinterpret_cast<std::uintptr_t>(memory) % alignment == 0;
  }

  struct state {
    ur_device_handle_t device{};
    ur_context_handle_t context{};
    ur_usm_pool_handle_t pool{};

    state(int ordinal, std::size_t maximum)
    {
      if (ordinal < 0) {
        auto const code = cudaGetDevice(&ordinal);
        if (code != cudaSuccess) { throw rmm::logic_error{cudaGetErrorString(code)}; }
      }
      require(urLoaderInit(0, nullptr), "urLoaderInit");
      device = find(ordinal);
      require(urContextCreate(1, &device, nullptr, &context), "urContextCreate");
      ur_usm_pool_limits_desc_t limits{};
      limits.stype              = UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC;
      limits.maxPoolableSize    = maximum;
      limits.minDriverAllocSize = SIZE_MAX;
      ur_usm_pool_desc_t desc{};
      desc.stype        = UR_STRUCTURE_TYPE_USM_POOL_DESC;
      desc.pNext        = maximum == 0 ? nullptr : &limits;
      auto const result = urUSMPoolCreateExp(context, device, &desc, &pool);
      if (result != UR_RESULT_SUCCESS) { urContextRelease(context); }
      require(result, "urUSMPoolCreateExp");
    }

    state(state const&)            = delete;
    state& operator=(state const&) = delete;

    // The loader stays: other users of it may be in the process.
    ~state()
    {
      for (auto const& [stream, queue] : queues_) {
        urQueueRelease(queue);
      }
      urUSMPoolDestroyExp(context, device, pool);
      urContextRelease(context);
    }

    // The queue of a stream, adopted the first time.
    ur_queue_handle_t queue(cudaStream_t stream)
    {
      {
        std::shared_lock lock{mutex_};
        auto const found = queues_.find(stream);
        if (found != queues_.end()) { return found->second; }
      }
      std::unique_lock lock{mutex_};
      auto const found = queues_.find(stream);
      if (found != queues_.end()) { return found->second; }
      ur_queue_native_properties_t properties{};
      properties.stype = UR_STRUCTURE_TYPE_QUEUE_NATIVE_PROPERTIES;
      ur_queue_handle_t queue{};
      auto const native = reinterpret_cast<ur_native_handle_t>(stream);
      auto const result = urQueueCreateWithNativeHandle(native, context, device, &properties, &queue);
      if (result != UR_RESULT_SUCCESS) {
        throw rmm::bad_alloc{text(result, "urQueueCreateWithNativeHandle")};
      }
      queues_.emplace(stream, queue);
      return queue;
    }

    void forget(cudaStream_t stream)
    {
      std::unique_lock lock{mutex_};
      auto const found = queues_.find(stream);
      if (found == queues_.end()) { return; }
      auto const queue = found->second;
      queues_.erase(found);
      lock.unlock();
      auto const result = urQueueFinish(queue);
      urQueueRelease(queue);
      require(result, "urQueueFinish");
    }

    // Calls `alloc`, and again after a trim if memory lacks.
    template <class Alloc>
    void allocate(Alloc const& alloc, char const* call)
    {
      auto result = alloc();
      if (is_lack(result)) {
        urUSMPoolTrimToExp(context, device, pool, 0);
        result = alloc();
      }
      if (result == UR_RESULT_SUCCESS) { return; }
      if (is_lack(result)) { throw rmm::out_of_memory{text(result, call)}; }
      throw rmm::bad_alloc{text(result, call)};
    }

    std::size_t figure(ur_usm_pool_info_t what) const
    {
      std::size_t value{};
      require(urUSMPoolGetInfoExp(pool, what, &value, nullptr), "urUSMPoolGetInfoExp");
      return value;
    }

   private:
    std::shared_mutex mutex_;
    std::unordered_map<cudaStream_t, ur_queue_handle_t> queues_;

    static bool is_lack(ur_result_t result)
    {
      return result == UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ||
             result == UR_RESULT_ERROR_OUT_OF_HOST_MEMORY || result == UR_RESULT_ERROR_OUT_OF_RESOURCES;
    }

    static std::string text(ur_result_t result, char const* call)
    {
      return std::string{call} + " returned " + std::to_string(static_cast<unsigned>(result));
    }

    static void require(ur_result_t result, char const* call)
    {
      if (result != UR_RESULT_SUCCESS) { throw rmm::logic_error{text(result, call)}; }
    }

    // The device of a CUDA adapter with the driver's ordinal. Adapters stay loaded.
    static ur_device_handle_t find(int ordinal)
    {
      std::uint32_t count{};
      require(urAdapterGet(0, nullptr, &count), "urAdapterGet");
      std::vector<ur_adapter_handle_t> adapters(count);
      if (count > 0) { require(urAdapterGet(count, adapters.data(), nullptr), "urAdapterGet"); }
      for (auto const adapter : adapters) {
        ur_backend_t backend{};
        require(urAdapterGetInfo(
                  adapter, UR_ADAPTER_INFO_BACKEND, sizeof backend, &backend, nullptr),
                "urAdapterGetInfo");
        if (backend != UR_BACKEND_CUDA) { continue; }
        require(urPlatformGet(adapter, 0, nullptr, &count), "urPlatformGet");
        std::vector<ur_platform_handle_t> platforms(count);
        if (count > 0) {
          require(urPlatformGet(adapter, count, platforms.data(), nullptr), "urPlatformGet");
        }
        for (auto const platform : platforms) {
          require(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, 0, nullptr, &count), "urDeviceGet");
          std::vector<ur_device_handle_t> devices(count);
          if (count > 0) {
            require(urDeviceGet(platform, UR_DEVICE_TYPE_ALL, count, devices.data(), nullptr),
                    "urDeviceGet");
          }
          for (auto const device : devices) {
            ur_native_handle_t native{};
            require(urDeviceGetNativeHandle(device, &native), "urDeviceGetNativeHandle");
            if (static_cast<int>(native) == ordinal) { return device; }
          }
        }
      }
      throw rmm::logic_error{"no CUDA adapter has device " + std::to_string(ordinal)};
    }
  };

  std::shared_ptr<state> state_;
};

static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>);

}  // namespace ur
