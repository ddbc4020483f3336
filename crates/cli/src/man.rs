//! Manual pages and completions, from the same source as `--help`.

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output;

/// Writes a page for each command to a folder, or that of the program to standard output.
pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    let command = Cli::command();
    match &args.folder {
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .map_err(|error| {
                Failure::failed(format!(
                    "cannot write manual pages to {}: {error}",
                    folder.display()
                ))
            }),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).or_else(output::unwritten)?;
            write(&page)
        }
    }
}

/// Writes what a shell needs to complete commands and options.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "longhaul", &mut script);
    write(&script)
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    output::open()?;
    std::io::stdout().lock().write_all(bytes).or_else(output::unwritten)
}
