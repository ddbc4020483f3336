use longhaul_relay::{Answer, Received, Request};
use longhaul_sys::sync::lock;

use super::{Arrival, Entered, Entry};

/// A client or gateway that speaks docs/relay.md.
#[derive(Debug, Default)]
pub struct HeaderEntry {
    request: Option<Box<Request>>,
}

impl Entry for HeaderEntry {
    fn receive(&mut self, bytes: &[u8], client: &mut Arrival<'_>) -> Entered {
        let received = {
            let mut gatekeeper = lock(client.gatekeeper);
            gatekeeper.receive(bytes, &client.local, client.clock)
        };
        match received {
            Received::Incomplete => Entered::Incomplete { used: 0, reply: Vec::new() },
            Received::Refused(refusal) => {
                let why = match &*refusal.answer.reason {
                    "" => refusal.answer.status.to_string(),
                    reason => format!("{}: {reason}", refusal.answer.status),
                };
                Entered::Refused { reply: refusal.bytes, why }
            }
            Received::Header(request) => {
                let mut route = Box::new(request.header.route.clone());
                let speaker = format!("{}@{}", request.key_id, client.peer.ip());
                let is_neighbour = client.neighbours.contains(&request.key_id);
                // A neighbour names the client that it let in. A client could name anybody.
                let named = match &*route.client {
                    name if is_neighbour && !name.is_empty() => format!("{name} by {speaker}"),
                    _ => {
                        route.client = speaker.clone();
                        speaker
                    }
                };
                route.origin = route.origin.filter(|_| is_neighbour).or(Some(client.peer));
                let used = request.length;
                self.request = Some(request);
                Entered::Asked { used, route, client: named }
            }
        }
    }

    fn is_led(&self) -> bool {
        false
    }

    fn answer(&self, answer: &Answer) -> Vec<u8> {
        self.request.as_ref().map(|request| request.sign(answer)).unwrap_or_default()
    }
}
