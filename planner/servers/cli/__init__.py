"""The commands `planner order` and `planner partition`."""
