"""How long a device computes: kernels of a model, rates of a device, factors of a framework, and their error.

Kernels: what each asks of a device, for one sample and for a step, as arrays; those of one pass of a layer
are one row, taken to be alike. Everything is a property of the network alone. `times` divides it by rates.

Rates: the calibrated figures of `data/rates.toml`, read once: shares, factors of frameworks and devices,
errors of predictions for sources that no fit has seen (`benchmarks/fit/calibrate_rates.py` writes them;
docs/compute.md tells what each means). A device reaches what large matrix products reach (measured, else the
share of the dense peak that is usual) times the share that a kernel kind reaches of it (fitted over all
devices) times the fitted factor of the device's family, if it has rows.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from planner.device.precision import Precision
from planner.errors import BadInput
from planner.files.tomlfile import convert
from planner.hardware import Device
from planner.memoize import memoize
from planner.model import Model
from planner.model.layers import base, workloads
from planner.model.layers.base import KERNEL_KINDS, Matmul, Pass

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Network = Literal["cnn", "transformer", "other"]

_PLACE = {kind: place for place, kind in enumerate(KERNEL_KINDS)}
MATMUL, ATTENTION, EXPERTS, MEMORY = (
    _PLACE[kind] for kind in (base.MATMUL, base.ATTENTION, base.EXPERTS, base.MEMORY)
)
CONVOLUTIONS = tuple(range(_PLACE[base.CONV1X1], MEMORY))


@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernels of a model: one row for those that a layer launches in one direction. Figures are those of a
    single kernel. `layer`: its place in the model. `launches`: number of kernels; `fixed` and `host`: shares
    of a usual kernel's fixed time and launch time that each takes. `flops` and `moved` (elements) are per
    sample, `weights` (elements) per step. Small products pay for tiles that they do not fill: `row_flops` are
    those of one row, `edge_flops` those of a sample times (1 / columns + 1 / depth)."""

    layers: int
    layer: Ints
    backward: Flags
    kind: Ints
    launches: Array
    fixed: Array
    host: Array
    flops: Array
    row_flops: Array
    edge_flops: Array
    moved: Array
    weights: Array
    parameters: int
    tensors: int


@memoize
def model_kernels(model: Model, flash: bool | None = None, training: bool = True) -> Kernels:
    """Kernels of a model in one step; cached. `flash` overrides its attention, `training` adds gradients."""
    rows = []
    for at, asked in enumerate(workloads(model, flash=flash, training=training)):
        kind = _PLACE[asked.kernel]
        shares = model.layers[at].launch_share, model.layers[at].host_share
        for back, entry in enumerate((asked.forward, asked.backward)):
            rows += [
                (*_kernel_row(at, of, part, back), *shares)
                for of, part in _kernels_of_pass(kind, entry, back)
                if part.kernels
            ]
    table = np.array(rows or np.zeros((0, 11)))
    launches, flops, row_flops, edge_flops, moved, weights, fixed, host = table[:, 3:].T
    return Kernels(
        len(model.layers),
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.bool_),
        table[:, 2].astype(np.int64),
        launches,
        fixed,
        host,
        flops,
        row_flops,
        edge_flops,
        moved,
        weights,
        model.trained_parameters,
        len(model.trained_tensors),
    )


def _kernels_of_pass(kind: int, work: Pass, backward: int) -> tuple[tuple[int, Pass], ...]:
    """Kernels of a layer's pass, as (kernel kind, work) pairs. Unfused attention becomes matrix products plus
    memory-bound passes that read and write its scores, and backward their gradient."""
    passes = work.kernels - len(work.matmuls)
    if kind != ATTENTION or passes <= 0 or work.kernels < len(work.matmuls):
        return ((kind, work),)
    scores = work.matmuls[0]
    moved = passes * (2 + backward) * scores.rows * scores.columns * scores.times
    products = replace(work, read_elements=work.read_elements - moved, kernels=len(work.matmuls))
    return (kind, products), (MEMORY, Pass(0, 0, moved, 0, 0, passes))


def _kernel_row(layer: int, kind: int, work: Pass, backward: int) -> tuple[float, ...]:
    """Row of the kernel table: layer, direction, kind, launches, and work per kernel."""
    n, row_flops, edge_flops = work.kernels, 0.0, 0.0
    if kind not in (MEMORY, ATTENTION):
        row_flops = 2 * work.weight_elements / n
    if kind in (MATMUL, EXPERTS):
        edge_flops = sum(_edge_flops(product) for product in work.matmuls) / n
    moved, weights = work.moved_elements / n, work.weight_elements / n
    return layer, backward, kind, n, work.flops / n, row_flops, edge_flops, moved, weights


