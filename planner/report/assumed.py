"""The assumptions of an answer in words: one sentence per fact, and a shorter clause for screens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from planner.answers import assumptions as facts
from planner.hardware.prices.cost import price_age_note
from planner.note import Fact, LeftOut, Note, Topic
from planner.search import machines
from planner.search.feasibility import Offloaded
from planner.units import count, format_bandwidth, format_bytes, format_count, limit_usd, listing, rate, usd

SENTENCES = (Topic.WARNING, Topic.PRICES)  # shown as they are on a screen
CLAUSES = (  # joined to one sentence
    Topic.JOB,
    Topic.MACHINES,
    Topic.PRICE,
    Topic.SPOT,
    Topic.COMPUTE,
    Topic.MEASURED,
    Topic.BATCH,
    Topic.INPUT,
    Topic.LEFT_OUT,
)
FEW = 3  # machines that a clause has room for
BASES = {  # of the rates of a device
    "recorded": "as recorded",
    "fitted": "fitted on published runs",
    "new kind": "fitted on other kinds of networks",
    "matmul": "from its matmul benchmarks",
    "peaks": "from its published peaks",
    "other vendor": "as uncertain as other vendors' libraries",
}


def notes_of(assumed: Iterable[Note | Fact]) -> list[Note]:
    """Converts the facts among assumptions to notes; machines priced on equal terms share one note."""
    assumed = list(assumed)
    out = []
    prices = [item for item in assumed if isinstance(item, facts.MachinePrice)]
    for item in assumed:
        if isinstance(item, facts.MachinePrice):
            alike = [price for price in prices if price.terms == item.terms]
            if item is alike[0]:
                out.append(_prices_note(alike))
            continue
        note = (
            item if isinstance(item, Note) else Note(item.topic, fact_sentence(item), brief=fact_clause(item))
        )
        if note.text:
            out.append(note)
    return out


def brief_notes(notes: Sequence[Note], *, energy: bool = False) -> list[str]:
    """Assumptions for a terminal: one sentence of short clauses, then warnings and prices."""
    computes = [
        note for note in notes if note.topic is Topic.COMPUTE
    ]  # one for each device, the choice first
    kept = [note for note in notes if note.topic in CLAUSES and note not in computes[1:]]
    left = sum(len(note.machines) for note in kept if isinstance(note, LeftOut))
    joined = [
        (note.text if note.brief is None else note.brief).rstrip(".")
        for note in kept
        if not isinstance(note, LeftOut)
    ]
    joined += [f"{count(left, 'machine')} left out"] if left else []
    said = ["; ".join(filter(None, joined)) + "."] if any(joined) else []
    wanted = (*SENTENCES, Topic.ENERGY) if energy else SENTENCES
    said += [str(note) for note in notes if note.topic in wanted]
    more = len(notes) - len(said)
    return [*said, f"--explain lists all {len(notes)} assumptions."] if said and more > 0 else said


def fact_sentence(fact: Fact) -> str:
    """Sentence that states a fact; empty string if it needs none."""
    return _WORDS[type(fact)](fact)


def fact_clause(fact: Fact) -> str | None:
    """Short clause for terminals: empty if omitted there, None if the fact's sentence is short enough."""
    words = _CLAUSES.get(type(fact))
    return None if words is None else words(fact)


def _default_job_sentence(fact: facts.UsualJob) -> str:
    epoch = f"; an epoch of {fact.model} has {format_count(fact.epoch_tokens)}" if fact.epoch_tokens else ""
    length = f", in samples of {fact.sample_tokens:,} (--seq-length)" if fact.sample_tokens else ""
    return f"{fact.words} by default (--tokens, --samples, --epochs){epoch}{length}."


def _machine_sources_sentence(fact: facts.MachinesOf) -> str:
    if fact.device is not None:
        return f"of every provider with {fact.device}; --provider aws narrows them."
    return "of AWS, and your own; --provider gcp,azure or --gpu A100 adds others."


