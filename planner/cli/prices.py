"""`planner prices`: import price lists, show what counts, compare two lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import Answer, shows

app = typer.Typer()

ProviderOption = Annotated[
    str | None,
    typer.Option(
        "--provider", metavar="NAME", help="Whose prices they are, where the list's place tells not."
    ),
]


@app.command("import")
@shows
def import_(
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


@app.command("show")
@shows
def show(
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


@app.command("diff")
@shows
def diff(
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
