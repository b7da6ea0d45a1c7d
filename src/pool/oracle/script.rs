//! Programs as data, and their one-line notation.

use crate::pool::{Compaction, Config, Options, WaitPolicy};
use std::collections::HashMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueName {
    InOrder(u32),
    OutOfOrder(u32),
    Host,
}

/// References are to the index of an earlier step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Alloc {
        queue: QueueName,
        bytes: u64,
        align: u64,
        after: Vec<usize>,
        may_wait: bool,
    },
    Free {
        queue: QueueName,
        block: usize,
        after: Vec<usize>,
    },
    Run {
        queue: QueueName,
        uses: Vec<usize>,
        after: Vec<usize>,
    },
    Barrier {
        queue: QueueName,
        after: Vec<usize>,
    },
    Wait(usize),
    Finish(QueueName),
    Settle,
    Trim(u64),
    Threshold(u64),
}

impl Step {
    pub fn after(&self) -> &[usize] {
        match self {
            Self::Alloc { after, .. }
            | Self::Free { after, .. }
            | Self::Run { after, .. }
            | Self::Barrier { after, .. } => after,
            _ => &[],
        }
    }

    /// This step with other references.
    pub(super) fn with(&self, of: impl Fn(usize) -> usize) -> Self {
        let mut step = self.clone();
        match &mut step {
            Self::Alloc { after, .. } | Self::Barrier { after, .. } => {
                after.iter_mut().for_each(|step| *step = of(*step));
            }
            Self::Free { block, after, .. } => {
                *block = of(*block);
                after.iter_mut().for_each(|step| *step = of(*step));
            }
            Self::Run { uses, after, .. } => {
                let all = uses.iter_mut().chain(after);
                all.for_each(|step| *step = of(*step));
            }
            Self::Wait(step) => *step = of(*step),
            Self::Finish(_) | Self::Settle | Self::Trim(_) | Self::Threshold(_) => {}
        }
        step
    }

    fn letter(&self) -> char {
        match self {
            Self::Alloc { .. } => 'a',
            Self::Free { .. } => 'f',
            Self::Run { .. } => 'k',
            _ => 'b',
        }
    }
}

/// The pool a script runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub config: Config,
    pub granularity: u64,
    /// Whether memory comes in pages of that size, which can be given another address.
    pub paged: bool,
    /// Whether addresses that pages have left lead there for as long as anybody likes.
    pub leaves_mapped: bool,
    /// Whether a page has one address at a time.
    pub maps_once: bool,
    /// Whether only completion that the program awaited may be relied on.
    pub deterministic: bool,
    /// Whether the host waits before an allocation fails.
    pub blocks: bool,
}

