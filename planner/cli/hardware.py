"""`planner hardware`: the machines of the catalogue, and what they are offered for.

`planner prices`: import price lists, show what counts, compare two lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import Answer, shows
from planner.errors import BadInput, Infeasible


def _complete(incomplete: str) -> list[str]:
    from planner.hardware.catalog import hardware_names

    return [name for name in hardware_names() if name.startswith(incomplete)]


@shows
def show_hardware(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|PATTERN",
            help="A machine (p3.2xlarge), a path to a .toml file, or what to list: p3, 'g5.*,p4d.*'.",
            autocompletion=_complete,
        ),
    ] = None,
    *,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu", metavar="DEVICE", help="List who rents out a device, by price: H100, H100:8, 'A100,L4'."
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAMES", help="Only of these providers: aws,gcp.")
    ] = None,
    region: Annotated[
        str | None,
        typer.Option("--region", help="Prices of a region, or `cheapest`: of each machine its cheapest."),
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Rank offers by their spot price.")] = False,
    sold: Annotated[
        bool | None,
        typer.Option("--sold/--all", help="Only what can still be had, or all that the catalogue has."),
    ] = None,
) -> Answer:
    """List the machines of the catalogue, or show one with every figure's source, date and basis."""
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
            raise Infeasible("nothing that is asked for can be rented; --all lists what there was")
        return Answer(offers_table(offered), title="planner hardware: offers")
    if provider is not None:
        from planner.hardware.prices.offers import of_providers

        machines = of_providers(machines, provider)
    if name and len(machines) == 1 and not any(sign in name for sign in "*?["):
        title = f"planner hardware: {machines[0].name}"
        return Answer(hardware_page(machines[0]), hardware_data(machines[0]), title)
    listed = [machine for machine in machines if machine.can_be_had or not sold]
    if not listed:
        if not machines:
            raise BadInput(f"no machine matches {name!r} of {provider}")
        raise Infeasible(
            f"nothing that matches {name!r} is still sold; without --sold you see what there was"
        )
    return Answer(hardware_table(listed), title="planner hardware")


prices_app = typer.Typer()

ProviderOption = Annotated[
    str | None,
    typer.Option(
        "--provider", metavar="NAME", help="Whose prices they are, where the list's place tells not."
    ),
]


@prices_app.command("import")
@shows
def import_prices(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER", help="A vms.csv of SkyPilot, a CSV of gpuhunt, or a folder of such lists."
        ),
    ],
    *,
    provider: ProviderOption = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="DAY", help="The day of the prices, else that of the file."),
    ] = None,
) -> Answer:
    """Take prices from a list: they count instead of older ones of the catalogue. Fetches nothing."""
    from planner.files.regular_file import expanded
    from planner.hardware.prices.importing import import_lists
    from planner.report.prices import imports_table

    return Answer(imports_table(import_lists(expanded(path), provider, as_of)), title="planner prices import")


@prices_app.command("show")
@shows
def show_prices(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME|PATTERN", help="Machines whose prices to list; else a line a provider."),
    ] = None,
) -> Answer:
    """Show which prices count, of which day they are, and where they come from."""
    from planner.hardware.catalog import match_hardware
    from planner.report.prices import prices_table, providers_table

    table = providers_table(match_hardware("*")) if name is None else prices_table(match_hardware(name))
    return Answer(table, title="planner prices")


@prices_app.command("diff")
@shows
def diff_prices(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A list, a file of `import`, or `shipped`: the catalogue's.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, or `now`: what counts now.")],
    *,
    provider: ProviderOption = None,
) -> Answer:
    """Show what changed between two price lists."""
    from planner.hardware.prices.changes import changes_between, prices_named
    from planner.report.prices import changes_table

    changes = changes_between(prices_named(old, provider), prices_named(new, provider))
    return Answer(changes_table(changes, old, new), title=f"planner prices: {old} and {new}")
