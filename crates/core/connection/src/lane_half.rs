use crate::shared_path::SharedPath;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Deref;

use longhaul_engine::{Event, Lane, LaneConfig, NotSent, Onward, Path, Suspension, Transmit};
use longhaul_rate_control::HostLimit;
use longhaul_units::{Extent, Instant, LaneId, ObjectId, Rate};

use crate::half_messages::{News, Order, Repair, Standing};
use crate::incoming::Groups;
use crate::messages::{MessageLane, Messages};
use crate::paths::MoveAsked;
use crate::protect::{Opener, Sealer};
use crate::receive::ReadBatch;
use crate::receive::{Receiving, With};
use crate::send::Datagrams;
use crate::send::{Outgoing, Sending};

/// The work of one thread for one lane of a connection: packets become groups (buffers of type `I`)
/// and messages, and the reverse (buffers of type `O`).
///
/// # Contract
/// As that of [`Lane`]: time never goes backwards between calls.
///
/// - *In*: [`handle_datagrams`](Self::handle_datagrams), [`handle_order`](Self::handle_order),
///   [`handle_repair`](Self::handle_repair), [`handle_standing`](Self::handle_standing),
///   [`handle_timeout`](Self::handle_timeout).
/// - *Messages*, on lane 0: [`MessageLane`].
/// - *Out*: [`poll_news`](Self::poll_news) until `None`; [`poll_transmit`](Self::poll_transmit) until
///   `None`, each followed by [`seal`](Self::seal), and by [`not_sent`](Self::not_sent) where the
///   local stack refused datagrams; then sleep until [`next_timeout`](Self::next_timeout).
#[derive(Debug)]
pub struct LaneHalf<O, I> {
    lane: Lane,
    sending: Sending,
    receiving: Receiving<I>,
    /// On lane 0.
    messages: Option<Messages>,
    /// Groups that the engine was offered, until they are delivered.
    outgoing: Outgoing<O>,
    /// Groups to be sent again as soon as they are delivered.
    repairs: Vec<(Extent, O)>,
    credit_announced: u64,
    news: VecDeque<News<I>>,
}

impl<O: Deref<Target: AsRef<[u8]>>, I: AsMut<[u8]>> LaneHalf<O, I> {
    /// An open lane.
    pub fn new(now: Instant, config: LaneConfig) -> Self {
        let (connection, lane) = (config.connection, config.lane);
        Self {
            sending: Sending::new(connection, lane),
            receiving: Receiving::new(connection, lane),
            messages: (lane == MESSAGES).then(Messages::default),
            outgoing: BTreeMap::new(),
            repairs: Vec::new(),
            credit_announced: 0,
            news: VecDeque::new(),
            lane: Lane::new(now, config),
        }
    }

    // In.

    /// Takes in what a read of the socket brought: `bytes`, at most 65,536. Memory for groups comes
    /// from `groups`.
    pub fn handle_datagrams<K: Opener, G: Groups<I> + ?Sized, P: SharedPath>(
        &mut self,
        now: Instant,
        batch: &ReadBatch,
        bytes: &mut [u8],
        opener: &mut K,
        groups: &mut G,
        path: &P,
    ) {
        let news = &mut |news| self.news.push_back(news);
        let with = &mut With { opener, groups, path, news };
        self.receiving.take(now, &mut self.lane, batch, bytes, with);
    }

    /// Does what the shared half says.
    pub fn handle_order(&mut self, now: Instant, order: Order<O>) {
        match order {
            Order::Offer { extent, bytes } => self.offer(extent, bytes),
            Order::Withdraw(object) => self.withdraw(object),
            Order::Close(code, reason) => self.lane.close(now, code, &reason),
            Order::AskToMove(MoveAsked { order, lane, beside }) => {
                self.lane.ask_to_move(order, lane, beside);
            }
        }
    }

    /// Does what the shared half says of groups that do not simply arrive.
    pub fn handle_repair(&mut self, repair: Repair) {
        let given_up = self.receiving.incoming.handle_repair(repair);
        self.news.extend(given_up.into_iter().map(News::GivenUp));
    }

    /// Goes by what the shared half says that holds.
    pub fn handle_standing(&mut self, standing: &Standing) {
        self.lane.set_credit(standing.credit);
        self.lane.set_bounds(standing.bounds);
        self.receiving.incoming.handle_over(standing.over);
        if standing.credit > self.credit_announced
            && standing.credit - self.credit_announced >= standing.credit_step
        {
            self.credit_announced = standing.credit;
            self.lane.announce();
        }
        if standing.drained && self.lane.backlog() == 0 {
            self.lane.flush();
        }
    }

    /// Sets the rate that this host can take in, of the whole connection, if it reports one: goes with the
    /// next report.
    pub fn set_capacity(&mut self, capacity: Option<Rate>) {
        self.lane.set_capacity(capacity);
    }

    /// Lets timers run that are due.
    pub fn handle_timeout(&mut self, now: Instant, path: &mut Path) {
        self.lane.handle_timeout(now, path);
    }

    fn offer(&mut self, extent: Extent, bytes: O) {
        let key = (extent.object, extent.offset);
        if self.outgoing.contains_key(&key) {
            // A repair, asked for before the report that the group had arrived.
            self.repairs.push((extent, bytes));
            return;
        }
        self.outgoing.insert(key, bytes);
        self.lane.offer(extent);
    }

