"""Reading hardware files: names, patterns, the user's own files, and errors that say what and where."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.hardware.catalog import hardware_names, load_hardware, match_hardware
from planner.units import GBIT_BYTES_PER_S

MINE = """\
provider = "mine"

[defaults]
device = "T4"
nic_baseline_gbit_per_s = 10

[machines."box.one"]
device_count = 2
on_demand_usd_per_hour = 0.5

[machines."box.one".sources]
on_demand = { basis = "measured", source = "our bill", as_of = "2026-05" }
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_names_and_aliases() -> None:
    assert load_hardware("p3.2xlarge").device.name == "V100-SXM2-16GB"
    assert load_hardware("P3.2XLARGE").name == "p3.2xlarge"
    assert load_hardware("private-opteron2376-1gbe").name == "private-opteron"


def test_patterns() -> None:
    assert [h.name for h in match_hardware("p3.*")] == ["p3.2xlarge", "p3.8xlarge", "p3.16xlarge"]
    assert [h.name for h in match_hardware("p3")] == ["p3.2xlarge", "p3.8xlarge", "p3.16xlarge"]
    mixed = [h.name for h in match_hardware("c4.8xlarge, p3.?xlarge,p3.2xlarge")]
    assert mixed == ["c4.8xlarge", "p3.2xlarge", "p3.8xlarge"]
    assert len(match_hardware(["*"])) == len(hardware_names())
    for bad, words in (
        ("q9.*", "families"),
        ("", "no hardware is named"),
        ("p3.3xlarge", "nearest: p3.8xlarge"),
    ):
        with pytest.raises(BadInput, match=words):
            match_hardware(bad)


def test_file_of_ones_own(tmp_path: Path) -> None:
    mine = load_hardware(write(tmp_path, MINE))
    assert (mine.name, mine.device_count, mine.provider, mine.family) == ("box.one", 2, "mine", "mine")
    assert mine.device == load_hardware("g4dn.xlarge").device
    assert mine.nic_bytes_per_s("burst") == 10 * GBIT_BYTES_PER_S
    assert (mine.price.basis, mine.price.source, mine.price.as_of) == ("measured", "our bill", "2026-05")


def test_one_of_several_in_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, MINE + '\n[machines.big]\ndevice = "L4"\n')
    assert load_hardware(f"{path}:big").device.name == "L4"
    with pytest.raises(BadInput, match="holds several machines"):
        load_hardware(path)
    with pytest.raises(BadInput, match="nearest: big"):
        load_hardware(f"{path}:bigg")


@pytest.mark.parametrize("place", ["mine.toml", "hardware/mine.toml"])
def test_folders_of_ones_own_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    write(tmp_path, MINE + '\n[machines."p3.2xlarge"]\non_demand_usd_per_hour = 1\n', place)
    write(tmp_path, "layers = [{ fc = 10 }]\ninput = [4]\n", "model.toml")
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path))
    assert load_hardware("box.one").name == "box.one"
    assert load_hardware("p3.2xlarge").price.on_demand_usd_per_hour == 1
    assert load_hardware("p3.8xlarge").price.on_demand_usd_per_hour == 12.24
    assert hardware_names().count("p3.2xlarge") == 1


def test_kernels_of_ones_own(tmp_path: Path) -> None:
    text = """
    [machines.a]
    device = "cpu1"
    cores = 6
    memory_gib = 8
    [devices.cpu1]
    kind = "cpu"
    clock_ghz = 2.5
    fp32_flop_per_cycle = 16
    [kernels.cpu1]
    rates = { conv = 1e9, memory = 2e9 }
    overhead_s = 1e-5
    per_core = true
    source = "measured here"
    [machines.b]
    device = "cpu2"
    cores = 2
    memory_gib = 8
    [devices.cpu2]
    kind = "cpu"
    clock_ghz = 2.5
    fp32_flop_per_cycle = 16
    [kernels.cpu2]
    like = "cpu1"
    scale = 0.5
    """
    path = write(tmp_path, text)
    first, second = load_hardware(f"{path}:a"), load_hardware(f"{path}:b")
    assert first.device.fp32_flops == 6 * 2.5e9 * 16
    assert first.kernels is not None
    assert second.kernels is not None
    assert first.kernels.rates == {"conv": 6e9, "memory": 12e9}
    assert second.kernels.rates == {"conv": 1e9, "memory": 2e9}
    assert second.kernels.overhead_s == 1e-5


