// What is known of one link, in words.

import type { Model, View } from "./data";
import { fraction, share } from "./data";
import type { Estimate } from "./interval";
import { ofDifference } from "./interval";
import type { Store } from "./state";
import { Lens } from "./values";

const number = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const percent = (value: number): string =>
  Number.isNaN(value) ? "no data" : `${(100 * value).toFixed(1)} %`;

export function facts(model: Model, store: Store, link: number): [string, string][] {
  const lens = new Lens(model, store);
  const views = lens.views();
  const out: [string, string][] = [
    ["Link", model.linkName(link)],
    ["Kind", `${model.groupName(link)}, ${model.rate[link] ?? 0} Gb/s`],
    ["Ports", `${model.srcPort[link] ?? 0} → ${model.dstPort[link] ?? 0}`],
    ["Congested fraction", views.map((view) => estimate(view, link)).join(" → ")],
  ];
  if (lens.change) out.push(["Change", changed(lens.value(link), views, link)]);
  const busy = views.map((view) => percent(view?.utilization[link] ?? NaN)).join(" → ");
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
  return out;
}

function estimate(view: View | null, link: number): string {
  const value = view ? fraction(view, link) : NaN;
  if (!view || Number.isNaN(value)) return "no data";
  const high = percent(view.high[link] ?? NaN);
  if (value === 0) return `≤ ${high} (95 %): none of ${number.format(view.samples[link] ?? 0)} samples`;
  return `${percent(value)} (95 %: ${points(view.low[link] ?? NaN)} to ${high})`;
}

const points = (value: number): string => (100 * value).toFixed(1);
const signed = (value: number): string => `${value < 0 ? "−" : "+"}${points(Math.abs(value))}`;

/** A link without a sample in one of two runs has no congestion there: nobody used it. */
function orNothing(view: View | null, link: number): Estimate {
  const value = view ? fraction(view, link) : NaN;
  if (!view || Number.isNaN(value)) return [0, 0, 0];
  return [value, view.low[link] ?? 0, view.high[link] ?? 1];
}

/** A change with its interval: the samples of two runs are independent. */
function changed(value: number, views: (View | null)[], link: number): string {
  if (Number.isNaN(value)) return "no data";
  const [before, after] = views.map((view) => orNothing(view, link));
  const [low, high] = ofDifference(before ?? [0, 0, 0], after ?? [0, 0, 0]);
  const sure = low > 0 || high < 0 ? "" : ", within the noise";
  return `${signed(value)} percentage points (95 %: ${signed(low)} to ${signed(high)})${sure}`;
}

/** Show the facts of a link in a panel; text only, never markup. */
export function show(panel: HTMLElement, model: Model, store: Store, link: number): void {
  panel.replaceChildren();
  panel.dataset["link"] = String(link);
  const { nodes } = store.now;
  panel.dataset["nodes"] = nodes.join(" ");
  if (link < 0) {
    const hint = document.createElement("p");
    hint.textContent =
      "Point at a cell, or click a link, host or phase in a plot or a table; drag over time in the " +
      "raster of links against time. Keyboard: arrow keys in a plot.";
    panel.append(hint);
    return;
  }
  const list = document.createElement("dl");
  const hosts = nodes.map((node) => model.vertexName(node)).join(" → ");
  const ends: [string, string][] =
    hosts && link === store.now.link ? [[nodes.length > 1 ? "Hosts" : "Host", hosts]] : [];
  for (const [name, value] of [...facts(model, store, link), ...ends]) {
    const term = document.createElement("dt");
    const fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = value;
    const pair = document.createElement("div");
    pair.append(term, fact);
    list.append(pair);
  }
  panel.append(list);
}
