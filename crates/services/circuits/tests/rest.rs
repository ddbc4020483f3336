//! The service over REST: a booking's life, and everything that must be refused.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/site.rs"]
mod site;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use longhaul_circuits::api::{
    BookRequest, Booking, ExtendRequest, FileWant, HoldWant, ModifyRequest, Placing, Preview,
    Problem, Range, Recurring, State,
};
use longhaul_circuits::client::{Access, Client, ClientError, News};
use longhaul_circuits::ledger::audit;
use longhaul_circuits::store;
use serde_json::{Value, json};
use site::{ASTRO, BIO, OPERATOR, Site, VIEWER};

const GBPS: u64 = 1_000_000_000;
const GB: u64 = 1_000_000_000;

/// The store of a test, of either kind.
struct Kept {
    place: String,
    _folder: Option<tempfile::TempDir>,
    _server: Option<postgres::Server>,
}

impl Kept {
    fn in_file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("book.db").display().to_string();
        Self { place, _folder: Some(folder), _server: None }
    }

    fn in_postgres() -> Self {
        let server = postgres::Server::start();
        Self { place: server.url(), _folder: None, _server: Some(server) }
    }

    fn open(&self) -> Site {
        Site::start(site::config(&self.place))
    }
}

/// Each test, with each store.
macro_rules! on_every_store {
    ($($test:ident,)*) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                super::$test(&super::Kept::in_file());
            })*
        }
        mod with_postgres {
            $(#[longhaul_needs::needs(postgresql)]
            #[test]
            fn $test() {
                super::$test(&super::Kept::in_postgres());
            })*
        }
    };
}

on_every_store! {
    a_booking_is_made_changed_extended_and_released,
    a_plan_is_explained_quoted_and_taken,
    a_refusal_explains_itself_and_its_proposals_are_accepted,
    a_change_that_is_refused_explains_itself_and_its_proposals_are_accepted,
    a_watch_that_goes_on_after_a_restart_has_to_look_again,
    held_bookings_are_committed_or_lapse,
    a_series_keeps_its_local_hour_and_is_booked_and_cancelled_as_one,
    bad_input_is_refused_and_changes_nothing,
    tokens_roles_and_quotas,
    a_key_books_once_even_over_a_restart,
    a_key_yields_its_outcome_when_that_could_not_be_asked_any_more,
    least_peak_and_fixed_rate_and_a_hold_with_a_range_of_rates,
    the_description_is_openapi_3_1_and_metrics_are_counted,
}

fn file(bytes: u64, max_rate_bps: u64) -> BookRequest {
    BookRequest {
        from: Some("a".into()),
        to: Some("b".into()),
        file: Some(FileWant { bytes, max_rate_bps, ..FileWant::default() }),
        ..BookRequest::default()
    }
}

fn after(seconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + seconds).unwrap()
}

fn one(made: longhaul_circuits::api::Bookings) -> Booking {
    assert_eq!(made.bookings.len(), 1);
    made.bookings.into_iter().next().unwrap()
}

fn problem<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Problem {
    match result {
        Err(ClientError::Problem(problem)) => *problem,
        other => panic!("{other:?}"),
    }
}

