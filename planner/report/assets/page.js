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

  // Names are made for plotly, which reads entities in them; here they are text.
  const plain = (name) => new DOMParser().parseFromString(name, "text/html").documentElement.textContent;
  const SVG = "http://www.w3.org/2000/svg";
  const SHAPES = { // of a marker, in a box of 12 by 12
    square: "M2 2H10V10H2Z", diamond: "M6 1L11 6L6 11L1 6Z", "triangle-up": "M6 1L11 11H1Z",
    circle: "M6 2A4 4 0 1 0 6 10A4 4 0 1 0 6 2Z",
  };
  const DASHES = { dash: "5 3", dot: "2 3" };

  function swatch(trace) {
    const svg = document.createElementNS(SVG, "svg");
    const lines = (trace.mode || "").includes("lines");
    svg.setAttribute("viewBox", lines ? "0 0 24 12" : "0 0 12 12");
    svg.setAttribute("width", lines ? 24 : 12);
    svg.setAttribute("height", 12);
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    const named = lines ? trace.line.color : [trace.marker.color].flat()[0];
    const colour = `var(--${named.slice(1)})`;
    const symbol = (trace.marker && trace.marker.symbol) || (trace.type === "bar" ? "square" : "circle");
    path.setAttribute("d", lines ? "M1 6H23" : SHAPES[symbol.replace("-open", "")] || SHAPES.circle);
    const open = lines || symbol.endsWith("-open");
    path.style.cssText = `fill:${open ? "none" : colour};stroke:${colour};stroke-width:${open ? 2 : 0}`;
    if (lines && DASHES[trace.line.dash]) path.setAttribute("stroke-dasharray", DASHES[trace.line.dash]);
    svg.append(path);
    return svg;
  }

  // The legend is text of the page, which wraps on a narrow screen; a name is a button that hides its series.
  function legend(place, data) {
    const names = [...new Set(data.filter((t) => t.name && t.showlegend !== false).map((t) => t.name))];
    if (names.length < 2) return;
    const list = document.createElement("ul");
    list.className = "legend";
    for (const name of names) {
      const mine = data.flatMap((trace, index) => (trace.name === name ? [index] : []));
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(swatch(data[mine[0]]), plain(name));
      button.addEventListener("click", () => {
        const seen = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(seen));
        for (const index of mine) data[index].visible = seen;
        draw();
      });
      const item = document.createElement("li");
      item.append(button);
      list.append(item);
    }
    place.before(list);
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
      margin: { l: 60, r: 16, t: 30, b: 48 },
      showlegend: false,
      hoverlabel: { align: "left", bgcolor: "@surface", bordercolor: "@faint", font: { color: "@ink", size: 13 } },
      hovermode: "closest",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "@line", activecolor: "@soft" },
      ...layout,
    };
    for (const name of Object.keys(layout))
      if (/^[xy]axis\d*$/.test(name)) out[name] = titled({ ...axis, ...layout[name] });
    return out;
  }

  // What a chart changes where there is little room: axes by their names, the rest as it is.
  function narrowed(spec) {
    const out = { ...spec.layout };
    for (const [name, value] of Object.entries(spec.narrow || {}))
      out[name] = /^[xy]axis/.test(name) ? { ...out[name], ...value } : value;
    return out;
  }

  const small = matchMedia("(max-width: 640px)");

  function draw() {
    const styles = getComputedStyle(document.documentElement);
    return Promise.all(
      Object.entries(specs).map(([key, spec]) => {
        const place = document.getElementById("chart-" + key);
        const data = resolved(spec.data, "", styles);
        const layout = small.matches ? narrowed(spec) : spec.layout;
        place.style.height = `${layout.height || 360}px`;
        return Plotly.react(place, data, resolved(framed(layout), "", styles), CONFIG);
      })
    );
  }

  for (const [key, spec] of Object.entries(specs)) legend(document.getElementById("chart-" + key), spec.data);
  small.addEventListener("change", draw);
  // The plan that the what-if points at gets a ring.
  document.addEventListener("planner-plan", ({ detail }) => {
    const ring = specs.pareto && specs.pareto.data.find((trace) => trace.name === "what-if");
    if (!ring) return;
    Object.assign(ring, { x: detail ? [detail.x] : [], y: detail ? [detail.y] : [] });
    draw();
  });
  draw().then(() => document.documentElement.setAttribute("data-drawn", performance.now().toFixed(0)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  // On paper the charts take the paper's colours and width.
  matchMedia("print").addEventListener("change", () => {
    draw();
    for (const key of Object.keys(specs)) Plotly.Plots.resize(document.getElementById("chart-" + key));
  });
})();
