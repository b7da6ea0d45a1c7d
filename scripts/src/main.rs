//! `cargo xtask`: the project's own tools. `gen` turns spec/ into code and headers.

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{generate, model, repository};

#[derive(Parser)]
#[command(about = "Tools of the Unified Runtime project")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes every generated file from spec/.
    Gen {
        /// Changes nothing; fails when a file would change.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    let root = repository();
    match Cli::parse().command {
        Command::Gen { check } => {
            let spec = model::Spec::load(&root.join("spec"))?;
            let files = generate::all(&spec)?;
            if check {
                generate::check(&root, &files)?;
                println!("{} generated files are fresh", files.len());
            } else {
                let changed = generate::write(&root, &files)?;
                println!("{changed} of {} generated files changed", files.len());
            }
        }
    }
    Ok(())
}
