//! A web server of the suite's own, which answers whatever a test makes it answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::tls::{Identity, Link};

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method and path.
    pub what: String,
    pub head: String,
    pub body: Vec<u8>,
}

/// Answers, or does something else to the connection.
pub type Answer = Box<dyn Fn(&Asked, &mut dyn Write) + Send + Sync>;

/// It serves until it is dropped.
pub struct WebServer {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WebServer {
    pub fn start(answer: Answer) -> Self {
        Self::start_at("127.0.0.1:0", None, answer)
    }

    /// In TLS if it has an `identity`.
    pub fn start_at(listen: &str, identity: Option<Identity>, answer: Answer) -> Self {
        let listener = TcpListener::bind(listen).unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, over) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default());
        let (log, ended, answer) = (asked.clone(), over.clone(), Arc::new(answer));
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (log, answer, identity) = (log.clone(), answer.clone(), identity.clone());
                thread::spawn(move || {
                    let link = match identity {
                        Some(identity) => Link::server(stream, &identity).ok(),
                        None => Some(Link::Bare(stream)),
                    };
                    let Some(mut link) = link else { return };
                    let Some(asked) = read(&mut link) else { return };
                    log.lock().unwrap().push(asked.clone());
                    answer(&asked, &mut link);
                });
            }
        });
        Self { address, asked, over, thread: Some(thread) }
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A whole request, unless the connection ends before.
fn read(link: &mut Link) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let mut more = |bytes: &mut Vec<u8>| {
        let length = link.read(&mut piece).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&piece[..length]);
        Some(())
    };
    let end = loop {
        match bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(end) => break end,
            None => more(&mut bytes)?,
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
    });
    let body = end + 4;
    while bytes.len() < body + length.unwrap_or(0) {
        more(&mut bytes)?;
    }
    let what = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    Some(Asked { what, head, body: bytes[body..].to_vec() })
}

/// Sends an answer in JSON, as far as the client reads it.
pub fn send(to: &mut dyn Write, status: u16, json: &serde_json::Value) {
    let text = json.to_string();
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        text.len()
    );
    let _ = to.write_all(head.as_bytes()).and_then(|()| to.write_all(text.as_bytes()));
    let _ = to.flush();
}
