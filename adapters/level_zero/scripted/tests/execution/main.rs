//! The driver alone and behind the loaders 1.8 and 1.32: data, order, kernels, changed lists, pages, faults.

mod client;
mod ways;

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use client::*;
use ways::everywhere;
use ze::*;

#[test]
fn copies_and_fills_move_bytes() {
    everywhere("copies_and_fills_move_bytes", &[], |library| {
        let own = Client::open(library);
        let list = own.immediate();
        let words: Vec<u32> = (0..4096).collect();
        let bytes = size_of_val(&words[..]);
        let (from, to) = (own.host_memory(&words), own.host_memory(&words));
        let middle = own.device_memory(bytes);
        let pattern = 0xabcd_u16;
        let pattern_at = (&raw const pattern).cast();
        own.copy(list, middle, from, bytes, NONE);
        good!(
            own,
            zeCommandListAppendMemoryFill(list, middle, pattern_at, 2, 64, NONE, 0, null_mut())
        );
        own.copy(list, to, middle, bytes, NONE);
        own.finish(list);
        let there = read::<u32>(to, 4096);
        assert_eq!(there[..16], [0xabcd_abcd; 16]);
        assert_eq!(there[16..], words[16..]);

        // 4 rows of 8 bytes, from a pitch of 64 to a pitch of 16.
        let region = |x, y| ze_copy_region_t {
            originX: x,
            originY: y,
            width: 8,
            height: 4,
            ..Default::default()
        };
        let (near, far) = (region(0, 0), region(4, 2));
        good!(
            own,
            zeCommandListAppendMemoryCopyRegion(
                list,
                to,
                &near,
                16,
                0,
                from,
                &far,
                64,
                0,
                NONE,
                0,
                null_mut()
            )
        );
        own.finish(list);
        let there = read::<u32>(to, 16);
        for row in 0..4 {
            let first = u32::try_from((row + 2) * 16 + 1).expect("small");
            assert_eq!(there[row * 4..row * 4 + 2], [first, first + 1], "row {row}");
        }

        let code = call!(
            own,
            zeCommandListAppendMemoryFill(list, to, pattern_at, 3, 6, NONE, 0, null_mut())
        );
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_SIZE);
        let mut facts = ze_memory_allocation_properties_t::default();
        let mut home = ze_device_handle_t::NULL;
        let inside = middle.wrapping_byte_add(100).cast_const();
        good!(
            own,
            zeMemGetAllocProperties(own.context, inside, &mut facts, &mut home)
        );
        assert_eq!(
            (facts.r#type, home.is_null()),
            (ZE_MEMORY_TYPE_DEVICE, false)
        );
        let (mut base, mut size) = (null_mut(), 0);
        good!(
            own,
            zeMemGetAddressRange(own.context, inside, &mut base, &mut size)
        );
        assert_eq!((base, size), (middle, bytes));
        own.free(&[from, to, middle]);
        good!(own, zeCommandListDestroy(list));
        own.close();
        no_leak();
    });
}

#[test]
fn events_order_lists() {
    everywhere("events_order_lists", &[], |library| {
        let own = Client::open(library);
        let (first, second) = (own.immediate(), own.immediate());
        let (pool, events) = own.events(ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, 2);
        let (gate, timed) = (events[0], events[1]);
        let [a, b, c] = [1_u64, 2, 3].map(|value| own.host_memory(&[value]));
        // The second list copies what the first one copies, which waits for the host.
        own.wait(first, gate);
        own.copy(first, b, a, 8, timed);
        own.wait(second, timed);
        own.copy(second, c, b, 8, NONE);
        assert_eq!(call!(own, zeEventQueryStatus(timed)), ZE_RESULT_NOT_READY);
        assert_eq!(
            call!(own, zeEventHostSynchronize(timed, 1_000_000)),
            ZE_RESULT_NOT_READY
        );
        assert_eq!(read::<u64>(c, 1), [3]);
        good!(own, zeEventHostSignal(gate));
        own.finish(second);
        assert_eq!(read::<u64>(c, 1), [1]);
        good!(own, zeEventQueryStatus(timed));
        let mut times = ze_kernel_timestamp_result_t::default();
        good!(own, zeEventQueryKernelTimestamp(timed, &mut times));
        assert!(0 < times.global.kernelStart && times.global.kernelStart <= times.global.kernelEnd);

        own.finish(first);
        own.destroy_events(pool, &events);
        own.free(&[a, b, c]);
        good!(own, zeCommandListDestroy(first));
        good!(own, zeCommandListDestroy(second));
        own.close();
        no_leak();
    });
}

