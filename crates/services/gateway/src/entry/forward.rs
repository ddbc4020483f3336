use longhaul_relay::{Answer, Route, Target};

use super::{Arrival, Entered, Entry};

/// A port whose clients all go to one target, and need not know of gateways.
#[derive(Debug)]
pub struct Forward {
    target: Target,
}

impl Forward {
    /// An entry to `target`.
    pub const fn new(target: Target) -> Self {
        Self { target }
    }
}

impl Entry for Forward {
    fn receive(&mut self, _bytes: &[u8], client: &mut Arrival<'_>) -> Entered {
        let name = client.peer.ip().to_string();
        let route = Route {
            client: name.clone(),
            origin: Some(client.peer),
            ..Route::new(client.random, self.target.clone())
        };
        Entered::Asked { used: 0, route: Box::new(route), client: name }
    }

    fn answer(&self, _answer: &Answer) -> Vec<u8> {
        Vec::new()
    }
}
