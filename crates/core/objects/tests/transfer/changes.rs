//! Names of what a copy has changed.

use longhaul_objects::testing::{MemoryStorage, file};
use longhaul_objects::{Answer, Sink, SinkConfig, Source, storage};
use longhaul_units::{Duration, Instant};

#[test]
fn files_are_named_in_the_order_of_the_source_whichever_has_its_name_first() {
    let mut source = Source::default();
    let mut sink = Sink::new(SinkConfig::default(), Default::default());
    sink.want_changes();
    let mut disk = MemoryStorage::new();
    let paths: Vec<String> = (10..30).map(|number| number.to_string()).collect();
    for path in &paths {
        source.push_entry(file(path, 0)).unwrap();
    }
    source.finish_entries();
    let (mut now, mut named) = (Instant::ZERO, Vec::new());
    while !source.is_done() {
        now += Duration::from_secs(1);
        assert!(now < Instant::ZERO + Duration::from_secs(100), "each end waits for the other");
        while let Some(message) = source.poll_message() {
            sink.handle(message).unwrap();
        }
        while let Some(action) = sink.poll_action(now) {
            let mut answer = storage::perform(&mut disk, action).unwrap();
            if let Answer::Published(each, _) = &mut answer {
                each.reverse();
            }
            sink.handle_answer(answer);
        }
        while let Some(message) = sink.poll_message() {
            source.handle(message).unwrap();
        }
        named.extend(sink.take_changes().0.into_iter().map(|change| change.path));
    }
    let expected: Vec<_> = paths.into_iter().map(String::into_bytes).collect();
    assert_eq!(named, expected);
}