/// A request as it is written, and the answer's status, head and body.
fn raw(site: &Site, text: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

fn send(site: &Site, method: &str, path: &str, token: u8, body: &str) -> (u16, String, String) {
    send_with(site, method, path, token, "", body)
}

/// With more lines in the head, each with its end.
fn send_with(
    site: &Site,
    method: &str,
    path: &str,
    token: u8,
    lines: &str,
    body: &str,
) -> (u16, String, String) {
    let (token, length) = (site::token(token), body.len());
    raw(
        site,
        &format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer \
         {token}\r\n{lines}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
    )
}

fn a_booking_is_made_changed_extended_and_released(store: &Kept) {
    let site = store.open();
    let client = site.client(ASTRO);
    let mut request = file(10 * GB, 8 * GBPS);
    request.start = Some(after(100));
    request.label = "run 17".into();
    let made = one(client.book(&request, None).unwrap());
    assert_eq!((made.state, made.links.as_slice()), (State::Scheduled, &["a-b".to_owned()][..]));
    assert_eq!(made.finish.duration_since(made.start).as_secs(), 10);
    assert_eq!(made.ranges[0].rate_bps, 8 * GBPS);
    assert_eq!((made.bytes, made.price_micros), (Some(10 * GB), 20_000));
    assert_eq!(client.show(made.id).unwrap(), made);

    let change = ModifyRequest { bytes: Some(5 * GB), ..ModifyRequest::default() };
    let changed = one(client.modify(made.id, &change).unwrap());
    assert_eq!(changed.finish.duration_since(changed.start).as_secs(), 5);
    let more = ExtendRequest { bytes: Some(GB), ..ExtendRequest::default() };
    let extended = one(client.extend(made.id, &more, Some("k")).unwrap());
    assert_eq!((extended.bytes, extended.booked_bytes), (Some(6 * GB), 6 * GB));
    let again = one(client.extend(made.id, &more, Some("k")).unwrap());
    assert_eq!(again, extended, "the same key extends once");

    let why = client.explain(made.id).unwrap();
    assert!(why.summary.ends_with("Planned now: it finishes as if the links were idle"), "{why:?}");
    assert_eq!((why.finish, why.binding), (Some(extended.finish), None));
    let released = one(client.release(made.id).unwrap());
    assert_eq!((released.state, released.ranges.len()), (State::Released, 0));
    assert!(client.list(false, None).unwrap().bookings.is_empty());
    assert_eq!(client.list(true, None).unwrap().bookings.len(), 1);
    let usage = client.usage().unwrap();
    assert_eq!((usage.projects[0].used_bytes, usage.projects[0].returned_bytes), (0, 6 * GB));

    let gone = problem(client.cancel(made.id));
    assert_eq!((gone.status, gone.kind.as_str()), (409, "urn:longhaul:circuits:ended"));
    assert_eq!(gone.detail, format!("booking {} is released already", made.id));
    assert_eq!(problem(client.explain(made.id)), gone);
    assert_eq!(problem(client.show(99)).status, 404);
}

fn a_plan_is_explained_quoted_and_taken(store: &Kept) {
    let mut config = site::config(&store.place);
    config.quote = Duration::from_secs(600);
    let site = Site::start(config);
    let client = site.client(ASTRO);
    let mut request = file(100 * GB, 10 * GBPS);
    request.to = Some("c".into());
    let preview = client.plan(&request).unwrap();
    let plan = preview.plan.unwrap();
    assert_eq!(plan.links, ["a-b", "b-c"], "ten times as wide as the direct link");
    assert_eq!(preview.alternatives.last().unwrap().what, "over a-c");
    assert_eq!(preview.availability.len(), 2);
    assert!(preview.explanation.summary.contains("as if the links were idle"));
    assert!(client.list(true, None).unwrap().bookings.is_empty(), "a plan books nothing");
    let quote = preview.quote.unwrap().id;
    let taken = one(client.take(&quote, None).unwrap());
    assert_eq!((taken.start, taken.finish), (plan.start, plan.finish));
    let stale = problem(client.take(&quote, None));
    assert_eq!((stale.status, stale.kind.as_str()), (409, "urn:longhaul:circuits:stale-quote"));
    assert_eq!(problem(client.take("nonsense", None)).status, 409);
    // While there is room for more of it, too: of many who take it at once one gets it.
    let quote = client.plan(&file(GB, GBPS)).unwrap().quote.unwrap().id;
    let takes = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..6)
            .map(|taker| {
                let (client, quote) = (&client, &quote);
                scope.spawn(move || client.take(quote, Some(&format!("taker {}", taker / 2))))
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
    });
    let (taken, stale): (Vec<_>, Vec<_>) = takes.into_iter().partition(Result::is_ok);
    // The same key is the same taker.
    assert_eq!((taken.len(), stale.len()), (2, 4));
    let ids: Vec<u64> = taken.into_iter().map(|taken| one(taken.unwrap()).id).collect();
    assert_eq!(ids[0], ids[1]);
    for stale in stale {
        assert_eq!(problem(stale).kind, "urn:longhaul:circuits:stale-quote");
    }
    assert_eq!(problem(client.take(&quote, None)).status, 409);
    // A quote is the project's own.
    let quote = client.plan(&file(GB, GBPS)).unwrap().quote.unwrap().id;
    assert_eq!(problem(site.client(BIO).take(&quote, None)).status, 409);
    drop(site);
    // And it is good for as long as the service says, which is a moment now.
    let mut config = site::config(&store.place);
    config.quote = Duration::from_millis(1);
    let site = Site::start(config);
    let client = site.client(ASTRO);
    let quote = client.plan(&file(GB, GBPS)).unwrap().quote.unwrap().id;
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(problem(client.take(&quote, None)).kind, "urn:longhaul:circuits:stale-quote");
}

fn a_refusal_explains_itself_and_its_proposals_are_accepted(store: &Kept) {
    let site = store.open();
    let client = site.client(ASTRO);
    let hold = |start, min: u64| BookRequest {
        links: Some(vec!["a-b".into()]),
        hold: Some(HoldWant {
            duration_ms: 100_000,
            min_rate_bps: min * GBPS,
            max_rate_bps: min * GBPS,
            latest_start: Some(start),
        }),
        start: Some(start),
        ..BookRequest::default()
    };
    let start = after(1000);
    client.book(&hold(start, 6), None).unwrap();
    let refused = problem(client.book(&hold(start, 5), None));
    assert_eq!((refused.status, refused.kind.as_str()), (409, "urn:longhaul:circuits:no-room"));
    let why = refused.explanation.unwrap();
    let binding = why.binding.unwrap();
    assert_eq!((binding.link.as_str(), binding.range.rate_bps), ("a-b", 4 * GBPS));
    assert!(why.changes.contains(&"a least rate of 4.00 Gb/s".to_owned()), "{:?}", why.changes);
    let accepted = one(client.book(&hold(start, 4), None).unwrap());
    assert_eq!(accepted.ranges[0].rate_bps, 4 * GBPS);
    let free = client.availability("a-b").unwrap();
    assert_eq!(free.free.iter().map(|range| range.rate_bps).min(), Some(0));
}

