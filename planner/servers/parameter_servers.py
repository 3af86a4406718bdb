"""Parameter servers: every worker downloads parameters, uploads gradients, and servers update.

`FeatureSplit` is the axis of replicas that span CPU workers, each layer split by features (Yan et al.,
KDD'15): the partition search finds how the stages of a model are spread over the workers of a replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Literal, Self, cast, get_args

from planner.device.computation import Computation
from planner.device.memory import Shares
from planner.device.precision import Precision
from planner.errors import BadInput, Infeasible, PlannerError, unknown_name
from planner.hardware import Hardware
from planner.model import Model
from planner.note import Note, Topic
from planner.parallel._base import Axis, AxisFlag, Divisible, RequestedSettings
from planner.parallel.collectives.libraries import link_notes
from planner.parallel.data import (
    ChangeKind,
    Exchange,
    Job,
    Labels,
    Rented,
    Variant,
    collective,
    filter_by_choices,
)
from planner.parallel.plan import Site
from planner.search.request import SERVER_WORDS
from planner.servers.lowering import (
    cheap_servers,
    lower_servers,
    server_host_names,
    server_memory_error,
)
from planner.servers.placement import place_model, server_bytes
from planner.simulator.cluster import COMPUTATION, FABRIC, HOSTS, Resource, ResourceKind
from planner.simulator.policy import DEFAULT_WINDOW_BYTES, Mode
from planner.units import format_bytes

if TYPE_CHECKING:
    from planner.parallel.data import Floats
    from planner.simulator.simulate import Case


SERVERS = (1, 2, 3, 4)
FEW_SERVERS = (1, 2, 4)
PLACEMENTS = ("greedy", "best_fit", "mxnet")
FEW_PLACEMENTS = ("greedy", "mxnet")  # what TensorFlow does, and tensors split evenly
EVENLY = "mxnet"  # the placement that splits tensors over all servers
SPAN_POLICIES = ("multiplexed", "fifo")
BLOCK_POLICIES = ("prophet",)  # put the transfers of one device together, which several cannot do as one
Aggregate = Literal["device", "machine"]
SIZES = (1, 2, 3, 4, 6, 8)
ORDERS = ("tic",)
_RULES = {
    "mxnet": "MXNet's rule (large ones cut over all servers)",
    "p3": "P3's rule (all cut in slices)",
    "greedy": "size (the next largest to the emptiest server)",
    "best_fit": "best fit",
}
_SUMMED: dict[Aggregate, str] = {"device": "", "machine": ", gradients summed inside each machine first"}
RESOURCES = {
    Resource(ResourceKind.DOWNLINK): "sending parameters from server {}",
    Resource(ResourceKind.UPLINK): "receiving gradients at server {}",
    Resource(ResourceKind.PS): "updating on server {}",
    COMPUTATION: "the workers' computation",
    HOSTS: "parsing messages on the workers' hosts",
    FABRIC: "summing gradients among the devices of a machine",
    Resource(ResourceKind.WORKER_DOWNLINK): "receiving parameters at the workers' NICs",
    Resource(ResourceKind.WORKER_UPLINK): "sending gradients from the workers' NICs",
}


@dataclass(frozen=True, slots=True)
class ParameterServers(Exchange):
    """Parameter servers as a gradient exchange.

    `host` names the servers' machine; None colocates server i with the workers of machine i. `aggregate` says
    who talks to the servers: every device, or every machine once for its devices
    (`planner.servers.lowering`).
    """

    kind: ClassVar[str] = "servers"

    servers: int = 1
    host: str | None = None
    placement: str = "greedy"
    policy: str = "multiplexed"
    mode: Mode = "async"
    aggregate: Aggregate = "device"

    def __post_init__(self) -> None:
        if self.aggregate not in get_args(Aggregate):
            raise unknown_name("aggregate", self.aggregate, get_args(Aggregate), hint="device or machine")

    @property
    def key(self) -> str:
        """Text that tells the exchange apart from other parameter servers of a site."""
        place = "colocated" if self.host is None else self.host
        together = "/machine" if self.aggregate == "machine" else ""
        return f"{self.servers:03d}/{place}/{self.placement}/{self.policy}/{self.mode}{together}"

    def is_summed_per_machine(self, site: Site) -> bool:
        """Whether a machine's devices sum their gradients first, so that one worker sends them."""
        return self.aggregate == "machine" and min(site.workers, site.devices) > 1

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields the exchanges to consider on a site: the requested one, or all feasible combinations."""
        if asked.single and not asked.choices:
            return iter((cls._requested_exchange(asked, site),))
        return filter_by_choices(cls._candidate_exchanges(asked, site), asked.choices)

    @classmethod
    def _candidate_exchanges(cls, asked: RequestedSettings, site: Site) -> Iterator[Self]:
        """Feasible combinations of server count, host, placement and policy for a search."""
        whole = site.mesh.is_whole
        if collective.missing_bandwidth_reason(site):
            return
        named, aggregate = asked.settings, asked.choices.get("aggregate")
        rules = named.get("placements") or (FEW_PLACEMENTS if asked.brief else PLACEMENTS)
        policies = named.get("policies") or ("multiplexed",)
        if not whole:
            policies = [policy for policy in policies if policy in SPAN_POLICIES]
        hosts = server_host_names(site.hardware, site.market, named.get("server_hardware") or SERVER_WORDS)
        mode: Mode = named.get("mode") or "async"
        for servers in named.get("servers") or (FEW_SERVERS if asked.brief else SERVERS):
            placements: Sequence[str] = rules if servers > 1 else rules[:1]
            if not whole and EVENLY in placements:
                placements = (EVENLY,)
            for place in hosts:
                if place is None and (servers > site.machines or not whole):
                    continue
                for rule, policy in product(placements, policies):
                    result = cls(servers, place, rule, policy, mode, _aggregation(aggregate, policy, site))
                    if result.infeasibility(site) is None:
                        yield result

    @classmethod
    def _requested_exchange(cls, asked: RequestedSettings, site: Site) -> Self:
        """Parameter servers exactly as requested; raises BadInput if an option has several values."""
        named = asked.settings
        for flag, name in (("--policy", "policies"), ("--placement", "placements"), ("--servers", "servers")):
            values = named.get(name) or ()
            if len(values) > 1:
                raise BadInput(f"{flag} names {len(values)} ({', '.join(map(str, values))}); this needs one")
        if unknown := collective.missing_bandwidth_reason(site):
            raise BadInput(unknown)
        words = named.get("server_hardware") or ("own",)
        names = [word for word in words if word not in SERVER_WORDS]
        hosts: list[str | None] = [kind.name for kind in site.market.select_machines(names)] if names else []
        if len(names) < len(words):
            hosts += server_host_names(
                site.hardware, site.market, [word for word in words if word in SERVER_WORDS]
            )
        hosts = list(dict.fromkeys(hosts))
        if len(hosts) > 1:
            places = ", ".join("beside the workers" if name is None else name for name in hosts)
            raise BadInput(f"--server-hardware names {len(hosts)} machines ({places}); this needs one")
        if not hosts:
            raise BadInput(f"--server-hardware {','.join(words)} names no machine for {site.hardware.name}")
        policy = (named.get("policies") or ("multiplexed",))[0]
        return cls(
            servers=(named.get("servers") or (1,))[0],
            host=hosts[0],
            placement=(named.get("placements") or PLACEMENTS)[0],
            policy=policy,
            mode=named.get("mode") or "async",
            aggregate=_aggregation(None, policy, site),
        )

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Error that explains why the exchange cannot run; None if it can."""
        if site is None:
            return None
        if words := self._option_error(site):
            return BadInput(words)
        words = "" if model is None else self._memory_shortfall(model, site)
        return Infeasible(words) if words else None

    def _option_error(self, site: Site) -> str:
        """Explains which options cannot be combined at this site; empty string if all can."""
        if site.mesh.is_sharded:
            return "--tensor and --pipeline do not go with --exchange servers; take allreduce or sharded"
        if self.host is None and self.servers > site.machines:
            machines = f"{site.machines} x {site.hardware.name}"
            return (
                f"{self.servers} servers beside the workers need {self.servers} machines, one each, and "
                f"{machines} {'is' if site.machines == 1 else 'are'} {site.machines}; "
                "give fewer --servers, more --workers, or --server-hardware own"
            )
        many = site.mesh.size
        flag = f"--workers-per-replica {many}"
        if many > 1 and self.host is None:
            return f"{flag} needs servers apart from the workers; give --server-hardware"
        if many > 1 and self.policy not in SPAN_POLICIES:
            return f"{flag} runs with --policy {' or '.join(SPAN_POLICIES)}, not {self.policy}"
        if self.aggregate == "device" or site.devices == 1:
            return ""
        remedy = "use --exchange servers:aggregate=device"
        if site.fabric is None:
            return (
                f"how the {site.devices} devices of {site.hardware.name} are joined is not known; add a "
                f"[fabric] to its hardware file (docs/hardware.md), or {remedy}"
            )
        if self.policy in BLOCK_POLICIES:
            return f"--policy {self.policy} orders the transfers of every device by itself; {remedy}"
        return ""

    def _memory_shortfall(self, model: Model, site: Site) -> str:
        """Explains why the largest server cannot hold its parameters; empty string if it can."""
        where = ("largest server", model.name, self.servers, self.placement)
        largest = site.market.get_or_make(
            where, lambda: largest_server_bytes(model, self.servers, self.placement)
        )
        senders = site.machines if self.is_summed_per_machine(site) else site.replicas
        return server_memory_error(self.server_machine(site), largest, senders)

    def server_machine(self, site: Site) -> Hardware:
        """Hardware of the machines that host servers."""
        if self.host is None or self.host == site.hardware.name:
            return site.hardware
        return site.market.find_machine(self.host)

    @property
    def is_asynchronous(self) -> bool:
        return self.mode == "async"

    def rented(self, site: Site) -> tuple[Rented, ...]:
        """Machines rented for the servers; none if they are colocated with workers."""
        return () if self.host is None else (Rented("servers", self.host, self.servers),)

    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Fraction of each kind of memory that a worker holds; servers hold the optimizer state."""
        return Shares(optimizer=0.0)

    def lower(self, computation: Computation, site: Site) -> Case:
        """Lowers a plan with this exchange to a simulator case."""
        return lower_servers(self, computation, site)

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """Upper bounds in closed form on the samples per second of many plans, one per plan."""
        from planner.servers.bounds import server_throughput_bounds

        return server_throughput_bounds(jobs)

    def variants(self, site: Site) -> Iterator[Variant]:
        """Yields changes worth advising: the exchange with other servers, placements or transfer orders."""
        yield from self._neighbour_variants(site)
        for count in SIZES:
            if self.host is None and count > site.machines:
                break
            for rule in FEW_PLACEMENTS if count > 1 else FEW_PLACEMENTS[:1]:
                resized = replace(self, servers=count, placement=rule)
                yield Variant(ChangeKind.SERVER, f"{count} servers ({rule} placement)", resized, size=count)

    def _neighbour_variants(self, site: Site) -> Iterator[Variant]:
        """Yields the exchange with one more server, another placement or another transfer order."""
        ordinal = {2: "a second", 3: "a third"}.get(self.servers + 1, f"a {self.servers + 1}th")
        if self.host is not None or self.servers < site.machines:
            for rule in PLACEMENTS:
                more = replace(self, servers=self.servers + 1, placement=rule)
                yield Variant(ChangeKind.SERVER, f"{ordinal} server ({rule} placement)", more)
        for rule in PLACEMENTS if self.servers > 1 else ():
            if rule != self.placement:
                yield Variant(
                    ChangeKind.PLACEMENT, f"another placement ({rule})", replace(self, placement=rule)
                )
        for order in ORDERS if site.mesh.is_whole else ():
            if order != self.policy:
                yield Variant(ChangeKind.ORDER, f"ordered transfers ({order})", replace(self, policy=order))
        if self.host is not None:
            yield from self._faster_host_variants(site)

    def _faster_host_variants(self, site: Site) -> Iterator[Variant]:
        """Yields the exchange with servers on machines that have a faster NIC."""
        market = site.market
        now = market.nic_bytes_per_s(self.server_machine(site)) or 0.0
        for kind in [*cheap_servers(site.hardware, market), site.hardware]:
            if (market.nic_bytes_per_s(kind) or 0.0) > now and market.usd_per_hour(kind) is not None:
                words = f"servers with a faster NIC ({kind.name})"
                yield Variant(ChangeKind.NIC, words, replace(self, host=kind.name))

    def labels(self, site: Site | None = None) -> Labels:
        """Names, assumptions and resources of the exchange, for reports."""
        many = f"{self.servers} server{'s' if self.servers > 1 else ''}"
        where = f"{many} on {self.host}" if self.host else many.replace("server", "colocated server")
        placed = (
            f", tensors placed by {_RULES.get(self.placement, self.placement)}" if self.servers > 1 else ""
        )
        return Labels(
            run=f"{self.mode}, {where}",
            cell=where,
            added=f" + {where}",
            plan=f"{self.mode} training, transfers {self.policy}{placed}{_SUMMED[self.aggregate]}",
            assumptions=tuple(self._assumptions(site)),
            resources=RESOURCES,
            links=(ResourceKind.DOWNLINK, ResourceKind.UPLINK),
            size_noun="server",
            size_choice="placement",
        )

    def _assumptions(self, site: Site | None) -> Iterator[Note]:
        """Yields notes on what a prediction assumes about the servers."""
        yield Note(
            Topic.TRAINING,
            "asynchronous SGD with parameter servers; a step's gradients may be stale."
            if self.mode == "async"
            else "synchronous SGD with parameter servers.",
        )
        if self.aggregate == "machine":
            yield Note(
                Topic.TRANSFERS,
                "the devices of a machine sum their gradients over its fabric first, and one "
                "worker a machine talks to the servers (servers:aggregate=device: every device does).",
            )
        if self.host is None:
            yield Note(
                Topic.TRANSFERS,
                "between a worker and a server on one machine nothing crosses the NIC, but "
                "messages are still parsed, as gRPC does over loopback.",
            )
        if self.policy == "multiplexed":
            window = format_bytes(DEFAULT_WINDOW_BYTES)
            yield Note(Topic.TRANSFERS, f"HTTP/2 streams as gRPC sends them, windows of {window}.")
        if site is not None and site.market.rdma:
            words = "servers are reached over TCP; RDMA (--network rdma) is for collectives."
            yield Note(Topic.NETWORK, words)
        if site is not None and self.is_summed_per_machine(site):
            inside = replace(site, workers=min(site.workers, site.devices))
            yield from link_notes(inside, collective.library("auto", "auto", site))


def _aggregation(asked: str | None, policy: str, site: Site) -> Aggregate:
    """Sender of gradients as requested, else "machine" if its devices can sum first, else "device"."""
    if asked is not None:
        return cast(Aggregate, asked)
    can = site.devices > 1 and site.fabric is not None and policy not in BLOCK_POLICIES
    return "machine" if can else "device"


def largest_server_bytes(model: Model, servers: int, placement: str) -> int:
    """Parameter bytes on the server that holds the most."""
    return max(server_bytes(place_model(model, servers, placement), servers))


@dataclass(frozen=True, slots=True)
class FeatureSplit(Axis):
    """Splits each replica's features over `degree` CPU workers that train it together."""

    kind: ClassVar[str] = "features"
    flags: ClassVar[tuple[AxisFlag, ...]] = (
        AxisFlag(
            "workers_per_replica", "degree", "CPU workers that share one copy of the model: 2 or 1,2,4.", "x"
        ),
    )
    splits: ClassVar[frozenset[Divisible]] = frozenset(
        {Divisible.SAMPLES, Divisible.DENSE, Divisible.EXPERTS}
    )

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields the requested degrees; above 1 only on CPU machines."""
        spans = site.hardware.device.kind == "cpu" and site.devices == 1
        yield from (cls(degree) for degree in asked.settings["workers_per_replica"] if degree == 1 or spans)

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Error that explains why a replica cannot span this many workers; None if it can."""
        from planner.servers.partition.replica import is_worth_spanning

        if site is None or model is None or self.degree == 1:
            return None
        hardware = site.hardware
        if hardware.device.kind != "cpu" or hardware.device_count != 1:
            return Infeasible(
                f"--workers-per-replica {self.degree} is for CPU machines; {hardware.name} has "
                f"{hardware.device.name}; take 1"
            )
        if not is_worth_spanning(model, batch, hardware, self.degree):
            return Infeasible(
                f"{model.name} at batch {batch} is not worth splitting over {self.degree} {hardware.name}: "
                "its fully connected layers hold too few of the weights, or a shard of it does not fit in "
                "memory"
            )
        return None

    def labels(self, site: Site | None = None) -> Labels:
        """Names of the axis for reports."""
        return Labels(f"{self.degree} workers per replica", plan=f"{self.degree} share its features")
