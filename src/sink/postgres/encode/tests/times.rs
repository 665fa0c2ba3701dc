//! Numbers under a declared unit, and texts without an offset under a declared zone.

use proptest::prelude::*;

use super::server::Server;
use crate::codec::exact::RawJson;
use crate::sink::postgres::unit::{Unit, zone};

fn with_unit(type_name: &str, unit: Unit) -> Server {
    let mut server = Server::of(type_name);
    server.column.unit = Some(unit);
    server
}

#[test]
fn only_the_declared_unit_counts() {
    for (unit, raw, expected) in [
        (Unit::Milliseconds, "1700000000123", "2023-11-14 22:13:20.123+00"),
        (Unit::Milliseconds, "1700000000", "1970-01-20 16:13:20+00"),
        (Unit::Milliseconds, "1700000000000000", "55840-11-08 22:13:20+00"),
        (Unit::Seconds, "1700000000", "2023-11-14 22:13:20+00"),
        (Unit::Seconds, "1700000000.123456", "2023-11-14 22:13:20.123456+00"),
        (Unit::Seconds, "1700000000.10", "2023-11-14 22:13:20.1+00"),
        (Unit::Seconds, "1700000000.1234567", "2023-11-14 22:13:20.123457+00"),
        (Unit::Seconds, "-0.5", "1969-12-31 23:59:59.5+00"),
        (Unit::Seconds, "0", "1970-01-01 00:00:00+00"),
        (Unit::Microseconds, "1700000000123456", "2023-11-14 22:13:20.123456+00"),
        (Unit::Nanoseconds, "1700000000123456789", "2023-11-14 22:13:20.123457+00"),
        (Unit::Seconds, "9224318015999", "294276-12-31 23:59:59+00"),
        (Unit::Seconds, "9224318016000", "refused with 22008"),
        (Unit::Seconds, "-210866803200", "4714-11-24 00:00:00+00 BC"),
        (Unit::Seconds, "-210866803201", "refused with 22008"),
        (Unit::Seconds, "18446744073709551616", "refused with 22008"),
        (Unit::Seconds, "99999999999999999999999999999999999999999", "refused with 22008"),
        (Unit::Seconds, "-194071105099009400715594711149.5", "refused with 22008"),
        (Unit::Seconds, "1.7e9", "refused with 22007"),
        (Unit::Seconds, "true", "refused with 22007"),
        // A text is a text, whatever the unit.
        (Unit::Seconds, "\"1700000000\"", "refused with 22007"),
        (Unit::Seconds, "\"2023-11-14T22:13:20Z\"", "2023-11-14 22:13:20+00"),
    ] {
        let mut server = with_unit("timestamptz", unit);
        assert_eq!(server.takes(&[RawJson(raw)]), [expected], "{raw} {unit}");
    }
    let mut server = with_unit("timestamptz(0)", Unit::Milliseconds);
    assert_eq!(
        server.takes(&[1500_i64, -1500]),
        ["1970-01-01 00:00:01+00", "1969-12-31 23:59:58+00"]
    );
    assert_eq!(server.takes(&[1_700_000_000_000_f64]), ["2023-11-14 22:13:20+00"]);
    for wide in [i128::MAX, i128::MIN, i128::MAX / 1_000_000, i128::MAX / (1 << 40)] {
        assert_eq!(server.takes(&[wide]), ["refused with 22008"], "{wide}");
    }
    let mut server = with_unit("timestamp", Unit::Milliseconds);
    assert_eq!(server.takes(&[1_700_000_000_123_i64]), ["2023-11-14 22:13:20.123"]);
    let mut server = with_unit("date", Unit::Seconds);
    assert_eq!(server.takes(&[-1_i64, 86_400]), ["1969-12-31", "1970-01-02"]);
    let mut server = with_unit("time", Unit::Seconds);
    assert_eq!(server.takes(&[-1_i64, 86_400, 3600]), ["23:59:59", "00:00:00", "01:00:00"]);
    // What is no instant has no time of day.
    assert_eq!(
        server.takes(&[9_224_318_015_999_i64, 9_224_318_016_000, -210_866_803_201]),
        ["23:59:59", "refused with 22008", "refused with 22008"]
    );
}

#[test]
fn numbers_without_a_unit_are_refused() {
    for type_name in ["date", "time", "timestamp", "timestamptz"] {
        let mut server = Server::of(type_name);
        assert_eq!(server.takes(&[RawJson("1700000000")]), ["refused with 22007"]);
        assert_eq!(server.takes(&[1_700_000_000_u64]), ["refused with 22007"]);
        assert_eq!(server.takes(&[1.5]), ["refused with 22007"]);
    }
}

#[test]
fn texts_without_an_offset_belong_to_the_declared_zone() {
    for name in [
        "Europe/Oslo",
        "America/Lima",
        "Asia/Kathmandu",
        "America/New_York",
        "Australia/Lord_Howe",
        "UTC",
    ] {
        let mut server = Server::of("timestamptz");
        server.client.batch_execute(&format!("set timezone = '{name}'")).unwrap();
        server.column.zone = Some(zone(name).unwrap());
        server.agrees(&[
            "2023-07-01 12:00:00",
            "2023-01-01T12:00:00.000002",
            "2023-10-29 01:59:59.999999",
            "2023-10-29 02:00:00",
            "2023-10-29 02:15:00",
            "2023-10-29 02:59:59",
            "2023-10-29 03:00:00",
            "2023-03-26 02:00:00",
            "2023-03-26 02:30:00",
            "2023-03-26 03:00:00",
            "2023-11-05 01:30:00",
            "2023-03-12 02:30:00",
            "2023-04-02 01:45:00",
            "2023-10-01 02:15:00",
            "2023-07-01T12:00:00-05:00",
            "2023-07-01T12:00:00Z",
            "2023-07-01",
            "infinity",
            "2016-12-31 23:59:60",
            "2024-05-06T24:00:00",
            "9999-07-01 12:00:00",
            "12345-07-01 12:00:00",
            "200000-01-01 12:00:00",
            "294276-12-31 23:59:59",
            "294277-01-01 00:00:00",
            "2024-02-30 00:00:00",
            "soon",
        ]);
        let date = (1970..=2600, 1..=12, 1..=28, 0..=23, 0..=59);
        server.agrees_on_all(
            date.prop_map(|(y, m, d, h, min)| format!("{y}-{m:02}-{d:02} {h:02}:{min:02}:00")),
        );
    }
}
