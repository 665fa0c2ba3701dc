//! Makes sure that what is read is of the topic that the positions are of (contract C9).

use super::events::Events;
use crate::error::{Error, Result};

/// Looks, for each lot of records that was taken from a client, which topic the client reads. A topic that
/// is deleted and created again keeps its name; librdkafka goes on with the new one at the old offset,
/// where the new one may have a record too. It never mixes the two in one answer of a broker, since it asks
/// by id, and it says when it goes on with another id, before it asks for anything of it. So records that
/// were taken are of the expected topic where nothing else has been said *after* they were taken.
pub(super) struct Witness {
    topic: String,
    brokers: String,
    /// The id that the positions are of; `None` where the brokers know none.
    expected: Option<String>,
    /// How many changes the client had told when it was found to read the expected topic.
    certain: Option<u64>,
}

impl Witness {
    pub(super) fn new(topic: &str, brokers: &str, expected: Option<String>) -> Self {
        Witness { topic: topic.into(), brokers: brokers.into(), expected, certain: None }
    }

    /// Whether the client of `events` reads the expected topic, asked after something was taken from it;
    /// `any` says whether there was a record in it.
    pub(super) fn attest(&mut self, events: &Events, any: bool) -> Result<()> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let changes = events.changes();
        if self.certain == Some(changes) {
            return Ok(());
        }
        let Witness { topic, brokers, .. } = self;
        match events.topic_id(topic) {
            Some(found) if found == *expected => self.certain = Some(changes),
            Some(found) => {
                return Err(Error::position(format!(
                    "topic `{topic}` on `{brokers}` was created again while it was read: its id was \
                     `{expected}` and is `{found}`; nothing of the new one was taken, and what was left of \
                     the old one is gone: start over with `tidegate positions --forget {topic}`, or choose \
                     where to go on with `--set`"
                )));
            }
            None if any => {
                return Err(Error::internal(format!(
                    "the Kafka client does not say which topic of the name `{topic}` it reads"
                )));
            }
            None => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "[thrd:main]: Topic orders changed id from AAAAAAAAAAAAAAAAAAAAAA to ";

    fn witness() -> Witness {
        Witness::new("orders", "here:9092", Some("one".into()))
    }

    #[test]
    fn a_record_of_an_unknown_topic_is_never_taken() {
        let events = Events::default();
        assert!(witness().attest(&events, false).is_ok());
        assert!(witness().attest(&events, true).is_err());
    }

    #[test]
    fn another_id_ends_it_also_after_the_right_one() {
        let (events, mut witness) = (Events::default(), witness());
        events.log(7, "METADATA", &format!("{LINE}one"));
        assert!(witness.attest(&events, true).is_ok());
        events.log(7, "METADATA", &LINE.replace("orders", "others"));
        assert!(witness.attest(&events, true).is_ok());
        events.log(7, "METADATA", &format!("{LINE}two"));
        let error = witness.attest(&events, false).expect_err("another topic");
        for part in ["`orders`", "`here:9092`", "`one`", "`two`", "--forget"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn brokers_without_ids_are_believed() {
        let mut witness = Witness::new("orders", "here:9092", None);
        assert!(witness.attest(&Events::default(), true).is_ok());
    }
}
