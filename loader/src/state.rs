//! The loader's life: `urLoaderInit`, `urLoaderTearDown` and the table that applications call.
//!
//! | State       | `references` | table  | adapters | left by                               |
//! |-------------|--------------|--------|----------|---------------------------------------|
//! | torn down   | 0            | null   | none     | the first `urLoaderInit`              |
//! | initialised | 1 or more    | set    | a list   | as many `urLoaderTearDown` as inits   |
//!
//! The table is read by every call of every thread without a lock, so that it is never freed: it is
//! static, or leaked when layers make one of their own. A call that races with the last teardown
//! finds a null table, or a table whose functions still work.
//!
//! Owns both entry points; may use every part of the loader; must never know what a layer or an
//! adapter does.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use log::{debug, error, info, warn};
use ur::abi::*;
use ur::object::env::Env;
use ur::object::{Error, Result, ensure};

use crate::config::{self, Settings};
use crate::discovery::{self, Candidate, Plan};
use crate::dispatch::functions::DISPATCH;
use crate::entry::versioned;
use crate::layers::{self, Chain, KNOWN, LayerContext};
use crate::library::{AdapterLibrary, Refusal};
use crate::{adapters, compat};

/// What applications call; null while the loader is torn down.
static TABLE: AtomicPtr<ur_dditable_t> = AtomicPtr::new(std::ptr::null_mut());

/// Whether that is the table without layers: then what it leads to may be had without it.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// Held from the beginning of an initialisation or a teardown to its end.
static STATE: Mutex<State> = Mutex::new(State {
    references: 0,
    layers: None,
});

/// Apart from the state, so that a layer may look for adapters while it begins or ends.
static ADAPTERS: Mutex<Option<Arc<[AdapterLibrary]>>> = Mutex::new(None);

/// The table without layers: dispatch by handle, with the hand-written functions put in.
static BASE: LazyLock<ur_dditable_t> = LazyLock::new(|| {
    let mut table = DISPATCH;
    table.Adapter.pfnGet = Some(adapters::adapter_get);
    compat::hook(&mut table);
    table
});

