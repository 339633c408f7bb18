"""The suites that clients have for themselves, run against this broker and against Apache Kafka."""
