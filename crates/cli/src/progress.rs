//! Progress on a terminal.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul::{ChangeKind, NamedChange, Progress, Snapshot};
use longhaul_sys::threads;
use longhaul_units::{Bytes, counted, shown, shown_path};
use longhaul_wire::Bottleneck;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::figures::{clock, entries, milliseconds, percent, round_trip};
use crate::output::{Output, complain, print, say_elsewhere};
use crate::report;

/// A bar and a line of figures, where there is a terminal to show them.
pub(crate) struct Display {
    bar: ProgressBar,
    output: Output,
    notices: Vec<String>,
    /// Why changes could not be named.
    unwritten: Option<Failure>,
    amounts: fn(&Snapshot) -> String,
    figures: fn(&Snapshot) -> String,
    /// Time between lines of progress, where the user wants them.
    stats: Option<Duration>,
}

/// Prints while a bar may be drawn.
#[derive(Clone)]
pub(crate) struct Beside(ProgressBar);

impl Beside {
    /// Does `print`; no bar is on the terminal meanwhile.
    pub(crate) fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

/// Account of a display, at its end.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) notices: Vec<String>,
    /// Why standard output did not take the names of changes.
    pub(crate) unwritten: Option<Failure>,
}

impl Display {
    pub(crate) fn of_copy(output: &Output) -> Self {
        Self::new(output, "{bar:24} {prefix}\n{msg}", amounts, figures)
    }

    pub(crate) fn of_pipe(output: &Output) -> Self {
        Self::new(output, "{spinner} {prefix}\n{msg}", amounts_of_pipe, |snapshot| {
            figures_of_path(snapshot).join(", ")
        })
    }

    pub(crate) fn of_verify(output: &Output) -> Self {
        Self::new(output, "{spinner} {prefix}", amounts_of_verify, |_| String::new())
    }

    fn new(
        output: &Output,
        template: &str,
        amounts: fn(&Snapshot) -> String,
        figures: fn(&Snapshot) -> String,
    ) -> Self {
        let target = match output.quiet {
            true => ProgressDrawTarget::hidden(),
            // Hidden by itself where standard error is no terminal.
            false => ProgressDrawTarget::stderr_with_hz(REFRESH_HZ),
        };
        Self::at(target, output, template, amounts, figures)
    }

    fn at(
        target: ProgressDrawTarget,
        output: &Output,
        template: &str,
        amounts: fn(&Snapshot) -> String,
        figures: fn(&Snapshot) -> String,
    ) -> Self {
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            bar,
            output: *output,
            notices: Vec::new(),
            unwritten: None,
            amounts,
            figures,
            stats: None,
        }
    }

    /// For those who print while it shows progress.
    pub(crate) fn beside(&self) -> Beside {
        Beside(self.bar.clone())
    }

    /// With a line of progress so often.
    pub(crate) fn every(self, stats: Option<Duration>) -> Self {
        Self { stats, ..self }
    }

    /// Does `work`, which reports to `progress`, and gives with what it gave what was shown.
    ///
    /// # Errors
    /// There is no thread for it, and nothing was done.
    pub(crate) fn attend<T>(
        self,
        progress: &Progress,
        work: impl FnOnce() -> T,
    ) -> io::Result<(T, Shown)> {
        let (ended, end) = channel::<()>();
        std::thread::scope(|scope| {
            let follow = || self.follow(progress, end);
            let following = threads::spawn_scoped(scope, "progress", follow)?;
            let done = work();
            drop(ended);
            Ok((done, following.join().unwrap_or_default()))
        })
    }

    /// Shows `progress` until the other end of `end` is dropped.
    fn follow(mut self, progress: &Progress, end: Receiver<()>) -> Shown {
        let began = Instant::now();
        let mut lines = 0;
        while end.recv_timeout(REFRESH) == Err(RecvTimeoutError::Timeout) {
            self.tell(progress.take_news());
            self.name(progress.take_changes());
            let snapshot = progress.snapshot();
            self.show(&snapshot);
            let due = |every: Duration| began.elapsed() >= every * (lines + 1);
            if self.stats.is_some_and(due) {
                lines += 1;
                self.bar.suspend(|| complain(self.line_of(&snapshot, began.elapsed())));
            }
        }
        self.bar.finish_and_clear();
        // A copy may end before it was looked at.
        self.tell(progress.take_news());
        self.name(progress.take_changes());
        Shown { notices: self.notices, unwritten: self.unwritten }
    }

    /// Names changes, a line each, on standard output.
    fn name(&mut self, (changes, left_out): (Vec<NamedChange>, u64)) {
        if changes.is_empty() && left_out == 0 {
            return;
        }
        let mut lines: Vec<String> = changes.iter().map(line).collect();
        if left_out > 0 {
            lines.push(format!("and {left_out} more, too many at once to be named"));
        }
        if !lines.is_empty() && self.unwritten.is_none() {
            self.unwritten = self.bar.suspend(|| print(&lines.join("\n")).err());
        }
    }

    /// A line of progress, `elapsed` after the start.
    fn line_of(&self, snapshot: &Snapshot, elapsed: Duration) -> String {
        if self.output.json {
            return stats(snapshot, elapsed).to_string();
        }
        let parts = [(self.amounts)(snapshot), (self.figures)(snapshot)];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{}: {}", clock(elapsed), parts.join(", "))
    }

    fn tell(&mut self, news: Vec<String>) {
        for notice in &news {
            self.bar.suspend(|| self.output.say(format!("note: {notice}")));
        }
        self.notices.extend(news);
    }

    /// Shows what another host says of the copy that it makes, as [`Self::show`] there has it.
    pub(crate) fn show_other(&self, event: &Value) {
        if let Some(total) = event["total"].as_u64() {
            self.bar.set_length(total);
        }
        self.bar.set_position(event["done"].as_u64().unwrap_or_default());
        let text = |name: &str| shown(event[name].as_str().unwrap_or_default());
        self.bar.set_prefix(text("amounts"));
        self.bar.set_message(text("figures"));
    }

    /// Nothing is shown any more.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, snapshot: &Snapshot) {
        let event = || {
            json!({ "progress": {
                "done": snapshot.bytes_done,
                "total": snapshot.bytes_total,
                "amounts": (self.amounts)(snapshot),
                "figures": (self.figures)(snapshot),
                "known": report::partial(snapshot),
            } })
        };
        if say_elsewhere(event) {
            return;
        }
        if let Some(total) = snapshot.bytes_total {
            self.bar.set_length(total);
        }
        self.bar.set_position(snapshot.bytes_done);
        self.bar.set_prefix((self.amounts)(snapshot));
        self.bar.set_message((self.figures)(snapshot));
    }
}

