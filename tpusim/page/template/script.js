"use strict";
(() => {
  const filter = document.getElementById("filter");
  const rows = filter ? [...document.querySelectorAll("#ops tbody tr")] : [];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  filter?.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    document.getElementById("shown").textContent = `${shown} of ${rows.length}`;
  });

  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = Number.parseFloat(text.replaceAll(",", ""));
    return row.cells[column].classList.contains("number") ? (Number.isNaN(number) ? -Infinity : number) : text;
  };
  const sort = (head) => {
    const table = head.closest("table");
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const keyed = [...table.tBodies[0].rows].map((row) => [value(row, head.cellIndex), row]);
    keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  };
  for (const head of document.querySelectorAll(".sortable th")) head.addEventListener("click", () => sort(head));

  for (const button of document.querySelectorAll("[data-zoom]")) {
    const canvas = button.closest("figure").querySelector(".canvas");
    const picture = canvas.querySelector("svg");
    button.addEventListener("click", () => {
      const factor = Number(button.dataset.zoom);
      const now = picture.getBoundingClientRect().width;
      picture.style.width = factor ? `${Math.min(Math.max(now * factor, 120), 30000)}px` : `${canvas.clientWidth}px`;
    });
  }
})();
