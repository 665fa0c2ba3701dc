//! Finds what the server refuses among many units, in about two trials more for each halving.
//!
//! A state machine without I/O: it names the next run of units to try, and is told what became of it.
//! Runs are tried from left to right, so that of two units that exclude each other the earlier stands.

use std::ops::Range;

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// All of it was taken.
    Taken,
    /// It was refused; by the unit at this place of the run, as far as is known.
    Refused(Option<usize>),
}

/// Runs of units still to be tried, the next one last.
#[derive(Debug)]
pub(super) struct Bisection(Vec<Range<usize>>);

impl Bisection {
    /// All of `units`, in runs of at most `longest`: a refusal costs no more than its run over again.
    pub fn new(units: usize, longest: usize) -> Self {
        let starts = (0..units).step_by(longest.max(1));
        let mut runs: Vec<_> =
            starts.map(|start| start..units.min(start.saturating_add(longest))).collect();
        runs.reverse();
        Bisection(runs)
    }

    /// The run to try next.
    pub fn next(&self) -> Option<Range<usize>> {
        self.0.last().cloned()
    }

    /// Notes what became of it. Gives the unit that was refused, once it stood alone.
    pub fn note(&mut self, trial: Trial) -> Option<usize> {
        let run = self.0.pop()?;
        let Trial::Refused(hint) = trial else { return None };
        if run.len() == 1 {
            return Some(run.start);
        }
        match hint.map(|place| run.start + place).filter(|unit| run.contains(unit)) {
            // What stands before it was taken already and is so again; it alone, to be sure.
            Some(unit) => self.push([run.start..unit, unit..unit + 1, unit + 1..run.end]),
            None => {
                let middle = run.start + run.len() / 2;
                self.push([run.start..middle, middle..run.end, 0..0]);
            }
        }
        None
    }

    fn push(&mut self, runs: [Range<usize>; 3]) {
        self.0.extend(runs.into_iter().rev().filter(|run| !run.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The refused units, the taken ones, and the number of trials, where `bad` are refused.
    fn run(units: usize, longest: usize, bad: &[usize], hints: bool) -> (Vec<usize>, usize, usize) {
        let mut bisection = Bisection::new(units, longest);
        let (mut refused, mut taken, mut trials) = (Vec::new(), 0, 0);
        while let Some(run) = bisection.next() {
            trials += 1;
            let first = run.clone().position(|unit| bad.contains(&unit));
            match first {
                None => {
                    taken += run.len();
                    bisection.note(Trial::Taken);
                }
                Some(place) => {
                    refused.extend(bisection.note(Trial::Refused(hints.then_some(place))));
                }
            }
        }
        (refused, taken, trials)
    }

    #[test]
    fn each_bad_unit_is_found_and_every_good_one_taken() {
        for bad in [&[][..], &[0], &[999], &[0, 1, 2], &[499, 500], &[7, 300, 301, 998]] {
            for (longest, hints) in [(usize::MAX, false), (64, false), (1000, true), (1, false)] {
                let (refused, taken, _) = run(1000, longest, bad, hints);
                assert_eq!((&refused[..], taken), (bad, 1000 - bad.len()), "{longest} {hints}");
            }
        }
        assert_eq!(run(0, 10, &[], false), (vec![], 0, 0));
        assert_eq!(run(3, 10, &[0, 1, 2], false).0, [0, 1, 2]);
    }

    #[test]
    fn a_bad_unit_costs_twice_the_logarithm_and_a_known_place_three_trials() {
        let (.., trials) = run(1 << 16, usize::MAX, &[12345], false);
        assert!(trials <= 1 + 2 * 16, "{trials}");
        let (.., trials) = run(1 << 16, usize::MAX, &[12345], true);
        assert_eq!(trials, 4);
    }

    #[test]
    fn a_hint_beyond_the_run_is_no_hint() {
        let mut bisection = Bisection::new(4, 4);
        assert_eq!(bisection.note(Trial::Refused(Some(9))), None);
        assert_eq!(bisection.next(), Some(0..2));
    }
}
