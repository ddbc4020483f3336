//! What earlier circuits to a host have taught: a small file of this user.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use longhaul_transfer::CircuitReport;
use longhaul_units::Rate;
use serde::{Deserialize, Serialize};

use crate::token;

/// By host, as it was named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct History(BTreeMap<String, Known>);

/// What is known of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    /// Circuits that ended.
    circuits: u32,
    /// What brought nothing, in parts per million of what they allowed: smoothed, a quarter for the
    /// newest.
    wasted_ppm: u32,
    /// Mean deviation from that, likewise.
    deviation_ppm: u32,
    /// The rate to ask for, where a higher one lost much: a little above what arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate_bps: Option<u64>,
}

/// What one circuit has taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Experience {
    lost_ppm: u32,
    /// Of what the vector allowed: lost, or not used.
    wasted_ppm: u32,
    arrived: Rate,
}

impl Experience {
    /// `bytes_wait`: there was something to send all the time, so a sender that was late is what left
    /// the circuit idle. A circuit that carried next to nothing has taught nothing.
    pub fn of(circuit: &CircuitReport, bytes_wait: bool) -> Option<Self> {
        if circuit.sent_bytes < circuit.allowed_bytes / 10 {
            return None;
        }
        let ppm = |part: u64, all: u64| {
            let ppm = u128::from(part.min(all)) * 1_000_000 / u128::from(all.max(1));
            u32::try_from(ppm).unwrap_or(u32::MAX)
        };
        let lost_ppm = ppm(circuit.packets_lost, circuit.packets_sent);
        let idle = circuit.allowed_bytes.saturating_sub(circuit.sent_bytes);
        let idle_ppm = match ppm(idle, circuit.allowed_bytes) {
            idle @ 0..MUCH_IDLE_PPM if bytes_wait => idle,
            _ => 0,
        };
        let useful_ppm =
            u64::from(1_000_000 - idle_ppm) * u64::from(1_000_000 - lost_ppm) / 1_000_000;
        let wasted_ppm = 1_000_000 - u32::try_from(useful_ppm).unwrap_or(0);
        let open = circuit.left.saturating_sub(circuit.opened);
        let sent = Rate::from_bytes_over(circuit.sent_bytes, open);
        let arrived = sent.scale(1_000_000 - lost_ppm, 1_000_000);
        Some(Self { lost_ppm, wasted_ppm, arrived })
    }
}

impl Known {
    /// Extra capacity for what will be lost or missed.
    pub fn margin_ppm(&self) -> u32 {
        if self.circuits == 0 {
            return FIRST_MARGIN_PPM;
        }
        (self.wasted_ppm + 2 * self.deviation_ppm).clamp(LEAST_MARGIN_PPM, MOST_MARGIN_PPM)
    }

    fn learn(&mut self, new: &Experience) {
        let (wasted, deviation) = match self.circuits {
            0 => (new.wasted_ppm, new.wasted_ppm / 2),
            _ => {
                let off = self.wasted_ppm.abs_diff(new.wasted_ppm);
                let smooth = |old: u32, new: u32| old - old / 4 + new / 4;
                (smooth(self.wasted_ppm, new.wasted_ppm), smooth(self.deviation_ppm, off))
            }
        };
        // The best rate loses a little (VBLS paper, section 4.1); one that loses much is too high.
        // One that does not is tried a little higher, until it binds no more.
        let tried = self.max_rate_bps.map(Rate::from_bps);
        let next = match new.lost_ppm {
            0..TOO_MUCH_PPM => tried.filter(|rate| *rate < new.arrived.scale(2, 1)),
            _ => Some(new.arrived),
        };
        let next = next.map(|rate| rate.scale(11, 10).as_bps());
        self.max_rate_bps = next.filter(|rate| *rate > 0);
        self.circuits = self.circuits.saturating_add(1);
        (self.wasted_ppm, self.deviation_ppm) = (wasted, deviation);
    }
}

