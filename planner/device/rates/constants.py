"""The calibrated figures of `data/rates.toml`, read once: shares, factors of frameworks and devices, errors
of predictions for sources that no fit has seen.

Written by `benchmarks/fit/calibrate_rates.py`; docs/compute.md tells what each means.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

import msgspec

from planner.files.tomlfile import convert
from planner.memoize import memoize


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A framework beside the mean of all: how many bytes its memory-bound kernels move, what a kernel costs
    on the device whatever its size, what launching it costs the host (`floor_s`), and how fast its matrix
    products and its attention are where it brings kernels of its own."""

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


class DeviceFactors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A family of devices beside the mean of all: `shares` by class of format and kernel kind."""

    shares: dict[str, dict[str, float]] = {}
    memory: float = 1.0
    fixed: float = 1.0
    rows: dict[str, dict[str, int]] = {}  # class of format, kind of network: rows of the fit


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far predictions were from published figures that no fit had seen: quantiles of |log ratio|."""

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
    families: dict[str, str]  # device of the catalogue: whose factors it has
    cache_bytes: dict[str, float]  # last level, by family or device
    errors: dict[str, dict[str, Spread]]  # basis, kind of network


@memoize
def constants() -> RateConstants:
    """The figures that are shipped."""
    data = files("planner.device.rates") / "data"
    return decoded(tomllib.loads((data / "rates.toml").read_text("utf-8")))


def decoded(tables: Mapping[str, object]) -> RateConstants:
    return convert(tables, RateConstants)


# 90th percentile of the error of how data-parallel training scales, with the source left out
# (`planner validate --suite allreduce`; tests/validation/test_suites.py holds them to it).
SCALING_Q90_ONE_MACHINE = 0.12
SCALING_Q90_SEVERAL = 0.175


@dataclass(frozen=True, slots=True)
class Error:
    """`median` and `q90` are quantiles of |log(predicted / published)| over `rows` rows of `sources` sources
    that the fit had not seen."""

    basis: str
    median: float
    q90: float
    rows: int
    source: str

    def with_scaling(self, machines: int, workers: int) -> Error:
        """The error of devices that exchange gradients: that of their computation, and of how such runs
        scale, which are independent."""
        if workers <= 1:
            return self
        scaling = SCALING_Q90_ONE_MACHINE if machines <= 1 else SCALING_Q90_SEVERAL
        return replace(self, q90=math.hypot(self.q90, scaling))

    def range_of(self, rate: float) -> tuple[float, float]:
        """Between which bounds nine of ten published figures lie."""
        return rate * math.exp(-self.q90), rate * math.exp(self.q90)


def error_of(basis: str, network: str) -> Error:
    """The error of predictions on this basis; that of all networks where there is none of this kind."""
    figures = constants()
    known = figures.errors[basis]
    spread: Spread = known.get(network, known["all"])
    words = f"{spread.rows} published runs of {spread.sources} sources left out, {figures.as_of}"
    return Error(basis, spread.median, spread.q90, spread.rows, words)


def combined(rate: float, half_width: float, error: Error) -> tuple[float, float]:
    """The range of a simulated rate: its model's error and the simulation's own half-width (in the rate's
    unit) are independent, so that they add as the squares of their logarithms do."""
    own = math.log1p(half_width / rate) if rate > 0 else 0.0
    both = math.hypot(error.q90, own)
    return rate * math.exp(-both), rate * math.exp(both)
