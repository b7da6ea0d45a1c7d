//! Graphs: commands that are launched together, in the order in which they were added.

use std::ffi::{c_uint, c_void};

use crate::code::{items_of, made};
use crate::driver::*;
use crate::image::boxes;
use crate::stream::Command;
use crate::strict::hold_idle;

type Handle = *mut c_void;

/// The numbers of nodes, and the command that each gives a stream.
#[derive(Clone, Default)]
pub struct Graph {
    pub nodes: Vec<(usize, Vec<Command>)>,
}

/// The driver's first structure for a launch.
#[repr(C)]
pub struct Launch {
    function: Handle,
    sizes: [c_uint; 7],
    params: *const Handle,
    extra: *const Handle,
}

impl Launch {
    fn made(&self, driver: &mut FakeDriver) -> Result<Option<Command>, u32> {
        let [gx, gy, gz, x, y, z, _] = self.sizes;
        let items = items_of([gx, gy, gz, x, y, z]);
        made(driver, self.function, self.params, self.extra, items)
    }
}

/// The driver's structure for a fill.
#[repr(C)]
pub struct Set {
    dst: u64,
    pitch: usize,
    value: u32,
    unit: u32,
    width: usize,
    height: usize,
}

fn new(graphs: impl FnOnce(&mut FakeDriver) -> usize, out: *mut Handle) -> u32 {
    let name = graphs(&mut hold());
    // SAFETY: room for a handle, as for all outputs here.
    unsafe { out.write(std::ptr::without_provenance_mut(name)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphCreate(graph: *mut Handle, _: c_uint) -> u32 {
    if let Some(code) = hold().called("cuGraphCreate") {
        return code;
    }
    let add = |driver: &mut FakeDriver| {
        let name = driver.name();
        driver.graphs.insert(name, Graph::default());
        name
    };
    new(add, graph)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: Handle) -> u32 {
    let mut driver = hold();
    match driver.graphs.remove(&graph.addr()) {
        Some(_) => SUCCESS,
        None => code(driver.broken("a graph destroyed twice")),
    }
}

/// Adds a node after others, which must belong to the same graph.
fn add(
    name: &'static str,
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    submit: impl FnOnce(&mut FakeDriver) -> Result<Vec<Command>, u32>,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts(name) {
        return code;
    }
    let Some(own) = driver.graphs.get(&graph.addr()) else {
        return code(driver.broken("a node of a dead graph"));
    };
    let known = (0..count).all(|at| {
        // SAFETY: the list has the given number of nodes.
        let before = unsafe { after.add(at).read() }.addr();
        own.nodes.iter().rev().any(|(name, _)| *name == before)
    });
    if !known {
        return code(driver.broken("a node behind one that is not there"));
    }
    driver.script.edges += count as u64;
    let commands = match submit(&mut driver) {
        Ok(commands) => commands,
        Err(code) => return code,
    };
    let handle = driver.name();
    if let Some(own) = driver.graphs.get_mut(&graph.addr()) {
        own.nodes.push((handle, commands));
    }
    // SAFETY: the list has the given number of nodes.
    unsafe { node.write(std::ptr::without_provenance_mut(handle)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    what: *const Launch,
) -> u32 {
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    add(
        "cuGraphAddKernelNode",
        node,
        graph,
        after,
        count,
        |driver| {
            let made = what.made(driver)?;
            Ok(made.into_iter().collect())
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemcpyNode(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    what: *const usize,
    _: Handle,
) -> u32 {
    add(
        "cuGraphAddMemcpyNode",
        node,
        graph,
        after,
        count,
        |driver| boxes(driver, what),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemsetNode(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    what: *const Set,
    _: Handle,
) -> u32 {
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    add("cuGraphAddMemsetNode", node, graph, after, count, |_| {
        let unit = what.unit as usize;
        let row = |row: usize| Command::Fill {
            dst: what.dst as usize + row * what.pitch,
            pattern: what.value.to_ne_bytes()[..unit].to_vec(),
            bytes: what.width * unit,
        };
        Ok((0..what.height).map(row).collect())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddEmptyNode(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
) -> u32 {
    add("cuGraphAddEmptyNode", node, graph, after, count, |_| {
        Ok(Vec::new())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddHostNode(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    what: *const [usize; 2],
) -> u32 {
    // SAFETY: the caller passes a readable description: a function and its data.
    let [run, data] = unsafe { what.read() };
    add("cuGraphAddHostNode", node, graph, after, count, |_| {
        Ok(vec![Command::Call { run, data }])
    })
}

/// The graph's present commands in order.
fn commands_of(driver: &mut FakeDriver, graph: Handle) -> Result<Vec<Command>, u32> {
    match driver.graphs.get(&graph.addr()) {
        Some(graph) => {
            let commands = graph.nodes.iter().flat_map(|(_, commands)| commands);
            Ok(commands.cloned().collect())
        }
        None => driver.broken("a dead graph inside another"),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddChildGraphNode(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    child: Handle,
) -> u32 {
    let name = "cuGraphAddChildGraphNode";
    add(name, node, graph, after, count, |driver| {
        commands_of(driver, child)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphClone(copy: *mut Handle, graph: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.called("cuGraphClone") {
        return code;
    }
    let Some(own) = driver.graphs.get(&graph.addr()).cloned() else {
        return code(driver.broken("a dead graph copied"));
    };
    drop(driver);
    let add = |driver: &mut FakeDriver| {
        let name = driver.name();
        driver.graphs.insert(name, own);
        name
    };
    new(add, copy)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiateWithFlags(made: *mut Handle, graph: Handle, _: u64) -> u32 {
    let mut driver = hold_idle(Some(current()));
    if let Some(code) = driver.acts("cuGraphInstantiateWithFlags") {
        return code;
    }
    let Some(own) = driver.graphs.get(&graph.addr()).cloned() else {
        return code(driver.broken("a dead graph made ready"));
    };
    drop(driver);
    let add = |driver: &mut FakeDriver| {
        let name = driver.name();
        driver.launchable.insert(name, own);
        name
    };
    new(add, made)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(made: Handle, stream: Handle) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuGraphLaunch") {
        return code;
    }
    let Some(own) = driver.launchable.get(&made.addr()).cloned() else {
        return code(driver.broken("a dead graph launched"));
    };
    let mut commands = own.nodes.into_iter().flat_map(|(_, commands)| commands);
    code(commands.try_for_each(|command| driver.submit(stream.addr(), command)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(made: Handle) -> u32 {
    let mut driver = hold_idle(None);
    match driver.launchable.remove(&made.addr()) {
        Some(_) => SUCCESS,
        None => code(driver.broken("a graph destroyed twice")),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams(
    own: Handle,
    node: Handle,
    what: *const Launch,
) -> u32 {
    let mut driver = hold();
    if let Some(code) = driver.acts("cuGraphExecKernelNodeSetParams") {
        return code;
    }
    // SAFETY: the caller passes a readable description.
    let what = unsafe { &*what };
    let command = match what.made(&mut driver) {
        Ok(command) => command,
        Err(code) => return code,
    };
    let nodes = driver.launchable.get_mut(&own.addr());
    let mut nodes = nodes.into_iter().flat_map(|graph| &mut graph.nodes);
    match nodes.find(|(name, _)| *name == node.addr()) {
        Some((_, commands)) => {
            *commands = command.into_iter().collect();
            SUCCESS
        }
        None => code(driver.broken("a change of what is not in a graph")),
    }
}
