//! A reject as a line of JSON.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::origins::Origin;
use crate::sink::StoredReject;

/// All of it. Bytes stand as text under their name where they are UTF-8 without a zero byte, else in hex
/// under the name with `_hex`; null where there are none.
pub(super) fn object(pipeline: &str, reject: &StoredReject) -> String {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("id", reject.id.into());
    put("pipeline", pipeline.into());
    put("sink", reject.sink.clone().into());
    put("topic", reject.topic.clone().into());
    put("partition", reject.partition.0.into());
    put("offset", reject.offset.0.into());
    put("ordinal", reject.ordinal.into());
    put("stage", reject.stage.clone().into());
    put("column", reject.column.clone().into());
    put("reason", reject.reason.clone().into());
    put("sqlstate", reject.sqlstate.clone().into());
    let at = jiff::Timestamp::try_from(reject.at).unwrap_or(jiff::Timestamp::MIN);
    put("at", at.to_string().into());
    if let Some(Origin { timestamp, key, value, headers }) = &reject.origin {
        put("timestamp_ms", (*timestamp).into());
        for (name, bytes) in [("key", key), ("payload", value)] {
            let (hex, value) = text_or_hex(bytes.as_deref());
            put(&if hex { format!("{name}_hex") } else { name.to_owned() }, value);
        }
        let header = |(name, value): &(String, Option<Vec<u8>>)| {
            let mut header = Map::from_iter([("name".to_owned(), name.clone().into())]);
            if let Some(value) = value {
                let (hex, value) = text_or_hex(Some(value));
                header.insert(if hex { "hex" } else { "text" }.to_owned(), value);
            }
            Value::Object(header)
        };
        put("headers", headers.iter().map(header).collect());
    }
    Value::Object(object).to_string()
}

/// Bytes as JSON has them, and whether in hex.
fn text_or_hex(bytes: Option<&[u8]>) -> (bool, Value) {
    let Some(bytes) = bytes else { return (false, Value::Null) };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => (false, text.into()),
        _ => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            (true, hex.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::record::{Offset, Partition};

    #[test]
    fn bytes_keep_their_kind() {
        let mut reject = StoredReject {
            id: 1,
            sink: "s".into(),
            topic: "t".into(),
            partition: Partition(2),
            offset: Offset(3),
            ordinal: 0,
            origin: Some(Origin {
                timestamp: Some(5),
                key: None,
                value: Some(vec![]),
                headers: vec![("a".into(), None), ("b".into(), Some(vec![0xff]))],
            }),
            stage: "decode".into(),
            column: None,
            reason: "why".into(),
            sqlstate: None,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
        };
        let back: Value = serde_json::from_str(&object("p", &reject)).unwrap();
        assert_eq!((&back["key"], &back["payload"]), (&Value::Null, &"".into()));
        assert_eq!(back["at"], "1970-01-01T00:00:01.5Z");
        assert_eq!(back["headers"].to_string(), r#"[{"name":"a"},{"hex":"ff","name":"b"}]"#);
        reject.origin.as_mut().unwrap().value = Some(b"a\0".to_vec());
        let back: Value = serde_json::from_str(&object("p", &reject)).unwrap();
        assert_eq!((back.get("payload"), &back["payload_hex"]), (None, &"6100".into()));
    }
}
