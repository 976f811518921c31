// Tables that can be sorted, filtered and collapsed to their first rows.

/** A table with at least this many rows gets a filter box. */
const MIN_ROWS_TO_FILTER = 8;

/** Rows shown of a collapsed table, and how many more it must have to be collapsed. */
const COLLAPSED_ROWS = 6;
const MIN_HIDDEN_ROWS = 2;

/** Sort key of a cell: its ``data-value`` or number, else its text. */
function sortKey(row: HTMLTableRowElement, column: number): number | string {
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

/** Groups of rows: a row and its continuation rows. */
function groups(body: HTMLTableSectionElement): HTMLTableRowElement[][] {
  const out: HTMLTableRowElement[][] = [];
  for (const row of body.rows) {
    const continues = row.cells[0]?.textContent?.trim() === "" && (row.cells[1]?.colSpan ?? 1) > 1;
    if (continues) out[out.length - 1]?.push(row);
    else out.push([row]);
  }
  return out;
}

function sortable(table: HTMLTableElement, body: HTMLTableSectionElement, sorted: () => void): void {
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
      // Numbers sort descending first; the third click restores the original order.
      const numeric = head.classList.contains("n");
      const order = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
      const next = order[before === null ? 0 : order.indexOf(before) + 1];
      const rows = [...first];
      if (next) {
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        rows.sort((a, b) => sign * compare(sortKey(a[0]!, column), sortKey(b[0]!, column)));
      }
      body.append(...rows.flat());
      sorted();
    });
  });
}

/** Make a long table collapsible; returns a function that marks the hidden rows after a sort. */
function foldable(table: HTMLTableElement, body: HTMLTableSectionElement): () => void {
  const all = groups(body).length;
  if (!table.classList.contains("folding") || all < COLLAPSED_ROWS + MIN_HIDDEN_ROWS) return () => undefined;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "unfold";
  table.after(button);
  const fold = (folded: boolean): void => {
    table.classList.toggle("folded", folded);
    button.textContent = folded ? `Show all ${all} rows` : `Show the first ${COLLAPSED_ROWS} rows`;
    button.setAttribute("aria-expanded", String(!folded));
  };
  const mark = (): void => groups(body).forEach((rows, at) => {
    for (const row of rows) row.classList.toggle("beyond", at >= COLLAPSED_ROWS);
  });
  button.addEventListener("click", () => fold(!table.classList.contains("folded")));
  mark();
  fold(true);
  return mark;
}

function filterable(table: HTMLTableElement, body: HTMLTableSectionElement): void {
  const box = document.createElement("input");
  box.type = "search";
  box.className = "filter";
  box.placeholder = "Filter rows";
  box.setAttribute("aria-label", "Filter the rows of the table below");
  table.before(box);
  box.addEventListener("input", () => {
    // A match may be in a hidden row.
    table.classList.toggle("filtered", box.value.trim() !== "");
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
    sortable(table, body, foldable(table, body));
    if (body.rows.length >= MIN_ROWS_TO_FILTER) filterable(table, body);
  }
}