fn a_change_that_is_refused_explains_itself_and_its_proposals_are_accepted(store: &Kept) {
    let site = store.open();
    let client = site.client(ASTRO);
    let start = after(1000);
    let later = |seconds| start + jiff::SignedDuration::from_secs(seconds);
    let hold = |start, seconds: u64, rate: u64| {
        let (duration_ms, latest_start) = (seconds * 1000, None);
        let hold = HoldWant { duration_ms, min_rate_bps: rate, max_rate_bps: rate, latest_start };
        let request = BookRequest { start: Some(start), hold: Some(hold), ..file(GB, GBPS) };
        one(client.book(&BookRequest { file: None, ..request }, None).unwrap())
    };
    let reasons = |refused: Problem| {
        assert_eq!((refused.status, refused.kind.as_str()), (409, "urn:longhaul:circuits:no-room"));
        refused.explanation.unwrap()
    };
    // More bytes than fit at its highest rate.
    let request = BookRequest { start: Some(start), ..file(10 * GB, 8 * GBPS) };
    let made = one(client.book(&request, None).unwrap());
    let by = Some(later(100));
    let much = ModifyRequest { bytes: Some(10_000 * GB), deadline: by, ..ModifyRequest::default() };
    let why = reasons(problem(client.modify(made.id, &much)));
    let deadline = format!("a deadline of {}", later(10_000));
    assert_eq!(why.changes[..2], [deadline, "no more than 100 GB".into()], "{why:?}");
    client.modify(made.id, &ModifyRequest { bytes: Some(100 * GB), ..much }).unwrap();
    let more = ExtendRequest { bytes: Some(2 * GB), ..ExtendRequest::default() };
    let why = reasons(problem(client.extend(made.id, &more, None)));
    assert_eq!(why.changes[0], format!("a deadline of {}", later(102)), "{why:?}");
    let by = Some(later(101));
    client.modify(made.id, &ModifyRequest { deadline: by, ..ModifyRequest::default() }).unwrap();
    let why = reasons(problem(client.extend(made.id, &more, None)));
    assert_eq!(why.changes[1], "no more than 1.00 GB", "{why:?}");
    client.extend(made.id, &ExtendRequest { bytes: Some(GB), ..more }, None).unwrap();
    // More of a fixed rate, which goes on where it ended.
    let mut fixed = BookRequest { start: Some(later(200)), ..file(10 * GB, 8 * GBPS) };
    fixed.file.as_mut().unwrap().deadline = Some(later(210));
    fixed.file.as_mut().unwrap().policy = Placing::Fixed;
    let fixed = one(client.book(&fixed, None).unwrap());
    let why = reasons(problem(client.extend(fixed.id, &more, None)));
    assert_eq!(why.changes[0], format!("a deadline of {}", later(212)), "{why:?}");
    // More time than is free after it.
    let first = hold(later(300), 100, 6 * GBPS);
    hold(later(430), 20, 5 * GBPS);
    hold(later(450), 20, 9 * GBPS);
    let more = |millis| ExtendRequest { duration_ms: Some(millis), ..ExtendRequest::default() };
    let why = reasons(problem(client.extend(first.id, &more(60_000), None)));
    assert_eq!(why.changes[0], "no longer than 30 s", "{why:?}");
    let range = why.binding.unwrap().range;
    let free = client.availability("a-b").unwrap().free;
    let whole = |free: &Range| {
        free.start <= range.start && range.end <= free.end && free.rate_bps == range.rate_bps
    };
    assert!(free.iter().any(whole), "{range:?} in {free:?}");
    client.extend(first.id, &more(30_000), None).unwrap();
    // The horizon is no lack of room.
    let day = 86_400;
    let last = hold(later(29 * day), 100, GBPS);
    let beyond = problem(client.extend(last.id, &more(2 * day as u64 * 1000), None));
    assert_eq!((beyond.status, beyond.kind.as_str()), (422, "urn:longhaul:circuits:horizon"));
    assert!(beyond.detail.contains("bookings are taken up to"), "{beyond:?}");
}

fn held_bookings_are_committed_or_lapse(store: &Kept) {
    let site = store.open();
    let client = site.client(ASTRO);
    let mut request = file(GB, GBPS);
    request.start = Some(after(1000));
    let mut held = |seconds| {
        request.hold_for_seconds = Some(seconds);
        one(client.book(&request, None).unwrap())
    };
    // One until it is committed, however long that takes, and one as short as can be.
    let second = held(900);
    assert_eq!(second.state, State::Held);
    assert_eq!(one(client.commit(second.id).unwrap()).state, State::Scheduled);
    assert_eq!(problem(client.commit(second.id)).kind, "urn:longhaul:circuits:not-held");
    let watch = |after, what: &str| {
        let mut found = None;
        let mut see = |news: News| {
            found = (news.what == what).then_some(news);
            found.is_none()
        };
        client.watch(Some(after), &mut see).unwrap();
        found.unwrap()
    };
    let before = watch(u64::MAX, "reset").number;
    let first = held(1);
    let lapsed = watch(before, "lapsed");
    // Watchers that come late see what happened before, as long as it is known.
    let mut whats = Vec::new();
    for after in [lapsed.number - 1, 0, u64::MAX] {
        client
            .watch(Some(after), |news| {
                whats.push(news.what);
                false
            })
            .unwrap();
    }
    assert_eq!(whats, ["lapsed", "reset", "reset"]);
    assert_eq!((lapsed.what.as_str(), lapsed.booking.unwrap().id), ("lapsed", first.id));
    let detail = format!("booking {} is lapsed already", first.id);
    assert_eq!(problem(client.commit(first.id)).detail, detail);
}

fn a_watch_that_goes_on_after_a_restart_has_to_look_again(store: &Kept) {
    let first = |site: &Site, after: u64| {
        let mut found = None;
        let mut see = |news: News| {
            found = Some(news);
            false
        };
        site.client(ASTRO).watch(Some(after), &mut see).unwrap();
        found.unwrap()
    };
    let site = store.open();
    // Ahead, so that nothing else happens meanwhile.
    let ahead = BookRequest { start: Some(after(3600)), ..file(GB, GBPS) };
    let book = |site: &Site| site.client(ASTRO).book(&ahead, None).unwrap();
    (0..3).for_each(|_| drop(book(&site)));
    let seen = first(&site, u64::MAX).number;
    drop(site);
    let site = store.open();
    (0..6).for_each(|_| drop(book(&site)));
    let reset = first(&site, seen);
    assert_eq!(reset.what, "reset");
    assert!(reset.number > seen);
    book(&site);
    assert_eq!(first(&site, reset.number).what, "booked");
}

