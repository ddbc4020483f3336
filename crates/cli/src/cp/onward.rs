//! A copy to another server, which another host has asked for and has shown.

use std::ffi::OsString;

use longhaul::{CopyPaths, OnwardCopy, Progress, Stop};
use serde_json::{Map, json};

use super::{Wanted, carry_out, options};
use crate::args::Command;
use crate::failure::Failure;
use crate::output::{Output, print_elsewhere};
use crate::words;

/// Makes the copy that `asked` asks for, and says all there is to say to who asked.
pub(crate) fn run(asked: &OnwardCopy, stop: &Stop) {
    let report = asked.reporter();
    print_elsewhere(move |event| report(&event.to_string()));
    let last = match copy(asked, stop) {
        Ok(()) => json!({ "done": true }),
        Err(failure) => json!({ "failed": failure.event() }),
    };
    asked.reporter()(&last.to_string());
}

fn copy(asked: &OnwardCopy, stop: &Stop) -> Result<(), Failure> {
    let line = [vec![OsString::from("longhaul")], asked.words()].concat();
    let cli = words::parse(&line).map_err(|error| {
        let version = env!("CARGO_PKG_VERSION");
        Failure::usage(format!("longhaul {version}: {}", words::complaint(&error).0))
    })?;
    let Command::Cp(args) = &cli.command else {
        return Err(Failure::usage("another command was asked for than cp"));
    };
    let Wanted::Between(between) = Wanted::read(args)? else {
        return Err(Failure::usage("a copy was asked for that is not between two hosts"));
    };
    let output = &Output::new(&cli.common).of_changes();
    let mut shape = between.shape;
    let failure = |error| Failure::of(&error, Map::new);
    let (sources, is_directory) =
        asked.sources(shape.contents, shape.is_directory).map_err(failure)?;
    shape.is_directory = is_directory;
    let destination = asked.destination().to_vec();
    let paths = CopyPaths::Push { sources, destination };
    let connect = asked.connect(between.destination);
    let options = options(args, (connect, paths), shape, output)?;
    carry_out(args, options, output, (&Progress::default(), stop))
}
