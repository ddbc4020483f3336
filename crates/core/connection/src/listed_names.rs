//! Names of a list, on their way from the sink, which is the client, to the source.

use alloc::sync::Arc;
use alloc::vec::Vec;

use longhaul_objects::{NameList, NameListError};
use longhaul_wire::{EntryPath, ListedName, SinkMessage};

/// The names that a client still has to send.
#[derive(Debug)]
pub(crate) struct NamesOut {
    list: Arc<NameList>,
    next: usize,
    ended: bool,
}

/// The names that a server still waits for, and those that have come.
#[derive(Debug, Default)]
pub(crate) struct NamesIn {
    list: NameList,
    ended: bool,
}

impl NamesOut {
    pub fn new(list: Arc<NameList>) -> Self {
        Self { list, next: 0, ended: false }
    }

    /// The next message; all of them go before any other of the sink.
    pub fn poll(&mut self) -> Option<SinkMessage> {
        if self.ended {
            return None;
        }
        let (mut names, mut bytes) = (Vec::new(), 0);
        while bytes < MESSAGE_BYTES
            && let Some(name) = self.list.get(self.next)
        {
            bytes += name.len() + 1;
            self.next += 1;
            let follows = self.list.follows(name);
            // A list has no others.
            let path = EntryPath::new(name.to_vec());
            names.extend(path.map(|path| ListedName { path, follows }));
        }
        self.ended = self.next == self.list.len();
        Some(SinkMessage::Names { names, is_last: self.ended })
    }

    pub fn sent(&self) -> u64 {
        self.next as u64
    }
}

impl NamesIn {
    pub fn handle(&mut self, names: &[ListedName], is_last: bool) -> Result<(), NameListError> {
        if self.ended {
            return Err(NameListError::Unasked);
        }
        names.iter().try_for_each(|name| self.list.push(name))?;
        self.ended = is_last;
        Ok(())
    }

    /// The list once all of it has come.
    pub fn take(&mut self) -> Option<NameList> {
        self.ended.then(|| core::mem::take(&mut self.list))
    }

    pub fn received(&self) -> u64 {
        self.list.len() as u64
    }
}

/// Bytes of names in a message, about.
const MESSAGE_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn a_list_arrives_in_parts_and_once() {
        let slash = |number| if number % 3 == 0 { "/" } else { "" };
        let names = (0..20_000).map(|number| format!("d/{number}{}", slash(number)).into_bytes());
        let list = Arc::new(NameList::new(names).unwrap());
        let (mut out, mut here) = (NamesOut::new(list.clone()), NamesIn::default());
        let mut messages = 0;
        while let Some(message) = out.poll() {
            let SinkMessage::Names { names, is_last } = message else { unreachable!() };
            assert!(here.take().is_none());
            here.handle(&names, is_last).unwrap();
            messages += 1;
        }
        assert!(messages > 1);
        assert_eq!(here.take().as_ref(), Some(&*list));
        assert_eq!(here.handle(&[], true), Err(NameListError::Unasked), "behind the last");
        let mut empty = NamesOut::new(Arc::default());
        assert!(matches!(empty.poll(), Some(SinkMessage::Names { is_last: true, .. })));
        assert_eq!(empty.poll(), None);
    }
}