fn a_series_keeps_its_local_hour_and_is_booked_and_cancelled_as_one(store: &Kept) {
    let site = store.open();
    let client = site.client(ASTRO);
    // Half a day from now: near the hour itself the first night would pass while the test looks at
    // it, and the last one before the horizon would begin in time but not end in time.
    let zone = jiff::tz::TimeZone::get("Europe/Zurich").unwrap();
    let hour = |from_now: i64| after(from_now * 3600).to_zoned(zone.clone()).strftime("%H:%M");
    let (at, by) = (hour(12).to_string(), hour(15).to_string());
    let nightly = |zone: &str, count| {
        let mut request = file(40 * GB, 10 * GBPS);
        request.recurring = Some(Recurring {
            at: at.clone(),
            by: Some(by.clone()),
            time_zone: zone.into(),
            on: Vec::new(),
            first: None,
            count,
        });
        request
    };
    let preview = client.plan(&nightly("Europe/Zurich", 5)).unwrap();
    assert!(client.list(true, None).unwrap().bookings.is_empty(), "a plan books nothing");
    assert_eq!(preview.plan, preview.occurrences[0].plan);
    let quote = |preview: &Preview| preview.quote.as_ref().unwrap().id.clone();
    let late = client.plan(&nightly("Europe/Zurich", 7)).unwrap();
    let made = client.take(&quote(&preview), None).unwrap().bookings;
    assert_eq!(made.len(), 5);
    // The other quote is of nights that are taken now: none of it is booked.
    let stale = problem(client.take(&quote(&late), None));
    assert_eq!((stale.status, stale.kind.as_str()), (409, "urn:longhaul:circuits:stale-quote"));
    assert_eq!(client.list(false, None).unwrap().bookings.len(), 5);
    for (booking, planned) in made.iter().zip(&preview.occurrences) {
        let plan = planned.plan.as_ref().unwrap();
        assert_eq!((booking.start, booking.finish), (plan.start, plan.finish));
        assert!(plan.finish <= planned.deadline.unwrap());
    }
    // What is booked now leaves the third night no room for as much again as a night carries.
    let mut full = nightly("Europe/Zurich", 3);
    full.links = Some(vec!["a-b".into()]);
    (full.from, full.to) = (None, None);
    let (from, by) = (preview.occurrences[2].start, preview.occurrences[2].deadline.unwrap());
    let mut block = file(40 * GB, 10 * GBPS);
    (block.links, block.from, block.to) = (full.links.clone(), None, None);
    block.start = Some(from);
    let night = by.duration_since(from).as_secs() as u64;
    block.file.as_mut().unwrap().bytes = night * 10 * GBPS / 8 - 45 * GB;
    client.book(&block, None).unwrap();
    let refused = client.plan(&full).unwrap();
    let room: Vec<bool> = refused.occurrences.iter().map(|o| o.plan.is_some()).collect();
    assert_eq!(room, [true, true, false]);
    assert!(refused.plan.is_none() && refused.quote.is_none());
    assert!(refused.explanation.summary.contains("it is refused"));
    assert_eq!(problem(client.book(&full, None)).status, 409);
    let last = client.list(false, None).unwrap().bookings.pop().unwrap();
    client.cancel(last.id).unwrap();
    assert!(made.iter().all(|booking| booking.series == Some(made[0].id)));
    let calendar = format!("/v1/calendar.ics?token={}", site::token(VIEWER));
    let (status, head, body) = send(&site, "GET", &calendar, OPERATOR, "");
    assert_eq!(status, 200);
    assert!(head.contains("text/calendar") && body.matches("BEGIN:VEVENT").count() == 5, "{body}");
    // All or none: the last would lie beyond the horizon.
    assert_eq!(problem(client.book(&nightly("Europe/Zurich", 60), None)).status, 422);
    assert_eq!(client.list(false, None).unwrap().bookings.len(), 5);
    let wrong = problem(client.book(&nightly("Europe/Atlantis", 1), None));
    assert_eq!((wrong.status, wrong.detail.contains("no zone")), (422, true));
    let none = problem(client.cancel_series(last.id));
    assert_eq!((none.status, none.kind.as_str()), (404, "urn:longhaul:circuits:unknown-series"));
    assert_eq!(client.list(false, None).unwrap().bookings.len(), 5);
    assert_eq!(client.cancel_series(made[2].id).unwrap().bookings.len(), 5, "any of them names it");
    assert!(client.list(false, None).unwrap().bookings.is_empty());
}

