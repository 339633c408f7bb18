"""What Spark's own Kafka connector does and ours does, side by side."""
