// Viewer of a congestion evolution graph. All data is in the page; it makes no network requests.

import { byId } from "../controls";
import { connectGlossary } from "../glossary";
import { connectSaving } from "../saving";
import { connectTables } from "../tables";
import { Arrays, inflate } from "../data";
import type { Payload } from "./data";
import { Graph } from "./data";
import { Heat } from "./heat";
import { Panels } from "./panels";
import type { Choice } from "./plot";
import { GraphPlot } from "./plot";

const MAX_NAMES = 24;

const plural = (number: number, word: string): string =>
  `${number} ${word}${number === 1 ? "" : "s"}`;

/** Lines of text about a feature; names from files only ever become text. */
function describe(graph: Graph, feature: number): string[] {
  const one = (values: ArrayLike<number>): number => values[feature] ?? 0;
  const places = graph.members(feature).map((place) => graph.payload.places[place] ?? "?");
  const more = places.length > MAX_NAMES ? `, and ${places.length - MAX_NAMES} more` : "";
  const from = graph.before[feature]?.length ?? 0;
  const into = graph.after[feature]?.length ?? 0;
  const bound = one(graph.atLeast) ? "≥ " : "";
  return [
    `Feature ${feature} at ${graph.time(one(graph.step))}`,
    plural(one(graph.extent), graph.payload.place_word),
    `largest ${bound}${one(graph.maximum).toFixed(1)} %, mean ${bound}${one(graph.mean).toFixed(1)} %`,
    `from ${plural(from, "feature")} before, into ${into} after; evolution ${one(graph.evolution)}`,
    places.slice(0, MAX_NAMES).join(", ") + more,
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

/** The selection in the URL fragment; null without one. */
function fromHash(graph: Graph): Choice | null {
  const params = new URLSearchParams(location.hash.slice(1));
  const number = (name: string, many: number): number => {
    const text = params.get(name) ?? "";
    return /^\d{1,9}$/.test(text) && Number(text) < many ? Number(text) : -1;
  };
  const feature = number("feature", graph.count);
  const step = feature < 0 ? number("step", graph.payload.times.length) : (graph.step[feature] ?? 0);
  return step < 0 ? null : { feature, step };
}

let writing = 0;

/** Write a selection to the URL as a history entry; browsers allow only a few a second. */
function toHash({ feature, step }: Choice): void {
  window.clearTimeout(writing);
  writing = window.setTimeout(() => {
    const hash = feature < 0 ? `#step=${step}` : `#step=${step}&feature=${feature}`;
    try {
      if (hash !== location.hash) history.pushState(null, "", hash);
    } catch {
      // A page inside an iframe may not be allowed to change its URL.
    }
  }, 250);
}

async function start(): Promise<void> {
  const payload = JSON.parse(byId("evolution-data").textContent ?? "") as Payload;
  const bytes = await inflate(byId("evolution-arrays").textContent ?? "");
  const graph = new Graph(payload, new Arrays(bytes));
  document.documentElement.classList.add("js", "interactive");
  connectTables();
  connectGlossary();

  const detail = byId("detail");
  const now = byId("now");
  const slider = byId<HTMLInputElement>("step");
  slider.max = String(Math.max(payload.times.length - 1, 0));
  let choice: Choice = { feature: -1, step: 0 };
  const onHover = (feature: number): void => {
    detail.dataset["feature"] = String(feature);
    fill(detail, feature < 0 ? ["No feature selected"] : describe(graph, feature));
  };
  const show = (next: Choice): void => {
    choice = next;
    slider.value = String(choice.step);
    now.textContent = graph.time(choice.step);
    onHover(choice.feature);
    plot.show(choice);
    panels.show(choice);
    heat?.show(choice);
  };
  const choose = (next: Choice): void => {
    show(next);
    toHash(next);
  };
  const tellPlace = (place: number): void => {
    const amount = graph.amount(choice.step, place);
    byId("place").textContent = place < 0 ? "" : `${payload.places[place] ?? "?"}: ${amount}`;
  };
  const plot = new GraphPlot(graph, byId<HTMLCanvasElement>("graph"), choose, (feature) => {
    onHover(feature < 0 ? choice.feature : feature);
  });
  const panels = new Panels(graph, byId<HTMLCanvasElement>("network"), tellPlace);
  const heat = payload.values
    ? new Heat(graph, byId<HTMLCanvasElement>("heat"), choose, tellPlace) : null;
  byId("spread-plot").hidden = heat === null;
  // Dots that would overlap show nothing; the link timeline does.
  byId<HTMLDetailsElement>("features").open = heat === null || plot.legible(byId("features").clientWidth);
  slider.addEventListener("input", () => choose({ feature: -1, step: Number(slider.value) }));
  const surfaces = { graph: plot.surface, network: panels.surface, ...(heat && { heat: heat.surface }) };
  const files: Record<string, string> = { graph: "evolution", heat: "spread", network: "network" };
  for (const [name, surface] of Object.entries(surfaces)) connectSaving(surface, files[name] ?? name);
  const drawn = Object.values(surfaces);
  window.addEventListener("beforeprint", () => drawn.forEach((surface) => surface.forPaper()));
  window.addEventListener("afterprint", () => drawn.forEach((surface) => surface.redraw()));
  let worst = -1;
  graph.maximum.forEach((value, feature) => {
    if (worst < 0 || value > (graph.maximum[worst] ?? 0)) worst = feature;
  });
  const first: Choice = { feature: worst, step: graph.step[worst] ?? 0 };
  show(fromHash(graph) ?? first);
  for (const event of ["popstate", "hashchange"]) {
    // A section name in the URL is no selection.
    window.addEventListener(event, () => show(location.hash ? (fromHash(graph) ?? choice) : first));
  }
  document.documentElement.dataset["ready"] = "true";
}

start().catch((problem: unknown) => {
  // The figure and the table work without the viewer.
  document.documentElement.classList.remove("interactive");
  console.error("viewer:", problem);
});
