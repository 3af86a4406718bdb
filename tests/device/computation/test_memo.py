"""What is made from a computation goes with it."""

from __future__ import annotations

import gc
import weakref

import numpy as np

import planner
from planner.device.computation import Computation
from planner.device.precision import FP32
from planner.memoize import get_or_make_on
from planner.parallel.data import Site
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.single import Alone
from planner.search.cases import device_computation
from planner.servers.parameter_servers import ParameterServers


def made(machine: str = "p3.8xlarge") -> tuple[Computation, Site]:
    site = Site(planner.load_hardware(machine), 4)
    return device_computation(planner.load_model("alexnet"), 8, site, FP32), site


def test_computation_is_freed_though_what_was_made_of_it_holds_it() -> None:
    computation, _ = made()
    holder = [computation]
    get_or_make_on(computation, "itself", holder.copy)
    holder.clear()
    gone = weakref.ref(computation)
    del computation
    gc.collect()
    assert gone() is None


def test_lowering_and_bounds_keep_no_computation_alive() -> None:
    exchanges = (ParameterServers(2), AllReduce(), Sharded(), Alone())
    seen = []
    for exchange in exchanges:
        computation, site = made("p3.2xlarge" if exchange == Alone() else "p3.8xlarge")
        case = exchange.lower(computation, site)
        assert np.isfinite(case.profile.durations_s).all()
        seen.append(weakref.ref(computation))
        del computation, case
    gc.collect()
    assert [reference() for reference in seen] == [None] * len(exchanges)
