// Prints values through `ur_print.hpp`, a line each: name, tab, text. tests/print.rs prints the same
// values from Rust and compares both with print.expected, which this program wrote when compiled
// against the reference's header. With an argument it prints everything that can be counted through
// instead: all enumerators of some enums, all calls, all chains.

#include <unified-runtime/ur_print.hpp>

#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

namespace {

template <typename T> std::string text(const T &value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <typename T> void show(const char *name, const T &value) {
  std::cout << name << '\t' << text(value) << '\n';
}

// A handle that is never followed.
template <typename T> T handle(uintptr_t value) { return reinterpret_cast<T>(value); }

void enums() {
  show("result", UR_RESULT_ERROR_INVALID_QUEUE_PROPERTIES);
  show("result unknown", static_cast<ur_result_t>(0x7ffffff0));
  show("version", UR_API_VERSION_0_12);
  show("version unknown", static_cast<ur_api_version_t>(0x30007));
  show("function", UR_FUNCTION_ENQUEUE_USM_FILL_2D);
  show("bit", UR_QUEUE_FLAG_ON_DEVICE);
  show("bits are no enumerator", static_cast<ur_queue_flag_t>(3));
}

ur_queue_properties_t queue(uint32_t flags) { return {UR_STRUCTURE_TYPE_QUEUE_PROPERTIES, nullptr, flags}; }

void flags() {
  show("flags none", queue(0));
  show("flags one", queue(UR_QUEUE_FLAG_PROFILING_ENABLE));
  show("flags two", queue(UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE | UR_QUEUE_FLAG_PROFILING_ENABLE));
  show("flags unknown", queue(0x80000000));
  show("flags some unknown", queue(UR_QUEUE_FLAG_PROFILING_ENABLE | 0x00300000));
}

void structs() {
  show("rect", ur_rect_offset_t{1, 2, 3});
  ur_exp_image_copy_region_t region{UR_STRUCTURE_TYPE_EXP_IMAGE_COPY_REGION, nullptr, {1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  show("nested", region);
  show("array", ur_exp_sampler_addr_modes_t{UR_STRUCTURE_TYPE_EXP_SAMPLER_ADDR_MODES,
                                            nullptr,
                                            {UR_SAMPLER_ADDRESSING_MODE_NONE, UR_SAMPLER_ADDRESSING_MODE_CLAMP,
                                             UR_SAMPLER_ADDRESSING_MODE_REPEAT}});
  show("bool", ur_sampler_desc_t{UR_STRUCTURE_TYPE_SAMPLER_DESC, nullptr, true, UR_SAMPLER_ADDRESSING_MODE_REPEAT,
                                 UR_SAMPLER_FILTER_MODE_LINEAR});
  show("ur_bool_t",
       ur_exp_command_buffer_desc_t{UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC, nullptr, true, false, true});
  show("float", ur_exp_sampler_mip_properties_t{UR_STRUCTURE_TYPE_EXP_SAMPLER_MIP_PROPERTIES, nullptr, 0.1F, 1234567.0F,
                                                -2.5e-7F, UR_SAMPLER_FILTER_MODE_NEAREST});
  show("negative", ur_exp_file_descriptor_t{UR_STRUCTURE_TYPE_EXP_FILE_DESCRIPTOR, nullptr, -1});
  show("strings", ur_code_location_t{"main", "main.cpp", 12, 3});
  show("string null", ur_code_location_t{nullptr, nullptr, 0, 0});
  show("bare null", ur_exp_command_buffer_update_pointer_arg_desc_t{
                        UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_POINTER_ARG_DESC, nullptr, 1, nullptr, nullptr});
  show("handle", ur_usm_pool_buffer_desc_t{UR_STRUCTURE_TYPE_USM_POOL_BUFFER_DESC, nullptr, nullptr, 64,
                                           UR_USM_TYPE_DEVICE, handle<ur_device_handle_t>(0x1000)});
}

void unions() {
  ur_device_partition_property_t partition{};
  partition.type = UR_DEVICE_PARTITION_EQUALLY;
  partition.value.equally = 4;
  show("union", partition);
  partition.type = UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN;
  show("union of flags", partition);
  partition.type = UR_DEVICE_PARTITION_BY_CSLICE;
  show("union without member", partition);
  show("pointer to union", ur_device_partition_properties_t{UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES, nullptr,
                                                            &partition, 1});
  ur_exp_kernel_arg_properties_t argument{};
  argument.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES;
  argument.type = UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ;
  argument.value.memObjTuple = {handle<ur_mem_handle_t>(0x2000), UR_MEM_FLAG_READ_ONLY};
  show("union of struct", argument);

  ur_program_metadata_t metadata[2]{};
  metadata[0] = {"answer", UR_PROGRAM_METADATA_TYPE_UINT64, 8, {}};
  metadata[0].value.data64 = 1ULL << 40;
  metadata[1] = {"target", UR_PROGRAM_METADATA_TYPE_STRING, 4, {}};
  char target[] = "spir64";
  metadata[1].value.pString = target;
  show("list", ur_program_properties_t{UR_STRUCTURE_TYPE_PROGRAM_PROPERTIES, nullptr, 2, metadata});
  show("list empty", ur_program_properties_t{UR_STRUCTURE_TYPE_PROGRAM_PROPERTIES, nullptr, 0, metadata});
  show("list null", ur_program_properties_t{UR_STRUCTURE_TYPE_PROGRAM_PROPERTIES, nullptr, 2, nullptr});
}

void chains() {
  ur_usm_alloc_location_desc_t third{UR_STRUCTURE_TYPE_USM_ALLOC_LOCATION_DESC, nullptr, 7};
  ur_usm_host_desc_t second{UR_STRUCTURE_TYPE_USM_HOST_DESC, &third, 0};
  ur_usm_desc_t first{UR_STRUCTURE_TYPE_USM_DESC, &second, UR_USM_ADVICE_FLAG_SET_READ_MOSTLY, 64};
  show("chain", first);
  third.stype = static_cast<ur_structure_type_t>(0x7ffffff0);
  show("chain unknown", first);
}

void calls() {
  auto context = handle<ur_context_handle_t>(0x1000);
  auto device = handle<ur_device_handle_t>(0x2000);
  auto q = handle<ur_queue_handle_t>(0x3000);

  ur_queue_properties_t properties = queue(UR_QUEUE_FLAG_PROFILING_ENABLE);
  const ur_queue_properties_t *p_properties = &properties;
  ur_queue_handle_t *p_queue = &q;
  ur_queue_create_params_t create{&context, &device, &p_properties, &p_queue};
  show("call", static_cast<const ur_queue_create_params_t *>(&create));
  p_properties = nullptr;
  p_queue = nullptr;
  show("call null", static_cast<const ur_queue_create_params_t *>(&create));

  ur_event_handle_t events[] = {handle<ur_event_handle_t>(0x10), handle<ur_event_handle_t>(0x20), nullptr};
  const ur_event_handle_t *waits = events;
  uint32_t count = 3;
  ur_event_handle_t *event = &events[2];
  ur_enqueue_events_wait_params_t wait{&q, &count, &waits, &event};
  show("wait list", static_cast<const ur_enqueue_events_wait_params_t *>(&wait));
  count = 0;
  waits = nullptr;
  show("wait list null", static_cast<const ur_enqueue_events_wait_params_t *>(&wait));

  auto kernel = handle<ur_kernel_handle_t>(0x4000);
  uint32_t dimensions = 2;
  size_t sizes[] = {64, 32};
  const size_t *offset = nullptr, *global = sizes, *local = nullptr;
  uint32_t arguments = 0;
  const ur_kernel_launch_ext_properties_t *launch = nullptr;
  const ur_exp_kernel_arg_properties_t *args = nullptr;
  ur_enqueue_kernel_launch_with_args_exp_params_t kernel_launch{&q,    &kernel,    &dimensions, &offset, &global, &local,
                                                                &arguments, &args, &launch,     &count,  &waits,  &event};
  show("first only", static_cast<const ur_enqueue_kernel_launch_with_args_exp_params_t *>(&kernel_launch));

  ur_native_handle_t native = 0x5000;
  ur_native_handle_t *p_native = &native;
  ur_context_get_native_handle_params_t get_native{&context, &p_native};
  show("native handle out", static_cast<const ur_context_get_native_handle_params_t *>(&get_native));

  ur_event_callback_t callback = nullptr;
  ur_execution_info_t status = UR_EXECUTION_INFO_COMPLETE;
  void *data = nullptr;
  ur_event_set_callback_params_t set_callback{&events[0], &status, &callback, &data};
  show("callback null", static_cast<const ur_event_set_callback_params_t *>(&set_callback));
}

void info(const char *name, ur_device_info_t property, const void *bytes, size_t size) {
  auto device = handle<ur_device_handle_t>(0x2000);
  void *value = const_cast<void *>(bytes);
  size_t *size_ret = nullptr;
  ur_device_get_info_params_t call{&device, &property, &size, &value, &size_ret};
  show(name, static_cast<const ur_device_get_info_params_t *>(&call));
}

void infos() {
  const uint32_t words[] = {UR_DEVICE_TYPE_GPU, 2, 3, 4};
  const size_t sizes[] = {1024, 512, 64};
  const ur_device_handle_t devices[] = {handle<ur_device_handle_t>(0x10), nullptr};
  info("info enum", UR_DEVICE_INFO_TYPE, words, 4);
  info("info too small", UR_DEVICE_INFO_TYPE, words, 2);
  info("info null", UR_DEVICE_INFO_TYPE, nullptr, 4);
  info("info unknown", static_cast<ur_device_info_t>(0x7ffffff0), words, 4);
  info("info number", UR_DEVICE_INFO_VENDOR_ID, words, sizeof(words));
  info("info flags", UR_DEVICE_INFO_QUEUE_PROPERTIES, words, 4);
  info("info bool", UR_DEVICE_INFO_IMAGE_SUPPORT, words, 1);
  info("info string", UR_DEVICE_INFO_NAME, "a device", 9);
  info("info list", UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES, sizes, sizeof(sizes));
  info("info bytes", UR_DEVICE_INFO_UUID, words, 5);
  info("info handle", UR_DEVICE_INFO_PARENT_DEVICE, devices, sizeof(devices[0]));
  info("info handles", UR_DEVICE_INFO_COMPONENT_DEVICES, devices, sizeof(devices));
}

// Every value below `end` that has a name.
template <typename T> void names(unsigned end) {
  for (unsigned value = 0; value < end; ++value) {
    const std::string name = text(static_cast<T>(value));
    if (name != "unknown enumerator") {
      std::cout << value << '\t' << name << '\n';
    }
  }
}

void sweep() {
  names<ur_function_t>(0x1000);
  names<ur_result_t>(0x1000);
  names<ur_structure_type_t>(0xa000);
  names<ur_device_info_t>(0xa000);
  names<ur_command_t>(0xa000);

  alignas(16) static char zero[1024];
  void *arguments[32];
  for (void *&argument : arguments) {
    argument = zero;
  }
  for (unsigned function = 0; function < 0x1000; ++function) {
    std::ostringstream out;
    if (ur::extras::printFunctionParams(out, static_cast<ur_function_t>(function), arguments) == UR_RESULT_SUCCESS) {
      std::cout << function << '\t' << out.str() << '\n';
    }
  }
  for (uint32_t tag = 0; tag < 0xa000; ++tag) {
    alignas(16) char next[1024] = {};
    std::memcpy(next, &tag, sizeof(tag));
    ur_queue_properties_t properties = queue(0);
    properties.pNext = next;
    const std::string chain = text(properties);
    if (chain.find("unknown") == std::string::npos) {
      std::cout << tag << '\t' << chain << '\n';
    }
  }
}

} // namespace

int main(int count, char **) {
  if (count > 1) {
    sweep();
    return 0;
  }
  enums();
  flags();
  structs();
  unions();
  chains();
  calls();
  infos();
}
