"""Every kind of report in headless Chromium. Skipped, and said so at the end, where there is no Chromium."""

import json
import shutil

import pytest
from report_answers import HOSTILE, NOTE, many_plans, recommended
from test_html import KINDS, page

from planner.report.html import page_of
from planner.report.page import write_page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-default-apps --disable-dev-shm-usage --hide-scrollbars
--window-size=1200,900"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (binary and driver):
        pytest.skip("no Chromium: install the packages chromium and chromium-driver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        pytest.skip("no Chromium: selenium is missing; pip install 'dnn-planner[test]'")
    options = webdriver.ChromeOptions()
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    one = webdriver.Chrome(options=options, service=Service(driver))
    yield one
    one.quit()


def opened(browser, made, path):
    """Open a page, wait until its charts are drawn; the problems and requests that were seen."""
    from selenium.webdriver.support.ui import WebDriverWait

    write_page(made, path)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())
    wait = WebDriverWait(browser, 60, poll_frequency=0.05)
    wait.until(lambda b: b.execute_script("return document.documentElement.dataset.drawn"))
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    requests = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    return browser.get_log("browser"), requests


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_draws_all_charts_quietly_and_fetches_nothing(browser, tmp_path, kind):
    made = page(kind)
    path = tmp_path / f"{kind}.html"
    problems, requests = opened(browser, made, path)
    assert problems == []
    own = ("data:", "blob:", "chrome:")  # inside the page, or of the browser's own first tab
    assert {url for url in requests if not url.startswith(own)} == {path.as_uri()}
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].filter("
        "c => c.querySelector('.plotly .main-svg path, .plotly .main-svg text')).length"
    )
    assert drawn == len(made.charts) > 0
    for scheme in ("light", "dark"):
        assert len(screenshot(browser, scheme)) > 20_000


def screenshot(browser, scheme):
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    return browser.get_screenshot_as_png()


def test_light_and_dark_colour_page_and_charts(browser, tmp_path):
    opened(browser, page("simulate"), tmp_path / "page.html")
    look = (
        "return [getComputedStyle(document.body).backgroundColor,"
        " document.querySelector('.xtick text').style.fill]"
    )
    seen = {}
    for scheme in ("light", "dark"):
        screenshot(browser, scheme)
        seen[scheme] = browser.execute_script(look)
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]


def points(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('#chart-pareto .scatterlayer .trace')].map("
        "t => t.querySelectorAll('path.point').length)"
    )


def test_as_many_points_as_plans_and_pointing_at_one_shows_it(browser, tmp_path):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    result = recommended()
    opened(browser, page_of(result), tmp_path / "page.html")
    everything = [*result.everything, *result.screened, *result.plans]
    plans = {one.plan.key for one in everything} | {plan.key for plan, _, _ in result.bounded}
    assert sum(points(browser)) == len(plans) + 1  # and the ring around the chosen one
    ring = browser.find_elements(By.CSS_SELECTOR, "#chart-pareto .scatterlayer path.point")[-1]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", ring)
    ActionChains(browser).move_to_element(ring).perform()
    label = WebDriverWait(browser, 30, poll_frequency=0.05).until(
        lambda b: b.execute_script("return document.querySelector('#chart-pareto .hovertext')?.textContent")
    )
    assert result.chosen.plan.cluster_text in label


def test_no_button_sends_anything_away(browser, tmp_path):
    opened(browser, page("simulate"), tmp_path / "page.html")
    titles = browser.execute_script(
        "return [...document.querySelectorAll('#chart-cost .modebar-btn')].map(b => b.dataset.title)"
    )
    assert len(titles) == 6
    assert not [title for title in titles if "loud" in title or "dit" in title]


def test_a_hostile_name_shows_as_text(browser, tmp_path):
    from selenium.webdriver.common.by import By

    problems, _ = opened(browser, page("model"), tmp_path / "page.html")  # an alert would raise
    assert problems == []
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert HOSTILE in browser.find_element(By.TAG_NAME, "h1").text
    assert NOTE in browser.find_element(By.CLASS_NAME, "next").text
    assert browser.title == f"planner models: {HOSTILE}"


def test_a_hostile_name_in_a_chart_shows_as_text(browser, tmp_path):
    from dataclasses import replace

    from planner.exchange import ParameterServers

    result = recommended()
    request = replace(result.request)
    machine = replace(request.market.machine(result.chosen.plan.machine), name=HOSTILE)
    request.__dict__["market"] = replace(request.market, own=(*request.market.own, machine))
    plans = [
        replace(one, plan=replace(one.plan, machine=HOSTILE, exchange=ParameterServers(policy=NOTE)))
        for one in result.everything
    ]
    hostile = replace(result, request=request, everything=plans, plans=plans, screened=[], bounded=[])
    problems, _ = opened(browser, page_of(hostile), tmp_path / "page.html")
    assert problems == []
    legend = browser.execute_script("return document.querySelector('#chart-pareto .legend').textContent")
    assert HOSTILE in legend


def test_a_thousand_plans_are_a_thousand_points(browser, tmp_path):
    problems, _ = opened(browser, page_of(many_plans(1000)), tmp_path / "page.html")
    assert problems == []
    assert sum(points(browser)) == 1001


def test_it_prints(browser, tmp_path):
    opened(browser, page("simulate"), tmp_path / "page.html")
    done = browser.execute_cdp_cmd("Page.printToPDF", {})
    assert done["data"].startswith("JVBER")  # %PDF
    assert len(done["data"]) > 20_000
