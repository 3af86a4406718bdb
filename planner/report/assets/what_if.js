"use strict";
// Sliders over the plans that were simulated: which of them is best within other limits. It computes nothing;
// every figure it shows is one of the answer's.
(() => {
  const asked = JSON.parse(document.getElementById("what-if").textContent);
  const MOST = 5; // plans shown
  const form = document.getElementById("what-if-form");
  const answer = document.getElementById("what-if-answer");
  const place = document.getElementById("what-if-table");

  function made(tag, text, attributes = {}) {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  const sliders = asked.sliders.map((slider) => {
    const id = `what-if-${slider.key}`;
    const last = slider.words.length - 1;
    const input = made("input", "", { type: "range", id, min: 0, max: last, step: 1, value: slider.start });
    const said = made("output", "", { for: id });
    const label = made("label", slider.name, { for: id });
    const row = made("div");
    row.append(label, input, said);
    form.append(row);
    return { ...slider, input, said };
  });
  const goal = made("select", "", { id: "what-if-goal" });
  for (const [value, words] of asked.goals) goal.append(made("option", words, { value }));
  goal.value = asked.goal;
  const row = made("div");
  row.append(made("label", "wanted", { for: "what-if-goal" }), goal);
  form.append(row);

  const fits = (point) =>
    sliders.every((slider) => {
      const [limit, value] = [slider.values[Number(slider.input.value)], point.at[slider.key]];
      if (limit === null) return true; // any
      return slider.exact ? value === limit : value !== null && value <= limit;
    });

  function show() {
    for (const slider of sliders) {
      const words = slider.words[Number(slider.input.value)];
      slider.said.textContent = words;
      slider.input.setAttribute("aria-valuetext", words);
    }
    const matches = asked.points.filter(fits).sort((a, b) => a.rank[goal.value] - b.rank[goal.value]);
    const many = `${matches.length} of the ${asked.points.length} plans that were simulated`;
    answer.textContent = matches.length
      ? `${matches[0].text} It is ${matches[0].chosen ? asked.chosen : asked.best[goal.value]} ${many}.`
      : `None of the ${asked.points.length} plans that were simulated is within these limits; ask again with them.`;
    place.replaceChildren(...(matches.length ? [table(matches.slice(0, MOST))] : []));
    document.dispatchEvent(new CustomEvent("planner-plan", { detail: matches[0] || null }));
  }

  function table(points) {
    const kind = (column) => ({ class: column.kind });
    const out = made("table", "", { role: "table", class: asked.size });
    const head = made("tr", "", { role: "row" });
    head.append(...asked.columns.map((c) => made("th", c.title, { role: "columnheader", scope: "col", ...kind(c) })));
    const body = made("tbody", "", { role: "rowgroup" });
    points.forEach((point, place) => {
      const row = made("tr", "", { role: "row", ...(place ? {} : { class: "choice" }) });
      row.append(
        ...point.cells.map((cell, i) =>
          made("td", cell, { role: "cell", "data-label": asked.columns[i].title, ...kind(asked.columns[i]) })
        )
      );
      body.append(row);
    });
    const top = made("thead", "", { role: "rowgroup" });
    top.append(head);
    out.append(top, body);
    return out;
  }

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("what-if-section").hidden = false;
  show();
})();
