"""How large a plan may be that is simulated, said before the work begins."""

from __future__ import annotations

from planner.errors import BadInput

MOST_WORKERS = 4096  # a minute of CPU for a ResNet-50
MOST_SERVERS = 512
MOST_PAIRS = 2**17  # of a worker and a server: each has links of its own


def check_size(workers: int, servers: int = 1) -> None:
    """Refuse plans of more workers and servers than are simulated."""
    for flag, count, most in (("--workers", workers, MOST_WORKERS), ("--servers", servers, MOST_SERVERS)):
        if count > most:
            raise BadInput(f"{flag} is {count:,}; at most {most:,} are simulated")
    if workers * servers > MOST_PAIRS:
        raise BadInput(
            f"--workers {workers:,} with --servers {servers:,} have {workers * servers:,} links; at most "
            f"{MOST_PAIRS:,} are simulated: take at most {MOST_PAIRS // workers:,} servers"
        )
