//! The disk's answers to the kernel.

use longhaul_sys::sync::lock;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::head::Head;
use super::volume::{Contents, Owner, VALID, Volume};

/// A volume behind a head that reads and writes at its pace.
pub(super) struct Service {
    pub volume: Mutex<Volume>,
    pub head: Arc<Head>,
}

impl Service {
    fn volume(&self) -> MutexGuard<'_, Volume> {
        lock(&self.volume)
    }

    fn make(
        &self,
        request: &Request,
        folder: INodeNo,
        name: &OsStr,
        contents: Contents,
        permissions: u32,
    ) -> Result<FileAttr, Errno> {
        let permissions = (permissions & 0o7777) as u16;
        let owner = Owner { user: request.uid(), group: request.gid(), permissions };
        self.volume().make(folder, name, contents, owner)
    }
}

impl Filesystem for Service {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.volume().look_up(parent, name));
    }

    fn forget(&self, _: &Request, node: INodeNo, times: u64) {
        self.volume().forget(node, times);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(reply, self.volume().attr(node));
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut volume = self.volume();
        let change = |volume: &mut Volume| {
            if let Some(size) = size {
                volume.resize(node, size)?;
            }
            let attr = volume.attr_mut(node)?;
            attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
            attr.uid = user.unwrap_or(attr.uid);
            attr.gid = group.unwrap_or(attr.gid);
            attr.atime = accessed.map_or(attr.atime, time);
            attr.mtime = modified.map_or(attr.mtime, time);
            Ok(*attr)
        };
        attributes(reply, change(&mut volume));
    }

    fn readlink(&self, _: &Request, link: INodeNo, reply: ReplyData) {
        match self.volume().target(link) {
            Ok(target) => reply.data(target),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let empty = Contents::Folder(Default::default());
        entry(reply, self.make(request, parent, name, empty, mode & !umask));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.volume().remove(parent, name, false));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.volume().remove(parent, name, true));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = Contents::Link(target.as_os_str().as_bytes().to_owned());
        entry(reply, self.make(request, parent, name, target, 0o777));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let replace = flags.is_empty();
        done(reply, self.volume().rename((parent, name), (new_parent, new_name), replace));
    }

    fn link(&self, _: &Request, file: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.volume().link(file, parent, name));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(request, parent, name, Contents::File(Vec::new()), mode & !umask) {
            Ok(attr) => reply.created(&VALID, &attr, GENERATION, HANDLE, FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let there = self.volume().read(file, offset, len.into()).map_or(0, <[u8]>::len);
        self.head.pass(there as u64, || match self.volume().read(file, offset, len.into()) {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.head.pass(data.len() as u64, || match self.volume().write(file, offset, data) {
            // The kernel asks for a few megabytes at most.
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let mut volume = self.volume();
        let end = offset.saturating_add(len);
        done(reply, volume.attr(file).and_then(|attr| volume.resize(file, end.max(attr.size))));
    }

    // What was written is on the disk.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        folder: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = match self.volume().list(folder) {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (node, kind, name)) in names.into_iter().enumerate().skip(skip) {
            if reply.add(node, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (capacity, free, nodes) = self.volume().room();
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        reply.statfs(blocks(capacity), blocks(free), blocks(free), nodes, MANY, BLOCK, 255, BLOCK);
    }
}

fn entry(reply: ReplyEntry, made: Result<FileAttr, Errno>) {
    match made {
        Ok(attr) => reply.entry(&VALID, &attr, GENERATION),
        Err(error) => reply.error(error),
    }
}

fn attributes(reply: ReplyAttr, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attr) => reply.attr(&VALID, &attr),
        Err(error) => reply.error(error),
    }
}

fn done(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn time(given: TimeOrNow) -> SystemTime {
    match given {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

/// Numbers of nodes are never given twice.
const GENERATION: Generation = Generation(0);
/// Files need no handle but their number.
const HANDLE: FileHandle = FileHandle(0);
const BLOCK: u32 = 4096;
/// Files that may still be made.
const MANY: u64 = 1 << 32;
