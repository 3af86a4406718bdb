"""Large models: shapes that published runs agree on (`large_shapes`) and simple rules beside our errors
(`large_baselines`), as claims that hold."""

from __future__ import annotations

from planner.validation import large_shapes, row
from planner.validation.large_steps import predicted
from planner.validation.row import About, Check, Row, RowName
from planner.validation.suites.sharded import evidence_of
from planner.validation.training import training_rows

HOW = "closed form of the exchange that plans are bounded by"
ZERO = "ZeRO++ (DeepSpeed, 2023), read off its figures"
SHARE = 0.2  # of what 800 Gbit/s give; the figures are read off a chart
FALLS, STAYS, FASTER = 0.6, 0.9, 1.2
OWNERS = 0.2  # of the published ratio


def network() -> list[Row]:
    """ZeRO-3 by the network of a machine, as a share of what the widest gives."""
    rates = large_shapes.networks()
    widest = large_shapes.NETWORKS_GBIT[-1]
    rows = []
    for gbit, tflops in zip(large_shapes.NETWORKS_GBIT, large_shapes.PUBLISHED_TFLOPS, strict=True):
        published = tflops / large_shapes.PUBLISHED_TFLOPS[-1]
        if gbit != widest:
            about: About = {
                "name": RowName("large", "network", str(gbit)),
                "what": f"138B on 384 V100, 2,048 tokens a device: {gbit} of {widest} Gbit/s a machine",
                "how": HOW,
                "source": ZERO,
            }
            rows.append(row.close(published, rates[gbit] / rates[widest], SHARE, **about))
    return rows


def micro_batch() -> list[Row]:
    """What a device of 1,024 does of what one of 8 does, by micro-batch."""
    rows = []
    for batch, rates in large_shapes.micro_batches().items():
        kept = rates[-1] / rates[0]
        falls = batch == min(large_shapes.micro_batches())
        about: About = {
            "name": RowName("large", "micro_batch", str(batch)),
            "what": f"FSDP of a 7B on A100, micro-batch {batch}: a device of 1,024 against one of 8",
            "how": HOW,
            "source": "strong and weak scaling of published FSDP runs",
        }
        claim, holds = (f"below {FALLS:g}", kept < FALLS) if falls else (f"above {STAYS:g}", kept > STAYS)
        rows.append(row.stated("falls" if falls else "stays", f"{kept:.2f}", holds, claim, **about))
    return rows


def within() -> list[Row]:
    """Shards inside machines against shards over all ranks."""
    over_all, inside = large_shapes.inside_machines()
    about: About = {
        "name": RowName("large", "within", "1024"),
        "what": "FSDP of a 7B on 1,024 A100, micro-batch 1: shards inside machines against over all ranks",
        "how": HOW,
        "source": "HSDP of PyTorch FSDP (Zhao et al. 2023)",
    }
    times = inside / over_all
    return [row.stated("faster", f"{times:.2f} times", times > FASTER, f"above {FASTER:g} times", **about)]


def owners() -> list[Row]:
    """ZeRO-1 that sends whole tensors over all ranks against inside machines, as a step of the latter."""
    rows = []
    for devices, (over_all, inside) in large_shapes.owner_pairs().items():
        ours = [step.seconds for run in (over_all, inside) if (step := predicted(run)) is not None]
        about: About = {
            "name": RowName("large", "owners", str(devices)),
            "what": f"InternLM 7B on {devices:,} A100, owners of tensors among all against inside machines",
            "how": "simulation of steps that are all alike",
            "source": "InternLM/InternEvo doc/en/train_performance.md",
        }
        rows.append(
            row.near(over_all.step_s / inside.step_s, ours[0] / ours[1], OWNERS, unit="times", **about)
        )
    return rows


def rules() -> list[Row]:
    """Our median error where communication matters, beside those of rules that people use."""
    rows = []
    for statement in evidence_of(training_rows()).statements:
        assert statement.target is not None
        about: About = {
            "name": RowName("large", "rules", statement.name.rsplit(" of ", 1)[-1].replace(" ", "_")),
            "what": statement.name,
            "how": "median errors of published runs, their sources left out of the fit",
            "source": "planner/validate/data/training.csv.gz",
        }
        rows.append(row.at_most(1.0, statement.value, statement.target, **about))
    return rows


CHECKS: dict[str, Check] = {
    "network": network,
    "micro_batch": micro_batch,
    "within": within,
    "owners": owners,
    "rules": rules,
}
