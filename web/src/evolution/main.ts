// Viewer of a congestion evolution graph. Everything is in the page; it never asks the network.

import { byId, save } from "../controls";
import { Arrays, inflate } from "../data";
import type { Payload } from "./data";
import { Graph } from "./data";
import { Panels } from "./panels";
import type { Choice } from "./plot";
import { GraphPlot } from "./plot";

const NAMES_SHOWN = 24;

const counted = (number: number, word: string): string =>
  `${number} ${word}${number === 1 ? "" : "s"}`;

/** Lines of text about a feature; names from files only ever become text. */
function describe(graph: Graph, feature: number): string[] {
  const one = (values: ArrayLike<number>): number => values[feature] ?? 0;
  const places = graph.members(feature).map((place) => graph.payload.places[place] ?? "?");
  const more = places.length > NAMES_SHOWN ? `, and ${places.length - NAMES_SHOWN} more` : "";
  const from = graph.before[feature]?.length ?? 0;
  const into = graph.after[feature]?.length ?? 0;
  const bound = one(graph.atLeast) ? "≥ " : "";
  return [
    `Feature ${feature} at ${graph.time(one(graph.step))}`,
    counted(one(graph.extent), graph.payload.place_word),
    `largest ${bound}${one(graph.maximum).toFixed(1)} %, mean ${bound}${one(graph.mean).toFixed(1)} %`,
    `from ${counted(from, "feature")} before, into ${into} after; evolution ${one(graph.evolution)}`,
    places.slice(0, NAMES_SHOWN).join(", ") + more,
  ];
}

function fill(panel: HTMLElement, lines: string[]): void {
  panel.replaceChildren(
    ...lines.map((line, index) => {
      const part = document.createElement(index === 0 ? "strong" : "p");
      part.textContent = line;
      return part;
    }),
  );
}

async function start(): Promise<void> {
  const payload = JSON.parse(byId("evolution-data").textContent ?? "") as Payload;
  const bytes = await inflate(byId("evolution-arrays").textContent ?? "");
  const graph = new Graph(payload, new Arrays(bytes));
  document.documentElement.classList.add("interactive");

  const detail = byId("detail");
  const now = byId("now");
  const slider = byId<HTMLInputElement>("step");
  slider.max = String(Math.max(payload.times.length - 1, 0));
  let choice: Choice = { feature: -1, step: 0 };
  const told = (feature: number): void => {
    detail.dataset["feature"] = String(feature);
    fill(detail, feature < 0 ? ["No feature chosen"] : describe(graph, feature));
  };
  const choose = (next: Choice): void => {
    choice = next;
    slider.value = String(choice.step);
    now.textContent = graph.time(choice.step);
    told(choice.feature);
    plot.show(choice);
    panels.show(choice);
  };
  const plot = new GraphPlot(graph, byId<HTMLCanvasElement>("graph"), choose, (feature) => {
    told(feature < 0 ? choice.feature : feature);
  });
  const panels = new Panels(graph, byId<HTMLCanvasElement>("network"), (place) => {
    const amount = graph.amount(choice.step, place);
    byId("place").textContent = place < 0 ? "" : `${payload.places[place] ?? "?"}: ${amount}`;
  });
  slider.addEventListener("input", () => choose({ feature: -1, step: Number(slider.value) }));
  byId("save-graph").addEventListener("click", () => {
    save("evolution.svg", plot.surface.svg(), "image/svg+xml");
  });
  byId("save-network").addEventListener("click", () => {
    save("network.svg", panels.surface.svg(), "image/svg+xml");
  });
  let worst = -1;
  graph.maximum.forEach((value, feature) => {
    if (worst < 0 || value > (graph.maximum[worst] ?? 0)) worst = feature;
  });
  choose({ feature: worst, step: graph.step[worst] ?? 0 });
  document.documentElement.dataset["ready"] = "true";
}

start().catch((problem: unknown) => {
  // The figure and the table are there without the viewer.
  document.documentElement.classList.remove("interactive");
  console.error("viewer:", problem);
});
