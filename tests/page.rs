//! The status page as a browser shows it, while a load runs.
//!
//! Needs Chromium (Debian's `chromium`); without it the test says that it is skipped.

mod common;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::load::{Load, free};
use common::tools::installed;
use common::{Process, eventually};

const PARTITIONS: i32 = 3;
const LONG: Duration = Duration::from_secs(60);

/// A page as it is after some seconds of its own time.
struct Shown(String);

impl Shown {
    fn load(browser: &str, address: &str) -> Option<Self> {
        let profile = std::env::temp_dir().join(common::unique("browser"));
        let done = Command::new(browser)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(["--virtual-time-budget=4000", "--dump-dom"])
            .arg(format!("http://{address}/"))
            .stderr(Stdio::null())
            .output()
            .expect("the browser starts");
        // Its profile is of no use to anyone.
        let _ = std::fs::remove_dir_all(&profile);
        let page = String::from_utf8(done.stdout).expect("a page is UTF-8");
        page.contains("id=\"rows-total\"").then_some(Shown(page))
    }

    /// The value of the first element with `attribute` behind `from`.
    fn value_behind(&self, from: usize, attribute: &str) -> Option<i64> {
        let begin = from + self.0[from..].find(attribute)?;
        let tag = &self.0[begin..begin + self.0[begin..].find('>')?];
        let value = tag.split_once("data-value=\"")?.1;
        value[..value.find('"')?].parse::<f64>().ok().map(|value| value as i64)
    }

    fn value(&self, id: &str) -> Option<i64> {
        self.value_behind(0, &format!("id=\"{id}\""))
    }

    fn durable(&self, partition: &str) -> Option<i64> {
        let row = self.0.find(&format!("data-partition=\"{partition}\""))?;
        self.value_behind(row, "data-figure=\"durable\"")
    }
}

#[test]
fn a_browser_shows_figures_that_move_and_agree_with_the_stored_positions() {
    let Some(browser) = installed(&["chromium", "chromium-browser", "google-chrome"]) else {
        return;
    };
    let topic = common::topic("seen", PARTITIONS);
    let mut client = common::connect();
    let schema = common::schema(&mut client, "seen");
    let address = free();
    let params = [format!("topic={topic}"), format!("table={schema}.valid_orders")];
    let of = |command: &str, more: &[&str]| {
        let [topic, table] = &params;
        let fixed = [command, "orders", "--name", &schema, "--param", topic, "--param", table];
        Process::spawn(&fixed.iter().chain(more).copied().collect::<Vec<_>>())
    };
    let run = of("run", &["-w", "2", "--metrics", &address]);
    let load = Load::start(&topic, 0, PARTITIONS);
    let rows =
        |least: i64| move |page: &Shown| page.value("rows-total").is_some_and(|rows| rows > least);
    let look = |done: &dyn Fn(&Shown) -> bool| {
        eventually(LONG, || Shown::load(browser, &address).filter(|page| done(page)))
            .expect("the page shows it")
    };
    let first = look(&rows(0));
    assert!(first.0.contains("data-phase=\"running\""), "the page says that it runs");
    let before = first.value("rows-total").expect("a number");
    let second = look(&rows(before));
    for partition in 0..PARTITIONS {
        let name = format!("{topic}[{partition}]");
        assert!(second.durable(&name) >= first.durable(&name), "{name} does not go back");
    }

    load.stop();
    let caught_up = look(&|page| page.value("lag-total") == Some(0) && rows(before)(page));
    let (_, out, _) = of("positions", &[]).wait(LONG);
    let stored: BTreeMap<i64, i64> = out
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            let [.., partition, position, _end, _lag] = cells[..] else { panic!("{line}") };
            (partition.parse().unwrap(), position.parse().unwrap())
        })
        .collect();
    assert_eq!(stored.len(), PARTITIONS as usize, "{out}");
    for (partition, position) in stored {
        assert_eq!(caught_up.durable(&format!("{topic}[{partition}]")), Some(position), "{out}");
    }
    run.signal("-TERM");
    run.success(LONG);
    common::forget(&mut client, &schema);
    common::delete(&topic);
}
