"""Every kind of report in headless Chromium. Skipped, and said so at the end, where there is no Chromium."""

import json
import shutil
from dataclasses import replace

import pytest
from report_answers import HOSTILE, NOTE, many_plans, recommended, twenty_machines
from test_html import KINDS, page

import planner
from planner.report.html import write_page
from planner.report.page import page_of
from planner.report.recommend import _extra_plans

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
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


def wait(browser, script):
    """Wait until a script gives something."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda b: b.execute_script(script))


def opened(browser, made, path):
    """Open a page, wait until its charts are drawn; the problems and requests that were seen."""
    write_page(made, path)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(path.as_uri())
    wait(browser, "return document.documentElement.dataset.drawn")
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    requests = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    return browser.get_log("browser"), requests


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tables"])
def test_report_draws_all_charts_quietly_and_fetches_nothing(browser, tmp_path, kind):
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

    result = recommended()
    opened(browser, page_of(result), tmp_path / "page.html")
    everything = [*result.everything, *result.screened, *result.plans]
    plans = {scored.plan.key for scored in everything} | {plan.key for plan, _, _ in result.bounded}
    plans |= {entry.plan.key for entry in _extra_plans(result)}
    assert sum(points(browser)) == len(plans) + 2  # and the rings of the choice and of the what-if
    ring = browser.find_elements(By.CSS_SELECTOR, "#chart-pareto .scatterlayer path.point")[-2]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", ring)
    ActionChains(browser).move_to_element(ring).perform()
    label = wait(browser, "return document.querySelector('#chart-pareto .hovertext')?.textContent")
    assert result.chosen.plan.cluster_text in label


def test_no_button_sends_anything_away(browser, tmp_path):
    opened(browser, page("simulate"), tmp_path / "page.html")
    titles = browser.execute_script(
        "return [...document.querySelectorAll('#chart-cost .modebar-btn')].map(b => b.dataset.title)"
    )
    assert len(titles) == 6
    assert not [title for title in titles if "loud" in title or "dit" in title]


def test_hostile_name_shows_as_text(browser, tmp_path):
    from selenium.webdriver.common.by import By

    problems, _ = opened(browser, page("model"), tmp_path / "page.html")  # an alert would raise
    assert problems == []
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert HOSTILE in browser.find_element(By.TAG_NAME, "h1").text
    assert NOTE in browser.find_element(By.CLASS_NAME, "also").text
    assert browser.title == f"planner models: {HOSTILE}"


def test_hostile_name_in_a_chart_shows_as_text(browser, tmp_path):
    from planner.servers.parameter_servers import ParameterServers

    result = recommended()
    request = replace(result.request)
    machine = replace(request.market.find_machine(result.chosen.plan.machine), name=HOSTILE)
    request.__dict__["market"] = replace(request.market, own=(*request.market.own, machine))
    plans = [
        replace(scored, plan=replace(scored.plan, machine=HOSTILE, exchange=ParameterServers(policy=NOTE)))
        for scored in result.everything
    ]
    hostile = replace(result, request=request, everything=plans, plans=plans, screened=[], bounded=[])
    problems, _ = opened(browser, page_of(hostile), tmp_path / "page.html")
    assert problems == []
    legend = browser.execute_script("return document.querySelector('figure .legend').textContent")
    assert HOSTILE in legend


def test_thousand_plans_are_a_thousand_points(browser, tmp_path):
    many = replace(many_plans(1000), saturation=None, changes=[])
    problems, _ = opened(browser, page_of(many), tmp_path / "page.html")
    assert problems == []
    assert sum(points(browser)) == 1002


def test_page_prints(browser, tmp_path):
    opened(browser, page("simulate"), tmp_path / "page.html")
    done = browser.execute_cdp_cmd("Page.printToPDF", {})
    assert done["data"].startswith("JVBER")  # %PDF
    assert len(done["data"]) > 20_000


CLIPPED = """
const wide = document.documentElement.clientWidth, found = [];
if (document.documentElement.scrollWidth > wide) found.push("the page scrolls sideways");
for (const one of document.querySelectorAll("main *")) {
  const box = one.getBoundingClientRect();
  const out = box.width && (box.right > wide + 1 || box.left < -1);
  if (out && !one.closest("svg")) found.push(one.outerHTML.slice(0, 80));
}
for (const table of document.querySelectorAll(".table"))
  if (table.scrollWidth > table.clientWidth + 1) found.push(`scrolls: ${table.innerText.slice(0, 60)}`);
