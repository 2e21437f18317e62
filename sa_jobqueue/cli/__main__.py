"""``python -m sa_jobqueue.cli``: the same as ``sa-jobqueue``, where its folder is not on the PATH."""

from __future__ import annotations

from sa_jobqueue.cli import main

if __name__ == "__main__":
    main()
