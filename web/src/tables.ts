// Tables that sort by a column, filter by a word, and fold what is beyond their first rows.

/** Rows from which a table has a box to filter it. */
const FILTER_FROM = 8;

/** Rows of a folded table, and how many more there must be to fold them. */
const FOLDED = 10;
const WORTH_FOLDING = 2;

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
      sorted();
    });
  });
}

/** Fold a long table; returns what marks the rows beyond its first ones, in their order. */
function foldable(table: HTMLTableElement, body: HTMLTableSectionElement): () => void {
  const all = groups(body).length;
  if (!table.classList.contains("folding") || all < FOLDED + WORTH_FOLDING) return () => undefined;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "unfold";
  table.after(button);
  const fold = (folded: boolean): void => {
    table.classList.toggle("folded", folded);
    button.textContent = folded ? `Show all ${all} rows` : `Show the first ${FOLDED} rows`;
    button.setAttribute("aria-expanded", String(!folded));
  };
  const mark = (): void => groups(body).forEach((rows, at) => {
    for (const row of rows) row.classList.toggle("beyond", at >= FOLDED);
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
    // What is looked for may be in a row that is folded.
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
    if (body.rows.length >= FILTER_FROM) filterable(table, body);
  }
}
