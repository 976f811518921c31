// What is known of one link, in words.

import type { Model, View } from "./data";
import { fraction, share } from "./data";
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
  const error = view.error[link] ?? NaN;
  const width = (100 * (Number.isNaN(error) ? 0 : error)).toFixed(1);
  return `${percent(value)} ± ${width} % (standard error)`;
}

/** A change with its standard error: the samples of two runs are independent. */
function changed(value: number, views: (View | null)[], link: number): string {
  if (Number.isNaN(value)) return "no data";
  const errors = views.map((view) => view?.error[link] ?? NaN).filter((e) => !Number.isNaN(e));
  const error = Math.hypot(...errors);
  const sign = value < 0 ? "−" : "+";
  const sure = Math.abs(value) > 1.96 * error ? "" : ", within the noise";
  const points = `${sign}${(100 * Math.abs(value)).toFixed(1)} ± ${(100 * error).toFixed(1)}`;
  return `${points} percentage points${sure}`;
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