def _prices_note(prices: Sequence[facts.MachinePrice]) -> Note:
    """Note that lists machines whose prices have the same terms."""
    terms = prices[0].terms
    named = [f"{price.machine} {usd(price.usd_per_hour)}/h" for price in prices]
    if terms.given:
        return Note(Topic.PRICE, f"{', '.join(named)}, as given by --price.")
    if terms.owned:
        return Note(Topic.PRICE, f"{', '.join(named)}, estimated from capital, lifetime and energy.")
    region = {"any": "any region"}.get(terms.region, terms.region)
    where = ("spot" if terms.spot else "on demand") + (f" in {region}" if region else "")
    details = ", ".join(part for part in (terms.as_of, terms.basis) if part)
    note = Note(Topic.PRICE, f"{listing(named, len(named))}, {where} ({details}).")
    return replace(note, brief=f"{listing(named, FEW)} {where} ({terms.as_of or terms.basis})")


def _unpriced_sentence(fact: machines.Unpriced) -> str:
    verb = "has" if len(fact.machines) == 1 else "have"
    return f"{listing(list(fact.machines))} {verb} no price: plans are ranked by time; --price adds cost."


def _owned_machines_sentence(fact: machines.OwnedMachines) -> str:
    if fact.given:
        return f"{fact.count:,} x {fact.machine}, as its file says; fewer only where as fast."
    return f"one {fact.machine}, as its file does not say how many; --machines 4 allows more."


def _assumed_fabric_sentence(fact: machines.AssumedFabric) -> str:
    from planner.report.hardware import LINKS

    fabric = fact.fabric
    rate_gb = f"{fabric.bytes_per_s / 1e9:g} GB/s per device each way"
    source = fabric.source.removeprefix("assumed: ")
    return (
        f"{fact.machine}'s file names no fabric; {LINKS[fabric.kind]} with {rate_gb} is assumed: {source}. "
        'Set fabric = "pcie-4" or another there.'
    )


def _offload_sentence(fact: Offloaded) -> str:
    of = f" of {format_bytes(fact.machine_bytes)}" if fact.machine_bytes else ""
    updates = fact.link.updates_per_s * fact.devices / 1e9
    return (
        f"offload is slow: {listing(list(fact.parts))} in host memory, {format_bytes(fact.host_bytes)}{of} "
        f"per machine, whose CPUs update {updates:.2g} billion parameters per second; a device copies "
        f"{fact.link.copy_bytes_per_s / 1e9:.3g} GB/s each way during its passes."
    )


def _spot_sentence(fact: facts.CountedSpot) -> str:
    first = fact.course or f"{fact.machines} on demand: {fact.refused}"
    others = f" On demand, as spot does not pay there: {', '.join(fact.on_demand)}." if fact.on_demand else ""
    return f"{first}.{others}"


def _unknown_network_sentence(fact: facts.UnknownNetwork) -> str:
    names = listing(list(fact.machines))
    return f"no network bandwidth is published for {names}: one machine only; --bandwidth allows several."


def _experts_sentence(fact: facts.AllExperts) -> str:
    return (
        f"expert parallelism is not modelled: every replica holds all {fact.experts} experts. Their times "
        "are not validated with published runs, so ranges are wider."
    )


def _framework_sentence(fact: facts.FrameworkHint) -> str:
    if fact.cpus:
        return "--framework does not apply to CPUs, which have rates of their own."
    return (
        "models this large are mostly trained with Megatron-Core or NeMo: --framework transformer-engine "
        "predicts those."
    )


def _batch_sentence(fact: facts.ChosenBatch) -> str:
    own = fact.own
    if not fact.searched:
        fewer = ", ".join(map(str, fact.fewer))
        return f"{fewer}, because the model's default of {own} does not fit in memory."
    source = "You et al. 2019, Llama 3" if fact.tokens else "Goyal et al. 2017"
    limit = f"{fact.limit:,} {'tokens' if fact.tokens else 'samples'}"
    return (
        f"the model's default of {own} per GPU, or {2 * own} or {4 * own} where each doubling adds at least "
        f"2%, less where memory is short; global batch at most {limit} ({source}); --batch {own} keeps it."
    )


