//! A copy between two hosts that ssh reaches: what this one does.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use longhaul::{BetweenOptions, Stop, copy_between};
use longhaul_sys::sync::lock;
use serde_json::{Map, Value};

use super::Between;
use crate::args::CpArgs;
use crate::failure::Failure;
use crate::output::{Output, complain, print};
use crate::progress::Display;
use crate::signals::Held;
use crate::{link, ssh};

/// Has the one host copy to the other, and shows what it says.
pub(super) fn run(
    args: &CpArgs,
    words: &[OsString],
    between: Between,
    output: &Output,
    held: Held,
) -> Result<(), Failure> {
    let Between { from, sources, to, destination, .. } = between;
    only_there(args, &from.to_string())?;
    link::check(&args.link)?;
    let (stop, known) = (Stop::default(), Arc::new(Mutex::new(Map::new())));
    let at_signal = known.clone();
    held.stop_in_order(&stop, output, move || lock(&at_signal).clone())?;
    let name = format!("{from}, copying to {to}");
    let ends = (ssh::options(&args.ssh, &from)?, ssh::options(&args.ssh, &to)?);
    let options = BetweenOptions::new((ends.0, sources), (ends.1, destination), words.to_vec());
    let mut shown = Shown { display: Display::of_copy(output), output: *output, known, end: None };
    let beside = shown.display.beside();
    let pass_on = Arc::new(move |line: &str| beside.print(|| complain(line)));
    let done = copy_between(&options, pass_on, &mut |line| shown.take(line), &stop);
    shown.display.end();
    let known = lock(&shown.known).clone();
    done.map_err(|error| match stop.is_requested() || !known.is_empty() {
        true => Failure::failed(format!("{error}; {AGAIN}")).with_fields(known),
        false => Failure::of(&error, || known),
    })?;
    match shown.end {
        Some(End::Failed(event)) => Err(Failure::at(&name, &event)),
        Some(End::Unwritten(failure)) => Err(failure),
        Some(End::Done) | None => Ok(()),
    }
}

/// Words and figures of the host that copies, shown here.
struct Shown {
    display: Display,
    output: Output,
    /// Fields that are known of the copy so far.
    known: Arc<Mutex<Map<String, Value>>>,
    end: Option<End>,
}

/// End of a copy.
enum End {
    Done,
    Failed(Value),
    /// Standard output does not take it.
    Unwritten(Failure),
}

impl Shown {
    /// Shows an event; true for the last.
    fn take(&mut self, line: &str) -> bool {
        // Of another version: what is not known is passed over.
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let beside = self.display.beside();
        let text = |name: &str| event[name].as_str();
        let written = match (text("words"), text("print"), &event["json"]) {
            (Some(words), ..) => {
                beside.print(|| complain(words));
                Ok(())
            }
            (_, Some(words), _) => beside.print(|| print(words)),
            (.., json @ Value::Object(_)) => beside.print(|| self.output.print_json(json)),
            _ => Ok(()),
        };
        if let Value::Object(_) = &event["progress"] {
            self.display.show_other(&event["progress"]);
            let known = event["progress"]["known"].as_object();
            known.into_iter().for_each(|known| lock(&self.known).clone_from(known));
        }
        self.end = match written {
            Err(failure) => Some(End::Unwritten(failure)),
            Ok(()) if event["failed"].is_object() => Some(End::Failed(event["failed"].clone())),
            Ok(()) => event["done"].as_bool().filter(|done| *done).map(|_| End::Done),
        };
        self.end.is_some()
    }
}

/// Refuses options that name something of this host, which the copy does not pass.
fn only_there(args: &CpArgs, from: &str) -> Result<(), Failure> {
    let of_this_host = [
        ("--files-from", args.names.files_from.is_some()),
        ("--exclude-from", args.filter.has_file()),
        ("--manifest", args.manifest.is_some()),
        ("--losses", args.losses.is_some()),
        ("--token-file", args.link.token_file.is_some()),
        ("--via", !args.link.route.via.is_empty()),
        ("--link", !args.link.links.is_empty()),
        ("--circuit", args.circuit.circuit.is_some()),
    ];
    let Some((option, _)) = of_this_host.iter().find(|(_, is_given)| *is_given) else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "{option} means something of this host, and the data goes from {from} to another: run this there"
    )))
}

const AGAIN: &str = "what was written is kept, run the same command again to go on";
