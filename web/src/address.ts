// The selection is kept in the URL fragment, so that a reload or a shared link restores it.

import { byId } from "./controls";
import type { Model, Quantity } from "./data";
import type { Choice, Store } from "./state";
import { pointerHeld } from "./surface";

/** Browsers limit how often a page may change its URL, to about six times a second. */
const WRITE_DELAY_MS = 250;

/** Parameter that is no selection: scroll position within a section, as a share of its height. */
const SCROLL = "at";

/** Name of a run in the URL. */
function runName(model: Model, dataset: number): string {
  return dataset === model.changeIndex ? "change" : model.run(dataset).id;
}

/** Selectors of single plots, whose value is kept in the URL, too. */
function selectors(): HTMLSelectElement[] {
  return [...document.querySelectorAll<HTMLSelectElement>("select[data-address]")];
}

/** A selection as URL parameters; defaults are omitted. */
function serialize(model: Model, now: Readonly<Choice>, first: number): string {
  const out = new URLSearchParams();
  const phase = model.phases(now.dataset)[now.selection] ?? null;
  if (now.dataset !== first) out.set("run", runName(model, now.dataset));
  if (phase !== null) out.set("phase", phase);
  if (now.time) out.set("frames", now.time.join("-"));
  if (now.quantity !== model.payload.quantity) out.set("cell", now.quantity);
  if (now.nodes.length > 1) out.set("hosts", now.nodes.join("-"));
  else if (now.link >= 0) out.set("link", String(now.link));
  for (const { id, value, options } of selectors()) {
    if (value !== options[0]?.value) out.set(id, value);
  }
  return out.toString();
}

/** Integers from 0 to a maximum, joined by dashes; null for any other text. */
function numbers(text: string | null, max: number): number[] | null {
  if (text === null || !/^\d{1,9}(-\d{1,9})*$/.test(text)) return null;
  const found = text.split("-").map(Number);
  return found.every((number) => number <= max) ? found : null;
}

/** Apply the selection of a URL; names and numbers that this report does not have are ignored. */
function applySelection(model: Model, store: Store, text: string, first: number): void {
  const params = new URLSearchParams(text);
  const run = params.get("run");
  const runs = [...model.payload.datasets.keys(), ...(model.payload.change ? [model.changeIndex] : [])];
  const dataset = runs.find((index) => runName(model, index) === run) ?? first;
  const selection = Math.max(model.phases(dataset).indexOf(params.get("phase")), 0);
  const cell = params.get("cell") ?? "";
  const offered = [...byId<HTMLSelectElement>("quantity").options].map((option) => option.value);
  const quantity = (offered.includes(cell) ? cell : model.payload.quantity) as Quantity;
  const { frames } = model.run(model.runsOf(dataset)[0] ?? 0).course;
  const [from, to, ...more] = numbers(params.get("frames"), frames) ?? [];
  const span = from !== undefined && to !== undefined && more.length === 0 && from < to;
  store.set({ dataset, selection, quantity, time: span ? [from, to] : null });
  const hosts = numbers(params.get("hosts"), model.nodeCount - 1);
  const [link] = numbers(params.get("link"), model.count - 1) ?? [-1];
  if (hosts?.length === 2) store.chooseNodes(model, hosts);
  else store.choose(model, link ?? -1);
  for (const select of selectors()) {
    const wanted = params.get(select.id) ?? select.options[0]?.value ?? "";
    if (select.value === wanted || ![...select.options].some(({ value }) => value === wanted)) continue;
    select.value = wanted;
    select.dispatchEvent(new Event("change"));
  }
}

/** Section and selection in the URL fragment: ``#when?link=12``. */
function splitHash(): [string, string] {
  const [part = "", ...rest] = location.hash.slice(1).split("?");
  return [part, rest.join("?")];
}

/** The selection without the scroll position. */
function withoutScroll(text: string): string {
  const out = new URLSearchParams(text);
  out.delete(SCROLL);
  return out.toString();
}

/** Height of the sticky header above a section. */
function stickyHeight(part: HTMLElement): number {
  return parseFloat(getComputedStyle(part).scrollMarginTop) +
    parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop);
}

