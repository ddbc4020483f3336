//! The thread that owns the ledger: it decides each order, and nobody else does.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::drive::Drive;
use super::lead::{LeadError, Leading};
use super::refused_requests::RefusedRequests;
use super::{Decided, Key, Message, ServiceError, Shared, StartError, Status, lead};
use crate::ledger::{Decision, Event, Id, Order, Record};
use crate::store::{Store, StoreError};

pub(super) struct LedgerThread {
    shared: Arc<Shared>,
    store: Box<dyn Store>,
    messages: Receiver<Message>,
    drive: Drive,
    /// `None` while another node leads or the store fails.
    leading: Option<Leading>,
    /// Why this node does not lead.
    trouble: StoreError,
    refusals: RefusedRequests,
    /// When to try again to lead, and how long to wait then.
    retry: (Instant, Duration),
    renewed: Instant,
}

type Reply = oneshot::Sender<Result<Decided, ServiceError>>;

impl LedgerThread {
    /// Leads at once if it can. That another node leads is no error if the store is shared.
    pub(super) fn open(
        shared: Arc<Shared>,
        store: Box<dyn Store>,
        messages: Receiver<Message>,
        drive: Drive,
    ) -> Result<Self, StartError> {
        let now = Instant::now();
        let retry = (now, RETRY_FIRST);
        let mut this = Self {
            shared,
            store,
            messages,
            drive,
            leading: None,
            refusals: RefusedRequests::default(),
            trouble: StoreError::Failed("not started".into()),
            retry,
            renewed: now,
        };
        match lead::take(this.store.as_mut(), &this.shared.config, &this.shared.notice) {
            Ok(leading) => this.begin(leading),
            Err(LeadError::Store(StoreError::Led { node, url })) => this.follow(&node, url),
            Err(LeadError::Store(error)) => {
                return Err(StartError::Store { place: this.shared.config.place(), error });
            }
            Err(LeadError::Log(error)) => return Err(error.into()),
            Err(LeadError::Config(error)) => return Err(error.into()),
        }
        Ok(this)
    }

    pub(super) fn run(mut self) {
        loop {
            let mut next = match self.messages.recv_timeout(BEAT) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let (mut batch, mut known) = (Vec::new(), Vec::new());
            let mut stop = false;
            while let Some(message) = next {
                match message {
                    Message::Decide(order, reply) => batch.push((order, reply)),
                    Message::Known { project, key, reply } => known.push((project, key, reply)),
                    Message::Read { after, limit, reply } => {
                        // The client may have gone.
                        let _ = reply.send(self.store.read(after, limit));
                    }
                    Message::Stop => stop = true,
                }
                next = if batch.len() < BATCH_MAX && !stop {
                    self.messages.try_recv().ok()
                } else {
                    None
                };
            }
            self.turn(batch);
            // What is asked for may have come in this turn.
            for (project, key, reply) in known {
                // The client may have gone.
                let _ = reply.send(self.known(&project, &key));
            }
            if stop {
                break;
            }
        }
        self.drive.stop();
        if self.leading.is_some() {
            self.store.resign();
        }
    }

    /// One turn: time passes, orders are decided, made durable and answered.
    fn turn(&mut self, batch: Vec<(Box<Order>, Reply)>) {
        if self.leading.is_none() && self.retry.0 <= Instant::now() {
            self.try_to_lead();
        }
        let Some(leading) = &mut self.leading else {
            for (_, reply) in batch {
                let _ = reply.send(Err(self.unavailable()));
            }
            return;
        };
        let started = Instant::now();
        let tick = leading.clock.nanos() / leading.ledger.rules().tick_nanos.max(1);
        let mut ended: Vec<Id> = leading.ledger.advance(tick);
        let mut records: Vec<Record> = Vec::with_capacity(batch.len());
        let mut replies = Vec::with_capacity(batch.len());
        for (order, reply) in batch {
            if let Some(refusal) = self.refusals.known(&order, started) {
                replies.push((reply, Err(ServiceError::Refused(refusal))));
                continue;
            }
            let (project, key) = (order.project.clone(), order.key.clone());
            let (decision, more) = leading.ledger.decide(tick, *order);
            ended.extend(more);
            let result = match decision {
                Decision::Repeated(ids) => Ok(Decided { ids, repeated: true }),
                Decision::Logged(record) => {
                    let result = Ok(decided(&record.outcome));
                    records.push(*record);
                    result
                }
                Decision::Refused(refusal) => {
                    self.shared.metrics.refused();
                    self.refusals.remember(project, key, &refusal, started);
                    Err(ServiceError::Refused(refusal))
                }
            };
            replies.push((reply, result));
        }
        if !records.is_empty() {
            if let Err(error) = self.store.append(&records) {
                self.fail(error, replies);
                return;
            }
            self.renewed = started;
            leading.lease.renew(started, self.shared.config.lease());
            self.shared.metrics.committed(&records, started.elapsed());
        } else if self.renewed.elapsed() > self.shared.config.lease() / 3 {
            let asked = Instant::now();
            if let Err(error) = self.store.renew() {
                self.fail(error, replies);
                return;
            }
            self.renewed = asked;
            leading.lease.renew(asked, self.shared.config.lease());
        }
        self.publish(&records, &ended);
        for (reply, result) in replies {
            // The client may have gone; what was done stays done.
            let _ = reply.send(result);
        }
    }

