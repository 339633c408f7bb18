"""A Kafka-compatible broker. This module imports nothing, so that Spark's workers stay light."""

__version__ = "0.1.0"
