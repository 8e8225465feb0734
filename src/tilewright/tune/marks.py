"""What a process says of a task before the answer, which is no pickle."""

# It begins, or goes on; it waits for other processes, which does not count as its time.
BEGUN, WAITS = b"", b"waits"
