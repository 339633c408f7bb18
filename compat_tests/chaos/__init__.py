"""Faults from outside, on a real broker process with real clients under load.

`load.py` has the clients: they write down what they asked for and what they were answered, and the
history goes through the checker of the simulation. `nemesis.py` is the broker process with a way to
do it harm. The tests are by kind of harm: `test_kills.py`, `test_disks.py`, `test_damage.py`.
"""
