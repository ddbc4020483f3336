//! One client of a server, from its welcome to its end.

use std::cell::Cell;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use longhaul_carriers::carrier::{Carrier, mailboxes};
use longhaul_carriers::mailboxes::Mailboxes;
use longhaul_carriers::upper_layer::Mailbox;
use longhaul_connection::{End, HostFailure, Silence, Transfer, Wish};
use longhaul_control::{Control, PendingClient};
use longhaul_engine::{Closed, Role};
use longhaul_history::{Direction, PathKey};
use longhaul_rate_control::{ChosenProfile, Profile, Unplayable};
use longhaul_session::KeyId;
use longhaul_sys::{clock, random};
use longhaul_units::Duration;
use longhaul_wire::{self as wire, CloseCode, ConnectionId, Hello};

use super::Running;
use super::carriers::Joining;
use super::peer::{Peer, text};
use crate::api::{ServeEvent, Served, TransferAccount};
use crate::connection::attend::Attendant;
use crate::connection::path_history::Recollection;
use crate::connection::shared::{Milestones, Shared};
use crate::connection::steering::Steering;
use crate::endpoint::guests::Guest;
use crate::endpoint::policy::{Policy, Rights};
use crate::endpoint::request::{Asked, Granted, GrantedRequest};
use crate::memory::lease::Lease;

/// Why a client was not served.
pub(super) struct NotServed {
    pub code: CloseCode,
    pub reason: String,
    /// A transfer had begun.
    pub begun: bool,
}

impl From<(CloseCode, String)> for NotServed {
    fn from((code, reason): (CloseCode, String)) -> Self {
        Self { code, reason, begun: false }
    }
}

impl NotServed {
    /// True where TCP may carry in the place of UDP: packets do not pass, or connections have joined.
    fn leaves_tcp(&self, control: &Control) -> bool {
        self.code == CloseCode::PATH_MTU && control.ended().is_none()
    }
}