FABRIC = """
[machines.m]
device = "RTX-4090"
device_count = 4
fabric = { kind = "pcie", topology = "pcie", gbyte_per_s = 25, source = "p2pBandwidthLatencyTest" }
[machines.one]
device = "RTX-4090"
fabric = { kind = "pcie", topology = "pcie", gbyte_per_s = 25 }
[machines.joined]
device = "A100-PCIE-80GB"
device_count = 4
fabric = { kind = "nvlink", topology = "pairs", gbyte_per_s = 300, between_gbyte_per_s = 31 }
"""


def test_fabric_of_ones_own(tmp_path: Path) -> None:
    path = write(tmp_path, FABRIC)
    fabric = load_hardware(f"{path}:m").fabric
    assert fabric is not None
    assert (fabric.kind, fabric.topology, fabric.bytes_per_s) == ("pcie", "pcie", 25e9)
    assert (fabric.basis, fabric.source, fabric.curve) == ("estimated", "p2pBandwidthLatencyTest", None)
    assert load_hardware(f"{path}:one").fabric is None  # nothing to join
    pairs = load_hardware(f"{path}:joined").fabric
    assert pairs is not None
    assert (pairs.between_bytes_per_s, pairs.source) == (31e9, "given in mine.toml")


def test_peaks_in_short_and_in_full(tmp_path: Path) -> None:
    text = """
    [machines.a]
    device = "short"
    [machines.b]
    device = "long"
    [devices.short]
    kind = "gpu"
    fp32_tflops = 10
    tensor_tflops = 80
    memory_gib = 24
    [devices.long]
    kind = "gpu"
    tflops = { fp32 = 10, fp16 = 80 }
    memory_bytes = 25769803776
    """
    path = write(tmp_path, text)
    first, second = load_hardware(f"{path}:a").device, load_hardware(f"{path}:b").device
    assert first.flops == second.flops == {"fp32": 10e12, "fp16": 80e12}
    assert first.memory_bytes == second.memory_bytes == 24 * 2**30


