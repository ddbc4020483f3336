//! Verdict: compares what happened with what should have happened.

use longhaul_connection::Transfer;
use longhaul_engine::LaneStats;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_pathsim::Probability;
use longhaul_units::Bytes;
use longhaul_wire::{CloseCode, Protect};

use super::race::NEITHER;
use super::{Broken, LaneCounts, REDIAL, Report, World};
use crate::connection::{Closed, Connection};
use crate::driver::Driver;
use crate::scenario::{Accident, Choice, End, TcpOpens};

impl World {
    /// True if the client will not run again and the server has nothing to do.
    pub(super) fn is_over(&self) -> bool {
        let ended = self.report.runs.last() == Some(&CloseCode::DONE) && self.redial_at.is_none()
            || self.report.gave_up.is_some();
        ended
            && self.hosts.iter().all(|host| {
                host.connection.is_none()
                    && host.closing.is_empty()
                    && host.handshake.is_none()
                    && host.joins_until.is_none()
            })
    }

    /// Looks at an end of a connection that has closed.
    pub(super) fn examine(&mut self, end: End, connection: &Connection, why: &Closed) {
        self.checks.require(why.code != CloseCode::PROTOCOL_VIOLATION, || {
            format!("{end:?} has closed: {}", why.reason)
        });
        let done = connection.is_done();
        if end == End::Client {
            self.report.moves += connection.moves();
        }
        self.checks.require(why.code != CloseCode::DONE || done, || {
            format!("{end:?} has closed as done and is not")
        });
        let done_well = why.code == CloseCode::DONE;
        match (&connection.driver, connection.half.transfer()) {
            (Driver::Source(source), Some(Transfer::OutgoingCopy(copy))) => {
                let kept = Bytes::new(source.peak as u64 * GROUP_SIZE);
                self.report.memory[0] = self.report.memory[0].max(kept);
                self.report.groups_read = source.reads_done.len();
                self.report.resumed_bytes = copy.stats().resumed_bytes;
                if done_well {
                    self.report.failed = u64::from(copy.stats().failed);
                    self.checks.require_names(copy.failures(), self.files.broken());
                }
                self.report.lanes = connection.stats().into_iter().map(counts).collect();
            }
            (Driver::Sink(sink), Some(Transfer::IncomingCopy(copy))) => {
                self.report.memory[1] = self.report.memory[1].max(Bytes::new(sink.peak));
                self.report.repairs += copy.stats().repairs;
                if done_well {
                    self.report.failed = u64::from(copy.stats().failed);
                }
                if done_well {
                    self.checks.require_names(copy.failures(), self.files.broken());
                    let stats = copy.stats();
                    self.checks.require(stats.settled() == stats.entries, || {
                        format!("{} of {} entries are settled", stats.settled(), stats.entries)
                    });
                    self.checks.require(sink.staged_bytes() == 0, || {
                        format!("{} bytes are staged at the end", sink.staged_bytes())
                    });
                    let given = copy.credit() - copy.capacity();
                    self.checks.require(given == copy.begun(), || {
                        format!("{} bytes came, {given} gave their credit back", copy.begun())
                    });
                }
            }
            (Driver::Feed(feed), _) => {
                let kept = Bytes::new(feed.peak as u64 * GROUP_SIZE);
                self.report.memory[0] = self.report.memory[0].max(kept);
                self.report.lanes = connection.stats().into_iter().map(counts).collect();
            }
            (Driver::Drain(drain), _) => {
                self.report.memory[1] = self.report.memory[1].max(Bytes::new(drain.peak));
                self.report.repairs += drain.damaged;
            }
            _ => {}
        }
    }

    /// A run of the client has ended.
    pub(super) fn ended(&mut self, code: CloseCode, reason: &str) {
        self.report.runs.push(code);
        self.done_since = None;
        let explained = self.explains(code);
        self.checks.require(explained, || format!("the client ended with {code}: {reason}"));
        let runs = self.report.runs.len();
        // A burst lasts for so many packets, and an end that waits sends one in two seconds: each run
        // may end in one.
        let timeouts = self.report.runs.iter().filter(|code| **code == CloseCode::TIMEOUT).count();
        let bursts = if self.bursts() { timeouts.min(BURSTS_MAX) } else { 0 };
        let swallowed = usize::from(self.swallows_late());
        let narrow = usize::from(self.scenario.is_narrow);
        let dry = usize::from(self.dry_run.is_over());
        let most = 2 * self.scenario.faults.len() + 2 + bursts + swallowed + narrow + dry;
        self.checks.require(runs <= most, || format!("{runs} runs"));
        self.check_untouched();
        match code {
            CloseCode::DONE if self.dry_run.begins_copy((runs, self.disk.runs)) => {
                self.scenario.dry_run = false;
                self.redial_at = Some(self.now + REDIAL);
            }
            CloseCode::DONE => {}
            // A piece that is damaged again and again ends its pipe.
            CloseCode::STORAGE if self.may_be_damaged() => {
                self.report.gave_up = Some(reason.into());
            }
            // It begins again each time: where every run ends in a burst it never gets through.
            CloseCode::TIMEOUT if self.scenario.pipe && bursts == BURSTS_MAX => {
                self.report.gave_up = Some(reason.into());
            }
            CloseCode::CANCELLED if reason == NEITHER => {
                self.report.gave_up = Some(reason.into());
            }
            CloseCode::PATH_MTU if self.scenario.tcp == TcpOpens::Refused => {
                self.report.gave_up = Some(reason.into());
            }
            // As the user is advised, who asked for UDP.
            CloseCode::PATH_MTU => {
                self.data.kind = longhaul_wire::Carrier::Tcp;
                self.scenario.carrier = Choice::Tcp;
                self.redial_at = Some(self.now + REDIAL);
            }
            CloseCode::REFUSED | CloseCode::UNAUTHORIZED => {
                self.report.gave_up = Some(reason.into());
            }
            _ => self.redial_at = Some(self.now + REDIAL),
        }
    }

