//! The figures: a table for people, a file of all runs, plots, and one line for programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::plot;

/// What a figure should reach, and what it aims at.
struct Goal {
    name: &'static str,
    reach: f64,
    aim: f64,
    /// Whether less is better.
    less: bool,
}

const GOALS: [Goal; 14] = [
    Goal { name: "copy_ratio", reach: 0.7, aim: 0.95, less: false },
    Goal { name: "copy_ratio_10m", reach: 0.7, aim: 0.95, less: false },
    Goal { name: "cost_ratio", reach: 0.95, aim: 1.2, less: false },
    Goal { name: "us_per_message", reach: 1.4, aim: 0.9, less: true },
    Goal { name: "times_drain", reach: 3.0, aim: 2.0, less: true },
    Goal { name: "upsert_ratio", reach: 0.8, aim: 1.2, less: false },
    Goal { name: "scale_cpu", reach: 1.7, aim: 1.95, less: false },
    Goal { name: "scale_latency", reach: 6.5, aim: 7.8, less: false },
    Goal { name: "scale_processes", reach: 0.9, aim: 1.0, less: false },
    Goal { name: "p50_ms", reach: 80.0, aim: 45.0, less: true },
    Goal { name: "p99_ms", reach: 200.0, aim: 90.0, less: true },
    Goal { name: "idle_cpu", reach: 1.0, aim: 0.2, less: true },
    Goal { name: "metrics_cost", reach: 1.03, aim: 1.0, less: true },
    Goal { name: "filter_all", reach: 0.5, aim: 0.8, less: false },
];

/// A figure of several rounds.
struct Figure {
    name: &'static str,
    rounds: Vec<f64>,
    goal: Option<(f64, f64, bool)>,
}

impl Figure {
    fn median(&self) -> f64 {
        median(&self.rounds)
    }
}

/// The middle of `values`, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}

/// All that was measured.
pub struct Report {
    out: PathBuf,
    figures: Vec<Figure>,
    runs: String,
}

impl Report {
    pub fn new(out: &Path) -> Self {
        std::fs::create_dir_all(out).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
        Report {
            out: out.to_owned(),
            figures: Vec::new(),
            runs: "figure,round,part,value,unit\n".to_owned(),
        }
    }

    /// Notes one run of a part of a figure.
    pub fn run(&mut self, figure: &str, round: usize, part: &str, value: f64, unit: &str) {
        let _ = writeln!(self.runs, "{figure},{round},{part},{value:.6},{unit}");
        eprintln!("bench: {figure} round {round}: {part} {value:.3} {unit}");
    }

    /// Notes a figure, a value a round.
    pub fn figure(&mut self, name: &'static str, rounds: Vec<f64>) {
        let goal = GOALS.iter().find(|goal| goal.name == name);
        let goal = goal.map(|goal| (goal.reach, goal.aim, goal.less));
        self.put(name, rounds, goal);
    }

    /// As [`Report::figure`], of which less is better, with a goal known only now.
    pub fn bounded(&mut self, name: &'static str, rounds: Vec<f64>, reach: f64, aim: f64) {
        self.put(name, rounds, Some((reach, aim, true)));
    }

    fn put(&mut self, name: &'static str, rounds: Vec<f64>, goal: Option<(f64, f64, bool)>) {
        assert!(!rounds.is_empty(), "`{name}` was not measured");
        self.figures.push(Figure { name, rounds, goal });
    }

    /// Prints the table and the line, and writes the files.
    pub fn finish(self) {
        println!(
            "{:<16} {:>8} {:>8} {:>8} {:>8} {:>8}  {:<7} rounds",
            "figure", "median", "min", "max", "reach", "aim", "holds"
        );
        for figure in &self.figures {
            let (least, most) = bounds(&figure.rounds);
            let median = figure.median();
            let (reach, aim, holds) = match figure.goal {
                None => (String::new(), String::new(), ""),
                Some((reach, aim, less)) => {
                    let within = |goal: f64| if less { median <= goal } else { median >= goal };
                    let holds = match (within(aim), within(reach)) {
                        (true, _) => "aim",
                        (_, true) => "reach",
                        _ => "NO",
                    };
                    (format!("{reach:.2}"), format!("{aim:.2}"), holds)
                }
            };
            println!(
                "{:<16} {median:>8.3} {least:>8.3} {most:>8.3} {reach:>8} {aim:>8}  {holds:<7} {}",
                figure.name,
                figure.rounds.len()
            );
        }
        let write = |name: &str, text: &str| {
            let path = self.out.join(name);
            std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        };
        write("runs.csv", &self.runs);
        let mut table = "figure,median,min,max,rounds\n".to_owned();
        for figure in &self.figures {
            let (least, most) = bounds(&figure.rounds);
            let Figure { name, rounds, .. } = figure;
            let _ = writeln!(table, "{name},{},{least},{most},{}", figure.median(), rounds.len());
        }
        write("figures.csv", &table);
        let bars: Vec<plot::Bar<'_>> = self
            .figures
            .iter()
            .filter_map(|figure| {
                let (reach, aim, less) = figure.goal?;
                // How far it is, with 1 as what it should reach.
                let share = |value: f64| if less { reach / value.max(1e-9) } else { value / reach };
                let (least, most) = bounds(&figure.rounds);
                let (low, high) = (share(least), share(most));
                Some(plot::Bar {
                    name: figure.name,
                    value: share(figure.median()),
                    low: low.min(high),
                    high: low.max(high),
                    aim: share(aim.max(1e-9)).min(9.0),
                })
            })
            .collect();
        plot::bars(&self.out.join("figures.svg"), &bars);
        let line = self.figures.iter().map(|f| format!("{}={:.3}", f.name, f.median()));
        println!("{}", line.collect::<Vec<_>>().join(" "));
    }
}

/// The least and the greatest.
pub fn bounds(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}
