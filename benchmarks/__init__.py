"""How fast sa_jobqueue is, beside the limits of PostgreSQL and beside its peers: ``python -m benchmarks --help``.

Every run of a cell is verified: a fast queue that loses or repeats a job is not fast, it is broken.
"""
