use super::*;

fn panel(y: Axis, points: Vec<Point>) -> Panel {
    let series = vec![Series::line("a & b", 3, points)];
    Panel { title: "1 < 2".into(), x: Axis::linear("x (s)"), y, series }
}

#[test]
fn text_is_escaped_everywhere() {
    let figure = Figure {
        panels: vec![panel(Axis::linear("\"y\""), vec![Point::new(1.0, 2.0)])],
        columns: 3,
    };
    let svg = figure.svg();
    for expected in ["1 &lt; 2", "a &amp; b", "&quot;y&quot;"] {
        assert!(svg.contains(expected), "{svg}");
    }
    assert!(!svg.contains("a & b"));
    assert_eq!(escape("a\u{1}'"), "a\u{fffd}&#39;");
}

#[test]
fn points_that_are_not_finite_or_not_positive_are_drawn_nowhere_or_on_the_edge() {
    let points =
        vec![Point::new(1.0, f64::NAN), Point::new(f64::INFINITY, 1.0), Point::new(2.0, 0.0)];
    let svg = panel(Axis::log("y"), points).svg();
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let empty = panel(Axis::linear("y"), Vec::new()).svg();
    assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
}

#[test]
fn numbers_are_short() {
    let texts = [0.0, 0.05, 12.34, 1234.5, 100.0, 0.1 + 0.2, -2.5].map(number);
    assert_eq!(texts, ["0", "0.05", "12.3", "1234", "100", "0.3", "-2.5"]);
    assert_eq!(number(f64::NAN), "?");
}

#[test]
fn ticks_are_round_and_within_the_range() {
    let labels = |axis: Axis| axis.ticks().into_iter().map(|tick| tick.1).collect::<Vec<_>>();
    let linear = Axis::linear("x").from_to(0.0, 1.0);
    assert_eq!(labels(linear), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    assert_eq!(labels(Axis::log("x").from_to(0.9, 30.0)), ["1", "2", "5", "10", "20"]);
    assert_eq!(labels(Axis::log("x").from_to(0.5, 2000.0)), ["1", "10", "100", "1000"]);
    let names = Axis::names("x", vec!["none".into(), "one".into()]).around([0.0].into_iter());
    assert_eq!(labels(names.clone()), ["none", "one"]);
    assert!((names.place(0.0) - 0.25).abs() < 1e-9);
}

#[test]
fn ranges_hold_all_values() {
    let axis = Axis::linear("y").around([3.0, 8.0].into_iter());
    assert_eq!(axis.range, Some((0.0, 8.4)));
    let axis = Axis::log("y").around([10.0, 0.0, 1000.0].into_iter());
    assert!(axis.place(10.0) > 0.0 && axis.place(1000.0) < 1.0);
    assert_eq!(axis.place(0.0), 0.0);
}

#[test]
fn a_legend_names_each_series_once() {
    let one = panel(Axis::linear("y"), vec![Point::new(0.0, 1.0)]);
    let figure = Figure { panels: vec![one.clone(), one], columns: 2 };
    let samples = figure.samples();
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].0, "a & b");
    assert_eq!(figure.svg().matches("a &amp; b").count(), 1);
}
