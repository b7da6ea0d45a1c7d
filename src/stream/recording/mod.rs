//! Recorded commands: the contents of command buffers and of captured graphs.
//!
//! Owns everything that a repeated submission needs: the work of each command, its predecessors,
//! the events that it waits for and signals, and its objects; also command buffers, their updates
//! and their compiled form. Uses `event` and the folders below it. Must never know a queue or a
//! lane.
//!
//! Commands are numbered in recording order, and each follows only earlier ones. So that order is a
//! schedule, also for compiled runs of commands.
//!
//! | file | has |
//! |---|---|
//! | `command` | the meaning of an entry point's arguments, decided once; a queue submits the command, a command buffer keeps it |
//! | `reduction` | removal of edges that other edges imply |
//! | `replay` | submission of a recording as one: in a row on an in-order queue, on a lane each otherwise |
//! | `update` | changes of launches, which are made anew and wait for nothing |
//! | `native_record` | a caller's native commands as one command |
//!
//! The event of a recorded command stands for its present execution, and counts as complete before the
//! first. A capture puts a queue's commands into a graph's recording; an executable graph is a copy of
//! it. A backend that can make one native object of several commands does so in `Driver::compile`;
//! order, events and completion stay the engine's.

pub(crate) mod command;
pub(crate) mod command_buffer;
pub(crate) mod native_record;
pub(crate) mod reduction;
pub(crate) mod replay;
pub(crate) mod update;

use crate::abi::*;
use crate::hal::checks;
use crate::object::{Body, Error, Object, Result};
use crate::stream::event::Event;
use crate::stream::recording::command::{Command, Target};
use crate::stream::recording::reduction::Reduction;
use crate::stream::recording::replay::Unit;
use crate::stream::work::call::Call;
use crate::stream::{Compiled, Driver, LaunchRequest, Step, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Commands in the order in which they were recorded.
pub(crate) struct Recording<D: Driver> {
    /// Identity of the recording, for the events of its commands.
    pub id: u64,
    pub nodes: Vec<Node<D>>,
}

/// One recorded command.
pub(crate) struct Node<D: Driver> {
    pub kind: ur_command_t,
    pub work: Work<D>,
    /// The command's predecessors, ascending.
    pub after: Vec<u32>,
    pub waits: Vec<Arc<Object<Event<D>>>>,
    /// The command's event, bound to the current execution.
    pub signal: Option<Arc<Object<Event<D>>>>,
    /// The launch, if it may change.
    pub launch: Option<Box<Launch<D>>>,
    /// The host function of a host task.
    pub host: Option<Call>,
    /// Objects that the work uses and does not hold itself.
    pub uses: Vec<Arc<Object<D::Mem>>>,
}

/// A kernel launch that can be made again with changes.
pub(crate) struct Launch<D: Driver> {
    pub kernel: Arc<Object<D::Kernel>>,
    /// The kernels that it may be switched to, its first one included.
    pub choice: Vec<Arc<Object<D::Kernel>>>,
    pub dims: u32,
    pub offset: [usize; 3],
    pub global: [usize; 3],
    pub local: Option<[usize; 3]>,
    pub args: Vec<(u32, Arg<D>)>,
}

/// An argument with its value.
pub(crate) enum Arg<D: Driver> {
    Value(Arc<[u8]>),
    Pointer(usize),
    Local(usize),
    Mem(Option<Arc<Object<D::Mem>>>, ur_mem_flags_t),
    Sampler(Arc<Object<D::Sampler>>),
}

impl<D: Driver> Default for Recording<D> {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            nodes: Vec::new(),
        }
    }
}

impl<D: Driver> Node<D> {
    /// Copies what a command needs. `choice`: kernels that its launch may be switched to, besides
    /// its own.
    pub fn new(made: Command<'_, D>, choice: Option<&[Arc<Object<D::Kernel>>]>) -> Result<Self> {
        let mut uses: Vec<_> = made.mems.iter().flatten().map(|mem| mem.arc()).collect();
        let mut launch = None;
        if let Some((kernel, request)) = &made.launch {
            let source = Launch::new(kernel, request, choice.unwrap_or(&[]))?;
            uses.extend(source.mems());
            launch = choice.map(|_| Box::new(source));
        }
        Ok(Self {
            kind: made.kind,
            work: made.work,
            after: Vec::new(),
            waits: Vec::new(),
            signal: None,
            launch,
            host: made.host,
            uses,
        })
    }
}

impl<D: Driver> Recording<D> {
    /// Predecessors of a node: recorded ones, and commands of this recording whose events it waits
    /// for.
    pub fn after(&self, node: &Node<D>) -> Vec<u32> {
        let own = node.waits.iter().filter_map(|event| event.node_of(self.id));
        let mut after: Vec<u32> = node.after.iter().copied().chain(own).collect();
        after.sort_unstable();
        after.dedup();
        after
    }