impl Running<'_> {
    /// Does what `client` asks for.
    pub(super) fn serve_client(
        &self,
        client: PendingClient,
        profile: ChosenProfile,
        (guest, lease): (&Guest<'_>, Arc<Lease>),
        (policy, rights): (&Policy, &Arc<Rights>),
        (from, local): (SocketAddr, SocketAddr),
        account: &Cell<Option<TransferAccount>>,
    ) -> Result<Served, NotServed> {
        let own_id = self.ids.take(random::number).map_err(text)?;
        let id = own_id.get();
        // Before the client is welcomed: its data connections may follow at once.
        let expected = self.joins.expect(ConnectionId(id.get()));
        let hello = client.client().hello();
        let key_id = hello.key_id;
        let lanes = if hello.carrier == wire::Carrier::Udp { 0 } else { hello.lanes };
        let coming = self.door.expect(from.ip(), lanes.into());
        let joining = Joining { expected, coming, instead: None };
        let (session, control) = client.welcome(id, self.options.idle_timeout).map_err(text)?;
        let (session, profile, lease) = (&session, &profile, &*lease);
        let began = Cell::default();
        // Each token's pushes are its own; a server that has but one serves one party.
        let owner = policy.serves_several().then_some(key_id);
        let peer = Peer {
            from,
            local,
            session,
            profile,
            key_id,
            owner,
            rights,
            guest,
            lease,
            began,
            account,
        };
        let joining = match session.carrier {
            wire::Carrier::Tcp => joining,
            carrier => {
                let mut joining = Some(joining).filter(|_| carrier == wire::Carrier::Either);
                let known = self.lanes.of(id);
                let start = |shared: &_, boxes| self.udp_lanes(&peer, shared, boxes, &known);
                let outcome = self.serve_over(&peer, &control, &mut joining, start);
                match (outcome, joining) {
                    (Err(left), Some(joining)) if left.leaves_tcp(&control) => {
                        Joining { instead: Some(left.reason), ..joining }
                    }
                    (outcome, _) => return outcome,
                }
            }
        };
        let start = |shared: &_, boxes| self.tcp_lanes(&peer, shared, boxes, joining, &control);
        self.serve_over(&peer, &control, &mut None, start)
    }

    /// The same over the carrier that `start` starts. While connections may be `joining` what ends the
    /// carrier does not end the control connection, if it is that packets do not pass.
    fn serve_over(
        &self,
        peer: &Peer<'_>,
        control: &Control,
        joining: &mut Option<Joining<'_>>,
        start: impl FnOnce(
            &Arc<Shared>,
            Vec<Arc<Mailbox>>,
        ) -> Result<Box<dyn Carrier>, (CloseCode, String)>,
    ) -> Result<Served, NotServed> {
        let boxes = mailboxes(peer.session.lanes).map_err(text)?;
        let granted = Arc::new(Granted::default());
        let shared = self.shared_with(peer, &granted, &boxes);
        shared.end_with(control);
        let (lanes, mut outcome) = match start(&shared, boxes) {
            Ok(lanes) => {
                // What is left behind by a panic is put in order as after any other end.
                let run = || self.run(&shared, (&*lanes, control), joining, peer, &granted);
                let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                    shared.stop();
                    Err((CloseCode::INTERNAL, "a fault of the server ended it".into()))
                });
                (Some(lanes), outcome)
            }
            Err(error) => (None, Err(error)),
        };
        if let Some(lanes) = &lanes {
            let account = account(peer, &granted, &shared, &**lanes);
            peer.account.set(account.or_else(|| peer.account.take()));
        }
        // A client that receives knows what has moved, since the last look as well, and does not join.
        if granted.sends()
            && lanes.as_ref().is_some_and(|lanes| lanes.have_moved())
            && !joining.as_mut().is_some_and(|joining| joining.has_begun(peer.session))
        {
            *joining = None;
        }
        let narrow = outcome.as_ref().is_err_and(|(code, _)| *code == CloseCode::PATH_MTU);
        let leaves = narrow && joining.is_some();
        // After TCP packets that do not pass another connection may follow, with smaller ones.
        let returns =
            narrow && lanes.as_ref().is_some_and(|it| it.may_send_smaller() && !it.have_moved());
        let vacated = match granted.request() {
            Some(request) if leaves || returns => request.vacate(),
            _ => Ok(()),
        };
        match vacated {
            Err(reason) if leaves => outcome = Err((CloseCode::PATH_MTU, reason.into())),
            Err(_) => outcome = outcome.map_err(|(_, reason)| (CloseCode::TIMEOUT, reason)),
            Ok(()) => {}
        }
        let comes_back = (leaves || returns) && vacated.is_ok();
        let goes_on = leaves && comes_back;
        let (code, reason) = match &outcome {
            Ok(_) => (CloseCode::DONE, ""),
            Err((code, reason)) => (*code, reason.as_str()),
        };
        lanes.iter().for_each(|lanes| lanes.close(code, reason));
        if !goes_on {
            *joining = None;
            control.close(code, reason);
        }
        lanes.into_iter().for_each(|mut lanes| lanes.join());
        shared.join();
        if let Some(request) = granted.request().filter(|_| !comes_back) {
            request.leave(outcome.as_ref().err().map(|(_, reason)| reason.as_str()));
        }
        let begun = shared.lock().transfer().is_some();
        outcome.map_err(|(code, reason)| NotServed { code, reason, begun })
    }

    /// The state that all threads of a connection over one carrier share.
    fn shared_with(
        &self,
        peer: &Peer<'_>,
        granted: &Arc<Granted>,
        boxes: &[Arc<Mailbox>],
    ) -> Arc<Shared> {
        let Peer { session, profile, owner, lease, .. } = *peer;
        let from = peer.from.ip();
        let rights = peer.rights.clone();
        let memory = lease.budget().repaired_by(profile.repair());
        let (client, protect) = (session.connection, session.protect);
        let (handlers, granted) = (self.handlers.clone(), granted.clone());
        let opener = move |shared: &Arc<Shared>, wish: &Wish| {
            let (granted, rights) = (&granted, &*rights);
            let asked =
                Asked { wish, shared, granted, client, from, owner, rights, protect, memory };
            asked.handle(&handlers)
        };
        Shared::server(Box::new(opener), Mailboxes::new(boxes.to_vec()))
    }

    /// Until the client closes, or something ends the transfer.
    fn run(
        &self,
        shared: &Arc<Shared>,
        (lanes, control): (&dyn Carrier, &Control),
        joining: &mut Option<Joining<'_>>,
        peer: &Peer<'_>,
        granted: &Granted,
    ) -> Result<Served, (CloseCode, String)> {
        let Peer { session, guest, lease, .. } = *peer;
        let mut attendant = Attendant::new(shared, lanes, control, Some(lease));
        attendant.steer(Steering::of_server(|| peer.rights.share(guest), peer.profile.rate));
        let mut has_begun = false;
        // Of a client that has not asked for anything that it was granted.
        let mut idle = Silence::since(clock::now());
        // Since when the lanes carry data.
        let mut carried = None;
        // Of one that closed with `done` before all was.
        let mut parting = None;
        let outcome = loop {
            let end = attendant.round();
            let Milestones { begun, .. } = attendant.known();
            if begun
                && !std::mem::replace(&mut has_begun, true)
                && let Some(request) = granted.request()
            {
                attendant.remember(self.begin(request, lanes, peer, granted.sends()));
                if let Err(error) = request.start(shared) {
                    break Err((CloseCode::INTERNAL, error.to_string()));
                }
            }
            let now = clock::now();
            if let Some(End::Closed(Closed { code: CloseCode::DONE, .. })) = &end
                && begun
                && now - *parting.get_or_insert(now) < PARTING
            {
                // It came by the control connection: a RESULT over the lanes may come later.
                continue;
            }
            if let Some(end) = end {
                break ended(shared, (lanes, control), granted, end);
            }
            // The client decides. One that sends knows later than this end that data has moved.
            if joining.is_some()
                && lanes.have_moved()
                && (granted.sends() || now - *carried.get_or_insert(now) > JOINING)
            {
                *joining = None;
            }
            if joining.as_mut().is_some_and(|joining| joining.has_begun(session)) {
                break Err((CloseCode::PATH_MTU, "TCP connections take the place of UDP".into()));
            }
            if let Some(refusal) = lanes.refusal().filter(|it| it.is_lasting(now)) {
                break Err((CloseCode::TIMEOUT, refusal.with_advice(Role::Server)));
            }
            let still = if begun { shared.lock().still() } else { idle.look(now) };
            let states = (granted, attendant.known());
            if let Some(why) = self.why_to_go(shared, guest, still, states) {
                break Err(why);
            }
        };
        if let Some(path_history) = attendant.path_history() {
            self.end_history(path_history, peer, lanes);
        }
        if !matches!(outcome, Ok(_) | Err((CloseCode::STORAGE | CloseCode::REFUSED, _))) {
            shared.wind_up();
        }
        shared.stop();
        shared.join();
        outcome.map_err(|(code, reason)| (code, granted.refusal().unwrap_or(reason)))
    }

    /// The transfer that was granted begins. Returns the history of the path that this host sends over.
    fn begin(
        &self,
        request: &dyn GrantedRequest,
        lanes: &dyn Carrier,
        peer: &Peer<'_>,
        sends: bool,
    ) -> Option<Recollection> {
        let Peer { from, local, key_id, .. } = *peer;
        if peer.began.get().is_none() {
            peer.began.set(Some(clock::now()));
            let what = request.describe();
            (self.events)(ServeEvent::Began { client: from, what });
        }
        if !sends {
            lanes.tell_limits();
        }
        let key = PathKey {
            peer: from.ip().to_string(),
            local: local.ip(),
            remote: from.ip(),
            direction: Direction::Pull,
            token: KeyId(key_id).to_string(),
        };
        let history = self.options.history.as_ref().filter(|_| sends);
        history.and_then(|history| Recollection::begin(history, lanes, key))
    }

    /// Keeps what was learnt of the path.
    fn end_history(&self, path: Recollection, peer: &Peer<'_>, lanes: &dyn Carrier) {
        let Peer { from, profile, .. } = *peer;
        let (report, notices) = path.end(profile.profile.name, &lanes.totals());
        let used = format!("{from}: the memory of this path: {}", report.used.name());
        for notice in notices.into_iter().chain([used]) {
            (self.events)(ServeEvent::Notice(notice));
        }
    }

    /// Why a client whose transfer has stood still for so long, or has not begun, has to go.
    fn why_to_go(
        &self,
        shared: &Shared,
        guest: &Guest<'_>,
        still: Duration,
        (granted, Milestones { begun, done, .. }): (&Granted, Milestones),
    ) -> Option<(CloseCode, String)> {
        let patience = self.options.stall_timeout;
        let broken = granted.request().and_then(GrantedRequest::broken);
        if let Some(reason) = broken.filter(|_| !done) {
            return Some((CloseCode::CANCELLED, reason));
        }
        if let Some(gone) = guest.look(still).filter(|_| !done) {
            return Some((CloseCode::BUSY, gone.reason()));
        }
        if !begun && still >= patience && !patience.is_zero() {
            let reason = format!("the client asked for nothing for {} s", patience.as_secs());
            let refused = shared.lock().refused().cloned();
            let refused = refused.map(|refused| (refused.code, refused.reason));
            return Some(refused.unwrap_or((CloseCode::TIMEOUT, reason)));
        }
        let stopping = || (CloseCode::SHUTDOWN, self.options.why_it_stops().into());
        self.stop.is_requested().then(stopping)
    }
}

