//! Files that the sink has, and keeps.

use longhaul_objects::testing::file;
use longhaul_objects::{Action, Answer, Compared, Keeps, Made, Sink, SinkConfig};
use longhaul_units::{Instant, ObjectId};
use longhaul_wire::{Entry, EntryKind, ManifestObject, SourceMessage};

/// A source may come back to a directory. Files behind another of its directories were sent, though they were there.
#[test]
fn small_files_are_compared_however_far_behind_their_directory_they_are_announced() {
    let keeps = Keeps { unchanged: true, ..Keeps::default() };
    let mut sink = Sink::new(SinkConfig { keeps, ..SinkConfig::default() }, Default::default());
    let directory = |path| Entry { kind: EntryKind::Directory, ..file(path, 0) };
    let entries = vec![directory("a"), directory("a/b"), file("a/b/c", 5), file("a/d", 7)];
    let object = ManifestObject { id: ObjectId(0), first_entry: 2, entries: 2, size: 12 };
    let manifest = SourceMessage::Manifest { first_entry: 0, entries, objects: vec![object] };
    sink.handle(manifest).unwrap();
    let mut compared = Vec::new();
    while let Some(action) = sink.poll_action(Instant::ZERO) {
        sink.handle_answer(match action {
            Action::MakeDirectories(batch) => {
                let made = batch.iter().map(|it| (it.id, Ok(Made::InPlace)));
                Answer::DirectoriesMade(made.collect())
            }
            Action::CompareExisting(batch) => {
                compared.extend(batch.iter().map(|it| it.entry.path.to_string()));
                let unchanged = batch.iter().map(|it| (it.id, Compared::Unchanged));
                Answer::Compared(unchanged.collect(), Vec::new())
            }
            other => panic!("{other:?}"),
        });
    }
    compared.sort_unstable();
    assert_eq!(compared, ["a/b/c", "a/d"]);
    assert_eq!(sink.stats().unchanged, 2);
}
