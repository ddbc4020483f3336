//! A service on a port of its own, in this process.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::net::SocketAddr;
use std::path::Path;

use longhaul_circuits::client::Client;
use longhaul_circuits::server::{self, Doors};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::{Config, Role};
use longhaul_session::Token;

/// Ends when dropped.
pub struct Site {
    pub address: SocketAddr,
    pub service: Service,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
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
        let mut doors = Doors::default();
        doors.open(&token(OPERATOR), "net", Role::Operator);
        doors.open(&token(ASTRO), "astro", Role::User);
        doors.open(&token(BIO), "bio", Role::User);
        doors.open(&token(VIEWER), "astro", Role::Viewer);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = service.clone();
        let thread = std::thread::spawn(move || {
            let stop = async move { drop(stopped.await) };
            runtime.block_on(server::serve(listener, served, doors, stop)).unwrap();
        });
        Self { address, service, stop: Some(stop), thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn client(&self, token_number: u8) -> Client {
        Client::new(&self.url(), &token(token_number).to_string()).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.service.stop();
    }
}
