"""Names that a shell completes, and the device that an answer names."""

from planner.cli import hardware, models
from planner.cli.answers import answer_device
from planner.hardware.catalog import hardware_names, load_hardware
from planner.model.catalog import model_names


def test_names_are_those_that_begin_as_typed():
    assert hardware._complete_machine_name("p3.") == [name for name in hardware_names() if name[:3] == "p3."]
    assert "p3.2xlarge" in hardware._complete_machine_name("p3.")
    assert hardware._complete_machine_name("no such") == []
    assert models._complete_model_name("vgg") == [name for name in model_names() if name[:3] == "vgg"]
    assert "vgg11" in models._complete_model_name("vgg")
    assert models._complete_model_name("import") == ["import"]


def test_device_is_that_of_the_answer_or_of_its_machine():
    assert answer_device("T4", "p3.2xlarge") == "T4"
    assert answer_device(None, "p3.2xlarge") == load_hardware("p3.2xlarge").device.name
