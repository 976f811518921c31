// Buttons and selectors of the page.

import { timeText } from "./axis";
import type { Model, Quantity } from "./data";
import type { Store } from "./state";

export function byId<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page lacks #${id}`);
  return found as T;
}

/** Offer content as a file to download. */
export function save(name: string, content: string | Blob, type: string): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function connectCopyButtons(): void {
  for (const button of document.querySelectorAll<HTMLButtonElement>("button.copy")) {
    const source = button.parentElement?.querySelector("code");
    button.addEventListener("click", () => {
      const text = source?.textContent ?? "";
      const done = (word: string): void => {
        button.textContent = word;
        setTimeout(() => (button.textContent = "Copy"), 1500);
      };
      const select = (): void => {
        // Clipboard access may be refused for local files: select the text instead.
        if (source) getSelection()?.selectAllChildren(source);
        done("Selected");
      };
      if (!navigator.clipboard) select();
      else navigator.clipboard.writeText(text).then(() => done("Copied"), select);
    });
  }
}

const NONE = "All phases";

export function connectSelectors(model: Model, store: Store): void {
  const phases = byId<HTMLSelectElement>("phase");
  const fill = (dataset: number, phase: string | null): void => {
    phases.replaceChildren();
    model.phases(dataset).forEach((name, index) => {
      const option = document.createElement("option");
      option.value = String(index);
      option.textContent = name === null ? NONE : `Phase ${name}`;
      option.selected = name === phase;
      phases.append(option);
    });
  };
  fill(0, null);
  phases.addEventListener("change", () => store.set({ selection: Number(phases.value) }));
  const radios = document.querySelectorAll<HTMLInputElement>("input[name=dataset]");
  store.listen((choice, changed) => {
    for (const radio of radios) radio.checked = Number(radio.value) === choice.dataset;
    if (changed.has("dataset")) {
      fill(choice.dataset, model.phases(choice.dataset)[choice.selection] ?? null);
    }
    phases.value = String(choice.selection);
  });

  for (const radio of radios) {
    radio.addEventListener("change", () => {
      if (!radio.checked) return;
      const dataset = Number(radio.value);
      const now = model.phases(store.now.dataset)[store.now.selection] ?? null;
      const same = model.phases(dataset).indexOf(now);
      store.set({ dataset, selection: Math.max(same, 0) });
    });
    if (radio.checked && Number(radio.value) !== store.now.dataset) {
      radio.dispatchEvent(new Event("change"));
    }
  }

  const quantity = byId<HTMLSelectElement>("quantity");
  quantity.value = store.now.quantity;
  quantity.addEventListener("change", () => store.set({ quantity: quantity.value as Quantity }));
  store.listen((choice) => (quantity.value = choice.quantity));
  connectTime(model, store);
}

/** Text of the time span, and the button to reset it. */
function connectTime(model: Model, store: Store): void {
  const back = byId<HTMLButtonElement>("all-time");
  const words = byId("time");
  back.addEventListener("click", () => store.set({ time: null }));
  const show = (): void => {
    back.hidden = store.now.time === null;
    words.textContent = spanText(model, store);
  };
  show();
  store.listen(show);
}

/** The time span shown; for a difference, as shares of each run's time. */
export function spanText(model: Model, store: Store): string {
  const { time, dataset } = store.now;
  if (!time) return "All of the time";
  const runs = model.runsOf(dataset);
  const { edges_ps: edges, frames } = model.run(runs[0] ?? 0).course;
  if (runs.length > 1) {
    const share = (frame: number): string => `${((100 * frame) / frames).toFixed(0)} %`;
    return `Time ${share(time[0])} – ${share(time[1])} of each run`;
  }
  const [from, to] = time.map((frame) => edges[frame] ?? 0) as [number, number];
  return `Time ${timeText(from)} – ${timeText(to)}`;
}

/** Connect the tables of links and lines with the plots. */
export function connectTable(model: Model, store: Store): void {
  const rows = document.querySelectorAll<HTMLTableRowElement>("tr[data-link]");
  for (const row of rows) {
    const choose = (): void => store.choose(model, Number(row.dataset["link"]));
    row.tabIndex = 0;
    row.addEventListener("click", choose);
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    });
  }
  store.listen(({ link, dataset, selection }) => {
    const phase = model.phases(dataset)[selection] ?? null;
    for (const row of rows) {
      const mine = Number(row.dataset["link"]);
      // A row of parallel links represents all of them.
      const joined = row.dataset["bundle"] !== undefined;
      const same = joined && link >= 0 && model.bundle[mine] === model.bundle[link];
      const chosen = mine === link || same;
      row.classList.toggle("selected", chosen);
      row.classList.toggle("in-phase", phase !== null && row.dataset["phase"] === phase);
      row.setAttribute("aria-current", String(chosen));
    }
  });
}
