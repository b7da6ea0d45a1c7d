//! The adapter, its platform and its root device, which live as long as the library, and the
//! threads, which live as long as the adapter has references.

use std::sync::{Arc, OnceLock};

use ur::abi::*;
use ur::hal::{self, Exported};
use ur::object::{Body, Census, Error, Kind, ListOut, Object, Origin, Result};
use ur::stream::Engine;
use ur::sync::{Mutex, MutexGuard, rank};

use crate::device::Device;
use crate::exec::{Executor, Failure, ThreadPool};
use crate::platform::Platform;
use crate::{Cpu, cpu};

/// The one adapter, platform and root device. They outlive every reference, so that a handle from
/// before the last release never dangles.
pub struct Roots {
    pub adapter: Arc<Object<Adapter>>,
    pub platform: Arc<Object<Platform>>,
    pub device: Arc<Object<Device>>,
}

pub fn roots() -> &'static Roots {
    static ROOTS: OnceLock<Roots> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let machine = Arc::new(Machine::new());
        Roots {
            adapter: hal::new::<Cpu, _>(Adapter {
                machine: Arc::clone(&machine),
            }),
            platform: Object::immortal(Cpu::table(), Platform),
            device: Object::immortal(Cpu::table(), Device::root(machine)),
        }
    })
}

pub struct Adapter {
    machine: Arc<Machine>,
}

/// The machine's threads, started when first needed and ended with the adapter's last reference.
pub struct Machine {
    pub width: usize,
    origin: Origin,
    running: Mutex<Running, { rank::DRIVER }>,
}

#[derive(Default)]
struct Running {
    executor: Option<Executor>,
    engine: Option<Arc<Engine<Cpu>>>,
}

impl Machine {
    fn new() -> Self {
        Self {
            width: cpu::threads(),
            origin: Origin::here(),
            running: Mutex::default(),
        }
    }

    /// The workers. `DEVICE_LOST` in the child of a fork, which has none.
    pub fn thread_pool(&self) -> Result<Arc<ThreadPool>> {
        let mut running = self.running()?;
        let executor = match running.executor.take() {
            Some(executor) => executor,
            None => Executor::start(self.width).map_err(error)?,
        };
        Ok(Arc::clone(running.executor.insert(executor).thread_pool()))
    }

    pub fn engine(&self) -> Result<Arc<Engine<Cpu>>> {
        let mut running = self.running()?;
        Ok(Arc::clone(running.engine.get_or_insert_with(Engine::new)))
    }

    fn running(&self) -> Result<MutexGuard<'_, Running>> {
        if self.origin.is_forked() {
            return Err(error(Failure::Lost));
        }
        Ok(self.running.lock())
    }

    /// Ends all threads. The next use starts them again.
    fn stop(&self) {
        let Ok(mut running) = self.running() else {
            return;
        };
        let Running { executor, engine } = std::mem::take(&mut *running);
        drop(running);
        // The engine's threads wait for the workers, so the workers end last.
        if let Some(engine) = engine {
            engine.shut_down();
        }
        if let Some(executor) = executor {
            executor.stop();
        }
    }
}

/// Converts a failure of the executor to the caller's error.
pub fn error(failure: Failure) -> Error {
    match failure {
        Failure::Lost => Error::native(
            UR_RESULT_ERROR_DEVICE_LOST,
            0,
            "the adapter's threads are gone: it was released, or the process forked",
        ),
        Failure::Exhausted => system_error(UR_RESULT_ERROR_OUT_OF_RESOURCES, "starting threads"),
    }
}

/// The error of a failed system call, with its `errno`. `doing` says in the message what failed.
pub fn system_error(code: ur_result_t, doing: &str) -> Error {
    let cause = std::io::Error::last_os_error();
    ::log::warn!("{doing}: {cause}");
    Error::native(
        code,
        cause.raw_os_error().unwrap_or(0),
        &format!("{doing}: {cause}"),
    )
}

impl Body for Adapter {
    const KIND: Kind = Kind::Adapter;

    fn released(this: &Object<Self>) {
        // Another thread may have taken a new reference meanwhile.
        if this.api_refs() == 0 {
            this.machine.stop();
            Census::report();
        }
    }
}

impl hal::Adapter<Cpu> for Adapter {
    fn platform_get(_: &Object<Self>, platforms: ListOut<'_, Platform>) -> Result<()> {
        platforms.write(std::slice::from_ref(&roots().platform));
        Ok(())
    }
}
