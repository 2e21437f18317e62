"""Other queues, each in an environment of its own, each driven by one small script that speaks JSON lines.

A script runs with the peer's libraries and the standard library only; the harness runs without the peer's.
"""
