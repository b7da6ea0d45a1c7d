//! Changes to the commands of a regular list that was created for it.

use std::ffi::c_void;
use std::sync::Arc;

use ze::*;

use crate::entry::{Answer, chain, given, put};
use crate::kernel::Launch;
use crate::object::hold;
use crate::worker::{Step, Work};
use crate::{event, list};

/// What a command may be asked to let change.
pub const FLAGS: ze_mutable_command_exp_flags_t = ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE
    | ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET
    | ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT
    | ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS;

/// Changes a command.
fn change(
    list: ze_command_list_handle_t,
    id: u64,
    change: impl FnOnce(&mut Step) -> Answer,
) -> Answer {
    let list = list::get(list)?;
    let mut recorded = hold(list.recorded()?);
    let place = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
    let place = place.and_then(|place| recorded.named.get(place).copied());
    let step = place.and_then(|place| recorded.steps.get_mut(place));
    change(step.ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?)
}

/// Changes a launch. Executions that were submitted keep theirs.
fn change_launch(
    list: ze_command_list_handle_t,
    id: u64,
    set: impl FnOnce(&mut Launch) -> Answer,
) -> Answer {
    change(list, id, |step| {
        let Work::Launch(launch) = &*step.work else {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        };
        let mut launch = launch.clone();
        set(&mut launch)?;
        step.work = Arc::new(Work::Launch(launch));
        Ok(())
    })
}

/// Makes the change of one structure of a chain.
///
/// # Safety
/// The address is of a structure with the tag.
unsafe fn apply(
    list: ze_command_list_handle_t,
    tag: ze_structure_type_t,
    at: *mut c_void,
) -> Answer {
    // SAFETY: as the caller promises, for each tag.
    unsafe {
        match tag {
            ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC => {
                let own = *at.cast::<ze_mutable_kernel_argument_exp_desc_t>();
                change_launch(list, own.commandId, |launch| {
                    launch.set_argument(own.argIndex, own.argSize, own.pArgValue)
                })
            }
            ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC => {
                let own = *at.cast::<ze_mutable_group_count_exp_desc_t>();
                let counts = *given(own.pGroupCount)?;
                change_launch(list, own.commandId, |launch| {
                    launch.set_counts(counts);
                    Ok(())
                })
            }
            ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC => {
                let own = *at.cast::<ze_mutable_group_size_exp_desc_t>();
                let size = [own.groupSizeX, own.groupSizeY, own.groupSizeZ];
                change_launch(list, own.commandId, |launch| launch.set_group_size(size))
            }
            ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC => {
                let own = *at.cast::<ze_mutable_global_offset_exp_desc_t>();
                change_launch(list, own.commandId, |launch| {
                    launch.set_offset([own.offsetX, own.offsetY, own.offsetZ]);
                    Ok(())
                })
            }
            _ => Err(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION),
        }
    }
}

entries! {
    fn zeCommandListGetNextCommandIdExp(
        list: ze_command_list_handle_t, desc: *const ze_mutable_command_id_exp_desc_t, out: *mut u64,
    ) {
        let list = list::get(list)?;
        let wanted = given(desc)?.flags;
        given(out)?;
        if !list.is_mutable() || wanted & !FLAGS != 0 {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let mut recorded = hold(list.recorded()?);
        let next = recorded.steps.len();
        recorded.named.push(next);
        put(out, recorded.named.len() as u64)
    }

    fn zeCommandListUpdateMutableCommandsExp(
        list: ze_command_list_handle_t, desc: *const ze_mutable_commands_exp_desc_t,
    ) {
        for (tag, at) in chain(given(desc)?.pNext) {
            apply(list, tag, at)?;
        }
        Ok(())
    }

    fn zeCommandListUpdateMutableCommandSignalEventExp(
        list: ze_command_list_handle_t, id: u64, signal: ze_event_handle_t,
    ) {
        let signal = event::maybe(signal)?;
        change(list, id, |step| {
            step.signal = signal;
            Ok(())
        })
    }

    fn zeCommandListUpdateMutableCommandWaitEventsExp(
        list: ze_command_list_handle_t, id: u64, count: u32, waits: *mut ze_event_handle_t,
    ) {
        let waits = event::list(waits, count)?;
        change(list, id, |step| {
            step.waits = waits;
            Ok(())
        })
    }
}
