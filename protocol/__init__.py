"""The wire: schemas, codecs, framing, record batches and errors. Pure: no sockets, clocks or files."""
