"""`record`: torch's profiler around a training loop for some steps after warm-up, written as one trace.

The loop is followed through torch's global hooks for modules and optimizers; the user's code is unchanged.
The outermost module called in training is the model; the first dimension of its input is the micro-batch.
Each step of the first optimizer ends a training step; the forward passes since the last one are its
micro-steps.
"""

from __future__ import annotations

import gzip
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from planner.calibrate.compute import cpu_name
from planner.errors import BadInput
from planner.files.regular_file import write_file
from planner.simulator.step.recorded import KEY, Facts, Strategy

COLD_STEPS = 2  # not timed: the framework allocates memory
UNTRACED_STEPS = 5  # timed without the profiler, as are those after the recorded ones
WARMUP_STEPS = 3  # traced and discarded: the profiler's own first steps are slow
STEPS = 10
MOST_TIMED = 300  # timed steps beside the recorded ones
OLDEST = (2, 4)  # the first PyTorch with these hooks and autocast settings
PRECISION_OF = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}


class LoopWatch:
    """Watches a training loop through torch's hooks, and calls `on_step` after each optimizer step."""

    def __init__(self, on_step: Callable[[], None], most_steps: int) -> None:
        self.on_step = on_step
        self.most_steps = most_steps
        self.model: Any = None
        self.optimizer: Any = None
        self.shapes: Counter[tuple[int, ...]] = Counter()
        self.precisions: Counter[str] = Counter()
        self.forwards = 0
        self.micro_steps: Counter[int] = Counter()
        self.step_ends_s: list[float] = []
        self._inside = 0
        self._handles: list[Any] = []

    def register_hooks(self) -> None:
        """Registers torch's global hooks for module calls and optimizer steps."""
        from torch.nn.modules import module as modules
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._handles = [
            modules.register_module_forward_pre_hook(self._before_forward),
            modules.register_module_forward_hook(self._after_forward, with_kwargs=True, always_call=True),
            register_optimizer_step_post_hook(self._after_optimizer_step),
        ]

    def remove_module_hooks(self) -> None:
        """Removes the module hooks, whose overhead would slow later steps; the optimizer hook stays."""
        for handle in self._handles[:2]:
            handle.remove()

    def remove_hooks(self) -> None:
        """Removes all hooks from torch."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before_forward(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """Hook before every module call: counts the model's forward passes and their precisions."""
        self._inside += 1
        if self._inside > 1 or not module.training:
            return
        if self.model is None and any(True for _ in module.parameters()):
            self.model = module
        if module is self.model:
            import torch

            self.forwards += 1
            kinds = [torch.get_autocast_dtype(d) for d in ("cuda", "cpu") if torch.is_autocast_enabled(d)]
            self.precisions[str((*kinds, next(module.parameters()).dtype)[0])] += 1

    def _after_forward(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """Hook after every module call: counts the shapes of the model's inputs."""
        self._inside -= 1
        if self._inside == 0 and module is self.model and module.training:  # compiled parts see no module
            shape = _input_shape(args, kwargs)
            if shape is not None:
                self.shapes[shape] += 1

    def _after_optimizer_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Hook after every optimizer step: records its time and its number of micro-steps."""
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is not self.optimizer:
            return  # a second optimizer of the same step
        if self.forwards:
            self.micro_steps[self.forwards] += 1
        self.forwards = 0
        if len(self.step_ends_s) < self.most_steps:
            self.step_ends_s.append(time.perf_counter())
            self.on_step()

    def facts(self, batch: int | None, model: str, profiled: range) -> Facts | str:
        """Facts of the recorded loop, such as batch and step time, or a message on why one is unknown."""
        import torch

        if self.optimizer is None:
            return "no optimizer took a step"
        if self.model is None:
            return "no module was called in training mode"
        shape = self.shapes.most_common(1)[0][0] if self.shapes else ()
        if batch is None and not shape:
            return "the model's inputs hold no tensor, so the batch is unknown: give it (--batch)"
        device = next(self.model.parameters()).device
        named = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
        strategy, bucket_bytes = _detect_strategy(self.model)
        precision = PRECISION_OF.get(self.precisions.most_common(1)[0][0], "fp32")
        if precision == "fp32" and device.type == "cuda":
            precision = "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
        steps_s = [
            end - start
            for step, (start, end) in enumerate(pairwise(self.step_ends_s), 1)
            if step > COLD_STEPS and step not in profiled
        ]
        return Facts(
            batch=batch if batch is not None else shape[0],
            micro_steps=self.micro_steps.most_common(1)[0][0] if self.micro_steps else 1,
            model=model or _model_class_name(self.model),
            device=named,
            device_kind="gpu" if device.type == "cuda" else device.type,
            precision=precision,
            strategy=strategy,
            world_size=_world_size(),
            compiled=_is_compiled(self.model),
            bucket_bytes=bucket_bytes,
            parameters=tuple(
                (_parameter_name(name), each.numel()) for name, each in self.model.named_parameters()
            ),
            input_shape=shape,
            optimizer=type(self.optimizer).__name__,
            framework=f"torch {torch.__version__}",
            python=platform.python_version(),
            threads=torch.get_num_threads() if device.type == "cpu" else None,
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            step_s=median(steps_s) if steps_s else None,
            untraced_steps=len(steps_s) or None,
        )


INPUTS = ("input_ids", "pixel_values", "inputs_embeds", "input_features", "input_values", "inputs", "input")


def _input_shape(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Shape of the first tensor passed to a model, named inputs first; None if there is none."""
    named = [kwargs[name] for name in INPUTS if name in kwargs]
    for value in (*args, *named, *kwargs.values()):
        if hasattr(value, "shape") and len(value.shape):
            return tuple(int(side) for side in value.shape)
        if isinstance(value, Mapping):
            shape = _input_shape((), value)
        else:
            shape = _input_shape(value, {}) if isinstance(value, list | tuple) else None
        if shape is not None:
            return shape
    return None


_WRAPPERS = {"DistributedDataParallel": "module", "OptimizedModule": "_orig_mod", "DataParallel": "module"}


def _unwrap_models(model: Any) -> list[Any]:
    """Lists a model and the models inside its DDP and torch.compile wrappers, outermost first."""
    out = [model]
    while (inside := _WRAPPERS.get(type(out[-1]).__name__)) is not None:
        out.append(getattr(out[-1], inside))
    return out


def _model_class_name(model: Any) -> str:
    """Class name of the user's model, without wrappers and FSDP's prefix."""
    own = _unwrap_models(model)[-1]
    return type(own).__name__.removeprefix("FSDP") if _is_fsdp(own) else type(own).__name__


def _parameter_name(parameter: str) -> str:
    """Parameter name without the `module` and `_orig_mod` parts added by wrappers."""
    return ".".join(word for word in parameter.split(".") if word not in ("module", "_orig_mod"))


def _is_fsdp(model: Any) -> bool:
    """Whether the module is sharded by FSDP or FSDP2."""
    return type(model).__name__ == "FullyShardedDataParallel" or hasattr(model, "set_reshard_after_forward")


def _detect_strategy(model: Any) -> tuple[Strategy, int | None]:
    """Data-parallel strategy of a model, and its DDP bucket size in bytes (None without DDP)."""
    for layer in _unwrap_models(model):
        if type(layer).__name__ == "DistributedDataParallel":
            return "ddp", int(getattr(layer, "bucket_bytes_cap", 0)) or None
        if _is_fsdp(layer):
            return "fsdp", None
    return "alone", None


def _world_size() -> int:
    """Number of processes in torch.distributed's default group; 1 if it is not initialized."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return 1


def _is_compiled(model: Any) -> bool:
    """Whether torch.compile wraps any module of the model."""
    return any(
        type(part).__name__ == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None
        for part in model.modules()
    )


@contextmanager
def record(
    path: str | Path, *, steps: int = STEPS, model: str = "", batch: int | None = None
) -> Iterator[None]:
    """Record `steps` steps of the PyTorch training loop inside the `with` block as one trace file.

    The loop needs no change; it must take at least `steps` + 8 steps. The first eight warm up; those after
    the recorded ones are timed without the profiler. Only rank 0 records. `batch` is needed where the model's
    inputs hold no tensor.
    """
    torch = _import_torch()
    if steps < 1:
        raise BadInput(f"steps is {steps}; record at least 1")
    if os.environ.get("RANK", "0") != "0":
        yield
        return
    session = _Session(torch, steps)
    session.begin()
    try:
        yield
    finally:
        session.end()
    session.write_trace(Path(path), model, batch)


def _import_torch() -> Any:
    """Imports torch; raises an error if it is missing or too old for the recorder."""
    try:
        import torch
    except ImportError:
        raise BadInput(
            "recording needs PyTorch in the same environment; install it, or record with another tool "
            "(docs/recording.md)"
        ) from None
    check_torch_version(str(torch.__version__))
    return torch


def check_torch_version(version: str) -> None:
    """Raises an error if this PyTorch version is too old for the recorder's hooks."""
    try:
        major, minor = (int(word) for word in version.split(".")[:2])
    except ValueError:
        return  # a custom build
    if (major, minor) < OLDEST:
        raise BadInput(
            f"recording needs PyTorch {OLDEST[0]}.{OLDEST[1]} or later, and this is {version}; update it, or "
            "profile by hand: docs/recording.md has the lines"
        )


class _Session:
    """A recording: torch's profiler and the watch on the training loop."""

    def __init__(self, torch: Any, steps: int) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        kinds = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(ProfilerActivity.CUDA)
        else:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences errors about absent CUDA
        self.wanted = steps
        self.taken = 0
        self.trace: bytes | None = None
        self.watch = LoopWatch(self._on_step, steps + MOST_TIMED)
        self.profiler = profile(
            activities=kinds,
            record_shapes=True,
            schedule=schedule(wait=UNTRACED_STEPS, warmup=WARMUP_STEPS, active=steps, repeat=1),
            on_trace_ready=self._store_trace,
        )

    def begin(self) -> None:
        """Registers the hooks and starts the profiler."""
        self.watch.register_hooks()
        self.profiler.start()

    def end(self) -> None:
        """Removes the hooks, and stops the profiler if the loop ended before all requested steps."""
        self.watch.remove_hooks()
        if self.trace is None and self.taken >= UNTRACED_STEPS + WARMUP_STEPS:
            self.profiler.stop()  # a short loop: its steps are kept

    def _on_step(self) -> None:
        """Counts one training step, and advances the profiler until its trace is complete."""
        self.taken += 1
        if self.trace is None:
            self.profiler.step()

    def _store_trace(self, profiler: Any) -> None:
        """Callback of the profiler: keeps its finished trace in memory and removes the module hooks."""
        self.watch.remove_module_hooks()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(file))
            self.trace = file.read_bytes()

    def write_trace(self, path: Path, model: str, batch: int | None) -> None:
        """Writes the trace with its facts; raises an error if nothing was recorded."""
        # slowed by the profiler, which writes its trace in the last one
        profiled = range(UNTRACED_STEPS, UNTRACED_STEPS + WARMUP_STEPS + self.wanted + 1)
        facts = self.watch.facts(batch, model, profiled)
        if isinstance(facts, str):
            raise BadInput(f"nothing was recorded: {facts}; put the training loop inside the block")
        if self.trace is None:
            least = UNTRACED_STEPS + WARMUP_STEPS + 1
            raise BadInput(
                f"the loop took {self.taken} steps, and the first {least - 1} warm up; let it take at least "
                f"{least}, or {least - 1 + self.wanted} to record {self.wanted}"
            )
        save_trace(self.trace, facts, path)


def save_trace(trace: bytes, facts: Facts, path: Path) -> None:
    """Writes a trace with its facts to a file, gzip-compressed if the name ends in .gz."""
    head = msgspec.json.encode({KEY: facts})
    body = trace.lstrip()
    if not body.startswith(b"{"):
        raise BadInput("the profiler's trace is not a JSON object; record with PyTorch 2.0 or later")
    rest = body[1:].lstrip()
    whole = head[:-1] + (b"," if not rest.startswith(b"}") else b"") + rest
    write_file(path, gzip.compress(whole, mtime=0) if path.suffix == ".gz" else whole)