/// A change, as people read it.
fn line(change: &NamedChange) -> String {
    let slash = if change.is_directory { "/" } else { "" };
    let path = match change.path.is_empty() {
        true => ".".into(),
        false => shown_path(&change.path),
    };
    let what = match change.kind {
        ChangeKind::Copied => "",
        ChangeKind::Deleted => "deleting ",
        ChangeKind::New => "new      ",
        ChangeKind::Differs => "differs  ",
        ChangeKind::Mended => "mended   ",
    };
    format!("{what}{path}{slash}")
}

/// The fields of `--stats` with `--json`.
fn stats(snapshot: &Snapshot, elapsed: Duration) -> Value {
    json!({
        "elapsed": elapsed.as_millis() as f64 / 1e3,
        "bytes": snapshot.bytes_done,
        "bytes_total": snapshot.bytes_total,
        "files": snapshot.files_done,
        "files_total": snapshot.files_total,
        "rate_bps": snapshot.rate.as_bps(),
        "rtt_ms": round_trip(snapshot.rtt),
        "packets_sent": snapshot.packets_sent,
        "packets_lost": snapshot.packets_lost,
        "bottleneck": snapshot.bound.name(),
    })
}

/// How much of how much, how fast, and how long it will take.
fn amounts(snapshot: &Snapshot) -> String {
    let done = Bytes::new(snapshot.bytes_done);
    let rate = snapshot.rate;
    let Some(total) = snapshot.bytes_total else {
        return format!("{done} of a tree that is still being listed, {rate}");
    };
    let percent = match total {
        0 => 100,
        _ => (u128::from(snapshot.bytes_done) * 100 / u128::from(total)).min(100),
    };
    let left = total.saturating_sub(snapshot.bytes_done);
    let eta = match rate.as_bps() {
        0 => String::new(),
        _ => format!(", {} left", clock(rate.time_for(left))),
    };
    format!("{percent} % of {}, {rate}{eta}", Bytes::new(total))
}

/// How much, and how fast.
fn amounts_of_pipe(snapshot: &Snapshot) -> String {
    match snapshot.bytes_done {
        0 => "nothing yet".into(),
        bytes => format!("{} so far, {}", Bytes::new(bytes), snapshot.rate),
    }
}

/// Files, their bytes, and the rate.
fn amounts_of_verify(snapshot: &Snapshot) -> String {
    let Snapshot { files_done, bytes_done, rate, .. } = snapshot;
    let total = snapshot.files_total.unwrap_or_default();
    format!("{files_done} of {}, {}, {rate}", counted(total, "file"), Bytes::new(*bytes_done))
}

/// What was copied, and what the path and the hosts do.
fn figures(snapshot: &Snapshot) -> String {
    let mut parts = vec![match snapshot.files_total {
        Some(total) => format!("{} of {}", snapshot.files_done, entries(total)),
        None => entries(snapshot.files_done),
    }];
    parts.extend(figures_of_path(snapshot));
    parts.join(", ")
}

