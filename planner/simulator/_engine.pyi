from collections.abc import Callable
from typing import Any

from planner.simulator.inputs import Inputs

def run(inputs: Inputs, check: Callable[[], None]) -> dict[str, Any]: ...
