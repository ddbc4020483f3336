//! Pipes at a server: which ends clients may have.

use std::sync::Arc;

use longhaul_connection::Wish;
use longhaul_units::Duration;
use longhaul_wire::{CloseCode, PipeRole, Refused};

use super::rooms::Pipes;
use crate::api::ServeOptions;
use crate::request::{Asked, RequestHandler};
use crate::shared::refuse;

/// Joins the pipes of clients.
pub(crate) struct ServedPipes {
    pipes: Arc<Pipes>,
    read: bool,
    write: bool,
    /// How long a pipe may stand still; zero is for ever.
    patience: Duration,
}

impl ServedPipes {
    pub fn new(options: &ServeOptions) -> Self {
        let (read, write) = (options.allow_read, options.allow_write);
        Self { pipes: Arc::default(), read, write, patience: options.stall_timeout }
    }
}

impl RequestHandler for ServedPipes {
    fn accept(&self, asked: &Asked<'_>) -> Option<Result<(), Refused>> {
        let Wish::Pipe(request) = asked.wish else { return None };
        let refused = |what| Err(refuse(CloseCode::REFUSED, what));
        Some(match request.role {
            PipeRole::Send if !self.write => refused("this server does not let anyone send to it"),
            PipeRole::Receive if !self.read => {
                refused("this server does not let anyone receive from it")
            }
            _ => self.pipes.enter(request, asked, self.patience),
        })
    }
}
