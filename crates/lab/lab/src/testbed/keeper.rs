use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use longhaul_sys::host::pin_thread;
use longhaul_sys::netns::{Namespace, die_with_starter};

/// A thread inside a namespace that starts commands there. It lives as long as the testbed, so that
/// they can be tied to its life.
#[derive(Debug)]
pub(super) struct Keeper {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

type Order = (Command, Sender<io::Result<Child>>);

impl Keeper {
    /// Starts it on the host `name`, with `hosts` in place of /etc/hosts, on the cores given, if any.
    pub(super) fn new(
        namespace: &Namespace,
        name: &str,
        hosts: &Path,
        cores: &[usize],
    ) -> io::Result<Self> {
        let (orders, received) = channel();
        let (ready, entered) = channel();
        let namespace = namespace.try_clone()?;
        let (name, hosts, cores) = (name.to_owned(), hosts.to_owned(), cores.to_owned());
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || {
            let inside = pin(&cores).and_then(|()| namespace.enter_as_host(&name, &hosts));
            let failed = inside.is_err();
            // Nobody listens only when the other end has given up already.
            let _ = ready.send(inside);
            if !failed {
                serve(received);
            }
        })?;
        let keeper = Self { orders: Some(orders), thread: Some(thread) };
        entered.recv().map_err(|_| ended())??;
        Ok(keeper)
    }

    pub(super) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, answered) = channel();
        let orders = self.orders.as_ref().ok_or_else(ended)?;
        orders.send((command, answer)).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())?
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The caller that gave the order has learnt of a panic there.
            let _ = thread.join();
        }
    }
}

/// Keeps the calling thread, and what it starts, on these cores; anywhere when there are none.
pub(super) fn pin(cores: &[usize]) -> io::Result<()> {
    if cores.is_empty() { Ok(()) } else { pin_thread(cores) }
}

fn serve(orders: Receiver<Order>) {
    for (mut command, answer) in orders {
        die_with_starter(&mut command);
        // A caller that gives up while waiting has no use for the answer.
        let _ = answer.send(command.spawn());
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that starts commands has ended")
}