fn bad_input_is_refused_and_changes_nothing(store: &Kept) {
    let site = store.open();
    let (client, bio) = (site.client(ASTRO), site.client(BIO));
    // Ahead, so that time changes nothing of them either.
    let mut ahead = file(GB, 10 * GBPS);
    ahead.start = Some(after(3600));
    let quote = client.plan(&ahead).unwrap().quote.unwrap().id;
    for id in 0..2 {
        assert_eq!(one(client.book(&ahead, None).unwrap()).id, id);
    }
    client.cancel(1).unwrap();
    let state = || (site.client(OPERATOR).list(true, None).unwrap(), capacity(&site));
    let before = state();
    let good = json!({ "from": "a", "to": "b", "file": { "bytes": GB, "max_rate_bps": GBPS } });
    let with = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[field] = value;
        bad
    };
    let hold = |duration: Value, min: Value, max: Value| {
        json!({ "from": "a", "to": "b", "hold": {
            "duration_ms": duration, "min_rate_bps": min, "max_rate_bps": max } })
    };
    let nightly = |field: &str, value: Value| {
        let mut recurring = json!({ "at": "22:00", "time_zone": "Europe/Zurich", "count": 2 });
        recurring[field] = value;
        with("/recurring", recurring)
    };
    let by_latest = |latest: &str| {
        let mut late = hold(json!(1000), json!(GBPS), json!(GBPS));
        late["hold"]["latest_start"] = json!(latest);
        late
    };
    let mut nightly_hold = hold(json!(1000), json!(GBPS), json!(GBPS));
    nightly_hold["recurring"] = nightly("by", json!("06:00"))["recurring"].take();
    for (body, status, expected) in [
        // Sizes and rates.
        (with("/file/bytes", json!(-5)), 400, "`-5`, expected u64"),
        (with("/file/bytes", json!(0)), 422, "nothing to carry"),
        (with("/file/bytes", json!(u64::MAX)), 422, "more than an exabyte"),
        (with("/file/bytes", json!(1e30)), 400, "expected u64"),
        (with("/file/bytes", json!("5 GB")), 400, "expected u64"),
        (with("/file/max_rate_bps", json!(-1)), 400, "expected u64"),
        (with("/file/max_rate_bps", json!(0)), 422, "rate of zero"),
        (with("/file/max_rate_bps", json!(999_999)), 422, "smallest step"),
        (with("/file/max_rate_bps", json!(u64::MAX)), 422, "petabit"),
        (with("/file/margin_ppm", json!(2_000_000)), 422, "margin"),
        (hold(json!(0), json!(GBPS), json!(GBPS)), 422, "no time"),
        (hold(json!(u64::MAX), json!(GBPS), json!(GBPS)), 422, "longer than"),
        (hold(json!(1000), json!(0), json!(GBPS)), 422, "rate of zero"),
        (hold(json!(1000), json!(2 * GBPS), json!(GBPS)), 422, "above max_rate_bps"),
        (hold(json!(1000), json!(20 * GBPS), json!(20 * GBPS)), 409, "not enough"),
        (hold(json!(1000), json!(u64::MAX), json!(u64::MAX)), 422, "petabit"),
        (by_latest("2020-01-01T00:00:00Z"), 422, "latest_start: it lies before"),
        (hold(json!(-1), json!(GBPS), json!(GBPS)), 400, "expected u64"),
        // Times.
        (with("/start", json!("2020-01-01T00:00:00Z")), 422, "has passed"),
        (with("/start", json!("1950-01-01T00:00:00Z")), 422, "not a time"),
        (with("/start", json!("9000-01-01T00:00:00Z")), 422, ""),
        (with("/start", json!("tomorrow")), 400, "the body: start:"),
        (with("/start", json!("2030-01-01T00:00:00")), 400, "start"),
        (with("/start", json!(after(31 * 86_400).to_string())), 422, "beyond the horizon"),
        (with("/file/deadline", json!("2020-01-01T00:00:00Z")), 422, "deadline"),
        (with("/file/policy", json!("latest")), 422, "needs a deadline"),
        (with("/file/policy", json!("whenever")), 400, "unknown variant"),
        (nightly("time_zone", json!("Middle/Earth")), 422, "no zone"),
        (nightly("time_zone", json!("+25:00")), 422, "no zone"),
        (nightly("at", json!("24:61")), 422, "local time"),
        (nightly("count", json!(0)), 422, "count"),
        (nightly_hold, 422, "recurring.by"),
        (nightly("first", json!("2027-02-29")), 422, "expected a day"),
        // Places.
        (with("/from", json!("nowhere")), 404, "no link at nowhere"),
        (with("/to", json!("a")), 404, "no path"),
        (json!({ "links": ["x"], "file": good["file"] }), 404, "no link \"x\""),
        (json!({ "links": ["a-b", "a-b"], "file": good["file"] }), 422, "different links"),
        (json!({ "links": ["a-b", "a-c"], "file": good["file"] }), 422, "a-c begins at a"),
        (json!({ "links": ["b-c", "a-b"], "file": good["file"] }), 422, "b-c ends at c"),
        (json!({ "links": [], "file": good["file"] }), 422, "different links"),
        (json!({ "links": ["a-b"], "from": "a", "file": good["file"] }), 422, "from and to"),
        // Shape.
        (json!({ "from": "a", "to": "b" }), 422, "one of file and hold"),
        (with("/colour", json!("red")), 400, "unknown field"),
        (with("/label", json!("x".repeat(201))), 422, "label"),
        (with("/label", json!("run\r\nX: 17")), 422, "label"),
        (with("/label", json!("\u{1b}[2J")), 422, "label"),
        (with("/label", json!("71 \u{202e}nur")), 422, "label"),
        (with("/hold_for_seconds", json!(100_000)), 422, "hold_for_seconds"),
        (with("/destination", json!("somewhere")), 400, "IP address"),
        (json!([1, 2, 3]), 400, "the body"),
        (json!(["a", "b", null, good["file"]]), 400, "expected a JSON object"),
        (with("/file", json!([GB, GBPS])), 400, "file: invalid type: sequence"),
        (json!(null), 400, "the body"),
    ] {
        let (got, head, text) = send(&site, "POST", "/v1/bookings", ASTRO, &body.to_string());
        assert_eq!(got, status, "{body} gave {text}");
        assert!(head.contains("application/problem+json"), "{head}");
        let problem: Problem = serde_json::from_str(&text).unwrap();
        assert!(problem.detail.contains(expected), "{body} gave {text}");
        assert_eq!(problem.status, status);
        // A plan, which holds nothing, is refused likewise; a lack of room it explains.
        if status != 409 && expected != "hold_for_seconds" {
            assert_eq!(
                send(&site, "POST", "/v1/plan", ASTRO, &body.to_string()).0,
                status,
                "{body}"
            );
        }
    }
    assert_eq!(state(), before);
    for text in [
        "{",
        "{\"from\":",
        "\u{1F600}",
        "{\"file\":{\"bytes\":NaN}}",
        "{\"file\":{}}",
        "[[[[[[[[[[[[",
    ] {
        let (status, _, text) = send(&site, "POST", "/v1/bookings", ASTRO, text);
        assert_eq!((status, text.contains("malformed")), (400, true), "{text}");
    }
    let deep = "[".repeat(60_000);
    assert_eq!(send(&site, "POST", "/v1/bookings", ASTRO, &deep).0, 400);
    let long = format!("{{\"label\":\"{}\"}}", "x".repeat(70_000));
    for (method, path, body, status, kind) in [
        ("POST", "/v1/bookings", long.as_str(), 413, "too-large"),
        ("GET", "/v1/bookings/minus-one", "", 400, "malformed"),
        ("GET", "/v1/bookings/%ff", "", 400, "malformed"),
        ("GET", "/v1/links/%ff/availability", "", 400, "malformed"),
        ("GET", "/v1/bookings?limit=x", "", 400, "malformed"),
        ("GET", "/v1/nothing", "", 404, "no-such-page"),
        ("PUT", "/v1/bookings", "", 405, "method"),
    ] {
        let (got, _, text) = send(&site, method, path, ASTRO, body);
        assert_eq!(got, status, "{method} {path}: {text}");
        let problem: Problem = serde_json::from_str(&text).unwrap();
        assert_eq!(problem.kind, format!("urn:longhaul:circuits:{kind}"), "{method} {path}");
    }
    assert_eq!(send(&site, "PATCH", "/v1/bookings/0", ASTRO, "{}").0, 422);
    assert_eq!(send(&site, "PATCH", "/v1/bookings/0", ASTRO, "{\"duration_ms\":5}").0, 422);
    assert_eq!(send(&site, "POST", "/v1/bookings/0/extend", ASTRO, "{\"duration_ms\":5}").0, 422);
    assert_eq!(send(&site, "POST", "/v1/bookings/0/extend", ASTRO, "{\"bytes\":0}").0, 422);
    let (status, _, text) = send(&site, "DELETE", "/v1/bookings/1", ASTRO, "");
    assert_eq!((status, text.contains("booking 1 is cancelled already")), (409, true), "{text}");
    // What the project may not have: rate, time, share (108 GB); and a quote of what is taken now.
    let day = after(2 * 86_400);
    let far = BookRequest { start: Some(day), ..file(GB, GBPS) };
    for request in [&file(GB, 6 * GBPS), &far, &file(109 * GB, 5 * GBPS)] {
        let refused = problem(bio.book(request, None));
        assert_eq!((refused.status, refused.kind.as_str()), (403, "urn:longhaul:circuits:quota"));
    }
    let stale = problem(client.take(&quote, None));
    assert_eq!((stale.status, stale.kind.as_str()), (409, "urn:longhaul:circuits:stale-quote"));
    assert_eq!(state(), before);
    drop(site);
    checked(store);
}