    /// A copy of the commands, for submissions of its own.
    pub fn copied(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Node {
            kind: node.kind,
            work: node.work.clone(),
            after: node.after.clone(),
            waits: node.waits.clone(),
            signal: None,
            launch: None,
            host: node.host,
            uses: node.uses.clone(),
        });
        Self {
            nodes: nodes.collect(),
            ..Self::default()
        }
    }

    /// Whether outside commands may come between its commands, through an event or a host task.
    /// Each is then submitted by itself.
    fn is_open(&self) -> bool {
        let open =
            |node: &Node<D>| node.signal.is_some() || node.host.is_some() || !node.waits.is_empty();
        self.nodes.iter().any(open)
    }

    /// All commands as one native graph. `UNSUPPORTED_FEATURE` if the backend has no graphs, or they cannot
    /// hold one of the commands.
    pub fn native_graph(&self, target: Target<'_, D>) -> Result<Arc<dyn Compiled<D>>> {
        let after: Vec<_> = self.nodes.iter().map(|node| self.after(node)).collect();
        let steps: Vec<_> = self.nodes.iter().zip(&after).map(step).collect();
        let (devices, device) = (target.context.domain(), target.device);
        let outside = |node: &Node<D>| node.signal.is_some() || !node.waits.is_empty();
        let whole = !self.nodes.iter().any(outside);
        let graph = whole.then(|| D::native_graph(devices, device, &steps));
        graph.flatten().ok_or(Error::unsupported())
    }

    /// The units of an execution, in submission order.
    pub fn plan(&self, target: Target<'_, D>, updatable: bool) -> Vec<Unit<D>> {
        let mut reduction = Reduction::default();
        let needed = |node| {
            let mut after = self.after(node);
            reduction.reduce(&mut after);
            after
        };
        let after: Vec<_> = self.nodes.iter().map(needed).collect();
        let steps: Vec<_> = match self.is_open() {
            true => Vec::new(),
            false => self.nodes.iter().zip(&after).map(step).collect(),
        };
        let (mut units, mut of) = (Vec::new(), vec![0u32; self.nodes.len()]);
        let mut from = 0;
        while from < self.nodes.len() {
            let made = (from < steps.len())
                .then(|| {
                    D::compile(
                        target.context.domain(),
                        target.device,
                        &steps,
                        from,
                        updatable,
                    )
                })
                .flatten();
            let (count, compiled) = match made {
                Some((count, compiled)) if count > 0 => (count, Some(compiled)),
                _ => (1, None),
            };
            let end = (from + count).min(self.nodes.len());
            let own = units.len() as u32;
            of[from..end].fill(own);
            let before = after[from..end].iter().flatten();
            let mut before: Vec<u32> = before.map(|&node| of[node as usize]).collect();
            before.retain(|&unit| unit != own);
            before.sort_unstable();
            before.dedup();
            debug_assert!(
                before.last().is_none_or(|last| *last < own),
                "a unit after a later one"
            );
            units.push(Unit::new(from..end, compiled, before));
            from = end;
        }
        Unit::mark_leaves(&mut units);
        units
    }
}

fn step<'a, D: Driver>((node, after): (&'a Node<D>, &'a Vec<u32>)) -> Step<'a, D> {
    Step {
        work: &node.work,
        host: node.host.map(|call| (call.run, call.data)),
        after,
    }
}

impl<D: Driver> Launch<D> {
    fn new(
        kernel: &Object<D::Kernel>,
        request: &LaunchRequest<'_>,
        choice: &[Arc<Object<D::Kernel>>],
    ) -> Result<Self> {
        let args = request.args.iter();
        let args = args.map(|arg| Ok((arg.index, Arg::new(arg)?)));
        let kernel = kernel.arc();
        Ok(Self {
            choice: choice.iter().chain([&kernel]).map(Arc::clone).collect(),
            kernel,
            dims: request.dims,
            offset: request.offset,
            global: request.global,
            local: request.local,
            args: args.collect::<Result<_>>()?,
        })
    }

    /// The buffers among its arguments.
    pub fn mems(&self) -> impl Iterator<Item = Arc<Object<D::Mem>>> {
        self.args.iter().filter_map(|(_, arg)| match arg {
            Arg::Mem(mem, _) => mem.clone(),
            _ => None,
        })
    }

    pub fn make(&self, device: &Object<D::Device>) -> Result<Work<D>> {
        let args: Vec<_> = self
            .args
            .iter()
            .map(|(at, arg)| arg.to_properties(*at))
            .collect();
        let request = LaunchRequest {
            dims: self.dims,
            offset: self.offset,
            global: self.global,
            local: self.local,
            args: &args,
            properties: None,
        };
        D::launch(device, &self.kernel, &request).map(Work::Launch)
    }