impl Default for Setup {
    /// Every growth is as small as can be, so that reuse and growth cannot be confused.
    fn default() -> Self {
        let config = Config {
            chunk_bytes: 0,
            min_align: 64,
            options: Options {
                compaction: Compaction::Always,
                growth_share: 0,
                ..Options::default()
            },
            ..Config::default()
        };
        Self {
            config,
            granularity: 64,
            paged: false,
            leaves_mapped: false,
            maps_once: false,
            deterministic: false,
            blocks: false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub setup: Setup,
    pub steps: Vec<Step>,
    /// As written; steps without one are named by letter and index.
    names: HashMap<String, usize>,
}

impl Script {
    pub fn new(setup: Setup, steps: Vec<Step>) -> Self {
        Self {
            setup,
            steps,
            names: HashMap::new(),
        }
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let mut out = Self::default();
        for line in text
            .split([';', '\n'])
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            out.statement(line)
                .map_err(|why| format!("{why} in `{line}`"))?;
        }
        Ok(out)
    }

    fn statement(&mut self, line: &str) -> Result<(), String> {
        let (name, body) = match line.split_once('=') {
            Some((name, body)) => (Some(name.trim()), body),
            None => (None, line),
        };
        let mut words = body.split_whitespace().peekable();
        let verb = words.next().unwrap_or_default();
        let mut rest: Vec<&str> = words.collect();
        if verb == "pool" {
            return self.properties(&rest);
        }
        let may_wait = !rest.contains(&"nowait");
        rest.retain(|word| *word != "nowait");
        let (args, after) = match rest.iter().position(|word| *word == "after") {
            Some(at) => (&rest[..at], self.all(&rest[at + 1..])?),
            None => (&rest[..], Vec::new()),
        };
        let first = args.first().copied().ok_or("too few words");
        let number = || first.and_then(number);
        let step = match verb {
            "alloc" => {
                let (bytes, align) = match *args.get(1..).unwrap_or_default() {
                    [bytes] => (number_of(bytes)?, 0),
                    [bytes, "align", align] => (number_of(bytes)?, number_of(align)?),
                    _ => return Err("expected a size".into()),
                };
                Step::Alloc {
                    queue: queue(first?)?,
                    bytes,
                    align,
                    after,
                    may_wait,
                }
            }
            "free" => {
                let block = self.step(args.get(1).ok_or("expected a block")?)?;
                Step::Free {
                    queue: queue(first?)?,
                    block,
                    after,
                }
            }
            "run" => Step::Run {
                queue: queue(first?)?,
                uses: self.all(args.get(1..).unwrap_or_default())?,
                after,
            },
            "barrier" => Step::Barrier {
                queue: queue(first?)?,
                after,
            },
            "wait" => Step::Wait(self.step(first?)?),
            "finish" => Step::Finish(queue(first?)?),
            "settle" => Step::Settle,
            "trim" => Step::Trim(number()?),
            "threshold" => Step::Threshold(number()?),
            _ => return Err("unknown statement".into()),
        };
        if let Some(name) = name {
            self.names.insert(name.to_string(), self.steps.len());
        }
        self.steps.push(step);
        Ok(())
    }

    fn properties(&mut self, words: &[&str]) -> Result<(), String> {
        for pair in words.chunks(2) {
            let [key, value] = pair else {
                return Err("expected a value".into());
            };
            let config = &mut self.setup.config;
            match *key {
                "max" => config.max_bytes = Some(number_of(value)?),
                "chunk" => config.chunk_bytes = number_of(value)?,
                "align" => config.min_align = number_of(value)?,
                "threshold" => config.release_threshold = number_of(value)?,
                "deterministic" => self.setup.deterministic = number_of(value)? != 0,
                "blocks" => self.setup.blocks = number_of(value)? != 0,
                "growth" => config.options.growth_share = number_of(value)?,
                "compaction" => {
                    config.options.compaction = match *value {
                        "never" => Compaction::Never,
                        "pressure" => Compaction::Pressure,
                        "always" => Compaction::Always,
                        _ => return Err("unknown compaction".into()),
                    }
                }
                "mapped" => self.setup.leaves_mapped = number_of(value)? != 0,
                "once" => self.setup.maps_once = number_of(value)? != 0,
                "grain" | "page" => {
                    self.setup.granularity = number_of(value)?;
                    self.setup.paged = *key == "page";
                }
                "waits" => {
                    config.waits = match *value {
                        "never" => WaitPolicy::Never,
                        "bounded" => WaitPolicy::Bounded,
                        "always" => WaitPolicy::Always,
                        _ => return Err("unknown policy".into()),
                    }
                }
                _ => return Err(format!("unknown property {key}")),
            }
        }
        Ok(())
    }

    fn step(&self, name: &str) -> Result<usize, String> {
        self.find(name)
            .ok_or_else(|| format!("unknown name {name}"))
    }

    fn all(&self, names: &[&str]) -> Result<Vec<usize>, String> {
        names.iter().map(|name| self.step(name)).collect()
    }

    /// The name of a step.
    pub fn name(&self, step: usize) -> String {
        let written = self.names.iter().find(|(_, index)| **index == step);
        match written {
            Some((name, _)) => name.clone(),
            None => format!("{}{step}", self.steps[step].letter()),
        }
    }
}

fn number(word: &str) -> Result<u64, &'static str> {
    word.parse().map_err(|_| "expected a number")
}

