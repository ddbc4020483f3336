//! The second carrier: streams and objects over TCP connections (docs/protocol.md section 8).
//!
//! [`join()`] opens a client's connections, [`Joins`] collects them at the server, [`TcpLanes`] runs
//! them. Each has one thread, which sends and receives without blocking: data goes one way at a
//! time, so a second thread would have nothing to do. It takes groups from its mailbox and gives
//! received ones to the upper layer, as a UDP lane does.

mod black_hole;
mod join;
mod link;
mod seal;
mod worker;

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_connection::{CarrierSeen, Times};
use longhaul_control::tunnel::Tunnel;
use longhaul_control::{Control, Via};
use longhaul_engine::Closed;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::tcp::TcpInfo;
use longhaul_sys::threads;
use longhaul_units::Rate;
use longhaul_wire::{Bottleneck, CloseCode, Losses, ReceiverBounds, SourceReport};

use crate::carrier::{Carrier, Totals};
use crate::thread_group::ThreadGroup;
use crate::upper_layer::{Command, Mailbox, UpperLayer, close_all, join_all};
use black_hole::{BlackHole, Sending, Step};

pub use join::{
    DataConnection, Expected, JoinError, Joins, Opened, UnknownJoin, join, join_opened, open_all,
};

/// Options of the TCP carrier.
#[derive(Clone, Debug)]
pub struct TcpCarrierOptions {
    /// The kernel's congestion control by name; its default otherwise.
    pub congestion_control: Option<String>,
    /// Most that all connections together may send, at the IP layer.
    pub rate: Option<Rate>,
    /// Time for all connections to be made.
    pub join_timeout: Duration,
    /// Gateways on the path.
    pub via: Option<Via>,
    /// The connections go in here.
    pub tunnel: Option<Arc<Tunnel>>,
    /// Most bytes of an IP packet, in both directions, where the path takes no larger ones.
    pub packet_max: Option<u64>,
    /// Data that stays unacknowledged for so long ends the connection.
    pub idle_timeout: Duration,
}

/// The running TCP connections of a connection.
#[derive(Debug)]
pub struct TcpLanes {
    /// They go in a tunnel: what the kernel counts is about the way there.
    in_tunnel: bool,
    mailboxes: Vec<Arc<Mailbox>>,
    views: Vec<Arc<Mutex<TcpView>>>,
    threads: Vec<JoinHandle<()>>,
    thread_group: Arc<ThreadGroup>,
    black_hole: Mutex<BlackHole>,
}

/// The state of a TCP connection, or of several together.
#[derive(Clone, Debug, Default)]
pub struct TcpView {
    /// The kernel's counters. Of several connections, as far as the carrier uses them: sums, the least RTT of
    /// late, the mean of the smoothed ones.
    pub info: TcpInfo,
    /// Bytes of the IP packet of a full segment. Of several connections the most.
    pub packet: u32,
    /// The congestion control that drives it.
    pub congestion_control: String,
    /// Time that the rate asked for held it back.
    pub paced: Duration,
    /// Object bytes that are at the peer's kernel, as far as this one knows, and those that were
    /// received in whole records and placed.
    pub moved: u64,
    /// The bounds on receiving that the peer announces.
    pub peer: ReceiverBounds,
}

impl TcpView {
    /// Time by what held the connections back, as kernel and pacing count it.
    pub fn times(&self) -> Times {
        let info = &self.info;
        let limits = info.limited_by_receiver + info.limited_by_send_buffer + self.paced;
        let mut times = Times::default();
        times.add(Bottleneck::UserLimit, self.paced);
        times.add(Bottleneck::ReceiverBuffer, info.limited_by_receiver);
        times.add(Bottleneck::SenderBuffer, info.limited_by_send_buffer);
        times.add(Bottleneck::Network, info.busy.saturating_sub(limits));
        times
    }
}

