//! The next packets to send: control first, then streams, then objects.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use longhaul_units::{Bytes, Dscp, Duration, Ecn, Instant, PacketNumber};
use longhaul_wire::{
    AEAD_TAG_LEN, BASE_DATAGRAM, Feedback, Frame, HEADER_LEN, MAX_EPOCH_PACKETS, OBJECT_HEADER_LEN,
    Ranges, State as StateFrame, Writer,
};

use super::{CONTROL_MIN_WIRE, Lane, State};
use crate::control::SentFrame;
use crate::ledger::{Content, ENTRY_PACKETS, Entry};
use crate::mtu;
use crate::outbox::Order;
use crate::outbox::Run;
use crate::path::Path;
use crate::reception::Tally;

/// Room for a plan, reused from call to call.
#[derive(Debug, Default)]
pub struct Plan {
    /// Frames of a CONTROL packet, to be sealed.
    pub frames: Vec<u8>,
    /// Object bytes of a batch, in the order of packet numbers. Every packet of the batch
    /// carries [`What::Objects::payload`] bytes but the very last, which may carry fewer.
    pub runs: Vec<Run>,
}

/// A batch to be sent now: `packets` datagrams with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// Number of the first packet.
    pub first: PacketNumber,
    /// Their number.
    pub packets: u16,
    /// Send time for their headers.
    pub send_time: u32,
    /// The ECN codepoint for their IP headers.
    pub ecn: Ecn,
    /// The codepoint of differentiated services for the same.
    pub dscp: Dscp,
    /// Their contents.
    pub what: What,
}

impl Transmit {
    /// The byte of their IP headers that has both codepoints.
    pub fn traffic_class(&self) -> u8 {
        self.dscp.traffic_class(self.ecn)
    }
}

/// Contents of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// One CONTROL packet with [`Plan::frames`].
    Control,
    /// OBJECT packets with [`Plan::runs`].
    Objects {
        /// Object bytes in each packet but the last.
        payload: u16,
    },
}

/// Longest time between two CLOSEs. The control connection tells a peer that gets none of them.
const CLOSE_GAP: Duration = Duration::from_millis(10);
/// Datagrams of one `sendmsg` with segmentation offload: the most that one call may carry is
/// 65 507 bytes, and one ledger entry.
const BATCH_BYTES_MAX: u64 = 65_507;