fn number_of(word: &str) -> Result<u64, String> {
    number(word).map_err(|why| format!("{why}, not {word}"))
}

fn queue(word: &str) -> Result<QueueName, String> {
    if word == "host" {
        return Ok(QueueName::Host);
    }
    let (kind, index) = word.split_at_checked(1).ok_or("expected a queue")?;
    let index = index.parse().map_err(|_| format!("{word} is no queue"))?;
    match kind {
        "q" => Ok(QueueName::InOrder(index)),
        "o" => Ok(QueueName::OutOfOrder(index)),
        _ => Err(format!("{word} is no queue")),
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOrder(n) => write!(f, "q{n}"),
            Self::OutOfOrder(n) => write!(f, "o{n}"),
            Self::Host => f.write_str("host"),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.setup.config;
        write!(
            f,
            "pool chunk {} align {}",
            config.chunk_bytes, config.min_align
        )?;
        let grain = if self.setup.paged { "page" } else { "grain" };
        write!(f, " {grain} {} waits ", self.setup.granularity)?;
        f.write_str(match config.waits {
            WaitPolicy::Never => "never",
            WaitPolicy::Bounded => "bounded",
            WaitPolicy::Always => "always",
        })?;
        if let Some(max) = config.max_bytes {
            write!(f, " max {max}")?;
        }
        if config.release_threshold != u64::MAX {
            write!(f, " threshold {}", config.release_threshold)?;
        }
        if config.options.growth_share > 0 {
            write!(f, " growth {}", config.options.growth_share)?;
        }
        match config.options.compaction {
            Compaction::Never => f.write_str(" compaction never")?,
            Compaction::Pressure => f.write_str(" compaction pressure")?,
            Compaction::Always => {}
        }
        if self.setup.leaves_mapped {
            f.write_str(" mapped 1")?;
        }
        if self.setup.maps_once {
            f.write_str(" once 1")?;
        }
        if self.setup.deterministic {
            f.write_str(" deterministic 1")?;
        }
        if self.setup.blocks {
            f.write_str(" blocks 1")?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            f.write_str("; ")?;
            self.write_step(f, index, step)?;
        }
        Ok(())
    }
}

impl Script {
    fn write_step(&self, f: &mut fmt::Formatter<'_>, at: usize, step: &Step) -> fmt::Result {
        let list = |steps: &[usize]| -> String {
            steps
                .iter()
                .map(|step| format!(" {}", self.name(*step)))
                .collect()
        };
        match step {
            Step::Wait(event) => return write!(f, "wait {}", self.name(*event)),
            Step::Finish(queue) => return write!(f, "finish {queue}"),
            Step::Settle => return f.write_str("settle"),
            Step::Trim(bytes) => return write!(f, "trim {bytes}"),
            Step::Threshold(bytes) => return write!(f, "threshold {bytes}"),
            _ => write!(f, "{} = ", self.name(at))?,
        }
        match step {
            Step::Alloc {
                queue,
                bytes,
                align,
                ..
            } => {
                write!(f, "alloc {queue} {bytes}")?;
                if *align > 0 {
                    write!(f, " align {align}")?;
                }
            }
            Step::Free { queue, block, .. } => write!(f, "free {queue} {}", self.name(*block))?,
            Step::Run { queue, uses, .. } => write!(f, "run {queue}{}", list(uses))?,
            Step::Barrier { queue, .. } => write!(f, "barrier {queue}")?,
            _ => {}
        }
        if matches!(
            step,
            Step::Alloc {
                may_wait: false,
                ..
            }
        ) {
            f.write_str(" nowait")?;
        }
        if !step.after().is_empty() {
            write!(f, " after{}", list(step.after()))?;
        }
        Ok(())
    }
}
