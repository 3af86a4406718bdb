"""Parameter servers and what the five papers say of them: placement, transfer ordering, the partition search,
TensorFlow traces, bounds and validation. A plug-in, imported only when a request needs it."""

COMMANDS = {  # name -> target, one line of help
    "order": ("planner.servers.cli:order", "Order the transfers of a profile: TIC, TAC and rivals."),
    "partition": ("planner.servers.cli:partition", "Partition a model over workers, replicas and servers."),
}