HEAD = '[machines.m]\ndevice = "T4"\n'
BAD = {
    "broken": ("[machines.m\n", "mine.toml:1", "not valid TOML"),
    "no machine": ('[devices.x]\nkind = "gpu"\n', "mine.toml", "defines no machine"),
    "unknown table": ("[machine.m]\n", "machine", "allowed: family, provider"),
    "unknown key": (HEAD + "nic_brust_gbit_per_s = 1\n", ":3", "nic_burst_gbit_per_s"),
    "not a table": ("machines = 3\n", "machines", "must be a table"),
    "entry not a table": ("[machines]\nm = 3\n", "machines.m", "must be a table"),
    "negative price": (HEAD + "on_demand_usd_per_hour = -1\n", ":3", "> 0.0"),
    "absurd price": (HEAD + "on_demand_usd_per_hour = 1e6\n", "on_demand_usd_per_hour", "<= 10000.0"),
    "price that is no number": (HEAD + "on_demand_usd_per_hour = nan\n", "on_demand_usd_per_hour", ""),
    "absurd network": (HEAD + "nic_baseline_gbit_per_s = 1e9\n", "nic_baseline_gbit_per_s", "<= 20000"),
    "burst below baseline": (
        HEAD + "nic_baseline_gbit_per_s = 10\nnic_burst_gbit_per_s = 5\n",
        ":4",
        "below nic_baseline_gbit_per_s",
    ),
    "text for a number": (HEAD + 'vcpus = "8"\n', ":3", "expected int"),
    "no devices": (HEAD + "device_count = 0\n", "device_count", ">= 1"),
    "device missing": ("[machines.m]\nvcpus = 4\n", "machines.m", "'device' is missing"),
    "device unknown": ('[machines.m]\ndevice = "T5"\n', ":2", "nearest: T4"),
    "basis": (
        HEAD + '[machines.m.sources]\nspot = { basis = "rumour", source = "a friend" }\n',
        "sources",
        "rumour",
    ),
    "figure": (
        HEAD + '[machines.m.sources]\nprice = { basis = "measured", source = "bill" }\n',
        ":4",
        "on_demand",
    ),
    "default": ("[defaults]\nvcpus = -4\n" + HEAD, "mine.toml:2", ">= 1"),
    "gpu without memory": (
        '[machines.m]\ndevice = "X"\n[devices.X]\nkind = "gpu"\nfp32_tflops = 3\n',
        ":3",
        "memory_gib",
    ),
    "cpu without cores": (
        '[machines.m]\ndevice = "Xeon-8168"\nmemory_gib = 3\n',
        "machines.m",
        "needs cores",
    ),
    "cpu without clock": (
        '[machines.m]\ndevice = "X"\ncores = 2\nmemory_gib = 3\n[devices.X]\nkind = "cpu"\n',
        "devices.X",
        "clock_ghz",
    ),
    "kind": ('[machines.m]\ndevice = "X"\n[devices.X]\nkind = "tpu"\n', "devices.X.kind", "tpu"),
    "kernels of both": (HEAD + '[kernels.T4]\nrates = { conv = 1.0 }\nlike = "L4"\n', "kernels.T4", "either"),
    "kernels like nobody": (HEAD + '[kernels.T4]\nlike = "nobody"\n', ":4", "no rates of its own"),
    "rate": (HEAD + "[kernels.T4]\nrates = { conv = -1.0 }\n", "kernels.T4", "> 0"),
    "name": ('[machines."a,b"]\ndevice = "T4"\n', "a,b", "must not"),
    "fabric without a figure": (
        HEAD + 'device_count = 2\n[machines.m.fabric]\nkind = "pcie"\ntopology = "pcie"\n',
        ":4",
        "needs gbyte_per_s",
    ),
    "pairs that nothing joins": (
        HEAD + 'device_count = 4\nfabric = { kind = "nvlink", topology = "pairs", gbyte_per_s = 300 }\n',
        ":4",
        "between_gbyte_per_s",
    ),
    "fabric kind": (
        HEAD + 'device_count = 2\nfabric = { kind = "nvlnk", topology = "switch", gbyte_per_s = 9 }\n',
        "fabric",
        "nvlink",
    ),
    "peaks twice": (
        '[machines.m]\ndevice = "X"\n[devices.X]\nkind = "gpu"\nmemory_gib = 8\nfp32_tflops = 3\n'
        "tflops = { fp32 = 4 }\n",
        "devices.X",
        "twice",
    ),
    "format": (
        '[machines.m]\ndevice = "X"\n[devices.X]\nkind = "gpu"\nmemory_gib = 8\ntflops = { fp64 = 3 }\n',
        "devices.X",
        "fp64",
    ),
    "measured in no format of its own": (
        '[machines.m]\ndevice = "X"\n[devices.X]\nkind = "gpu"\nmemory_gib = 8\ntflops = { fp32 = 3 }\n'
        "matmul_tflops = { bf16 = 3 }\n",
        "devices.X",
        "bf16",
    ),
    "lifetime": (
        HEAD + "[machines.m.ownership]\ncapital_usd = 100\nlifetime_years = 0\npower_watts = 5\n"
        "energy_usd_per_kwh = 0.1\n",
        ":5",
        "> 0.0",
    ),
    "binary": ("\x00\x01", "mine.toml:1", "not valid TOML"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_that_says_where(tmp_path: Path, case: str) -> None:
    text, where, what = BAD[case]
    with pytest.raises(BadInput) as caught:
        load_hardware(write(tmp_path, text))
    message = str(caught.value)
    assert "\n" not in message
    assert "mine.toml" in message
    assert where in message
    assert what in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name in (tmp_path / "none.toml", tmp_path / "folder.toml"):
        (tmp_path / "folder.toml").mkdir(exist_ok=True)
        with pytest.raises(BadInput, match="cannot read"):
            load_hardware(str(name))
    (tmp_path / "latin.toml").write_bytes(b'provider = "\xe9"\n')
    with pytest.raises(BadInput, match="UTF-8"):
        load_hardware(str(tmp_path / "latin.toml"))


def test_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="PLANNER_PATH"):
        load_hardware("p3.2xlarge")


NUMBERS = (
    "device_count", "cores", "vcpus", "memory_gib", "nic_burst_gbit_per_s", "nic_baseline_gbit_per_s",
    "flow_gbit_per_s", "placement_group_flow_gbit_per_s", "on_demand_usd_per_hour", "spot_usd_per_hour",
)  # fmt: skip
ABSURD = ("-1", "0", "1e30", "nan", "inf", "-inf", '"ten"', "[1]", "{ a = 1 }", "true", "2020-01-01")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(NUMBERS), st.sampled_from(ABSURD))
def test_no_absurd_number_gets_in(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(BadInput, match=key):
        load_hardware(write(tmp_path, f"{HEAD}{key} = {value}\n"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60), st.integers(0, len(MINE)), st.integers(0, 30))
def test_any_text_is_read_or_refused(tmp_path: Path, noise: str, at: int, cut: int) -> None:
    text = (MINE[:at] + noise + MINE[at + cut :]).encode("utf-8", "replace")
    path = tmp_path / "mine.toml"
    path.write_bytes(text)
    message = ""
    try:
        assert load_hardware(str(path)).device_count >= 1
    except BadInput as error:
        message = str(error)
    assert not message or "mine.toml" in message
