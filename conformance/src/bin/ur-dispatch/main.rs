//! `ur-dispatch`: the time that a loader adds to a call, compared with a direct call through the adapter's
//! table.
//!
//! Every configuration, a loader with adapters and layers, has its own processes. They take turns, so that
//! other load affects all. Within a process, samples through the loader and direct ones alternate. The
//! program uses `ur::abi` and `ur::dl` and knows no adapter.

mod calls;

use calls::{CALLS, Setup, Way};
use clap::Parser;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Measures the time that loaders add to calls, in nanoseconds over a direct call of the same function.
///
/// Exits with 0 if ours adds at most as much as theirs, 1 if it adds more, 2 if it could not measure.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The loader to measure
    ours: PathBuf,
    /// The loader to compare it with
    theirs: Option<PathBuf>,
    /// Adapter libraries, comma-separated; the first is called, the others are loaded besides for the
    /// configurations with several
    #[arg(long, required = true, value_delimiter = ',')]
    adapters: Vec<PathBuf>,
    /// Layers of ours to measure as well, one at a time
    #[arg(long, value_delimiter = ',')]
    layers: Vec<String>,
    /// Processes of each configuration
    #[arg(long, default_value_t = 9)]
    processes: usize,
    /// In a worker: samples of each call
    #[arg(long, default_value_t = 31)]
    rounds: usize,
    /// Measures in this process, and answers with lines of name, nanoseconds through the loader and
    /// nanoseconds of a direct call
    #[arg(long, hide = true)]
    worker: bool,
    /// Calls this function and prints nothing, to count instructions
    #[arg(long, hide = true)]
    repeat: Option<String>,
    /// With --repeat: number of calls
    #[arg(long, hide = true, default_value_t = 100_000)]
    times: usize,
    /// With --repeat: through the table rather than the loader
    #[arg(long, hide = true)]
    direct: bool,
}

const ADDS_MORE: u8 = 1;
const CANNOT_RUN: u8 = 2;

/// Calls in a sample.
const BATCH: usize = 20_000;

/// Timing differs by up to this many nanoseconds between runs of the same code.
const NOISE: f64 = 0.15;

fn main() -> ExitCode {
    let cli: Cli = match console::parse(CANNOT_RUN) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let ended = match &cli.repeat {
        Some(name) => cli.repeat(name).map(|()| true),
        None if cli.worker => cli.work().map(|()| true),
        None => cli.compare(),
    };
    let code = match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(ADDS_MORE),
        Err(reason) => {
            console::errln!("ur-dispatch: {reason}");
            ExitCode::from(CANNOT_RUN)
        }
    };
    console::end("ur-dispatch", code, CANNOT_RUN)
}

/// A loader with adapters and perhaps a layer.
struct Configuration<'a> {
    name: String,
    loader: &'a Path,
    adapters: &'a [PathBuf],
    layer: Option<&'a str>,
}

/// Samples of one call: through the loader, and direct.
type Samples = Vec<(f64, f64)>;

impl Cli {
    fn repeat(&self, name: &str) -> Result<(), String> {
        let setup = Setup::open(&self.ours)?;
        let call = CALLS.iter().find(|call| call.name == name);
        let call = call.ok_or_else(|| format!("no call {name}"))?;
        let way = if self.direct {
            Way::Direct
        } else {
            Way::Loader
        };
        (call.run)(&setup, way, self.times)
    }

    fn work(&self) -> Result<(), String> {
        let setup = Setup::open(&self.ours)?;
        for call in CALLS {
            for round in 0..=self.rounds {
                let loader = call.time(&setup, Way::Loader, BATCH)?;
                let direct = call.time(&setup, Way::Direct, BATCH)?;
                // The first sample warms up caches and is discarded.
                if round > 0 {
                    console::outln!("{}\t{loader}\t{direct}", call.name);
                }
            }
        }
        Ok(())
    }

