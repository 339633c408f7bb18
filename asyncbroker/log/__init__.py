"""The log of a partition, in Kafka's files: synchronous, no event loop, no messages."""
