//! Rows, keys, layouts, deletes, refusals.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;

use super::*;

const BOOL: u32 = 16;
const BIGINT: u32 = 20;
const TEXT: u32 = 25;
const JSONB: u32 = 3802;

fn orders(key: &[u16]) -> Table {
    let mut id = column("id", BIGINT);
    id.not_null = true;
    table(vec![id, column("status", TEXT), column("gone", BOOL)], key)
}

fn bigint(value: i64) -> Vec<u8> {
    [&[0, 0, 0, 8][..], &value.to_be_bytes()].concat()
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as i32).to_be_bytes(), value.as_bytes()].concat()
}

fn tuple(fields: &[Vec<u8>]) -> Vec<u8> {
    [(fields.len() as i16).to_be_bytes().to_vec(), fields.concat()].concat()
}

#[derive(Serialize)]
struct Order<'a> {
    id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
}

#[test]
fn a_struct_becomes_a_tuple_and_its_key() {
    let mut encoder = encoder(orders(&[1, 0]));
    put(&mut encoder, Order { id: 7, status: Some("new") }).unwrap();
    let rows = taken(&mut encoder);
    assert_eq!(rows.layouts, [vec![0, 1]]);
    assert_eq!(rows.bytes, tuple(&[bigint(7), text("new")]));
    assert_eq!(rows.keys, [text("new"), bigint(7)].concat());
    let entry = rows.entries[0];
    assert_eq!((entry.row_end, entry.key_end), (rows.bytes.len(), rows.keys.len()));
    assert!(!entry.delete);
    assert!(Encoder::<()>::take(&mut encoder).is_none());
}

#[test]
fn rows_that_lack_a_field_have_a_layout_of_their_own() {
    let mut encoder = encoder(orders(&[]));
    for status in [Some("a"), None, Some("b"), None] {
        put(&mut encoder, Order { id: 1, status }).unwrap();
    }
    let rows = taken(&mut encoder);
    assert_eq!(rows.layouts, [vec![0, 1], vec![0]]);
    let layouts: Vec<_> = rows.entries.iter().map(|entry| entry.layout).collect();
    assert_eq!(layouts, [0, 1, 0, 1]);
    assert!(rows.keys.is_empty());
}

#[test]
fn maps_and_flattened_structs_are_rows() {
    #[derive(Serialize)]
    struct Flat {
        #[serde(flatten)]
        rest: BTreeMap<String, serde_json::Value>,
        id: i64,
    }

    let mut encoder = encoder(orders(&[0]));
    put(&mut encoder, BTreeMap::from([("status", "x")])).unwrap_err();
    put(&mut encoder, json!({"id": 1, "status": "a"})).unwrap();
    put(&mut encoder, json!({"gone": null, "id": 2})).unwrap();
    let rest = BTreeMap::from([("gone".to_owned(), json!(true))]);
    put(&mut encoder, Flat { rest, id: 3 }).unwrap();
    let rows = taken(&mut encoder);
    assert_eq!(rows.layouts, [vec![0, 1], vec![2, 0]]);
    let expected = [
        tuple(&[bigint(1), text("a")]),
        tuple(&[vec![0xff; 4], bigint(2)]),
        tuple(&[vec![0, 0, 0, 1, 1], bigint(3)]),
    ];
    assert_eq!(rows.bytes, expected.concat());
    assert_eq!(rows.keys, [bigint(1), bigint(2), bigint(3)].concat());
}

#[test]
fn values_see_through_wrappers() {
    #[derive(Serialize)]
    struct Id(i64);
    #[derive(Serialize)]
    enum Status {
        #[serde(rename = "new")]
        New,
    }
    #[derive(Serialize)]
    struct Row {
        id: Option<Id>,
        status: Status,
    }
    #[derive(Serialize)]
    struct Wrapped(Row);

    let mut encoder = encoder(orders(&[0]));
    put(&mut encoder, Some(Wrapped(Row { id: Some(Id(7)), status: Status::New }))).unwrap();
    assert_eq!(taken(&mut encoder).bytes, tuple(&[bigint(7), text("new")]));
}

