"""The table of `planner fit`: training methods by GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.hardware.prices.cost import old_prices
from planner.report.format import rate, usd
from planner.report.page import Column, Table
from planner.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from planner.answers.fit import Fit, FitRow


def fit_table(fit: Fit) -> Table:
    """Which methods fit on which GPUs, with speed and cost."""
    columns = [
        Column("gpu", "GPU"),
        Column("method"),
        Column("fits", show=lambda fits: "yes" if fits else "no"),
        Column("_peak", "peak memory"),
        Column("_recompute", "recompute"),
        Column("tokens_per_s", "tokens/s", show=rate),
        Column("job_s", "job time", show=format_seconds),
        Column("job_usd", "job cost", show=usd),
        Column("_offer", "cheapest offer"),
    ]
    job = (
        f"{fit.epochs:g} epoch{'' if fit.epochs == 1 else 's'} over {format_count(fit.dataset_tokens)} tokens"
    )
    filled = "packed" if fit.mean_length is None else f"padded from {fit.mean_length:,} on average"
    notes = [
        f"One GPU, micro-batch {fit.batch}, samples of {fit.sequence_length:,} tokens, {filled}.",
        f"Job: {job} (--epochs, --dataset-tokens).",
        "Full training keeps fp32 master weights beside bf16 ones; LoRA has adapters on all linear layers "
        "of blocks, of rank 16, unless --targets and --rank say otherwise.",
    ]
    if old := old_prices({row.machine: row.price_as_of for row in fit.rows if row.price_as_of}.values()):
        notes.append(old)
    title = f"{fit.model}, {fit.parameters / 1e9:.3g} billion parameters"
    return Table([_row(row) for row in fit.rows], columns, title=title, notes=notes)


def _row(row: FitRow) -> dict[str, Any]:
    unused = "" if row.devices == 1 else f", one of {row.devices} GPUs"
    price = "no price" if row.usd_per_hour is None else f"{usd(row.usd_per_hour)}/h"
    return {
        "gpu": row.gpu,
        "method": row.method,
        "fits": row.fits,
        "peak_bytes": row.peak_bytes,
        "usable_bytes": row.usable_bytes,
        "precision": row.precision,
        "recompute": row.recompute,
        "tokens_per_s": row.tokens_per_s,
        "tokens_per_s_low": row.tokens_per_s_low,
        "tokens_per_s_high": row.tokens_per_s_high,
        "job_s": row.job_s,
        "job_usd": row.job_usd,
        "machine": row.machine,
        "usd_per_hour": row.usd_per_hour,
        "price_as_of": row.price_as_of,
        "_peak": f"{format_bytes(row.peak_bytes)} of {format_bytes(row.usable_bytes)}",
        "_recompute": row.recompute,
        "_offer": f"{row.machine}, {price}{unused}",
    }
