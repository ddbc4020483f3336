//! Ctrl-C, SIGTERM, and the end of the terminal.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use longhaul::Stop;
use longhaul_sys::descriptors::explained;
use longhaul_sys::process::is_ignored;
use longhaul_sys::threads;
use longhaul_sys::wait::{Interest, wait};
use serde_json::{Map, Value};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::{flag, low_level};

use crate::failure::Failure;
use crate::output::{Output, complain};

/// What a second signal does.
pub(crate) enum Again {
    /// Ends the program at once, with status 1, and says so, with what is known of its work.
    Exit(Output, Known),
    /// Nothing: what is being cleaned up takes moments.
    Wait,
}

/// What there is to say in JSON of work that did not come to its end.
pub(crate) type Known = Box<dyn Fn() -> Map<String, Value> + Send>;

/// Signals of the time before it is known what the program is to do: they wait.
pub(crate) struct Held(io::Result<Signals>);

/// Requests of signals to a service.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// To stop in order.
    pub(crate) stop: Stop,
    /// SIGTERM: to wait for what is under way before that.
    pub(crate) drain: Option<Stop>,
    /// SIGHUP: to read the settings again.
    pub(crate) reload: Option<Arc<AtomicBool>>,
}

/// Signals as they come.
type Signals = SignalDelivery<UnixStream, SignalOnly>;

impl Held {
    /// From now on signals that ask the program to end wait for [`Self::release`] or
    /// [`Self::stop_in_order`].
    pub(crate) fn new() -> Self {
        let hold = || {
            let mut signals = Vec::new();
            for signal in THAT_STOP {
                if !is_ignored(signal)? {
                    flag::register_conditional_default(signal, IS_FATAL.clone())?;
                    signals.push(signal);
                }
            }
            open(signals)
        };
        Self(hold())
    }

    /// They end the program, as without us: also those that have come.
    ///
    /// # Errors
    /// The operating system does not let us.
    pub(crate) fn release(self) -> Result<(), Failure> {
        let release = |mut signals: Signals| {
            IS_FATAL.store(true, Ordering::Relaxed);
            signals.pending().try_for_each(low_level::emulate_default_handler)
        };
        self.0.and_then(release).map_err(|error| cannot_wait(&error))
    }

    /// The first signal makes it stop in order, the next at once; `known` is printed then.
    ///
    /// # Errors
    /// The operating system does not let us.
    pub(crate) fn stop_in_order(
        self,
        stop: &Stop,
        output: &Output,
        known: impl Fn() -> Map<String, Value> + Send + 'static,
    ) -> Result<(), Failure> {
        let orders = Orders { stop: stop.clone(), drain: None, reload: None };
        self.follow(&orders, output, known)
    }

    /// The same by these `orders`; SIGHUP asks to reload also with `nohup`.
    ///
    /// # Errors
    /// The operating system does not let us.
    pub(crate) fn follow(
        self,
        orders: &Orders,
        output: &Output,
        known: impl Fn() -> Map<String, Value> + Send + 'static,
    ) -> Result<(), Failure> {
        let follow = |signals: Signals| {
            let handle = signals.handle();
            that_stop()?.into_iter().try_for_each(|signal| handle.add_signal(signal))?;
            if orders.reload.is_some() {
                handle.add_signal(SIGHUP)?;
            }
            follow(signals, orders.clone(), Some(STOPPING), Again::Exit(*output, Box::new(known)))
        };
        self.0.and_then(follow).map_err(|error| cannot_wait(&error))
    }
}

fn cannot_wait(error: &io::Error) -> Failure {
    Failure::failed(format!("cannot wait for signals: {}", explained(error)))
}

/// The signals that ask the program to end, which the caller handles from now on. A SIGHUP that is
/// ignored when it starts stays ignored, as under `nohup`.
///
/// # Errors
/// The operating system does not tell.
pub(crate) fn that_stop() -> io::Result<Vec<i32>> {
    IS_FATAL.store(false, Ordering::Relaxed);
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP)? {
        signals.push(SIGHUP);
    }
    Ok(signals)
}

/// A file that grows beyond what this process may write (`ulimit -f`) fails, and ends no program: one
/// client's file is no reason to leave all others.
///
/// # Errors
/// The operating system does not let us.
pub(crate) fn survive_large_files() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Makes the signals [`that_stop`] ask `stop`, and says `first` then, if anything.
///
/// # Errors
/// The operating system does not let us.
pub(crate) fn install(stop: &Stop, first: Option<&'static str>, again: Again) -> io::Result<()> {
    let orders = Orders { stop: stop.clone(), drain: None, reload: None };
    follow(open(that_stop()?)?, orders, first, again)
}

