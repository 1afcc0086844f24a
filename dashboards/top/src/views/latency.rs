//! What calls took, by endpoint: figures of the last second, none where nobody called in it, and curves over the seconds
//! before.
//!
//! Response counts from when a call was due, service from its first byte; of calls that got what they asked for.

use ratatui::text::Line;
use record::snapshot::Percentiles;
use record::{Endpoint, Micros};

use super::Scene;
use crate::look::Tone;
use crate::past::{Quantile, Time};
use crate::text::{self, Fold, curve, highest, line, or_none, rule, span};

/// Columns of the table before its curve.
const TABLE_COLUMNS: usize = 70;
/// Columns of an endpoint's name, and of a figure, where there is room for responses alone.
const NAME: usize = 12;
const FIGURE: usize = 9;

/// Lines before those of the endpoints.
pub(super) const fn heading_height(width: usize) -> usize {
    match width {
        0..TABLE_COLUMNS => 2,
        _ => 1,
    }
}

/// The responses alone, with as many of their figures as there is room for.
fn responses(scene: &Scene<'_>, endpoints: &[Endpoint], width: usize) -> Vec<Line<'static>> {
    use Quantile::{P50, P95, P99};
    let look = scene.look;
    let quantiles: &[Quantile] = match width.saturating_sub(NAME) / FIGURE {
        0 => &[],
        1 => &[P99],
        2 => &[P50, P99],
        _ => &[P50, P95, P99],
    };
    let row = |name: &str, figure: &dyn Fn(Quantile) -> String| {
        let figures = quantiles.iter().map(|quantile| figure(*quantile));
        let figures: String = figures.map(|text| format!("{text:>FIGURE$}")).collect();
        format!(" {name:<width$}{figures}", width = NAME - 1)
    };
    let names = row("", &|quantile| quantile.name().to_owned());
    let mut lines = vec![
        rule(look, width as u16, "Response in the last second"),
        line(look, Tone::Heading, names),
    ];
    for endpoint in endpoints {
        let response = last(scene, *endpoint, Time::Response);
        let text = row(endpoint.label(), &|quantile| {
            or_none(response.as_ref().map(|all| quantile.of(all)))
        });
        lines.push(line(look, Tone::Plain, text));
    }
    lines
}

fn last(scene: &Scene<'_>, endpoint: Endpoint, time: Time) -> Option<Percentiles> {
    let rate = &scene.now.last_second[endpoint];
    match time {
        Time::Response => rate.response,
        Time::Service => rate.service,
    }
}

fn of(scene: &Scene<'_>, endpoint: Endpoint, time: Time, quantile: Quantile) -> Vec<Option<f64>> {
    scene.past.curve(|point| {
        let percentiles = point.times[endpoint].get(time)?;
        Some(quantile.of(&percentiles).0 as f64)
    })
}

/// A line for each endpoint, all six figures and the curve of one.
pub(super) fn table(scene: &Scene<'_>, endpoints: &[Endpoint], width: usize) -> Vec<Line<'static>> {
    let look = scene.look;
    if width < TABLE_COLUMNS {
        return responses(scene, endpoints, width);
    }
    let curve_width = width.saturating_sub(TABLE_COLUMNS + 1);
    let heading = format!(
        "{:<12}{:>12}{:>8}{:>8}{:>12}{:>8}{:>8}{}",
        "Last second",
        "response p50",
        "p95",
        "p99",
        "service p50",
        "p95",
        "p99",
        match curve_width {
            0..12 => "",
            _ => "  response p99",
        }
    );
    let mut lines = vec![rule(look, width as u16, &heading)];
    for endpoint in endpoints {
        let response = last(scene, *endpoint, Time::Response);
        let service = last(scene, *endpoint, Time::Service);
        let mut text = format!(" {:<11}", endpoint.label());
        for (percentiles, first) in [(response, 13), (service, 11)] {
            for (quantile, width) in Quantile::ALL.iter().zip([first, 7, 7]) {
                let figure = or_none(percentiles.as_ref().map(|all| quantile.of(all)));
                // However long a time is, it stands apart from the one before.
                text.push_str(&format!(" {figure:>width$}"));
            }
        }
        let values = of(scene, *endpoint, Time::Response, Quantile::P99);
        let drawn = curve(&values, highest([&values]), Fold::Highest, curve_width, 1);
        let mut line = line(look, Tone::Plain, text + " ");
        line.push_span(span(look, Tone::Open, drawn.concat()));
        lines.push(line);
    }
    lines
}

/// Lines that [`curves`] takes for each endpoint at that height.
pub(super) const fn curves_height(height: usize) -> usize {
    3 * height
}

/// Three curves for each endpoint and time, with their last figures.
pub(super) fn curves(
    scene: &Scene<'_>,
    endpoints: &[Endpoint],
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let look = scene.look;
    // Before each curve stand a quantile and its figure.
    let half = width.saturating_sub(13) / 2;
    let curve_width = half.saturating_sub(17);
    let response = format!(
        "Response, due to end: last second, and {:.0} s",
        scene.past.length().as_seconds()
    );
    let heading = format!(
        "{:<10}{response:<half$}{}",
        "Latency", "Service, first byte to end"
    );
    let mut lines = vec![rule(look, width as u16, &heading)];
    for endpoint in endpoints {
        let sides = [Time::Response, Time::Service].map(|time| {
            let values = Quantile::ALL.map(|quantile| of(scene, *endpoint, time, quantile));
            (last(scene, *endpoint, time), highest(&values), values)
        });
        for (at, quantile) in Quantile::ALL.iter().enumerate() {
            let drawn = sides.each_ref().map(|(percentiles, highest, values)| {
                let last = or_none(percentiles.as_ref().map(|all| quantile.of(all)));
                let any = values[at].iter().flatten().next();
                let most = any.map(|_| Micros(text::highest([&values[at]]) as u64));
                let most = or_none(most);
                let bars = curve(&values[at], *highest, Fold::Highest, curve_width, height);
                ([(quantile.name(), last), ("max", most)], bars)
            });
            for row in 0..height {
                let name = match at == 0 && row == 0 {
                    true => endpoint.label(),
                    false => "",
                };
                let mut line = line(look, Tone::Heading, format!(" {name:<11}"));
                for (labels, bars) in &drawn {
                    let label = match labels.get(row) {
                        Some((name, figure)) => format!(" {name} {figure:>10} "),
                        None => " ".repeat(16),
                    };
                    line.push_span(span(look, Tone::Plain, label));
                    line.push_span(span(look, Tone::Open, format!("{} ", bars[row])));
                }
                lines.push(line);
            }
        }
    }
    lines
}
