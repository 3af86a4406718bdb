"""Recording training steps with one line: `with planner.record("step.json.gz"):` around a PyTorch loop.

`watch` follows the loop (which module, which batch, when the optimizer steps), `trace` runs torch's profiler
and writes what it saw, `launch` starts a user's own command with the recorder inside it. Only this package
imports torch; the result is read by `planner.device.recorded.importers` as any other trace.
"""

from planner.recorder.trace import record

__all__ = ["record"]
