"""Random requests against the laws of the decision rule (`planner.search.rank`).

    python benchmarks/decisions.py --count 2000 --seed 1

Each request names a model, limits, providers or machines (some of them a private cluster in a file of its
own). The laws, counted per request:

    faster      no plan that is not statistically tied is 5% faster for at most 1% more per sample
    certain     no plan tied with the choice has a narrower range
    marginal    the samples that the choice adds to the cheapest plan are worth their cost (unless `fastest`)
    simulate    no `simulate` of the same machines, global batch and precision is 2% faster
    relaxed     a higher limit never gives a slower and more expensive choice
    remedy      every remedy that is printed gives a plan
    compared    everything asked of `compare` has a row or a reason

Prints each violation with its request, then the counts; the exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Any

from planner.answers.compare import compare_for
from planner.answers.jobs import within
from planner.answers.questions import simulation_for
from planner.answers.recommend import recommend_for
from planner.answers.results import Recommendation
from planner.answers.scenario import parse_request
from planner.errors import PlannerError
from planner.search.rank import LEAST_GAIN, NEGLIGIBLE_COST, SAME_WIDTH, is_tied, worth_per_sample
from planner.search.scored import ScoredPlan
from planner.search.sizes import dividing_batches
from planner.search.worth import discounts

MODELS = ("resnet50", "vgg16", "alexnet", "vit-b16", "bert-large", "gpt2", "inception3", "llama3-8b")
GPUS = ("A100", "H100", "L4", "T4", "A10G", "L40S", "V100", "RTX-4090", "MI300X")
PROVIDERS = ("aws", "gcp", "azure", "lambda", "runpod", "aws,gcp", "aws,azure,lambda")
MACHINES = ("g5.xlarge", "g5.12xlarge", "p4d.24xlarge", "g4dn.*", "g6e.xlarge,g6.xlarge", "p5.48xlarge")
LAWS = ("faster", "certain", "marginal", "simulate", "relaxed", "remedy", "compared")
LOSS = 0.02  # of throughput, against a simulation of the same machines
WIDTH = 0.02  # relative half-width of the simulations' intervals
SLACK = 1e-3  # of comparisons between figures of two answers
PRIVATE = """
provider = "our lab"

[machines.lab-{count}x{name}]
device = "{device}"
device_count = {count}
vcpus = {vcpus}
memory_gib = 256
nic_baseline_gbit_per_s = {gbit}

