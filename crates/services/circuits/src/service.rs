//! The running service: one thread that decides and writes, a view that everybody reads.
//!
//! [`Service::start`] opens the store and starts the thread. Orders go to it through a bounded
//! queue; whatever waits is decided together, made durable by one append (group commit), shown in
//! the [`View`] and only then answered. Previews and lists read the view and hold nobody up. When
//! an append fails, memory is thrown away and rebuilt from the store, so that what is not durable
//! has not happened.

pub mod config;
mod drive;
mod lead;
mod ledger_thread;
pub mod metrics;
mod refused_requests;
mod view;

use longhaul_sys::sync::lock;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use tokio::sync::{oneshot, watch};

use self::config::Config;
pub use self::lead::ConfigMismatch;
use self::metrics::Metrics;
pub use self::view::{Change, Open, View};
use longhaul_sys::threads;

use crate::clock::Clock;
use crate::ledger::{Id, Order, Record, Refusal};
use crate::store::{self, StoreError};

/// A running service. Clones share it; it ends with [`Service::stop`].
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    queue: SyncSender<Message>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// State that the threads share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    view: RwLock<View>,
    health: Mutex<Status>,
    /// The number of the latest change, for those who watch.
    latest: watch::Sender<u64>,
    /// Where words for the operator go.
    notice: Notice,
}

/// Takes words for the operator.
pub type Notice = Box<dyn Fn(&str) + Send + Sync>;

/// State of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// True if it takes bookings.
    pub ready: bool,
    /// True if another node leads: what is shown here is outdated.
    pub standby: bool,
    /// In words.
    pub text: String,
    /// Where another node leads.
    pub leader: Option<String>,
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// It was decided: no.
    #[error("{0}")]
    Refused(Refusal),
    /// Too many wait.
    #[error("too many requests wait; try again in a moment")]
    Busy,
    /// It cannot be made durable, and so was not done.
    #[error("bookings cannot be kept now: {0}")]
    Unavailable(StoreError),
    /// The service has ended.
    #[error("the service is stopping")]
    Stopping,
}

/// Outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Bookings made or changed.
    pub ids: Vec<Id>,
    /// The same order had come before, under the same key.
    pub repeated: bool,
}

/// An idempotency key, and the fingerprint of what came under it.
type Key = (String, String);

pub(crate) enum Message {
    Decide(Box<Order>, oneshot::Sender<Result<Decided, ServiceError>>),
    Known { project: String, key: Key, reply: oneshot::Sender<Option<Vec<Id>>> },
    Read { after: u64, limit: u32, reply: oneshot::Sender<Result<Vec<Record>, StoreError>> },
    Stop,
}

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store.
    #[error("{place}: {error}")]
    Store {
        /// Where it is.
        place: String,
        /// The fault.
        error: StoreError,
    },
    /// The log is not what it should be.
    #[error("{0}")]
    Log(#[from] crate::ledger::Corrupt),
    /// The configuration does not fit the store.
    #[error("{0}")]
    Config(#[from] ConfigMismatch),
    /// A driver.
    #[error("{0}")]
    Driver(#[from] crate::drivers::DriverError),
    /// The operating system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl Service {
    /// Opens the store, takes the lead or waits for it, and starts to decide.
    ///
    /// # Errors
    /// The store cannot be opened, is no log, or was founded under other rules; a driver cannot
    /// work.
    pub fn start(config: Config, notice: Notice) -> Result<Self, StartError> {
        let store = store::open(&config.store, &config.node, &config.url)
            .map_err(|error| StartError::Store { place: config.place(), error })?;
        let shared = Arc::new(Shared {
            metrics: Metrics::default(),
            view: RwLock::new(View::empty(&config)),
            health: Mutex::new(Status {
                ready: false,
                standby: false,
                text: "starting".into(),
                leader: None,
            }),
            latest: watch::Sender::new(0),
            notice,
            config,
        });
        let (queue, messages): (_, Receiver<Message>) = sync_channel(QUEUE);
        let drive = drive::Drive::start(&shared)?;
        let thread = ledger_thread::LedgerThread::open(shared.clone(), store, messages, drive)?;
        let thread = threads::spawn("ledger", move || thread.run())?;
        Ok(Self { shared, queue, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The durable state. Hold the guard for moments only: new decisions wait for it.
    pub fn view(&self) -> RwLockReadGuard<'_, View> {
        self.shared.view()
    }

    /// Its state.
    pub fn status(&self) -> Status {
        lock(&self.shared.health).clone()
    }

    /// Waits for changes: the value is the number of the latest.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.latest.subscribe()
    }

    /// Has an order decided, carried out and made durable. It is given with the call: dropping what
    /// waits for the answer does not undo it.
    pub fn decide(
        &self,
        order: Order,
    ) -> impl Future<Output = Result<Decided, ServiceError>> + Send + use<> {
        let (reply, decided) = oneshot::channel();
        let sent = self.send(Message::Decide(Box::new(order), reply));
        async move {
            sent?;
            decided.await.map_err(|_| ServiceError::Stopping)?
        }
    }

    /// The same for callers without a runtime.
    pub fn decide_blocking(&self, order: Order) -> Result<Decided, ServiceError> {
        let (reply, decided) = oneshot::channel();
        self.send(Message::Decide(Box::new(order), reply))?;
        decided.blocking_recv().map_err(|_| ServiceError::Stopping)?
    }

    /// The bookings that the same request of a project made or changed under its key, if it came
    /// before.
    pub(crate) async fn known(&self, project: &str, key: Key) -> Option<Vec<Id>> {
        let (reply, known) = oneshot::channel();
        self.send(Message::Known { project: project.to_owned(), key, reply }).ok()?;
        known.await.ok()?
    }

    /// Records of the log after position `after`.
    pub async fn records(&self, after: u64, limit: u32) -> Result<Vec<Record>, ServiceError> {
        let (reply, records) = oneshot::channel();
        self.send(Message::Read { after, limit, reply })?;
        let records = records.await.map_err(|_| ServiceError::Stopping)?;
        records.map_err(ServiceError::Unavailable)
    }

    /// Answers what waits, gives up the lead and ends.
    pub fn stop(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A thread that is gone needs no order to stop.
            let _ = self.queue.send(Message::Stop);
            let _ = thread.join();
        }
    }

    fn send(&self, message: Message) -> Result<(), ServiceError> {
        self.queue.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => ServiceError::Busy,
            TrySendError::Disconnected(_) => ServiceError::Stopping,
        })
    }
}

impl Shared {
    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the view and wakes the watchers.
    fn show(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut view);
        let latest = view.latest_change();
        drop(view);
        self.latest.send_if_modified(|known| std::mem::replace(known, latest) != latest);
    }

    fn set_status(&self, status: Status) {
        *lock(&self.health) = status;
    }
}

/// Where a clock starts that has come to `tick`.
fn clock_from(tick: u64, tick_nanos: u64) -> Clock {
    Clock::start(tick.saturating_mul(tick_nanos))
}

/// Orders that may wait: about a second's worth.
const QUEUE: usize = 8192;

/// Where a store's file lies when none is named.
pub fn default_store() -> PathBuf {
    PathBuf::from("longhaul-circuits.db")
}