/// The transfer so far, if there is one.
fn account(
    peer: &Peer<'_>,
    granted: &Granted,
    shared: &Shared,
    lanes: &dyn Carrier,
) -> Option<TransferAccount> {
    let ((action, path), began) = granted.subject().zip(peer.began.get())?;
    let sent = lanes.totals().sending;
    let half = shared.lock();
    let sending = half.sending(sent);
    let bytes = half.transfer().map_or(0, |transfer| transfer.moved(shared.mailboxes.waiting()));
    let time = clock::now() - began;
    let (bottleneck, lost) = (sending.bottleneck, sending.lost);
    let account = TransferAccount::new(KeyId(peer.key_id), *action, path.clone());
    Some(TransferAccount { bytes, time, bottleneck, lost, ..account })
}

/// The connection is about to end. Returns the outcome of the transfer.
fn ended(
    shared: &Arc<Shared>,
    (lanes, control): (&dyn Carrier, &Control),
    granted: &Granted,
    end: End,
) -> Result<Served, (CloseCode, String)> {
    let end = lanes.explain(end, Role::Server);
    if let End::Closed(Closed { code: CloseCode::DONE, .. }) = &end
        && let Some(request) = granted.request()
    {
        request.conclude(shared);
    }
    if let End::Stalled(stalled) = &end {
        // The client learns it before a disk that hangs lets its threads go.
        let reason = stalled.to_string();
        lanes.close(CloseCode::TIMEOUT, &reason);
        control.close(CloseCode::TIMEOUT, &reason);
    }
    served(shared, end, granted.sends())
}