impl Lane {
    /// Plans the next batch of at most `packets_max` packets (1 to 64), or says that nothing is to
    /// be sent now. `plan` is overwritten.
    #[must_use]
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        path: &mut Path,
        packets_max: u16,
        plan: &mut Plan,
    ) -> Option<Transmit> {
        plan.frames.clear();
        plan.runs.clear();
        // A rate that changes by the clock changes here, not a few batches later.
        path.handle_timeout(now);
        self.skip_to_next_epoch();
        match &self.state {
            State::Open => {}
            State::Closing { .. } => return self.plan_close(now, path, plan),
            State::Closed => return None,
        }
        // The driver would have reported a refusal by now.
        if core::mem::take(&mut self.tries) {
            path.on_offer_taken();
        }
        if path.refuses_until().is_some_and(|until| until > now) {
            return None;
        }
        let refuses = path.refuses_until().is_some();
        let packets_max = if refuses { 1 } else { u64::from(packets_max) };
        let planned = self.plan_unpaced(now, path, plan).or_else(|| {
            let to = self.addresses.current()?;
            self.plan_objects(now, path, to, packets_max, plan)
        });
        if refuses && planned.is_some() {
            path.claim_offer(now);
            self.tries = true;
        }
        planned
    }

    /// Packets that go as soon as they are there.
    fn plan_unpaced(&mut self, now: Instant, path: &mut Path, plan: &mut Plan) -> Option<Transmit> {
        if let Some(transmit) = self.plan_address(now, path, plan) {
            return Some(transmit);
        }
        let to = self.addresses.current()?;
        // What a stack refuses may be the size: a probe is not to keep all else from being offered.
        if path.refuses_until().is_some()
            && let Some(transmit) = self.plan_control(now, path, to, plan)
        {
            return Some(transmit);
        }
        if let Some(size) = self.probe_size(now, path) {
            return Some(self.plan_probe(now, path, to, size, plan));
        }
        self.plan_control(now, path, to, plan)
    }

    /// Bytes of frames that fit a CONTROL packet now.
    fn frames_room(&self) -> usize {
        usize::from(self.mtu.control()) - HEADER_LEN - AEAD_TAG_LEN
    }

    /// True if the address may be sent a CONTROL packet of any size below the path MTU.
    pub(super) fn control_allowed(&self) -> bool {
        self.addresses.allowance() >= self.control_wire(self.frames_room())
    }

    /// True if the address may be sent a size probe.
    pub(super) fn probe_allowed(&self) -> bool {
        self.addresses.allowance() > u64::from(self.config.datagram_max) + self.ip_overhead()
    }

    /// True where the address may be sent a packet of the base size.
    pub(super) fn base_allowed(&self) -> bool {
        self.addresses.allowance() >= BASE_DATAGRAM as u64 + self.ip_overhead()
    }

    fn control_wire(&self, frames: usize) -> u64 {
        self.ip_overhead() + (HEADER_LEN + AEAD_TAG_LEN + frames) as u64
    }

    /// A CONTROL packet with the frames in `plan` goes out.
    fn control(
        &mut self,
        now: Instant,
        path: &mut Path,
        to: SocketAddr,
        content: Option<Content>,
        plan: &Plan,
    ) -> Transmit {
        let wire = self.control_wire(plan.frames.len());
        let number = self.next_number;
        self.next_number += 1;
        self.app_limited.on_control(self.next_number);
        self.addresses.on_sent(to, wire);
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += wire;
        let ecn = self.control_codepoint(path, content.as_ref());
        self.paths.on_sent(1, wire, ecn);
        if let Some(content) = content {
            if !matches!(content, Content::Probe(_)) {
                path.on_control_sent(now, wire);
                self.liveness.on_asked(now);
            }
            self.ledger.push(Entry {
                first: number,
                count: 1,
                acked: 0,
                lost: 0,
                sent_at: now,
                wire_bytes: wire as u32,
                last_wire_bytes: wire as u32,
                late: false,
                ect: ecn.is_markable(),
                why: None,
                content,
            });
        }
        Transmit {
            to,
            first: PacketNumber::new(number),
            packets: 1,
            send_time: now.as_wire_micros(),
            ecn,
            dscp: path.dscp(),
            what: What::Control,
        }
    }

    /// The peer's presence, and the size that passes, are not to depend on the codepoint. What nobody
    /// acknowledges has none either, as in TCP (RFC 3168 6.1.4): whether it arrives is not known.
    fn control_codepoint(&mut self, path: &Path, content: Option<&Content>) -> Ecn {
        match content {
            Some(Content::Control(frames)) if !frames.contains(&SentFrame::Challenge) => {
                self.codepoint(path)
            }
            _ => Ecn::NotEct,
        }
    }

    fn codepoint(&mut self, path: &Path) -> Ecn {
        match path.codepoint() {
            Ecn::NotEct => Ecn::NotEct,
            asked => self.paths.codepoint(asked),
        }
    }

    fn plan_close(&mut self, now: Instant, path: &mut Path, plan: &mut Plan) -> Option<Transmit> {
        let gap = path.rtt().smoothed().min(CLOSE_GAP);
        let State::Closing { code, reason, left, next } = &mut self.state else { return None };
        if *next > now {
            return None;
        }
        *left -= 1;
        *next = now + gap;
        let (code, reason, last) = (*code, core::mem::take(reason), *left == 0);
        let to = self.addresses.current();
        // The control connection tells a peer that gets none.
        let refuses = path.refuses_until().is_some_and(|until| until > now);
        let allowed =
            !refuses && self.addresses.allowance() >= CONTROL_MIN_WIRE + reason.len() as u64;
        if to.is_some() && allowed {
            push(&mut plan.frames, &Frame::Close { code, reason: &reason });
        }
        self.restore_reason(reason);
        if last {
            self.state = State::Closed;
        }
        let to = to.filter(|_| allowed)?;
        if path.refuses_until().is_some() {
            path.claim_offer(now);
        }
        Some(self.control(now, path, to, None, plan))
    }

    fn restore_reason(&mut self, text: String) {
        if let State::Closing { reason, .. } = &mut self.state {
            *reason = text;
        }
    }

    /// CHALLENGE and RESPONSE, each to the address that it is for.
    fn plan_address(&mut self, now: Instant, path: &mut Path, plan: &mut Plan) -> Option<Transmit> {
        if let Some((to, data)) = self.responses.pop_front() {
            push(&mut plan.frames, &Frame::Response(data));
            return Some(self.control(now, path, to, None, plan));
        }
        let (to, data) = self.addresses.poll_challenge(now, CONTROL_MIN_WIRE)?;
        push(&mut plan.frames, &Frame::Challenge(data));
        let content = Content::Control(alloc::vec![SentFrame::Challenge]);
        Some(self.control(now, path, to, Some(content), plan))
    }

    fn probe_size(&mut self, now: Instant, path: &Path) -> Option<u16> {
        let (apart, number) = (self.base_apart(path), self.next_number);
        if self.base_allowed()
            && let Some(size) = self.mtu.poll_base(now, apart, number)
        {
            return Some(size);
        }
        if !self.probe_allowed() {
            return None;
        }
        self.mtu.poll(now, self.mtu_retry(path))
    }

    fn plan_probe(
        &mut self,
        now: Instant,
        path: &mut Path,
        to: SocketAddr,
        size: u16,
        plan: &mut Plan,
    ) -> Transmit {
        push(&mut plan.frames, &Frame::Ping);
        plan.frames.resize(usize::from(size) - HEADER_LEN - AEAD_TAG_LEN, 0);
        self.control(now, path, to, Some(Content::Probe(size)), plan)
    }

    /// Reports, limits, stream bytes and pings, as many as fit one packet.
    fn plan_control(
        &mut self,
        now: Instant,
        path: &mut Path,
        to: SocketAddr,
        plan: &mut Plan,
    ) -> Option<Transmit> {
        if !self.control_allowed() {
            return None;
        }
        let mut sent: Vec<SentFrame> = Vec::new();
        let report = self.reception.report_due().is_some_and(|due| due <= now);
        // A path may not take long reports any more, and nobody acknowledges any.
        let is_short = report && self.stats.feedback_sent % SHORT_EVERY == SHORT_EVERY - 1;
        let room = match self.frames_room() {
            room if is_short => room.min(usize::from(mtu::LEAST) - HEADER_LEN - AEAD_TAG_LEN),
            room => room,
        };
        if report || self.state_schedule.due().is_some_and(|due| due <= now) {
            let round_trip = path.rtt().has_sample().then(|| path.rtt().smoothed());
            push(&mut plan.frames, &Frame::State(StateFrame { floor: self.floor(), round_trip }));
            self.state_schedule.on_state_sent();
        }
        if report {
            self.push_feedback(now, room, plan);
        }
        if let Some((order, duration)) = self.announced.take_order(now, report) {
            push(&mut plan.frames, &Frame::Suspend { order, duration });
        }
        if let Some(frame) = self.repair.poll_frame(self.next_number) {
            push(&mut plan.frames, &frame);
            sent.push(SentFrame::Repair);
        }
        self.push_asks(room, &mut plan.frames, &mut sent);
        self.push_stream_control(room, &mut plan.frames, &mut sent);
        if self.streams_pending() && self.streams_due(now, path).is_some_and(|due| due <= now) {
            self.push_stream_data(room, &mut plan.frames, &mut sent);
        }
        if self.liveness.take_ping() && sent.is_empty() {
            push(&mut plan.frames, &Frame::Ping);
            sent.push(SentFrame::Ping);
        }
        if plan.frames.is_empty() {
            return None;
        }
        let content = (!sent.is_empty()).then_some(Content::Control(sent));
        Some(self.control(now, path, to, content, plan))
    }

    /// All that has arrived, and before that the steps in which it came, as far as there is room.
    fn push_feedback(&mut self, now: Instant, room: usize, plan: &mut Plan) {
        let Some(all) = self.reception.arrived() else { return };
        let mut buffer = [0; RANGES_MAX];
        while plan.frames.len() + 2 * (FEEDBACK_FIXED_MAX + RANGES_FEW) <= room
            && let Some(step) = self.reception.take_step()
        {
            if let Some(ranges) = self.reception.report_step(&step, &mut buffer[..RANGES_FEW]) {
                push(&mut plan.frames, &Frame::Feedback(self.feedback(now, &step, ranges)));
            }
        }
        let budget = (room - plan.frames.len() - FEEDBACK_FIXED_MAX).min(RANGES_MAX);
        let ranges = self.reception.report(&mut buffer[..budget]);
        push(&mut plan.frames, &Frame::Feedback(self.feedback(now, &all, ranges)));
        self.stats.feedback_sent += 1;
        self.reception.on_report(now, plan.frames.len());
    }

    fn feedback<'b>(&self, now: Instant, tally: &Tally, ranges: Ranges<'b>) -> Feedback<'b> {
        let Tally { largest, packets, bytes, ecn } = *tally;
        Feedback {
            largest: PacketNumber::new(largest.number),
            largest_sent: largest.send_time,
            largest_received: largest.at.as_wire_micros(),
            delay: now - largest.at,
            packets,
            bytes: Bytes::new(bytes),
            ecn,
            socket_drops: self.reception.socket_drops,
            host_drops: self.reception.host_drops,
            credit: Bytes::new(self.announced.credit()),
            ranges,
            receive_capacity: self.announced.capacity(),
            socket_buffer: self.config.socket_buffer,
            bounds: self.announced.bounds(),
            limit: self.announced.limit(now),
            forgotten: self.reception.forgotten().map(PacketNumber::new),
        }
    }

    fn push_stream_control(
        &mut self,
        room: usize,
        frames: &mut Vec<u8>,
        sent: &mut Vec<SentFrame>,
    ) {
        for (&id, stream) in &mut self.streams {
            if frames.len() + STREAM_CONTROL_MAX > room {
                return;
            }
            if core::mem::take(&mut stream.limit_due) {
                let limit = stream.receive.limit();
                push(frames, &Frame::StreamLimit { stream: id, limit });
                sent.push(SentFrame::StreamLimit { stream: id });
            }
            if let Some(reset) = &mut stream.reset
                && core::mem::take(&mut reset.due)
            {
                push(frames, &Frame::StreamReset { stream: id, code: reset.code });
                sent.push(SentFrame::StreamReset { stream: id });
            }
        }
    }

    fn push_stream_data(&mut self, room: usize, frames: &mut Vec<u8>, sent: &mut Vec<SentFrame>) {
        for (&id, stream) in &mut self.streams {
            while frames.len() + STREAM_HEADER_MAX < room {
                let space = (room - frames.len() - STREAM_HEADER_MAX) as u64;
                let Some(piece) = stream.send.take(space) else { break };
                let (front, back) = stream.send.slices(&piece.range);
                let (offset, fin) = (piece.range.start, piece.fin);
                // A wrapped buffer makes two frames; the second carries the end.
                if !back.is_empty() {
                    let first = Frame::Stream { stream: id, offset, fin: false, data: front };
                    push(frames, &first);
                    let offset = offset + front.len() as u64;
                    push(frames, &Frame::Stream { stream: id, offset, fin, data: back });
                } else {
                    push(frames, &Frame::Stream { stream: id, offset, fin, data: front });
                }
                sent.push(SentFrame::Stream { stream: id, piece });
            }
        }
    }

    /// When pacing lets stream bytes go, `None` while a full window holds them. A window that is
    /// not full takes a whole packet, however small it is: a packet may be larger than the window.
    fn streams_due(&self, now: Instant, path: &Path) -> Option<Instant> {
        if path.window_room() == Some(0) && path.in_flight() > 0 {
            return None;
        }
        let bytes = self.control_wire(self.frames_room());
        let due = path.earliest(now, bytes).unwrap_or(now);
        // A probe is to be alone: smaller packets find room in a full queue where it finds none.
        Some(due.max(path.quiet_until(now).unwrap_or(due)))
    }

    fn plan_objects(
        &mut self,
        now: Instant,
        path: &mut Path,
        to: SocketAddr,
        packets_max: u64,
        plan: &mut Plan,
    ) -> Option<Transmit> {
        if !self.may_carry() {
            return None;
        }
        if !self.outbox.has_resends() && !self.has_fresh() {
            self.on_nothing_to_send();
            return None;
        }
        if path.suspended_until(now).or(path.quiet_until(now)).is_some() {
            self.held = true;
            return None;
        }
        self.app_limited.on_bytes();
        let payload = u64::from(self.payload());
        let overhead = self.ip_overhead() + (OBJECT_HEADER_LEN + self.config.object_tag) as u64;
        let packets = self.batch_now(now, path, packets_max)?;
        let mut taken = 0;
        while taken < packets {
            let Some(run) = self.take_run(payload, packets - taken) else { break };
            taken += u64::from(run.packets);
            plan.runs.push(run);
            if !run.extent.len.is_multiple_of(payload) {
                break;
            }
        }
        if taken == 0 {
            return None;
        }
        Some(self.objects(now, path, to, payload, overhead, plan))
    }

    /// True where objects may be sent: to a proven address, where it is known that they fit.
    fn may_carry(&self) -> bool {
        self.addresses.is_validated() && !self.mtu.waits() && !self.mtu.fits_not()
    }

    /// True if there are bytes that were never sent, and the policy of repair lets them go.
    fn has_fresh(&self) -> bool {
        let begins = !self.outbox.is_amid_extent();
        self.outbox.backlog_bytes() > 0 && (!begins || self.repair.may_begin())
    }

    fn take_run(&mut self, payload: u64, packets: u64) -> Option<Run> {
        let order = match self.has_fresh() {
            false => Order::Resends,
            true if self.repair.prefers_fresh() => Order::FreshFirst,
            true => Order::ResendsFirst,
        };
        let begins = !self.outbox.is_amid_extent();
        let run = self.outbox.take(payload, packets, order)?;
        if !run.resent {
            if begins {
                self.repair.on_begun(run.extent);
            }
            self.repair.on_fresh(run.packets.into());
        }
        Some(run)
    }

    /// Packets of the next batch, if pacing and window allow it now.
    fn batch_now(&self, now: Instant, path: &mut Path, packets_max: u64) -> Option<u64> {
        let Some(packets) = self.batch(path, packets_max) else {
            path.hold();
            return None;
        };
        let bytes = packets * self.full_wire();
        path.earliest(now, bytes).is_none_or(|at| at <= now).then_some(packets)
    }

    /// Packets of the next batch, which the window has room for: `None` while it is full.
    fn batch(&self, path: &Path, packets_max: u64) -> Option<u64> {
        let wire = self.full_wire();
        let most = BATCH_BYTES_MAX / u64::from(self.mtu.datagram());
        let packets = (path.quantum() / wire).clamp(1, packets_max.min(ENTRY_PACKETS).min(most));
        let Some(room) = path.window_room() else { return Some(packets) };
        // A full window opens a feedback at a time; sending each sliver at once would make batches
        // of a packet or two.
        let window = path.window().unwrap_or(u64::MAX);
        let worth = (packets * wire).min(window / 4).max(1);
        let is_full = room < worth && path.in_flight() > 0;
        (!is_full).then(|| packets.min((room / wire).max(1)))
    }

    /// IP-layer bytes of a packet of the full size.
    pub(super) fn full_wire(&self) -> u64 {
        u64::from(self.mtu.datagram()) + self.ip_overhead()
    }

    /// When [`Self::plan_control`] has something to say, reports apart.
    pub(super) fn messages_due(&self, now: Instant, path: &Path) -> Option<Instant> {
        let asks = self.liveness.wants_ping() || self.asks_due();
        if asks || !self.responses.is_empty() {
            return Some(now);
        }
        let streams = self.streams_pending().then(|| self.streams_due(now, path)).flatten();
        streams.into_iter().chain(self.announced.order_due()).min()
    }

    /// When the next batch of object bytes may go, `None` when there is none or the window is full.
    pub(super) fn objects_due(&self, now: Instant, path: &Path) -> Option<Instant> {
        if !self.may_carry() {
            return None;
        }
        if !self.outbox.has_resends() && !self.has_fresh() {
            return None;
        }
        if let Some(until) = path.suspended_until(now).max(path.quiet_until(now)) {
            return Some(until);
        }
        let wire = self.full_wire();
        let bytes = self.batch(path, ENTRY_PACKETS)? * wire;
        // Rather a few batches at once than a wake-up for each.
        let worth = path.quantum().min(self.outbox.backlog_bytes()).max(bytes);
        let room = path.window_room().unwrap_or(u64::MAX).max(wire);
        Some(path.earliest(now, worth.min(room)).unwrap_or(now))
    }

    fn objects(
        &mut self,
        now: Instant,
        path: &mut Path,
        to: SocketAddr,
        payload: u64,
        overhead: u64,
        plan: &Plan,
    ) -> Transmit {
        let first = self.next_number;
        // After a time without anything to send nothing could have left earlier.
        let late_by = match self.app_limited.resumes_at(first) {
            true => Duration::ZERO,
            false => path.sender_late_by(now),
        };
        // No rate is taken across a pause that the peer wanted.
        let late = core::mem::take(&mut self.held) || late_by > Duration::ZERO;
        let wire = payload + overhead;
        let ecn = self.codepoint(path);
        let (mut packets, mut total) = (0, 0);
        for run in &plan.runs {
            let last = run.extent.len - (u64::from(run.packets) - 1) * payload;
            self.ledger.push(Entry {
                first: self.next_number,
                count: run.packets as u8,
                acked: 0,
                lost: 0,
                sent_at: now,
                wire_bytes: wire as u32,
                last_wire_bytes: (last + overhead) as u32,
                late,
                ect: ecn.is_markable(),
                why: None,
                content: Content::Object {
                    object: run.extent.object,
                    offset: run.extent.offset,
                    payload: payload as u16,
                    end: run.extent.end(),
                },
            });
            self.next_number += u64::from(run.packets);
            packets += run.packets;
            total += run.extent.len + u64::from(run.packets) * overhead;
            if run.resent {
                self.stats.packets_resent += u64::from(run.packets);
            } else {
                self.stats.fresh_bytes_sent += run.extent.len;
            }
        }
        self.stats.packets_sent += u64::from(packets);
        self.stats.bytes_sent += total;
        self.paths.on_sent(packets.into(), total, ecn);
        self.liveness.on_asked(now);
        self.state_schedule.on_sent(now, packets.into(), path.rtt().smoothed());
        self.addresses.on_sent(to, total);
        path.on_sent(now, total, !self.has_fresh(), late_by);
        Transmit {
            to,
            first: PacketNumber::new(first),
            packets,
            send_time: now.as_wire_micros(),
            ecn,
            dscp: path.dscp(),
            what: What::Objects { payload: payload as u16 },
        }
    }

    /// All that may be sent is: rates measured from here on say what the application, or the way of
    /// repair, gave, and a round of repair may be over.
    fn on_nothing_to_send(&mut self) {
        self.app_limited.on_none(self.next_number);
        let Self { repair, ledger, .. } = self;
        repair.on_all_sent(self.next_number, &|| ledger.has_unsettled_objects());
    }

    /// Numbers of an epoch end before 2^30; a batch never straddles two (protocol.md 4.2).
    fn skip_to_next_epoch(&mut self) {
        let sequence = self.next_number & ((1 << PacketNumber::SEQUENCE_BITS) - 1);
        if sequence + ENTRY_PACKETS > MAX_EPOCH_PACKETS {
            let epoch = u64::from(PacketNumber::new(self.next_number).epoch()) + 1;
            self.next_number = epoch << PacketNumber::SEQUENCE_BITS;
        }
    }
}

pub(super) fn push(frames: &mut Vec<u8>, frame: &Frame<'_>) {
    // Appending to a vector always has room.
    let _ = frame.encode(&mut Writer::append(frames));
}

/// Most bytes of a FEEDBACK frame without its ranges, its type and length included.
const FEEDBACK_FIXED_MAX: usize = 162;
/// Most bytes of ranges in one report: some hundred gaps.
const RANGES_MAX: usize = 1024;
/// Of so many reports one is short. Odd, since the newest numbers and older ones come in turn.
const SHORT_EVERY: u64 = 3;
/// The same in the report of a step: at first there are few gaps.
const RANGES_FEW: usize = 64;
/// Most bytes of STREAM without its data, twice for a wrapped buffer.
const STREAM_HEADER_MAX: usize = 48;
/// Most bytes of STREAM_LIMIT and STREAM_RESET together.
const STREAM_CONTROL_MAX: usize = 40;
const _: () = assert!(FEEDBACK_FIXED_MAX + 2 * STREAM_HEADER_MAX < BASE_DATAGRAM - 36);
