"use strict";
// Sorting: a button in each head of the table; cells without a figure stay at the end.
function makeSortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.classList.contains("figure")) {
      return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    }
    return cell.textContent;
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      // The largest figure first, words from A; then the other way round, then as it was.
      const orders = head.classList.contains("figure")
        ? ["descending", "ascending", null]
        : ["ascending", "descending", null];
      const now = head.getAttribute("aria-sort");
      const next = orders[(orders.indexOf(now) + 1) % orders.length];
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (next) head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const rows = next === null ? original : [...original].sort((a, b) => {
        const [left, right] = [key(a, column), key(b, column)];
        if (left === null || right === null) return (left === null) - (right === null);
        return sign * (left < right ? -1 : left > right ? 1 : 0);
      });
      body.append(...rows);
    });
  });
}
