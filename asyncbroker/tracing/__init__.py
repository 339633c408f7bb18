"""Seeing what clients and brokers say to each other: traced, recorded, explained, replayed.

`frames.py` decodes what went over the wire, `describe.py` makes one `Exchange` (`exchange.py`) of a
request and its response, `choice.py` says which of them are wanted, and `lines.py` turns each into
a line of text or JSON. Where exchanges come from: `observer.py` sits in front of a broker's
dispatcher, `proxy.py` between clients and any broker; `recording.py` keeps frames in a file,
`capture.py` finds them in packets, and `exchanges.py` puts them together again. `unanswered.py`
says which request an answer belongs to.

What is shown was sent by strangers: no byte of theirs reaches a terminal as it is (`text.py`), and
what is secret is not shown (`secrets.py`).
"""
