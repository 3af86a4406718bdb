"""Published runs by the rates of the package."""

from __future__ import annotations

import numpy as np

from planner.device.rates.kernels import network_of
from planner.device.rates.times import computation_s, framework_named
from planner.device.recompute import recomputed_layers
from planner.validation.training import Run


def predicted_step_s(run: Run) -> float:
    """Seconds of a step: computation, its part of the update, communication beside it, for each of its
    batches; and what nothing hides."""
    time = computation_s(
        run.model,
        run.batch,
        run.device,
        run.precision,
        run.framework,
        optimizer=run.optimizer,
        input="files" if run.input == "files" else "synthetic",
        channels_last=run.channels_last,
        flash=run.flash,
    )
    step_s = time.step_s - (1 - run.update_share) * time.optimizer_s
    again = recomputed_layers(run.model, run.recompute, framework_named(run.framework).stops_early)
    step_s += float(time.forward_s[again].sum())
    beside_s = run.communication_s
    step_s = max(step_s, beside_s) + run.taken * min(step_s, beside_s)
    return (step_s * run.repeated + run.exposed_s) * run.slower


def kind_of(run: Run) -> str:
    """CNN, BERT or LLM, as errors are told apart."""
    if network_of(run.model) == "cnn":
        return "CNN"
    return "BERT" if run.model.name.startswith("bert") else "LLM"


def log_error(run: Run) -> float:
    """log(predicted step / published step)."""
    return float(np.log(predicted_step_s(run) / run.step_s))
