"""``sa-jobqueue tune``: what would be better, from what this queue does."""