#[test]
fn a_counter_based_event_is_of_its_time() {
    everywhere("a_counter_based_event_is_of_its_time", &[], |library| {
        let own = Client::open(library);
        let event = own.counter_based()();
        let (first, second) = (own.immediate(), own.immediate());
        let (pool, gates) = own.events(0, 1);
        good!(own, zeEventQueryStatus(event));
        let mut waited = event;
        let code = call!(own, zeCommandListAppendWaitOnEvents(first, 1, &mut waited));
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT, "never signalled");
        assert_eq!(
            call!(own, zeEventHostSignal(event)),
            ZE_RESULT_ERROR_INVALID_ARGUMENT
        );
        good!(own, zeCommandListAppendSignalEvent(first, event));
        own.wait(second, event);
        // The later signal, behind a closed gate, is nothing to the earlier wait.
        own.wait(first, gates[0]);
        good!(own, zeCommandListAppendSignalEvent(first, event));
        own.finish(second);
        assert_eq!(call!(own, zeEventQueryStatus(event)), ZE_RESULT_NOT_READY);
        good!(own, zeEventHostSignal(gates[0]));
        good!(own, zeEventHostSynchronize(event, u64::MAX));
        own.finish(first);
        own.destroy_events(pool, &gates);
        good!(own, zeEventDestroy(event));
        good!(own, zeCommandListDestroy(first));
        good!(own, zeCommandListDestroy(second));
        own.close();
        no_leak();
    });
}

#[test]
fn a_closed_list_runs_again() {
    everywhere("a_closed_list_runs_again", &[], |library| {
        let own = Client::open(library);
        let words = [7_u64, 0, 0, 0];
        let memory = own.host_memory(&words);
        let mut list = ze_command_list_handle_t::NULL;
        let desc = ze_command_list_desc_t::default();
        good!(
            own,
            zeCommandListCreate(own.context, own.device, &desc, &mut list)
        );
        // Moves three words up by one: each run carries the first word further.
        own.copy(list, memory.wrapping_byte_add(8), memory, 24, NONE);
        good!(own, zeCommandListClose(list));
        let code = call!(
            own,
            zeCommandListAppendMemoryCopy(list, memory, memory, 8, NONE, 0, null_mut())
        );
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT, "the list is closed");
        let mut queue = ze_command_queue_handle_t::NULL;
        let desc = ze_command_queue_desc_t::default();
        good!(
            own,
            zeCommandQueueCreate(own.context, own.device, &desc, &mut queue)
        );
        let mut fence = ze_fence_handle_t::NULL;
        let desc = ze_fence_desc_t::default();
        good!(own, zeFenceCreate(queue, &desc, &mut fence));
        good!(
            own,
            zeCommandQueueExecuteCommandLists(queue, 1, &mut list, ze_fence_handle_t::NULL)
        );
        good!(
            own,
            zeCommandQueueExecuteCommandLists(queue, 1, &mut list, fence)
        );
        good!(own, zeFenceHostSynchronize(fence, u64::MAX));
        assert_eq!(read::<u64>(memory, 4), [7, 7, 7, 0]);
        match own.api.zeCommandListImmediateAppendCommandListsExp {
            Some(append) => {
                let immediate = own.immediate();
                // SAFETY: live lists.
                let code = unsafe { append(immediate, 1, &mut list, NONE, 0, null_mut()) };
                assert_eq!(code, ZE_RESULT_SUCCESS);
                own.finish(immediate);
                assert_eq!(read::<u64>(memory, 4), [7; 4]);
                good!(own, zeCommandListDestroy(immediate));
            }
            None => println!("skipped: this loader appends no lists"),
        }
        good!(own, zeFenceDestroy(fence));
        good!(own, zeCommandQueueDestroy(queue));
        good!(own, zeCommandListDestroy(list));
        own.free(&[memory]);
        own.close();
        // The append to a closed list is what the test asked for.
        assert_eq!(state().live, 0, "{}", report());
    });
}