def _edge_flops(product: Matmul) -> float:
    """FLOPs of a matrix product times the sum of 1 / side over its two sides besides the batch."""
    sides = (product.columns, product.depth if product.grows == "rows" else product.rows)
    return product.flops * sum(1 / max(side, 1.0) for side in sides)


@memoize
def network_class(model: Model) -> Network:
    """Kind of a network: `cnn` classifies by convolutions, `transformer` has matrix products and
    attention. Rates are fitted to these two, not to `other`: detection, segmentation, speech,
    diffusion, and text without attention."""
    kernels = model_kernels(model, None, True)  # as `times` asks, so that it is found once
    flops, images = kernels.flops * kernels.launches, np.isin(kernels.kind, CONVOLUTIONS)
    if flops[images].sum() > flops.sum() / 2:
        return "cnn" if len(model.layers[-1].output_shape) == 1 else "other"
    reads_text = model.sequence_length is not None
    return "other" if reads_text and not (kernels.kind == ATTENTION).any() else "transformer"


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Factors of a framework relative to the mean of all. They scale the traffic of memory-bound kernels, the
    fixed cost of a kernel on the device, its launch on the host (`floor_s`), and the speed of matrix products
    and attention if it brings kernels of its own."""

    traffic: float
    fixed_s: float
    floor_s: float
    channels_last: bool  # the layout of images that tensor cores want, in sixteen bits
    basis: str
    rows: int = 0
    time: float = 1.0
    matmul: float = 1.0
    attention: float = 1.0
    exposed_sums: float = 1.0  # of the sums of a tensor cut, what its products do not hide
    # bytes a parameter, by format: adding a micro-batch's gradients to those before it, where no product does
    summed_bytes: dict[str, float] = {}
    gradients: dict[str, str] = {}  # that they are kept and exchanged in, by the run's format, if another
    stops_early: bool = False  # checkpoints compute again what the backward pass reads, not whole blocks
    even_stages: bool = False  # pipeline stages have equally many blocks, whatever embedding and head take


class DeviceFactors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Factors of a device family relative to the mean of all: `shares` by class of format and kernel kind."""

    shares: dict[str, dict[str, float]] = {}
    memory: float = 1.0
    fixed: float = 1.0
    rows: dict[str, dict[str, int]] = {}  # class of format, kind of network: rows of the fit


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quantiles of |log(predicted / published)| on runs outside the fit."""

    median: float
    q90: float
    rows: int
    sources: int


class RateConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    as_of: str
    rows: int
    shares: dict[str, dict[str, float]]  # class of format, kernel kind: of what large products reach
    matmul_share: dict[str, float]  # format: of the dense peak, where nobody measured
    memory_share: float  # of the published bandwidth, of a slow memory
    old_memory_share: float  # of that share, on devices before 2017
    fast_memory_bytes_per_s: float  # of a memory of which half that share is reached
    fast_flops: float  # of large products, on a device that reaches half the shares below
    board_share: float  # of products in fewer than 32 bits, on graphics boards beside what the shares say
    overlap: float  # of arithmetic and traffic of one kernel: what the smaller adds to the larger
    small_rows: float  # rows that a matrix product pays for beside its own: tiles that it does not fill
    small_sides: float  # the same for its columns and its depth
    layout_passes: float  # over inputs and outputs of a convolution whose layout tensor cores do not want
    update_launches: float  # kernels that an optimizer launches for one tensor
    loader_images_per_s: float  # what eight processes decode
    frameworks: dict[str, Framework]
    devices: dict[str, DeviceFactors]
    families: dict[str, str]  # device of the catalog: whose factors it has
    cache_bytes: dict[str, float]  # last level, by family or device
    errors: dict[str, dict[str, Spread]]  # basis, kind of network


@memoize
def constants() -> RateConstants:
    """Rate constants shipped with planner; cached."""
    data = files("planner.device.rates") / "data"
    return parse_rate_constants(tomllib.loads((data / "rates.toml").read_text("utf-8")))


def parse_rate_constants(tables: Mapping[str, object]) -> RateConstants:
    """Converts the tables of rates.toml to rate constants."""
    return convert(tables, RateConstants)


# 90th percentile of the error of how data-parallel training scales, with the source left out
# (`planner validate --suite allreduce`; tests/validation/test_suites.py holds them to it).
SCALING_Q90_ONE_MACHINE = 0.12
SCALING_Q90_SEVERAL = 0.175
EXPERTS_Q90 = 0.35  # of mixtures of experts, whose grouped products are not validated: a judgement


@dataclass(frozen=True, slots=True)
class Error:
    """Quantiles of a prediction's error on published runs that the fit had not seen. `median` and `q90` are
    quantiles of |log(predicted / published)| over `rows` rows of `sources` sources."""

    basis: str
    median: float
    q90: float
    rows: int
    source: str

    def add_scaling_error(self, machines: int, workers: int) -> Error:
        """Combines this error with the independent one of data-parallel scaling; returns the sum."""
        if workers <= 1:
            return self
        scaling = SCALING_Q90_ONE_MACHINE if machines <= 1 else SCALING_Q90_SEVERAL
        return replace(self, q90=math.hypot(self.q90, scaling))

    def range_around(self, rate: float) -> tuple[float, float]:
        """Low and high bound around a rate that contain nine in ten published figures."""
        return rate * math.exp(-self.q90), rate * math.exp(self.q90)


def model_error(basis: str, network: str, *, experts: bool = False) -> Error:
    """Error of predictions on a basis, for the kind of network if known; wider for mixtures of experts."""
    figures = constants()
    known = figures.errors[basis]
    spread: Spread = known.get(network, known["all"])
    runs = f"{spread.rows:,} published runs of {spread.sources} sources"
    words = f"range from {runs}, each source left out in turn, {figures.as_of}"
    error = Error(basis, spread.median, spread.q90, spread.rows, words)
    return replace(error, q90=math.hypot(error.q90, EXPERTS_Q90)) if experts else error


def rate_range(rate: float, half_width: float, error: Error) -> tuple[float, float]:
    """Low and high bound of a simulated rate, from the model's error and the simulation's half-width. Both
    are independent, so the squares of their logarithms add; `half_width` is in the unit of the rate."""
    own = math.log1p(half_width / rate) if rate > 0 else 0.0
    both = math.hypot(error.q90, own)
    return rate * math.exp(-both), rate * math.exp(both)


# From the surest on. recorded: a profile of the run itself. fitted: published runs of this device, format and
# kind of network. new kind: of this device and format, but another kind of network. matmul: the device's
# matrix products were measured. peaks: nothing but published peaks is known of it. other vendor: any of the
# four before, but with another vendor's libraries, whose releases differ more than its devices do.
Basis = Literal["recorded", "fitted", "new kind", "matmul", "peaks", "other vendor"]
MOST_FITTED = ("nvidia", "")  # vendors whose libraries the shares are those of; "": not said

CLASS = {"fp32": "fp32", "tf32": "tf32", "fp16": "half", "bf16": "half", "fp8": "fp8"}
_UNFITTED = DeviceFactors()
FASTEST_GDDR_BYTES_PER_S = 1.85e12  # of any board so far: what is faster and says no kind is stacked
ON_BOARDS = (MATMUL, ATTENTION, EXPERTS)  # that graphics boards do not sustain as well on tensor cores
# Products grouped by expert, beside one product as large: groups differ in size, and each fills its last
# tiles by itself. Not fitted: Megatron-Bridge 25.09 publishes half of a dense network's rate for the bf16
# Qwen3-30B-A3B (241 model TFLOP/s per H100, 524 per GB200) with all-to-all, which this leaves out.
EXPERT_SHARE = 0.7


@dataclass(frozen=True, eq=False)
class DeviceRates:
    """FLOP/s by kernel kind, with their source in words (`matmul`), and memory rates of a device."""

    flops: Array
    memory_bytes_per_s: float
    cache_bytes: float
    fixed: float  # factor on the cost of a kernel whatever its size
    matmul: str


def check_format(device: Device, precision: Precision) -> None:
    """Raises BadInput if the device does not support the precision's compute format."""
    if precision.compute not in device.flops:
        raise BadInput(
            f"{device.name} does not compute in {precision.compute}; it has {', '.join(device.formats)}"
        )