/// How this host sends to the client: under the profile of the connection, which has to be one of
/// those `allowed`, and within its limit.
pub(super) fn sending(
    hello: &Hello,
    allowed: Option<&[String]>,
) -> Result<ChosenProfile, NotPlayed> {
    let parameters = hello.parameters.as_deref().unwrap_or_default().split_whitespace();
    let chosen = Profile::wished(hello.profile.as_deref(), hello.rate, parameters)?;
    let name = chosen.profile.name;
    match allowed {
        Some(allowed) if !allowed.iter().any(|one| one == name) => {
            Err(NotPlayed::Forbidden { name, allowed: allowed.join(", ") })
        }
        _ => Ok(chosen),
    }
}

/// Why the profile that a client chose is not played.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotPlayed {
    /// It cannot be.
    #[error(transparent)]
    Unplayable(#[from] Unplayable),
    /// It is not to be.
    #[error("this server does not let clients choose the profile {name}, only: {allowed}")]
    Forbidden { name: &'static str, allowed: String },
}

/// How a connection ended, for the log.
fn served(shared: &Shared, end: End, sends: bool) -> Result<Served, (CloseCode, String)> {
    let bytes = || shared.lock().transfer().and_then(Transfer::done);
    let all = || Served {
        bytes: bytes().unwrap_or(0),
        failures: shared.failures(),
        skipped: shared.skipped(),
    };
    match end {
        End::Done => Ok(all()),
        // Its RESULT is here: what it did not wait for is for people only.
        End::Closed(closed) if sends && !closed.by_peer && bytes().is_some() => Ok(all()),
        // One that receives knows that it has everything, even where its RESULT was lost.
        End::Closed(closed) if !sends && closed.code == CloseCode::DONE && bytes().is_some() => {
            Ok(all())
        }
        End::Refused(refused) => Err((refused.code, refused.reason)),
        End::Failed(HostFailure::Destination { reason, .. }) => Err((CloseCode::REFUSED, reason)),
        End::Failed(failure) => Err((CloseCode::STORAGE, failure.to_string())),
        End::Stalled(stalled) => Err((CloseCode::TIMEOUT, stalled.to_string())),
        End::Closed(closed) if closed.code == CloseCode::DONE => {
            Err((closed.code, "the client closed the connection before all was done".into()))
        }
        End::Closed(closed) if closed.reason.is_empty() => {
            Err((closed.code, closed.code.to_string()))
        }
        End::Closed(closed) => Err((closed.code, closed.reason)),
    }
}

/// How long is waited for the last words of a client that has closed its control connection.
const PARTING: Duration = Duration::from_secs(1);
/// Time since data moved in which a client that does not know it may still turn to TCP: a packet of the
/// base size counts as too large when three of it were lost, a probe timeout apart.
const JOINING: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::server::carriers::INITIAL_RTT;
    use longhaul_carriers::udp::path;
    use longhaul_units::Rate;
    use longhaul_wire::{Bottleneck, Cipher, Protect};

    fn hello(profile: &str, rate: Option<Rate>) -> Hello {
        Hello {
            versions: vec![1],
            key_id: [0; 8],
            proof: [0; 32],
            protect: Protect::Aead,
            ciphers: vec![Cipher::Aes128Gcm],
            carrier: wire::Carrier::Udp,
            lanes: 1,
            implementation: None,
            receive_limits: None,
            profile: Some(profile.into()),
            rate,
            parameters: None,
        }
    }

    #[test]
    fn the_server_sends_within_the_clients_limit_and_under_its_profile() {
        let limit = Rate::from_mbps(3);
        for (wished, rate) in [
            // Start-up begins faster than that.
            ("auto", Rate::from_bps(8_000)),
            ("fixed", limit),
            ("rbudp", limit),
        ] {
            let chosen = sending(&hello(wished, Some(rate)), None).unwrap();
            assert_eq!(chosen.profile.name, wished);
            let path = path(&chosen, INITIAL_RTT);
            assert_eq!(path.allowed(), (rate, Bottleneck::UserLimit));
        }
    }

    #[test]
    fn a_profile_that_the_server_cannot_play_is_refused_by_name() {
        let refused = |name| sending(&hello(name, None), None).unwrap_err().to_string();
        assert!(refused("of another version").contains("no profile of another version"));
        assert!(refused("rbudp").contains("profile rbudp"));
        let strange = Hello { parameters: Some("warp=9".into()), ..hello("auto", None) };
        assert!(
            sending(&strange, None).unwrap_err().to_string().contains("auto has no parameter warp")
        );
        let unnamed = Hello { profile: None, ..hello("", None) };
        assert_eq!(sending(&unnamed, None).unwrap().profile.name, "auto");
    }

    #[test]
    fn a_profile_that_the_server_does_not_allow_is_refused_with_those_that_it_does() {
        let allowed = ["auto".to_owned(), "cubic".to_owned()];
        let refused = sending(&hello("unlimited", None), Some(&allowed)).unwrap_err().to_string();
        assert!(
            refused.contains("unlimited") && refused.contains("only: auto, cubic"),
            "{refused}"
        );
        assert!(sending(&hello("cubic", None), Some(&allowed)).is_ok());
        // Who names none chooses the default.
        let unnamed = Hello { profile: None, ..hello("", None) };
        assert!(sending(&unnamed, Some(&allowed[1..])).is_err());
    }
}
