"use strict";
// Headings become buttons that sort, and a long table shows its first rows until asked for all. Without this
// script every table stands there whole, in the order of the answer.
(() => {
  const LONG = 25, FIRST = 15; // rows: more than this many are folded to so many

  const number = (cell) => (cell.dataset.value === undefined ? null : Number(cell.dataset.value));
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  function compared(a, b) {
    const [x, y] = [number(a), number(b)];
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x === null ? 1 : -1; // what has no figure comes last
    return collator.compare(a.textContent, b.textContent);
  }

  function sorted(table, column, ascending) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, place) => [row, place]);
    const way = ascending ? 1 : -1;
    rows.sort(([a, i], [b, j]) => {
      const [x, y] = [a.cells[column], b.cells[column]];
      if ((number(x) === null) !== (number(y) === null)) return compared(x, y);
      return way * compared(x, y) || i - j;
    });
    body.append(...rows.map(([row]) => row));
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const name = head.textContent;
      if (!name || table.tBodies[0].rows.length < 2) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.title = `Sort by ${name}`;
      button.addEventListener("click", () => {
        const ascending = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sorted(table, column, ascending);
      });
      head.replaceChildren(button);
    });
    table.classList.add("sortable");
  }

  function folding(table) {
    const count = table.tBodies[0].rows.length;
    if (count <= LONG) return;
    table.classList.add("folded");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "more";
    const said = () => {
      const folded = table.classList.contains("folded");
      button.textContent = folded ? `Show all ${count} rows` : `Show the first ${FIRST} rows`;
      button.setAttribute("aria-expanded", String(!folded));
    };
    button.addEventListener("click", () => { table.classList.toggle("folded"); said(); });
    said();
    table.closest(".table").after(button);
  }

  for (const table of document.querySelectorAll("table[role=table]")) {
    sortable(table);
    folding(table);
  }
  // Paper cannot be asked: what is folded is printed.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
})();
