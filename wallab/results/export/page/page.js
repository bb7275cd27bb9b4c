"use strict";
(() => {
  const cells = JSON.parse(document.getElementById("data").textContent).cells;
  document.documentElement.classList.remove("no-script");

  // Selecting: what all axes admit is shown, in every part of the page.
  const filters = document.getElementById("filters");
  const boxes = [...filters.querySelectorAll("input[data-axis]")];

  function select() {
    const chosen = [];
    for (const box of boxes) {
      const axis = Number(box.dataset.axis);
      chosen[axis] ??= new Set();
      if (box.checked) chosen[axis].add(box.value);
    }
    const admitted = cells.map((values) => values.every((value, axis) => chosen[axis].has(value)));
    for (const part of document.querySelectorAll("[data-cell]")) {
      const visible = admitted[Number(part.dataset.cell)];
      // A cell of the matrix, or of a drawing, keeps its place.
      if (part.matches("td, g")) part.classList.toggle("off", !visible);
      else part.hidden = !visible;
    }
    for (const row of document.querySelectorAll("[data-row]")) {
      const empty = !row.querySelector("[data-cell]:not(.off)");
      if (row.matches("g")) row.classList.toggle("off", empty);
      else row.hidden = empty;
    }
    for (const table of document.querySelectorAll(".matrix")) {
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        if (!head.classList.contains("figure")) return;
        const below = [...table.tBodies[0].rows].map((row) => row.cells[column]);
        const empty = !below.some((cell) => cell.dataset.cell && !cell.classList.contains("off"));
        for (const cell of [head, ...below]) cell.hidden = empty;
      });
    }
    const count = admitted.filter(Boolean).length;
    document.getElementById("shown").textContent =
      count === cells.length ? "" : `(${count} of ${cells.length} cells)`;
  }
  filters.addEventListener("change", select);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(select));

  makeSortable(document.getElementById("sortable"));

  document.getElementById("log").addEventListener("change", (event) => {
    document.getElementById("linear").hidden = event.target.checked;
    document.getElementById("logarithmic").hidden = !event.target.checked;
  });

  const cards = [...document.querySelectorAll("details.card")];
  const all = document.getElementById("open-all");
  all.addEventListener("click", () => {
    const open = all.getAttribute("aria-pressed") !== "true";
    all.setAttribute("aria-pressed", String(open));
    all.textContent = open ? "Close all" : "Open all";
    for (const card of cards) card.open = open;
  });

  // A link to a cell opens it.
  function open() {
    const target = document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) {
      target.open = true;
      target.scrollIntoView();
    }
  }
  addEventListener("hashchange", open);
  open();

  // On paper everything is open.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("main details:not([open])")];
    for (const details of closed) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
  });
})();