for (const chart of document.querySelectorAll(".chart")) {
  const frame = chart.getBoundingClientRect();
  const texts = [...chart.querySelectorAll("text")].filter((t) => t.textContent.trim());
  const boxes = texts.map((t) => [t.textContent, t.getBoundingClientRect()]).filter(([, b]) => b.width);
  boxes.forEach(([words, box], i) => {
    if (box.right > frame.right + 1 || box.left < frame.left - 1 || box.bottom > frame.bottom + 1)
      found.push(`${chart.id}: ${words} is cut`);
    for (const [other, next] of boxes.slice(i + 1)) {
      const across = Math.min(box.right, next.right) - Math.max(box.left, next.left);
      const down = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
      if (across > 2 && down > 4) found.push(`${chart.id}: ${words} and ${other} overprint`);
    }
  });
}
return found;
"""


def sized(browser, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind != "tables"), "machines"])
def test_page_clips_nothing_and_labels_do_not_overlap(browser, tmp_path, kind):
    made = page_of(twenty_machines()) if kind == "machines" else page(kind)
    try:
        sized(browser, 400)
        opened(browser, made, tmp_path / "page.html")
        assert browser.execute_script(CLIPPED) == []
        narrow = browser.execute_script("return document.querySelector('.chart').clientWidth")
        sized(browser, 1400)
        wait(browser, "return document.querySelector('.chart .main-svg').clientWidth > 450")
        assert narrow < 400
        assert browser.execute_script(CLIPPED) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_crowded_table_needs_no_scrolling_on_a_laptop(browser, tmp_path):
    """Of a split model: long names, tokens and costs, and the last column says why each plan lost."""
    machines = "p4de.24xlarge,p6-b200.48xlarge"
    answer = planner.recommend("llama3-70b", budget=500, global_batch=1024, hardware=machines, pipeline=2)
    assert any("pipeline" in plan.plan.settings_text for plan in answer.plans)
    try:
        sized(browser, 1200)
        opened(browser, page_of(answer), tmp_path / "page.html")
        assert [entry for entry in browser.execute_script(CLIPPED) if entry.startswith("scrolls")] == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def column(browser, place):
    return browser.execute_script(
        "return [...document.querySelectorAll('section table')[0].tBodies[0].rows].map("
        f"row => row.cells[{place}].textContent)"
    )


def test_heading_sorts_by_figures_up_and_down(browser, tmp_path):
    from selenium.webdriver.common.by import By

    opened(browser, page("recommend"), tmp_path / "page.html")
    heads = browser.find_elements(By.CSS_SELECTOR, "section table thead th")
    names = [head.text.rstrip("\u2195 ") for head in heads]
    place = names.index("samples/s")
    heads[place].find_element(By.TAG_NAME, "button").click()
    values = [float(text.replace(",", "")) for text in column(browser, place)]
    assert values == sorted(values)
    assert heads[place].get_attribute("aria-sort") == "ascending"
    heads[place].find_element(By.TAG_NAME, "button").click()
    assert column(browser, place) == [f"{value:,.0f}" for value in sorted(values, reverse=True)]
    assert heads[place].get_attribute("aria-sort") == "descending"


def test_what_if_shows_the_best_plan_within_its_sliders(browser, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    made = page("recommend")
    opened(browser, made, tmp_path / "page.html")
    answer = browser.find_element(By.ID, "what-if-answer")
    points = made.what_if()["points"]
    (chosen,) = [point for point in points if point["chosen"]]
    assert answer.text.startswith(chosen["text"])  # it opens with the recommendation
    assert "It is the recommended plan" in answer.text
    goal = browser.find_element(By.ID, "what-if-goal")
    browser.execute_script(
        "arguments[0].value = 'fastest'; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
        goal,
    )
    fastest = max(points, key=lambda point: point["x"])
    assert answer.text.startswith(fastest["text"])
    browser.find_element(By.ID, "what-if-workers").send_keys(Keys.HOME)  # as few as there are
    fewest = min(point["at"]["workers"] for point in points)
    few = [point for point in points if point["at"]["workers"] == fewest]
    assert 0 < len(few) < len(points)
    best = max(few, key=lambda point: point["x"])
    assert answer.text.startswith(best["text"])
    assert f"of {len(few)} of the {len(points)} plans" in answer.text
    ring = browser.execute_script(
        "return document.getElementById('chart-pareto').data.find(t => t.name === 'what-if').x[0]"
    )
    assert ring == pytest.approx(best["x"], rel=1e-5)


def test_name_in_the_legend_hides_its_series(browser, tmp_path):
    from selenium.webdriver.common.by import By

    opened(browser, page("recommend"), tmp_path / "page.html")
    button = browser.find_element(By.XPATH, "//ul[@class='legend']//button[normalize-space()='p3.2xlarge']")
    before = sum(points(browser))
    browser.execute_script("arguments[0].click()", button)
    assert button.get_attribute("aria-pressed") == "false"
    assert sum(points(browser)) < before