impl TcpLanes {
    /// Starts a thread for each of `connections`, which takes from the mailbox of its place.
    ///
    /// # Errors
    /// A socket does not take an option, or this host has no thread left.
    pub fn start(
        connections: Vec<DataConnection>,
        options: &TcpCarrierOptions,
        upper: &Arc<dyn UpperLayer>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> io::Result<Self> {
        let rate = options.rate.map(|rate| part(rate, connections.len()));
        let (views, threads) = (Vec::new(), Vec::new());
        let (thread_group, black_hole) = (Arc::default(), Mutex::default());
        let in_tunnel = false;
        let mut lanes = Self { in_tunnel, mailboxes, views, threads, thread_group, black_hole };
        for (connection, mailbox) in connections.into_iter().zip(&lanes.mailboxes) {
            let view = Arc::new(Mutex::new(TcpView::default()));
            let name = format!("tcp{}", connection.lane.0);
            let worker = worker::Worker::new(
                connection,
                rate,
                options.idle_timeout,
                upper.clone(),
                mailbox.clone(),
                view.clone(),
            )?;
            let thread_group = lanes.thread_group.clone();
            let thread = threads::spawn(name, move || {
                let _joined = thread_group.join();
                worker.run();
            })?;
            lanes.views.push(view);
            lanes.threads.push(thread);
        }
        Ok(lanes)
    }

    /// The same, of connections in a tunnel.
    pub const fn in_tunnel(mut self) -> Self {
        self.in_tunnel = true;
        self
    }

    /// All connections together.
    pub fn view(&self) -> TcpView {
        let mut all = TcpView::default();
        for view in &self.views {
            let view = lock(view).clone();
            let (sum, one) = (&mut all.info, &view.info);
            sum.rtt += one.rtt / self.views.len() as u32;
            if one.rtt_min > Duration::ZERO
                && (sum.rtt_min == Duration::ZERO || one.rtt_min < sum.rtt_min)
            {
                sum.rtt_min = one.rtt_min;
            }
            sum.segment = sum.segment.max(one.segment);
            sum.timeouts = sum.timeouts.max(one.timeouts);
            sum.segments_resent += one.segments_resent;
            sum.segments_sent += one.segments_sent;
            sum.bytes_acknowledged += one.bytes_acknowledged;
            sum.bytes_received += one.bytes_received;
            sum.busy += one.busy;
            sum.limited_by_receiver += one.limited_by_receiver;
            sum.limited_by_send_buffer += one.limited_by_send_buffer;
            all.packet = all.packet.max(view.packet);
            all.paced += view.paced;
            all.moved += view.moved;
            if view.peer != ReceiverBounds::NONE {
                all.peer = view.peer;
            }
            all.congestion_control = view.congestion_control;
        }
        all
    }
}

/// Rate of each of so many connections.
fn part(rate: Rate, connections: usize) -> Rate {
    Rate::from_bps(rate.as_bps() / connections.max(1) as u64)
}

impl Carrier for TcpLanes {
    fn name(&self) -> &'static str {
        if self.in_tunnel { "ssh" } else { "tcp" }
    }

    fn limit(&self, rate: Option<Rate>) {
        let part = rate.map(|rate| part(rate, self.mailboxes.len()));
        self.mailboxes.iter().for_each(|mailbox| mailbox.post(Command::Limit(part)));
    }

    fn close(&self, code: CloseCode, reason: &str) {
        close_all(&self.mailboxes, code, reason);
    }

    fn join(&mut self) {
        join_all(&mut self.threads);
    }

    fn totals(&self) -> Totals {
        let info = self.view().info;
        let received = info.bytes_received + info.bytes_acknowledged;
        if self.in_tunnel {
            return Totals { sending: SourceReport::default(), received };
        }
        let resent = u64::from(info.segments_resent);
        let sending = SourceReport {
            packets_sent: u64::from(info.segments_sent),
            packets_resent: resent,
            // The kernel does not count why it resent.
            lost: Losses { unknown: resent, ..Losses::default() },
            rtt: info.rtt,
            rtt_min: info.rtt_min,
            ..SourceReport::default()
        };
        Totals { sending, received }
    }

    fn seen(&self) -> CarrierSeen {
        let view = self.view();
        let (round_trip, times) = match self.in_tunnel {
            false => (view.info.rtt_min, view.times()),
            true => {
                let mut times = Times::default();
                times.add(Bottleneck::UserLimit, view.paced);
                times.add(Bottleneck::Network, view.info.busy.saturating_sub(view.paced));
                (Duration::ZERO, times)
            }
        };
        CarrierSeen {
            delivered: view.info.bytes_acknowledged,
            received: view.info.bytes_received,
            moved: view.moved,
            round_trip,
            times,
            spent: self.thread_group.spent(),
            peer: view.peer,
        }
    }

    fn have_moved(&self) -> bool {
        self.view().moved > 0
    }

    fn may_send_smaller(&self) -> bool {
        true
    }

    fn swallowed(&self, control: &Control) -> Option<Closed> {
        let TcpView { info, packet, .. } = self.view();
        let (acknowledged, timeouts, segment) =
            (info.bytes_acknowledged, info.timeouts, info.segment);
        let sending = Sending { acknowledged, timeouts, segment };
        match lock(&self.black_hole).look(clock::now(), sending, control.answered()) {
            Step::Wait => return None,
            Step::Ask => {
                control.ask();
                return None;
            }
            Step::Found => {}
        }
        let reason = format!(
            "packets of {packet} bytes do not come through by TCP while small ones do: a router drops them \
             and says nothing (with net.ipv4.tcp_mtu_probing=1 at both hosts TCP finds what passes, as UDP \
             does by itself: --carrier auto)"
        );
        Some(Closed { code: CloseCode::PATH_MTU, reason, by_peer: false })
    }
}

impl Drop for TcpLanes {
    fn drop(&mut self) {
        self.close(CloseCode::INTERNAL, "the program dropped the connection");
        self.join();
    }
}

#[cfg(test)]
mod tests;
