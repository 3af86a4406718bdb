"""Recording training steps with one line: `with planner.record("step.json.gz"):` around a PyTorch loop.

`trace` follows the loop, runs torch's profiler and writes the trace; `launch` starts the user's own command
with the recorder inside. `planner.device.recorded.importers` reads the result like any other trace.
"""

from planner.recorder.trace import record

__all__ = ["record"]
