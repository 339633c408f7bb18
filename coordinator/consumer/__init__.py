"""Groups of the consumer protocol (KIP-848), in which the broker assigns the partitions."""
