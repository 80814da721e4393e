//! The curve as an image: both axes logarithmic, so that twice the sequences at twice the tokens is a straight line.

use super::Point;
use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 50.0;

/// Position of a value between the least and the most, on a logarithmic scale.
fn share(value: f64, (least, most): (f64, f64)) -> f64 {
    match most > least {
        true => (value / least).ln() / (most / least).ln(),
        false => 0.5,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Draws a point's circle, its rate above and its number of sequences below.
fn mark(point: &Point, x: f64, y: f64) -> String {
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#06c\"/>\n\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1}</text>\n\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        y - 9.0,
        point.tokens_per_s,
        HEIGHT - BOTTOM + 17.0,
        point.n_sequences
    )
}

/// Draws tokens per second over sequences, reached and at the bound.
pub(super) fn image(title: &str, points: &[Point]) -> String {
    let rates = points
        .iter()
        .flat_map(|p| [p.tokens_per_s, p.bound_tokens_per_s]);
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), v| {
            (a.min(v), b.max(v))
        })
    };
    let (least, most) = range(&mut rates.into_iter());
    let rates = (least / 1.2, most * 1.2);
    let numbers = range(&mut points.iter().map(|p| p.n_sequences as f64));
    let x = |n: u64| LEFT + share(n as f64, numbers) * (WIDTH - LEFT - RIGHT);
    let y = |rate: f64| HEIGHT - BOTTOM - share(rate, rates) * (HEIGHT - TOP - BOTTOM);
    let line = |rate: &dyn Fn(&Point) -> f64| {
        let at = points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x(p.n_sequences), y(rate(p))));
        at.collect::<Vec<_>>().join(" ")
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"22\" \
         font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    let mut add = |text: String| {
        let _ = writeln!(svg, "{text}");
    };
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    add(format!(
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#444\"/>"
    ));
    for (colour, dash, rate) in [
        (
            "#c60",
            "6 4",
            &(|p: &Point| p.bound_tokens_per_s) as &dyn Fn(&Point) -> f64,
        ),
        ("#06c", "none", &|p: &Point| p.tokens_per_s),
    ] {
        add(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
            line(rate)
        ));
    }
    for point in points {
        add(mark(point, x(point.n_sequences), y(point.tokens_per_s)));
    }
    add(format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">sequences; blue: tokens/s, orange: at the bound</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 12.0
    ));
    svg.push_str("</svg>\n");
    svg
}
