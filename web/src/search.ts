// A search box that finds links, switches, hosts, ranks, calls and phases and jumps to them.

import type { Frame, Model } from "./data";
import { fraction } from "./data";
import { byId } from "./controls";
import type { Store } from "./state";

const MAX_RESULTS = 12;

interface Entry {
  kind: "link" | "switch" | "host" | "rank" | "call" | "phase";
  name: string;
  /** Id of the section that shows it. */
  part: string;
  choose: () => void;
}

/** Everything that has a name. */
function entries(model: Model, store: Store): Entry[] {
  const out: Entry[] = [];
  model.phases(0).forEach((phase) => {
    if (phase === null) return;
    out.push({ kind: "phase", name: phase, part: "when", choose: () => {
      const at = model.phases(store.now.dataset).indexOf(phase);
      if (at >= 0) store.set({ selection: at });
    } });
  });
  out.push(...calls(model, store));
  const { matrix } = model.run(0);
  if (matrix) {
    const node = model.arrays.get(matrix.node);
    model.arrays.get(matrix.rank).forEach((rank, i) => out.push({
      kind: "rank", name: `rank ${rank}`, part: model.payload.ranks ? "when" : "placement",
      choose: () => store.chooseNodes(model, [node[i] ?? 0]),
    }));
  }
  model.payload.node_names.forEach((name, node) => out.push({
    kind: "host", name, part: "where", choose: () => store.chooseNodes(model, [node]),
  }));
  model.payload.switch_names.forEach((name, at) => out.push({
    kind: "switch", name, part: "where", choose: () => store.choose(model, busiest(model, at)),
  }));
  for (let link = 0; link < model.count; link++) {
    out.push({ kind: "link", name: model.linkName(link), part: "where",
      choose: () => store.choose(model, link) });
  }
  return out;
}

/** Lines of the program, from the boxes of the flame graph. */
function calls(model: Model, store: Store): Entry[] {
  const found = new Map<string, number>();
  const walk = (frame: Frame): void => {
    if (frame[1] === "line" && !found.has(frame[0])) found.set(frame[0], frame[3]);
    frame[4].forEach(walk);
  };
  model.payload.flames?.trees.forEach((tree) => walk(tree.top));
  return [...found].map(([name, phase]) => ({
    kind: "call", name, part: "waiting", choose: () => {
      const wanted = model.phases(0)[phase + 1] ?? null;
      const at = phase < 0 ? -1 : model.phases(store.now.dataset).indexOf(wanted);
      if (at >= 0) store.set({ selection: at });
    },
  }));
}

/** The most congested link that leaves a switch. */
function busiest(model: Model, at: number): number {
  const view = model.view(0, null, null);
  let [best, most] = [-1, -1];
  for (let link = 0; link < model.count; link++) {
    if (model.src[link] !== at + model.nodeCount) continue;
    const value = (view && fraction(view, link)) || 0;
    if (value > most) [best, most] = [link, value];
  }
  return best;
}

/** Entries that contain all words of a query; names that begin with it come first. */
function find(all: Entry[], query: string): Entry[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found: [number, Entry][] = [];
  for (const entry of all) {
    const name = entry.name.toLowerCase();
    if (!words.every((word) => name.includes(word) || entry.kind.startsWith(word))) continue;
    const text = words.join(" ");
    found.push([name === text ? 0 : name.startsWith(text) ? 1 : 2, entry]);
    if (found.length > 4000) break;
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, MAX_RESULTS).map(([, entry]) => entry);
}

export function connectSearch(model: Model, store: Store): void {
  const box = byId<HTMLInputElement>("find");
  const list = byId("found");
  let all: Entry[] | null = null;
  let shown: Entry[] = [];
  let at = 0;
  const close = (): void => {
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
  };
  const go = (entry: Entry | undefined): void => {
    if (!entry) return;
    entry.choose();
    close();
    box.value = entry.name;
    box.blur();
    const part = document.getElementById(entry.part) ?? byId("where");
    part.scrollIntoView();
    // Move the keyboard focus to the first plot of the section.
    part.querySelector<HTMLElement>("canvas[tabindex]")?.focus({ preventScroll: true });
  };
  const mark = (): void => [...list.children].forEach((row, i) => {
    row.setAttribute("aria-selected", String(i === at));
    if (i === at) box.setAttribute("aria-activedescendant", row.id);
  });
  const fill = (): void => {
    all ??= entries(model, store);
    shown = find(all, box.value);
    at = 0;
    list.replaceChildren(...shown.map((entry, i) => {
      const row = document.createElement("li");
      row.id = `found-${i}`;
      row.setAttribute("role", "option");
      const kind = document.createElement("small");
      kind.textContent = entry.kind;
      row.append(kind, ` ${entry.name}`);
      row.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        go(entry);
      });
      return row;
    }));
    if (box.value.trim() && shown.length === 0) list.textContent = "no match";
    list.hidden = box.value.trim() === "";
    box.setAttribute("aria-expanded", String(!list.hidden));
    mark();
  };
  box.addEventListener("input", fill);
  box.addEventListener("focus", () => box.select());
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") go(shown[at]);
    else if (event.key === "Escape") box.blur();
    else if (event.key === "ArrowDown") at = Math.min(at + 1, shown.length - 1);
    else if (event.key === "ArrowUp") at = Math.max(at - 1, 0);
    else return;
    event.preventDefault();
    mark();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    box.focus();
  });
}
