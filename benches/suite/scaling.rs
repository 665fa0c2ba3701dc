//! Records a second by the number of workers, of any program's dataflow.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use super::common::{connect, unique};
use super::load::Topic;
use super::place::Place;
use super::plot;
use super::process::figure;
use super::report::{bounds, median};

#[derive(Args)]
pub struct Scaling {
    /// The numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    workers: Vec<usize>,

    /// The program: `tidegate`, or one with your own dataflows.
    #[arg(long, default_value = "target/release/tidegate")]
    program: PathBuf,

    /// Its dataflow. Each run reads the topic from its beginning to its end. Without one it is `orders`,
    /// on a topic and into a table that are made for it.
    #[arg(long)]
    dataflow: Option<String>,

    /// How many orders that topic holds.
    #[arg(long, default_value_t = 1_000_000)]
    orders: u64,

    /// SQL to execute before each run, such as `truncate valid_orders`.
    #[arg(long)]
    before: Option<String>,

    /// How often each number of workers takes its turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// A folder for `scaling.csv` and `scaling.svg`.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,

    /// What else `run` is given, behind `--`: parameters, `-n`, `-h`.
    #[arg(last = true)]
    more: Vec<String>,
}

impl Scaling {
    /// Measures and prints.
    pub fn run(mut self) {
        let made = self.dataflow.is_none().then(|| {
            let topic = Topic::of_orders("scaling", self.orders);
            let mut place = Place::new("scaling");
            let table = place.table("scaled");
            self.before = Some(format!("truncate {table}"));
            self.more
                .extend([format!("--param=topic={}", topic.0), format!("--param=table={table}")]);
            (topic, place)
        });
        self.measure();
        drop(made);
    }

    fn measure(&self) {
        std::fs::create_dir_all(&self.out).expect("the folder can be made");
        let mut rates = vec![Vec::new(); self.workers.len()];
        let mut csv = "workers,round,records,seconds\n".to_owned();
        for round in 0..self.rounds.max(1) {
            for (workers, rates) in self.workers.iter().zip(&mut rates) {
                let (records, seconds) = self.once(*workers);
                let _ = writeln!(csv, "{workers},{round},{records},{seconds}");
                eprintln!("bench: -w {workers}, round {round}: {records} records in {seconds} s");
                rates.push(records / seconds);
            }
        }
        println!("{:>7} {:>12} {:>12} {:>12} {:>7}", "workers", "records/s", "min", "max", "times");
        let base = median(&rates[0]);
        let mut points = Vec::new();
        for (workers, rates) in self.workers.iter().zip(&rates) {
            let (middle, (least, most)) = (median(rates), bounds(rates));
            println!(
                "{workers:>7} {middle:>12.0} {least:>12.0} {most:>12.0} {:>7.2}",
                middle / base
            );
            points.push((*workers, middle, least, most));
        }
        std::fs::write(self.out.join("scaling.csv"), csv).expect("the file can be written");
        plot::scaling(&self.out.join("scaling.svg"), &points);
        let line = points.iter().map(|(workers, rate, ..)| format!("w{workers}={rate:.0}"));
        println!("{}", line.collect::<Vec<_>>().join(" "));
    }

    /// One run from the beginning to the end: records and seconds.
    fn once(&self, workers: usize) -> (f64, f64) {
        let name = unique("scaling");
        if let Some(sql) = &self.before {
            connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        let workers = workers.to_string();
        // Under a name of its own each run begins at the topic's beginning.
        let done = Command::new(&self.program)
            .args([
                "run",
                self.dataflow.as_deref().unwrap_or("orders"),
                "--name",
                &name,
                "--until-end",
                "-w",
                &workers,
            ])
            .args(&self.more)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "the run ended with {}", done.status);
        let line = text.lines().last().unwrap_or_default();
        (figure(line, "consumed"), figure(line, "seconds"))
    }
}
