// Buttons and selectors of the page.

import type { Model, Quantity } from "./data";
import type { Store } from "./state";

export function byId<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page lacks #${id}`);
  return found as T;
}

/** Offer a text as a file. */
export function save(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Downloads of the printed figures: the image is the file. */
export function connectDownloads(): void {
  for (const button of document.querySelectorAll<HTMLAnchorElement>("a[data-figure]")) {
    const image = document.getElementById(`figure-${button.dataset["figure"] ?? ""}`);
    if (image instanceof HTMLImageElement) button.href = image.src;
  }
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

export function connectSelectors(model: Model, store: Store): void {
  const phases = byId<HTMLSelectElement>("phase");
  const fill = (dataset: number, phase: string | null): void => {
    phases.replaceChildren();
    model.dataset(dataset).selections.forEach((selection, index) => {
      const option = document.createElement("option");
      option.value = String(index);
      option.textContent = selection.phase === null ? "Whole run" : `Phase ${selection.phase}`;
      option.selected = selection.phase === phase;
      phases.append(option);
    });
  };
  fill(0, null);
  phases.addEventListener("change", () => store.set({ selection: Number(phases.value) }));

  for (const radio of document.querySelectorAll<HTMLInputElement>("input[name=dataset]")) {
    radio.addEventListener("change", () => {
      if (!radio.checked) return;
      const dataset = Number(radio.value);
      const now = model.dataset(store.now.dataset).selections[store.now.selection]?.phase ?? null;
      const same = model.dataset(dataset).selections.findIndex((s) => s.phase === now);
      fill(dataset, same < 0 ? null : now);
      store.set({ dataset, selection: Math.max(same, 0) });
    });
  }

  const quantity = byId<HTMLSelectElement>("quantity");
  quantity.addEventListener("change", () => store.set({ quantity: quantity.value as Quantity }));
}

/** Join the table of links with the plots. */
export function connectTable(store: Store): void {
  const rows = document.querySelectorAll<HTMLTableRowElement>("tr[data-link]");
  for (const row of rows) {
    const choose = (): void => store.set({ link: Number(row.dataset["link"]) });
    row.tabIndex = 0;
    row.addEventListener("click", choose);
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose();
    });
  }
  store.listen((choice) => {
    for (const row of rows) {
      const chosen = Number(row.dataset["link"]) === choice.link;
      row.classList.toggle("selected", chosen);
      row.setAttribute("aria-selected", String(chosen));
    }
  });
}