#[test]
fn a_refused_row_leaves_nothing_behind() {
    let mut encoder = encoder(orders(&[0]));
    let cases = [
        (json!({"id": 1, "size": 2}), "no column `size` in table `public.orders`", "42703"),
        (json!({"id": null}), "null in a column that must not be null", "23502"),
        (json!({"status": "x"}), "the row lacks the key column `id`", "23502"),
        (json!({"id": 1, "status": "a\0"}), "a text holds the character NUL", "22021"),
        (json!({"id": 1, "status": {}}), "a map cannot be written to text", "42804"),
        (json!({"id": "x"}), "`x` is no bigint", "22P02"),
        (json!({}), "the row lacks the key column `id`", "23502"),
        (json!([1]), "a row must be a struct or a map, and this is a sequence", "42804"),
    ];
    put(&mut encoder, json!({"id": 1})).unwrap();
    for (row, reason, sqlstate) in cases {
        let refusal = put(&mut encoder, row).unwrap_err();
        assert_eq!(refusal.reason, reason);
        assert_eq!(refusal.sqlstate.as_deref(), Some(sqlstate), "{reason}");
        assert_eq!(refusal.stage, "encode");
    }
    put(&mut encoder, json!({"id": 2})).unwrap();
    let rows = taken(&mut encoder);
    assert_eq!(rows.bytes, [tuple(&[bigint(1)]), tuple(&[bigint(2)])].concat());
    assert_eq!(rows.keys, [bigint(1), bigint(2)].concat());
}

#[test]
fn the_refusal_of_a_value_names_its_column() {
    let refusal = put(&mut encoder(orders(&[])), json!({"id": 1.5})).unwrap_err();
    assert_eq!(refusal.column.as_deref(), Some("id"));
    let refusal = put(&mut encoder(orders(&[])), json!({"status": "x"})).unwrap_err();
    assert_eq!(refusal.reason, "the row lacks the column `id`, which has no default");
    assert_eq!(refusal.sqlstate.as_deref(), Some("23502"));
}

#[test]
fn two_fields_of_one_column_are_refused() {
    struct Twice;
    impl Serialize for Twice {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([("id", 1), ("id", 2)])
        }
    }
    let refusal = put(&mut encoder(orders(&[])), Twice).unwrap_err();
    assert_eq!(refusal.reason, "the row has two fields for column `id`");
}

#[test]
fn a_panic_in_serialize_leaves_nothing_behind() {
    struct Panics;
    impl Serialize for Panics {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            panic!("on purpose")
        }
    }
    let mut encoder = encoder(orders(&[0]));
    let row = BTreeMap::from([("id", 1)]);
    put(&mut encoder, &row).unwrap();
    let panics =
        std::panic::AssertUnwindSafe(|| put(&mut encoder, BTreeMap::from([("id", Panics)])));
    std::panic::catch_unwind(panics).unwrap_err();
    put(&mut encoder, &row).unwrap();
    assert_eq!(taken(&mut encoder).bytes, tuple(&[bigint(1)]).repeat(2));
}

#[test]
fn a_row_that_is_marked_is_a_delete() {
    for (wanted, marks) in [
        ("true", json!(true)),
        ("true", json!("true")),
        ("1", json!(1)),
        ("1.5", json!(1.5)),
        ("d", json!("d")),
    ] {
        let mut table = orders(&[0]);
        table.delete_when = Some(("op".to_owned(), wanted.to_owned()));
        let mut encoder = encoder(table);
        // What else the row holds does not matter, also where it would be refused.
        put(&mut encoder, json!({"gone": "perhaps", "id": 7, "op": marks})).unwrap();
        put(&mut encoder, json!({"gone": "perhaps", "id": 7, "op": null})).unwrap_err();
        put(&mut encoder, json!({"id": null, "op": marks})).unwrap_err();
        put(&mut encoder, json!({"id": 8, "op": "other"})).unwrap();
        let rows = taken(&mut encoder);
        assert_eq!(rows.entries.iter().map(|e| e.delete).collect::<Vec<_>>(), [true, false]);
        assert_eq!(rows.entries[0].row_end, 0);
        assert_eq!(rows.bytes, tuple(&[bigint(8)]));
        assert_eq!(rows.keys, [bigint(7), bigint(8)].concat());
    }
}

#[test]
fn the_mark_may_be_a_column() {
    let mut table = orders(&[0]);
    table.delete_when = Some(("gone".to_owned(), "true".to_owned()));
    let mut encoder = encoder(table);
    put(&mut encoder, json!({"id": 7, "gone": true})).unwrap();
    put(&mut encoder, json!({"id": 8, "gone": false})).unwrap();
    let rows = taken(&mut encoder);
    assert_eq!(rows.layouts, [rows.layouts[0].clone()]);
    assert_eq!(rows.bytes.len(), 2 + 12 + 5);
    assert_eq!(rows.keys, [bigint(7), bigint(8)].concat());
}

fn delete(encoder: &mut RowEncoder, key: Option<&str>) -> Result<(), Refusal> {
    encoder.encode(at(0), &Change::<()>::Delete(key.map(|key| key.as_bytes().into())))
}

