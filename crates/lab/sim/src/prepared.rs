//! Earlier copies: of somebody else, who pushes under the same identities, with other contents, and leaves;
//! and whole ones of the same tree.

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::storage::{self, Storage};
use longhaul_objects::{
    Belief, Fsync, GroupTask, ResumeState, Sink, SinkConfig, Source, TagKey, Verdict, record,
};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{EntryKind, KeptAttributes};

use crate::draw::Draw;
use crate::environment::Disk;
use crate::files::{Files, Links, Version, foreign};
use crate::scenario::Scenario;
use crate::sink::TRANSFER;

/// Lets him do it: how far he comes is drawn, and how he leaves.
pub(crate) fn prepare(scenario: &Scenario, files: &Files, disk: &mut Disk) {
    let draw = &mut Draw::new(scenario.seed, STREAM);
    disk.runs += 1;
    let boot = [disk.boot; 16];
    let fsync = if scenario.fsync { Fsync::End } else { Fsync::Never { boot } };
    let resume = record::replay(&disk.storage.read_record(), &TRANSFER, fsync);
    let attributes = KeptAttributes::ALL;
    let config = SinkConfig {
        fsync,
        transfer: TRANSFER,
        nonce: [99; 16],
        attributes,
        ..SinkConfig::default()
    };
    let mut sink = Sink::new(config, resume);
    // Tags, of his own secret, or none.
    let mut source = Source::new(match draw.one_in(2) {
        true => Belief::Tags(TagKey::new(&[99; 32], b"server")),
        false => Belief::Nothing,
    });
    let items = push_all(&mut source, files);
    let mut now = Instant::ZERO;
    let mut groups = draw.below(scenario.bytes / (1 << 19) + 4);
    let last = draw.below(60);
    // A while after its last group he is gone.
    for _ in 0..groups + last {
        exchange(&mut source, &mut sink, disk, now);
        now += Duration::from_millis(draw.below(1_500));
        if source.is_done() {
            break;
        }
        let task = if groups > 0 { source.next_group(sink.credit()) } else { None };
        let Some(task) = task else { continue };
        groups -= 1;
        let mut data = contents(&items, &task);
        data.iter_mut().for_each(foreign);
        let value = group_chaining_value(&data, task.group, task.only);
        source.group_hashed(task.object, task.group, value);
        while let Some(message) = source.poll_message() {
            sink.handle(message).expect("he keeps to the protocol");
        }
        if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
            sink.group_written(&write, &storage::write(&mut disk.storage, &write, &data));
        }
    }
    if draw.one_in(2) {
        sink.wind_up();
        act(&mut sink, disk, now);
    }
}

/// A whole copy of the tree, of which some files are changed since.
pub(crate) fn copy_before(scenario: &Scenario, files: &mut Files, disk: &mut Disk) {
    disk.runs += 1;
    let attributes = KeptAttributes::ALL;
    let (transfer, nonce) = ([98; 16], [98; 16]);
    let config = SinkConfig { transfer, nonce, attributes, ..SinkConfig::default() };
    let mut sink = Sink::new(config, ResumeState::default());
    let mut source = Source::new(Belief::Nothing);
    let items = push_all(&mut source, files);
    let mut now = Instant::ZERO;
    while !source.is_done() {
        now += Duration::from_millis(500);
        exchange(&mut source, &mut sink, disk, now);
        while let Some(task) = source.next_group(sink.credit()) {
            let data = contents(&items, &task);
            let value = group_chaining_value(&data, task.group, task.only);
            source.group_hashed(task.object, task.group, value);
            if let Verdict::Write(write) = sink.group_received(task.object, task.group, value) {
                sink.group_written(&write, &storage::write(&mut disk.storage, &write, &data));
            }
        }
    }
    // It was of another transfer.
    let Ok(()) = disk.storage.remove_record();
    let directories = items.iter().filter(|it| it.entry.kind == EntryKind::Directory);
    let extra = directories.take(EXTRA_MOST).map(|it| format!("{}/zz", it.entry.path).into_bytes());
    files.extra = extra.collect();
    disk.storage.intrude(files.extra.iter().map(Vec::as_slice));
    disk.storage.sync_names();
    let draw = &mut Draw::new(scenario.seed, STREAM);
    for _ in 0..draw.scaled(1, 1 + scenario.entries / 2) {
        let choice = draw.word();
        if scenario.keeps.equal && draw.one_in(2) {
            files.patch(choice, draw);
            continue;
        }
        match scenario.keeps.newer && draw.one_in(2) {
            true => files.age(choice, draw),
            false => files.change(choice, draw),
        };
    }
    if scenario.keeps.newer {
        part_names(files, disk, &mut Draw::new(scenario.seed, NAMES_STREAM));
    }
}

/// Of the names of files that are newer at the sink, perhaps, some are gone there, and some have what the source has.
fn part_names(files: &Files, disk: &mut Disk, draw: &mut Draw) {
    for Version { entry, data } in files.linked() {
        match draw.below(4) {
            0 => disk.storage.remove(entry.path.as_bytes()),
            1 => disk.storage.plant(entry, data),
            _ => {}
        }
    }
}

/// Has it announce all files, and gives them in that order.
fn push_all<'a>(source: &mut Source, files: &'a Files) -> Vec<&'a Version> {
    let (mut items, mut links) = (Vec::new(), Links::default());
    for number in 0..files.len() {
        if let Some(entry) = files.announce(number, items.len(), &mut links) {
            let id = source.push_entry(entry).expect("scenarios have possible entries");
            if let Some((end, id)) = files.broken_end(number).zip(id) {
                source.entry_failed(id, end.clone());
            }
            items.extend(files.get(number));
        }
    }
    source.finish_entries();
    items
}

/// Lets both ends handle the messages of the other, and the sink act.
fn exchange(source: &mut Source, sink: &mut Sink, disk: &mut Disk, now: Instant) {
    while let Some(message) = source.poll_message() {
        sink.handle(message).expect("the source keeps to the protocol");
    }
    act(sink, disk, now);
    while let Some(message) = sink.poll_message() {
        source.handle(message).expect("the sink keeps to the protocol");
    }
}

fn act(sink: &mut Sink, disk: &mut Disk, now: Instant) {
    while let Some(action) = sink.poll_action(now) {
        let Ok(answer) = storage::perform(&mut disk.storage, action);
        sink.handle_answer(answer);
    }
}

/// The bytes of the group, from the files.
fn contents(items: &[&Version], task: &GroupTask) -> Vec<u8> {
    let mut data = vec![0; task.len as usize];
    for piece in &task.pieces {
        let from = &items[piece.id.0 as usize].data[piece.file_offset as usize..];
        let to = &mut data[piece.group_offset as usize..][..piece.len as usize];
        to.copy_from_slice(&from[..piece.len as usize]);
    }
    data
}

/// Directories of an earlier copy in which something else is, too.
const EXTRA_MOST: usize = 3;
/// Number of the stream of choices, and of those of names.
const STREAM: u64 = 61;
const NAMES_STREAM: u64 = 101;
