"""The message tables, one file for each API.

They follow the schemas that Apache Kafka ships in its client (`common/message/*.json` of 4.3, and
of 3.9 for the versions that 4.0 dropped), with these liberties, none of which is seen on the wire:

- Rows are cut to the versions in `protocol/api.py`; a range that covers all versions in which its
  struct exists is left out.
- Names are Kafka's in snake_case. A nested class is called as in the schema, with a prefix where
  several APIs use the same name (`FetchNodeEndpoint`, `ProduceNodeEndpoint`).
- A string that may be null and has no default of its own is null by default, as error messages
  should be; so are tagged structs, and null stands for their absence.
- Three rows of responses are `ignorable` that are not in Kafka, so that a handler need not look at
  the version: the leader epoch of ListOffsets, `is_default` of DescribeConfigs and the error
  message of DescribeGroups.
"""
