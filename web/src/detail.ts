// What is known of one link, in words.

import type { Model } from "./data";
import { fraction, share } from "./data";
import type { Store } from "./state";

const number = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const percent = (value: number): string =>
  Number.isNaN(value) ? "no data" : `${(100 * value).toFixed(1)} %`;

export function facts(model: Model, store: Store, link: number): [string, string][] {
  const { dataset, selection } = store.now;
  const view = model.view(dataset, selection);
  const samples = view.samples[link] ?? 0;
  const value = fraction(view, link);
  const error = share(view.error, link);
  const congested = Number.isNaN(value)
    ? "no data"
    : `${percent(value)} ± ${(100 * (Number.isNaN(error) ? 0 : error)).toFixed(1)} % (standard error)`;
  const out: [string, string][] = [
    ["Link", model.linkName(link)],
    ["Kind", `${model.groupName(link)}, ${model.rate[link] ?? 0} Gb/s`],
    ["Ports", `${model.srcPort[link] ?? 0} → ${model.dstPort[link] ?? 0}`],
    ["Congested fraction", congested],
    ["Utilization by our packets", percent(share(view.utilization, link))],
    ["Hop samples", number.format(samples)],
  ];
  const { truth } = model.dataset(dataset);
  if (truth) {
    const busy = share(model.arrays.get(truth.utilization), link);
    const stall = share(model.arrays.get(truth.stall), link);
    out.push(["Whole run, all traffic (truth)", `busy ${percent(busy)}, stalled ${percent(stall)}`]);
  }
  return out;
}

/** Show the facts of a link in a panel; text only, never markup. */
export function show(panel: HTMLElement, model: Model, store: Store, link: number): void {
  panel.replaceChildren();
  panel.dataset["link"] = String(link);
  if (link < 0) {
    const hint = document.createElement("p");
    hint.textContent =
      "Point at a cell, or click a link in a plot or the table. Keyboard: arrow keys in a plot.";
    panel.append(hint);
    return;
  }
  const list = document.createElement("dl");
  for (const [name, value] of facts(model, store, link)) {
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
