"""The computation of one device, whichever way it is known: the one door for plans.

Transformers and sharded networks are computed in units (`replica`). Other networks are
computed layer by layer: by the kernel rates of the hardware file where these were fitted to published
throughputs in single precision (and for CPUs), else by the rates of the device in the plan's number format
(`rated`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.device.computation import Computation, Variation
from planner.device.precision import FP32, Precision
from planner.device.recompute import Recompute
from planner.files.folders import shipped_folder
from planner.hardware import Hardware
from planner.model import Model

if TYPE_CHECKING:
    from planner.device.rates.constants import Error
    from planner.parallel.site import Site


def device_computation(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute = "none",
    framework: str | None = None,
    brief: bool = False,
) -> Computation:
    """One micro-batch of one device of a site, as a `framework` of `planner.device.rates` computes it (None:
    the usual one; CPUs and rates of one's own have none). `brief`: one step without variation, for bounds."""
    if in_units(model, site):
        from planner.parallel.replica import replica_computation

        more: dict[str, Any] = {"steps": 1, "variation": Variation(0.0, 0.0)} if brief else {}
        if framework is not None:
            more["framework"] = framework
        return replica_computation(model, batch, site, precision, recompute=recompute, **more)
    if by_kernels(site.hardware, precision, fitted=framework is None):
        from planner.device.computation.synthesis import computation_for

        return computation_for(model, batch, site.hardware, precision)
    from planner.device.computation.synthesis import calibrated_computation

    return calibrated_computation(model, batch, site.hardware, precision, framework)


def in_units(model: Model, site: Site) -> bool:
    return site.mesh.is_sharded or (
        model.sequence_length is not None and not by_kernels(site.hardware, FP32, fitted=False)
    )


def by_kernels(hardware: Hardware, precision: Precision, *, fitted: bool = True) -> bool:
    """Whether the hardware file's own kernel rates are used: those of a CPU, those in a file of the user's,
    and (`fitted`) those of the catalogue that were fitted to published throughputs, in single precision."""
    known = hardware.kernels
    if known is None or precision != FP32:
        return False
    if hardware.device.kind == "cpu" or Path(hardware.path).parent != shipped_folder("hardware"):
        return True
    return fitted and known.basis != "estimated"


def error_of_device(
    model: Model, hardware: Hardware, precision: Precision, framework: str | None = None
) -> Error | None:
    """How far off the computation may be, by what it rests on; None where nobody knows."""
    from planner.device.rates.constants import error_of
    from planner.device.rates.kernels import network_of
    from planner.device.rates.times import computation_s

    if by_kernels(hardware, precision, fitted=False):
        return None  # a CPU, or rates of the user's own
    if by_kernels(hardware, precision, fitted=framework is None):
        return error_of("fitted", network_of(model))
    return computation_s(model, 1, hardware.device, precision).error
