"""Screens of the answers as pictures, to look at: `python benchmarks/screens.py FOLDER`.

Each command runs in a terminal of so many columns; what it shows is drawn as SVG on black and on white (rich)
and photographed by a headless Chromium. With `--pages` the HTML pages of the same answers are photographed at
1400 and 400 pixels.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

COMMANDS = {
    "recommend": [
        "recommend",
        "--model",
        "resnet50",
        "--epochs",
        "90",
        "--deadline",
        "12h",
        "--budget",
        "50",
    ],
    "compare": ["compare", "--model", "resnet50", "--gpu", "A100,H100,L4,T4"],
    "saturation": ["saturation", "--model", "resnet50", "--gpu", "A100", "--provider", "aws"],
    "simulate": ["simulate", "--model", "resnet50", "--hardware", "p4d.24xlarge", "--workers", "16"],
}
PLANNER = [sys.executable, "-c", "from planner.cli import main; main()"]
PAGES_PX = (1400, 400)
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


def shown(words: list[str], columns: int) -> str:
    """What a command writes to a terminal of so many columns, with its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    env.pop("COLUMNS", None)
    with subprocess.Popen([*PLANNER, *words, "--quiet"], stdout=theirs, env=env, stdin=theirs) as run:
        os.close(theirs)
        out = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            out += part
    os.close(ours)
    if run.returncode:
        sys.exit(f"{' '.join(words)} left with {run.returncode}")
    return out.decode().replace("\r\n", "\n")


def drawn(text: str, columns: int, folder: Path, name: str) -> None:
    """The text on black and on white."""
    from rich.console import Console
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
    from rich.text import Text

    for ground, theme in (("dark", SVG_EXPORT_THEME), ("light", DEFAULT_TERMINAL_THEME)):
        with open(os.devnull, "w") as nothing:
            console = Console(record=True, width=columns, file=nothing, force_terminal=True)
            console.print(Text.from_ansi(text), soft_wrap=False)
            svg = console.export_svg(title=f"planner {name}", theme=theme)
        where = folder / f"{name}-{columns}-{ground}"
        where.with_suffix(".svg").write_text(svg)
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
        assert size is not None
        photographed(
            where.with_suffix(".svg"), where.with_suffix(".png"), *(int(float(n)) for n in size.groups())
        )


def photographed(page: Path, picture: Path, width: int, height: int) -> None:
    subprocess.run(
        [*CHROMIUM, f"--window-size={width},{height}", f"--screenshot={picture}", page.resolve().as_uri()],
        check=True,
        capture_output=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--widths", default="80,120,200")
    parser.add_argument("--pages", action="store_true", help="the HTML pages instead of screens")
    parser.add_argument("--only", help="one command")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, words in COMMANDS.items():
        if asked.only not in (None, name):
            continue
        if asked.pages:
            page = asked.folder / f"{name}.html"
            subprocess.run(
                [*PLANNER, *words, "--quiet", "--html", str(page)], check=True, capture_output=True
            )
            for px in PAGES_PX:
                photographed(page, asked.folder / f"{name}-{px}.png", px, 4000)
            continue
        for columns in map(int, asked.widths.split(",")):
            drawn(shown(words, columns), columns, asked.folder, name)
            print(f"{name} at {columns} columns", flush=True)


if __name__ == "__main__":
    main()
