"""What an answer assumes, in sentences: one for each kind of fact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch

from planner.answers import assumptions as facts
from planner.answers import own_machines
from planner.hardware.prices.cost import old_prices
from planner.note import Fact, Note, Topic
from planner.report.format import count, limit_usd, listed, rate, usd
from planner.search.device_memory import Offloaded
from planner.units import format_bandwidth, format_bytes, format_count


def notes_of(assumed: Iterable[Note | Fact]) -> list[Note]:
    """Notes as they are, and a note for each fact that is worth a sentence."""
    assumed = list(assumed)
    out = []
    prices = [item for item in assumed if isinstance(item, facts.MachinePrice)]
    for item in assumed:
        if isinstance(item, facts.MachinePrice):
            alike = [price for price in prices if price.terms == item.terms]
            if item is alike[0]:
                out.append(_prices_note(alike))
            continue
        note = item if isinstance(item, Note) else Note(item.topic, sentence(item))
        if note.text:
            out.append(note)
    return out


@singledispatch
def sentence(fact: Fact) -> str:
    """A fact in a sentence; empty where it is not worth any."""
    raise TypeError(f"no sentence for {type(fact).__name__}")


@sentence.register
def _job(fact: facts.UsualJob) -> str:
    epoch = f"; an epoch of {fact.model} has {format_count(fact.epoch_tokens)}" if fact.epoch_tokens else ""
    length = f", in samples of {fact.sample_tokens:,} (--seq-length)" if fact.sample_tokens else ""
    return f"{fact.words} by default (--tokens, --samples, --epochs){epoch}{length}."


@sentence.register
def _whose(fact: facts.MachinesOf) -> str:
    if fact.device is not None:
        return f"of every provider with {fact.device}; --provider aws narrows them."
    return "of AWS, and your own; --provider gcp,azure or --gpu A100 adds others."


@sentence.register
def _machine(fact: facts.UsualMachine) -> str:
    return f"{fact.machine} by default; --hardware or --gpu chooses another."


@sentence.register
def _budget(fact: facts.BudgetLimit) -> str:
    return f"at most {limit_usd(fact.usd_per_hour)}/h for the whole cluster, servers included."


def _prices_note(prices: Sequence[facts.MachinePrice]) -> Note:
    """The prices of machines that are paid on the same terms."""
    terms = prices[0].terms
    named = [f"{price.machine} {usd(price.usd_per_hour)}/h" for price in prices]
    if terms.given:
        return Note(Topic.PRICE, f"{', '.join(named)}, as given by --price.")
    if terms.owned:
        return Note(Topic.PRICE, f"{', '.join(named)}, estimated from capital, lifetime and energy.")
    region = {"any": "any region"}.get(terms.region, terms.region)
    where = ("spot" if terms.spot else "on demand") + (f" in {region}" if region else "")
    details = ", ".join(part for part in (terms.as_of, terms.basis) if part)
    text, brief = (f"{listed(named, most)}, {where} ({details})." for most in (len(named), 3))
    return Note(Topic.PRICE, text, brief=brief)


@sentence.register
def _unpriced(fact: own_machines.Unpriced) -> str:
    verb = "has" if len(fact.machines) == 1 else "have"
    return f"{listed(list(fact.machines))} {verb} none: plans are ranked by time; --price adds cost."


@sentence.register
def _owned(fact: own_machines.OwnedMachines) -> str:
    if fact.given:
        return f"{fact.count:,} x {fact.machine} are there, as its file says; fewer only where as fast."
    return f"one {fact.machine}, as its file does not say how many; --machines 4 counts with more."


@sentence.register
def _fabric(fact: own_machines.AssumedFabric) -> str:
    from planner.report.hardware import LINKS

    fabric = fact.fabric
    rate_gb = f"{fabric.bytes_per_s / 1e9:g} GB/s per device each way"
    source = fabric.source.removeprefix("assumed: ")
    return (
        f"{fact.machine}'s file names no fabric; {LINKS[fabric.kind]} with {rate_gb} is assumed: {source}. "
        'Set fabric = "pcie-4" or another there.'
    )


@sentence.register
def _offload(fact: Offloaded) -> str:
    of = f" of {format_bytes(fact.machine_bytes)}" if fact.machine_bytes else ""
    updates = fact.link.updates_per_s * fact.devices / 1e9
    return (
        f"offload is slow: {listed(list(fact.parts))} in host memory, {format_bytes(fact.host_bytes)}{of} "
        f"per machine, whose processors update {updates:.2g} billion parameters per second; a device copies "
        f"{fact.link.copy_bytes_per_s / 1e9:.3g} GB/s each way beside its passes."
    )


@sentence.register
def _dates(fact: facts.PriceDates) -> str:
    return old_prices(fact.as_of)


@sentence.register
def _spot(fact: facts.CountedSpot) -> str:
    first = fact.course or f"{fact.machines} on demand: {fact.refused}"
    others = f" On demand, as spot does not pay there: {', '.join(fact.on_demand)}." if fact.on_demand else ""
    return f"{first}.{others}"


@sentence.register
def _bandwidth(fact: facts.GivenBandwidth) -> str:
    return f"{format_bandwidth(fact.bytes_per_s)} for every NIC, as given."


@sentence.register
def _unknown(fact: facts.UnknownNetwork) -> str:
    names = listed(list(fact.machines))
    return f"no network bandwidth is published for {names}: one machine only; --bandwidth allows several."


@sentence.register
def _flow(fact: facts.FlowLimit) -> str:
    limit = format_bandwidth(fact.bytes_per_s)
    return f"one connection carries at most {limit} (machines in one cluster placement group)."


@sentence.register
def _profile(fact: facts.ProfileTimes) -> str:
    source = fact.source or "the given profile"
    return f"times of {count(fact.steps, 'step')} from your profile ({source}): {fact.scaled}."


@sentence.register
def _compute(fact: facts.ComputeSource) -> str:
    return f"{fact.source or 'synthesized from the catalogue'} ({fact.basis})."


@sentence.register
def _experts(fact: facts.AllExperts) -> str:
    return (
        f"expert parallelism is not considered: every replica holds all {fact.experts} experts. Their times "
        "are not validated with published runs, so that ranges are wider."
    )


@sentence.register
def _framework(fact: facts.FrameworkHint) -> str:
    if fact.cpus:
        return "--framework does not apply to CPUs, which have rates of their own."
    return (
        "models this large are mostly trained with Megatron-Core or NeMo: --framework transformer-engine "
        "predicts those."
    )


@sentence.register
def _batch(fact: facts.ChosenBatch) -> str:
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


@sentence.register
def _input(fact: facts.InputPipeline) -> str:
    if fact.images_per_s is None:
        return "the input pipeline keeps up, as with DALI or synthetic data."
    if fact.unknown:
        return f"the input pipeline keeps up: the vCPUs of {', '.join(fact.unknown)} are not known."
    source = " (published runs)" if fact.source == "jpeg" else ""
    return (
        f"each vCPU decodes {rate(fact.images_per_s)} images/s{source}; --input dali or none takes the limit "
        "away."
    )


@sentence.register
def _corrected(fact: facts.Corrected) -> str:
    return f"{fact.device}, {fact.factor} (`planner check --list`)."


@sentence.register
def _model_parallel(fact: facts.ModelParallel) -> str:
    return (
        f"{fact.devices} devices per replica: {fact.roles}; the slowest stage is simulated, with its "
        "wait for the others."
    )


@sentence.register
def _partitioned(fact: facts.PartitionedReplica) -> str:
    samples = " or ".join(map(str, fact.samples))
    return (
        f"{fact.workers} workers share a replica as the partition search splits it and take {samples} "
        "samples per step; a batch that large may need more epochs."
    )


@sentence.register
def _retired(fact: facts.Retired) -> str:
    instead = f"; the nearest current machine is {fact.nearest} ({fact.reason})" if fact.nearest else ""
    return f"{fact.machine} is no longer sold{instead}."