def _input_sentence(fact: facts.InputPipeline) -> str:
    if fact.images_per_s is None:
        return "the input pipeline keeps up, as with DALI or synthetic data."
    if fact.unknown:
        return f"the input pipeline keeps up: the vCPUs of {', '.join(fact.unknown)} are not known."
    source = " (published runs)" if fact.source == "jpeg" else ""
    return (
        f"each vCPU decodes {rate(fact.images_per_s)} images/s{source}; --input dali or none removes the "
        "limit."
    )


def _model_parallel_sentence(fact: facts.ModelParallel) -> str:
    return (
        f"{fact.devices} devices per replica: {fact.roles}; the slowest stage is simulated, with its "
        "wait for the others."
    )


def _shared_replica_sentence(fact: facts.PartitionedReplica) -> str:
    samples = " or ".join(map(str, fact.samples))
    return (
        f"{fact.workers} workers share a replica as the partition search splits it and take {samples} "
        "samples per step; a batch that large may need more epochs."
    )


def _retired_sentence(fact: facts.Retired) -> str:
    instead = f"; the nearest current machine is {fact.nearest} ({fact.reason})" if fact.nearest else ""
    return f"{fact.machine} is no longer sold{instead}."


_WORDS: dict[type[Fact], Callable[[Any], str]] = {
    facts.UsualJob: _default_job_sentence,
    facts.MachinesOf: _machine_sources_sentence,
    facts.UsualMachine: lambda fact: f"{fact.machine} by default; --hardware or --gpu chooses another.",
    facts.BudgetLimit: lambda fact: (
        f"at most {limit_usd(fact.usd_per_hour)}/h for the whole cluster, servers included."
    ),
    machines.Unpriced: _unpriced_sentence,
    machines.OwnedMachines: _owned_machines_sentence,
    machines.AssumedFabric: _assumed_fabric_sentence,
    Offloaded: _offload_sentence,
    facts.PriceDates: lambda fact: price_age_note(fact.as_of),
    facts.CountedSpot: _spot_sentence,
    facts.GivenBandwidth: lambda fact: f"{format_bandwidth(fact.bytes_per_s)} for every NIC, as given.",
    facts.UnknownNetwork: _unknown_network_sentence,
    facts.FlowLimit: lambda fact: (
        f"one connection carries at most {format_bandwidth(fact.bytes_per_s)} "
        "(machines in one cluster placement group)."
    ),
    facts.ProfileTimes: lambda fact: (
        f"times of {count(fact.steps, 'step')} from your profile "
        f"({fact.source or 'the given profile'}): {fact.scaled}."
    ),
    facts.ComputeSource: lambda fact: f"{fact.source or 'synthesized from the catalog'} ({fact.basis}).",
    facts.AllExperts: _experts_sentence,
    facts.FrameworkHint: _framework_sentence,
    facts.ChosenBatch: _batch_sentence,
    facts.InputPipeline: _input_sentence,
    facts.Corrected: lambda fact: f"{fact.device}, {fact.factor} (`planner check --list`).",
    facts.ModelParallel: _model_parallel_sentence,
    facts.PartitionedReplica: _shared_replica_sentence,
    facts.Retired: _retired_sentence,
}
_CLAUSES: dict[type[Fact], Callable[[Any], str]] = {
    facts.UsualJob: lambda fact: f"{fact.words} by default (--tokens, --epochs)",
    facts.MachinesOf: lambda fact: (
        "" if fact.device else "machines of AWS and your own (--provider gcp adds others)"
    ),
    facts.UsualMachine: lambda fact: f"{fact.machine} by default (--hardware, --gpu)",
    facts.ProfileTimes: lambda fact: f"compute times from your profile: {fact.scaled}",
    facts.ComputeSource: lambda fact: (
        f"{fact.device} rates {BASES[fact.basis]}" if fact.device and fact.basis in BASES else fact.basis
    ),
    facts.ChosenBatch: lambda fact: (
        f"batches up to {4 * fact.own} per GPU (--batch)" if fact.searched else _batch_sentence(fact)
    ),
    facts.InputPipeline: lambda fact: (
        f"JPEG input at {rate(fact.images_per_s)} images/s per vCPU (--input)"
        if fact.images_per_s is not None and not fact.unknown
        else ""
    ),
    facts.Corrected: lambda fact: f"{fact.device} corrected by your runs, {fact.factor}",
}
