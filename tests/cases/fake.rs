//! That the grader can fail: cases written by plain SQL, right first, then wrong in one way after the other.

use std::fmt::Write;

use postgres::Client;

use super::form::{Case, Expected, load};
use super::grade::{Given, grade};
use super::outcome::Outcome;
use super::policy::documented;
use super::produce::{Sent, Topic};
use crate::common;

/// A case whose rows and bookkeeping were written by hand, in a schema of its own.
struct Fake {
    case: Case,
    expected: Expected,
    schema: String,
    client: Client,
}

impl Fake {
    /// Writes the case `id`; its rows are those of `rows`, with `@` for the schema.
    fn write(id: &str, rows: &str) -> (Self, Topic) {
        let case = load().into_iter().find(|case| case.id == id).unwrap();
        let expected = documented(&case);
        let schema = common::unique(&case.schema);
        let mut topic = Topic::new(&case);
        topic.produce(topic.len());
        let mut client = common::connect();
        client.batch_execute(&case.ddl.replace(&case.schema, &schema)).unwrap();
        client.batch_execute(&rows.replace('@', &schema)).unwrap();
        client.batch_execute(&books(&topic, &expected).replace('@', &schema)).unwrap();
        (Fake { case, expected, schema, client }, topic)
    }

    /// The objections once `fault` was done to what was written. Nothing of it remains.
    fn objections(&mut self, topic: &Topic, fault: &str) -> String {
        self.client.batch_execute("begin").unwrap();
        self.client.batch_execute(&fault.replace('@', &self.schema)).expect(fault);
        let query = self.expected.query.replace(&self.case.schema, &self.schema);
        let outcome = Outcome::read(&mut self.client, &self.schema, "p", &query);
        self.client.batch_execute("rollback").unwrap();
        let given = Given { topic: &topic.name, sent: &topic.sent, ends: &topic.ends() };
        grade(&self.expected, &given, &outcome).join("; ")
    }

    /// Checks that nothing is said of what is right, and something of each fault.
    fn verify(mut self, topic: &Topic, faults: &[(&str, &str)]) {
        assert_eq!(self.objections(topic, ""), "");
        for (fault, objection) in faults {
            let said = self.objections(topic, fault);
            assert!(said.contains(objection), "`{fault}` is answered by `{said}`");
        }
        self.client.batch_execute(&format!("drop schema {} cascade", self.schema)).unwrap();
    }
}

/// The bookkeeping of a right run over one partition.
fn books(topic: &Topic, expected: &Expected) -> String {
    let (all, rejected) = (topic.len(), expected.rejects.len());
    let written = all - rejected;
    let mut sql = format!(
        "create table @.slices (pipeline text, partition int, position bigint, consumed bigint,
             filtered bigint, written bigint, rejected bigint, collapsed bigint);
         create table @.rejects (id bigint generated always as identity, pipeline text, topic text,
             partition int, \"offset\" bigint, key bytea, payload bytea, headers jsonb,
             timestamp_ms bigint, \"column\" text, reason text, sqlstate text);
         insert into @.slices values ('p', 0, {all}, {all}, 0, {written}, {rejected}, 0);"
    );
    for reject in &expected.rejects {
        let Sent { key, value, headers, offset, .. } = &topic.sent[reject.index];
        let headers: Vec<_> = headers.iter().map(|(name, value)| header(name, value)).collect();
        let text =
            |text: &Option<String>| text.as_ref().map_or("null".into(), |t| format!("'{t}'"));
        write!(
            sql,
            "insert into @.rejects (pipeline, topic, partition, \"offset\", key, payload, headers,
                 \"column\", reason, sqlstate)
             values ('p', '{}', 0, {offset}, {}, {}, '[{}]', {}, 'no', {});",
            topic.name,
            bytea(key),
            bytea(value),
            headers.join(","),
            text(&reject.column),
            text(&reject.sqlstate)
        )
        .unwrap();
    }
    sql
}

fn header(name: &str, value: &Option<Vec<u8>>) -> String {
    match value {
        None => format!(r#"{{"name":"{name}"}}"#),
        Some(bytes) => format!(r#"{{"name":"{name}","hex":"{}"}}"#, hex(bytes)),
    }
}

fn bytea(bytes: &Option<Vec<u8>>) -> String {
    bytes.as_ref().map_or("null".into(), |bytes| format!("'\\x{}'", hex(bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_grader_objects_to_each_fault() {
    let rows = "insert into @.gate_notes values
                (811, 'left at the gate', true), (813, 'no dog', false), (815, '', null)";
    let (fake, topic) = Fake::write("a01_nul_in_text", rows);
    fake.verify(
        &topic,
        &[
            ("update @.gate_notes set remark = null where parcel = 815", "rows: "),
            ("delete from @.gate_notes where parcel = 813", "rows: "),
            ("insert into @.gate_notes values (812, 'ringtwice', true)", "rows: "),
            ("delete from @.rejects where \"offset\" = 3", "message 3 is not rejected"),
            ("update @.rejects set \"offset\" = 2 where \"offset\" = 3", "message 2 is rejected: "),
            ("update @.rejects set \"offset\" = 1", "message 1 is rejected twice"),
            ("update @.rejects set \"offset\" = 9 where id = 1", "where no message is"),
            ("update @.rejects set \"column\" = 'seen' where id = 1", "message 1 is rejected with"),
            ("update @.rejects set \"column\" = null where id = 2", "message 3 is rejected with"),
            ("update @.rejects set sqlstate = '23502' where id = 1", "message 1 is rejected with"),
            ("update @.rejects set reason = '' where id = 1", "message 1 is rejected with"),
            ("update @.rejects set topic = 'other'", "another topic"),
            ("update @.rejects set key = null where id = 1", "another key"),
            ("update @.rejects set payload = payload || '\\x20' where id = 1", "another payload"),
            ("update @.rejects set headers = '[{\"name\":\"a\"}]'", "another headers"),
            ("update @.slices set position = 5", "partition 0 stands at 5, its end is 6"),
            ("update @.slices set written = 2", "does not add up"),
            ("update @.slices set consumed = 5, written = 2", "5 records of partition 0, not 6"),
            (
                "update @.slices set written = 2, rejected = 4",
                "4 rejects of partition 0 are counted",
            ),
            ("delete from @.slices", "partitions [] are stored"),
        ],
    );
}

#[test]
fn the_grader_compares_headers_byte_by_byte() {
    let rows =
        "insert into @.hops values (1, 'Ærlig', 64), (5, '', null), (6, null, null), (8, null, 7)";
    let (fake, topic) = Fake::write("o05_headers_as_text", rows);
    let set = |headers: &str| format!("update @.rejects set headers = '{headers}' where id = 1");
    let faults = [
        set(r#"[{"name":"via","text":"ff"}]"#),
        set(r#"[{"name":"via"}]"#),
        set(r#"[{"name":"Via","hex":"ff"}]"#),
        set("[]"),
    ];
    let faults: Vec<_> = faults.iter().map(|fault| (fault.as_str(), "another headers")).collect();
    fake.verify(&topic, &faults);
}
