"""``sa-jobqueue demo``: a small business on the queue, two worker processes, and a SIGKILL in the middle."""
