"use strict";
// Draws the charts of the page. Colours are names ("@c1") until drawn, so that they follow light, dark and paper.
(() => {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const CONFIG = {
    displaylogo: false,
    responsive: true,
    plotlyServerURL: "", // nothing here may leave the page
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };
  const isColour = (key) => /colou?r$/i.test(key);

  function resolved(value, key, styles) {
    if (Array.isArray(value)) return value.map((item) => resolved(item, key, styles));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolved(v, k, styles)]));
    if (isColour(key) && typeof value === "string" && value.startsWith("@"))
      return styles.getPropertyValue("--" + value.slice(1)).trim();
    return value;
  }

  function titled(axis) {
    const title = axis.title ? { font: { color: "@soft", size: 13 }, ...axis.title } : undefined;
    return { ...axis, title };
  }

  function framed(layout) {
    const axis = {
      gridcolor: "@line", linecolor: "@line", zerolinecolor: "@line", tickfont: { color: "@soft", size: 12 },
      automargin: true,
    };
    const out = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: "@ink", family: "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif", size: 13 },
      margin: { l: 60, r: 16, t: 12, b: 48 },
      hoverlabel: { align: "left", bgcolor: "@surface", bordercolor: "@faint", font: { color: "@ink", size: 13 } },
      hovermode: "closest",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "@line", activecolor: "@soft" },
      ...layout,
    };
    for (const name of Object.keys(layout))
      if (/^[xy]axis\d*$/.test(name)) out[name] = titled({ ...axis, ...layout[name] });
    return out;
  }

  function draw() {
    const styles = getComputedStyle(document.documentElement);
    return Promise.all(
      Object.entries(specs).map(([key, spec]) => {
        const place = document.getElementById("chart-" + key);
        const data = resolved(spec.data, "", styles);
        return Plotly.react(place, data, resolved(framed(spec.layout), "", styles), CONFIG);
      })
    );
  }

  draw().then(() => document.documentElement.setAttribute("data-drawn", performance.now().toFixed(0)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  // On paper the charts take the paper's colours and width.
  matchMedia("print").addEventListener("change", () => {
    draw();
    for (const key of Object.keys(specs)) Plotly.Plots.resize(document.getElementById("chart-" + key));
  });
})();
