//! Manual pages, from the same source as `--help`.

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, ManArgs};
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
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            output::open()?;
            rendered
                .and_then(|()| std::io::stdout().lock().write_all(&page))
                .or_else(output::unwritten)
        }
    }
}