    /// True if the scenario makes a client end so.
    fn explains(&self, code: CloseCode) -> bool {
        let any = |test: fn(&Accident) -> bool| {
            self.scenario.faults.iter().any(|fault| test(&fault.what))
        };
        match code {
            CloseCode::DONE => true,
            CloseCode::REFUSED => !self.scenario.granted,
            CloseCode::PATH_MTU => self.scenario.is_narrow,
            CloseCode::UNAUTHORIZED => !self.scenario.authorized,
            CloseCode::CANCELLED => {
                self.scenario.carrier == Choice::Auto && self.scenario.tcp_may_fail()
                    || any(|what| matches!(what, Accident::Cancel))
            }
            CloseCode::STORAGE => {
                self.may_be_damaged() || any(|what| matches!(what, Accident::SyncFails))
            }
            CloseCode::TIMEOUT => {
                any(|what| matches!(what, Accident::PowerCut(_)))
                    || self.bursts()
                    || self.swallows_late()
                    || self.data.kind == longhaul_wire::Carrier::Tcp
                        && any(|what| matches!(what, Accident::Kill(_)))
            }
            CloseCode::INTERNAL => any(|what| {
                matches!(what, Accident::Kill(_) | Accident::PowerCut(_) | Accident::Disconnect)
            }),
            _ => false,
        }
    }

    /// True if pieces of a pipe may come with other bytes than were sent.
    fn may_be_damaged(&self) -> bool {
        self.scenario.pipe && self.damages()
    }

    /// True if a path changes bytes where nobody looks at each packet.
    pub(super) fn damages(&self) -> bool {
        self.scenario.protect == Protect::Clear
            && self.any_way(|way| way.corruption != Probability::ZERO)
    }

    /// True if losses come in bursts: a long one outlasts the few probes of an idle timeout.
    pub(super) fn bursts(&self) -> bool {
        self.any_way(|way| way.burst_loss.is_some())
    }

    /// True where a firewall swallows UDP for good, at first or in the middle.
    fn swallows_late(&self) -> bool {
        self.any_way(|line| !line.firewall.windows.is_empty())
    }

    /// True if an entry may fail.
    fn may_fail(&self) -> bool {
        let corrupting = self.scenario.protect == Protect::Clear;
        corrupting && self.report.repairs > 0
            || self.scenario.faults.iter().any(|fault| {
                matches!(fault.what, Accident::Vanish | Accident::Change | Accident::DiskFull(_))
            })
    }

    pub(super) fn finish(mut self) -> Result<Report, Broken> {
        let done = self.report.gave_up.is_none();
        let fault = self.files.fault_of_names(&self.disk.storage);
        let kept = !self.disk.lost_unsynced;
        if kept {
            self.checks.require(fault.is_none(), || fault.clone().unwrap_or_default());
        }
        let failed = self.report.failed;
        let broken = self.files.broken().count() as u64;
        let expected = failed == broken || failed > broken && self.may_fail();
        self.checks.require(expected || !done, || {
            format!("{failed} entries failed, and {broken} links lead nowhere")
        });
        if done && failed == broken && kept && !self.scenario.pipe && !self.scenario.listing {
            let temps = self.disk.storage.temp_count();
            let is_tidy = temps == 0 || self.disk.cut_when_tidy || failed > 0;
            self.checks.require(is_tidy, || format!("{temps} unpublished files are left"));
            let changes =
                |f: &crate::scenario::Fault| matches!(f.what, Accident::Vanish | Accident::Change);
            if !self.scenario.faults.iter().any(changes) {
                let followed =
                    self.files.fault_of_followed(&self.disk.storage, self.scenario.keeps.newer);
                let followed = followed.filter(|_| self.scenario.follows);
                self.checks.require(followed.is_none(), || followed.clone().unwrap_or_default());
                for number in 0..self.files.len() {
                    if self.files.broken_end(number).is_some() {
                        continue;
                    }
                    let newer = self.scenario.keeps.newer;
                    let fault = self
                        .files
                        .get(number)
                        .filter(|v| {
                            !(newer && self.files.is_newer_at(&self.disk.storage, &v.entry))
                        })
                        .and_then(|v| self.files.fault_of(&self.disk.storage, &v.entry));
                    self.checks.require(fault.is_none(), || fault.clone().unwrap_or_default());
                }
            }
        }
        self.report.took = self.now - self.start;
        self.report.trace_hash = self.trace.hash();
        self.report.events = self.trace.events();
        match self.checks.broken() {
            None => Ok(self.report),
            Some(what) => {
                Err(Broken { seed: self.scenario.seed, at: self.report.took, what: what.into() })
            }
        }
    }
}

/// Runs that a burst of losses ends at most.
const BURSTS_MAX: usize = 6;

fn counts(lane: LaneStats) -> LaneCounts {
    LaneCounts {
        packets_sent: lane.packets_sent,
        fresh_bytes: lane.fresh_bytes_sent,
        packets_resent: lane.packets_resent,
        spurious: lane.spurious,
        datagram: lane.datagram,
        rounds: lane.rounds,
    }
}
