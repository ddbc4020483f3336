//! Ctrl-C, SIGTERM, and the end of the terminal.

use std::io;
use std::sync::Arc;

use longhaul_sys::process::is_ignored;
use longhaul_transfer::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::{Output, complain};

/// What a second signal does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Again {
    /// Ends the program at once, with status 1, and says so.
    Exit(Output),
    /// Nothing: what is being cleaned up takes moments.
    Wait,
}

/// The signals that ask the program to end. A SIGHUP that is ignored when it starts stays ignored:
/// somebody said `nohup`.
///
/// # Errors
/// The operating system does not tell.
pub(crate) fn that_stop() -> io::Result<Vec<i32>> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP)? {
        signals.push(SIGHUP);
    }
    Ok(signals)
}

/// A file that grows beyond what this process may write (`ulimit -f`) fails, and ends no program: one
/// client's file is no reason to leave all others.
///
/// # Errors
/// The operating system does not let us.
pub(crate) fn survive_large_files() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The first signal makes it stop in order, the next at once.
///
/// # Errors
/// The operating system does not let us.
pub(crate) fn stop_in_order(stop: &Stop, output: &Output) -> Result<(), Failure> {
    install(stop, Some("stopping (once more to stop at once)"), Again::Exit(*output))
        .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))
}

/// Makes the signals [`that_stop`] ask `stop`, and says `first` then, if anything.
///
/// # Errors
/// The operating system does not let us.
pub(crate) fn install(stop: &Stop, first: Option<&'static str>, again: Again) -> io::Result<()> {
    let mut signals = Signals::new(that_stop()?)?;
    let stop = stop.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if stop.is_requested()
                && let Again::Exit(output) = again
            {
                output.failed(&Failure::failed("stopped at once, by a second signal"));
                std::process::exit(1);
            }
            stop.request();
            if let Some(text) = first {
                complain(text);
            }
        }
    })?;
    Ok(())
}
