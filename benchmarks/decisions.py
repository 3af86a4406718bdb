"""Random requests against the laws of the decision rule (`planner.search.rank`).

    python benchmarks/decisions.py --count 2000 --seed 1
    python benchmarks/decisions.py --first 500 --count 500

Each request names a model, limits, providers or machines (some of them a private cluster in a file of its
own). The laws, counted per request:

    faster      no plan of the space is 5% faster (10% if it shards what fits) for at most 1% more per sample
    certain     no plan tied with the choice that may win a tie has a narrower range
    marginal    samples that the choice adds to the cheapest plan are worth their cost, unless for `fastest`
                or where the steps of `faster` lead there; those that a plan would add that is faster with 90%
                probability, and about as certain, are not
    simulate    no `simulate` of the same machines, global batch and precision is 2% faster, or
                `planner.search.objectives.least_gain` times as fast where it takes more to set up
    relaxed     a higher limit never gives a choice that the one before beats, unless `faster` asks for it, or
                it is about as good and takes less to set up
    remedy      what a refusal says that works, works: of recommend, simulate, compare and saturation
    next        a change under "Next" gives what it promises when it is followed with `simulate`
    compared    everything asked of `compare` has a row or a reason

`faster` and `certain` contradict each other where the faster plan is the uncertain one: a tie with a clearly
narrower range wins (`planner.search.rank`). Plans of the space that were only bounded, or only looked at
briefly, are simulated here until they can break no law any more. Prints each violation with its request,
then the counts; the exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import re
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np

from planner.answers.compare import compare_for
from planner.answers.questions import parse_request, simulation_for
from planner.answers.recommend import recommend_for
from planner.answers.results import Recommendation, Saturation
from planner.answers.saturation import saturation_for
from planner.errors import PlannerError
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.measured import load_runs
from planner.search.objectives import discounts, least_gain, setup_effort
from planner.search.rank import (
    LEAST_GAIN,
    MUCH_WIDER,
    NEGLIGIBLE_COST,
    SAME_WIDTH,
    TIED_SCORE,
    Contenders,
)
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan, plans_within_limits
from planner.search.simulations import Simulations, cautious_interval, executor_of, half_width
from planner.search.sizes import dividing_batches

MODELS = ("resnet50", "vgg16", "alexnet", "vit-b16", "bert-large", "gpt2", "inception3", "llama3-8b")
RARE = ("resnet152", "gpt2-xl", "bert-base", "vgg11", "llama3-70b", "qwen3-8b")
LARGE = ("llama3-8b", "llama3-70b", "qwen3-8b")
GPUS = ("A100", "H100", "L4", "T4", "A10G", "L40S", "V100", "RTX-4090", "MI300X")
PROVIDERS = ("aws", "gcp", "azure", "lambda", "runpod", "aws,gcp", "aws,azure,lambda")
MACHINES = ("g5.xlarge", "g5.12xlarge", "p4d.24xlarge", "g4dn.*", "g6e.xlarge,g6.xlarge", "p5.48xlarge")
COMPARED = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge", "p4d.24xlarge", "p5.48xlarge", "c5.4xlarge")
CARRIED = ("bandwidth", "network", "input", "train", "price", "spot")  # flags that change what plans do
LAWS = ("faster", "certain", "marginal", "simulate", "relaxed", "remedy", "next", "compared")
LOSS = 0.02  # of throughput, against a simulation of the same machines
WIDTH = 0.02  # relative half-width of the simulations' intervals
SLACK = 1e-3  # of comparisons between figures of two answers
FLAGS = re.compile(r"(?:--[a-z-]+ [^ ;()]*[^ ;(),] ?)+")
NUMBER = re.compile(r"\d+\.\d+")
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
Violation = tuple[str, str]  # the law and the evidence


def random_options(draw: random.Random, folder: Path) -> Options:
    """The flags of one request to `recommend`."""
    models = MODELS if draw.random() < 0.8 else RARE
    options: Options = {"model": draw.choice(models), "interval_width": WIDTH}
    place = draw.random()
    if options["model"] in LARGE:  # over whole catalogs these take ten seconds each
        place *= 0.75
    if place < 0.3:
        options["hardware"] = draw.choice(MACHINES)
    elif place < 0.5:
        options["gpu"] = ",".join(draw.sample(GPUS, draw.randint(1, 2)))
    elif place > 0.9:
        options["provider"] = draw.choice(PROVIDERS)
    elif place < 0.75:
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
    if draw.random() < 0.3:
        options |= seldom_asked(draw, options)
    return options


def seldom_asked(draw: random.Random, options: Options) -> Options:
    """Flags that few requests have, one or two of them."""
    kinds: dict[str, tuple[Any, ...]] = {
        "precision": ("fp32", "bf16", "fp16"),
        "exchange": ("allreduce", "sharded", "alone,allreduce"),
        "workers": ("1-8", "4,8", "16"),
        "confidence": (0.5, 0.75, 0.99),
        "min_marginal_efficiency": (0.2, 0.8, 1.0),
        "min_throughput": (50, 1000, 20_000),
        "bandwidth": ("10Gbit", "100Gbit"),
        "network": ("burst", "tcp"),
        "input": ("dali", "none", 60),
        "spot": (True,),
    }
    if options["model"] in LARGE:
        kinds["train"] = ("lora", "qlora")
    if "machines" in options and str(options.get("hardware", "")).endswith(".toml"):
        kinds["price"] = (3, 12)
    if draw.random() < 0.5:  # which contradict each other
        del kinds["bandwidth"]
    else:
        del kinds["network"]
    names = draw.sample(sorted(kinds), draw.randint(1, 2))
    return {name: draw.choice(kinds[name]) for name in names}


def private_cluster(draw: random.Random, folder: Path) -> Path:
    """A machine file as somebody would write it for their own machines, without a price."""
    device, count = draw.choice(("T4", "A100-SXM4-80GB", "L40S", "V100-SXM2-16GB")), draw.choice((1, 4, 8))
    name = device.split("-")[0].lower()
    path = folder / f"lab-{count}x{name}-{draw.randrange(10**6)}.toml"
    values = {"device": device, "count": count, "name": name, "vcpus": 8 * count}
    path.write_text(PRIVATE.format(gbit=draw.choice((10, 25, 100)), **values))
    return path


def violations(options: Options, draw: random.Random) -> Iterator[Violation]:
    """The laws that the answers to one request break, each with the evidence."""
    request = parse_request(**options)
    advice = draw.random() < 0.1
    try:
        answer = recommend_for(request, jobs=1, advice=advice)
    except PlannerError as error:
        yield from broken_remedies(options, str(error))
        return
    yield from broken_choice(answer)
    yield from better_simulations(answer, options, draw)
    yield from worse_when_relaxed(answer, options, draw)
    yield from broken_changes(answer, options)
    if draw.random() < 0.1:
        yield from missing_rows(options, draw)
    if draw.random() < 0.2:
        yield from broken_refusals(options, draw)


def broken_choice(answer: Recommendation) -> Iterator[Violation]:
    """The laws of the rule itself over the whole space: plans that were not simulated in full but could break
    a law are simulated here."""
    request, chosen = answer.request, answer.chosen
    known = {plan.plan.key: plan for plan in [*answer.everything, *suspects(answer)]}
    plans = plans_within_limits(list(known.values()), request)
    if chosen.plan.key not in {plan.plan.key for plan in plans}:
        yield "faster", f"the choice {words(chosen)} is not among the feasible plans"
        return
    shares = discounts([plan.plan for plan in plans], request).tolist()
    candidates = [plan.candidate(share) for plan, share in zip(plans, shares, strict=True)]
    rule = Contenders(candidates, request.goal, request.min_marginal_efficiency)
    here = next(i for i, plan in enumerate(plans) if plan.plan.key == chosen.plan.key)
    best, tied, score = candidates[here], set(rule.tied_with(here)), rule.score_better(here)
    tied_with_best = set(rule.tied_with(rule.best))
    outdoing_plans = {
        i
        for i in rule.outdoing_plans(here)
        if least_gain(*map(setup_effort, (chosen.plan, plans[i].plan))) == 1
    }
    for i, other in enumerate(candidates):
        gain, cost = rule.speed[i] / rule.speed[here] - 1, rule.cost[i] / max(rule.cost[here], 1e-300) - 1
        wider = other.total_sigma - best.total_sigma
        more_setup = least_gain(setup_effort(chosen.plan), setup_effort(plans[i].plan)) - 1
        if gain >= max(LEAST_GAIN, more_setup) + SLACK and cost <= NEGLIGIBLE_COST - SLACK:
            if abs(score[i]) >= TIED_SCORE + SLACK or wider < MUCH_WIDER - SLACK:
                yield "faster", f"{words(plans[i])} is {gain:.1%} faster at {cost:+.1%} than {words(chosen)}"
        elif gain >= LEAST_GAIN + SLACK and i in outdoing_plans and wider < MUCH_WIDER - SLACK:
            yield "marginal", f"{words(plans[i])} is worth its cost beside {words(chosen)}"
        elif i in tied and wider < -SAME_WIDTH - SLACK and i in tied_with_best and rule.may_win_tie(i):
            yield "certain", f"{words(plans[i])} is tied with {words(chosen)} and more certain"
    gained = rule.speed[here] - rule.speed[rule.cheapest]
    paid = (rule.usd_per_s[here] - rule.usd_per_s[rule.cheapest]) * (1 - SLACK)
    if request.goal == "fastest" or gained <= 0 or not rule.usd_per_s.any():
        return
    if rule.cost[here] > (1 + NEGLIGIBLE_COST) * highest_cheap_cost(rule) and (
        paid > rule.most_per_sample * gained
    ):
        times = paid / gained / rule.most_per_sample
        yield "marginal", f"{words(chosen)} pays {times:.2f} times what samples are worth"


def highest_cheap_cost(rule: Contenders) -> float:
    """The cost per sample at the end of the steps from the cheapest plan that `faster` asks for."""
    now = rule.cheapest
    while True:
        is_faster = rule.speed >= rule.speed[now] * (1 + LEAST_GAIN)
        steps = np.flatnonzero(is_faster & (rule.cost <= rule.cost[now] * (1 + NEGLIGIBLE_COST)))
        if not len(steps):
            return float(rule.cost[now])
        now = int(steps[np.argmin(rule.speed[steps])])


def suspects(answer: Recommendation) -> list[ScoredPlan]:
    """Plans that were pruned, and could break a law if they were as fast as they may be: simulated in full,
    after a glance at what their bounds allow."""
    request, chosen = answer.request, answer.chosen
    cases = Cases(request, model_of(request), load_runs())
    ceilings = {plan: bound for plan, _, bound in answer.bounded}
    ceilings |= {
        plan.plan: min(plan.bound_samples_per_s, plan.samples_per_s + 2 * half_width(plan.prediction))
        for plan in answer.screened
    }
    with executor_of(None, 1) as pool:
        simulations = Simulations(cases, pool)
        picked = dangerous(ceilings, chosen, cases)
        for rung in ("glance", "short"):
            scores = simulations.predict_all(picked, rung)
            ceilings |= {
                plan: min(ceilings[plan], cautious_interval(score, rung)[1])
                for plan, score in zip(picked, scores, strict=True)
            }
            picked = dangerous({plan: ceilings[plan] for plan in picked}, chosen, cases)
        return simulations.score_plans(picked)


def dangerous(ceilings: dict[Plan, float], chosen: ScoredPlan, cases: Cases) -> list[Plan]:
    """Those plans that would break a law if they were as fast as their ceilings."""
    request, plans = cases.request, list(ceilings)
    if not plans:
        return []
    shares = discounts([chosen.plan, *plans], request).tolist()
    best = chosen.candidate(shares[0])
    hopeful = [
        cases.candidate(plan, ceilings[plan] * share) for plan, share in zip(plans, shares[1:], strict=True)
    ]
    rule = Contenders([best, *hopeful], request.goal, request.min_marginal_efficiency, decided=1)
    score = rule.score_better(0)[1:]
    gain, cost = rule.speed[1:] / rule.speed[0] - 1, rule.cost[1:] / max(rule.cost[0], 1e-300) - 1
    faster = (gain >= LEAST_GAIN) & (cost <= NEGLIGIBLE_COST)
    certain = (score > -TIED_SCORE) & (rule.total_sigma[1:] < best.total_sigma - SAME_WIDTH)
    return [plans[i] for i in np.flatnonzero(faster | certain)]


def flags_of_plan(plan: Plan, options: Options) -> Options:
    """The flags of `simulate` that run a plan, on the machines of a file if the request names one."""
    named = str(options.get("hardware", ""))
    exchange = plan.exchange.record()
    kind = str(exchange.pop("kind"))
    written = {True: "yes", False: "no"}
    choices = [
        f"{name}={written[value] if isinstance(value, bool) else value}"
        for name, value in exchange.items()
        if value is not None
    ]
    flags: Options = {
        "model": options["model"],
        "interval_width": WIDTH,
        "hardware": named if named.endswith(".toml") else plan.machine,
        "workers": plan.workers,
        "batch": plan.batch,
        "accumulate": plan.accumulate,
        "precision": plan.precision.name,
        "recompute": plan.recompute,
        "exchange": kind if kind == "alone" else ":".join([kind, *choices]),
    }
    flags |= {name: options[name] for name in CARRIED if name in options}
    if plan.mesh.is_sharded:
        flags |= plan.mesh.nondefault_settings
    return flags


def better_simulations(answer: Recommendation, options: Options, draw: random.Random) -> Iterator[Violation]:
    """Simulations of the chosen machines at the same global batch and precision: a few of all the ways."""
    chosen = answer.chosen
    plan = chosen.plan
    if "exchange" in options:
        return
    total = plan.batch * plan.accumulate * plan.replicas
    base = flags_of_plan(plan, options)
    for name in ("batch", "accumulate", "recompute", "exchange"):
        base.pop(name)
    sizes = dividing_batches(total, (4, 16, 64, 256)) if "batch" not in options else [options["batch"]]
    # not `owned` nor `gathers=next`, which a search tries only where they are named
    exchanges = ("allreduce", "sharded", "sharded:stage=1", "sharded:stage=2")
    tried = {
        (
            draw.choice(sizes),
            draw.choice(("none", "full")),
            draw.choice(exchanges) if plan.workers > 1 else "alone",
        )
        for _ in range(3)
    }
    for batch, recompute, exchange in sorted(tried):
        if plan.exchange.kind not in ("alone", "allreduce", "sharded", "owned"):
            continue
        about: Options = {"batch": batch, "recompute": recompute, "exchange": exchange, "global_batch": total}
        try:
            result = simulation_for(parse_request(**base, **about)).scored
        except PlannerError:
            continue
        ratio = result.samples_per_s / chosen.samples_per_s
        error = hypot(half_width(result.prediction), half_width(chosen.prediction)) / chosen.samples_per_s
        most = max(1 + LOSS, least_gain(setup_effort(plan), setup_effort(result.plan)))
        if ratio > most + error:
            yield "simulate", f"{words(result)}: {ratio - 1:+.1%} on {words(chosen)}"


def worse_when_relaxed(answer: Recommendation, options: Options, draw: random.Random) -> Iterator[Violation]:
    """The choice with one limit raised by half."""
    limits = [name for name in ("budget", "machines", "spend", "deadline") if name in options]
    if not limits:
        return
    name = draw.choice(limits)
    if name == "deadline":
        more = {**options, name: f"{1.5 * float(options[name].removesuffix('h')):g}h"}
    else:
        more = {**options, name: round(options[name] * 1.5 + 0.5 * (name == "machines"), 2)}
    if name == "machines":
        more[name] = int(more[name])
    try:
        relaxed = recommend_for(parse_request(**more), jobs=1, advice=False)
    except PlannerError as error:
        yield "relaxed", f"--{name} {more[name]} has no plan: {error}"
        return
    if relaxed.chosen.plan.key == answer.chosen.plan.key:
        return
    request = relaxed.request
    shares = discounts([answer.chosen.plan, relaxed.chosen.plan], request).tolist()
    before, after = (
        plan.candidate(share) for plan, share in zip((answer.chosen, relaxed.chosen), shares, strict=True)
    )
    least = min(
        (plan.candidate() for plan in relaxed.everything), key=lambda plan: plan.expected_usd_per_sample
    )
    rule = Contenders([before, after, least], request.goal, request.min_marginal_efficiency)
    close = before.effective_samples_per_s <= after.effective_samples_per_s * (1 + LOSS)
    gain, cost = rule.speed[1] / rule.speed[0] - 1, rule.cost[1] / max(rule.cost[0], 1e-300) - 1
    is_faster_at_the_same_cost = gain >= LEAST_GAIN and cost <= NEGLIGIBLE_COST  # as `faster` asks
    more_setup = least_gain(setup_effort(relaxed.chosen.plan), setup_effort(answer.chosen.plan))
    is_simpler = gain >= 0 and 1 + cost <= more_setup  # as `simulate` asks
    if rule.score_better(1)[0] >= TIED_SCORE and not (
        (close and request.goal == "fastest") or is_faster_at_the_same_cost or is_simpler
    ):
        yield (
            "relaxed",
            f"--{name} {more[name]} gives {words(relaxed.chosen)} instead of {words(answer.chosen)}",
        )


def followed(flags: str, options: Options) -> Options:
    """A request's options with the flags of a remedy."""
    typed: Options = {}
    pairs = shlex.split(flags)
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        number = int(value) if value.isdigit() else float(value) if NUMBER.fullmatch(value) else value
        typed[name.removeprefix("--").replace("-", "_")] = number
    changed = {**options, **typed}
    if "hardware" in typed:
        changed.pop("gpu", None)
    if "global_batch" in changed:
        changed.pop("accumulate", None)
    return changed


