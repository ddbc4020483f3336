//! A service on a port of its own, in this process.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use longhaul_circuits::client::{Access, Client};
use longhaul_circuits::server::{Server, Tokens};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::{Config, Role};
use longhaul_session::Token;

/// Ends when dropped.
pub struct Site {
    pub address: SocketAddr,
    pub service: Service,
    server: Option<Server>,
}

/// The tokens of [`Site::start`].
pub fn token(number: u8) -> Token {
    Token::from_random([number; 16])
}

pub const OPERATOR: u8 = 1;
pub const ASTRO: u8 = 2;
pub const BIO: u8 = 3;
pub const VIEWER: u8 = 4;

/// Two links in a row and one beside them, two projects.
pub fn config(store: &str) -> Config {
    let text = format!(
        r#"
        store = "{store}"
        quote = "2s"
        lease = "1s"
        [limits]
        requests_per_second = 100000
        requests_at_once = 100000
        [rules]
        horizon = "30d"
        [[link]]
        name = "a-b"
        from = "a"
        to = "b"
        capacity = "10Gbps"
        price_per_tb = 2
        [[link]]
        name = "b-c"
        from = "b"
        to = "c"
        capacity = "10Gbps"
        [[link]]
        name = "a-c"
        from = "a"
        to = "c"
        capacity = "1Gbps"
        [[project]]
        name = "astro"
        [[project]]
        name = "bio"
        share = 0.001
        horizon = "1d"
        max_rate = "5Gbps"
        "#
    );
    Config::parse(&text).unwrap()
}

impl Site {
    pub fn of_file(path: &Path) -> Self {
        Self::start(config(&path.display().to_string()))
    }

    pub fn start(config: Config) -> Self {
        let service = Service::start(config, Box::new(|text| println!("notice: {text}"))).unwrap();
        let mut tokens = Tokens::default();
        tokens.insert(&token(OPERATOR), "net", Role::Operator);
        tokens.insert(&token(ASTRO), "astro", Role::User);
        tokens.insert(&token(BIO), "bio", Role::User);
        tokens.insert(&token(VIEWER), "astro", Role::Viewer);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, service.clone(), tokens).unwrap();
        Self { address: server.address(), service, server: Some(server) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn client(&self, token_number: u8) -> Client {
        Client::new(&self.url(), &token(token_number).to_string(), &Access::default()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().unwrap();
        }
        self.service.stop();
    }
}
