//! Sentences about bookings and their use.

use longhaul_peers::Booking;
use longhaul_plot::number;

use super::Part;
use super::phrases::{absence, capital};
use crate::experiment::Parameter;
use crate::measure::Measure;
use crate::record::{Record, Verdict};
use crate::statistics::Estimate;

/// For each contender, those without a booking as well: medians of its runs.
pub(super) fn say(part: &Part, records: &[&Record]) -> Vec<String> {
    let names = part.values(records, Parameter::Contender).into_iter();
    names
        .filter_map(|name| {
            let own = records.iter().filter(|one| one.contender == name).copied();
            let done: Vec<&Record> = own.filter(|one| one.verdict == Verdict::Done).collect();
            match done.first() {
                None => absence(records, &name),
                Some(first) => {
                    Some(format!("{}: {}.", capital(&name), one(&done, first.bookings.len())))
                }
            }
        })
        .collect()
}

fn one(done: &[&Record], copies: usize) -> String {
    let mut parts: Vec<String> = (0..copies)
        .filter_map(|copy| {
            let own: Vec<&Booking> = done.iter().filter_map(|one| one.bookings.get(copy)).collect();
            let time = |of: &dyn Fn(&Booking) -> f64| median(own.iter().map(|one| of(one)));
            let planned = time(&|one| one.planned)?;
            let times = format!(
                "planned to be done after {planned:.2} s, done after {:.2} s",
                time(&|one| one.done)?
            );
            Some(if copies > 1 { format!("copy {} {times}", copy + 1) } else { times })
        })
        .collect();
    if copies == 0 {
        parts.extend(
            median(done.iter().filter_map(|one| one.seconds))
                .map(|seconds| format!("without a booking, done after {seconds:.2} s")),
        );
    }
    let all: Vec<&Booking> = done.iter().flat_map(|one| &one.bookings).collect();
    let used =
        median(done.iter().filter_map(|one| Measure::BookingUsed.of(one)).map(|used| used.value));
    if let (Some(used), Some(late), Some(over_ip)) = (
        used,
        median(all.iter().map(|one| one.left - one.planned)),
        median(all.iter().map(|one| one.ip_bytes as f64)),
    ) {
        let side = if late < 0.0 { "before" } else { "after" };
        let released = all.iter().filter(|one| one.released).count();
        parts.push(format!(
            "{} used of what the vectors allowed until they were left, {} ms {side} the planned end ({released} of {} gave back a rest); {} MB over IP",
            Measure::BookingUsed.say(used), number(1e3 * late.abs()), all.len(), number(over_ip / 1e6),
        ));
    }
    parts.extend(losses(done));
    parts.join("; ")
}

/// Losses of the observed link, in the runs that record them.
fn losses(done: &[&Record]) -> Vec<String> {
    let (mut sent, mut lost, mut late) = (None, 0, 0);
    for record in done {
        if let Some(link_lost) = &record.link_lost {
            *sent.get_or_insert(0) += record.path_sent;
            lost += link_lost.values().sum::<u64>();
            late += record.queue_lost_late;
        }
    }
    let Some(sent) = sent else { return Vec::new() };
    let part = Measure::PathLoss.say(100.0 * lost as f64 / sent.max(1) as f64);
    let mut parts = vec![format!("{part} lost on the observed link")];
    if late > 0 {
        parts.push(format!(
            "{late} of {lost} lost packets met a queue that an emulator in time may not have had"
        ));
    }
    parts
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Estimate::of(values).map(|estimate| estimate.median)
}