#[test]
fn a_tombstone_deletes_by_its_key() {
    let mut encoder = encoder(orders(&[0]));
    delete(&mut encoder, Some("7")).unwrap();
    delete(&mut encoder, Some("{\"id\": 8, \"other\": [1]}")).unwrap();
    assert_eq!(delete(&mut encoder, None).unwrap_err().reason, "a tombstone needs a key");
    assert_eq!(delete(&mut encoder, Some("x")).unwrap_err().column.as_deref(), Some("id"));
    assert_eq!(
        delete(&mut encoder, Some("{\"i\": 8}")).unwrap_err().reason,
        "`{\"i\": 8}` is no bigint"
    );
    delete(&mut encoder, Some("{\"id\": null}")).unwrap_err();
    let rows = taken(&mut encoder);
    assert!(rows.bytes.is_empty() && rows.entries.iter().all(|entry| entry.delete));
    assert_eq!(rows.keys, [bigint(7), bigint(8)].concat());
}

#[test]
fn a_tombstone_of_several_columns_has_an_object_as_key() {
    let mut encoder = encoder(orders(&[0, 1]));
    delete(&mut encoder, Some("{\"status\": \"a\", \"id\": 9007199254740993}")).unwrap();
    delete(&mut encoder, Some("7")).unwrap_err();
    let refusal = delete(&mut encoder, Some("{\"id\": 7}")).unwrap_err();
    assert_eq!(refusal.reason, "the row lacks the key column `status`");
    assert_eq!(taken(&mut encoder).keys, [bigint(9_007_199_254_740_993), text("a")].concat());
}

#[test]
fn a_table_without_a_key_has_nothing_to_delete() {
    let mut encoder = encoder(orders(&[]));
    delete(&mut encoder, Some("7")).unwrap();
    delete(&mut encoder, None).unwrap();
    assert!(Encoder::<()>::take(&mut encoder).is_none());
}

#[test]
fn json_takes_any_value_and_a_null_is_null() {
    let mut encoder = encoder(table(vec![column("v", JSONB)], &[]));
    put(&mut encoder, json!({"v": {"a": [1, "\\u0000"]}})).unwrap();
    put(&mut encoder, json!({"v": null})).unwrap();
    let refusal = put(&mut encoder, json!({"v": ["a\\\0"]})).unwrap_err();
    assert_eq!(refusal.sqlstate.as_deref(), Some("22P05"));
    let expected = [tuple(&[text("\x01{\"a\":[1,\"\\\\u0000\"]}")]), tuple(&[vec![0xff; 4]])];
    assert_eq!(taken(&mut encoder).bytes, expected.concat());
}

#[test]
fn types_say_whether_they_can_be_written_and_whether_their_bytes_are_their_equality() {
    use super::super::{equal_bytes, supported};
    supported(&column("a", TEXT)).unwrap();
    assert!(equal_bytes(&column("a", TEXT)));
    let inet = Column { text: Some("pg_catalog.\"inet\"".to_owned()), ..column("a", 869) };
    supported(&inet).unwrap();
    let reason = supported(&column("a", 2249)).unwrap_err();
    assert_eq!(reason, "no text can be read as its type, so nothing can be written to it");
    for oid in [700, 701, 1700, 1042, 114, JSONB, 869] {
        assert!(!equal_bytes(&column("a", oid)));
    }
    // A domain may hide `varchar(3)`.
    assert!(!equal_bytes(&column("a", 1043)));
    assert!(equal_bytes(&Column {
        type_name: "character varying".to_owned(),
        ..column("a", 1043)
    }));
}

/// Not a test of anything: prints how fast six columns are encoded.
#[test]
#[ignore = "a measurement"]
fn speed_of_six_columns() {
    #[derive(Serialize)]
    struct Order<'a> {
        order_id: i64,
        customer: &'a str,
        status: &'a str,
        amount: i64,
        currency: &'a str,
        created_at: &'a str,
    }
    let columns = vec![
        column("order_id", BIGINT),
        column("customer", TEXT),
        column("status", TEXT),
        column("amount", BIGINT),
        column("currency", TEXT),
        column("created_at", 1184),
    ];
    let mut encoder = encoder(table(columns, &[0]));
    for _ in 0..3 {
        let start = std::time::Instant::now();
        for order_id in 0..1_000_000 {
            let row = Order {
                order_id,
                customer: "customer-123456",
                status: "accepted",
                amount: order_id * 3,
                currency: "EUR",
                created_at: "2024-05-06T07:08:09.123Z",
            };
            encoder.encode(at(order_id), &Change::Put(row)).unwrap();
            if order_id % 10_000 == 9999 {
                Encoder::<Order<'_>>::take(&mut encoder).unwrap();
            }
        }
        println!("{:?} for 1M rows", start.elapsed());
    }
}
