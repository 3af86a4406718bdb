"""Memory of the machines that parameter servers live on."""

import pytest

from planner.device.memory import framework_bytes
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.lowering import server_memory_bytes, server_memory_error


def test_server_memory_is_parameters_state_and_a_gradient_per_worker() -> None:
    assert server_memory_bytes(100.0, 3) - framework_bytes("cpu") == 100 * (1 + 1 + 3)


def test_server_memory_error_names_need_and_room() -> None:
    small = load_hardware("c4.large")
    assert server_memory_error(small, 100e6, 4) == ""
    reason = server_memory_error(small, load_model("vgg11").bytes, 8)
    assert "c4.large has 3.38 GiB to use" in reason
    assert "507 MiB of parameters for 8 workers" in reason
    with pytest.raises(BadInput, match="at least one"):
        server_memory_error(small, 1.0, 0)