[machines.lab-{count}x{name}.sources]
nic_baseline = {{ basis = "measured", source = "iperf3", as_of = "2026-10" }}
machine = {{ basis = "published", source = "the invoice", as_of = "2026-10" }}
"""

Options = dict[str, Any]


def random_options(draw: random.Random, folder: Path) -> Options:
    """The flags of one request to `recommend`."""
    options: Options = {"model": draw.choice(MODELS), "interval_width": WIDTH}
    place = draw.random()
    if place < 0.25:
        options["hardware"] = draw.choice(MACHINES)
    elif place < 0.45:
        options["gpu"] = ",".join(draw.sample(GPUS, draw.randint(1, 2)))
    elif place < 0.65:
        options["provider"] = draw.choice(PROVIDERS)
    elif place < 0.8:
        options["hardware"] = str(private_cluster(draw, folder))
        options["machines"] = draw.choice((1, 2, 4))
    if "machines" not in options and draw.random() < 0.75:
        options["budget"] = round(10 ** draw.uniform(-0.3, 2.5), 2)
    if draw.random() < 0.3:
        options["machines"] = draw.choice((1, 2, 4, 8))
    if draw.random() < 0.25:
        options["global_batch"] = draw.choice((30, 32, 36, 64, 100, 256, 512, 1024))
    if draw.random() < 0.15:
        options["batch"] = draw.choice((4, 8, 32, 64))
    if draw.random() < 0.25:
        options["samples"] = round(10 ** draw.uniform(5, 8))
        options["deadline"] = f"{draw.choice((2, 12, 48, 240))}h"
        if draw.random() < 0.5:
            options["spend"] = round(10 ** draw.uniform(1, 4))
    if draw.random() < 0.3:
        options["objective"] = draw.choice(("cheapest", "fastest"))
    return options


def private_cluster(draw: random.Random, folder: Path) -> Path:
    """A machine file as somebody would write it for their own machines, without a price."""
    device, count = draw.choice(("T4", "A100-SXM4-80GB", "L40S", "V100-SXM2-16GB")), draw.choice((1, 4, 8))
    name = device.split("-")[0].lower()
    path = folder / f"lab-{count}x{name}-{draw.randrange(10**6)}.toml"
    values = {"device": device, "count": count, "name": name, "vcpus": 8 * count}
    path.write_text(PRIVATE.format(gbit=draw.choice((10, 25, 100)), **values))
    return path


def violations(options: Options, draw: random.Random) -> Iterator[tuple[str, str]]:
    """The laws that the answers to one request break, each with the evidence."""
    request = parse_request(**options)
    try:
        answer = recommend_for(request, jobs=1, advice=False)
    except PlannerError as error:
        yield from broken_remedies(options, str(error))
        return
    yield from broken_choice(answer)
    yield from better_simulations(answer, options)
    yield from worse_when_relaxed(answer, options, draw)
    if draw.random() < 0.3:
        yield from missing_rows(options, draw)


def broken_choice(answer: Recommendation) -> Iterator[tuple[str, str]]:
    """The laws of the rule itself over all plans that were simulated in full."""
    request, chosen = answer.request, answer.chosen
    plans = within(answer.everything, request)
    shares = discounts([plan.plan for plan in plans], request).tolist()
    candidates = {plan.plan.key: plan.candidate(share) for plan, share in zip(plans, shares, strict=True)}
    best = candidates.get(chosen.plan.key)
    if best is None:
        yield "faster", f"the choice {words(chosen)} is not among the feasible plans"
        return
    priced = [candidate for candidate in candidates.values() if candidate.usd_per_hour > 0]
    least = min((entry.expected_usd_per_sample for entry in priced), default=0.0)
    worth = worth_per_sample(request.goal, least, request.min_marginal_efficiency) if priced else float("inf")
    tied = [plan for plan in plans if is_tied(candidates[plan.plan.key], best, worth)]
    tied_keys = {plan.plan.key for plan in tied}
    for plan in plans:
        other = candidates[plan.plan.key]
        gain = other.effective_samples_per_s / best.effective_samples_per_s
        cost = other.expected_usd_per_sample / max(best.expected_usd_per_sample, 1e-300)
        free = gain >= 1 + LEAST_GAIN + SLACK and cost <= 1 + NEGLIGIBLE_COST - SLACK
        if free and plan.plan.key not in tied_keys:
            yield (
                "faster",
                f"{words(plan)} is {gain - 1:.1%} faster at {cost - 1:+.1%} cost than {words(chosen)}",
            )
        if plan.plan.key in tied_keys and other.total_sigma < best.total_sigma - SAME_WIDTH - SLACK:
            yield "certain", f"{words(plan)} is tied with {words(chosen)} and more certain"
    if request.goal == "fastest" or isinf(worth) or not priced:
        return
    cheapest = min(priced, key=lambda entry: (entry.expected_usd_per_sample, -entry.effective_samples_per_s))
    gained = best.effective_samples_per_s - cheapest.effective_samples_per_s
    paid = (best.usd_per_hour - cheapest.usd_per_hour) / 3600
    dear = best.expected_usd_per_sample > cheapest.expected_usd_per_sample * (1 + NEGLIGIBLE_COST)
    # a tie may move the choice, but only to a plan that is as good as not worse
    if dear and paid > worth * gained * (1 + SLACK) and not tied:
        yield (
            "marginal",
            f"{words(chosen)} pays {paid / max(gained, 1e-9) / worth:.2f} times what samples are worth",
        )


def better_simulations(answer: Recommendation, options: Options) -> Iterator[tuple[str, str]]:
    """Simulations of the chosen machines at the same global batch and precision."""
    chosen = answer.chosen
    plan = chosen.plan
    total = plan.samples_per_step * plan.replicas
    free = {"batch", "machines", "budget", "deadline", "spend", "objective", "gpu", "provider", "hardware"}
    machine = options["hardware"] if str(options.get("hardware", "")).endswith(".toml") else plan.machine
    common = {name: value for name, value in options.items() if name not in free}
    common |= {
        "hardware": machine,
        "workers": plan.workers,
        "global_batch": total,
        "precision": plan.precision.name,
    }
    sizes = dividing_batches(total, (4, 16, 64, 256)) if "batch" not in options else [options["batch"]]
    for batch in dict.fromkeys(sizes):
        for recompute in ("none", "full"):
            try:
                result = simulation_for(parse_request(**common, batch=batch, recompute=recompute)).scored
            except PlannerError:
                continue
            ratio = result.samples_per_s / chosen.samples_per_s
            if ratio > 1 + LOSS + WIDTH:
                yield (
                    "simulate",
                    f"{words(result)} batch {batch} {recompute}: {ratio - 1:+.1%} on {words(chosen)}",
                )


def worse_when_relaxed(
    answer: Recommendation, options: Options, draw: random.Random
) -> Iterator[tuple[str, str]]:
    """The choice with one limit raised by half."""
    limits = [name for name in ("budget", "machines", "spend") if name in options]
    if not limits:
        return
    name = draw.choice(limits)
    more = {**options, name: round(options[name] * 1.5 + 0.5 * (name == "machines"), 2)}
    if name == "machines":
        more[name] = int(more[name])
    try:
        relaxed = recommend_for(parse_request(**more), jobs=1, advice=False)
    except PlannerError as error:
        yield "relaxed", f"--{name} {more[name]} has no plan: {error}"
        return
    before, after = answer.chosen.candidate(), relaxed.chosen.candidate()
    slower = after.effective_samples_per_s < before.effective_samples_per_s * (1 - LOSS)
    costlier = after.expected_usd_per_sample > before.expected_usd_per_sample * (1 + LOSS)
    if slower and (costlier or answer.request.goal == "fastest"):
        yield (
            "relaxed",
            f"--{name} {more[name]} gives {words(relaxed.chosen)} instead of {words(answer.chosen)}",
        )


def broken_remedies(options: Options, message: str) -> Iterator[tuple[str, str]]:
    """The remedies in a message, followed."""
    for flags in re.findall(r"(?:it works with|or) ((?:--[a-z-]+ [^ ;]+ ?)+)\(", message):
        pairs = dict(pair.split(" ") for pair in flags.strip().removeprefix("--").split(" --"))
        typed = {k.replace("-", "_"): int(v) if v.isdigit() else v for k, v in pairs.items()}
        changed = {**options, **typed}
        if "hardware" in typed:
            changed.pop("gpu", None)
        try:
            recommend_for(parse_request(**changed), jobs=1, advice=False)
        except PlannerError as error:
            yield "remedy", f"{flags.strip()} gives {error}"


def missing_rows(options: Options, draw: random.Random) -> Iterator[tuple[str, str]]:
    """What was asked of `compare` without a row and without a reason."""
    gpus = draw.sample(GPUS, 3)
    kept = {name: options[name] for name in ("model", "interval_width", "batch") if name in options}
    try:
        answer = compare_for(parse_request(**kept, gpu=",".join(gpus), workers=(1, 8)), jobs=1)
    except PlannerError:
        return
    named = {*answer.subjects.values(), *answer.missing}
    for gpu in gpus:
        if gpu not in named:
            yield "compared", f"{gpu} of {gpus} has neither row nor reason"


def words(scored: ScoredPlan) -> str:
    plan = scored.plan
    return (
        f"{plan.cluster_text} {plan.exchange.kind} batch {plan.batch}x{plan.accumulate} "
        f"{plan.precision.name} {plan.recompute} "
        f"({scored.samples_per_s:.4g}/s, ${scored.usd_per_million_samples:.4g}/M)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    given = parser.parse_args()
    broken: Counter[str] = Counter()
    asked = crashed = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.count):
            if time.monotonic() - began > given.seconds:
                break
            draw = random.Random(f"{given.seed}-{number}")
            options = random_options(draw, Path(folder))
            asked += 1
            try:
                result = list(violations(options, draw))
            except PlannerError as error:  # a request that contradicts itself
                print(f"{number}: refused: {error}", flush=True)
                continue
            except Exception as error:
                crashed += 1
                print(f"{number}: {options}: {type(error).__name__}: {error}", flush=True)
                continue
            for law, evidence in result:
                print(f"{number}: {law}: {options}: {evidence}", flush=True)
            broken.update({law for law, _ in result})
    for law in LAWS:
        print(f"{law:10} {broken[law]:5} of {asked} requests")
    print(f"{'crashed':10} {crashed:5} of {asked} requests; {time.monotonic() - began:.0f} s")
    return 1 if crashed or broken.total() else 0


if __name__ == "__main__":
    sys.exit(main())