    /// Outcome of an order under a key, if it was the same.
    fn known(&self, project: &str, (key, fingerprint): &Key) -> Option<Vec<Id>> {
        let (same, ids) = self.leading.as_ref()?.ledger.known(project, key)?;
        (same == fingerprint).then(|| ids.clone())
    }

    /// Shows what is durable now.
    fn publish(&mut self, records: &[Record], ended: &[Id]) {
        let Some(leading) = &self.leading else { return };
        if records.is_empty() && ended.is_empty() {
            return;
        }
        let ledger = &leading.ledger;
        self.shared.show(|view| {
            for record in records {
                record.outcome.iter().for_each(|event| view.happened(ledger, event));
            }
            for id in ended {
                let what = ledger.closed(*id).map_or("finished", |closed| closed.ending.name());
                view.update(ledger, *id, what);
            }
            view.refresh(ledger);
        });
        for record in records {
            self.shared.metrics.happened(ledger, &record.outcome);
            self.drive.changed(ledger, &record.outcome);
        }
        self.shared.metrics.ended(ledger, ended);
        self.drive.ended(ended);
    }

    fn begin(&mut self, leading: Leading) {
        self.shared.show(|view| view.reset(&leading.ledger, leading.clock, leading.lease.epoch()));
        self.drive.reset(&leading.ledger, leading.clock, &leading.lease);
        self.set_status(true, false, "leading", None);
        self.retry.1 = RETRY_FIRST;
        self.renewed = Instant::now();
        self.leading = Some(leading);
    }

    fn try_to_lead(&mut self) {
        match lead::take(self.store.as_mut(), &self.shared.config, &self.shared.notice) {
            Ok(leading) => self.begin(leading),
            Err(LeadError::Store(StoreError::Led { node, url })) => self.follow(&node, url),
            Err(error) => {
                self.set_status(false, false, &error.to_string(), None);
                self.trouble = match error {
                    LeadError::Store(error) => error,
                    other => StoreError::Corrupt(other.to_string()),
                };
                self.wait();
            }
        }
    }

    fn follow(&mut self, node: &str, url: String) {
        self.drive.idle();
        self.trouble = StoreError::Led { node: node.into(), url: url.clone() };
        let leader = (!url.is_empty()).then_some(url);
        self.set_status(false, true, &format!("standing by: {node} leads"), leader);
        self.retry = (Instant::now() + RETRY_FIRST, RETRY_FIRST);
    }

    fn set_status(&self, ready: bool, standby: bool, text: &str, leader: Option<String>) {
        self.shared.set_status(Status { ready, standby, text: text.into(), leader });
    }

    fn wait(&mut self) {
        self.retry.0 = Instant::now() + self.retry.1;
        self.retry.1 = (self.retry.1 * 2).min(RETRY_LAST);
    }

    /// Nothing of this turn is durable: forget it, and show that.
    fn fail(&mut self, error: StoreError, replies: Vec<(Reply, Result<Decided, ServiceError>)>) {
        let fenced = matches!(error, StoreError::Fenced);
        // Where another node may take over, it must find nobody who switches; a store of one process
        // is held all the same, and bookings go on.
        if let Some(leading) = self.leading.take()
            && (fenced || self.shared.config.lease() < Duration::MAX)
        {
            leading.lease.end();
            self.drive.idle();
        }
        // They may have been for the sake of what is not durable.
        self.refusals = RefusedRequests::default();
        self.shared.metrics.store_failed();
        self.set_status(false, fenced, &error.to_string(), None);
        self.trouble = error.clone();
        self.wait();
        for (reply, _) in replies {
            let _ = reply.send(Err(ServiceError::Unavailable(error.clone())));
        }
    }

    fn unavailable(&self) -> ServiceError {
        ServiceError::Unavailable(self.trouble.clone())
    }
}

fn decided(events: &[Event]) -> Decided {
    let ids = |event: &Event| match event {
        Event::Replanned { moved } => moved.iter().map(|(id, _)| *id).collect(),
        event => Vec::from_iter(event.id()),
    };
    // Watchers see the bookings that a release moved; the answer to it names only what it released.
    let asked = events.first().map(std::mem::discriminant);
    let events = events.iter().filter(|event| Some(std::mem::discriminant(*event)) == asked);
    Decided { ids: events.flat_map(ids).collect(), repeated: false }
}

/// Interval at which time passes when no order comes.
const BEAT: Duration = Duration::from_millis(50);
/// Orders that are decided together: what a few milliseconds bring.
const BATCH_MAX: usize = 1024;
/// First and longest pause after a store failed.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LAST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
