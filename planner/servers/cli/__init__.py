"""The commands `planner order` and `planner partition`."""

COMMANDS = {  # name -> target, one line of help
    "order": ("planner.servers.cli.order:command", "Order the transfers of a profile: TIC, TAC and rivals."),
    "partition": (
        "planner.servers.cli.partition:command",
        "Partition a model over workers, replicas and servers.",
    ),
}
