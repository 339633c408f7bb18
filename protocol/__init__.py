"""The wire: schemas, codecs, framing, record batches, errors. No sockets, clocks or files."""
