// What is chosen stands in the address of the page: a reload, or a link sent on, shows it again.

import { byId } from "./controls";
import type { Model, Quantity } from "./data";
import type { Choice, Store } from "./state";
import { pointerHeld } from "./surface";

/** Browsers refuse to write an address more than about six times a second. */
const PAUSE_MS = 250;

/** What is not a choice: how far a part of the page is scrolled, as a share of its height. */
const AT = "at";

/** Name of a run in an address. */
function runName(model: Model, dataset: number): string {
  return dataset === model.changeIndex ? "change" : model.run(dataset).id;
}

/** Selectors of single plots, whose choice is in the address too. */
function selectors(): HTMLSelectElement[] {
  return [...document.querySelectorAll<HTMLSelectElement>("select[data-address]")];
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
  for (const { id, value, options } of selectors()) {
    if (value !== options[0]?.value) out.set(id, value);
  }
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
  for (const select of selectors()) {
    const wanted = said.get(select.id) ?? select.options[0]?.value ?? "";
    if (select.value === wanted || ![...select.options].some(({ value }) => value === wanted)) continue;
    select.value = wanted;
    select.dispatchEvent(new Event("change"));
  }
}

/** Part of the page and choice of an address: ``#when?link=12``. */
function parts(): [string, string] {
  const [part = "", ...rest] = location.hash.slice(1).split("?");
  return [part, rest.join("?")];
}

/** The choices of an address, without the place on the page. */
function choices(text: string): string {
  const out = new URLSearchParams(text);
  out.delete(AT);
  return out.toString();
}

/** Lower end of what stays in sight above a part of the page. */
function stuck(part: HTMLElement): number {
  return parseFloat(getComputedStyle(part).scrollMarginTop) +
    parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop);
}

/** How far a part of the page is scrolled, as a share of its height: windows differ in size. */
function scrolled(part: HTMLElement): number {
  const { top, height } = part.getBoundingClientRect();
  return Math.min(Math.max((stuck(part) - top) / Math.max(height, 1), 0), 1);
}

/** Scroll to the place on the page that an address says. */
function scrollTo(name: string, text: string): void {
  const part = document.getElementById(name);
  if (!part) return;
  const at = Number(new URLSearchParams(text).get(AT) ?? 0);
  const share = at > 0 && at <= 1 ? at : 0;
  const { top, height } = part.getBoundingClientRect();
  window.scrollTo({ top: window.scrollY + top - stuck(part) + share * height });
}

/** The part of the page that is in sight: the one of the address while it is, else the first. */
function partInSight(): string {
  const tall = window.innerHeight;
  const sections = [...document.querySelectorAll<HTMLElement>("main > section[id]")];
  const seen = sections.filter((section) => {
    const { top, bottom } = section.getBoundingClientRect();
    return bottom > stuck(section) + 30 && top < 0.7 * tall;
  });
  const [named] = parts();
  if (seen.some(({ id }) => id === named)) return named;
  return window.scrollY < 40 ? "" : (seen[0]?.id ?? named);
}

/** Keep choice and address in step; the selectors of the page are connected before. */
export function connectAddress(model: Model, store: Store): void {
  const first = store.now.dataset;
  let waiting = 0;
  /** Whether an address is being taken over: what follows from it is no new step back. */
  let taking = false;
  const write = (push: boolean): void => {
    window.clearTimeout(waiting);
    waiting = 0;
    const choice = written(model, store.now, first);
    const old = choices(parts()[1]);
    const name = partInSight();
    const part = document.getElementById(name);
    const at = part ? scrolled(part) : 0;
    const said = [at > 0.01 ? `${AT}=${at.toFixed(3)}` : "", choice].filter(Boolean).join("&");
    const hash = `#${name}${said && `?${said}`}`;
    if (hash === (location.hash || "#")) return;
    try {
      // A step back for every choice, none for what only scrolled.
      if (push && old !== choice) history.pushState({ choice }, "", hash);
      else history.replaceState({ choice }, "", hash);
    } catch {
      // A page inside another one may have no address of its own.
    }
  };
  const takeOver = (choice: string): void => {
    taking = true;
    take(model, store, choice, first);
    taking = false;
  };
  const [part, choice] = parts();
  if (choice) takeOver(choice);
  // The plots have their size after two frames, and what is below them its place: what the browser
  // itself restores, it may restore before.
  const place = (name: string, text: string): void => {
    requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(name, text)));
  };
  if (part) place(part, choice);
  try {
    history.scrollRestoration = "manual";
    history.replaceState({ choice: choices(choice) }, "");
  } catch {
    // As above.
  }
  /** What is dragged is one step back, however long it takes. */
  const whenRested = (): void => {
    if (pointerHeld()) waiting = window.setTimeout(whenRested, PAUSE_MS);
    else write(true);
  };
  const later = (): void => {
    if (!taking && !waiting) waiting = window.setTimeout(whenRested, PAUSE_MS);
  };
  store.listen(later);
  for (const select of selectors()) select.addEventListener("change", later);
  let scrolling = 0;
  window.addEventListener("scroll", () => {
    window.clearTimeout(scrolling);
    // A choice that waits to be written takes the place along.
    scrolling = window.setTimeout(() => waiting || write(false), PAUSE_MS);
  }, { passive: true });
  window.addEventListener("popstate", (event) => {
    const state = event.state as { choice?: unknown } | null;
    window.clearTimeout(waiting);
    waiting = 0;
    if (state && typeof state.choice === "string") {
      takeOver(state.choice);
      place(...parts());
    }
  });
  window.addEventListener("hashchange", () => {
    const [to, said] = parts();
    const ours = history.state !== null;
    if (said && !ours) {
      takeOver(said);
      scrollTo(to, said);
    }
    if (!ours) write(false);
  });
}
