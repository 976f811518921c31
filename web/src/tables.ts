// Tables that sort by a column and filter by a word.

/** Rows from which a table has a box to filter it. */
const FILTER_FROM = 8;

/** What a cell sorts by: the number it carries or begins with, else its text. */
function keyOf(row: HTMLTableRowElement, column: number): number | string {
  const cell = row.cells[column];
  const text = cell?.textContent?.trim() ?? "";
  const number = Number(cell?.dataset["value"] ?? text.replace(/[,%]/g, "").replace("−", "-").trim() ?? NaN);
  return text !== "" && Number.isFinite(number) ? number : text;
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return String(a).localeCompare(String(b), "en", { numeric: true });
  return typeof a === "number" ? -1 : 1;
}

/** Rows that belong together: a row and those below it that continue it. */
function groups(body: HTMLTableSectionElement): HTMLTableRowElement[][] {
  const out: HTMLTableRowElement[][] = [];
  for (const row of body.rows) {
    const continues = row.cells[0]?.textContent?.trim() === "" && (row.cells[1]?.colSpan ?? 1) > 1;
    if (continues) out[out.length - 1]?.push(row);
    else out.push([row]);
  }
  return out;
}

function sortable(table: HTMLTableElement, body: HTMLTableSectionElement): void {
  const first = groups(body);
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      for (const other of heads) other.removeAttribute("aria-sort");
      // Numbers begin with the largest; the third click restores the order of the page.
      const numeric = head.classList.contains("n");
      const order = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
      const next = order[before === null ? 0 : order.indexOf(before) + 1];
      const rows = [...first];
      if (next) {
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        rows.sort((a, b) => sign * compare(keyOf(a[0]!, column), keyOf(b[0]!, column)));
      }
      body.append(...rows.flat());
    });
  });
}

function filterable(table: HTMLTableElement, body: HTMLTableSectionElement): void {
  const box = document.createElement("input");
  box.type = "search";
  box.className = "filter";
  box.placeholder = "Filter rows";
  box.setAttribute("aria-label", "Filter the rows of the table below");
  table.before(box);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const rows of groups(body)) {
      const text = rows.map((row) => row.textContent?.toLowerCase() ?? "").join(" ");
      for (const row of rows) row.hidden = !words.every((word) => text.includes(word));
    }
  });
}

export function connectTables(): void {
  for (const table of document.querySelectorAll<HTMLTableElement>("table.sortable")) {
    const body = table.tBodies[0];
    if (!body) continue;
    sortable(table, body);
    if (body.rows.length >= FILTER_FROM) filterable(table, body);
  }
}