/// What the path and the hosts do.
fn figures_of_path(snapshot: &Snapshot) -> Vec<String> {
    let mut parts = Vec::new();
    if !snapshot.rtt.is_zero() {
        parts.push(format!("RTT {}", milliseconds(snapshot.rtt)));
    }
    if snapshot.packets_sent > 0 {
        parts.push(format!("loss {}", percent(snapshot.packets_lost, snapshot.packets_sent)));
    }
    match snapshot.bound {
        Bottleneck::Unknown => {}
        bound => parts.push(format!("limited by: {bound}")),
    }
    parts
}

const REFRESH: Duration = Duration::from_millis(200);
const REFRESH_HZ: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Rate;

    #[test]
    fn figures_of_a_running_copy() {
        let mut snapshot = Snapshot::default();
        (snapshot.bytes_done, snapshot.bytes_total) = (412_000_000, Some(1_073_741_824));
        (snapshot.files_done, snapshot.files_total) = (12, Some(340));
        (snapshot.rate, snapshot.rtt) = (Rate::from_mbps(950), Duration::from_millis(100));
        (snapshot.packets_sent, snapshot.packets_lost) = (290_000, 290);
        snapshot.bound = Bottleneck::ReceiverDisk;
        assert_eq!(amounts(&snapshot), "38 % of 1.07 GB, 950 Mb/s, 5 s left");
        let expected = "12 of 340 entries, RTT 100 ms, loss 0.10 %, limited by: receiver disk";
        assert_eq!(figures(&snapshot), expected);
    }

    #[test]
    fn a_line_has_the_same_figures() {
        let mut snapshot = Snapshot::default();
        (snapshot.bytes_done, snapshot.bytes_total) = (500, Some(1000));
        (snapshot.files_done, snapshot.rate) = (3, Rate::from_mbps(1));
        let output = |json| Output::new(&crate::args::Common { json, ..Default::default() });
        let line =
            |json| Display::of_copy(&output(json)).line_of(&snapshot, Duration::from_secs(90));
        let expected = "1:30: 50 % of 1.00 kB, 1.00 Mb/s, 0 s left, 3 entries";
        assert_eq!(line(false), expected);
        let object: Value = serde_json::from_str(&line(true)).unwrap();
        assert_eq!((&object["elapsed"], &object["bytes"]), (&json!(90.0), &json!(500)));
        assert_eq!(
            (&object["files_total"], &object["rate_bps"]),
            (&Value::Null, &json!(1_000_000))
        );
    }

    /// A terminal that notes what is done with it.
    #[derive(Clone, Debug, Default)]
    struct Terminal(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

    impl Terminal {
        fn note(&self, what: &str) -> io::Result<()> {
            self.0.lock().unwrap().push(what.to_owned());
            Ok(())
        }
    }

    impl indicatif::TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.note(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.note(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.note("cleared")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_printed_while_a_bar_is_drawn_has_its_lines_to_itself() {
        let terminal = Terminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let output = Output::new(&crate::args::Common::default());
        let display =
            Display::at(target, &output, "{prefix}", |_| "figures".into(), |_| String::new());
        display.show(&Snapshot::default());
        display.bar.tick();
        display.beside().print(|| terminal.note("missing  a").unwrap());
        display.bar.abandon();
        let noted = terminal.0.lock().unwrap();
        let shown: Vec<_> =
            noted.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        let printed = shown.iter().position(|text| *text == "missing  a").unwrap();
        assert!(shown[..printed].contains(&"figures"), "{shown:?}");
        assert_eq!(shown[printed - 1], "cleared", "{shown:?}");
        assert!(shown[printed..].contains(&"figures"), "{shown:?}");
    }

    #[test]
    fn figures_of_a_running_pipe() {
        let mut snapshot = Snapshot::default();
        snapshot.bytes_done = 412_000_000;
        (snapshot.rate, snapshot.rtt) = (Rate::from_mbps(950), Duration::from_millis(100));
        snapshot.bound = Bottleneck::Output;
        assert_eq!(amounts_of_pipe(&snapshot), "412 MB so far, 950 Mb/s");
        assert_eq!(figures_of_path(&snapshot), ["RTT 100 ms", "limited by: output"]);
        assert_eq!(amounts_of_pipe(&Snapshot::default()), "nothing yet");
    }

    #[test]
    fn nothing_is_shown_that_is_not_known() {
        let mut snapshot = Snapshot::default();
        assert_eq!(amounts(&snapshot), "0 B of a tree that is still being listed, 0 b/s");
        assert_eq!(figures(&snapshot), "0 entries");
        snapshot.bytes_total = Some(0);
        assert_eq!(amounts(&snapshot), "100 % of 0 B, 0 b/s");
    }
}
