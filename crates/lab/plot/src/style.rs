/// Colours that remain distinct to the colour-blind (Okabe and Ito), dark enough to print.
const COLOURS: [&str; 8] =
    ["#000000", "#009e73", "#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#777777"];

const DASHES: [&str; 8] = ["", "7 3", "2 3", "9 3 2 3", "", "5 2 1 2 1 2", "12 4", "4 4"];

/// The colour of a style.
pub(crate) fn colour(style: usize) -> &'static str {
    COLOURS[style % COLOURS.len()]
}

/// The attribute for the dashes of a style.
pub(crate) fn dashes(style: usize) -> String {
    match DASHES[style % DASHES.len()] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    }
}

/// The mark of a style around a place.
pub(crate) fn mark(style: usize, x: f64, y: f64, hollow: bool, size: f64) -> String {
    let colour = colour(style);
    let fill = if hollow { "white" } else { colour };
    let path = |points: &[(f64, f64)]| {
        let points: Vec<String> = points
            .iter()
            .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * size, y + dy * size))
            .collect();
        format!(
            "<polygon points=\"{}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.2\"/>",
            points.join(" ")
        )
    };
    match style % COLOURS.len() {
        0 => format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"{fill}\" stroke=\"{colour}\" \
             stroke-width=\"1.2\"/>",
            size * 0.9
        ),
        1 => path(&[(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)]),
        2 => path(&[(0.0, -1.1), (1.0, 0.8), (-1.0, 0.8)]),
        3 => path(&[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)]),
        4 => path(&[(0.0, 1.1), (1.0, -0.8), (-1.0, -0.8)]),
        5 => path(&[(-0.5, -1.1), (0.5, -1.1), (0.5, 1.1), (-0.5, 1.1)]),
        6 => path(&[(-1.1, -0.5), (1.1, -0.5), (1.1, 0.5), (-1.1, 0.5)]),
        _ => path(&[(-1.0, 0.0), (-0.5, -0.9), (0.5, -0.9), (1.0, 0.0), (0.5, 0.9), (-0.5, 0.9)]),
    }
}