/** Scroll position within a section, as a share of its height: windows differ in size. */
function scrollShare(part: HTMLElement): number {
  const { top, height } = part.getBoundingClientRect();
  return Math.min(Math.max((stickyHeight(part) - top) / Math.max(height, 1), 0), 1);
}

/** Scroll to the section and position that a URL states. */
function scrollTo(name: string, text: string): void {
  const part = document.getElementById(name);
  if (!part) return;
  const at = Number(new URLSearchParams(text).get(SCROLL) ?? 0);
  const share = at > 0 && at <= 1 ? at : 0;
  const { top, height } = part.getBoundingClientRect();
  window.scrollTo({ top: window.scrollY + top - stickyHeight(part) + share * height });
}

/** The visible section: the one named in the URL if it is visible, else the first. */
function visibleSection(): string {
  const tall = window.innerHeight;
  const sections = [...document.querySelectorAll<HTMLElement>("main > section[id]")];
  const seen = sections.filter((section) => {
    const { top, bottom } = section.getBoundingClientRect();
    return bottom > stickyHeight(section) + 30 && top < 0.7 * tall;
  });
  const [named] = splitHash();
  if (seen.some(({ id }) => id === named)) return named;
  return window.scrollY < 40 ? "" : (seen[0]?.id ?? named);
}

/** Synchronize selection and URL; call it after the selectors of the page are connected. */
export function connectAddress(model: Model, store: Store): void {
  const first = store.now.dataset;
  let waiting = 0;
  /** Whether a URL is being applied: the changes it causes add no history entry. */
  let applying = false;
  const write = (push: boolean): void => {
    window.clearTimeout(waiting);
    waiting = 0;
    const choice = serialize(model, store.now, first);
    const old = withoutScroll(splitHash()[1]);
    const name = visibleSection();
    const part = document.getElementById(name);
    const at = part ? scrollShare(part) : 0;
    const params = [at > 0.01 ? `${SCROLL}=${at.toFixed(3)}` : "", choice].filter(Boolean).join("&");
    const hash = `#${name}${params && `?${params}`}`;
    if (hash === (location.hash || "#")) return;
    try {
      // A history entry for each selection, none for scrolling alone.
      if (push && old !== choice) history.pushState({ choice }, "", hash);
      else history.replaceState({ choice }, "", hash);
    } catch {
      // A page inside an iframe may not be allowed to change its URL.
    }
  };
  const apply = (choice: string): void => {
    applying = true;
    applySelection(model, store, choice, first);
    applying = false;
  };
  const [part, choice] = splitHash();
  if (choice) apply(choice);
  // Plots have their final size after two frames, so the layout below them is final then, too; the
  // browser may restore its own scroll position before that.
  const scrollLater = (name: string, text: string): void => {
    requestAnimationFrame(() => requestAnimationFrame(() => scrollTo(name, text)));
  };
  if (part) scrollLater(part, choice);
  try {
    history.scrollRestoration = "manual";
    history.replaceState({ choice: withoutScroll(choice) }, "");
  } catch {
    // As above.
  }
  /** A drag is one history entry, however long it takes. */
  const whenReleased = (): void => {
    if (pointerHeld()) waiting = window.setTimeout(whenReleased, WRITE_DELAY_MS);
    else write(true);
  };
  const writeLater = (): void => {
    if (!applying && !waiting) waiting = window.setTimeout(whenReleased, WRITE_DELAY_MS);
  };
  store.listen(writeLater);
  for (const select of selectors()) select.addEventListener("change", writeLater);
  let scrolling = 0;
  window.addEventListener("scroll", () => {
    window.clearTimeout(scrolling);
    // A pending write of the selection includes the scroll position.
    scrolling = window.setTimeout(() => waiting || write(false), WRITE_DELAY_MS);
  }, { passive: true });
  window.addEventListener("popstate", (event) => {
    const state = event.state as { choice?: unknown } | null;
    window.clearTimeout(waiting);
    waiting = 0;
    if (state && typeof state.choice === "string") {
      apply(state.choice);
      scrollLater(...splitHash());
    }
  });
  window.addEventListener("hashchange", () => {
    const [to, params] = splitHash();
    const ours = history.state !== null;
    if (params && !ours) {
      apply(params);
      scrollTo(to, params);
    }
    if (!ours) write(false);
  });
}
