//! `millrace man`: manual pages generated from the command line's own definition.

use crate::cli::Cli;
use crate::exit::{CommandFailure, CommandResult};
use crate::output::Ui;
use clap_mangen::Man;
use millrace_format::output;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace man ~/.local/share/man/man1     then `man millrace`, `man millrace-run`";

/// Write the manual pages into a folder
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Folder to write into; created if it does not exist
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
}

pub(crate) fn run(args: &ManArgs, ui: Ui) -> CommandResult {
    std::fs::create_dir_all(&args.dir).map_err(|error| {
        CommandFailure::io(format_args!("cannot make {}", args.dir.display()), &error)
    })?;
    let mut root = Cli::definition();
    // Gives each subcommand its full name, `millrace-run`.
    root.build();
    write_page(&root, &args.dir)?;
    let mut n_pages = 1;
    for command in root
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        write_page(command, &args.dir)?;
        n_pages += 1;
    }
    ui.note(format_args!("{n_pages} pages in {}", args.dir.display()));
    Ok(())
}

fn write_page(command: &clap::Command, dir: &Path) -> CommandResult {
    let page = Man::new(command.clone());
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).expect("a vector takes every write");
    output::write(&path, &text).map_err(|error| CommandFailure::writing(&error))
}
