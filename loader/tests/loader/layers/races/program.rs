//! Programs of queues and memory in one line, run through the C interface: `in p; alloc p a -> e`.

use super::OK;
use crate::application::{Application, Strict, call};
use crate::common::null as null_mut;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null;
use ur::abi::*;

pub(super) struct Program<'a> {
    pub(super) app: &'a Application,
    pub(super) queues: HashMap<String, ur_queue_handle_t>,
    pub(super) events: HashMap<String, ur_event_handle_t>,
    blocks: HashMap<String, *mut c_void>,
    buffers: HashMap<String, ur_exp_command_buffer_handle_t>,
    kernel: ur_kernel_handle_t,
}

pub(super) type Waits = Vec<ur_event_handle_t>;

impl Program<'_> {
    pub(super) fn new(app: &Application) -> Program<'_> {
        Program {
            app,
            queues: HashMap::new(),
            events: HashMap::new(),
            blocks: HashMap::new(),
            buffers: HashMap::new(),
            kernel: app.kernel(),
        }
    }

    pub(super) fn run(mut self, program: &str) {
        for line in program.split(';').map(str::trim) {
            let (line, event) = line.split_once("->").map_or((line, None), |(line, event)| {
                (line, Some(event.trim().to_owned()))
            });
            let (line, waits) = line.split_once("after").unwrap_or((line, ""));
            let waits: Waits = waits
                .split_whitespace()
                .map(|event| self.events[event])
                .collect();
            let words: Vec<&str> = line.split_whitespace().collect();
            let made = self.step(&words, &waits, event.is_some());
            if let Some(name) = event {
                self.events.insert(name, made);
            }
        }
        self.end();
    }

    /// Runs one step. Returns its event if one is wanted, else null.
    pub(super) fn step(
        &mut self,
        words: &[&str],
        waits: &Waits,
        wants_event: bool,
    ) -> ur_event_handle_t {
        let app = self.app;
        let all = app.all;
        let mut event = null_mut();
        let to = if wants_event {
            &raw mut event
        } else {
            null_mut()
        };
        let result = match *words {
            ["in", name] => {
                self.queues
                    .insert(name.into(), app.queue(ur_queue_flags_t(0)));
                OK
            }
            ["out", name] => {
                let flags = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
                self.queues.insert(name.into(), app.queue(flags));
                OK
            }
            ["new", name] => {
                self.blocks.insert(name.into(), app.usm(64));
                OK
            }
            ["delete", name] => call!(all, USM.pfnFree(app.context, self.blocks[name])),
            ["deletetwice", name] => {
                let again = call!(all, USM.pfnFree(app.context, self.blocks[name]));
                assert_eq!(again, UR_RESULT_ERROR_INVALID_MEM_OBJECT);
                OK
            }
            ["hostwait", name] => call!(all, Event.pfnWait(1, &self.events[name])),
            ["ask", name] => self.query(name, true),
            ["asktooearly", name] => self.query(name, false),
            ["finish", queue] => call!(all, Queue.pfnFinish(self.queues[queue])),
            ["record", buffer, block] => self.record(buffer, block),
            [word, queue, ref rest @ ..] => self.command(
                word,
                queue,
                rest.first().copied().unwrap_or_default(),
                waits,
                to,
            ),
            _ => panic!("{words:?}"),
        };
        assert_eq!(result, OK, "{words:?}");
        event
    }

    fn query(&self, event: &str, complete: bool) -> ur_result_t {
        let mut status = UR_EVENT_STATUS_QUEUED;
        let value = (&raw mut status).cast();
        Strict::open().complete(complete);
        let what = UR_EVENT_INFO_COMMAND_EXECUTION_STATUS;
        let event = self.events[event];
        call!(
            self.app.all,
            Event.pfnGetInfo(event, what, 4, value, null_mut())
        )
    }

    fn record(&mut self, buffer: &str, block: &str) -> ur_result_t {
        let app = self.app;
        let desc = ur_exp_command_buffer_desc_t::default();
        let mut made = null_mut();
        let result = call!(
            app.all,
            CommandBufferExp.pfnCreateExp(app.context, app.device, &desc, &mut made)
        );
        assert_eq!(result, OK);
        self.buffers.insert(buffer.into(), made);
        let pattern = 0u8;
        let (block, pattern) = (self.blocks[block], (&raw const pattern).cast());
        call!(
            app.all,
            CommandBufferExp.pfnAppendUSMFillExp(
                made,
                block,
                pattern,
                1,
                64,
                0,
                null(),
                0,
                null(),
                null_mut(),
                null_mut(),
                null_mut()
            )
        )
    }

    fn command(
        &mut self,
        word: &str,
        queue: &str,
        name: &str,
        waits: &Waits,
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let all = self.app.all;
        let queue = self.queues[queue];
        let (count, list) = match waits.len() {
            0 => (0, null()),
            count => (count as u32, waits.as_ptr()),
        };
        let block = self.blocks.get(name).copied().unwrap_or_default();
        let mut host = [0u8; 64];
        let host: *mut c_void = host.as_mut_ptr().cast();
        match word {
            "alloc" => {
                let mut made = null_mut();
                let alloc = EnqueueAlloc {
                    queue,
                    count,
                    list,
                    event,
                };
                let result = alloc.call(&all, &mut made);
                self.blocks.insert(name.into(), made);
                result
            }
            "use" => {
                call!(
                    all,
                    Enqueue.pfnUSMFill(queue, block, 1, host, 64, count, list, event)
                )
            }
            "copy" => {
                call!(
                    all,
                    Enqueue.pfnUSMMemcpy(queue, 0, host, block, 64, count, list, event)
                )
            }
            "block" => {
                call!(
                    all,
                    Enqueue.pfnUSMMemcpy(queue, 1, host, block, 64, count, list, event)
                )
            }
            "copyhost" => {
                call!(
                    all,
                    Enqueue.pfnUSMMemcpy(queue, 0, host, host, 8, count, list, event)
                )
            }
            "free" => {
                call!(
                    all,
                    EnqueueExp.pfnUSMFreeExp(queue, null_mut(), block, count, list, event)
                )
            }
            "twice" => {
                let again = call!(
                    all,
                    EnqueueExp.pfnUSMFreeExp(queue, null_mut(), block, count, list, event)
                );
                assert_eq!(again, UR_RESULT_ERROR_INVALID_MEM_OBJECT);
                OK
            }
            "launch" => self.launch(queue, block, (count, list), event),
            "marker" => call!(all, Enqueue.pfnEventsWait(queue, count, list, event)),
            "wait" => call!(
                all,
                Enqueue.pfnEventsWait(queue, 1, &self.events[name], event)
            ),
            "barrier" => {
                call!(
                    all,
                    Enqueue.pfnEventsWaitWithBarrier(queue, count, list, event)
                )
            }
            "submit" => {
                let buffer = self.buffers[name];
                call!(
                    all,
                    EnqueueExp.pfnCommandBufferExp(queue, buffer, count, list, event)
                )
            }
            _ => panic!("{word}"),
        }
    }

    fn launch(
        &self,
        queue: ur_queue_handle_t,
        block: *mut c_void,
        (count, list): (u32, *const ur_event_handle_t),
        event: *mut ur_event_handle_t,
    ) -> ur_result_t {
        let argument = ur_exp_kernel_arg_properties_t {
            r#type: UR_EXP_KERNEL_ARG_TYPE_POINTER,
            size: 8,
            value: ur_exp_kernel_arg_value_t { pointer: block },
            ..ur_exp_kernel_arg_properties_t::default()
        };
        let size = 1usize;
        call!(
            self.app.all,
            EnqueueExp.pfnKernelLaunchWithArgsExp(
                queue,
                self.kernel,
                1,
                null(),
                &size,
                null(),
                1,
                &argument,
                null(),
                count,
                list,
                event
            )
        )
    }

    fn end(self) {
        let all = self.app.all;
        let mut results = vec![call!(all, Kernel.pfnRelease(self.kernel))];
        results.extend(
            self.events
                .values()
                .map(|event| call!(all, Event.pfnRelease(*event))),
        );
        results.extend(
            self.queues
                .values()
                .map(|queue| call!(all, Queue.pfnRelease(*queue))),
        );
        let buffers = self.buffers.values();
        results.extend(buffers.map(|buffer| call!(all, CommandBufferExp.pfnReleaseExp(*buffer))));
        assert!(results.iter().all(|result| *result == OK), "{results:?}");
        assert_eq!(Strict::open().live(), 2, "context and queue");
        Strict::open().forget_blocks();
    }
}

struct EnqueueAlloc {
    queue: ur_queue_handle_t,
    count: u32,
    list: *const ur_event_handle_t,
    event: *mut ur_event_handle_t,
}

impl EnqueueAlloc {
    fn call(&self, all: &ur_dditable_t, made: &mut *mut c_void) -> ur_result_t {
        let (pool, properties) = (null_mut(), null());
        call!(
            all,
            EnqueueExp.pfnUSMDeviceAllocExp(
                self.queue, pool, 64, properties, self.count, self.list, made, self.event
            )
        )
    }
}
