//! TCP connections that may take the place of UDP lanes.

use std::sync::Arc;
use std::thread::JoinHandle;

use longhaul_carriers::tcp::{JoinError, Opened, TcpCarrierOptions, open_all};
use longhaul_connection::{Race, RaceStep, TcpProgress};
use longhaul_control::Dialed;
use longhaul_sys::clock;
use longhaul_sys::stop::Stop;
use longhaul_sys::threads;

/// Opens the connections beside lanes that do not answer.
pub(super) struct Rival {
    race: Race,
    options: TcpCarrierOptions,
    state: State,
    /// They are wanted no more.
    dropped: Stop,
}

enum State {
    Waits,
    Opens(JoinHandle<Result<Vec<Opened>, JoinError>>),
    Ends(Result<Vec<Opened>, JoinError>),
}

impl Rival {
    /// Of lanes that begin now.
    pub fn new(dialed: &Dialed, was_swallowed: bool, options: TcpCarrierOptions) -> Self {
        let race = Race::new(clock::now(), dialed.rtt, was_swallowed);
        Self { race, options, state: State::Waits, dropped: Stop::default() }
    }

    /// Looks how far both are: whether TCP is to carry.
    pub fn look(&mut self, dialed: &Dialed, udp_has_answered: bool) -> bool {
        let tcp = self.progress();
        match self.race.look(clock::now(), udp_has_answered, tcp) {
            RaceStep::Wait => {}
            RaceStep::Open => self.open(dialed),
            RaceStep::Udp => self.give_up(),
            RaceStep::Tcp => return true,
        }
        false
    }

    fn progress(&mut self) -> TcpProgress {
        self.state = match std::mem::replace(&mut self.state, State::Waits) {
            State::Opens(opening) if opening.is_finished() => {
                let panicked = |_| Err(std::io::Error::other("a thread panicked").into());
                State::Ends(opening.join().unwrap_or_else(panicked))
            }
            state => state,
        };
        match &self.state {
            State::Waits => TcpProgress::None,
            State::Opens(_) => TcpProgress::Opening,
            State::Ends(Ok(_)) => TcpProgress::Open,
            State::Ends(Err(_)) => TcpProgress::Failed,
        }
    }

    fn open(&mut self, dialed: &Dialed) {
        let Dialed { session, server, identity, .. } = dialed;
        let (session, server, identity) = (Arc::clone(session), *server, identity.clone());
        let (options, stop) = (self.options.clone(), self.dropped.clone());
        let open = move || open_all(server, &identity, &session, &options, &stop);
        let failed = |error: std::io::Error| State::Ends(Err(error.into()));
        self.state = threads::spawn("longhaul-open", open).map_or_else(failed, State::Opens);
    }

    /// Closes the connections, of which none has joined.
    fn give_up(&mut self) {
        self.dropped.request();
        self.state = State::Waits;
    }

    /// The connections, or why there are none; nothing where they were not asked for.
    pub fn take(&mut self) -> Option<Result<Vec<Opened>, JoinError>> {
        match std::mem::replace(&mut self.state, State::Waits) {
            State::Ends(opened) => Some(opened),
            State::Waits | State::Opens(_) => None,
        }
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        // A thread that opens them ends soon.
        self.dropped.request();
    }
}
