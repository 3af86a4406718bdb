"""`planner hardware`: the machines of the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli._options import FormatOption, OutputOption
from planner.errors import Infeasible
from planner.report.output import Format, emit


def _complete(incomplete: str) -> list[str]:
    from planner.catalog import hardware_names

    return [name for name in hardware_names() if name.startswith(incomplete)]


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|PATTERN",
            help="A machine (p3.2xlarge), a path to a .toml file, or what to list: p3, 'g5.*,p4d.*'.",
            autocompletion=_complete,
        ),
    ] = None,
    sold: Annotated[bool, typer.Option("--sold", help="List only what is still sold.")] = False,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """List the machines of the catalogue, or show one with every figure's source, date and basis."""
    from planner.catalog import match_hardware
    from planner.report.hardware import hardware_data, hardware_page, hardware_table

    machines = match_hardware(name or "*")
    if name and len(machines) == 1 and not any(sign in name for sign in "*?["):
        emit(hardware_page(machines[0]), format, output, data=hardware_data(machines[0]))
        return
    listed = [machine for machine in machines if machine.still_sold or not sold]
    if not listed:
        raise Infeasible(
            f"nothing that matches {name!r} is still sold; without --sold you see what there was"
        )
    emit(hardware_table(listed), format, output)
