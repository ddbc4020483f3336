//! A copy between two hosts that ssh reaches: what this one does.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use longhaul::{BetweenOptions, Error, SshHost, Stop, copy_between};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant};
use serde_json::{Map, Value};

use super::Between;
use crate::args::CpArgs;
use crate::failure::{Again, Failure};
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
    only_there(args, &from, &to)?;
    link::check(&args.link)?;
    let (stop, known) = (Stop::default(), Arc::new(Mutex::new(Map::new())));
    let at_signal = known.clone();
    held.stop_in_order(&stop, output, move || lock(&at_signal).clone())?;
    let name = format!("{from}, copying to {to}");
    let ends = (ssh::options(&args.ssh, &from)?, ssh::options(&args.ssh, &to)?);
    let options = BetweenOptions::new((ends.0, sources), (ends.1, destination), words.to_vec());
    let display = Display::of_copy(output);
    let mut shown =
        Shown { display, output: *output, known, end: None, losses: Losses::new(args.retry) };
    let beside = shown.display.beside();
    let pass_on = Arc::new(move |line: &str| beside.print(|| complain(line)));
    let copied = loop {
        shown.end = None;
        let done = copy_between(&options, pass_on.clone(), &mut |line| shown.take(line), &stop);
        let Err(failure) = shown.outcome(&name, done, &stop) else { break Ok(()) };
        match shown.losses.note(&failure, shown.moved()) {
            Step::End => break Err(failure),
            Step::Again { lost, pause } => {
                if lost {
                    let notice = format!("the connection of {name} was lost; dialling again");
                    shown.display.beside().print(|| complain(format!("longhaul: {notice}")));
                    shown.losses.notices.push(notice.into());
                }
                if !sleep(pause, &stop) {
                    break Err(failure);
                }
            }
        }
    };
    shown.display.end();
    copied
}

/// Waits so long. False where the user has stopped it.
fn sleep(pause: Duration, stop: &Stop) -> bool {
    let until = clock::now() + pause;
    while clock::now() < until && !stop.is_requested() {
        std::thread::sleep(LOOK);
    }
    !stop.is_requested()
}

/// Connections that were lost so far.
struct Losses {
    retry: Duration,
    /// The last of them behind which something had moved, or the first.
    at: Option<Instant>,
    /// Bytes that had moved until then.
    moved: u64,
    pause: Duration,
    count: u64,
    notices: Vec<Value>,
}

/// The step behind a copy that failed.
enum Step {
    End,
    Again { lost: bool, pause: Duration },
}

impl Losses {
    fn new(retry: Duration) -> Self {
        let (at, notices) = (None, Vec::new());
        Self { retry, at, moved: 0, pause: PAUSE_FIRST, count: 0, notices }
    }

    /// One copy has failed, behind `moved` bytes in all.
    fn note(&mut self, failure: &Failure, moved: u64) -> Step {
        let (now, lost) = (clock::now(), failure.again == Again::Lost);
        if lost {
            self.count += 1;
            if self.at.is_none() || moved > self.moved {
                (self.at, self.moved, self.pause) = (Some(now), moved, PAUSE_FIRST);
            }
        }
        let Some(at) = self.at.filter(|_| failure.again != Again::Vain) else { return Step::End };
        if self.retry.is_zero() || now + self.pause > at + self.retry {
            return Step::End;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MOST);
        Step::Again { lost, pause }
    }
}

/// Words and figures of the host that copies, shown here.
struct Shown {
    display: Display,
    output: Output,
    /// Fields that are known of the copy so far.
    known: Arc<Mutex<Map<String, Value>>>,
    end: Option<End>,
    losses: Losses,
}

/// End of a copy.
enum End {
    Done,
    Failed(Value),
    /// Standard output does not take it.
    Unwritten(Failure),
}

impl Shown {
    /// Bytes that the copy has moved so far.
    fn moved(&self) -> u64 {
        lock(&self.known).get("bytes_done").and_then(Value::as_u64).unwrap_or_default()
    }

    /// Outcome of what is `done`.
    fn outcome(&mut self, name: &str, done: Result<(), Error>, stop: &Stop) -> Result<(), Failure> {
        let known = lock(&self.known).clone();
        done.map_err(|error| match stop.is_requested() || !known.is_empty() {
            true => {
                let Failure { again, .. } = Failure::of(&error, Map::new);
                let failure = Failure::failed(format!("{error}; {AGAIN}"));
                Failure { again, ..failure.with_fields(known) }
            }
            false => Failure::of(&error, || known),
        })?;
        match self.end.take() {
            Some(End::Failed(event)) => Err(Failure::at(name, &event)),
            Some(End::Unwritten(failure)) => Err(failure),
            Some(End::Done) | None => Ok(()),
        }
    }

    /// The report of the last copy, with what was lost before.
    fn whole(&self, json: &Value) -> Value {
        let mut json = json.clone();
        if let Some(count) = json["reconnects"].as_u64() {
            json["reconnects"] = (count + self.losses.count).into();
        }
        if let Some(notices) = json["notices"].as_array_mut() {
            notices.splice(..0, self.losses.notices.iter().cloned());
        }
        json
    }

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
            (.., json @ Value::Object(_)) => {
                beside.print(|| self.output.print_json(&self.whole(json)))
            }
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
fn only_there(args: &CpArgs, from: &SshHost, to: &SshHost) -> Result<(), Failure> {
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
        "{option} means something of this host, and {from} copies to {to} without it: log in to {from} and \
         run `longhaul cp {option} ... PATH {to}:PATH` there"
    )))
}

const AGAIN: &str = "what was written is kept, run the same command again to go on";
/// From a loss to the next try, and between later ones: each starts ssh twice.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MOST: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
