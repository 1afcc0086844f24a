//! The generator itself: whether what is seen is the portal's doing or its own.

use ratatui::layout::Rect;
use ratatui::text::Line;
use record::Micros;
use record::judgement::grouped;
use record::series::Gauge;

use super::Scene;
use crate::look::Tone;
use crate::past::Quantile;
use crate::text::{self, Fold, bytes, highest, limit, line, rule, span};

/// Columns before a curve.
const COLUMNS: usize = 36;

/// A figure by the second.
struct Curve {
    values: Vec<Option<f64>>,
    last: Option<f64>,
    /// What its full height stands for.
    top: f64,
}

impl Curve {
    /// A curve whose full height stands for its highest figure, but for no less than that.
    fn of(values: Vec<Option<f64>>, at_least: f64) -> Self {
        Self {
            last: values.last().copied().flatten(),
            top: highest([&values]).max(at_least),
            values,
        }
    }
}

pub(super) fn lines(scene: &Scene<'_>, body: Rect) -> Vec<Line<'static>> {
    let look = scene.look;
    let width = usize::from(body.width).saturating_sub(COLUMNS + 1);
    // Five things have a curve; they share the height that the other lines leave.
    let height = (usize::from(body.height).saturating_sub(7) / 5).clamp(1, 6);
    let with_curve = |name: &str, figure: &dyn Fn(f64) -> String, curve: Curve| {
        let last = curve.last.map_or_else(|| "-".to_owned(), figure);
        let any = curve.values.iter().flatten().next();
        let most = any.map(|_| highest([&curve.values]));
        let most = most.map_or_else(|| "-".to_owned(), figure);
        let labels = [
            format!("{name:<13} {last}"),
            format!("{:>13} {most}", "max"),
        ];
        let bars = text::curve(&curve.values, curve.top, Fold::Highest, width, height);
        let row = |(row, bars): (usize, String)| {
            let label = labels.get(row).map_or("", String::as_str);
            let mut line = line(
                look,
                Tone::Plain,
                format!(" {label:<width$} ", width = COLUMNS - 2),
            );
            line.push_span(span(look, Tone::Open, bars));
            line
        };
        bars.into_iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let plain =
        |name: &str, figure: String| line(look, Tone::Plain, format!(" {name:<13} {figure}"));
    let mut lines = vec![rule(
        look,
        body.width,
        "This process, and the mock portal if it runs in it",
    )];
    let cpu = Curve::of(
        scene.past.curve(|point| Some(point.generator?.cpu_share)),
        1.0,
    );
    let cores = |share: f64| format!("{share:.2} of a core");
    lines.extend(with_curve("CPU", &cores, cpu));
    let memory = Curve::of(
        scene
            .past
            .curve(|point| Some(point.generator?.rss_bytes as f64)),
        0.0,
    );
    let size = |size: f64| bytes(size as u64);
    lines.extend(with_curve("memory", &size, memory));
    let now = scene.now.generator.as_ref();
    let known = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    let files = now.map(|now| format!("{} of {}", grouped(now.files), limit(now.files_limit)));
    lines.push(plain("open files", known(files)));
    lines.push(plain(
        "connections",
        grouped(scene.now.gauges[Gauge::Connected]),
    ));
    lines.push(plain(
        "processes",
        known(now.map(|now| grouped(now.processes))),
    ));
    lines.push(rule(
        look,
        body.width,
        "Lateness: from when a call was due to when it was started",
    ));
    let curves = Quantile::ALL.map(|quantile| {
        let of = |all| quantile.of(&all).0 as f64;
        scene.past.curve(|point| point.lateness.map(of))
    });
    let top = highest(&curves);
    for (quantile, values) in Quantile::ALL.iter().zip(curves) {
        let time = |time: f64| Micros(time as u64).to_string();
        lines.extend(with_curve(quantile.name(), &time, Curve::of(values, top)));
    }
    lines
}