    fn compare(&self) -> Result<bool, String> {
        let configurations = self.configurations();
        let mut samples: Vec<BTreeMap<String, Samples>> = Vec::new();
        samples.resize_with(configurations.len(), BTreeMap::new);
        for _ in 0..self.processes {
            for (configuration, samples) in configurations.iter().zip(&mut samples) {
                self.sample(configuration, samples)?;
            }
        }
        let head: Vec<&str> = configurations.iter().map(|one| one.name.as_str()).collect();
        console::outln!("| call | direct | {} |", head.join(" | "));
        console::outln!("|---|{}", "---|".repeat(head.len() + 1));
        let mut fine = true;
        for call in CALLS {
            let of = |samples: &BTreeMap<String, Samples>, which: fn(&(f64, f64)) -> f64| {
                median(
                    samples
                        .get(call.name)
                        .into_iter()
                        .flatten()
                        .map(which)
                        .collect(),
                )
            };
            let direct = of(&samples[0], |(_, direct)| *direct);
            let added = |samples| of(samples, |(loader, direct)| loader - direct);
            let added: Vec<f64> = samples.iter().map(added).collect();
            let cells: Vec<String> = added.iter().map(|ns| format!("{ns:+.2} ns")).collect();
            console::outln!("| {} | {direct:.2} ns | {} |", call.name, cells.join(" | "));
            // Ours and theirs alternate, before the layers.
            if self.theirs.is_some() {
                let pairs = added.chunks_exact(2).take(self.counts());
                fine &= pairs.into_iter().all(|pair| pair[0] <= pair[1] + NOISE);
            }
        }
        Ok(fine)
    }

    /// The numbers of adapters to try: one, and all.
    fn counts(&self) -> usize {
        self.adapters.len().min(2)
    }

    fn configurations(&self) -> Vec<Configuration<'_>> {
        let mut all = Vec::new();
        for count in [1, self.adapters.len()].into_iter().take(self.counts()) {
            let adapters = &self.adapters[..count];
            for (side, loader) in [("ours", Some(&self.ours)), ("theirs", self.theirs.as_ref())] {
                all.extend(loader.map(|loader| Configuration {
                    name: format!(
                        "{side}, {count} adapter{}",
                        if count > 1 { "s" } else { "" }
                    ),
                    loader,
                    adapters,
                    layer: None,
                }));
            }
        }
        all.extend(self.layers.iter().map(|layer| Configuration {
            name: layer.trim_start_matches("UR_LAYER_").to_owned(),
            loader: &self.ours,
            adapters: &self.adapters[..1],
            layer: Some(layer),
        }));
        all
    }

    fn sample(
        &self,
        configuration: &Configuration<'_>,
        samples: &mut BTreeMap<String, Samples>,
    ) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let adapters: Vec<String> = configuration
            .adapters
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let adapters = adapters.join(",");
        let mut command = Command::new(program);
        command.arg("--worker").arg(configuration.loader);
        command.args(["--adapters", &adapters]);
        command.args(["--rounds", &self.rounds.to_string()]);
        command.env("UR_ADAPTERS_FORCE_LOAD", &adapters);
        command.env_remove("UR_ENABLE_LAYERS");
        if let Some(layer) = configuration.layer {
            // Writing the log costs more than the layer, so it is switched off.
            command
                .env("UR_ENABLE_LAYERS", layer)
                .env("UR_TRACE_OUTPUT", "none");
        }
        let output = command.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}", configuration.name, reason.trim()));
        }
        for line in text.lines() {
            let mut fields = line.split('\t');
            let name = fields.next().unwrap_or_default();
            let mut number = || fields.next()?.parse::<f64>().ok();
            let pair = number().zip(number());
            let pair = pair.ok_or_else(|| format!("a worker says {line}"))?;
            samples.entry(name.to_owned()).or_default().push(pair);
        }
        Ok(())
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}
