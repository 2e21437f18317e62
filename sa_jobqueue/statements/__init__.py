"""Pure builders: every statement of the queue is in this folder, and nothing here executes one."""