fn tokens_roles_and_quotas(store: &Kept) {
    let site = store.open();
    let nobody =
        Client::new(&site.url(), &site::token(99).to_string(), &Access::default()).unwrap();
    assert_eq!(problem(nobody.list(false, None)).status, 401);
    let bare = "GET /v1/bookings HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(raw(&site, bare).1.contains("www-authenticate: bearer"));
    // The name of the scheme has no case.
    let bearer = format!("authorization: bEARER {}\r\n\r\n", site::token(VIEWER));
    assert_eq!(raw(&site, &bare.replace("\r\n\r\n", &format!("\r\n{bearer}"))).0, 200);
    let (viewer, bio) = (site.client(VIEWER), site.client(BIO));
    assert_eq!(problem(viewer.book(&file(GB, GBPS), None)).status, 403);
    let booked = one(site.client(ASTRO).book(&file(100 * GB, GBPS), None).unwrap());
    assert_eq!(viewer.show(booked.id).unwrap().id, booked.id);
    assert_eq!(problem(viewer.cancel(booked.id)).status, 403);
    assert_eq!(problem(bio.show(booked.id)).status, 404, "others' bookings are not seen");
    assert_eq!(problem(bio.cancel(booked.id)).status, 404);
    assert!(bio.list(true, None).unwrap().bookings.is_empty());

    let rate = problem(bio.book(&file(GB, 6 * GBPS), None));
    assert_eq!((rate.status, rate.detail.contains("at most 5.00 Gb/s")), (403, true));
    let mut far = file(GB, GBPS);
    far.start = Some(after(2 * 86_400));
    assert!(problem(bio.book(&far, None)).detail.contains("project's horizon"));
    // A deadline beyond the project's horizon, or the service's, lets it be booked within.
    let by = |client: &Client, days: i64| {
        let mut request = file(GB, GBPS);
        request.file.as_mut().unwrap().deadline = Some(after(days * 86_400));
        request.file.as_mut().unwrap().policy = Placing::Latest;
        one(client.book(&request, None).unwrap())
    };
    let within = by(&bio, 2);
    assert!(within.finish <= after(86_401));
    bio.cancel(within.id).unwrap();
    assert!(by(&site.client(ASTRO), 40).finish <= after(30 * 86_400 + 1));
    // A hold cannot be extended beyond it.
    let (duration_ms, rate) = (60_000, GBPS / 1000);
    let hold = HoldWant { duration_ms, min_rate_bps: rate, max_rate_bps: rate, latest_start: None };
    let start = Some(after(23 * 3600));
    let hold = BookRequest { start, file: None, hold: Some(hold), ..file(GB, GBPS) };
    let hold = one(bio.book(&hold, None).unwrap());
    let more = |duration_ms| ExtendRequest { bytes: None, duration_ms: Some(duration_ms) };
    let beyond = problem(bio.extend(hold.id, &more(7_200_000), None));
    assert_eq!((beyond.status, beyond.kind.as_str()), (403, "urn:longhaul:circuits:quota"));
    assert!(beyond.detail.contains("project's horizon"), "{beyond:?}");
    bio.extend(hold.id, &more(60_000), None).unwrap();
    bio.cancel(hold.id).unwrap();
    // A thousandth of 10 Gb/s for a day is 108 GB.
    bio.book(&file(100 * GB, GBPS), None).unwrap();
    let share = problem(bio.book(&file(9 * GB, GBPS), None));
    assert_eq!((share.status, share.detail.contains("share of a link")), (403, true));
    // A plan is refused as the booking would be.
    for request in [&file(GB, 6 * GBPS), &far, &file(9 * GB, GBPS)] {
        let (planned, booked) = (problem(bio.plan(request)), problem(bio.book(request, None)));
        assert_eq!((planned.status, planned.kind), (403, booked.kind));
    }
    assert_eq!(send(&site, "GET", "/v1/audit", ASTRO, "").0, 403);
    assert_eq!(send(&site, "POST", "/v1/replan", ASTRO, "").0, 403);

    let link = json!({ "name": "c-d", "from": "c", "to": "d", "capacity_bps": GBPS }).to_string();
    assert_eq!(send(&site, "POST", "/v1/links", ASTRO, &link).0, 403);
    assert_eq!(send(&site, "POST", "/v1/links", OPERATOR, &link).0, 201);
    assert_eq!(send(&site, "POST", "/v1/links", OPERATOR, &link).0, 409);
    // What is answered is what is kept: whole megabits.
    for (capacity, status, expected) in
        [(1_u64 << 63, 422, "petabit"), (0, 422, "rate of zero"), (1_500_000, 201, ":1000000,")]
    {
        let link = json!({ "name": "d-c", "from": "d", "to": "c", "capacity_bps": capacity });
        let (got, _, text) = send(&site, "POST", "/v1/links", OPERATOR, &link.to_string());
        assert_eq!((got, text.contains(expected)), (status, true), "{capacity}: {text}");
    }
    let circle = json!({ "name": "d-d", "from": "d", "to": "d", "capacity_bps": GBPS }).to_string();
    assert_eq!(send(&site, "POST", "/v1/links", OPERATOR, &circle).0, 422);
    for (name, from) in [("d/e", "d"), ("d-e", "d/"), ("..", "d"), ("-l", "d"), ("d-e", "d,e")] {
        let link = json!({ "name": name, "from": from, "to": "e", "capacity_bps": GBPS });
        let (status, _, text) = send(&site, "POST", "/v1/links", OPERATOR, &link.to_string());
        assert_eq!((status, text.contains("letter")), (422, true), "{link}: {text}");
    }
    let topology = site.client(ASTRO).topology().unwrap();
    assert_eq!((topology.nodes.len(), topology.max_rate_bps), (4, None));
    assert_eq!(bio.topology().unwrap().max_rate_bps, Some(5 * GBPS));
    assert_eq!(send(&site, "DELETE", &format!("/v1/bookings/{}", booked.id), OPERATOR, "").0, 200);
    let (_, _, log) = send(&site, "GET", "/v1/audit?limit=1000", OPERATOR, "");
    let log: Vec<Value> = serde_json::from_str(&log).unwrap();
    assert_eq!(log.last().unwrap()["outcome"][0]["event"], "cancelled");
    drop(site);
    checked(store);
}

