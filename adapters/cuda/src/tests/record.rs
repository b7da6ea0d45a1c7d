//! Native commands of command buffers: graphs that foreign code adds to, as commands of the buffer.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use ur::abi::*;

use super::fake_driver::{FakeDriver, Set, alone, ur};
use super::test_context::TestContext;

const BYTES: usize = 64;

type Buffer = ur_exp_command_buffer_handle_t;
type Point = ur_exp_command_buffer_sync_point_t;

struct Fixture<'a> {
    driver: &'a FakeDriver,
    test_context: TestContext,
    queue: ur_queue_handle_t,
}

/// The data of a native command's function.
struct Call<'a> {
    driver: &'a FakeDriver,
    /// The buffer whose native object the function adds to.
    buffer: Buffer,
    set: Option<Set>,
    calls: u32,
}

unsafe extern "C" fn record(data: *mut c_void) {
    // SAFETY: the test owns it and waits for the call.
    let call = unsafe { &mut *data.cast::<Call<'_>>() };
    call.calls += 1;
    if let Some(set) = &call.set {
        call.driver.add_set(native(call.buffer), set);
    }
}

fn native_of(buffer: Buffer) -> Result<usize, ur_result_t> {
    let mut graph = 0;
    match ur!(CommandBufferExp.pfnGetNativeHandleExp(buffer, &mut graph)) {
        UR_RESULT_SUCCESS => Ok(graph),
        code => Err(code),
    }
}

fn native(buffer: Buffer) -> usize {
    native_of(buffer).expect("a native object")
}

fn list(points: &[Point]) -> (u32, *const Point) {
    match points.is_empty() {
        true => (0, null()),
        false => (points.len() as u32, points.as_ptr()),
    }
}

impl<'a> Fixture<'a> {
    fn new(driver: &'a FakeDriver, flags: ur_queue_flags_t) -> Self {
        let test_context = TestContext::new(BYTES);
        let queue = test_context.queue(flags);
        Self {
            driver,
            test_context,
            queue,
        }
    }

    fn buffer(&self, in_order: bool) -> Buffer {
        let what = ur_exp_command_buffer_desc_t {
            isInOrder: in_order.into(),
            ..Default::default()
        };
        let mut buffer = null_mut();
        let (context, device) = (self.test_context.context, self.test_context.device);
        let code = ur!(CommandBufferExp.pfnCreateExp(context, device, &what, &mut buffer));
        assert_eq!(code, UR_RESULT_SUCCESS);
        buffer
    }

    /// Adds a fill as a node of a graph.
    fn set(&self, byte: u8, first: usize, bytes: usize) -> Set {
        Set {
            dst: self.test_context.at(first).addr() as u64,
            pitch: 0,
            value: byte.into(),
            unit: 1,
            width: bytes,
            height: 1,
        }
    }

    fn fill(&self, buffer: Buffer, byte: u8, first: usize, bytes: usize, after: &[Point]) -> Point {
        let ((count, points), mut point) = (list(after), 0);
        let (to, from, none) = (
            self.test_context.at(first),
            (&raw const byte).cast(),
            null_mut(),
        );
        let code = ur!(CommandBufferExp.pfnAppendUSMFillExp(
            buffer,
            to,
            from,
            1,
            bytes,
            count,
            points,
            0,
            null(),
            &mut point,
            null_mut(),
            none
        ));
        assert_eq!(code, UR_RESULT_SUCCESS);
        point
    }

    /// Appends a native command. Returns the number of calls of its function.
    fn try_append(
        &self,
        buffer: Buffer,
        child: Buffer,
        set: Option<Set>,
        after: &[Point],
    ) -> (Result<Point, ur_result_t>, u32) {
        let mut call = Call {
            driver: self.driver,
            buffer: if child.is_null() { buffer } else { child },
            set,
            calls: 0,
        };
        let ((count, points), mut point) = (list(after), 0);
        let data = (&raw mut call).cast();
        let code = ur!(CommandBufferExp.pfnAppendNativeCommandExp(
            buffer,
            Some(record),
            data,
            child,
            count,
            points,
            &mut point
        ));
        let result = match code {
            UR_RESULT_SUCCESS => Ok(point),
            code => Err(code),
        };
        (result, call.calls)
    }

    fn append(&self, buffer: Buffer, child: Buffer, set: Set, after: &[Point]) -> Point {
        let (point, calls) = self.try_append(buffer, child, Some(set), after);
        assert_eq!(calls, 1);
        point.expect("appended")
    }

    /// Finalizes the buffer, submits it several times and releases it. Returns the number of graph launches.
    fn run(&self, buffer: Buffer, times: u64) -> u64 {
        let code = ur!(CommandBufferExp.pfnFinalizeExp(buffer));
        assert_eq!(code, UR_RESULT_SUCCESS);
        self.driver.count("cuGraphLaunch");
        for _ in 0..times {
            let none = null_mut();
            let code = ur!(EnqueueExp.pfnCommandBufferExp(self.queue, buffer, 0, null(), none));
            assert_eq!(code, UR_RESULT_SUCCESS);
        }
        assert_eq!(ur!(Queue.pfnFinish(self.queue)), UR_RESULT_SUCCESS);
        let launched = self.driver.query().calls;
        self.driver.reset();
        release(buffer);
        launched
    }

    /// The bytes now. They are zero afterwards.
    fn bytes(&self) -> [u8; BYTES] {
        // SAFETY: host memory of that size, with no command pending.
        unsafe {
            self.test_context
                .memory
                .cast::<[u8; BYTES]>()
                .replace([0; BYTES])
        }
    }

    fn end(self) {
        assert_eq!(ur!(Queue.pfnRelease(self.queue)), UR_RESULT_SUCCESS);
        self.test_context.end(self.driver);
    }
}

fn release(buffer: Buffer) {
    let code = ur!(CommandBufferExp.pfnReleaseExp(buffer));
    assert_eq!(code, UR_RESULT_SUCCESS);
}

/// The bytes, in parts of equal size.
fn stretches(stretches: &[(usize, u8)]) -> [u8; BYTES] {
    let bytes = stretches
        .iter()
        .flat_map(|(count, byte)| std::iter::repeat_n(*byte, *count));
    let bytes: Vec<u8> = bytes.chain(std::iter::repeat(0)).take(BYTES).collect();
    bytes.try_into().expect("as many")
}

const QUEUES: [ur_queue_flags_t; 2] = [
    ur_queue_flags_t(0),
    UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE,
];

#[test]
fn native_commands_are_nodes_of_one_graph() {
    alone(
        "tests::record::native_commands_are_nodes_of_one_graph",
        || {
            let driver = FakeDriver::open();
            let fixture = Fixture::new(&driver, QUEUES[1]);
            for (in_order, has_child) in
                [(false, true), (false, false), (true, true), (true, false)]
            {
                let buffer = fixture.buffer(in_order);
                let child = match has_child {
                    true => fixture.buffer(in_order),
                    false => null_mut(),
                };
                let first = fixture.fill(buffer, 1, 0, 64, &[]);
                let then = fixture.append(buffer, child, fixture.set(2, 16, 32), &[first]);
                assert_ne!(first, then);
                fixture.fill(buffer, 3, 32, 16, &[then]);
                if has_child {
                    release(child);
                }
                assert_eq!(fixture.run(buffer, 2), 2, "one graph each time");
                let wanted = stretches(&[(16, 1), (16, 2), (16, 3), (16, 1)]);
                assert_eq!(fixture.bytes(), wanted, "{in_order} {has_child}");
            }
            fixture.end();
        },
    );
}

#[test]
fn a_single_fill_is_launched_by_itself() {
    alone("tests::record::a_single_fill_is_launched_by_itself", || {
        let driver = FakeDriver::open();
        for flags in QUEUES {
            let fixture = Fixture::new(&driver, flags);
            let buffer = fixture.buffer(false);
            fixture.append(buffer, null_mut(), fixture.set(5, 8, 8), &[]);
            assert_eq!(fixture.run(buffer, 3), 3);
            assert_eq!(fixture.bytes(), stretches(&[(8, 0), (8, 5)]));
            fixture.end();
        }
    });
}

/// The command has the child's contents at the time of the append.
#[test]
fn a_child_may_be_extended_and_appended_again() {
    alone(
        "tests::record::a_child_may_be_extended_and_appended_again",
        || {
            let driver = FakeDriver::open();
            let fixture = Fixture::new(&driver, QUEUES[0]);
            let (one, two, child) = (
                fixture.buffer(true),
                fixture.buffer(true),
                fixture.buffer(true),
            );
            fixture.append(one, child, fixture.set(1, 0, 8), &[]);
            fixture.append(two, child, fixture.set(2, 8, 8), &[]);
            fixture
                .driver
                .add_set(native(child), &fixture.set(3, 16, 8));
            assert_eq!(fixture.run(one, 1), 1);
            assert_eq!(fixture.bytes(), stretches(&[(8, 1)]));
            assert_eq!(fixture.run(two, 1), 1);
            assert_eq!(fixture.bytes(), stretches(&[(8, 1), (8, 2)]));
            // The child by itself is a command buffer like any other.
            assert_eq!(fixture.run(child, 1), 1);
            assert_eq!(fixture.bytes(), stretches(&[(8, 1), (8, 2), (8, 3)]));
            fixture.end();
        },
    );
}

/// Nodes added to a buffer's own graph run beside its other commands.
#[test]
fn nodes_of_the_native_graph_run_with_the_buffer() {
    alone(
        "tests::record::nodes_of_the_native_graph_run_with_the_buffer",
        || {
            let driver = FakeDriver::open();
            let fixture = Fixture::new(&driver, QUEUES[0]);
            let (buffer, other) = (fixture.buffer(false), fixture.buffer(false));
            let graph = native(buffer);
            fixture.fill(buffer, 1, 0, 8, &[]);
            fixture.driver.add_set(graph, &fixture.set(2, 8, 8));
            assert_eq!(native(buffer), graph, "it stays the same");
            assert_eq!(fixture.run(buffer, 1), 1);
            assert_eq!(fixture.bytes(), stretches(&[(8, 1), (8, 2)]));
            // A buffer that has commands gets no native object.
            fixture.fill(other, 1, 0, 8, &[]);
            assert_eq!(native_of(other), Err(UR_RESULT_ERROR_UNSUPPORTED_FEATURE));
            fixture.run(other, 1);
            fixture.end();
        },
    );
}

#[test]
fn a_refused_append_calls_no_function() {
    alone("tests::record::a_refused_append_calls_no_function", || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new(&driver, QUEUES[0]);
        let (buffer, full, elsewhere) = (
            fixture.buffer(false),
            fixture.buffer(false),
            Fixture::new(&driver, QUEUES[0]),
        );
        let refused = |child: Buffer, after: &[Point], code: ur_result_t| {
            let found = fixture.try_append(buffer, child, None, after);
            assert_eq!(found, (Err(code), 0));
        };
        let point = fixture.fill(full, 1, 0, 8, &[]);
        refused(buffer, &[], UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_EXP);
        refused(full, &[], UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        // Nor does one that has both an object and commands.
        let both = fixture.buffer(false);
        native(both);
        fixture.fill(both, 1, 0, 8, &[]);
        refused(both, &[], UR_RESULT_ERROR_UNSUPPORTED_FEATURE);
        let code = ur!(CommandBufferExp.pfnFinalizeExp(both));
        assert_eq!(code, UR_RESULT_SUCCESS);
        refused(both, &[], UR_RESULT_ERROR_INVALID_OPERATION);
        release(both);
        let unknown = UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_EXP;
        refused(null_mut(), &[point], unknown);
        let child = elsewhere.buffer(false);
        refused(child, &[], UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_EXP);
        release(child);
        driver.fail_each("cuGraphCreate", 2);
        refused(null_mut(), &[], UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        // The copy contains the nodes that the function has added.
        driver.fail_each("cuGraphClone", 2);
        let found = fixture.try_append(buffer, null_mut(), None, &[]);
        assert_eq!(found, (Err(UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY), 1));
        driver.reset();
        fixture.run(full, 1);
        let code = ur!(CommandBufferExp.pfnFinalizeExp(buffer));
        assert_eq!(code, UR_RESULT_SUCCESS);
        refused(null_mut(), &[], UR_RESULT_ERROR_INVALID_OPERATION);
        release(buffer);
        assert_eq!(ur!(Queue.pfnRelease(elsewhere.queue)), UR_RESULT_SUCCESS);
        elsewhere.test_context.release();
        fixture.end();
    });
}

/// Where a graph cannot be a node of another, it is launched between the commands around it.
#[test]
fn a_graph_that_cannot_be_a_node_is_launched_between_commands() {
    alone(
        "tests::record::a_graph_that_cannot_be_a_node_is_launched_between_commands",
        || {
            let driver = FakeDriver::open();
            let fixture = Fixture::new(&driver, QUEUES[0]);
            let buffer = fixture.buffer(true);
            fixture.fill(buffer, 1, 0, 64, &[]);
            fixture.append(buffer, null_mut(), fixture.set(2, 16, 32), &[]);
            fixture.fill(buffer, 3, 32, 16, &[]);
            driver.fail_each("cuGraphAddChildGraphNode", 1);
            let code = ur!(CommandBufferExp.pfnFinalizeExp(buffer));
            assert_eq!(code, UR_RESULT_SUCCESS);
            driver.count("cuGraphLaunch");
            let none = null_mut();
            let code = ur!(EnqueueExp.pfnCommandBufferExp(fixture.queue, buffer, 0, null(), none));
            assert_eq!(code, UR_RESULT_SUCCESS);
            assert_eq!(driver.query().calls, 1);
            driver.reset();
            assert_eq!(ur!(Queue.pfnFinish(fixture.queue)), UR_RESULT_SUCCESS);
            let wanted = stretches(&[(16, 1), (16, 2), (16, 3), (16, 1)]);
            assert_eq!(fixture.bytes(), wanted);
            release(buffer);
            fixture.end();
        },
    );
}

/// A node gets only those dependencies that do not follow from others, since the driver's cost grows with the
/// edges.
#[test]
fn edges_that_others_imply_are_left_out() {
    const COMMANDS: usize = 2000;
    let name = "tests::record::edges_that_others_imply_are_left_out";
    alone(name, || {
        let driver = FakeDriver::open();
        let fixture = Fixture::new(&driver, QUEUES[0]);
        let buffer = fixture.buffer(false);
        let mut points: Vec<Point> = Vec::new();
        for at in 0..COMMANDS {
            let before = &points[at.saturating_sub(64)..];
            points.push(fixture.fill(buffer, at as u8, 0, 8, before));
        }
        // One node beside the chain, and one after both.
        let beside = fixture.fill(buffer, 7, 8, 8, &[]);
        fixture.fill(buffer, 9, 16, 8, &[points[3], points[COMMANDS - 1], beside]);
        driver.reset();
        let code = ur!(CommandBufferExp.pfnFinalizeExp(buffer));
        assert_eq!(code, UR_RESULT_SUCCESS);
        assert_eq!(driver.edges(), COMMANDS as u64 - 1 + 2);
        driver.count("cuGraphLaunch");
        let none = null_mut();
        let code = ur!(EnqueueExp.pfnCommandBufferExp(fixture.queue, buffer, 0, null(), none));
        assert_eq!(code, UR_RESULT_SUCCESS);
        assert_eq!(ur!(Queue.pfnFinish(fixture.queue)), UR_RESULT_SUCCESS);
        assert_eq!(driver.query().calls, 1);
        driver.reset();
        let last = (COMMANDS - 1) as u8;
        assert_eq!(fixture.bytes(), stretches(&[(8, last), (8, 7), (8, 9)]));
        release(buffer);
        fixture.end();
    });
}