def is_pre_volta(device: Device) -> bool:
    """Whether a device is older than Volta, whose caches hide more of the memory's latency."""
    return device.year is not None and device.year < 2017


def is_graphics_board(device: Device) -> bool:
    """Whether a device has graphics memory (GDDR) as opposed to HBM, judged by bandwidth if not stated."""
    if device.memory_kind is not None:
        return device.memory_kind == "gddr"
    return (device.memory_bytes_per_s or 0.0) < FASTEST_GDDR_BYTES_PER_S


def device_family(device: Device, constants: RateConstants) -> str:
    """Name of the device family whose fitted factors apply; the device's own name if it has none."""
    return constants.families.get(device.name, device.name)


def prediction_basis(
    device: Device, precision: Precision, network: Network, constants: RateConstants
) -> Basis:
    """Basis on which a device, precision and kind of network is predicted, such as `fitted` or `peaks`."""
    rows = constants.devices.get(device_family(device, constants), _UNFITTED).rows
    return basis_from_rows(device, precision, network, rows.get(CLASS[precision.compute], {}))


def basis_from_rows(device: Device, precision: Precision, network: Network, rows: Mapping[str, int]) -> Basis:
    """Basis of a prediction, given the rows that were fitted for the device's family by kind of network."""
    if device.vendor not in MOST_FITTED:
        return "other vendor"
    if rows.get(network):
        return "fitted"
    if rows:
        return "new kind"
    return "matmul" if precision.compute in device.matmul_flops else "peaks"