fn a_key_books_once_even_over_a_restart(store: &Kept) {
    let site = store.open();
    let made = site.client(ASTRO).book(&file(GB, GBPS), Some("key")).unwrap();
    drop(site);
    let site = store.open();
    let again = site.client(ASTRO).book(&file(GB, GBPS), Some("key")).unwrap();
    assert_eq!(made.bookings[0].id, again.bookings[0].id);
    let other = problem(site.client(ASTRO).book(&file(2 * GB, GBPS), Some("key")));
    assert_eq!((other.status, other.kind.as_str()), (422, "urn:longhaul:circuits:key-reused"));
    // A link is added once too.
    let link = json!({ "name": "c-d", "from": "c", "to": "d", "capacity_bps": GBPS }).to_string();
    for (key, expected) in [("new", 201), ("new", 200), ("other", 409)] {
        let extra = format!("idempotency-key: {key}\r\n");
        let (status, _, text) = send_with(&site, "POST", "/v1/links", OPERATOR, &extra, &link);
        assert_eq!(status, expected, "{key}: {text}");
    }
    // Another project's key is another key.
    site.client(BIO).book(&file(GB, GBPS), Some("key")).unwrap();
    assert_eq!(site.client(OPERATOR).list(true, None).unwrap().bookings.len(), 2);
}

