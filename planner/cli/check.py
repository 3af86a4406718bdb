"""`planner check`: a real run beside its prediction, kept for later answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli._options import FailOverOption, FormatOption, HtmlOption, OutputOption
from planner.cli._output import exit_if_over, write_page_file
from planner.printable import printable
from planner.report.output import Format


def check_run(
    answer: Annotated[
        Path | None, typer.Argument(metavar="[ANSWER]", help="A JSON answer of recommend or simulate.")
    ] = None,
    *,
    measured: Annotated[
        float | None, typer.Option("--measured", help="Samples a second of all workers, as the run showed.")
    ] = None,
    step_times: Annotated[
        Path | None, typer.Option("--step-times", metavar="FILE", help="Seconds of each step, one a line.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A word to keep with it.")] = "",
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Use it in later answers.")] = True,
    force: Annotated[
        bool, typer.Option("--force", help="Keep it even where it is far from the prediction.")
    ] = False,
    html: HtmlOption = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the runs that are kept.")] = False,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="N|DEVICE|all", help="Forget runs that are kept.")
    ] = None,
) -> None:
    """Compare a real run with its prediction, and keep what it tells about the device.

    Later answers for that device are multiplied by what was measured, and say so; `--forget` takes it back.
    """
    from planner.errors import BadInput
    from planner.report.output import emit
    from planner.report.simulate import check_page, kept_lines

    if forget is not None:
        from planner.search.measured import remove

        if forget.isdigit():
            gone = remove(position=int(forget))
        else:
            gone = remove(device=None if forget == "all" else forget)
        if not gone:
            raise BadInput(f"nothing is kept of {forget}; see `planner check --list`")
        typer.echo(f"{gone} run{'s' if gone > 1 else ''} forgotten")
        return
    if listed:
        for line in kept_lines():
            typer.echo(printable(line))
        return
    if answer is None or (measured is None) == (step_times is None):
        raise BadInput("give an answer (JSON) and either --measured RATE or --step-times FILE")
    from planner.answers.answer_files import chosen_plan
    from planner.answers.checking import check, measured_rate

    plan = chosen_plan(answer)
    if step_times is not None:
        from planner.answers.checking import read_step_times

        measured = measured_rate(read_step_times(step_times), plan.samples_per_step)
    assert measured is not None
    checked = check(plan, measured)
    kept = None
    if keep and (force or not checked.absurd):
        from datetime import date

        from planner.search.measured import Measured, add, reach_of

        kept = Measured(
            device=device_of(plan.device, plan.worker_hardware),
            reach=reach_of(plan.workers, plan.machines),
            model=plan.model,
            precision=plan.number_format,
            predicted_samples_per_s=plan.samples_per_s / plan.measured_factor,
            measured_samples_per_s=measured,
            as_of=date.today().isoformat(),
            note=note,
        )
        add(kept)
    page = check_page(checked, plan, kept, title=f"planner check: {answer.name}", asked=keep)
    emit(page)
    write_page_file(page, html)


def device_of(device: str | None, machine: str) -> str:
    """The device that an answer names, or that of its machine."""
    if device is not None:
        return device
    from planner.hardware.catalog import load_hardware

    return load_hardware(machine).device.name


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A JSON answer of recommend or simulate.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another one.")],
    *,
    fail_over: FailOverOption = None,
    html: HtmlOption = None,
    format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Say what two answers run differently, and what that changes in speed, cost and memory."""
    from planner.answers.answer_files import chosen_plan
    from planner.answers.differing import difference
    from planner.report.output import emit
    from planner.report.simulate import diff_page

    before, after = chosen_plan(old), chosen_plan(new)
    page = diff_page(difference(before, after), f"planner diff: {old.name} and {new.name}")
    emit(page, format, output)
    write_page_file(page, html)
    exit_if_over(after.usd_per_million_samples, fail_over, new)