def remedies_in(message: str) -> list[str]:
    """The flags that a message says to use, each as it would be typed."""
    named = re.search(r"(?:works with|works:|fits with|as with) (.*)", message)
    out = [match.group().strip() for match in FLAGS.finditer(named.group(1))] if named else []
    if batch := re.search(r"the largest batch that fits is (\d+)", message):
        out.append(f"--batch {batch.group(1)}")
    return out


def broken_remedies(options: Options, message: str, command: Any = None) -> Iterator[Violation]:
    """The remedies in a message, followed."""
    ask = command or (lambda request: recommend_for(request, jobs=1, advice=False))
    for flags in remedies_in(message):
        try:
            ask(parse_request(**followed(flags, options)))
        except PlannerError as error:
            yield "remedy", f"{flags} gives {error} (it was said in: {message})"


def broken_refusals(options: Options, draw: random.Random) -> Iterator[Violation]:
    """What `simulate` and `saturation` say of a plan that does not fit, followed."""
    asked: Options = {
        "model": options["model"],
        "interval_width": WIDTH,
        "batch": draw.choice((64, 512, 2048)),
    }
    asked["hardware"] = draw.choice(("g4dn.xlarge", "g5.12xlarge", "p4d.24xlarge", "g6.xlarge"))
    if draw.random() < 0.5:
        asked["exchange"] = draw.choice(("allreduce", "sharded"))
        asked["workers"] = draw.choice((8, 16))

    def saturation(request: Request) -> Saturation:
        return saturation_for(request, jobs=1, max_workers=max((64, *(request.workers or ()))))

    for command in (simulation_for, saturation):
        try:
            command(parse_request(**asked))
        except PlannerError as error:
            yield from broken_remedies(asked, str(error), command)
        asked.pop("workers", None)


