//! What somebody who mistyped a name most likely meant.

/// The name of `known` that is nearest to `name`, unless none is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.chars().count().div_ceil(3);
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, left out, exchanged or swapped with their neighbour to make one of
/// the other. Case counts nothing, nor does a dash for an underscore.
fn distance(one: &str, other: &str) -> usize {
    let letters = |text: &str| -> Vec<char> {
        text.chars().flat_map(char::to_lowercase).map(|c| if c == '-' { '_' } else { c }).collect()
    };
    let (one, other) = (letters(one), letters(other));
    // Rows of the table of distances between their beginnings: the last two, and the one in work.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = ["topic", "table", "tombstones", "delete_when"];
        for (name, expected) in [
            ("tabel", Some("table")),
            ("topics", Some("topic")),
            ("Delete-When", Some("delete_when")),
            ("tombstone", Some("tombstones")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }
}
