"""`planner prices`: import price lists, show what counts, compare two lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import FormatOption, HtmlOption, OutputOption
from planner.cli._output import write_tables_page
from planner.report.output import Format, emit

app = typer.Typer()

ProviderOption = Annotated[
    str | None,
    typer.Option(
        "--provider", metavar="NAME", help="Whose prices they are, where the list's place tells not."
    ),
]


@app.command("import")
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
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Take prices from a list: they count instead of older ones of the catalogue. Fetches nothing."""
    from planner.files.regular_file import expanded
    from planner.hardware.prices.importing import import_lists
    from planner.report.prices import imports_table

    emit(imports_table(import_lists(expanded(path), provider, as_of)), format, output)


@app.command("show")
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME|PATTERN", help="Machines whose prices to list; else a line a provider."),
    ] = None,
    *,
    html: HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Show which prices count, of which day they are, and where they come from."""
    from planner.hardware.catalog import match_hardware
    from planner.report.prices import prices_table, providers_table

    table = providers_table(match_hardware("*")) if name is None else prices_table(match_hardware(name))
    emit(table, format, output)
    write_tables_page(table, "planner prices", html)


@app.command("diff")
def diff(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A list, a file of `import`, or `shipped`: the catalogue's.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same, or `now`: what counts now.")],
    *,
    provider: ProviderOption = None,
    html: HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Show what changed between two price lists."""
    from planner.hardware.prices.changes import changes_between, prices_named
    from planner.report.prices import changes_table

    changes = changes_between(prices_named(old, provider), prices_named(new, provider))
    emit(changes_table(changes, old, new), format, output)
    write_tables_page(changes_table(changes, old, new), f"planner prices: {old} and {new}", html)
