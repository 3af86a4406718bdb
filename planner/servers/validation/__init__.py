"""Published figures of the five papers beside ours."""
