//! What pools tell and what the environment changes of them, through the built library. Each case that
//! sets variables runs as a child: this very program, with one test to run.

use std::ffi::c_void;
use std::process::Command;
use std::ptr::{null, null_mut};

use ur::abi::*;
use ur::dl::{Binding, Library, function};

/// Calls a table's function; an error is its code.
macro_rules! try_ur {
    ($scene:expr, $table:ident.$function:ident($($argument:expr),* $(,)?)) => {{
        let function = $scene.ur.$table.$function.expect("no slot is empty");
        // SAFETY: the arguments are live objects and memory of the test.
        match unsafe { function($($argument),*) } {
            UR_RESULT_SUCCESS => Ok(()),
            error => Err(error),
        }
    }};
}

macro_rules! ok {
    ($($call:tt)*) => {
        try_ur!($($call)*).expect("the call succeeds")
    };
}

/// One context on the CPU.
struct Scene {
    ur: &'static ur_dditable_t,
    context: ur_context_handle_t,
    device: ur_device_handle_t,
    _library: Library,
}

type Queue = ur_queue_handle_t;
type Events<'a> = &'a [ur_event_handle_t];

impl Scene {
    fn new() -> Self {
        type Get =
            unsafe extern "C" fn(ur_api_version_t, *mut ur_adapter_dditable_t) -> ur_result_t;
        let test = std::env::current_exe().expect("this test has a file");
        let path = test.with_file_name("libur_adapter_native_cpu.so");
        let library = Library::open(path, Binding::Usual).expect("the library is built");
        // SAFETY: the symbol has this type in every adapter.
        let get = unsafe { function::<Get>(library.address(c"urGetAdapterProcAddrTable")) };
        let mut table = ur_adapter_dditable_t::default();
        // SAFETY: the table is ours to fill.
        let result = unsafe { get.expect("is exported")(UR_API_VERSION_CURRENT, &raw mut table) };
        assert_eq!(result, UR_RESULT_SUCCESS);
        let mut adapter: ur_adapter_handle_t = null_mut();
        // SAFETY: there is room for one handle.
        let result = unsafe { table.pfnGet.expect("is there")(1, &raw mut adapter, null_mut()) };
        assert_eq!(result, UR_RESULT_SUCCESS);
        // SAFETY: a handle's first word points to its adapter's table, which lives with the library.
        let ur = unsafe { &**adapter.cast::<*const ur_dditable_t>() };
        let mut scene = Self {
            ur,
            context: null_mut(),
            device: null_mut(),
            _library: library,
        };
        let mut platform = null_mut();
        ok!(
            scene,
            Platform.pfnGet(adapter, 1, &raw mut platform, null_mut())
        );
        let device = &raw mut scene.device;
        ok!(
            scene,
            Device.pfnGet(platform, UR_DEVICE_TYPE_CPU, 1, device, null_mut())
        );
        let (device, context) = (&raw const scene.device, &raw mut scene.context);
        ok!(scene, Context.pfnCreate(1, device, null(), context));
        scene
    }

    fn queue(&self, flags: ur_queue_flags_t) -> Queue {
        let mut queue = null_mut();
        let properties = ur_queue_properties_t {
            stype: UR_STRUCTURE_TYPE_QUEUE_PROPERTIES,
            pNext: null_mut(),
            flags,
        };
        let at = &raw const properties;
        ok!(
            self,
            Queue.pfnCreate(self.context, self.device, at, &raw mut queue)
        );
        queue
    }

    fn pool(&self, most: usize) -> ur_usm_pool_handle_t {
        let mut pool = null_mut();
        let limits = ur_usm_pool_limits_desc_t {
            stype: UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC,
            pNext: null_mut(),
            maxPoolableSize: most,
            minDriverAllocSize: usize::MAX,
        };
        let mut desc = ur_usm_pool_desc_t {
            stype: UR_STRUCTURE_TYPE_USM_POOL_DESC,
            pNext: (&raw const limits).cast(),
            flags: Default::default(),
        };
        ok!(
            self,
            USM.pfnPoolCreate(self.context, &raw mut desc, &raw mut pool)
        );
        pool
    }

    fn alloc(
        &self,
        queue: Queue,
        pool: ur_usm_pool_handle_t,
        bytes: usize,
        waits: Events<'_>,
    ) -> Result<*mut c_void, ur_result_t> {
        let mut memory = null_mut();
        let (count, list) = list(waits);
        let memory_at = &raw mut memory;
        try_ur!(
            self,
            EnqueueExp.pfnUSMDeviceAllocExp(
                queue,
                pool,
                bytes,
                null(),
                count,
                list,
                memory_at,
                null_mut()
            )
        )?;
        Ok(memory)
    }

