//! Refused records into `rejects`, in the transaction of their neighbours.

use std::fmt::Write;

use super::connect::Session;
use super::ident::quote;
use super::load::Loader;
use super::retry::Fault;
use crate::origins::Origin;
use crate::record::Reject;

/// How many go in one statement, and how many bytes of what they held.
const ROWS: usize = 1000;
const BYTES: usize = 16 << 20;

/// A refused record on its way into the table.
pub(super) struct Refused<'a> {
    pub sink: &'a str,
    pub topic: &'a str,
    pub reject: &'a Reject,
    /// What it held, where that was kept.
    pub origin: Option<Origin>,
}

impl Refused<'_> {
    fn bytes(&self) -> usize {
        let origin = self.origin.as_ref();
        origin.map_or(0, |origin| {
            let of = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
            let headers = origin.headers.iter().map(|(name, value)| name.len() + of(value));
            of(&origin.key) + of(&origin.value) + headers.sum::<usize>()
        })
    }
}

/// Stores them, within the open transaction.
pub(super) async fn store(
    session: &Session,
    loader: &mut Loader,
    schema: &str,
    pipeline: &str,
    mut refused: &[Refused<'_>],
) -> Result<(), Fault> {
    let sql = format!(
        "insert into {}.rejects (pipeline, sink, topic, partition, \"offset\", ordinal, key, payload,
                headers, timestamp_ms, stage, \"column\", reason, sqlstate)
         select $1, sink, topic, partition, \"offset\", ordinal, key, payload,
                headers::jsonb, timestamp_ms, stage, \"column\", reason, sqlstate
           from unnest($2::text[], $3::text[], $4::int4[], $5::int8[], $6::int8[], $7::bytea[],
                       $8::bytea[], $9::text[], $10::int8[], $11::text[], $12::text[], $13::text[],
                       $14::text[])
             as r (sink, topic, partition, \"offset\", ordinal, key, payload,
                   headers, timestamp_ms, stage, \"column\", reason, sqlstate)",
        quote(schema)
    );
    while !refused.is_empty() {
        let mut bytes = 0;
        let room = |refused: &&Refused<'_>| {
            bytes += refused.bytes();
            bytes <= BYTES
        };
        let count = refused.iter().take(ROWS).take_while(room).count().max(1);
        let (now, later) = refused.split_at(count);
        refused = later;
        let statement = loader.statement(session, sql.clone()).await?;
        let texts = |of: fn(&Refused<'_>) -> String| now.iter().map(of).collect::<Vec<_>>();
        let maybe = |of: fn(&Refused<'_>) -> Option<String>| now.iter().map(of).collect::<Vec<_>>();
        let origin = |of: fn(&Origin) -> Option<&[u8]>| {
            now.iter().map(|r| r.origin.as_ref().and_then(of)).collect::<Vec<_>>()
        };
        let partitions: Vec<i32> = now.iter().map(|r| r.reject.at.partition.0).collect();
        let offsets: Vec<i64> = now.iter().map(|r| r.reject.at.offset.0).collect();
        let ordinals: Vec<i64> = now.iter().map(|r| i64::from(r.reject.at.ordinal)).collect();
        let timestamps: Vec<Option<i64>> =
            now.iter().map(|r| r.origin.as_ref().and_then(|origin| origin.timestamp)).collect();
        session
            .within(session.client.execute(
                &statement,
                &[
                    &pipeline,
                    &texts(|r| r.sink.to_owned()),
                    &texts(|r| r.topic.to_owned()),
                    &partitions,
                    &offsets,
                    &ordinals,
                    &origin(|o| o.key.as_deref()),
                    &origin(|o| o.value.as_deref()),
                    &maybe(|r| r.origin.as_ref().map(|origin| headers(&origin.headers))),
                    &timestamps,
                    &texts(|r| r.reject.refusal.stage.to_owned()),
                    &maybe(|r| r.reject.refusal.column.as_deref().map(storable)),
                    &texts(|r| storable(&r.reject.refusal.reason)),
                    &maybe(|r| r.reject.refusal.sqlstate.clone()),
                ],
            ))
            .await?;
    }
    Ok(())
}

/// Takes away those of these records, within the open transaction: they are replayed.
pub(super) async fn take_away(
    session: &Session,
    schema: &str,
    pipeline: &str,
    sink: &str,
    records: &[(&str, i32, i64)],
) -> Result<(), Fault> {
    let topics: Vec<&str> = records.iter().map(|(topic, ..)| *topic).collect();
    let partitions: Vec<i32> = records.iter().map(|(_, partition, _)| *partition).collect();
    let offsets: Vec<i64> = records.iter().map(|(.., offset)| *offset).collect();
    let sql = format!(
        "delete from {}.rejects
          where pipeline = $1 and sink = $2 and (topic, partition, \"offset\") in
                (select * from unnest($3::text[], $4::int4[], $5::int8[]))",
        quote(schema)
    );
    let client = &session.client;
    session
        .within(client.execute(&sql, &[&pipeline, &sink, &topics, &partitions, &offsets]))
        .await?;
    Ok(())
}

/// A sentence may quote what the server does not store.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Headers as a JSON array of objects: `name`, and `text` where the value is one that `jsonb` stores,
/// else `hex`; neither where there is no value.
fn headers(headers: &[(String, Option<Vec<u8>>)]) -> String {
    let object = |(name, value): &(String, Option<Vec<u8>>)| {
        let mut object = serde_json::Map::new();
        object.insert("name".into(), storable(name).into());
        if let Some(value) = value {
            match std::str::from_utf8(value) {
                Ok(text) if !text.contains('\0') => object.insert("text".into(), text.into()),
                _ => object.insert("hex".into(), hex(value).into()),
            };
        }
        serde_json::Value::Object(object)
    };
    serde_json::Value::Array(headers.iter().map(object).collect()).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_null_empty_and_bytes_apart() {
        let all = [
            ("a".to_owned(), None),
            ("a".to_owned(), Some(vec![])),
            ("b".to_owned(), Some(vec![0xff, 0])),
            ("c".to_owned(), Some(b"a\0b".to_vec())),
        ];
        assert_eq!(
            headers(&all),
            r#"[{"name":"a"},{"name":"a","text":""},{"hex":"ff00","name":"b"},{"hex":"610062","name":"c"}]"#
        );
    }
}