/// A request that made sense when it came first need not when it comes again.
fn a_key_yields_its_outcome_when_that_could_not_be_asked_any_more(store: &Kept) {
    let same = |first: Booking, again: Booking| assert_eq!(first.id, again.id);
    // A quote that is no longer known.
    let mut config = site::config(&store.place);
    config.quote = Duration::from_secs(60);
    let site = Site::start(config);
    let client = site.client(ASTRO);
    let mut late = file(GB, GBPS);
    late.start = Some(after(3600));
    let quote = client.plan(&late).unwrap().quote.unwrap().id;
    let taken = one(client.take(&quote, Some("quote")).unwrap());
    drop(site);
    let site = store.open();
    let client = site.client(ASTRO);
    assert_eq!(problem(client.take(&quote, None)).status, 409);
    same(taken, one(client.take(&quote, Some("quote")).unwrap()));
    // A booking that has ended.
    let booked = one(client.book(&late, None).unwrap());
    let more = ExtendRequest { bytes: Some(GB), ..ExtendRequest::default() };
    let extended = one(client.extend(booked.id, &more, Some("more")).unwrap());
    client.cancel(booked.id).unwrap();
    assert_eq!(problem(client.extend(booked.id, &more, Some("else"))).status, 409);
    same(extended, one(client.extend(booked.id, &more, Some("more")).unwrap()));
    // A start that has passed. On a busy machine it may have when it is first asked for: again then,
    // later each time.
    let (soon, key, first) = (0..10)
        .map(|attempt| (after(2 << attempt), format!("soon {attempt}")))
        .find_map(|(start, key)| {
            let soon = BookRequest { start: Some(start), ..late.clone() };
            let made = client.book(&soon, Some(&key)).ok()?;
            Some((soon, key, one(made)))
        })
        .unwrap();
    // The service's clock goes on from the wall's at its start: one that is being set parts from it.
    let passed = soon.start.unwrap() + Duration::from_secs(2);
    while jiff::Timestamp::now() <= passed {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(problem(client.book(&soon, Some("none"))).status, 422);
    same(first, one(client.book(&soon, Some(&key)).unwrap()));
    let other = BookRequest { label: "another".into(), ..soon };
    assert_eq!(problem(client.book(&other, Some(&key))).status, 422);
}

fn least_peak_and_fixed_rate_and_a_hold_with_a_range_of_rates(store: &Kept) {
    let site = store.open();
    let client = site.client(ASTRO);
    let start = after(1000);
    let mut request = file(10 * GB, 10 * GBPS);
    request.start = Some(start);
    request.file.as_mut().unwrap().deadline = Some(start + jiff::SignedDuration::from_secs(80));
    request.file.as_mut().unwrap().policy = Placing::LeastPeak;
    assert_eq!(one(client.book(&request, None).unwrap()).ranges[0].rate_bps, GBPS);
    let mut hold = BookRequest { start: Some(start), file: None, ..request.clone() };
    hold.hold = Some(HoldWant {
        duration_ms: 160_000,
        min_rate_bps: GBPS,
        max_rate_bps: 20 * GBPS,
        latest_start: None,
    });
    let rates: Vec<u64> =
        one(client.book(&hold, None).unwrap()).ranges.iter().map(|r| r.rate_bps).collect();
    assert_eq!(rates, [9 * GBPS, 10 * GBPS]);
}

fn the_description_is_openapi_3_1_and_metrics_are_counted(store: &Kept) {
    let site = store.open();
    let client = site.client(ASTRO);
    let mut done_early = file(GB, 10 * GBPS);
    done_early.start = Some(after(3600));
    done_early.file.as_mut().unwrap().margin_ppm = 250_000;
    client.release(one(client.book(&done_early, None).unwrap()).id).unwrap();
    done_early.file.as_mut().unwrap().margin_ppm = 500_000;
    client.cancel(one(client.book(&done_early, None).unwrap()).id).unwrap();
    client.book(&file(GB, GBPS), None).unwrap();
    let (_, _, text) = send(&site, "GET", "/openapi.json", ASTRO, "");
    let document: Value = serde_json::from_str(&text).unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 18 && paths.contains_key("/v1/bookings/{id}/extend"), "{paths:?}");
    // All operations that the description lists are there, and know nobody without a token.
    for (path, item) in paths {
        for method in item.as_object().unwrap().keys() {
            let head = format!("{} {path} HTTP/1.1", method.to_uppercase());
            let head = head.replace("{id}", "0").replace("{name}", "a-b");
            let (status, _, text) =
                raw(&site, &format!("{head}\r\nhost: x\r\nconnection: close\r\n\r\n"));
            let expected = match path.as_str() {
                "/v1/health" | "/metrics" | "/openapi.json" => 200,
                // Its token is part of the address.
                "/v1/calendar.ics" => 400,
                _ => 401,
            };
            assert_eq!(status, expected, "{method} {path}: {text}");
        }
    }
    let names = paths["/v1/links"]["post"]["description"].as_str().unwrap();
    assert!(names.contains("the first is a letter or digit"), "{names}");
    let (_, _, metrics) = send(&site, "GET", "/metrics", ASTRO, "");
    for expected in [
        "longhaul_circuits_ready 1",
        "longhaul_circuits_open_bookings 1",
        "longhaul_circuits_link_booked_ratio{link=\"a-b\"} ",
        "longhaul_circuits_request_seconds_bucket{le=\"+Inf\"} ",
        "longhaul_circuits_planned_seconds_total 10.2",
        "longhaul_circuits_margin_bytes_total 250000000\n",
        "longhaul_circuits_margin_held_bytes_total 0\n",
    ] {
        assert!(metrics.contains(expected), "{expected} in {metrics}");
    }
    assert!(site.client(ASTRO).health().unwrap().ready);
}

/// Free capacity of every link: rates, and when they end.
fn capacity(site: &Site) -> Vec<Vec<(Option<jiff::Timestamp>, u64)>> {
    let client = site.client(OPERATOR);
    let names = client.topology().unwrap().links.into_iter().map(|link| link.name);
    let free = |name: String| {
        let free = client.availability(&name).unwrap().free;
        let last = free.len() - 1;
        // What is shown ends so much later than now.
        let end = |at, range: &longhaul_circuits::api::Range| (at < last).then_some(range.end);
        free.iter().enumerate().map(|(at, r)| (end(at, r), r.rate_bps)).collect()
    };
    names.map(free).collect()
}

/// The log decides itself again.
fn checked(kept: &Kept) {
    let location = site::config(&kept.place).store;
    let mut store = store::open(&location, "checker", "").unwrap();
    let records = store::read_all(store.as_mut()).unwrap();
    audit::verify(&records, None).unwrap();
}