def device_rates(device: Device, precision: Precision, constants: RateConstants) -> DeviceRates:
    """FLOP/s by kernel kind and memory bytes per second of a device in a precision."""
    check_format(device, precision)
    if device.memory_bytes_per_s is None:
        raise BadInput(f"the memory bandwidth of {device.name} is unknown; give its memory_gbyte_per_s")
    family = device_family(device, constants)
    factors = constants.devices.get(family, _UNFITTED)
    flops = _flops_by_kind(device, precision.compute, constants, factors)
    if precision.compute == "fp8":
        rest = "bf16" if "bf16" in device.flops else "fp16"
        wide = _flops_by_kind(device, rest, constants, factors)
        wide[MATMUL] = flops[MATMUL]  # products alone are of eight bits
        flops = wide
    cache = constants.cache_bytes.get(device.name, constants.cache_bytes.get(family, 0.0))
    return DeviceRates(
        flops,
        _memory_bytes_per_s(device.memory_bytes_per_s, device, constants) * factors.memory,
        cache,
        factors.fixed,
        f"measured: {device.matmul_source}" if precision.compute in device.matmul_flops else "of the peak",
    )


def matmul_flops(device: Device, format: str, constants: RateConstants) -> float:
    """Achieved FLOP/s of large matrix products in a format. Both 16-bit formats run on the same units, so
    that a measurement in one serves the other unless their peaks differ."""
    measured = device.matmul_flops.get(format)
    other = {"fp16": "bf16", "bf16": "fp16"}.get(format)
    if measured is None and other and device.flops.get(other) == device.flops[format]:
        measured = device.matmul_flops.get(other)
    return measured or device.flops[format] * constants.matmul_share[format]


def _memory_bytes_per_s(published: float, device: Device, constants: RateConstants) -> float:
    """Bytes per second that memory-bound kernels reach. Their share of the published rate falls as memories
    get faster, because more bytes must be in flight at once."""
    share = constants.memory_share * (constants.old_memory_share if is_pre_volta(device) else 1.0)
    return published * share / (1 + published / constants.fast_memory_bytes_per_s)


def share_kind(kind_class: str, kind: str) -> str:
    """Kernel kind whose fitted share applies: long filters count as square ones except in fp32 (Winograd)."""
    return base.CONV3X3 if kind == base.CONV_LONG and kind_class != "fp32" else kind


def _flops_by_kind(device: Device, format: str, constants: RateConstants, factors: DeviceFactors) -> Array:
    """FLOP/s of a device by kernel kind in a format; infinite for memory-bound kernels."""
    # Kernels of a network are short: the faster a device, the more of their time is filling and draining it.
    large = matmul_flops(device, format, constants)
    large = large / (1 + large / constants.fast_flops)
    shares = constants.shares[CLASS[format]]
    own: Mapping[str, float] = factors.shares.get(CLASS[format], {})
    names = (share_kind(CLASS[format], kind) for kind in KERNEL_KINDS)
    rates = np.array([large * shares.get(kind, 1.0) * own.get(kind, 1.0) for kind in names])
    rates[EXPERTS] = EXPERT_SHARE * rates[MATMUL]
    if CLASS[format] != "fp32" and is_graphics_board(device):
        rates[list(ON_BOARDS)] *= constants.board_share
    rates[MEMORY] = np.inf  # such kernels do no multiplications
    return rates
