//! The loader's life: `urLoaderInit`, `urLoaderTearDown` and the table that applications call.
//!
//! | State       | `references` | table  | adapters | left by                               |
//! |-------------|--------------|--------|----------|---------------------------------------|
//! | torn down   | 0            | null   | none     | the first `urLoaderInit`              |
//! | initialised | 1 or more    | set    | a list   | as many `urLoaderTearDown` as inits   |
//!
//! Every call of every thread reads the table without a lock, so that a table is never freed. It is
//! static, or leaked when layers build their own. A call that races with the last teardown finds a
//! null table, or a table whose functions still work.
//!
//! Owns both entry points. It may use every part of the loader. It must never know what a layer or
//! an adapter does.

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

/// The table that applications call; null while the loader is torn down.
static TABLE: AtomicPtr<ur_dditable_t> = AtomicPtr::new(std::ptr::null_mut());

/// Whether [`TABLE`] is [`BASE`], so that exports may call the functions of [`DISPATCH`] directly.
static DIRECT: AtomicBool = AtomicBool::new(false);

/// Locked for the whole of an initialisation or a teardown.
static STATE: Mutex<LoaderState> = Mutex::new(LoaderState {
    references: 0,
    layers: None,
});

/// Has its own lock, so that a layer may list adapters while it starts or ends.
static ADAPTERS: Mutex<Option<Arc<[AdapterLibrary]>>> = Mutex::new(None);

/// The table without layers: dispatch by handle, with the loader's own functions in place.
static BASE: LazyLock<ur_dditable_t> = LazyLock::new(|| {
    let mut table = DISPATCH;
    table.Adapter.pfnGet = Some(adapters::adapter_get);
    compat::install(&mut table);
    table
});

struct LoaderState {
    references: u32,
    layers: Option<Chain>,
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table that exported functions call; `None` while the loader is torn down.
#[inline]
pub fn app_table() -> Option<&'static ur_dditable_t> {
    // SAFETY: null, or a table that is static or leaked and was complete when it was stored.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Whether exports may call the functions of [`DISPATCH`] directly: no layer or mock is in use.
#[inline(always)]
pub fn is_direct() -> bool {
    DIRECT.load(Ordering::Acquire)
}

/// The loaded adapters, in order; `None` while the loader is torn down.
pub fn adapters() -> Option<Arc<[AdapterLibrary]>> {
    lock(&ADAPTERS).clone()
}

/// The body of every `urGet<Table>ProcAddrTable`: copies one part of the application's table.
///
/// Errors: `INVALID_NULL_POINTER`, `UNSUPPORTED_VERSION` for any but the current version,
/// `UNINITIALIZED` while the loader is torn down.
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
    // SAFETY: not null, and the caller guarantees that it is writable.
    unsafe { out.write(*part(table)) };
    UR_RESULT_SUCCESS
}

versioned! {
    /// Initialises the loader: the first call loads the adapters and builds the layers; later calls
    /// add a reference.
    ///
    /// Errors: `INVALID_ENUMERATION` for unknown flags, or the error of a layer that did not start.
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
        // SAFETY: the caller guarantees a null or live configuration.
        let settings = unsafe { config::settings_of(hLoaderConfig) };
        ur::object::log::init("loader");
        lock(&STATE).init(settings, &Env::process())
    }

    /// Releases a reference; the last one ends the layers and drops the tables. `UNINITIALIZED`
    /// without a matching `urLoaderInit`.
    ///
    /// # Safety
    /// No other thread is inside a call whose adapter's last reference is gone.
    fn urLoaderTearDown() {
        lock(&STATE).tear_down()
    }
}

impl LoaderState {
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
            compat::set_next(below);
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
            DIRECT.store(std::ptr::eq(table, &*BASE), Ordering::Release);
        }
        let references = self.references.checked_add(1);
        self.references = references.ok_or(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES))?;
        Ok(())
    }

    fn tear_down(&mut self) -> Result<()> {
        let remaining = self.references.checked_sub(1);
        self.references = remaining.ok_or(Error::new(UR_RESULT_ERROR_UNINITIALIZED))?;
        if self.references == 0 {
            DIRECT.store(false, Ordering::Release);
            TABLE.store(std::ptr::null_mut(), Ordering::Release);
            if let Some(mut layers) = self.layers.take() {
                layers.teardown();
            }
            compat::clear_arguments();
            *lock(&ADAPTERS) = None;
            debug!("torn down");
        }
        Ok(())
    }
}

/// The mock's base table, and the table that the loader's intercepts call: the mock's own.
///
/// The mock is the only adapter, so that nothing needs dispatch and tests may pass made-up handles.
/// Without an installed mock these are the usual tables.
fn mock_tables(adapters: &[AdapterLibrary]) -> (&'static ur_dditable_t, &'static ur_dditable_t) {
    let Some(mock) = adapters.first() else {
        ur::object::log::once("mocking is enabled, but the mock adapter is not installed");
        return (&BASE, &DISPATCH);
    };
    let below: &'static ur_dditable_t = Box::leak(Box::new(mock.table));
    let mut table = *below;
    compat::install(&mut table);
    (Box::leak(Box::new(table)), below)
}

/// The environment's layers, then the configuration's.
fn layer_names(mut configured: Vec<String>, env: &Env<'_>) -> Vec<String> {
    let mut names = layers_from_env(env);
    names.append(&mut configured);
    names
}

/// The layers of `UR_ENABLE_LAYERS` that this loader has. Unknown names are logged with a list of
/// all layers.
fn layers_from_env(env: &Env<'_>) -> Vec<String> {
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
    let mut before: Option<&Path> = None;
    let load = |candidate| {
        let (path, adapter) = load_first(candidate, before, plan.deep_bind).unzip();
        before = path;
        adapter
    };
    let adapters: Arc<[AdapterLibrary]> = plan.candidates.iter().filter_map(load).collect();
    if adapters.is_empty() {
        warn!("no adapter was found");
    }
    adapters
}

/// The first library of a candidate that exists and is accepted, and its path. `before` is the path of the candidate
/// before it.
fn load_first<'a>(
    candidate: &'a Candidate,
    before: Option<&Path>,
    deep_bind: bool,
) -> Option<(&'a Path, AdapterLibrary)> {
    let mut paths = candidate.paths(before);
    paths.find_map(|path| Some((path, try_load(path, deep_bind)?)))
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
            $name:ident $slot:ident $pfn:ident $params:ident $leader:tt $arguments:tt
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

    /// Exports call these functions of [`DISPATCH`] without reading the table.
    #[test]
    fn the_loader_replaces_no_function_that_exports_call_directly() {
        let all = direct(&DISPATCH);
        assert!(!all.is_empty() && all.iter().all(Option::is_some));
        assert_eq!(direct(&BASE), all);
    }
}
