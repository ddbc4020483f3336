use longhaul_relay::{Answer, Route};

use super::{Arrival, Entered, Entry};

/// A port whose clients all go to one target, and need not know of gateways.
#[derive(Debug)]
pub struct Forward {
    route: Route,
}

impl Forward {
    /// An entry to `route`, whose session id and client are not set yet.
    pub const fn new(route: Route) -> Self {
        Self { route }
    }
}

impl Entry for Forward {
    fn receive(&mut self, _bytes: &[u8], client: &mut Arrival<'_>) -> Entered {
        let name = client.peer.ip().to_string();
        let route = Route {
            session: client.random,
            client: name.clone(),
            origin: Some(client.peer),
            ..self.route.clone()
        };
        Entered::Asked { used: 0, route: Box::new(route), client: name }
    }

    fn answer(&self, _answer: &Answer) -> Vec<u8> {
        Vec::new()
    }
}
