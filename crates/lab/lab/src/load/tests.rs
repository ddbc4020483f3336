use super::*;

#[test]
fn every_load_works_and_stops() {
    for work in Work::ALL {
        let folder = tempfile::tempdir().unwrap();
        let mut load = Load::new(work);
        load.count = 2;
        load.size = Some(Bytes::new(100_000));
        load.folder = Some(folder.path().to_owned());
        let running = load.start().unwrap();
        let report = running.stop().unwrap();
        assert!(report.cpu > Duration::ZERO, "{work:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
    }
}

#[test]
fn a_load_with_a_length_ends_by_itself() {
    let mut load = Load::new(Work::Loops);
    load.from = Some(Duration::from_millis(1));
    load.length = Some(Duration::from_millis(1));
    let mut running = load.start().unwrap();
    for thread in running.threads.drain(..) {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn a_load_that_comes_again_works_in_each_spell() {
    let spells: Load = "loops,length=1ms,every=2ms".parse().unwrap();
    assert_eq!(spells.every, Some(Duration::from_millis(2)));
    let (stop, ms) = (AtomicBool::new(false), Duration::from_millis(1));
    let begin = clock::now();
    let mut going =
        Going { stop: &stop, until: Some(begin), length: Some(ms), every: Some(2 * ms) };
    // The first spell is over: it waits for the second, whose end is a period behind that of the first.
    going.on();
    assert!(clock::now() >= begin + ms);
    assert_eq!(going.until, Some(begin + 2 * ms));
    stop.store(true, Ordering::Relaxed);
    assert!(!going.on());
}

#[test]
fn failures_are_reported() {
    let mut load = Load::new(Work::Loops);
    load.cores = vec![100_000];
    let error = load.start().err().unwrap().to_string();
    assert!(error.contains("no CPU of these numbers: 100000"), "{error}");
    let mut load = Load::new(Work::Disk);
    load.folder = Some("/does/not/exist".into());
    let error = load.start().unwrap().stop().unwrap_err().to_string();
    assert!(error.contains("/does/not/exist"), "{error}");
}

#[test]
fn loads_are_read_from_words_and_toml() {
    let load: Load = "memory,count=3,cores=0+1,from=2s,length=500ms,size=1GB".parse().unwrap();
    assert_eq!((load.work, load.count, load.cores.as_slice()), (Work::Memory, 3, &[0, 1][..]));
    assert_eq!(load.from, Some(Duration::from_secs(2)));
    assert_eq!(load.size, Some(Bytes::new(1_000_000_000)));
    let same: Load = toml::from_str(
        "work = \"memory\"\ncount = 3\ncores = [0, 1]\nfrom = \"2s\"\nlength = \"500ms\"\nsize = \"1GB\"",
    )
    .unwrap();
    assert_eq!(load, same);
    for (wrong, part) in [
        ("sleep", "known are loops"),
        ("loops,count=many", "count=many: expected 1 to"),
        ("loops,cores=x", "expected a number"),
        ("loops,colour=red", "known are count"),
        ("loops,count", "a key and a value"),
        ("disk,rate=fast", "rate=fast"),
        ("disk,from=-1s", "expected a time"),
        ("loops,every=1s", "a length that is shorter"),
        ("loops,length=2s,every=1s", "a length that is shorter"),
        ("loops,priority=last", "usual or first"),
    ] {
        let error = wrong.parse::<Load>().unwrap_err().to_string();
        assert!(error.contains(part), "{wrong}: {error}");
    }
}

#[test]
fn spells_are_known_before_they_come() {
    let ms = Duration::from_millis;
    let began = Instant::from_nanos(5_000_000);
    let at = |time: u64| began + ms(time);
    let load: Load = "loops,from=3ms,length=2ms,every=10ms".parse().unwrap();
    let expected = [[at(3), at(5)], [at(13), at(15)]];
    assert_eq!(load.spells(began, at(20)), expected);
    let once: Load = "loops,length=2ms".parse().unwrap();
    assert_eq!(once.spells(began, at(20)), [[at(0), at(2)]]);
    assert_eq!(Load::new(Work::Loops).spells(began, at(20)), [[began; 2]; 0]);
}
