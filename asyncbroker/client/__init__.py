"""A small blocking Kafka client over a socket: for the command line and for Spark's executors."""
