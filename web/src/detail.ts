// The details of one link as text.

import type { Model, View } from "./data";
import { fraction, share } from "./data";
import type { Estimate } from "./interval";
import { interval, ofDifference } from "./interval";
import type { Store } from "./state";
import { LinkValues } from "./values";

const number = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const percent = (value: number): string =>
  Number.isNaN(value) ? "no data" : `${(100 * value).toFixed(1)} %`;

export function facts(model: Model, store: Store, link: number): [string, string][] {
  const shown = new LinkValues(model, store);
  const views = shown.views();
  const out: [string, string][] = [
    ["Link", model.linkName(link)],
    ["Kind", `${model.groupName(link)}, ${model.rate[link] ?? 0} Gb/s`],
    ["Ports", `${model.srcPort[link] ?? 0} → ${model.dstPort[link] ?? 0}`],
    ["Congested fraction", views.map((view) => estimate(view, link)).join(" → ")],
    ["From its own samples alone", views.map((view) => alone(view, link)).join(" → ")],
  ];
  if (shown.change) out.push(["Change", changed(shown.value(link), views, link)]);
  const busy = views.map((view) => percent(view?.utilization(link) ?? NaN)).join(" → ");
  const samples = views.map((view) => number.format(view?.samples[link] ?? 0)).join(" → ");
  out.push(["Utilization by our packets", busy], ["Hop samples", samples]);
  const truths = model.runsOf(store.now.dataset).flatMap((run) => {
    const { truth } = model.run(run);
    if (!truth) return [];
    const load = percent(share(model.arrays.get(truth.utilization), link));
    const stall = percent(share(model.arrays.get(truth.stall), link));
    return [`busy ${load}, stalled ${stall}`];
  });
  if (truths.length) out.push(["Whole run, all traffic (truth)", truths.join(" → ")]);
  const rarely = model.runsOf(store.now.dataset).every((run) => {
    const { truth } = model.run(run);
    return truth !== null && share(model.arrays.get(truth.stall), link) < 0.01;
  });
  if (rarely && views.some((view) => view && fraction(view, link) >= 0.1)) {
    out.push(["Congested but not stalled", "packets queued for this link while it kept sending; " +
      "stalled means that it had data but no credit from the next switch"]);
  }
  return out;
}

/** The shrunk estimate as text; without a congested sample, its upper bound. */
export function estimate(view: View | null, link: number): string {
  if (!view || !((view.weight[link] ?? 0) > 0)) return "no data";
  const { value, low, high, impossible } = view.estimates(link);
  if (impossible[link]) return "unknown: significantly more congested packets than packets";
  const at = value[link] ?? NaN;
  if (Number.isNaN(at)) return "too few samples";
  if (at === 0) return `≤ ${percent(high[link] ?? NaN)} (95 %)`;
  return `${percent(at)} (95 %: ${points(low[link] ?? NaN)} to ${percent(high[link] ?? NaN)})`;
}

/** The estimate from a link's own samples alone, as text. */
export function alone(view: View | null, link: number): string {
  const weight = view?.weight[link] ?? 0;
  if (!view || !(weight > 0)) return "no data";
  const congested = view.congested[link] ?? 0;
  const samples = number.format(view.samples[link] ?? 0);
  const [low, high] = interval({ weight, congested, variance: view.variance[link] ?? 0,
    congestedVariance: view.congestedVariance[link] ?? 0, shared: view.shared }, view.hashed);
  if (congested === 0) return `≤ ${percent(high)} (95 %): none of ${samples} samples`;
  if (view.estimates(link).impossible[link]) return `${percent(congested / weight)} of ${samples} samples: not possible`;
  return `${percent(Math.min(congested / weight, 1))} (95 %: ${points(low)} to ${percent(high)}), ${samples} samples`;
}

const points = (value: number): string => (100 * value).toFixed(1);
const signed = (value: number): string => `${value < 0 ? "−" : "+"}${points(Math.abs(value))}`;

/** An estimate, or zero where there is none: a link that a run does not use has no congestion. */
function orZero(view: View | null, link: number): Estimate {
  const value = view ? fraction(view, link) : NaN;
  if (!view || Number.isNaN(value)) return [0, 0, 0];
  return [value, view.estimates(link).low[link] ?? 0, view.estimates(link).high[link] ?? 1];
}

/** A change with its interval; the samples of the two runs are independent. */
function changed(value: number, views: (View | null)[], link: number): string {
  if (Number.isNaN(value)) return "no data";
  const [before, after] = views.map((view) => orZero(view, link));
  const [low, high] = ofDifference(before ?? [0, 0, 0], after ?? [0, 0, 0]);
  const sure = low > 0 || high < 0 ? "" : ", within the noise";
  return `${signed(value)} percentage points (95 %: ${signed(low)} to ${signed(high)})${sure}`;
}

/** A short version for tooltips; null for no link. */
export function linkFacts(model: Model, store: Store, link: number): string[] | null {
  if (link < 0) return null;
  const [name, , , ...rest] = facts(model, store, link);
  return [name?.[1] ?? "", ...rest.slice(0, 5).map(([what, value]) => `${what}: ${value}`)];
}

/** A link in one line. */
function summary(model: Model, store: Store, link: number): string {
  if (link < 0) return "No link selected";
  const views = new LinkValues(model, store).views();
  return `${model.linkName(link)}: congested ${views.map((view) => estimate(view, link)).join(" → ")}`;
}

/** Show the details of a link in a panel; text only, never markup. */
export function show(panel: HTMLElement, model: Model, store: Store, link: number): void {
  panel.dataset["link"] = String(link);
  const { nodes } = store.now;
  panel.dataset["nodes"] = nodes.join(" ");
  const short = panel.closest("details")?.querySelector("summary > span");
  if (short) setText(short, summary(model, store, link));
  if (link < 0) {
    const hint = document.createElement("p");
    hint.textContent =
      "Hover over a cell, or click a link, host or phase in a plot or table; drag across the link " +
      "timeline to select a time span. Keyboard: arrow keys in a plot.";
    panel.replaceChildren(hint);
    return;
  }
  const hosts = nodes.map((node) => model.vertexName(node)).join(" → ");
  const ends: [string, string][] =
    hosts && link === store.now.link ? [[nodes.length > 1 ? "Hosts" : "Host", hosts]] : [];
  list(panel, [...facts(model, store, link), ...ends]);
}

/** Set a text only if it differs: during a drag few of them change. */
function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

function list(panel: HTMLElement, pairs: [string, string][]): void {
  let rows = panel.querySelector("dl");
  if (rows?.childElementCount !== pairs.length) {
    rows = document.createElement("dl");
    for (const _ of pairs) {
      const pair = document.createElement("div");
      pair.append(document.createElement("dt"), document.createElement("dd"));
      rows.append(pair);
    }
    panel.replaceChildren(rows);
  }
  pairs.forEach(([name, value], i) => {
    const [term, fact] = rows.children[i]!.children as unknown as [Element, Element];
    setText(term, name);
    setText(fact, value);
  });
}
