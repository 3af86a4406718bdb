"""`planner hardware` lists catalog machines and offers, and writes hardware files.

`planner prices` imports price lists, shows the prices in use, and compares two lists.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from planner.cli._options import Answer, ShowsByDefault, with_output_flags
from planner.errors import BadInput, Infeasible, PlannerError


def _complete_machine_name(incomplete: str) -> list[str]:
    """Machine names that start with the typed text, for shell completion."""
    from planner.hardware.catalog import hardware_names

    return [name for name in ("new", *hardware_names()) if name.startswith(incomplete)]


app = typer.Typer(cls=ShowsByDefault)
prices_app = typer.Typer()


@app.command("show")
@with_output_flags
def show_hardware(
    name: str | None = None,
    *,
    gpu: str | None = None,
    provider: str | None = None,
    region: str | None = None,
    spot: bool = False,
    sold: bool | None = None,
) -> Answer:
    """List the machines of the catalog, or show one with every figure's source, date and basis.

    `planner hardware new` writes a file of your own machines.
    """
    from planner.hardware.catalog import match_hardware
    from planner.report.hardware import hardware_data, hardware_page, hardware_table

    machines = match_hardware(name or "*")
    if gpu is not None or region is not None or spot:
        from planner.hardware.prices.offers import offers
        from planner.report.hardware import offers_table

        # asking for offers means asking what can be had
        offered = offers(
            gpu, provider=provider, region=region, sold=sold is not False, spot=spot, machines=machines
        )
        if not offered:
            raise Infeasible("no such machine can be rented; --all also lists retired machines")
        return Answer(offers_table(offered), title="planner hardware: offers")
    if provider is not None:
        from planner.hardware.prices.offers import filter_by_provider

        machines = filter_by_provider(machines, provider)
    if name and len(machines) == 1 and not any(sign in name for sign in "*?["):
        title = f"planner hardware: {machines[0].name}"
        return Answer(hardware_page(machines[0]), hardware_data(machines[0]), title)
    listed = [machine for machine in machines if machine.is_available or not sold]
    if not listed:
        if not machines:
            raise BadInput(f"no machine of {provider} matches {name!r}")
        raise Infeasible(
            f"no machine that matches {name!r} is still sold; without --sold retired ones are listed"
        )
    return Answer(hardware_table(listed), title="planner hardware")


def _is_terminal() -> bool:
    """Whether stdin is a terminal, so that questions can be asked."""
    return sys.stdin.isatty()


@app.command("new")
def new_hardware(
    *,
    gpu: str | None = None,
    gpus: int | None = None,
    machines: int | None = None,
    nic: str | None = None,
    rdma: bool | None = None,
    price: float | None = None,
    fabric: str | None = None,
    name: str = "mine",
    nvidia_smi: Path | None = None,
    topology: Path | None = None,
    lscpu: Path | None = None,
    ibstat: Path | None = None,
    output: Path | None = None,
    force: bool = False,
) -> None:
    """Write a hardware file from a few answers, or from the output of nvidia-smi, lscpu and ibstat."""
    from planner.calibrate.accelerator import write_hardware_file
    from planner.cli._output import print_message
    from planner.files.regular_file import read_text, write_file
    from planner.hardware.inventory import MachineAnswers, machine_tables

    if gpu is None and nvidia_smi is None:
        if not _is_terminal():
            raise BadInput(
                "name the GPU: --gpu A100-SXM4-80GB --gpus 8, or --nvidia-smi FILE with its output"
            )
        gpu = typer.prompt("GPU (as A100-SXM4-80GB)")
        gpus = gpus or typer.prompt("GPUs per machine", default=8, type=int)
        machines = machines or typer.prompt("Machines", default=1, type=int)
        if nic is None and ibstat is None and machines > 1:
            nic = typer.prompt("Network of one machine (as 200Gbit)")
        if price is None:
            price = typer.prompt("USD per machine-hour (0: none)", default=0.0, type=float)
    path = output or Path(f"{name}.toml")
    if path.exists() and not force:
        raise BadInput(f"{path} is there already; --force replaces it, -o FILE writes another")
    files = {"nvidia_smi": nvidia_smi, "topology": topology, "lscpu": lscpu, "ibstat": ibstat}
    read = {key: read_text(file) for key, file in files.items() if file is not None}
    answers = MachineAnswers(name, gpu, gpus, machines, nic, rdma, price or None, fabric, **read)
    head = "# Written by `planner hardware new`; docs/hardware.md explains the keys.\n"
    tables, replaced = machine_tables(answers), read_text(path) if path.exists() else None
    try:
        write_hardware_file(path, tables, head)
    except PlannerError:  # what does not load is not left behind
        if replaced is None:
            path.unlink(missing_ok=True)
        else:
            write_file(path, replaced)
        raise
    shown = path if path.is_absolute() else f"./{path}"
    print_message(f"wrote {path}; next: planner recommend --model llama3-8b --hardware {shown}")


@prices_app.command("import")
@with_output_flags
def import_prices(path: Path, *, provider: str | None = None, as_of: str | None = None) -> Answer:
    """Import prices from a list; they replace older ones of the catalog. Fetches nothing."""
    from planner.files.regular_file import expand_path
    from planner.hardware.prices.lists import import_lists
    from planner.report.prices import imports_table

    return Answer(
        imports_table(import_lists(expand_path(path), provider, as_of)), title="planner prices import"
    )


@prices_app.command("show")
@with_output_flags
def show_prices(name: str | None = None) -> Answer:
    """Show the prices in use, with their dates and sources."""
    from planner.hardware.catalog import match_hardware
    from planner.report.prices import prices_table, providers_table

    table = providers_table(match_hardware("*")) if name is None else prices_table(match_hardware(name))
    return Answer(table, title="planner prices")


@prices_app.command("diff")
@with_output_flags
def diff_prices(old: str, new: str, *, provider: str | None = None) -> Answer:
    """Show what changed between two price lists."""
    from planner.hardware.prices.lists import compare_prices, load_named_prices
    from planner.report.prices import changes_table

    changes = compare_prices(load_named_prices(old, provider), load_named_prices(new, provider))
    return Answer(changes_table(changes, old, new), title=f"planner prices: {old} and {new}")
