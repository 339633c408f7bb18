"""Faults from outside, on a real broker process with real clients under load.

`load.py` has the clients: they write down what they asked for and what they were answered, and the
history goes through the checker of the simulation. `nemesis.py` is the broker process with a way to
do it harm. The tests are by kind of harm: `test_kills.py`, `test_disks.py`, `test_damage.py`.

A loss of power is made of a recording: `recorder.c` has it, `recording.py` makes a disk of it, and
`power.py` goes through it, with the clients of the simulation at a real process.
"""
