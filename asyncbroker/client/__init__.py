"""A small blocking Kafka client over a socket: for the command line and for Spark's executors.

It speaks to any Kafka broker from 0.11 on, imports nothing of asyncbroker but `protocol`, starts no
thread, and belongs to one thread at a time.

    with Cluster("localhost:9092") as cluster:
        ends = latest_offsets(cluster, cluster.partitions_of("flights"))
        with Reader(cluster, {partition: 0 for partition in ends}, end_offsets=ends) as reader:
            while not reader.is_done:
                for fetched in reader.poll():
                    ...  # fetched.records: whole record batches, as bytes

`connection.py` is one connection (`security.py`: TLS and logins), `cluster.py` finds the right one
and tries again, and the other files work on a `Cluster`: `partitions.py`, `reader.py`, `sender.py`
and `producer.py` on top of it (`partitioning.py`: where a key belongs), `topics.py`, `groups.py`,
`users.py`. Errors are in `errors.py`, all of them a `ClientError` with a text for people.

Readers, senders and producers have connections of their own, on which requests wait or follow one
another; whoever makes one closes it. `Cluster.close` closes those that the cluster made for itself.
"""

from __future__ import annotations
