//! Kafka topics.
