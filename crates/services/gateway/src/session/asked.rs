//! Options of a hop (docs/relay.md section 2): what a client asks of the segment towards it.

use std::io;

use longhaul_units::{ParseQuantityError, Rate};

use super::words;
use crate::transport::{SegmentSettings, Transport};

/// Settings that a client asks for, as far as it may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    congestion_control: Option<String>,
    rate: Option<Rate>,
}

/// An option that the client insists on is not met. The client is to blame, unless the reason is the
/// operator's or the transport's.
#[derive(Debug, thiserror::Error)]
#[error("{option:?}: {reason}")]
pub(super) struct UnmetOption {
    option: String,
    reason: Unmet,
}

#[derive(Debug, thiserror::Error)]
enum Unmet {
    #[error("this gateway does not know it")]
    Unknown,
    /// The operator's choice.
    #[error("the operator of this gateway has chosen {0}")]
    Chosen(String),
    #[error("{}", words(.0))]
    Transport(io::Error),
    #[error("{0}")]
    NoRate(ParseQuantityError),
    #[error("less than {LEAST}")]
    Slow,
}

impl Asked {
    /// Reads `name=value` with spaces between, for a segment that has these settings by `transport`.
    ///
    /// # Errors
    /// An option with `!` before its name is unknown or cannot be had. Others are passed over then.
    pub fn read(
        options: &str,
        settings: &SegmentSettings,
        transport: &dyn Transport,
    ) -> Result<Self, UnmetOption> {
        let mut asked = Self::default();
        for option in options.split(' ').filter(|option| !option.is_empty()) {
            let written = option.strip_prefix('!').unwrap_or(option);
            let taken = match written.split_once('=') {
                Some(("congestion", name)) => asked.take_congestion(name, settings, transport),
                Some(("rate", rate)) => asked.take_rate(rate),
                _ => Err(Unmet::Unknown),
            };
            if let Err(reason) = taken
                && option.starts_with('!')
            {
                return Err(UnmetOption { option: written.to_owned(), reason });
            }
        }
        Ok(asked)
    }

    fn take_congestion(
        &mut self,
        name: &str,
        settings: &SegmentSettings,
        transport: &dyn Transport,
    ) -> Result<(), Unmet> {
        match &settings.congestion_control {
            Some(own) if own != name => {
                return Err(Unmet::Chosen(own.clone()));
            }
            _ => {}
        }
        let congestion_control = Some(name.to_owned());
        let wanted = SegmentSettings { congestion_control, ..SegmentSettings::default() };
        transport.judge(&wanted).map_err(Unmet::Transport)?;
        self.congestion_control = wanted.congestion_control;
        Ok(())
    }

    fn take_rate(&mut self, rate: &str) -> Result<(), Unmet> {
        let rate: Rate = rate.parse().map_err(Unmet::NoRate)?;
        if rate < LEAST {
            return Err(Unmet::Slow);
        }
        self.rate = Some(rate);
        Ok(())
    }

    /// Nothing is asked: any connection will do.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Most that the segment is to send.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Settings of a class with what is asked.
    pub fn of(&self, settings: SegmentSettings) -> SegmentSettings {
        let congestion_control = self.congestion_control.clone().or(settings.congestion_control);
        let rate = settings.rate.into_iter().chain(self.rate).min();
        SegmentSettings { congestion_control, rate, ..settings }
    }
}

/// A packet of 1500 bytes in 12 s: a session that is slower does not seem to live.
const LEAST: Rate = Rate::from_bps(1_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tcp::Tcp;

    fn settings(congestion_control: Option<&str>, mbps: Option<u64>) -> SegmentSettings {
        let congestion_control = congestion_control.map(str::to_owned);
        let rate = mbps.map(Rate::from_mbps);
        SegmentSettings { congestion_control, rate, ..SegmentSettings::default() }
    }

    #[test]
    fn the_operators_decisions_hold() {
        for (options, class, outcome) in [
            ("", settings(None, None), settings(None, None)),
            ("congestion=cubic rate=2Mbps", settings(None, None), settings(Some("cubic"), Some(2))),
            ("congestion=cubic", settings(Some("reno"), None), settings(Some("reno"), None)),
            ("rate=2Gbps", settings(None, Some(5)), settings(None, Some(5))),
            ("rate=2Mbps colour=blue rate", settings(None, Some(5)), settings(None, Some(2))),
            ("congestion=none rate=fast rate=1bps", settings(None, None), settings(None, None)),
        ] {
            let asked = Asked::read(options, &class, &Tcp).unwrap();
            assert_eq!(asked.of(class), outcome, "{options}");
            assert_eq!(asked.is_nothing(), asked == Asked::default());
        }
    }

    #[test]
    fn options_that_matter_are_met_or_named() {
        for (options, words) in [
            ("!colour=blue", "\"colour=blue\": this gateway does not know it"),
            (
                "rate=1Mbps !congestion=reno",
                "\"congestion=reno\": the operator of this gateway has",
            ),
            ("!congestion=none", "\"congestion=none\": "),
            ("!rate=fast", "\"rate=fast\": "),
        ] {
            let error = Asked::read(options, &settings(Some("cubic"), None), &Tcp).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let read = Asked::read("!congestion=cubic", &settings(Some("cubic"), None), &Tcp);
        assert!(!read.unwrap().is_nothing());
    }
}
