//! Moves the leader of a partition, for which librdkafka has no call: two requests in Kafka's protocol
//! (<https://kafka.apache.org/protocol>), AlterPartitionReassignments version 0 and ElectLeaders version 2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::eventually;

/// Has `replicas[0]` lead partition 0 of `topic`, and returns once it does.
pub fn lead(brokers: &str, topic: &str, replicas: [i32; 3]) {
    let one = |what: &dyn Fn(&mut Vec<u8>)| {
        let mut body = vec![2]; // one element
        text(&mut body, topic);
        body.push(2); // one partition
        body.extend(0_i32.to_be_bytes());
        what(&mut body);
        body.push(0); // no tags of the topic
        body
    };
    let mut order = 60_000_i32.to_be_bytes().to_vec();
    order.extend(one(&|body| {
        body.push(4); // three replicas
        replicas.iter().for_each(|replica| body.extend(replica.to_be_bytes()));
        body.push(0);
    }));
    order.push(0);
    let mut elect = vec![0]; // the preferred one
    elect.extend(one(&|_| ()));
    elect.extend(60_000_i32.to_be_bytes());
    elect.push(0);
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let leads = || {
        let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(10)).ok()?;
        (metadata.topics()[0].partitions()[0].leader() == replicas[0]).then_some(())
    };
    request(brokers, 45, 0, &order);
    let moved = eventually(Duration::from_secs(30), || {
        // One whose replica is not in sync at this moment is refused.
        request(brokers, 43, 2, &elect);
        eventually(Duration::from_millis(300), leads)
    });
    assert!(moved.is_some(), "`{topic}[0]` is led by broker {}", replicas[0]);
}

fn text(body: &mut Vec<u8>, text: &str) {
    let mut length = text.len() + 1;
    while length >= 0x80 {
        body.push((length & 0x7f | 0x80) as u8);
        length >>= 7;
    }
    body.push(length as u8);
    body.extend(text.as_bytes());
}

/// Sends a request to the first broker, and waits for its answer; what it says shows in the metadata.
fn request(brokers: &str, key: i16, version: i16, body: &[u8]) {
    let mut message = [key.to_be_bytes(), version.to_be_bytes()].concat();
    message.extend(7_i32.to_be_bytes());
    message.extend((-1_i16).to_be_bytes()); // no client id
    message.push(0);
    message.extend(body);
    let mut stream = TcpStream::connect(brokers.split(',').next().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&(message.len() as i32).to_be_bytes()).unwrap();
    stream.write_all(&message).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], 7_i32.to_be_bytes(), "the answer to this request");
}
