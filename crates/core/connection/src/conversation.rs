//! Stream 0: the messages that each end may send, their order, and their end.

use alloc::vec::Vec;
use core::slice;

use longhaul_wire::{
    AnswerMessage, DecodeError, Direction, LeftoversRequest, ListRequest, Message, MessageReader,
    PipeRequest, PipeRole, Refused, Request, SinkMessage, SourceMessage, VerifyRequest,
};

/// The messages of the two ends of a connection on stream 0, as one of them sees them
/// (docs/protocol.md, sections 7.2, 7.5, 7.8, 7.11 and 7.12).
///
/// A client begins with its request, which decides who has the data, and goes on without waiting
/// for an answer. A server grants the request, or refuses it and ignores the client's messages
/// until the client knows. The messages of source and sink are not looked into.
///
/// - *In*: [`handle_bytes`](Self::handle_bytes), then [`poll_received`](Self::poll_received) until `None`;
///   [`handle_end`](Self::handle_end).
/// - *Answers of a server*: [`grant`](Self::grant), [`refuse`](Self::refuse).
/// - *Out*: [`poll_first`](Self::poll_first), before any message of source or sink; nothing
///   more once [`has_sent_all`](Self::has_sent_all).
#[derive(Debug)]
pub struct Conversation {
    reader: MessageReader,
    stage: Stage,
    /// REQUEST, PIPE, LIST, VERIFY, LEFTOVERS or REFUSED, until it is taken.
    first: Option<Message>,
    sent_all: bool,
    received_all: bool,
}

/// The part that an end plays in a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It has the data.
    Source,
    /// It gets the data.
    Sink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A server waits for the request.
    Awaited,
    /// A server has it, which makes it play this part, and has not answered.
    Asked(Part),
    /// A server, since it granted the request.
    Granted(Part),
    /// A server, since it refused.
    Refusing,
    /// A client, from the start.
    Asking(Part),
    /// A client that was refused.
    Refused,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A copy.
    Copy(Request),
    /// An end of a pipe.
    Pipe(PipeRequest),
    /// A listing.
    List(ListRequest),
    /// Hashes of files.
    Verify(VerifyRequest),
    /// Interrupted copies.
    Leftovers(LeftoversRequest),
}

impl Wish {
    /// Its paths at the server; those of a pipe are none.
    pub fn paths(&self) -> &[Vec<u8>] {
        match self {
            Self::Copy(request) => &request.paths,
            Self::Pipe(_) => &[],
            Self::List(request) => slice::from_ref(&request.path),
            Self::Verify(request) => slice::from_ref(&request.path),
            Self::Leftovers(request) => slice::from_ref(&request.path),
        }
    }
}

/// A message that the peer may send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// At a server, once: to be granted or refused before the next is polled.
    Wish(Wish),
    /// At a client, once: the server grants nothing.
    Refused(Refused),
    /// For the sink, which this end is.
    Source(SourceMessage),
    /// For the source, which this end is.
    Sink(SinkMessage),
    /// For the end that asked, which is this one.
    Answer(AnswerMessage),
    /// For the end that answers, which is this one.
    Questions(VerifyRequest),
}

/// A breach of the conversation's rules by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misspoken {
    /// It is no message.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    /// It is not for this end, or not now.
    #[error("a message that is not for this side, or not now")]
    OutOfTurn,
    /// The stream ended within a message.
    #[error("the messages end in the middle of one")]
    CutShort,
}

impl Conversation {
    /// That of a client, which begins with `wish`.
    pub fn client(wish: &Wish) -> Self {
        let first = Some(match wish.clone() {
            Wish::Copy(request) => Message::Request(request),
            Wish::Pipe(request) => Message::Pipe(request),
            Wish::List(request) => Message::List(request),
            Wish::Verify(request) => Message::Verify(request),
            Wish::Leftovers(request) => Message::Leftovers(request),
        });
        Self { first, ..Self::at(Stage::Asking(wish.part())) }
    }

    /// That of a server.
    pub fn server() -> Self {
        Self::at(Stage::Awaited)
    }

    fn at(stage: Stage) -> Self {
        Self {
            reader: MessageReader::new(),
            stage,
            first: None,
            sent_all: false,
            received_all: false,
        }
    }

    /// The part that this end plays: at a server once it has granted the request.
    pub fn part(&self) -> Option<Part> {
        match self.stage {
            Stage::Granted(part) | Stage::Asking(part) => Some(part),
            Stage::Awaited | Stage::Asked(_) | Stage::Refusing | Stage::Refused => None,
        }
    }

