"""How heavy and how slow reports and timelines are; run it as `python benchmarks/speed/reports.py`.

Prints the weight of a report of 1,000 plans and, with Chromium, how long it takes to open; and the CPU time
of writing 1,000 steps of resnet152 on 8 workers (125 each) as a Chrome trace beside that of simulating them.
"""

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "report"))

from report_answers import many_plans

from planner.answers.questions import one_plan
from planner.answers.timeline import timeline_of
from planner.report.chrome import write_chrome
from planner.report.html import write_page
from planner.report.page import page_of
from planner.search.request import Request


def report(folder: Path) -> None:
    began = time.process_time()
    path = folder / "many.html"
    write_page(page_of(many_plans(1000)), path)
    print(
        f"report of 1,000 plans: {path.stat().st_size / 1e6:.2f} MB, {time.process_time() - began:.2f} s CPU"
    )
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (binary and driver):
        print("  not opened: no Chromium")
        return
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={folder}/c",
    ):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    drawn = "return document.documentElement.dataset.drawn"
    for _ in range(3):
        browser.get(path.as_uri())
        taken = WebDriverWait(browser, 60, 0.05).until(lambda b: b.execute_script(drawn))
        print(f"  opens with all charts drawn in {int(taken) / 1e3:.2f} s")
    browser.quit()


def trace(folder: Path) -> None:
    request = Request(model="resnet152", hardware=("p3.2xlarge",), workers=(8,), servers=(1,))
    began = time.process_time()
    timeline = timeline_of(request, one_plan(request), steps=125)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"1,000 steps of resnet152 on 8 workers: {len(timeline.rows):,} chunks", end="")
    print(f" simulated in {time.process_time() - began:.1f} s CPU")
    for name in ("out.json", "out.json.gz"):
        began = time.process_time()
        write_chrome(timeline, folder / name)
        size = (folder / name).stat().st_size
        print(f"  {name}: {size / 1e6:.0f} MB in {time.process_time() - began:.1f} s CPU")
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    print(f"  memory at most {more / 1e3:.0f} MB above that of the simulation")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as where:
        report(Path(where))
        trace(Path(where))
