//! `longhaul circuits plan`, `request` and what changes a booking.

use std::time::Duration;

use longhaul_circuits::api::{
    BookRequest, Bookings, ExtendRequest, FileWant, HoldWant, ModifyRequest, Placing, Preview,
    Recurring,
};
use longhaul_circuits::client::{Client, ClientError};
use longhaul_units::{Bytes, Rate};

use super::args::{ExtendArgs, ModifyArgs, PlanArgs, PolicyArg, RequestArgs, WantArgs, Where};
use super::reach::{client_of as client, failure};
use super::when::When;
use super::{gantt, show, value};
use crate::failure::Failure;
use crate::output::Output;
use crate::report::object;
use crate::token;

pub(super) fn plan(args: &PlanArgs, output: &Output) -> Result<(), Failure> {
    let client = client(&args.at)?;
    let preview = client.plan(&want(&args.want, jiff::Timestamp::now())?).map_err(failure)?;
    let json = value(&preview)?;
    if preview.plan.is_some() {
        return output.result(&json, describe(&preview));
    }
    output.say(describe(&preview));
    let failure = Failure::failed(format!("no room: {}", preview.explanation.summary));
    Err(failure.with_fields(object(json)))
}

pub(super) fn request(args: &RequestArgs, output: &Output) -> Result<(), Failure> {
    let client = client(&args.at)?;
    let now = jiff::Timestamp::now();
    let counted = counted_from(&args.want, now);
    let key = match &args.key {
        Some(_) if !counted.is_empty() => {
            return Err(Failure::usage(format!(
                "--key: what counts from now is another request each time; in full: {counted}"
            )));
        }
        Some(key) => key.clone(),
        // Whatever happens on the way, this command books once.
        None => key()?,
    };
    let made = match &args.quote {
        Some(quote) => again(|| client.take(quote, Some(&key))),
        None => {
            let mut request = want(&args.want, now)?;
            if let Some(time) = args.hold_for {
                request.hold_for_seconds = Some(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
            }
            again(|| client.book(&request, Some(&key)))
        }
    };
    let made = made.map_err(|error| {
        let unsure = matches!(error, ClientError::Connection { .. });
        let failure = failure(error);
        match unsure {
            true if counted.is_empty() => failure.adding(format!(
                "it may have been booked: the same command with --key {key} asks again and books \
                 once"
            )),
            true => failure.adding(format!(
                "it may have been booked: the same command with --key {key} and {counted} asks \
                 again and books once"
            )),
            false => failure,
        }
    })?;
    output.result(&value(&made)?, show::table(&made.bookings))
}

/// Does something to a booking and shows what became of it.
pub(super) fn change(
    at: &Where,
    output: &Output,
    act: impl FnOnce(&Client) -> Result<Bookings, ClientError>,
) -> Result<(), Failure> {
    let changed = act(&client(at)?).map_err(failure)?;
    output.result(&value(&changed)?, show::table(&changed.bookings))
}

/// What `longhaul circuits modify` changes.
pub(super) fn modification(args: &ModifyArgs) -> ModifyRequest {
    let now = jiff::Timestamp::now();
    ModifyRequest {
        bytes: args.bytes.map(Bytes::get),
        duration_ms: args.time.map(milliseconds),
        min_rate_bps: args.min_rate.map(Rate::as_bps),
        max_rate_bps: args.max_rate.map(Rate::as_bps),
        start: args.start.map(|start| start.from(now)),
        deadline: args.deadline.map(|by| by.from(now)),
    }
}

/// What `longhaul circuits extend` adds.
pub(super) fn extension(args: &ExtendArgs) -> ExtendRequest {
    ExtendRequest { bytes: args.bytes.map(Bytes::get), duration_ms: args.time.map(milliseconds) }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// An idempotency key that nobody has used.
pub(super) fn key() -> Result<String, Failure> {
    Ok(token::generate()?.key().id().to_string())
}

/// Sends once more if the connection broke: what carries a key is safe to repeat.
pub(crate) fn again<T>(mut send: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    match send() {
        Err(ClientError::Connection { .. }) => send(),
        other => other,
    }
}

/// The times that were given as counted from `now`, in full.
fn counted_from(args: &WantArgs, now: jiff::Timestamp) -> String {
    let times = [
        ("--start", args.start),
        ("--deadline", args.deadline),
        ("--latest-start", args.latest_start),
    ];
    let counted = times.into_iter().filter_map(|(option, when)| match when {
        Some(when @ When::After(_)) => Some(format!("{option} {}", when.from(now))),
        _ => None,
    });
    counted.collect::<Vec<_>>().join(" ")
}

fn want(args: &WantArgs, now: jiff::Timestamp) -> Result<BookRequest, Failure> {
    let mut ends = args.ends.iter().cloned();
    let mut request = BookRequest {
        from: ends.next(),
        to: ends.next(),
        links: (!args.links.is_empty()).then(|| args.links.clone()),
        start: args.start.map(|start| start.from(now)),
        label: args.label.clone(),
        destination: args.destination,
        ..BookRequest::default()
    };
    if request.from.is_none() && request.links.is_none() {
        return Err(Failure::usage("name the nodes FROM and TO, or --links"));
    }
    let Some(max_rate) = args.max_rate else {
        return Err(Failure::usage("--max-rate is missing: the most that the two hosts can use"));
    };
    let max_rate_bps = max_rate.as_bps();
    match (args.bytes, args.time) {
        (Some(bytes), None) => {
            if !(0.0..=100.0).contains(&args.margin) {
                return Err(Failure::usage("--margin takes 0 to 100 percent"));
            }
            request.file = Some(FileWant {
                bytes: bytes.get(),
                max_rate_bps,
                deadline: args.deadline.map(|by| by.from(now)),
                policy: match args.policy {
                    PolicyArg::Earliest => Placing::Earliest,
                    PolicyArg::Latest => Placing::Latest,
                    PolicyArg::LeastPeak => Placing::LeastPeak,
                    PolicyArg::Fixed => Placing::Fixed,
                },
                margin_ppm: (args.margin * 1e4).round() as u32,
            });
        }
        (None, Some(time)) => {
            request.hold = Some(HoldWant {
                duration_ms: milliseconds(time),
                min_rate_bps: args.min_rate.map_or(max_rate_bps, |rate| rate.as_bps()),
                max_rate_bps,
                latest_start: args.latest_start.map(|latest| latest.from(now)),
            });
        }
        _ => return Err(Failure::usage("say --bytes of a file, or --time of a circuit")),
    }
    if let (Some(at), Some(zone), Some(count)) = (&args.at_hour, &args.zone, args.count) {
        request.recurring = Some(Recurring {
            at: at.clone(),
            by: args.by_hour.clone(),
            time_zone: zone.clone(),
            on: args.on.clone(),
            first: args.first.clone(),
            count,
        });
    }
    Ok(request)
}

/// A preview in words and bars.
fn describe(preview: &Preview) -> String {
    let mut out = String::new();
    let mut say = |line: String| {
        out += &line;
        out.push('\n');
    };
    for occurrence in &preview.occurrences {
        say(match &occurrence.plan {
            Some(plan) => show::span(plan.start, plan.finish),
            None => format!("{}: no room", show::short(occurrence.start)),
        });
    }
    let Some(plan) = &preview.plan else {
        for other in &preview.alternatives {
            say(format!("  {}: {}", other.what, show::span(other.plan.start, other.plan.finish)));
        }
        return out;
    };
    say(format!("plan: {} over {}", show::span(plan.start, plan.finish), plan.links.join(", ")));
    let top = preview.availability.iter().map(|link| link.capacity_bps).max().unwrap_or(1);
    let window = gantt::Window { from: plan.start, to: plan.finish, width: gantt::WIDTH };
    say(format!("  {:<12} {}", "planned", gantt::bar(&plan.ranges, window, top)));
    for link in &preview.availability {
        say(format!(
            "  {:<12} {}",
            format!("free {}", link.link),
            gantt::bar(&link.free, window, top)
        ));
    }
    say(format!("why: {}", preview.explanation.summary));
    for other in &preview.alternatives {
        say(format!("  or {}: {}", other.what, show::span(other.plan.start, other.plan.finish)));
    }
    // Words to be typed again are those of no service that puts others among them.
    if let Some(quote) = preview.quote.as_ref().filter(|quote| is_word(&quote.id)) {
        say(format!(
            "to book this until {}: longhaul circuits request --quote {}",
            show::short(quote.valid_until),
            quote.id
        ));
    }
    out
}

/// True if a shell takes it for one word.
fn is_word(text: &str) -> bool {
    !text.starts_with('-')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::circuits::args::CircuitsCommand;

    fn plan_of(words: &str) -> Result<BookRequest, String> {
        let words = format!("longhaul circuits plan {words}");
        let cli = Cli::try_parse_from(words.split(' ')).map_err(|error| error.to_string())?;
        let Command::Circuits(args) = cli.command else { panic!("{words}") };
        let CircuitsCommand::Plan(args) = args.command else { panic!("{words}") };
        want(&args.want, jiff::Timestamp::now()).map_err(|failure| failure.message)
    }

    #[test]
    fn words_become_a_request() {
        let file =
            plan_of("a b --bytes 5GB --max-rate 10Gbps --margin 1.5 --deadline +2h").unwrap();
        assert_eq!((file.from.as_deref(), file.to.as_deref()), (Some("a"), Some("b")));
        let file = file.file.unwrap();
        assert_eq!((file.bytes, file.max_rate_bps), (5_000_000_000, 10_000_000_000));
        assert_eq!(file.margin_ppm, 15_000);
        assert!(file.deadline.is_some());
        let hold = plan_of("--links x,y --time 2h --max-rate 1Gbps").unwrap();
        assert_eq!(hold.links, Some(vec!["x".into(), "y".into()]));
        let hold = hold.hold.unwrap();
        assert_eq!((hold.duration_ms, hold.min_rate_bps), (7_200_000, 1_000_000_000));
    }

    #[test]
    fn words_that_change_a_booking() {
        let parsed =
            |words: &str| Cli::try_parse_from(format!("longhaul circuits {words}").split(' '));
        let command = |words: &str| match parsed(words).unwrap().command {
            Command::Circuits(args) => args.command,
            _ => panic!("{words}"),
        };
        let CircuitsCommand::Modify(args) = command("modify 7 --time 2h --max-rate 1Gbps") else {
            panic!("another command")
        };
        let change = modification(&args);
        assert_eq!((args.id, change.duration_ms), (7, Some(7_200_000)));
        assert_eq!((change.max_rate_bps, change.bytes), (Some(1_000_000_000), None));
        let CircuitsCommand::Extend(args) = command("extend 7 --bytes 5GB") else {
            panic!("another command")
        };
        assert_eq!(extension(&args).bytes, Some(5_000_000_000));
        for words in
            ["modify 7", "extend 7", "extend 7 --bytes 5GB --time 1h", "extend --bytes 5GB"]
        {
            assert!(parsed(words).is_err(), "{words}");
        }
    }

    #[test]
    fn words_that_are_sent_again() {
        let request = |words: &str| {
            let words = format!("longhaul circuits request {words}");
            let cli = Cli::try_parse_from(words.split(' ')).map_err(|error| error.to_string())?;
            let Command::Circuits(args) = cli.command else { panic!("{words}") };
            let CircuitsCommand::Request(args) = args.command else { panic!("{words}") };
            Ok::<_, String>(args.want)
        };
        let now = "2026-11-22T09:00:00Z".parse().unwrap();
        let file = "a b --bytes 5GB --max-rate 1Gbps --key k";
        assert_eq!(counted_from(&request(file).unwrap(), now), "");
        let counted = request(&format!("{file} --start +1h --deadline +2h")).unwrap();
        assert_eq!(
            counted_from(&counted, now),
            "--start 2026-11-22T10:00:00Z --deadline 2026-11-22T11:00:00Z"
        );
        let in_full = format!("{file} --deadline 2026-11-22T11:00:00Z");
        assert_eq!(counted_from(&request(&in_full).unwrap(), now), "");
        assert!(request(&format!("{file}\nb")).unwrap_err().contains("letters, digits"));
        for beside in ["--hold-for 5min", "--label x", "--links l", "--max-rate 1Gbps", "a b"] {
            let error = request(&format!("--quote q {beside}")).unwrap_err();
            assert!(error.contains("cannot be used with"), "{beside}: {error}");
        }
    }

    #[test]
    fn words_that_make_no_sense() {
        for (words, expected) in [
            ("--bytes 5GB --max-rate 1Gbps", "FROM and TO"),
            ("a --bytes 5GB --max-rate 1Gbps", "2 values"),
            ("a b --bytes 5GB", "--max-rate is missing"),
            ("a b --max-rate 1Gbps", "--bytes of a file"),
            ("a b --bytes 5GB --time 5s --max-rate 1Gbps", "cannot be used with"),
            ("a b --time 1h --max-rate 1Gbps --deadline +2h", "cannot be used with"),
            ("a b --time 1h --max-rate 1Gbps --policy latest", "cannot be used with"),
            ("a b --time 1h --max-rate 1Gbps --margin 2", "cannot be used with"),
            ("a b --bytes 5GB --max-rate 1Gbps --min-rate 1Mbps", "cannot be used with"),
            ("a b --bytes 5GB --max-rate 1Gbps --latest-start +1s", "cannot be used with"),
            ("a b --bytes -5 --max-rate 1Gbps", "unexpected argument"),
            ("a b --bytes 5GB --max-rate 1Gbps --start yesterday", "expected a time"),
            ("a b --bytes 5GB --max-rate 1Gbps --margin 200", "percent"),
            ("a b --bytes 5GB --max-rate 1Gbps --margin NaN", "percent"),
            ("a b --bytes 5GB --max-rate NaN", "--max-rate"),
            ("a b --bytes NaN --max-rate 1Gbps", "--bytes"),
            ("a b --bytes 5GB --max-rate 1e30Gbps", "--max-rate"),
            ("a b --bytes 99999999999EB --max-rate 1Gbps", "--bytes"),
        ] {
            let error = plan_of(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
