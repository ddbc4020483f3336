//! `longhaul resume`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use longhaul::{UnfinishedCopies, UnfinishedCopy, discard};
use longhaul_sys::files::ConfinedDir;
use longhaul_units::{Bytes, shown, shown_path};
use serde_json::{Value, json};

use crate::args::ResumeArgs;
use crate::failure::Failure;
use crate::output::{self, Output, complain, print};

pub(crate) fn run(args: &ResumeArgs, output: &Output) -> Result<(), Failure> {
    output::open()?;
    let place = &args.place;
    let at = shown(&place.display().to_string());
    let root = ConfinedDir::open_own(place)
        .map_err(|error| Failure::failed(format!("cannot look through {at}: {error}")))?;
    let (mut copies, mut discarded, mut failed) = (Vec::new(), 0_u64, 0_u64);
    for found in UnfinishedCopies::below(&root) {
        let copy = match found {
            Ok(copy) => copy,
            Err((path, error)) => {
                complain(format!("longhaul: cannot look at {}: {error}", named(place, &path)));
                failed += 1;
                continue;
            }
        };
        let mut is_gone = false;
        if args.discard && !copy.runs {
            match discard(&root, &copy.path) {
                Ok(gone) => is_gone = gone,
                Err(error) => {
                    let path = named(place, &copy.path);
                    complain(format!("longhaul: cannot discard {path}: {error}"));
                    failed += 1;
                }
            }
        }
        discarded += u64::from(is_gone);
        if !output.json {
            print(&line(place, &copy, is_gone))?;
        }
        copies.push(value(place, &copy, is_gone));
    }
    let text = match (copies.len(), args.discard) {
        (0, _) => format!("no interrupted copies to {at}"),
        (_, true) => format!("{discarded} discarded"),
        (_, false) => {
            "run the same `longhaul cp` again to go on; --discard removes what they keep".into()
        }
    };
    let fields = json!({ "copies": copies, "discarded": discarded, "failed": failed });
    match failed {
        0 => output.result(&fields, text),
        _ => {
            let Value::Object(fields) = fields else { return Ok(()) };
            Err(Failure::failed(text).with_fields(fields))
        }
    }
}

fn named(place: &Path, path: &[u8]) -> String {
    shown_path(place.join(OsStr::from_bytes(path)).as_os_str().as_bytes())
}

fn line(place: &Path, copy: &UnfinishedCopy, is_gone: bool) -> String {
    let state = match (is_gone, copy.runs) {
        (true, _) => "discarded",
        (false, true) => "running",
        (false, false) => "",
    };
    let bytes = Bytes::new(copy.bytes).to_string();
    format!("{:>8} {bytes:>10} {state:9} {}", age(copy.idle), named(place, &copy.path))
}

/// In the largest unit of which it has some.
fn age(idle: Duration) -> String {
    let seconds = idle.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.iter().find(|(length, _)| seconds >= *length);
    unit.map_or(format!("{seconds} s"), |(length, name)| format!("{} {name}", seconds / length))
}

fn value(place: &Path, copy: &UnfinishedCopy, is_gone: bool) -> Value {
    json!({
        "path": named(place, &copy.path),
        "idle_seconds": copy.idle.as_secs(),
        "bytes": copy.bytes,
        "running": copy.runs,
        "discarded": is_gone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let of = |seconds| age(Duration::from_secs(seconds));
        assert_eq!([of(5), of(119), of(7_300), of(200_000)], ["5 s", "1 min", "2 h", "2 d"]);
    }
}