    pub fn set(&mut self, index: u32, arg: Arg<D>) {
        match self.args.iter_mut().find(|(at, _)| *at == index) {
            Some((_, own)) => *own = arg,
            None => self.args.push((index, arg)),
        }
    }
}

impl<D: Driver> Clone for Launch<D> {
    fn clone(&self) -> Self {
        Self {
            kernel: Arc::clone(&self.kernel),
            choice: self.choice.clone(),
            dims: self.dims,
            offset: self.offset,
            global: self.global,
            local: self.local,
            args: self.args.clone(),
        }
    }
}

impl<D: Driver> Clone for Arg<D> {
    fn clone(&self) -> Self {
        match self {
            Self::Value(bytes) => Self::Value(Arc::clone(bytes)),
            Self::Pointer(addr) => Self::Pointer(*addr),
            Self::Local(bytes) => Self::Local(*bytes),
            Self::Mem(mem, flags) => Self::Mem(mem.clone(), *flags),
            Self::Sampler(sampler) => Self::Sampler(Arc::clone(sampler)),
        }
    }
}

impl<D: Driver> Arg<D> {
    fn new(arg: &ur_exp_kernel_arg_properties_t) -> Result<Self> {
        // SAFETY: the entry point's caller promises that the type names the valid member, and that
        // its pointers are valid for the call.
        unsafe {
            Ok(match arg.r#type {
                UR_EXP_KERNEL_ARG_TYPE_VALUE => {
                    let bytes = checks::slice(arg.value.value.cast::<u8>(), arg.size)?;
                    Self::Value(bytes.into())
                }
                UR_EXP_KERNEL_ARG_TYPE_POINTER => {
                    Self::Pointer(arg.value.pointer.expose_provenance())
                }
                UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ => {
                    let mem = arg.value.memObjTuple;
                    Self::mem(mem.hMem, mem.flags)?
                }
                UR_EXP_KERNEL_ARG_TYPE_LOCAL => Self::Local(arg.size),
                UR_EXP_KERNEL_ARG_TYPE_SAMPLER => {
                    Self::Sampler(retained::<D, D::Sampler>(arg.value.sampler.cast())?)
                }
                _ => return Err(Error::new(UR_RESULT_ERROR_INVALID_ENUMERATION)),
            })
        }
    }

    /// # Safety
    /// The handle is null or of a live object.
    pub unsafe fn mem(handle: ur_mem_handle_t, flags: ur_mem_flags_t) -> Result<Self> {
        if handle.is_null() {
            return Ok(Self::Mem(None, flags));
        }
        // SAFETY: the caller passes null or a live memory object.
        let mem = unsafe { retained::<D, D::Mem>(handle.cast()) }?;
        Ok(Self::Mem(Some(mem), flags))
    }

    /// The argument as a driver receives it; valid as long as `self` lives.
    fn to_properties(&self, index: u32) -> ur_exp_kernel_arg_properties_t {
        let mut out = ur_exp_kernel_arg_properties_t {
            index,
            ..Default::default()
        };
        match self {
            Self::Value(bytes) => {
                out.r#type = UR_EXP_KERNEL_ARG_TYPE_VALUE;
                out.size = bytes.len();
                out.value.value = bytes.as_ptr().cast();
            }
            Self::Pointer(addr) => {
                out.r#type = UR_EXP_KERNEL_ARG_TYPE_POINTER;
                out.size = size_of::<usize>();
                out.value.pointer = std::ptr::with_exposed_provenance(*addr);
            }
            Self::Local(bytes) => {
                out.r#type = UR_EXP_KERNEL_ARG_TYPE_LOCAL;
                out.size = *bytes;
            }
            Self::Mem(mem, flags) => {
                out.r#type = UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ;
                out.size = size_of::<usize>();
                let handle = mem
                    .as_ref()
                    .map_or(std::ptr::null_mut(), |mem| mem.handle());
                out.value.memObjTuple = ur_exp_kernel_arg_mem_obj_tuple_t {
                    hMem: handle.cast(),
                    flags: *flags,
                };
            }
            Self::Sampler(sampler) => {
                out.r#type = UR_EXP_KERNEL_ARG_TYPE_SAMPLER;
                out.size = size_of::<usize>();
                out.value.sampler = sampler.handle().cast();
            }
        }
        out
    }
}

/// # Safety
/// The handle is null or of a live object.
unsafe fn retained<D: Driver, T: Body>(handle: *const std::ffi::c_void) -> Result<Arc<Object<T>>> {
    // SAFETY: the caller passes null or a live object.
    Ok(unsafe { Object::<T>::borrow(handle, D::table()) }?.arc())
}
