// What is chosen stands in the address of the page: a reload, or a link sent on, shows it again.

import { byId } from "./controls";
import type { Model, Quantity } from "./data";
import type { Choice, Store } from "./state";

/** Browsers refuse to write an address more than about six times a second. */
const PAUSE_MS = 250;

/** Name of a run in an address. */
function runName(model: Model, dataset: number): string {
  return dataset === model.changeIndex ? "change" : model.run(dataset).id;
}

/** A choice as it stands in an address, without what the page opens with. */
function written(model: Model, now: Readonly<Choice>, first: number): string {
  const out = new URLSearchParams();
  const phase = model.phases(now.dataset)[now.selection] ?? null;
  if (now.dataset !== first) out.set("run", runName(model, now.dataset));
  if (phase !== null) out.set("phase", phase);
  if (now.time) out.set("frames", now.time.join("-"));
  if (now.quantity !== "congestion") out.set("cell", now.quantity);
  if (now.nodes.length > 1) out.set("hosts", now.nodes.join("-"));
  else if (now.link >= 0) out.set("link", String(now.link));
  return out.toString();
}

/** Whole numbers from 0 up to a limit, joined by dashes; null where they are not. */
function numbers(text: string | null, most: number): number[] | null {
  if (text === null || !/^\d{1,9}(-\d{1,9})*$/.test(text)) return null;
  const found = text.split("-").map(Number);
  return found.every((number) => number <= most) ? found : null;
}

/** Take over what an address says; what is not in this report is passed over. */
function take(model: Model, store: Store, text: string, first: number): void {
  const said = new URLSearchParams(text);
  const run = said.get("run");
  const runs = [...model.payload.datasets.keys(), ...(model.payload.change ? [model.changeIndex] : [])];
  const dataset = runs.find((index) => runName(model, index) === run) ?? first;
  const selection = Math.max(model.phases(dataset).indexOf(said.get("phase")), 0);
  const cell = said.get("cell") ?? "";
  const offered = [...byId<HTMLSelectElement>("quantity").options].map((option) => option.value);
  const quantity = (offered.includes(cell) ? cell : "congestion") as Quantity;
  const { frames } = model.run(model.runsOf(dataset)[0] ?? 0).course;
  const [from, to, ...more] = numbers(said.get("frames"), frames) ?? [];
  const span = from !== undefined && to !== undefined && more.length === 0 && from < to;
  store.set({ dataset, selection, quantity, time: span ? [from, to] : null });
  const hosts = numbers(said.get("hosts"), model.nodeCount - 1);
  const [link] = numbers(said.get("link"), model.count - 1) ?? [-1];
  if (hosts?.length === 2) store.chooseNodes(model, hosts);
  else store.choose(model, link ?? -1);
}

/** Part of the page and choice of an address: ``#when?link=12``. */
function parts(): [string, string] {
  const [part = "", ...rest] = location.hash.slice(1).split("?");
  return [part, rest.join("?")];
}

/** Keep choice and address in step; the selectors of the page are connected before. */
export function connectAddress(model: Model, store: Store): void {
  const first = store.now.dataset;
  let waiting = 0;
  const write = (): void => {
    waiting = 0;
    const [part] = parts();
    const choice = written(model, store.now, first);
    const hash = `#${part}${choice && `?${choice}`}`;
    if (hash === (location.hash || "#")) return;
    try {
      history.replaceState(null, "", hash);
    } catch {
      // A page inside another one may have no address of its own.
    }
  };
  const [part, choice] = parts();
  if (choice) take(model, store, choice, first);
  // The plots have their size after two frames, and what is below them its place.
  const [visit] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  const scroll = (): void => document.getElementById(part)?.scrollIntoView();
  if (part && visit?.type !== "reload") {
    requestAnimationFrame(() => requestAnimationFrame(scroll));
  }
  store.listen(() => {
    if (!waiting) waiting = window.setTimeout(write, PAUSE_MS);
  });
  window.addEventListener("hashchange", () => {
    const [to, said] = parts();
    if (said) {
      take(model, store, said, first);
      document.getElementById(to)?.scrollIntoView();
    }
    write();
  });
}