    fn withdraw(&mut self, object: ObjectId) {
        let waiting = self.repairs.extract_if(.., |(extent, _)| extent.object == object);
        self.news.extend(waiting.map(|(extent, _)| News::Withdrawn(extent)));
        self.lane.withdraw(object);
    }

    // Out.

    /// The next news for the shared half.
    #[must_use]
    pub fn poll_news(&mut self) -> Option<News<I>> {
        while self.news.is_empty() {
            let event = self.lane.poll_event()?;
            self.on_event(event);
        }
        self.news.pop_front()
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Validated => self.news.push_back(News::Validated),
            Event::Delivered(extent) => {
                self.outgoing.remove(&(extent.object, extent.offset));
                self.news.push_back(News::Delivered(extent));
                for (extent, bytes) in core::mem::take(&mut self.repairs) {
                    self.offer(extent, bytes);
                }
            }
            Event::Withdrawn(extent) => {
                self.outgoing.remove(&(extent.object, extent.offset));
                self.news.push_back(News::Withdrawn(extent));
            }
            Event::Lost { number, cause } => self.news.push_back(News::Lost(number, cause)),
            Event::MoveAsked { order, lane, beside } => {
                self.news.push_back(News::MoveAsked(MoveAsked { order, lane, beside }));
            }
            Event::FitsNot(reason) => self.news.push_back(News::FitsNot(reason)),
            Event::Closed(closed) => {
                self.outgoing.clear();
                self.news.push_back(News::Closed(closed));
            }
            // Of the streams there is one.
            _ => {}
        }
    }

    /// Plans the next batch of at most `packets_max` datagrams (1 to 64), or says that nothing is to be
    /// sent now.
    #[must_use]
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        path: &mut Path,
        packets_max: u16,
    ) -> Option<Transmit> {
        self.lane.poll_transmit(now, path, packets_max, &mut self.sending.plan)
    }

    /// Makes the datagrams of the batch that was planned last.
    pub fn seal<S: Sealer>(&mut self, transmit: &Transmit, sealer: &mut S) -> Datagrams<'_> {
        self.sending.seal(transmit, &self.outgoing, sealer)
    }

    /// The local stack took only the first `sent` bytes of the batch that was sealed last, or none
    /// of it. See [`Lane::not_sent`].
    pub fn not_sent(
        &mut self,
        now: Instant,
        path: &mut Path,
        transmit: &Transmit,
        sent: Result<usize, NotSent>,
    ) {
        let (taken, why) = match sent {
            Ok(sent) => (self.sending.datagrams_in(sent), NotSent::Refused),
            Err(why) => (0, why),
        };
        let why = (why, self.sending.segment());
        self.lane.not_sent(now, path, transmit, taken, why);
    }

    /// When a method has something to do next, without any input.
    #[must_use]
    pub fn next_timeout(&self, now: Instant, path: &Path) -> Option<Instant> {
        self.lane.next_timeout(now, path)
    }

    // Other.

    /// Leaves `path` and goes on over another one. See [`Lane::leave_path`].
    pub fn leave_path(&mut self, now: Instant, path: &mut Path, onward: Onward) {
        self.lane.leave_path(now, path, onward);
    }

    /// Announces what this host expects to take. See [`Lane::set_limit`].
    pub fn set_limit(&mut self, now: Instant, limit: Option<HostLimit>) {
        self.lane.set_limit(now, limit);
    }

    /// Asks the peer to send no object bytes for a while. See [`Lane::suspend_peer`].
    pub fn suspend_peer(&mut self, now: Instant, suspension: Suspension) {
        self.lane.suspend_peer(now, suspension);
    }

    /// So many of the packets that were found missing were lost in this host. See
    /// [`Lane::take_missing`].
    pub fn explain_missing(&mut self, explain: impl FnOnce(u64) -> u64) {
        let missing = self.lane.take_missing();
        self.lane.add_host_drops(explain(missing));
    }

    /// True if this end's messages are ended.
    pub fn has_finished_messages(&self) -> bool {
        self.messages.as_ref().is_some_and(Messages::is_finished)
    }

    /// The engine's state.
    pub fn engine(&self) -> &Lane {
        &self.lane
    }

    /// Object bytes that came to their place for the first time.
    pub fn placed(&self) -> u64 {
        self.receiving.incoming.placed()
    }

    /// Objects of which groups are remembered that arrived.
    pub fn remembered(&self) -> usize {
        self.receiving.incoming.remembered()
    }
}

impl<O, I> MessageLane for LaneHalf<O, I> {
    fn read_messages(&mut self, into: &mut [u8]) -> usize {
        self.messages.as_mut().map_or(0, |messages| messages.read(&mut self.lane, into))
    }

    fn poll_messages_end(&mut self) -> bool {
        self.messages.as_mut().is_some_and(|messages| messages.poll_end(&self.lane))
    }

    fn wants_messages(&self) -> bool {
        self.messages.as_ref().is_some_and(Messages::wants_more)
    }

    fn push_messages(&mut self, bytes: &[u8]) -> bool {
        self.messages.as_mut().is_some_and(|messages| messages.push(&mut self.lane, bytes))
    }

    fn write_messages(&mut self) -> bool {
        self.messages.as_mut().is_some_and(|messages| messages.write(&mut self.lane))
    }

    fn finish_messages(&mut self) -> bool {
        self.messages.as_mut().is_some_and(|messages| messages.finish(&mut self.lane))
    }
}

/// The lane that carries messages.
const MESSAGES: LaneId = LaneId(0);

#[cfg(test)]
mod tests;
