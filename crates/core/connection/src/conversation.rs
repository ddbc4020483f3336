//! Stream 0: who may say what, in which order, and when nothing more is to be said.

use longhaul_wire::{
    DecodeError, Direction, Message, MessageReader, PipeRequest, PipeRole, Refused, Request,
    SinkMessage, SourceMessage,
};

/// What the two ends of a connection say on stream 0, as one of them sees it (docs/protocol.md,
/// sections 7.2 and 7.5).
///
/// A client begins with its request, which decides who has the data, and goes on without waiting
/// for an answer. A server grants the request, or refuses it and passes over what the client says
/// until it knows. The messages of source and sink are not looked into.
///
/// - *In*: [`handle_bytes`](Self::handle_bytes), then [`poll_heard`](Self::poll_heard) until `None`;
///   [`handle_end`](Self::handle_end).
/// - *Answers of a server*: [`grant`](Self::grant), [`refuse`](Self::refuse).
/// - *Out*: [`poll_first`](Self::poll_first), before anything that the source or sink says; nothing
///   more once [`has_said_all`](Self::has_said_all).
#[derive(Debug)]
pub struct Conversation {
    reader: MessageReader,
    stage: Stage,
    /// REQUEST, PIPE or REFUSED, until it is taken.
    first: Option<Message>,
    said_all: bool,
    heard_all: bool,
}

/// What this end does in a transfer.
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

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A copy.
    Copy(Request),
    /// An end of a pipe.
    Pipe(PipeRequest),
}

/// A message that may come now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// At a server, once: to be granted or refused before the next is polled.
    Wish(Wish),
    /// At a client, once: the server grants nothing.
    Refused(Refused),
    /// For the sink, which this end is.
    Source(SourceMessage),
    /// For the source, which this end is.
    Sink(SinkMessage),
}

/// How the peer broke the rules of the conversation.
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
        });
        Self { first, ..Self::at(Stage::Asking(wish.part())) }
    }

    /// That of a server.
    pub fn server() -> Self {
        Self::at(Stage::Awaited)
    }

    fn at(stage: Stage) -> Self {
        Self { reader: MessageReader::new(), stage, first: None, said_all: false, heard_all: false }
    }

    /// The part that this end plays: at a server once it has granted the request.
    pub fn part(&self) -> Option<Part> {
        match self.stage {
            Stage::Granted(part) | Stage::Asking(part) => Some(part),
            Stage::Awaited | Stage::Asked(_) | Stage::Refusing | Stage::Refused => None,
        }
    }

    /// Whether this end asked.
    pub fn is_client(&self) -> bool {
        matches!(self.stage, Stage::Asking(_) | Stage::Refused)
    }

    /// Takes in bytes of the stream, in order.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.reader.push(bytes);
    }

    /// The next message that the peer said.
    ///
    /// # Errors
    /// The peer broke the rules: the connection is to be closed for that.
    pub fn poll_heard(&mut self) -> Result<Option<Heard>, Misspoken> {
        while let Some(message) = self.reader.next_message()? {
            let heard = match (self.stage, message) {
                (Stage::Awaited, Message::Request(request)) => self.asked(Wish::Copy(request)),
                (Stage::Awaited, Message::Pipe(request)) => self.asked(Wish::Pipe(request)),
                // It cannot know yet.
                (Stage::Refusing, Message::Source(_) | Message::Sink(_)) => continue,
                (Stage::Asking(_), Message::Refused(refused)) => {
                    self.stage = Stage::Refused;
                    Heard::Refused(refused)
                }
                (_, Message::Source(said)) if self.part() == Some(Part::Sink) => {
                    Heard::Source(said)
                }
                (_, Message::Sink(said)) if self.part() == Some(Part::Source) => Heard::Sink(said),
                _ => return Err(Misspoken::OutOfTurn),
            };
            return Ok(Some(heard));
        }
        Ok(None)
    }

    fn asked(&mut self, wish: Wish) -> Heard {
        self.stage = Stage::Asked(wish.part().other());
        Heard::Wish(wish)
    }

    /// The peer says nothing more, and everything was taken in.
    ///
    /// # Errors
    /// It stopped in the middle of a message.
    pub fn handle_end(&mut self) -> Result<(), Misspoken> {
        if !self.reader.is_between_messages() {
            return Err(Misspoken::CutShort);
        }
        self.heard_all = true;
        Ok(())
    }

    /// The server does what was asked. Without a request to be answered this is of no effect.
    pub fn grant(&mut self) {
        if let Stage::Asked(part) = self.stage {
            self.stage = Stage::Granted(part);
        }
    }

    /// The server does not do what was asked, and says nothing more. Without a request to be
    /// answered this is of no effect.
    pub fn refuse(&mut self, refused: Refused) {
        if let Stage::Asked(_) = self.stage {
            self.stage = Stage::Refusing;
            self.first = Some(Message::Refused(refused));
            self.said_all = true;
        }
    }

    /// What goes out before everything else, once.
    #[must_use]
    pub fn poll_first(&mut self) -> Option<Message> {
        self.first.take()
    }

    /// Nothing follows what this end has said.
    pub fn finish(&mut self) {
        self.said_all = true;
    }

    /// Whether this end has nothing more to say: what it said last was taken, too.
    pub fn has_said_all(&self) -> bool {
        self.said_all && self.first.is_none()
    }

    /// Whether a client, whose source or sink is done, may close. A source is done when it has heard
    /// the result; a sink has said it, and knows that it was read when the source ends its half.
    pub fn may_close(&self) -> bool {
        match self.part() {
            Some(Part::Source) => true,
            Some(Part::Sink) => self.heard_all,
            None => false,
        }
    }
}

impl Part {
    /// What the peer plays.
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
            Self::Copy(_) | Self::Pipe(_) => Part::Sink,
        }
    }
}

#[cfg(test)]
mod tests;
