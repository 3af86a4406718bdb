from typing import Any

from planner.simulator.inputs import Inputs

def run(inputs: Inputs) -> dict[str, Any]: ...
