//! Updates of a finalized command buffer. An update applies from the next submission on and waits
//! for none: running submissions hold their own objects.

use crate::abi::*;
use crate::hal::checks;
use crate::object::{Error, Handles, Object, Result, ensure};
use crate::stream::event::Event;
use crate::stream::recording::command_buffer::{CommandBuffer, RecordedCommand};
use crate::stream::recording::replay::Replay;
use crate::stream::recording::{Arg, Launch};
use crate::stream::{Driver, Work};
use std::sync::Arc;

type Desc = ur_exp_command_buffer_update_kernel_launch_desc_t;

const NO_LAUNCH: Error = Error::new(UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP);

/// `urCommandBufferUpdateKernelLaunchExp`: all updates, or none after an error.
pub(crate) fn launches<D: Driver>(
    buffer: &Object<CommandBuffer<D>>,
    updates: &[Desc],
) -> Result<()> {
    let mut state = buffer.state();
    let replay = buffer.updated(&mut state)?;
    let mut changes: Vec<(usize, Box<Launch<D>>)> = Vec::with_capacity(updates.len());
    for update in updates {
        // SAFETY: the caller's handle, null or of a live command.
        let command =
            unsafe { Object::<RecordedCommand<D>>::borrow(update.hCommand.cast(), D::table()) }?;
        let node = command.node_in(buffer)?;
        let earlier = changes.iter().rposition(|(at, _)| *at == node);
        let mut launch = match earlier {
            Some(at) => changes.swap_remove(at).1,
            None => replay.recording().nodes[node]
                .launch
                .clone()
                .ok_or(NO_LAUNCH)?,
        };
        change(&mut launch, update)?;
        changes.push((node, launch));
    }
    let made = changes.into_iter().map(|(at, launch)| {
        let work = launch.make(buffer.device())?;
        Ok((at, launch, work))
    });
    let made: Vec<_> = made.collect::<Result<_>>()?;
    let mut remade = false;
    for (at, launch, work) in made {
        remade |= !replace_launch(replay, at, launch, work);
    }
    if remade {
        replay.plan(buffer.target(), true);
    }
    Ok(())
}

/// Replaces the launch of a command. False if the units have to be compiled again.
fn replace_launch<D: Driver>(
    replay: &mut Replay<D>,
    at: usize,
    launch: Box<Launch<D>>,
    work: Work<D>,
) -> bool {
    let updated = replay.update(at, &work);
    let node = &mut replay.recording_mut().nodes[at];
    let uses = launch.mems().collect();
    node.launch = Some(launch);
    let before = (
        std::mem::replace(&mut node.work, work),
        std::mem::replace(&mut node.uses, uses),
    );
    replay.retain(before);
    updated
}

fn change<D: Driver>(launch: &mut Launch<D>, update: &Desc) -> Result<()> {
    change_kernel(launch, update)?;
    change_range(launch, update)?;
    // SAFETY: the entry point's caller promises that the lists have these lengths, and that their
    // pointers are valid for the call.
    unsafe {
        let (count, list) = (update.numNewMemObjArgs, update.pNewMemObjArgList);
        for arg in checks::slice(list, count as usize)? {
            let flags = match arg.pProperties.is_null() {
                true => ur_mem_flags_t(0),
                false => (*arg.pProperties).memoryAccess,
            };
            launch.set(arg.argIndex, Arg::mem(arg.hNewMemObjArg, flags)?);
        }
        let (count, list) = (update.numNewPointerArgs, update.pNewPointerArgList);
        for arg in checks::slice(list, count as usize)? {
            let at = arg.pNewPointerArg.cast::<usize>();
            let pointer = if at.is_null() { 0 } else { at.read_unaligned() };
            launch.set(arg.argIndex, Arg::Pointer(pointer));
        }
        let (count, list) = (update.numNewValueArgs, update.pNewValueArgList);
        for arg in checks::slice(list, count as usize)? {
            let value = match arg.pNewValueArg.is_null() {
                // Local memory has a size and no value.
                true => Arg::Local(arg.argSize),
                false => Arg::Value(checks::slice(arg.pNewValueArg.cast(), arg.argSize)?.into()),
            };
            launch.set(arg.argIndex, value);
        }
    }
    Ok(())
}

