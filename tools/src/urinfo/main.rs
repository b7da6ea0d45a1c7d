//! `urinfo`: lists the adapters, platforms and devices that a loader finds.
//!
//! It may use `ur::abi` and `ur::dl`. It opens the loader at run time, as every program may, and
//! knows no adapter.

mod api;
#[rustfmt::skip]
mod inventory;
mod report;
mod value;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use console::discovery;
use inventory::Inventory;

/// Lists the devices that Unified Runtime finds, one per line: the terms of ONEAPI_DEVICE_SELECTOR
/// that select it, its platform, its name, version and driver.
///
/// Without a device it prints where the loader searched for each adapter, and why none has one.
///
/// The loader reads the environment as for any program: UR_ADAPTERS_FORCE_LOAD,
/// UR_ADAPTERS_SEARCH_PATH and ONEAPI_DEVICE_SELECTOR. Exits with 0 if a device was listed, with 1
/// if there is none, and with 2 if the loader cannot be used or the output cannot be written. A
/// reader that closes the output early is no error.
#[derive(Parser)]
#[command(name = "urinfo", version)]
struct Cli {
    /// Loader library; by default libur_loader.so.0 beside this program, in ../lib or of the system
    #[arg(long, value_name = "PATH")]
    loader: Option<PathBuf>,
    /// Prints every property of the loader, adapters, platforms and devices
    #[arg(long, short)]
    verbose: bool,
    /// Prints everything as JSON, with or without --verbose
    #[arg(long)]
    json: bool,
    /// Ignores ONEAPI_DEVICE_SELECTOR
    #[arg(long, short)]
    all: bool,
    /// Does not look for the reasons if there is no device; for this program's child process
    #[arg(long, hide = true)]
    no_reasons: bool,
}

const NO_DEVICE: u8 = 1;
const NO_LOADER: u8 = 2;

const FORCED: &str = "UR_ADAPTERS_FORCE_LOAD";
const LOADERS: [&str; 2] = ["libur_loader.so.0", "libur_loader.so"];

fn main() -> ExitCode {
    let cli: Cli = match console::parse_with_schema::<Cli, Inventory>(NO_LOADER) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if cli.all {
        api::unset_selector();
    }
    console::end("urinfo", cli.run(), NO_LOADER)
}

impl Cli {
    fn run(&self) -> ExitCode {
        let selector = std::env::var(api::SELECTOR).ok();
        let path = self.loader.clone();
        let path = path.unwrap_or_else(|| ur::dl::near_program(&LOADERS));
        let loader = match api::Loader::open(&path) {
            Ok(loader) => loader,
            Err(reason) => {
                console::errln!("urinfo: {reason}");
                return ExitCode::from(NO_LOADER);
            }
        };
        let inventory = Inventory::read(&loader, &path, selector);
        drop(loader);
        console::out!("{}", self.show(&inventory));
        let reasons = || match self.no_reasons {
            true => Vec::new(),
            false => self.reasons(&path),
        };
        explain(&inventory, reasons)
    }

    /// Why the loader offers no device, from the log of a second process.
    fn reasons(&self, loader: &Path) -> Vec<String> {
        let Ok(program) = std::env::current_exe() else {
            return Vec::new();
        };
        let mut command = Command::new(program);
        command.arg("--no-reasons").arg("--loader").arg(loader);
        command.args(self.all.then_some("--all"));
        discovery::reasons(&mut command)
    }

    fn show(&self, inventory: &Inventory) -> String {
        if self.json {
            // The inventory has strings and numbers only, so that the conversion cannot fail.
            serde_json::to_string_pretty(inventory).unwrap_or_default() + "\n"
        } else if self.verbose {
            report::Long(inventory).to_string()
        } else {
            report::Short(inventory).to_string()
        }
    }
}

/// Reports what is not listed and why, and returns the exit code.
fn explain(inventory: &Inventory, reasons: impl FnOnce() -> Vec<String>) -> ExitCode {
    for error in inventory.errors() {
        console::errln!("urinfo: {error}");
    }
    let hidden: usize = inventory.platforms().map(|platform| platform.hidden).sum();
    if let (Some(selector), true) = (&inventory.selector, hidden > 0) {
        let (devices, them) = match hidden {
            1 => ("device", "it"),
            _ => ("devices", "them"),
        };
        console::errln!(
            "urinfo: ONEAPI_DEVICE_SELECTOR={selector} hides {hidden} {devices}; --all lists {them}"
        );
    }
    if inventory.devices().next().is_some() {
        return ExitCode::SUCCESS;
    }
    if hidden > 0 {
        console::errln!("urinfo: no device is selected");
        return ExitCode::from(NO_DEVICE);
    }
    let no_adapter = inventory.adapters.is_empty();
    match no_adapter {
        true => console::errln!("urinfo: no adapter was found"),
        false => console::errln!("urinfo: no device was found"),
    }
    // Adapters that are loaded by path are not filtered.
    let filtered = no_adapter && std::env::var_os(FORCED).is_none();
    let selector = inventory.selector.as_ref().filter(|_| filtered);
    if let Some(selector) = selector {
        console::errln!(
            "urinfo: only adapters that may have a device of ONEAPI_DEVICE_SELECTOR={selector} are \
             looked for; --all looks for every one"
        );
    }
    let reasons = reasons();
    if selector.is_some() && reasons.is_empty() {
        console::errln!("urinfo: there is none");
    }
    for reason in reasons {
        console::errln!("urinfo: {reason}");
    }
    ExitCode::from(NO_DEVICE)
}
