//! Of several right outcomes, the one that the program documents.

use super::form::{Case, Expected};

/// What the documentation of the dataflow `copy` says where a case leaves the choice.
const DOCUMENTED: [(&str, &str); 9] = [
    // A JSON null is SQL NULL, in a jsonb column too.
    ("json_null", "sql"),
    // A null value in append mode is filtered.
    ("append_null", "skip"),
    // Fields that no column takes are ignored.
    ("extra_field", "ignore"),
    // Of two headers of one name the last counts.
    ("same_header", "last"),
    // A time without a zone is refused by timestamptz where none is declared ..
    ("zoneless", "reject"),
    // .. as one with an offset is by timestamp.
    ("timestamp_offset", "reject"),
    // A local time that happened twice is the later one, as for the server.
    ("fold", "later"),
    // A number is what the declared unit makes of it, however odd.
    ("plausible", "declared"),
    // A field whose column was dropped while the program ran rejects its record.
    ("dropped_column", "reject"),
];

/// The outcome that must come of `case`.
pub fn documented(case: &Case) -> Expected {
    let mut outcomes = match (&case.expected, &case.expected_any) {
        (Some(outcome), None) => vec![outcome.clone()],
        (None, Some(outcomes)) => outcomes.clone(),
        _ => panic!("{} has either one outcome or several", case.id),
    };
    outcomes.retain(|outcome| {
        let mut policies = outcome.policy.iter();
        policies.all(|(name, value)| DOCUMENTED.contains(&(name.as_str(), value.as_str())))
    });
    assert_eq!(outcomes.len(), 1, "{}: one outcome is documented", case.id);
    outcomes.remove(0)
}
