//! The command line of Longhaul: `cp`, `pipe`, `serve`, `gateway`, `keys`, `demo`, `bench`, `lab`,
//! `circuits`, `history`, `ls`, `probe`, `verify`.
//!
//! Reads arguments ([`args`]), turns them into the options of the libraries that do the work
//! (`longhaul`, `longhaul-bench`, `longhaul-lab`, `longhaul-circuits`, `longhaul-gateway`), shows progress,
//! and says how it went: for people on standard error, for scripts as one JSON object on standard output.
//! It holds no protocol; the only path it emulates itself is that of the demo ([`demo::relay`]).
//!
//! Exit statuses, JSON fields and files are described in docs/operating.md and kept stable.
//!
//! ```
//! use std::ffi::OsStr;
//! use longhaul_cli::location;
//!
//! let parsed = location::parse(OsStr::new("lh://data.example/run%2017/")).unwrap();
//! assert_eq!(location::display(&parsed.location), "lh://data.example/run%2017");
//! assert!(parsed.trailing_slash);
//! ```
#![forbid(unsafe_code)]

pub mod args;
mod attributes;
mod bench;
pub mod circuits;
mod cp;
pub mod demo;
mod failure;
mod figures;
mod filter;
pub mod gateway;
mod habits;
mod history;
mod hosts;
mod input;
mod keys;
pub mod lab;
mod link;
pub mod location;
mod ls;
mod man;
mod names;
mod output;
mod pipe;
mod places;
mod probe;
mod progress;
mod report;
mod resume;
mod secret;
mod serve;
mod signals;
mod ssh;
mod token;
mod values;
mod verify;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use self::args::Command;
use self::failure::Failure;
use self::output::Output;
use self::signals::Held;

/// Runs the command that `words` ask for, the program's name first, and returns its exit status:
/// 0 done and verified, 1 failed, 2 used wrongly.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let held = Held::new();
    let words: Vec<OsString> = words.into_iter().collect();
    let cli = match words::parse(&words) {
        Ok(cli) => cli,
        Err(error) => return misused(&words, &error),
    };
    let mut output = Output::new(&cli.common);
    if let Command::Pipe(args) = &cli.command
        && args.receive
    {
        output = output.beside_data();
    }
    if let Err(error) = signals::survive_large_files() {
        output
            .detail(format!("note: a limit of the size of files would end this program: {error}"));
    }
    let done = match &cli.command {
        Command::Cp(args) => cp::run(args, words.get(1..).unwrap_or_default(), &output, held),
        Command::Pipe(args) => pipe::run(args, &output, held),
        Command::Serve(args) => serve::run(args, &output, held),
        Command::Ls(args) => ls::run(args, &output, held),
        Command::Verify(args) => verify::run(args, &output, held),
        Command::Resume(args) => resume::run(args, &output, held),
        Command::Profiles => held.release().and_then(|()| output::print(&values::profile_help())),
        Command::Probe(args) => probe::run(args, &output, held),
        Command::Keys(args) => held.release().and_then(|()| keys::run(args, &output)),
        Command::Demo(args) => held.release().and_then(|()| demo::run(args, &output)),
        Command::Bench(args) => held.release().and_then(|()| bench::run(args, &output)),
        Command::Lab(args) => match held.release().and_then(|()| lab::run(args, &output)) {
            Ok(status) => return status,
            Err(failure) => Err(failure),
        },
        Command::Circuits(args) => held.release().and_then(|()| circuits::run(args, &output)),
        Command::Gateway(args) => gateway::run(args, &output, held),
        Command::History(args) => held.release().and_then(|()| history::run(args, &output)),
        Command::Man(args) => held.release().and_then(|()| man::run(args)),
        Command::Completions(args) => held.release().and_then(|()| man::completions(args)),
        Command::Places(args) => places::run(args, &output, held),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output.failed(&failure),
    }
}

/// Tells what clap found, as JSON too where that was asked for.
fn misused(words: &[OsString], error: &clap::Error) -> ExitCode {
    let output = Output::new(&args::Common::default());
    let advice = habits::advice(words, error);
    let shows = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if shows && advice.is_none() {
        let printed = output::open().and_then(|()| error.print().or_else(output::unwritten));
        return printed.map_or_else(|failure| output.failed(&failure), |()| ExitCode::SUCCESS);
    }
    let (message, tip) = advice.map_or_else(|| words::complaint(error), |advice| (advice, None));
    let tipped = tip.as_ref().map(|tip| format!("; {tip}")).unwrap_or_default();
    match error.kind() {
        // Help, where somebody gave a command too few words.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => drop(error.print()),
        _ => output::complain(format!("longhaul: {message}{tipped}")),
    }
    if words.iter().any(|word| word == "--json") {
        let receives = words.iter().any(|word| word == "--receive");
        let output = if receives { output.beside_data() } else { output };
        let mut fields = serde_json::json!({ "error": message });
        if let Some(tip) = tip {
            fields["tip"] = tip.into();
        }
        if let Err(failure) = output.print_json(&fields) {
            output.failed(&failure);
        }
    }
    Failure::usage("").exit_code()
}
