"""Parameter servers and what the five papers say of them: placement, transfer ordering, the partition search,
TensorFlow traces, bounds and validation. A plug-in, imported only when a request needs it."""