/// A new kernel starts without arguments: the update brings all of them.
fn change_kernel<D: Driver>(launch: &mut Launch<D>, update: &Desc) -> Result<()> {
    if update.hNewKernel.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's handle, of a live kernel.
    let kernel = unsafe { Object::<D::Kernel>::borrow(update.hNewKernel.cast(), D::table()) }?;
    let known = launch
        .choice
        .iter()
        .find(|known| std::ptr::eq(&***known, kernel));
    let kernel = Arc::clone(known.ok_or(Error::new(UR_RESULT_ERROR_INVALID_VALUE))?);
    if !Arc::ptr_eq(&kernel, &launch.kernel) {
        launch.args.clear();
        launch.kernel = kernel;
    }
    Ok(())
}

fn change_range<D: Driver>(launch: &mut Launch<D>, update: &Desc) -> Result<()> {
    let dims = update.newWorkDim;
    ensure(dims <= 3, UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
    let sizes = |list: *mut usize, rest: usize| -> Result<Option<[usize; 3]>> {
        if list.is_null() {
            return Ok(None);
        }
        ensure(dims > 0, UR_RESULT_ERROR_INVALID_WORK_DIMENSION)?;
        // SAFETY: the entry point's caller promises that a list has one size for each dimension.
        let list = unsafe { checks::slice(list.cast_const(), dims as usize) }?;
        Ok(Some(crate::stream::work::transfer::three(list, rest)))
    };
    let offset = sizes(update.pNewGlobalWorkOffset, 0)?;
    let global = sizes(update.pNewGlobalWorkSize, 1)?;
    let local = sizes(update.pNewLocalWorkSize, 1)?;
    let whole = offset.is_some() && global.is_some();
    ensure(
        dims == 0 || dims == launch.dims || whole,
        UR_RESULT_ERROR_INVALID_VALUE,
    )?;
    if dims > 0 {
        launch.dims = dims;
    }
    launch.offset = offset.unwrap_or(launch.offset);
    if let Some(global) = global {
        ensure(
            global[..dims as usize].iter().all(|size| *size > 0),
            UR_RESULT_ERROR_INVALID_WORK_DIMENSION,
        )?;
        launch.global = global;
        launch.local = local;
    } else if local.is_some() {
        launch.local = local;
    }
    Ok(())
}

/// `urCommandBufferUpdateSignalEventExp`: the old event keeps its last state.
pub(crate) fn signal_event<D: Driver>(
    command: &Object<RecordedCommand<D>>,
) -> Result<Arc<Object<Event<D>>>> {
    let buffer = command.buffer()?;
    let at = command.node_in(&buffer)?;
    let mut state = buffer.state();
    let recording = buffer.updated(&mut state)?.recording_mut();
    let (id, node) = (recording.id, &mut recording.nodes[at]);
    ensure(node.signal.is_some(), UR_RESULT_ERROR_INVALID_OPERATION)?;
    let event = Event::recorded(&buffer.target().context.arc(), node.kind, id, at as u32);
    node.signal = Some(Arc::clone(&event));
    Ok(event)
}

/// `urCommandBufferUpdateWaitEventsExp`. A command may wait for earlier ones of its own buffer.
pub(crate) fn wait_events<D: Driver>(
    command: &Object<RecordedCommand<D>>,
    waits: Handles<'_, Event<D>>,
) -> Result<()> {
    let buffer = command.buffer()?;
    let at = command.node_in(&buffer)?;
    let mut state = buffer.state();
    let replay = buffer.updated(&mut state)?;
    let recording = replay.recording_mut();
    let same = waits.len() == recording.nodes[at].waits.len();
    let id = recording.id;
    let later =
        |event: &Object<Event<D>>| event.node_of(id).is_some_and(|node| node as usize >= at);
    ensure(
        same && !waits.iter().any(later),
        UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST,
    )?;
    recording.nodes[at].waits = waits.iter().map(Object::arc).collect();
    // The command's predecessors in the buffer may have changed.
    replay.plan(buffer.target(), true);
    Ok(())
}