#[test]
fn kernels_run() {
    everywhere("kernels_run", &[], |library| {
        let own = Client::open(library);
        let spirv = ways::kernels();
        assert_eq!(
            own.module(ZE_MODULE_FORMAT_IL_SPIRV, &spirv[..64]),
            Err(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)
        );
        let module = own
            .module(ZE_MODULE_FORMAT_IL_SPIRV, &spirv)
            .expect("the kernels compile");
        let mut size = 0;
        good!(own, zeModuleGetNativeBinary(module, &mut size, null_mut()));
        let mut binary = vec![0; size];
        good!(
            own,
            zeModuleGetNativeBinary(module, &mut size, binary.as_mut_ptr())
        );
        let again = own
            .module(ZE_MODULE_FORMAT_NATIVE, &binary)
            .expect("its binary is a module");
        assert_eq!(
            own.module(ZE_MODULE_FORMAT_NATIVE, &binary[..size - 1]),
            Err(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY)
        );
        assert_eq!(
            own.kernel(module, c"nothing"),
            Err(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
        );
        let [iota, sum] = [c"iota", c"sum"].map(|name| own.kernel(again, name).expect("a kernel"));
        let mut facts = ze_kernel_properties_t::default();
        good!(own, zeKernelGetProperties(sum, &mut facts));
        assert_eq!(facts.numKernelArgs, 3);

        let list = own.immediate();
        let [out, a, b] = [0, 1, 2].map(|_| own.device_memory(4096));
        let words = 1024_u32;
        assert_eq!(
            own.argument(iota, 2, &0_u32),
            ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX
        );
        assert_eq!(
            own.argument(iota, 1, &0_u64),
            ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE
        );
        assert_eq!(
            own.launch(list, iota, 1),
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            "arguments are missing"
        );
        assert_eq!(
            call!(own, zeKernelSetGroupSize(iota, 2048, 1, 1)),
            ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION
        );
        good!(own, zeKernelSetGroupSize(iota, 16, 1, 1));
        good!(own, zeKernelSetGroupSize(sum, 16, 1, 1));
        // The same handle twice: a launch has the arguments of its time.
        for (memory, base) in [(a, 5_u32), (b, 1000)] {
            assert_eq!(own.argument(iota, 0, &memory), ZE_RESULT_SUCCESS);
            assert_eq!(own.argument(iota, 1, &base), ZE_RESULT_SUCCESS);
            assert_eq!(own.launch(list, iota, words / 16), ZE_RESULT_SUCCESS);
        }
        for (index, memory) in (0..).zip([out, a, b]) {
            assert_eq!(own.argument(sum, index, &memory), ZE_RESULT_SUCCESS);
        }
        assert_eq!(own.launch(list, sum, words / 16), ZE_RESULT_SUCCESS);
        let seen = own.host_memory(&vec![0_u32; 1024]);
        own.copy(list, seen, out, 4096, NONE);
        own.finish(list);
        let there = read::<u32>(seen, 1024);
        if std::env::var_os("OCL_ICD_FILENAMES").is_none() {
            println!("skipped: no OpenCL, launches do nothing");
        } else {
            let expected: Vec<u32> = (0..words).map(|index| 1005 + 2 * index).collect();
            assert_eq!(there, expected);
            with_arguments(&own, iota, list, out, seen);
        }
        own.free(&[out, a, b, seen]);
        good!(own, zeCommandListDestroy(list));
        good!(own, zeKernelDestroy(iota));
        good!(own, zeKernelDestroy(sum));
        good!(own, zeModuleDestroy(module));
        good!(own, zeModuleDestroy(again));
        own.close();
        no_leak();
    });
}

/// A launch with its arguments in one call, which old loaders do not have.
fn with_arguments(
    own: &Client,
    iota: ze_kernel_handle_t,
    list: ze_command_list_handle_t,
    out: *mut c_void,
    seen: *mut c_void,
) {
    let Some(launch) = own.api.zeCommandListAppendLaunchKernelWithArguments else {
        println!("skipped: this loader launches without arguments");
        return;
    };
    let (mut memory, mut base) = (out, 70_u32);
    let mut arguments = [(&raw mut memory).cast::<c_void>(), (&raw mut base).cast()];
    let counts = ze_group_count_t {
        groupCountX: 2,
        groupCountY: 1,
        groupCountZ: 1,
    };
    let sizes = ze_group_size_t {
        groupSizeX: 4,
        groupSizeY: 1,
        groupSizeZ: 1,
    };
    // SAFETY: the kernel has two parameters.
    let code = unsafe {
        launch(
            list,
            iota,
            counts,
            sizes,
            arguments.as_mut_ptr(),
            NOWHERE,
            NONE,
            0,
            null_mut(),
        )
    };
    assert_eq!(code, ZE_RESULT_SUCCESS);
    own.copy(list, seen, out, 32, NONE);
    own.finish(list);
    assert_eq!(read::<u32>(seen, 8), [70, 71, 72, 73, 74, 75, 76, 77]);
}

#[test]
fn a_recorded_launch_changes() {
    everywhere("a_recorded_launch_changes", &[], |library| {
        let own = Client::open(library);
        let (Some(name), Some(update), Some(set_signal)) = (
            own.api.zeCommandListGetNextCommandIdExp,
            own.api.zeCommandListUpdateMutableCommandsExp,
            own.api.zeCommandListUpdateMutableCommandSignalEventExp,
        ) else {
            println!("skipped: this loader changes no lists");
            return own.close();
        };
        let module = own
            .module(ZE_MODULE_FORMAT_IL_SPIRV, &ways::kernels())
            .expect("the kernels compile");
        let iota = own.kernel(module, c"iota").expect("a kernel");
        let memory = own.host_memory(&[0_u32; 8]);
        let list_desc = ze_mutable_command_list_exp_desc_t::default();
        let desc = ze_command_list_desc_t {
            pNext: (&raw const list_desc).cast(),
            ..Default::default()
        };
        let mut list = ze_command_list_handle_t::NULL;
        good!(
            own,
            zeCommandListCreate(own.context, own.device, &desc, &mut list)
        );
        assert_eq!(own.argument(iota, 0, &memory), ZE_RESULT_SUCCESS);
        assert_eq!(own.argument(iota, 1, &5_u32), ZE_RESULT_SUCCESS);
        good!(own, zeKernelSetGroupSize(iota, 2, 1, 1));
        let mut id = 0;
        let wanted = ze_mutable_command_id_exp_desc_t {
            flags: ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS
                | ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT,
            ..Default::default()
        };
        // SAFETY: a live list.
        let code = unsafe { name(list, &wanted, &mut id) };
        assert_eq!(code, ZE_RESULT_SUCCESS);
        assert_eq!(own.launch(list, iota, 2), ZE_RESULT_SUCCESS);
        good!(own, zeCommandListClose(list));

        let mut queue = ze_command_queue_handle_t::NULL;
        let desc = ze_command_queue_desc_t {
            mode: ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
            ..Default::default()
        };
        good!(
            own,
            zeCommandQueueCreate(own.context, own.device, &desc, &mut queue)
        );
        let run = |mut list| {
            good!(
                own,
                zeCommandQueueExecuteCommandLists(queue, 1, &mut list, ze_fence_handle_t::NULL)
            );
        };
        run(list);
        let has_kernels = std::env::var_os("OCL_ICD_FILENAMES").is_some();
        if has_kernels {
            assert_eq!(read::<u32>(memory, 8), [5, 6, 7, 8, 0, 0, 0, 0]);
        } else {
            println!("skipped: no OpenCL, launches do nothing");
        }

        let (base, counts) = (
            70_u32,
            ze_group_count_t {
                groupCountX: 3,
                groupCountY: 1,
                groupCountZ: 1,
            },
        );
        let more = ze_mutable_group_count_exp_desc_t {
            commandId: id,
            pGroupCount: &counts,
            ..Default::default()
        };
        let mut value = ze_mutable_kernel_argument_exp_desc_t {
            pNext: (&raw const more).cast(),
            commandId: id,
            argIndex: 1,
            argSize: 4,
            pArgValue: (&raw const base).cast(),
            ..Default::default()
        };
        let change = |first: &ze_mutable_kernel_argument_exp_desc_t| {
            let desc = ze_mutable_commands_exp_desc_t {
                pNext: (&raw const *first).cast(),
                ..Default::default()
            };
            // SAFETY: the chain lives until the call is over.
            unsafe { update(list, &desc) }
        };
        assert_eq!(change(&value), ZE_RESULT_SUCCESS);
        let (pool, events) = own.events(0, 1);
        // SAFETY: live handles.
        let code = unsafe { set_signal(list, id, events[0]) };
        assert_eq!(code, ZE_RESULT_SUCCESS);
        good!(own, zeCommandListClose(list));
        run(list);
        good!(own, zeEventQueryStatus(events[0]));
        if has_kernels {
            assert_eq!(read::<u32>(memory, 8), [70, 71, 72, 73, 74, 75, 0, 0]);
        }
        value.argIndex = 2;
        assert_eq!(
            change(&value),
            ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX
        );
        value.commandId = id + 1;
        assert_eq!(
            change(&value),
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            "no such command"
        );

        own.destroy_events(pool, &events);
        good!(own, zeCommandQueueDestroy(queue));
        good!(own, zeCommandListDestroy(list));
        good!(own, zeKernelDestroy(iota));
        good!(own, zeModuleDestroy(module));
        own.free(&[memory]);
        own.close();
        no_leak();
    });
}

/// Commands of a captured list, and of one that waits for its event, run when the graph is appended.
#[test]
fn a_captured_list_becomes_a_graph() {
    everywhere("a_captured_list_becomes_a_graph", &[], |library| {
        let own = Client::open(library);
        let api = &own.api;
        let (Some(begin), Some(end), Some(make), Some(append)) = (
            api.zeCommandListBeginGraphCaptureExt,
            api.zeCommandListEndGraphCaptureExt,
            api.zeGraphInstantiateExt,
            api.zeCommandListAppendGraphExt,
        ) else {
            println!("skipped: this loader has no graphs");
            return own.close();
        };
        let (list, other) = (own.immediate(), own.immediate());
        let words = [7_u32; 16];
        let (from, middle, to) = (
            own.host_memory(&words),
            own.host_memory(&[0_u32; 16]),
            own.host_memory(&[0_u32; 16]),
        );
        let (pool, events) = own.events(0, 2);
        let (fork, join) = (events[0], events[1]);
        let mut graph = ze_graph_handle_t::NULL;
        let mut made = ze_executable_graph_handle_t::NULL;
        // SAFETY: live lists, events and graphs, and room for each answer.
        unsafe {
            assert_eq!(begin(list, null()), ZE_RESULT_SUCCESS);
            own.copy(list, middle, from, 64, fork);
            own.wait(other, fork);
            own.copy(other, to, middle, 64, join);
            own.wait(list, join);
            assert_eq!(read::<u32>(to, 16), [0; 16]);
            let code = api.zeCommandListHostSynchronize.map(|wait| wait(list, 0));
            assert_eq!(code, Some(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE));
            assert_eq!(end(list, null(), &mut graph), ZE_RESULT_SUCCESS);
            let empty = api.zeGraphIsEmptyExt.map(|ask| ask(graph));
            assert_eq!(empty, Some(ZE_RESULT_QUERY_FALSE));
            assert_eq!(make(graph, null(), &mut made), ZE_RESULT_SUCCESS);
            for value in [9_u32, 11] {
                from.cast::<u32>().write(value);
                let code = append(list, made, null(), NONE, 0, null_mut());
                assert_eq!(code, ZE_RESULT_SUCCESS);
                own.finish(list);
                assert_eq!(read::<u32>(to, 2), [value, 7]);
            }
        }
        // The graph's events are its own: the list's was never signalled.
        assert_eq!(call!(own, zeEventQueryStatus(join)), ZE_RESULT_NOT_READY);
        // The list that joined is free again.
        own.copy(other, middle, to, 64, NONE);
        own.finish(other);
        // SAFETY: live graphs, which nothing runs.
        unsafe {
            assert_eq!(
                api.zeExecutableGraphDestroyExt.map(|destroy| destroy(made)),
                Some(ZE_RESULT_SUCCESS)
            );
            assert_eq!(
                api.zeGraphDestroyExt.map(|destroy| destroy(graph)),
                Some(ZE_RESULT_SUCCESS)
            );
        }
        own.destroy_events(pool, &events);
        for one in [list, other] {
            good!(own, zeCommandListDestroy(one));
        }
        own.free(&[from, middle, to]);
        own.close();
        no_leak();
    });
}

#[test]
fn a_card_has_tiles() {
    let tiles = [("SCRIPTED_LEVEL_ZERO_TILES", "2")];
    everywhere("a_card_has_tiles", &tiles, |library| {
        let own = Client::open(library);
        let (mut count, mut tiles) = (2, [ze_device_handle_t::NULL; 2]);
        good!(
            own,
            zeDeviceGetSubDevices(own.device, &mut count, tiles.as_mut_ptr())
        );
        assert_eq!(count, 2);
        for (index, tile) in (0..).zip(tiles) {
            let mut facts = ze_device_properties_t::default();
            good!(own, zeDeviceGetProperties(tile, &mut facts));
            assert_ne!(facts.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE, 0);
            assert_eq!((facts.subdeviceId, facts.numSlices), (index, 1));
            let mut count = 0;
            good!(own, zeDeviceGetSubDevices(tile, &mut count, null_mut()));
            assert_eq!(count, 0);
        }
        own.close();
        no_leak();
    });
}

#[test]
fn a_page_is_mapped_once() {
    everywhere("a_page_is_mapped_once", &[], |library| {
        let own = Client::open(library);
        let bytes = 1 << 20;
        let mut start = null_mut();
        good!(
            own,
            zeVirtualMemReserve(own.context, NOWHERE, 2 * bytes, &mut start)
        );
        let mut desc = ze_physical_mem_desc_t {
            size: bytes,
            ..Default::default()
        };
        let mut block = ze_physical_mem_handle_t::NULL;
        good!(
            own,
            zePhysicalMemCreate(own.context, own.device, &mut desc, &mut block)
        );
        let access = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
        let second = start.wrapping_byte_add(bytes);
        good!(
            own,
            zeVirtualMemMap(own.context, start, bytes, block, 0, access)
        );
        let code = call!(
            own,
            zeVirtualMemMap(own.context, second, bytes, block, 0, access)
        );
        assert_eq!(code, ZE_RESULT_ERROR_INVALID_ARGUMENT, "a second mapping");
        let list = own.immediate();
        let words = own.host_memory(&[11_u64, 22]);
        own.copy(list, start, words, 16, NONE);
        own.finish(list);
        good!(own, zeVirtualMemUnmap(own.context, start, bytes));
        good!(
            own,
            zeVirtualMemMap(own.context, second, bytes, block, 0, access)
        );
        assert_eq!(
            read::<u64>(second, 2),
            [11, 22],
            "the block keeps its bytes"
        );
        good!(own, zeVirtualMemUnmap(own.context, second, bytes));
        good!(own, zePhysicalMemDestroy(own.context, block));
        good!(own, zeVirtualMemFree(own.context, start, 2 * bytes));
        good!(own, zeCommandListDestroy(list));
        own.free(&[words]);
        own.close();
        no_leak();
    });
}

#[test]
fn a_script_fails_calls_and_loses_the_device() {
    everywhere(
        "a_script_fails_calls_and_loses_the_device",
        &[],
        |library| {
            let own = Client::open(library);
            let fault = Fault {
                nth: 2,
                code: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY.0,
            };
            script().fail(fault, c"zeMemAllocDevice");
            let memory = own.device_memory(64);
            let desc = ze_device_mem_alloc_desc_t::default();
            let mut none = null_mut();
            let code = call!(
                own,
                zeMemAllocDevice(own.context, &desc, 64, 64, own.device, &mut none)
            );
            assert_eq!(
                (code, none),
                (ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, null_mut())
            );
            assert!(state().met);
            assert_eq!(state().live, 2, "{}", report());

            let list = own.immediate();
            let (pool, events) = own.events(0, 1);
            own.wait(list, events[0]);
            // A wait that nobody will end ends with the device.
            let waiter = std::thread::spawn({
                let (wait, event) = (own.api.zeEventHostSynchronize, events[0]);
                // SAFETY: the event lives until the thread has ended.
                move || unsafe { wait(event, u64::MAX) }
            });
            script().lose(true);
            assert_eq!(
                waiter.join().expect("no panic"),
                ZE_RESULT_ERROR_DEVICE_LOST
            );
            assert_eq!(
                call!(own, zeEventQueryStatus(events[0])),
                ZE_RESULT_NOT_READY
            );
            assert_eq!(
                call!(own, zeDeviceGetStatus(own.device)),
                ZE_RESULT_ERROR_DEVICE_LOST
            );
            let code = call!(own, zeCommandListAppendSignalEvent(list, events[0]));
            assert_eq!(code, ZE_RESULT_ERROR_DEVICE_LOST);
            script().fail(Fault::default(), c"");
            good!(own, zeDeviceGetStatus(own.device));

            own.destroy_events(pool, &events);
            good!(own, zeCommandListDestroy(list));
            own.free(&[memory]);
            own.close();
            no_leak();
        },
    );
}

const RGBA8: ze_image_format_t = ze_image_format_t {
    layout: ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8,
    r#type: ZE_IMAGE_FORMAT_TYPE_UINT,
    x: ZE_IMAGE_FORMAT_SWIZZLE_R,
    y: ZE_IMAGE_FORMAT_SWIZZLE_G,
    z: ZE_IMAGE_FORMAT_SWIZZLE_B,
    w: ZE_IMAGE_FORMAT_SWIZZLE_A,
};

fn region([x, y, z]: [u32; 3], [width, height, depth]: [u32; 3]) -> ze_image_region_t {
    ze_image_region_t {
        originX: x,
        originY: y,
        originZ: z,
        width,
        height,
        depth,
    }
}

fn image(own: &Client, desc: &ze_image_desc_t) -> ze_image_handle_t {
    let mut image = ze_image_handle_t::NULL;
    good!(
        own,
        zeImageCreate(own.context, own.device, desc, &mut image)
    );
    image
}

#[test]
fn images_are_written_copied_and_read() {
    everywhere("images_are_written_copied_and_read", &[], |library| {
        let own = Client::open(library);
        let list = own.immediate();
        let flat = ze_image_desc_t {
            r#type: ZE_IMAGE_TYPE_2D,
            format: RGBA8,
            width: 4,
            height: 3,
            depth: 1,
            ..Default::default()
        };
        let layers = ze_image_desc_t {
            r#type: ZE_IMAGE_TYPE_2DARRAY,
            arraylevels: 2,
            ..flat
        };
        let (flat, layers) = (image(&own, &flat), image(&own, &layers));
        let words: Vec<u32> = (0..12).collect();
        let (from, to) = (own.host_memory(&words), own.host_memory(&[0xee_u32; 32]));
        let (all, none) = (std::ptr::null(), std::ptr::null_mut());
        good!(
            own,
            zeCommandListAppendImageCopyFromMemory(list, flat, from, all, NONE, 0, none)
        );
        // Two rows of two pixels, to the second layer, and from there with pitches of 12 and 32 bytes.
        let (source, target) = (region([1, 1, 0], [2, 2, 1]), region([2, 0, 1], [2, 2, 1]));
        good!(
            own,
            zeCommandListAppendImageCopyRegion(list, layers, flat, &target, &source, NONE, 0, none)
        );
        good!(
            own,
            zeCommandListAppendImageCopyToMemoryExt(
                list, to, layers, &target, 12, 32, NONE, 0, none
            )
        );
        own.finish(list);
        let there = read::<u32>(to, 8);
        assert_eq!(there, [5, 6, 0xee, 9, 10, 0xee, 0xee, 0xee]);
        good!(
            own,
            zeCommandListAppendImageCopyToMemory(list, to, flat, all, NONE, 0, none)
        );
        own.finish(list);
        assert_eq!(read::<u32>(to, 12), words);
        let short = call!(
            own,
            zeCommandListAppendImageCopyToMemoryExt(list, to, flat, &source, 4, 0, NONE, 0, none)
        );
        assert_eq!(short, ZE_RESULT_ERROR_INVALID_ARGUMENT);
        good!(own, zeImageDestroy(flat));
        good!(own, zeImageDestroy(layers));
        own.free(&[from, to]);
        good!(own, zeCommandListDestroy(list));
        own.close();
        no_leak();
    });
}

#[test]
fn images_are_refused_and_watched() {
    everywhere("images_are_refused_and_watched", &[], |library| {
        let own = Client::open(library);
        let desc = ze_image_desc_t {
            r#type: ZE_IMAGE_TYPE_1D,
            format: RGBA8,
            width: 4,
            height: 1,
            depth: 1,
            ..Default::default()
        };
        let mut unused = ze_image_handle_t::NULL;
        let mut refused = |desc: ze_image_desc_t| {
            call!(
                own,
                zeImageCreate(own.context, own.device, &desc, &mut unused)
            )
        };
        let wide = ze_image_desc_t {
            width: 1 << 20,
            ..desc
        };
        assert_eq!(refused(wide), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
        let mut unknown = desc;
        unknown.format.layout = ZE_IMAGE_FORMAT_LAYOUT_NV12;
        assert_eq!(refused(unknown), ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT);
        let modes = ze_sampler_desc_t::default();
        let mut sampler = ze_sampler_handle_t::NULL;
        good!(
            own,
            zeSamplerCreate(own.context, own.device, &modes, &mut sampler)
        );
        good!(own, zeSamplerDestroy(sampler));
        assert_eq!(state().broken, 0, "{}", report());

        // A pending copy uses the image.
        let list = own.immediate();
        let (pool, events) = own.events(0, 1);
        let pending = image(&own, &desc);
        let memory = own.host_memory(&[7_u32; 4]);
        own.wait(list, events[0]);
        let none = std::ptr::null_mut();
        good!(
            own,
            zeCommandListAppendImageCopyFromMemory(
                list,
                pending,
                memory,
                std::ptr::null(),
                NONE,
                0,
                none
            )
        );
        good!(own, zeImageDestroy(pending));
        assert_eq!(state().broken, 1, "{}", report());
        good!(own, zeEventHostSignal(events[0]));
        own.finish(list);
        for event in events {
            good!(own, zeEventDestroy(event));
        }
        good!(own, zeEventPoolDestroy(pool));
        own.free(&[memory]);
        good!(own, zeCommandListDestroy(list));
        own.close();
    });
}

#[test]
fn what_is_missing_is_unsupported() {
    everywhere("what_is_missing_is_unsupported", &[], |library| {
        let own = Client::open(library);
        let code = call!(own, zeDeviceReserveCacheExt(own.device, 0, 1));
        assert_eq!(code, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
        assert_eq!(state().missed, 1, "{}", report());
        own.close();
        no_leak();
    });
}

/// Alone, the library has all that a program of version 1.4 may link to.
#[test]
fn a_program_of_1_4_finds_its_functions() {
    let library = ways::driver();
    let old = pfn::SINCE
        .iter()
        .filter(|(name, since)| *since <= ZE_API_VERSION_1_4.0 && is_core(name));
    let names: Vec<_> = old.map(|(name, _)| *name).collect();
    assert!(names.len() > 130, "{}", names.len());
    for name in names {
        symbol::<unsafe extern "C" fn()>(&library, name);
    }
}

/// Whether a function is of the core interface: `ze` and a capital.
fn is_core(name: &str) -> bool {
    name.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase)
}

/// A table as an old loader asks for it is not written past its end, and has no null entry.
#[test]
fn tables_have_the_length_of_their_version() {
    let library = ways::driver();
    for facts in ze::ddi::TABLES {
        for version in [ZE_API_VERSION_1_4, ZE_API_VERSION_1_12, VERSION] {
            let length = facts.length(version);
            let getter = symbol::<unsafe extern "C" fn(ze_api_version_t, *mut usize) -> ze_result_t>(
                &library,
                facts.getter,
            );
            let mut table = vec![0; facts.functions.len() + 1];
            // SAFETY: the table has room for the newest version.
            let code = unsafe { getter(version, table.as_mut_ptr()) };
            let expected = match length {
                0 => ZE_RESULT_ERROR_UNSUPPORTED_VERSION,
                _ => ZE_RESULT_SUCCESS,
            };
            assert_eq!(code, expected, "{} {version:?}", facts.getter);
            assert!(
                table[..length].iter().all(|entry| *entry != 0),
                "{} has null entries",
                facts.getter
            );
            assert!(
                table[length..].iter().all(|entry| *entry == 0),
                "{} is too long",
                facts.getter
            );
        }
    }
    let getter = symbol::<
        unsafe extern "C" fn(ze_api_version_t, *mut ddi::ze_image_dditable_t) -> ze_result_t,
    >(&library, "zeGetImageProcAddrTable");
    let mut table = ddi::ze_image_dditable_t::default();
    // SAFETY: the table is of the newest version.
    assert_eq!(unsafe { getter(VERSION, &mut table) }, ZE_RESULT_SUCCESS);
    let ask = table.pfnGetAllocPropertiesExt.expect("no entry is null");
    let none = (ze_context_handle_t::NULL, ze_image_handle_t::NULL);
    // SAFETY: the function is not implemented and looks at nothing.
    let code = unsafe { ask(none.0, none.1, null_mut()) };
    assert_eq!(code, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
}

/// A fault, as the library has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Fault {
    nth: u64,
    code: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct QueryResult {
    calls: u64,
    met: bool,
    live: usize,
    broken: u64,
    missed: u64,
}

/// The library's own interface.
struct Script;

fn script() -> Script {
    Script
}

impl Script {
    fn fail(&self, fault: Fault, only: &CStr) {
        let library = ways::driver();
        let fail = symbol::<unsafe extern "C" fn(Fault, *const c_char)>(&library, "scripted_fail");
        // SAFETY: a C string.
        unsafe { fail(fault, only.as_ptr()) };
    }

    fn lose(&self, lost: bool) {
        let library = ways::driver();
        symbol::<extern "C" fn(bool)>(&library, "scripted_lose")(lost);
    }
}

fn state() -> QueryResult {
    symbol::<extern "C" fn() -> QueryResult>(&ways::driver(), "scripted_query")()
}

fn report() -> String {
    let write =
        symbol::<unsafe extern "C" fn(*mut c_char, usize)>(&ways::driver(), "scripted_report");
    let mut text = vec![0; 4096];
    // SAFETY: the buffer has its size.
    unsafe { write(text.as_mut_ptr(), text.len()) };
    // SAFETY: the library ends the text.
    unsafe { CStr::from_ptr(text.as_ptr()) }
        .to_string_lossy()
        .into_owned()
}

/// Nothing is alive, and nothing was called that must not be.
fn no_leak() {
    let state = state();
    assert_eq!((state.live, state.broken), (0, 0), "{}", report());
}

/// A function of the library, which stays open.
fn symbol<T: Copy>(library: &Path, name: &str) -> T {
    let path =
        std::ffi::CString::new(library.as_os_str().as_encoded_bytes()).expect("no NUL in a path");
    let name = std::ffi::CString::new(name).expect("no NUL in a name");
    assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
    // SAFETY: the library is open already, or sound to open; the caller gives the function's type.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        let found = libc::dlsym(handle, name.as_ptr());
        assert!(!found.is_null(), "no {name:?}");
        std::mem::transmute_copy(&found)
    }
}
