//! Plots as SVG.

use std::path::Path;

use plotters::prelude::*;

/// One figure, relative to what it should reach.
pub struct Bar<'a> {
    pub name: &'a str,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub aim: f64,
}

/// Draws figures side by side.
pub fn bars(path: &Path, bars: &[Bar<'_>]) {
    if bars.is_empty() {
        return;
    }
    let top = bars.iter().map(|bar| bar.high.max(bar.aim)).fold(1.0, f64::max).min(4.0) * 1.05;
    let area = SVGBackend::new(path, (90 * bars.len() as u32 + 120, 420)).into_drawing_area();
    let drawn = (|| {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(
                "figures over what they should reach (1.0); the mark is the aim",
                ("sans-serif", 16),
            )
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..bars.len() as f64, 0.0..top)?;
        let name = |x: &f64| {
            let bar = bars.get((x - 0.5).max(0.0).round() as usize);
            bar.map_or(String::new(), |bar| bar.name.to_owned())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_desc("times the reach")
            .x_label_formatter(&name)
            .draw()?;
        for (index, bar) in (0_u32..).zip(bars) {
            let (left, right) = (f64::from(index) + 0.2, f64::from(index) + 0.8);
            let middle = (left + right) / 2.0;
            let fill = if bar.value >= 1.0 { GREEN.mix(0.5) } else { RED.mix(0.5) };
            let rectangle = [(left, 0.0), (right, bar.value.min(top))];
            chart.draw_series([Rectangle::new(rectangle, fill.filled())])?;
            let whisker = [(middle, bar.low.min(top)), (middle, bar.high.min(top))];
            chart.draw_series([PathElement::new(whisker.to_vec(), BLACK)])?;
            let aim = [(left, bar.aim.min(top)), (right, bar.aim.min(top))];
            chart.draw_series([PathElement::new(aim.to_vec(), BLUE)])?;
            let place = (left, top * 0.02);
            chart.draw_series([Text::new(bar.name.to_owned(), place, ("sans-serif", 11))])?;
        }
        chart.draw_series([PathElement::new(vec![(0.0, 1.0), (bars.len() as f64, 1.0)], BLACK)])?;
        area.present()
    })();
    drawn.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Draws rows a second by the number of workers: median, least and greatest, and the straight line.
pub fn scaling(path: &Path, points: &[(usize, f64, f64, f64)]) {
    let Some((first, ..)) = points.first().copied() else { return };
    let most = points.iter().map(|point| point.0).max().unwrap_or(1);
    let base = points[0].1 / first as f64;
    let top = points.iter().map(|point| point.3).fold(base * most as f64, f64::max) * 1.05;
    let area = SVGBackend::new(path, (640, 420)).into_drawing_area();
    let drawn = (|| {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption("records a second by workers", ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..most as f64 + 0.5, 0.0..top)?;
        chart.configure_mesh().x_desc("workers").y_desc("records/s").draw()?;
        let straight = vec![(0.0, 0.0), (most as f64, base * most as f64)];
        chart.draw_series([PathElement::new(straight, BLACK.mix(0.3))])?;
        let line = points.iter().map(|(workers, median, ..)| (*workers as f64, *median));
        chart.draw_series(LineSeries::new(line.clone(), &BLUE))?;
        chart.draw_series(line.map(|point| Circle::new(point, 4, BLUE.filled())))?;
        for (workers, _, least, most) in points {
            let whisker = vec![(*workers as f64, *least), (*workers as f64, *most)];
            chart.draw_series([PathElement::new(whisker, BLACK)])?;
        }
        area.present()
    })();
    drawn.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