    fn free(&self, queue: Queue, memory: *mut c_void) -> ur_event_handle_t {
        let mut event = null_mut();
        let at = &raw mut event;
        ok!(
            self,
            EnqueueExp.pfnUSMFreeExp(queue, null_mut(), memory, 0, null(), at)
        );
        event
    }

    fn fill(&self, queue: Queue, memory: *mut c_void, bytes: usize) {
        let pattern = 7_u8;
        let at = (&raw const pattern).cast();
        ok!(
            self,
            Enqueue.pfnUSMFill(queue, memory, 1, at, bytes, 0, null(), null_mut())
        );
    }

    fn finish(&self, queue: Queue) {
        ok!(self, Queue.pfnFinish(queue));
    }

    fn counter(&self, pool: ur_usm_pool_handle_t, what: ur_usm_pool_info_t) -> u64 {
        let mut value = 0_u64;
        let at = (&raw mut value).cast();
        ok!(self, USM.pfnPoolGetInfo(pool, what, 8, at, null_mut()));
        value
    }

    fn report(&self, pool: ur_usm_pool_handle_t) -> String {
        let mut text = vec![0_u8; 4096];
        let mut size = 0;
        let what = UR_USM_POOL_INFO_REPORT_EXT;
        let at = text.as_mut_ptr().cast();
        ok!(
            self,
            USM.pfnPoolGetInfo(pool, what, text.len(), at, &raw mut size)
        );
        text.truncate(size - 1);
        String::from_utf8(text).expect("it is text")
    }
}

fn list(events: Events<'_>) -> (u32, *const ur_event_handle_t) {
    match events {
        [] => (0, null()),
        events => (events.len() as u32, events.as_ptr()),
    }
}

const OUT_OF_ORDER: ur_queue_flags_t = UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE;
const IN_ORDER: ur_queue_flags_t = ur_queue_flags_t(0);
const MIB: usize = 1 << 20;