    /// True at the end that asked.
    pub fn is_client(&self) -> bool {
        matches!(self.stage, Stage::Asking(_) | Stage::Refused)
    }

    /// Takes in bytes of the stream, in order.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.reader.push(bytes);
    }

    /// The peer's next message.
    ///
    /// # Errors
    /// The peer broke the rules: the connection is to be closed for that.
    pub fn poll_received(&mut self) -> Result<Option<Received>, Misspoken> {
        while let Some(message) = self.reader.next_message()? {
            let received = match (self.stage, message) {
                (Stage::Awaited, Message::Request(request)) => self.asked(Wish::Copy(request)),
                (Stage::Awaited, Message::Pipe(request)) => self.asked(Wish::Pipe(request)),
                (Stage::Awaited, Message::List(request)) => self.asked(Wish::List(request)),
                (Stage::Awaited, Message::Verify(request)) => self.asked(Wish::Verify(request)),
                (Stage::Awaited, Message::Leftovers(request)) => {
                    self.asked(Wish::Leftovers(request))
                }
                // It cannot know yet.
                (Stage::Refusing, Message::Source(_) | Message::Sink(_) | Message::Verify(_)) => {
                    continue;
                }
                (Stage::Asking(_), Message::Refused(refused)) => {
                    self.stage = Stage::Refused;
                    Received::Refused(refused)
                }
                (_, Message::Source(message)) if self.part() == Some(Part::Sink) => {
                    Received::Source(message)
                }
                (_, Message::Sink(message)) if self.part() == Some(Part::Source) => {
                    Received::Sink(message)
                }
                (_, Message::Answer(message)) if self.part() == Some(Part::Sink) => {
                    Received::Answer(message)
                }
                (Stage::Granted(Part::Source), Message::Verify(more)) => Received::Questions(more),
                _ => return Err(Misspoken::OutOfTurn),
            };
            return Ok(Some(received));
        }
        Ok(None)
    }

    fn asked(&mut self, wish: Wish) -> Received {
        self.stage = Stage::Asked(wish.part().other());
        Received::Wish(wish)
    }

    /// The peer sends no more messages, and all were taken in.
    ///
    /// # Errors
    /// It stopped in the middle of a message.
    pub fn handle_end(&mut self) -> Result<(), Misspoken> {
        if !self.reader.is_between_messages() {
            return Err(Misspoken::CutShort);
        }
        self.received_all = true;
        Ok(())
    }

    /// The server does what was asked. Without a request to be answered this is of no effect.
    pub fn grant(&mut self) {
        if let Stage::Asked(part) = self.stage {
            self.stage = Stage::Granted(part);
        }
    }

    /// The server does not do what was asked, and sends no more messages. Without a request to be
    /// answered this is of no effect.
    pub fn refuse(&mut self, refused: Refused) {
        if let Stage::Asked(_) = self.stage {
            self.stage = Stage::Refusing;
            self.first = Some(Message::Refused(refused));
            self.sent_all = true;
        }
    }

    /// The message that goes out before all others, once.
    #[must_use]
    pub fn poll_first(&mut self) -> Option<Message> {
        self.first.take()
    }

    /// This end has sent its last message.
    pub fn finish(&mut self) {
        self.sent_all = true;
    }

    /// True if this end has no more messages, and its last one was taken.
    pub fn has_sent_all(&self) -> bool {
        self.sent_all && self.first.is_none()
    }

    /// True if a client, whose source or sink is done, may close. A source is done when it has
    /// received the result. A sink has sent it, and knows that it was read when the source ends its half.
    pub fn may_close(&self) -> bool {
        match self.part() {
            Some(Part::Source) => true,
            Some(Part::Sink) => self.received_all,
            None => false,
        }
    }
}

impl Part {
    /// The peer's part.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Source => Self::Sink,
            Self::Sink => Self::Source,
        }
    }
}

impl Wish {
    /// The part of the client.
    pub fn part(&self) -> Part {
        match self {
            Self::Copy(Request { direction: Direction::Push, .. })
            | Self::Pipe(PipeRequest { role: PipeRole::Send, .. }) => Part::Source,
            Self::Copy(_)
            | Self::Pipe(_)
            | Self::List(_)
            | Self::Verify(_)
            | Self::Leftovers(_) => Part::Sink,
        }
    }
}

#[cfg(test)]
mod tests;