def broken_changes(answer: Recommendation, options: Options) -> Iterator[Violation]:
    """The changes under "Next", each run by `simulate` with the flags of its plan."""
    for change in answer.changes:
        if change.scored.plan.exchange.kind == "servers":
            continue
        try:
            result = simulation_for(parse_request(**flags_of_plan(change.scored.plan, options))).scored
        except PlannerError as error:
            yield "next", f"{change.words} gives {error}"
            continue
        ratio = result.samples_per_s / change.scored.samples_per_s
        if abs(ratio - 1) > LOSS + WIDTH:
            yield "next", f"{change.words} gives {ratio - 1:+.1%} of what was promised: {words(result)}"


def missing_rows(options: Options, draw: random.Random) -> Iterator[Violation]:
    """What was asked of `compare` without a row and without a reason."""
    flag, among = draw.choice((("gpu", GPUS), ("hardware", COMPARED), ("provider", PROVIDERS[:5])))
    subjects = draw.sample(among, 3)
    kept = {name: options[name] for name in ("model", "interval_width", "batch") if name in options}
    asked = kept | {flag: ",".join(subjects), "workers": (1, 8)}
    try:
        answer = compare_for(parse_request(**asked), jobs=1)
    except PlannerError as error:
        yield from broken_remedies(asked, str(error), lambda request: compare_for(request, jobs=1))
        return
    named = {*answer.subjects.values(), *answer.missing}
    for subject in subjects:
        if subject not in named:
            yield "compared", f"{subject} of {subjects} has neither row nor reason"


def words(scored: ScoredPlan) -> str:
    plan = scored.plan
    return (
        f"{plan.cluster_text} {plan.exchange.key} {plan.mesh.label} batch {plan.batch}x{plan.accumulate} "
        f"{plan.precision.name} {plan.recompute} "
        f"({scored.samples_per_s:.4g}/s, ${scored.usd_per_million_samples:.4g}/M, "
        f"sigma {scored.candidate().total_sigma:.3f})"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    given = parser.parse_args(arguments)
    broken: Counter[str] = Counter()
    asked = crashed = refused = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.first, given.first + given.count):
            if time.monotonic() - began > given.seconds:
                break
            draw = random.Random(f"{given.seed}-{number}")
            options = random_options(draw, Path(folder))
            asked += 1
            try:
                result = list(violations(options, draw))
            except PlannerError as error:  # a request that contradicts itself
                refused += 1
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
    took_s = time.monotonic() - began
    print(f"{'crashed':10} {crashed:5} of {asked} requests, {refused} refused; {took_s:.0f} s")
    return 1 if crashed or broken.total() else 0


if __name__ == "__main__":
    sys.exit(main())