struct State {
    references: u32,
    layers: Option<Chain>,
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table that exported functions call; `None` before the first `urLoaderInit` and after the
/// last `urLoaderTearDown`.
#[inline]
pub fn app_table() -> Option<&'static ur_dditable_t> {
    // SAFETY: null, or a table that is static or leaked; it was complete when it was stored.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Whether a function of [`DISPATCH`] that the loader did not replace is what applications call.
#[inline(always)]
pub fn is_plain() -> bool {
    PLAIN.load(Ordering::Acquire)
}

/// The loaded adapters, in order.
pub fn adapters() -> Option<Arc<[AdapterLibrary]>> {
    lock(&ADAPTERS).clone()
}

/// What `urGet<Table>ProcAddrTable` does: copies one part of the application's table.
///
/// # Safety
/// `out` is null or writable.
pub unsafe fn copy_table<T: Copy>(
    version: ur_api_version_t,
    out: *mut T,
    part: fn(&ur_dditable_t) -> &T,
) -> ur_result_t {
    if out.is_null() {
        return UR_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    if version != UR_API_VERSION_CURRENT {
        return UR_RESULT_ERROR_UNSUPPORTED_VERSION;
    }
    let Some(table) = app_table() else {
        return UR_RESULT_ERROR_UNINITIALIZED;
    };
    // SAFETY: not null, and the caller promises that it can be written.
    unsafe { out.write(*part(table)) };
    UR_RESULT_SUCCESS
}

versioned! {
    /// The first call finds the adapters and builds the layers; later ones count.
    ///
    /// # Safety
    /// The configuration is null or live.
    fn urLoaderInit(
        device_flags: ur_device_init_flags_t,
        hLoaderConfig: ur_loader_config_handle_t,
    ) {
        ensure(
            device_flags.0 & UR_DEVICE_INIT_FLAGS_MASK == 0,
            UR_RESULT_ERROR_INVALID_ENUMERATION,
        )?;
        // SAFETY: the caller's promise.
        let settings = unsafe { config::settings_of(hLoaderConfig) };
        ur::object::log::init("loader");
        lock(&STATE).init(settings, &Env::process())
    }

    /// # Safety
    /// No other thread is inside a call whose adapter's last reference is gone.
    fn urLoaderTearDown() {
        lock(&STATE).tear_down()
    }
}

impl State {
    fn init(&mut self, settings: Settings, env: &Env<'_>) -> Result<()> {
        if self.references == 0 {
            let names = layer_names(settings.layers, env);
            let context = LayerContext {
                code_location: settings.code_location,
            };
            let plan = if settings.mocking {
                discovery::mock(env, discovery::own_directory)
            } else {
                discovery::plan(env, discovery::own_directory)
            };
            let adapters = load(&plan);
            let (base, below) = if settings.mocking {
                mock_tables(&adapters)
            } else {
                (&*BASE, &DISPATCH)
            };
            compat::over(below);
            *lock(&ADAPTERS) = Some(adapters);
            let mut table = *base;
            let chain = Chain::build(KNOWN, &names, &mut table, &context)
                .inspect_err(|_| *lock(&ADAPTERS) = None)?;
            let table: &'static ur_dditable_t = if chain.is_empty() {
                base
            } else {
                layers::intern(&table)
            };
            self.layers = Some(chain);
            TABLE.store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
            PLAIN.store(std::ptr::eq(table, &*BASE), Ordering::Release);
        }
        let references = self.references.checked_add(1);
        self.references = references.ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
        Ok(())
    }

    fn tear_down(&mut self) -> Result<()> {
        let remaining = self.references.checked_sub(1);
        self.references = remaining.ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
        if self.references == 0 {
            PLAIN.store(false, Ordering::Release);
            TABLE.store(std::ptr::null_mut(), Ordering::Release);
            if let Some(mut layers) = self.layers.take() {
                layers.teardown();
            }
            compat::forget_all();
            *lock(&ADAPTERS) = None;
            debug!("torn down");
        }
        Ok(())
    }
}

/// The base table, and what lies below its intercepts: the mock's own table. It is the only adapter,
/// so that nothing needs dispatch, and a test may pass handles that it made up. The usual tables,
/// without adapters, if the mock is not installed.
fn mock_tables(adapters: &[AdapterLibrary]) -> (&'static ur_dditable_t, &'static ur_dditable_t) {
    let Some(mock) = adapters.first() else {
        ur::object::log::once("mocking is enabled, but the mock adapter is not installed");
        return (&BASE, &DISPATCH);
    };
    let below: &'static ur_dditable_t = Box::leak(Box::new(mock.table));
    let mut table = *below;
    compat::hook(&mut table);
    (Box::leak(Box::new(table)), below)
}

/// The environment's layers, then the configuration's.
fn layer_names(mut configured: Vec<String>, env: &Env<'_>) -> Vec<String> {
    let mut names = layers_of(env);
    names.append(&mut configured);
    names
}

/// What `UR_ENABLE_LAYERS` asks for, and this loader has. The rest is said, with all that it has.
fn layers_of(env: &Env<'_>) -> Vec<String> {
    const VARIABLE: &str = "UR_ENABLE_LAYERS";
    let complain = |fault: String, consequence: &str| {
        let accepted = layers::names().join(", ");
        env.complain(&format!(
            "{VARIABLE}: {fault}; accepted, separated by commas: {accepted}; {consequence}"
        ));
    };
    let names = match env.list(VARIABLE) {
        None => return Vec::new(),
        Some(Ok(names)) => names,
        Some(Err(reason)) => {
            complain(reason.to_string(), "it enables none");
            return Vec::new();
        }
    };
    let (known, unknown): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| layers::is_known(name));
    if !unknown.is_empty() {
        let fault = format!("unknown: `{}`", unknown.join("`, `"));
        let consequence = match known.is_empty() {
            true => "it enables none".to_owned(),
            false => format!("it enables {} alone", known.join(", ")),
        };
        complain(fault, &consequence);
    }
    known
}

fn load(plan: &Plan) -> Arc<[AdapterLibrary]> {
    let adapters: Arc<[AdapterLibrary]> = plan
        .candidates
        .iter()
        .filter_map(|candidate| load_first(candidate, plan.deep_bind))
        .collect();
    if adapters.is_empty() {
        warn!("no adapter was found");
    }
    adapters
}

/// The first library of a candidate that is there and fits.
fn load_first(candidate: &Candidate, deep_bind: bool) -> Option<AdapterLibrary> {
    candidate
        .paths
        .iter()
        .find_map(|path| try_load(path, deep_bind))
}

fn try_load(path: &Path, deep_bind: bool) -> Option<AdapterLibrary> {
    match AdapterLibrary::open(path, deep_bind) {
        Ok(adapter) => {
            info!("loaded {}", adapter.name);
            Some(adapter)
        }
        Err(reason @ Refusal::Missing(_)) => {
            info!("not loaded: {reason}");
            None
        }
        Err(reason) => {
            error!("refused {}: {reason}", path.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::if_direct;
    use crate::layers::wrappers::COUNT;

    macro_rules! direct {
        ($( $table:ident $struct:ident { $(
            $number:literal $name:ident $slot:ident $pfn:ident $params:ident $leader:tt $arguments:tt
        )* } )*) => {
            /// Addresses of a table's functions whose exports call their dispatch directly.
            fn direct(table: &ur_dditable_t) -> Vec<Option<usize>> {
                let mut addresses = Vec::with_capacity(COUNT);
                $( $( if_direct! { $table $leader
                    addresses.push(table.$table.$slot.map(|function| function as usize));
                } )* )*
                addresses
            }
        };
    }
    ur::for_each_function! { direct }

    /// Exports call these functions of [`DISPATCH`] without a look at the table.
    #[test]
    fn the_loader_replaces_no_function_that_exports_call_directly() {
        let all = direct(&DISPATCH);
        assert!(!all.is_empty() && all.iter().all(Option::is_some));
        assert_eq!(direct(&BASE), all);
    }
}