/// Runs one test of this program, which is then its own master, with variables set.
fn child(test: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = Command::new(std::env::current_exe().expect("this test has a file"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
        .env("UR_TEST_CHILD", test)
        .envs(variables.iter().copied());
    let output = command.output().expect("this program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    (out, err)
}

/// Whether this process is a child that is to run this test's own part.
fn is_child(test: &str) -> bool {
    std::env::var("UR_TEST_CHILD").is_ok_and(|own| own == test)
}

#[test]
fn counters_tell_how_requests_were_served() {
    let scene = Scene::new();
    let pool = scene.pool(0);
    let (p, q) = (scene.queue(IN_ORDER), scene.queue(IN_ORDER));
    let counts = |what: [ur_usm_pool_info_t; 5]| what.map(|what| scene.counter(pool, what));
    let hits = || {
        counts([
            UR_USM_POOL_INFO_HITS_GROWN_EXT,
            UR_USM_POOL_INFO_HITS_OWN_EXT,
            UR_USM_POOL_INFO_HITS_ORDERED_EXT,
            UR_USM_POOL_INFO_HITS_COMPLETED_EXT,
            UR_USM_POOL_INFO_HITS_WAITED_EXT,
        ])
    };
    assert_eq!(hits(), [0; 5]);
    let alloc =
        |queue, waits: Events<'_>| scene.alloc(queue, pool, 4 * MIB, waits).expect("memory");
    let block = alloc(p, &[]);
    assert_eq!(hits(), [1, 0, 0, 0, 0]);
    for turn in 1..=3 {
        scene.fill(p, block, MIB);
        scene.free(p, block);
        assert_eq!((alloc(p, &[]), hits()), (block, [1, turn, 0, 0, 0]));
    }
    // The host holds the first queue up, so that nothing on it is complete.
    let opened = gate(&scene, p);
    scene.fill(p, block, MIB);
    let freed = scene.free(p, block);
    let other = alloc(q, &[]);
    assert_eq!((other != block, hits()), (true, [2, 3, 0, 0, 0]));
    assert_eq!((alloc(q, &[freed]), hits()), (block, [2, 3, 1, 0, 0]));
    opened.store(true, std::sync::atomic::Ordering::Release);
    scene.finish(p);
    scene.finish(q);
    scene.free(q, other);
    scene.finish(q);
    assert_eq!((alloc(p, &[]), hits()), (other, [2, 3, 1, 1, 0]));
    let growth = counts([
        UR_USM_POOL_INFO_GROWTHS_EXT,
        UR_USM_POOL_INFO_GROWN_BYTES_EXT,
        UR_USM_POOL_INFO_FREES_EXT,
        UR_USM_POOL_INFO_WAITS_EXT,
        UR_USM_POOL_INFO_FAILED_EXT,
    ]);
    assert_eq!(growth, [2, 8 * MIB as u64, 5, 0, 0]);
    // Memory goes back when asked for.
    scene.free(q, block);
    scene.free(p, other);
    scene.finish(p);
    scene.finish(q);
    ok!(
        scene,
        USMExp.pfnPoolTrimToExp(scene.context, scene.device, pool, 0)
    );
    let trims = scene.counter(pool, UR_USM_POOL_INFO_TRIMMED_BYTES_EXT);
    assert_eq!(trims, 8 * MIB as u64);
    let report = scene.report(pool);
    assert!(
        report.contains("7 served: own 3, ordered 1, completed 1, waited 0 (0 waits), grown 2"),
        "{report}"
    );
    assert!(report.contains("trims of 8388608 bytes"), "{report}");
    // No counter can be set.
    let zero = 0_u64;
    let at = (&raw const zero).cast_mut().cast();
    let set = try_ur!(
        scene,
        USMExp.pfnPoolSetInfoExp(pool, UR_USM_POOL_INFO_FREES_EXT, at, 8)
    );
    assert_eq!(set, Err(UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION));
}

/// Holds an in-order queue up until it is opened.
fn gate(scene: &Scene, queue: Queue) -> &'static std::sync::atomic::AtomicBool {
    use std::sync::atomic::{AtomicBool, Ordering};
    unsafe extern "C" fn hold(data: *mut c_void) {
        // SAFETY: the flag is there for ever.
        let open = unsafe { &*data.cast::<AtomicBool>() };
        while !open.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
    let open: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let data = (&raw const *open).cast_mut().cast();
    ok!(
        scene,
        EnqueueExp.pfnHostTaskExp(queue, Some(hold), data, null(), 0, null(), null_mut())
    );
    open
}

#[test]
fn a_pool_is_logged_when_asked_and_when_it_ends() {
    let name = "a_pool_is_logged_when_asked_and_when_it_ends";
    if is_child(name) {
        let scene = Scene::new();
        let (pool, queue) = (scene.pool(0), scene.queue(IN_ORDER));
        let block = scene.alloc(queue, pool, MIB, &[]).expect("memory");
        let nothing = 0_u8;
        let at = (&raw const nothing).cast_mut().cast();
        ok!(
            scene,
            USMExp.pfnPoolSetInfoExp(pool, UR_USM_POOL_INFO_REPORT_EXT, at, 1)
        );
        scene.free(queue, block);
        scene.finish(queue);
        ok!(scene, USM.pfnPoolRelease(pool));
        return;
    }
    let lines = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("<POOL>[INFO]: pool "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (_, err) = child(name, &[("UR_LOG_POOL", "level:info")]);
    let found = lines(&err);
    assert_eq!(found.len(), 2, "{err}");
    assert!(
        found[0].contains("used 1048576 high 1048576; 1 served") && found[0].contains("0 freed")
    );
    assert!(found[1].contains("used 0 high 1048576; 1 served") && found[1].contains("1 freed"));
    let (_, err) = child(name, &[]);
    assert!(lines(&err).is_empty(), "{err}");
}

#[test]
fn waits_are_inserted_as_the_environment_says() {
    let name = "waits_are_inserted_as_the_environment_says";
    if is_child(name) {
        let scene = Scene::new();
        // Room for one block, so that a second one has to wait for the first one's death or fail.
        let (tight, wide) = (scene.pool(4 * MIB), scene.pool(0));
        let (p, q) = (scene.queue(IN_ORDER), scene.queue(IN_ORDER));
        let opened = gate(&scene, p);
        for (label, pool) in [("tight", tight), ("wide", wide)] {
            let block = scene.alloc(p, pool, 4 * MIB, &[]).expect("memory");
            scene.fill(p, block, MIB);
            scene.free(p, block);
            let next = scene.alloc(q, pool, 4 * MIB, &[]);
            let waits = scene.counter(pool, UR_USM_POOL_INFO_WAITS_EXT);
            println!(
                "{label}: {} {waits}",
                match next {
                    Ok(next) if next == block => "same",
                    Ok(_) => "other",
                    Err(_) => "none",
                }
            );
        }
        opened.store(true, std::sync::atomic::Ordering::Release);
        scene.finish(p);
        scene.finish(q);
        return;
    }
    for (policy, tight, wide) in [
        ("never", "none 0", "other 0"),
        ("bounded", "same 1", "other 0"),
        ("", "same 1", "other 0"),
        ("always", "same 1", "same 1"),
        ("perhaps", "same 1", "other 0"),
    ] {
        let (out, err) = child(name, &[("UR_POOL_WAITS", policy)]);
        let found =
            out.contains(&format!("tight: {tight}")) && out.contains(&format!("wide: {wide}"));
        assert!(found, "{policy}: {out}");
        let complains = err.contains("UR_POOL_WAITS: `perhaps` is none of never, bounded, always");
        assert_eq!(complains, policy == "perhaps", "{err}");
    }
}

/// Random allocations, frees, work and waits on queues of both kinds, always the same; and where each
/// allocation lay.
fn program(scene: &Scene, jitter: bool) -> Vec<usize> {
    let pool = scene.pool(0);
    let kinds = [IN_ORDER, IN_ORDER, IN_ORDER, OUT_OF_ORDER];
    let mut queues = kinds.map(|kind| scene.queue(kind));
    let mut live: Vec<(*mut c_void, usize)> = Vec::new();
    let mut events: Vec<ur_event_handle_t> = Vec::new();
    let mut places = Vec::new();
    let mut state = 0x9e37_79b9_u64;
    let mut random = move |below: u64| {
        // Knuth's linear congruential generator.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..3000 {
        let queue = queues[random(4) as usize];
        let waits: Vec<_> = match events.len() {
            len @ 1.. if random(3) == 0 => vec![events[random(len as u64) as usize]],
            _ => vec![],
        };
        match random(16) {
            0..=6 => {
                let bytes = 1 << (8 + random(15));
                let block = scene.alloc(queue, pool, bytes, &waits).expect("memory");
                places.push(block.addr());
                live.push((block, bytes));
            }
            7..=12 if !live.is_empty() => {
                let at = random(live.len() as u64) as usize;
                let (block, bytes) = live.swap_remove(at);
                if random(2) == 0 {
                    scene.fill(queue, block, bytes);
                }
                events.push(scene.free(queue, block));
            }
            13 if step % 7 == 0 => scene.finish(queue),
            14 if step % 5 == 0 && !waits.is_empty() => {
                ok!(scene, Event.pfnWait(1, waits.as_ptr()));
            }
            15 if step % 11 == 0 => {
                // A queue ends with work pending on it, and another takes its place.
                let at = random(3) as usize;
                ok!(scene, Queue.pfnRelease(queues[at]));
                queues[at] = scene.queue(IN_ORDER);
            }
            _ => {}
        }
        if jitter && random(40) == 0 {
            let time = std::process::id().is_multiple_of(7) as u64;
            std::thread::sleep(std::time::Duration::from_micros(50 + 400 * time));
        } else if !jitter {
            // The same numbers are drawn.
            random(40);
        }
        while events.len() > 24 {
            ok!(scene, Event.pfnRelease(events.remove(0)));
        }
    }
    println!("report: {}", scene.report(pool));
    places
}

#[test]
fn a_deterministic_run_repeats_addresses_and_figures() {
    let name = "a_deterministic_run_repeats_addresses_and_figures";
    if is_child(name) {
        let scene = Scene::new();
        let places = program(&scene, std::env::var_os("UR_TEST_JITTER").is_some());
        println!("places: {places:x?}");
        return;
    }
    let run = |jitter: bool, threads: &str| {
        let mut variables = vec![
            ("UR_POOL_DETERMINISTIC", "1"),
            ("SYCL_NATIVE_CPU_HOST_THREADS", threads),
        ];
        if jitter {
            variables.push(("UR_TEST_JITTER", "1"));
        }
        let (out, _) = child(name, &variables);
        let lines = out
            .lines()
            .filter(|line| line.contains("report:") || line.contains("places:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = run(false, "1");
    assert_eq!(first.len(), 2);
    for (jitter, threads) in [(false, "1"), (true, "1"), (true, "2"), (false, "2")] {
        assert_eq!(
            run(jitter, threads),
            first,
            "jitter {jitter}, {threads} threads"
        );
    }
    let ordered = first[0].split("ordered ").nth(1).expect("a report");
    let ordered: u64 = ordered
        .split(',')
        .next()
        .and_then(|count| count.parse().ok())
        .expect("a number");
    assert!(ordered > 0, "reuse goes on: {}", first[0]);
}

/// One line of a trace.
struct Line<'a> {
    op: char,
    id: usize,
    after: Vec<(u64, u64)>,
    reuse: &'a str,
    rest: Vec<(&'a str, &'a str)>,
}

fn points(text: &str) -> Vec<(u64, u64)> {
    let point = |text: &str| {
        let (lane, epoch) = text.split_once('@').expect("a point");
        (
            lane.parse().expect("a lane"),
            epoch.parse().expect("an epoch"),
        )
    };
    text.split(',')
        .filter(|text| *text != "-")
        .map(point)
        .collect()
}

fn ids(text: &str) -> impl Iterator<Item = usize> {
    text.split(',').map(|id| id.parse().expect("an id"))
}

fn line(text: &str) -> Line<'_> {
    let words: Vec<&str> = text.split(' ').collect();
    Line {
        op: words[0].chars().next().expect("an operation"),
        id: words[1].parse().unwrap_or(usize::MAX),
        after: points(words[4]),
        reuse: words[5],
        rest: words[6..]
            .iter()
            .map(|word| word.split_once('=').expect("a pair"))
            .collect(),
    }
}

impl Line<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.rest
            .iter()
            .find(|(own, _)| *own == key)
            .map(|(_, value)| *value)
    }
}

fn covers(all: &[&[(u64, u64)]], point: &(u64, u64)) -> bool {
    let mut all = all.iter().copied().flatten();
    point.1 == 0 || all.any(|(lane, epoch)| *lane == point.0 && *epoch >= point.1)
}

#[test]
fn a_trace_proves_each_reuse_and_explains_each_miss() {
    let name = "a_trace_proves_each_reuse_and_explains_each_miss";
    if is_child(name) {
        program(&Scene::new(), false);
        return;
    }
    let folder = std::env::temp_dir().join(format!("ur-pools-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let pattern = folder.join("%p.trace");
    let pattern = pattern.to_str().expect("text");
    // What is complete is then in the trace too.
    let (out, _) = child(
        name,
        &[("UR_POOL_TRACE", pattern), ("UR_POOL_DETERMINISTIC", "1")],
    );
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder")
        .flatten()
        .collect();
    assert_eq!(files.len(), 1, "one process, one trace");
    let text = std::fs::read_to_string(files[0].path()).expect("the trace");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let mut deaths: Vec<Option<Vec<(u64, u64)>>> = Vec::new();
    let mut awaited: Vec<(u64, u64)> = Vec::new();
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    let (mut proved, mut explained) = (0, 0);
    for text in text.lines() {
        let line = line(text);
        let dead = |id: usize| {
            deaths[id]
                .as_ref()
                .unwrap_or_else(|| panic!("{id} lives: {text}"))
        };
        match line.op {
            'w' => awaited.extend(&line.after),
            'f' => {
                assert!(deaths[line.id].is_none(), "freed twice: {text}");
                deaths[line.id] = Some(line.after);
            }
            'a' => {
                assert_eq!(line.id, deaths.len());
                *counts.entry(line.reuse.to_owned()).or_default() += 1;
                for id in line.get("from").into_iter().flat_map(ids) {
                    let ordered = |point| covers(&[&line.after, &awaited], point);
                    assert!(
                        dead(id).iter().all(ordered),
                        "unordered: {text} after {:?}",
                        dead(id)
                    );
                    proved += 1;
                }
                if let Some(lacks) = line.get("lacks") {
                    let (wait, owners) = lacks.split_once(':').expect("a lack");
                    let wait = points(wait);
                    assert!(
                        wait.iter()
                            .any(|point| !covers(&[&line.after, &awaited], point)),
                        "{text}"
                    );
                    for id in ids(owners) {
                        let then = |point| covers(&[&line.after, &awaited, &wait], point);
                        assert!(
                            dead(id).iter().all(then),
                            "not enough: {text} for {:?}",
                            dead(id)
                        );
                        explained += 1;
                    }
                }
                deaths.push(None);
            }
            op => panic!("unknown operation {op}"),
        }
    }
    assert!(
        proved > 500 && explained > 0,
        "{proved} reuses, {explained} misses"
    );
    let report = out.split("report: ").nth(1).expect("a report");
    for (word, reuse) in [
        ("own ", "own"),
        ("ordered ", "ordered"),
        ("completed ", "completed"),
        ("grown ", "grown"),
    ] {
        let count = report
            .split(word)
            .nth(1)
            .and_then(|rest| rest.split([',', ';']).next());
        let traced = counts.get(reuse).copied().unwrap_or_default();
        assert_eq!(
            count,
            Some(traced.to_string().as_str()),
            "{reuse}: {report}"
        );
    }
}
