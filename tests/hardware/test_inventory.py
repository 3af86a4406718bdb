"""What nvidia-smi, lscpu and ibstat print, read as figures of a hardware file."""

import pytest

from planner.errors import BadInput
from planner.hardware.catalog import matching_fabric_name
from planner.hardware.inventory import (
    Gpus,
    catalog_gpu_name,
    parse_ibstat,
    parse_lscpu,
    parse_nvidia_smi,
    parse_topology,
)

TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
"""
ROWS = """\
|   {index}  {name:<25}      {mode} |   00000000:07:00.0 Off |                    0 |
| N/A   28C    P0             58W /  400W |       1MiB /  {mib}MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""


def table(name, count, mib, mode=" On"):
    return TABLE + "".join(ROWS.format(index=i, name=name, mib=mib, mode=mode) for i in range(count))


def matrix(cells):
    head = "\t" + "\t".join(f"GPU{i}" for i in range(len(cells))) + "\tNIC0\tCPU Affinity\tNUMA Affinity\n"
    rows = "".join(f"GPU{i}\t" + "\t".join(row) + "\tPXB\t0-63\t0\n" for i, row in enumerate(cells))
    return (
        head
        + rows
        + "NIC0\t"
        + "PXB\t" * len(cells)
        + " X \n\nLegend:\n\n  X    = Self\n  NV#  = bonded NVLinks\n"
    )


def uniform(count, cell):
    return matrix([[" X " if i == j else cell for j in range(count)] for i in range(count)])


@pytest.mark.parametrize(
    ("text", "device", "count"),
    [
        (table("NVIDIA A100-SXM4-80GB", 8, 81920), "A100-SXM4-80GB", 8),
        (table("NVIDIA H100 80GB HBM3", 8, 81559), "H100-SXM5-80GB", 8),
        (table("NVIDIA GeForce RTX 4090", 2, 24564, "Off"), "RTX-4090", 2),
        (table("Tesla V100-SXM2...", 4, 32510, "Off"), "V100-SXM2-32GB", 4),
        (table("Tesla V100-SXM2...", 4, 16160, "Off"), "V100-SXM2-16GB", 4),
        ("GPU 0: NVIDIA A10G (UUID: GPU-1)\nGPU 1: NVIDIA A10G (UUID: GPU-2)\n", "A10G", 2),
        ("name, memory.total [MiB]\nNVIDIA L4, 23034 MiB\nNVIDIA L4, 23034 MiB\n", "L4", 2),
    ],
)
def test_gpus_of_nvidia_smi(text, device, count):
    gpus = parse_nvidia_smi(text)
    assert (catalog_gpu_name(gpus), gpus.count) == (device, count)


def test_different_gpus_and_other_text_are_refused():
    two = "GPU 0: NVIDIA A10G (UUID: GPU-1)\nGPU 1: NVIDIA L4 (UUID: GPU-2)\n"
    with pytest.raises(BadInput, match="different GPUs"):
        parse_nvidia_smi(two)
    with pytest.raises(BadInput, match="nvidia-smi > "):
        parse_nvidia_smi("command not found")
    assert catalog_gpu_name(Gpus("NVIDIA Something", 1)) == "NVIDIA Something"


@pytest.mark.parametrize(
    ("text", "device", "links", "name"),
    [
        (uniform(8, "NV12"), "A100-SXM4-80GB", ("nvswitch", "switch", 300), "a100-sxm"),
        (uniform(8, "NV18"), "H100-SXM5-80GB", ("nvswitch", "switch", 450), "h100-sxm"),
        (uniform(8, "NV18"), "H200-SXM-141GB", ("nvswitch", "switch", 450), "h200-sxm"),
        (uniform(8, "NV18"), "B200-SXM-180GB", ("nvswitch", "switch", 900), "b200-sxm"),
        (uniform(8, "SYS"), "RTX-4090", ("pcie", "pcie", 31), "pcie-4"),
        (uniform(2, "NV12"), "A100-PCIE-80GB", ("nvlink", "pairs", 300), "a100-pcie-pair"),
        (uniform(2, "NV4"), "RTX-4090", ("nvlink", "pairs", 100), None),
    ],
)
def test_links_of_the_topology(text, device, links, name):
    fabric = parse_topology(text, device)
    assert (fabric["kind"], fabric["topology"], fabric["gbyte_per_s"]) == links
    assert matching_fabric_name(device, text.count("GPU") // 2, fabric["kind"], fabric["gbyte_per_s"]) == name


def test_hybrid_cube_mesh_and_bridged_pairs():
    mesh = [
        [" X ", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"],
        ["NV1", " X ", "NV2", "NV1", "SYS", "NV2", "SYS", "SYS"],
        ["NV1", "NV2", " X ", "NV2", "SYS", "SYS", "NV1", "SYS"],
        ["NV2", "NV1", "NV2", " X ", "SYS", "SYS", "SYS", "NV1"],
        ["NV2", "SYS", "SYS", "SYS", " X ", "NV1", "NV1", "NV2"],
        ["SYS", "NV2", "SYS", "SYS", "NV1", " X ", "NV2", "NV1"],
        ["SYS", "SYS", "NV1", "SYS", "NV1", "NV2", " X ", "NV2"],
        ["SYS", "SYS", "SYS", "NV1", "NV2", "NV1", "NV2", " X "],
    ]
    fabric = parse_topology(matrix(mesh), "V100-SXM2-16GB")
    assert (fabric["topology"], fabric["gbyte_per_s"]) == ("mesh", 150)
    assert matching_fabric_name("V100-SXM2-16GB", 8, fabric["kind"], fabric["gbyte_per_s"]) == "v100-8"
    pairs = [
        [" X ", "NV12", "SYS", "SYS"],
        ["NV12", " X ", "SYS", "SYS"],
        ["SYS", "SYS", " X ", "NV12"],
        ["SYS", "SYS", "NV12", " X "],
    ]
    fabric = parse_topology(matrix(pairs), "A100-PCIE-80GB")
    assert (fabric["topology"], fabric["gbyte_per_s"], fabric["between_gbyte_per_s"]) == ("pairs", 300, 31)


def test_processor_of_lscpu():
    text = "Architecture:  x86_64\nCPU(s):        96\nModel name:    AMD EPYC 7402\nSocket(s):  2\n"
    assert parse_lscpu(text) == {"cpu": "AMD EPYC 7402", "vcpus": 96}
    with pytest.raises(BadInput, match="lscpu"):
        parse_lscpu("")


PORT = """\
CA '{name}'
        CA type: MT4123
        Number of ports: 1
        Port 1:
                State: {state}
                Physical state: LinkUp
                Rate: {rate}
                Base lid: 12
                Link layer: {layer}
"""


def test_fastest_active_ports_of_ibstat():
    ports = [PORT.format(name=f"mlx5_{i}", state="Active", rate=200, layer="InfiniBand") for i in range(8)]
    other = PORT.format(name="mlx5_8", state="Active", rate=25, layer="Ethernet")
    down = PORT.format(name="mlx5_9", state="Down", rate=400, layer="InfiniBand")
    nics = parse_ibstat("".join([other, down, *ports]))
    assert (nics["nics"], nics["nic_baseline_gbit_per_s"], nics["rdma_kind"]) == (8, 1600, "InfiniBand")
    assert (nics["rdma"], nics["rdma_gbit_per_s"]) == (True, 1600)
    assert parse_ibstat(other)["rdma_kind"] == "RoCE"
    with pytest.raises(BadInput, match="no active port"):
        parse_ibstat(down)