impl History {
    /// What is in the file; nothing where there is none, or none that can be read.
    pub fn read() -> Self {
        let text = file().and_then(|file| std::fs::read_to_string(file).ok());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    pub fn of(&self, host: &str) -> Known {
        self.0.get(host).copied().unwrap_or_default()
    }

    pub fn learn(&mut self, host: &str, new: &Experience) {
        self.0.entry(host.to_owned()).or_default().learn(new);
        while self.0.len() > HOSTS_MAX {
            self.0.pop_first();
        }
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// In words.
    pub fn write(&self) -> Result<(), String> {
        let file = file().ok_or("there is no home directory")?;
        let said = |error: std::io::Error| format!("{}: {error}", file.display());
        let folder = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(said)?;
        let text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let mut new = tempfile::NamedTempFile::new_in(folder).map_err(said)?;
        new.write_all(&text).map_err(said)?;
        new.persist(&file).map(drop).map_err(|error| said(error.error))
    }
}

fn file() -> Option<PathBuf> {
    let state = token::user_folder("XDG_STATE_HOME", ".local/state");
    Some(state?.join("longhaul/circuits.json"))
}

/// Before anything is known: more than healthy circuits waste.
const FIRST_MARGIN_PPM: u32 = 20_000;
/// What a sender leaves unused that is never late (`Trc`).
const LEAST_MARGIN_PPM: u32 = 5_000;
/// More is left idle by a source that is slower than the circuit: more time would not help.
const MUCH_IDLE_PPM: u32 = 100_000;
const MOST_MARGIN_PPM: u32 = 500_000;
/// More is lost by a rate that the hosts cannot take, not by chance.
const TOO_MUCH_PPM: u32 = 50_000;
/// Keeps the file small.
const HOSTS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use longhaul_units::Duration;

    use super::*;

    fn lost(lost_ppm: u32) -> Experience {
        Experience { lost_ppm, wasted_ppm: lost_ppm, arrived: Rate::from_mbps(440) }
    }

    #[test]
    fn the_margin_follows_what_was_lost() {
        let mut known = Known::default();
        assert_eq!(known.margin_ppm(), FIRST_MARGIN_PPM);
        known.learn(&lost(0));
        assert_eq!(known.margin_ppm(), LEAST_MARGIN_PPM);
        known.learn(&lost(40_000));
        assert_eq!(known.margin_ppm(), 10_000 + 2 * 10_000);
        for _ in 0..40 {
            known.learn(&lost(8_000));
        }
        assert!((8_000..10_000).contains(&known.margin_ppm()), "{known:?}");
    }

    #[test]
    fn what_a_late_sender_missed_counts_and_what_a_slow_source_did_not_have_does_not() {
        let circuit = |sent_bytes| CircuitReport {
            booking: 1,
            booked_bytes: 1_200_000,
            allowed_bytes: 1_000_000,
            sent_bytes,
            packets_sent: 1_000,
            packets_lost: 100,
            ip_bytes: 0,
            opened: Duration::from_secs(1),
            left: Duration::from_secs(2),
            released: None,
            planned: Duration::from_secs(2),
        };
        let wasted =
            |sent, bytes_wait| Experience::of(&circuit(sent), bytes_wait).unwrap().wasted_ppm;
        assert_eq!(wasted(1_000_000, true), 100_000);
        assert_eq!(wasted(950_000, true), 145_000);
        assert_eq!(wasted(950_000, false), 100_000);
        assert_eq!(wasted(500_000, true), 100_000);
        let arrived = Experience::of(&circuit(950_000), true).unwrap().arrived;
        assert_eq!(arrived, Rate::from_bps(6_840_000));
        assert_eq!(Experience::of(&circuit(600), true), None);
    }

    #[test]
    fn a_rate_that_lost_much_is_not_asked_for_again() {
        let mut known = Known::default();
        known.learn(&lost(200_000));
        assert_eq!(known.max_rate_bps, Some(484_000_000));
        // What loses little is tried a little higher, and forgotten when it is not used up.
        known.learn(&lost(10_000));
        assert_eq!(known.max_rate_bps, Some(532_400_000));
        known.learn(&Experience { arrived: Rate::from_mbps(200), ..lost(0) });
        assert_eq!(known.max_rate_bps, None);
    }
}
