//! Sizes, times and rates that make sense, in the ledger's units.

use longhaul_calendar::Margin;
use longhaul_units::{Bytes, Duration, Rate};

use super::invalid;
use crate::server::problem::ProblemResponse;
use crate::service::View;

/// Channel ticks of so many bytes.
pub(in crate::server) fn volume(
    view: &View,
    name: &str,
    bytes: u64,
    ppm: u32,
) -> Result<u64, ProblemResponse> {
    if bytes == 0 {
        return Err(invalid(format!("{name}: nothing to carry")));
    }
    if ppm > MARGIN_MAX {
        return Err(invalid("margin_ppm: more than the file itself"));
    }
    let volume = view.grid.volume(Bytes::new(bytes), Margin::from_ppm(ppm));
    match volume.filter(|_| bytes <= BYTES_MAX) {
        Some(volume) => Ok(volume),
        None => Err(invalid(format!("{name}: more than an exabyte"))),
    }
}

/// Ticks that cover so many milliseconds.
pub(in crate::server) fn ticks(
    view: &View,
    name: &str,
    millis: u64,
) -> Result<u64, ProblemResponse> {
    match view.grid.ticks(Duration::from_millis(millis)) {
        0 => Err(invalid(format!("{name}: no time at all"))),
        ticks if ticks > view.rules.horizon => {
            let horizon = view.grid.instant(view.rules.horizon).as_nanos() / 1_000_000_000;
            Err(invalid(format!("{name}: longer than bookings are taken for ({horizon} s)")))
        }
        ticks => Ok(ticks),
    }
}

pub(super) fn channels(view: &View, name: &str, bps: u64) -> Result<u32, ProblemResponse> {
    check_rate(name, bps)?;
    match view.grid.channels_within(Rate::from_bps(bps)) {
        0 => {
            let least = view.grid.channel();
            Err(invalid(format!("{name}: less than the smallest step of rate, {least}")))
        }
        channels => Ok(channels),
    }
}

/// The capacity of a link.
pub(in crate::server) fn capacity(view: &View, bps: u64) -> Result<u32, ProblemResponse> {
    let channels = channels(view, "capacity_bps", bps)?;
    let most = view.grid.rate(u32::MAX);
    match Rate::from_bps(bps) > most {
        true => Err(invalid(format!("capacity_bps: more than 2^32 steps of rate, {most}"))),
        false => Ok(channels),
    }
}

pub(super) fn channels_above(view: &View, name: &str, bps: u64) -> Result<u32, ProblemResponse> {
    check_rate(name, bps)?;
    let channels = bps.div_ceil(view.grid.channel().as_bps().max(1));
    Ok(u32::try_from(channels).unwrap_or(u32::MAX))
}

fn check_rate(name: &str, bps: u64) -> Result<(), ProblemResponse> {
    match bps {
        0 => Err(invalid(format!("{name}: a rate of zero"))),
        1..=RATE_MAX => Ok(()),
        _ => Err(invalid(format!("{name}: more than a petabit per second"))),
    }
}

const BYTES_MAX: u64 = 1_000_000_000_000_000_000;
const RATE_MAX: u64 = 1_000_000_000_000_000;
const MARGIN_MAX: u32 = 1_000_000;