/// Signals that wait to be taken. The iterator of signal-hook panics where its socket fails.
fn open(signals: Vec<i32>) -> io::Result<Signals> {
    let (read, write) = UnixStream::pair()?;
    write.set_nonblocking(true)?;
    Signals::with_pipe(read, write, SignalOnly, signals)
}

/// Waits for signals.
fn await_some(signals: &mut Signals) -> Vec<i32> {
    let ready = wait(&[(signals.get_read().as_fd(), Interest::Readable)], None);
    if ready.is_err() {
        std::thread::sleep(TRY_AGAIN);
    }
    let some: Vec<i32> = signals.pending().collect();
    if some.is_empty() {
        // The socket is ready and cannot be read.
        std::thread::sleep(TRY_AGAIN);
    }
    some
}

fn follow(
    mut signals: Signals,
    orders: Orders,
    first: Option<&'static str>,
    again: Again,
) -> io::Result<()> {
    threads::spawn("signals", move || {
        let Orders { stop, drain, reload } = orders;
        let mut past = PastSignals::default();
        for signal in std::iter::repeat_with(|| await_some(&mut signals)).flatten() {
            if signal == SIGHUP
                && let Some(reload) = &reload
            {
                reload.store(true, Ordering::Relaxed);
                continue;
            }
            let may_drain = signal == SIGTERM && drain.is_some();
            match (past.take(Instant::now(), may_drain), &again) {
                (Wish::Drain, _) => {
                    drain.iter().for_each(Stop::request);
                    complain(DRAINING);
                }
                (Wish::Stop, _) => {
                    stop.request();
                    if let Some(text) = first {
                        complain(text);
                    }
                }
                (Wish::StopAtOnce, Again::Exit(output, known)) => {
                    let failure = Failure::failed("stopped at once, by a second signal");
                    output.failed(&failure.with_fields(known()));
                    std::process::exit(1);
                }
                (Wish::Same, _) | (Wish::StopAtOnce, Again::Wait) => {}
            }
        }
    })?;
    Ok(())
}

/// Signals that have come so far.
#[derive(Debug, Default)]
struct PastSignals {
    last: Option<Instant>,
    drains: bool,
    stops: bool,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To wait for what is under way, and then stop.
    Drain,
    Stop,
    /// What another signal has asked for a moment ago.
    Same,
    StopAtOnce,
}

impl PastSignals {
    /// One comes, which leaves time to what is under way where it `may_drain`.
    fn take(&mut self, now: Instant, may_drain: bool) -> Wish {
        if self.last.is_some_and(|last| now < last + TOGETHER) {
            return Wish::Same;
        }
        self.last = Some(now);
        match (self.drains, self.stops) {
            (_, true) => Wish::StopAtOnce,
            (false, false) if may_drain => {
                self.drains = true;
                Wish::Drain
            }
            (_, false) => {
                self.stops = true;
                Wish::Stop
            }
        }
    }
}

/// Signals that nobody handles have their usual effect.
static IS_FATAL: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

const THAT_STOP: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Printed where what is under way has time.
const DRAINING: &str = "stopping once running transfers have ended (once more to stop them)";

/// Printed at the first.
pub(crate) const STOPPING: &str = "stopping (once more to stop at once)";

/// Two signals of one cause: GNU `timeout` sends one to its child and one to the group. Whoever presses
/// Ctrl-C twice takes longer.
const TOGETHER: Duration = Duration::from_millis(100);

/// Where signals cannot be waited for.
const TRY_AGAIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_one_moment_are_one() {
        let (mut past, start) = (PastSignals::default(), Instant::now());
        assert_eq!(past.take(start, false), Wish::Stop);
        assert_eq!(past.take(start, false), Wish::Same);
        assert_eq!(past.take(start + TOGETHER / 2, true), Wish::Same);
        assert_eq!(past.take(start + TOGETHER, true), Wish::StopAtOnce);
        let (mut past, start) = (PastSignals::default(), Instant::now());
        let wishes = [0, 0, 1, 2].map(|n| past.take(start + TOGETHER * n, true));
        assert_eq!(wishes, [Wish::Drain, Wish::Same, Wish::Stop, Wish::StopAtOnce]);
    }
}
