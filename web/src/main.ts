// Viewer of a Tailback report. All data is in the page; it makes no network requests.

import { connectAddress } from "./address";
import { Bars } from "./bars";
import { Columns } from "./columns";
import { connectCommand } from "./command";
import { byId, connectCopyButtons, connectSelectors, connectTable } from "./controls";
import { LinkTimeline } from "./link_timeline";
import type { Embedded, Flames } from "./data";
import { Arrays, inflate, Model } from "./data";
import { show } from "./detail";
import { FabricPlot } from "./fabric";
import { Flame } from "./flame";
import { connectGlossary } from "./glossary";
import { Grids } from "./grids";
import { Matrix } from "./matrix";
import { Points } from "./points";
import { RankTimeline } from "./ranks";
import { Raster } from "./raster";
import { connectSaving } from "./saving";
import { connectSearch } from "./search";
import { Store } from "./state";
import type { Surface } from "./surface";
import { connectTables } from "./tables";
import { TimeCourse } from "./timecourse";

const canvas = (id: string): HTMLCanvasElement => byId<HTMLCanvasElement>(id);

/** All plots of the page, with the file name for saving each. */
function plots(model: Model, store: Store): [string, { surface: Surface }][] {
  const { payload } = model;
  const panel = byId("detail");
  const out: [string, { surface: Surface }][] = [];
  if (document.getElementById("fabric")) {
    const fabric = new FabricPlot(model, store, canvas("fabric"));
    for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-zoom]")) {
      button.addEventListener("click", () => fabric.zoomButton(button.dataset["zoom"] ?? ""));
    }
    out.push(["congested_fraction", fabric]);
  }
  const raster = new Raster(model, store, canvas("raster"), (hovered) => {
    show(panel, model, store, hovered >= 0 ? hovered : store.now.link);
  });
  out.push(["fabric_raster", raster]);
  if (payload.flames) {
    const flame = new Flame(model, payload.flames, store, canvas("flame"));
    const count = (): void => {
      flame.surface.canvas.dataset["marked"] = String(flame.marked);
    };
    store.listen(() => requestAnimationFrame(count));
    flame.connectSelector(byId<HTMLSelectElement>("flame-tree"), byId("flame-detail"));
    out.push(["back_pressure", flame]);
  }
  if (payload.ranks) {
    const ranks = new RankTimeline(model, payload.ranks, store, canvas("ranks"));
    ranks.connectText(byId("rank-detail"), byId("rank-messages"));
    ranks.connectSelector(byId<HTMLSelectElement>("rank-sort"));
    ranks.connectZoom(byId("rank-in"), byId("rank-out"), byId("rank-all"));
    out.push(["rank_timeline", ranks]);
  }
  if (model.run(0).course.frames > 1) {
    out.push(["time_course", new TimeCourse(model, store, canvas("time_course"))]);
    out.push(["link_time", new LinkTimeline(model, store, canvas("course"))]);
  }
  if (model.run(0).matrix) {
    out.push(["rank_matrix", new Matrix(model, store, canvas("matrix"), byId("pair"))]);
  }
  if (payload.grids) {
    out.push([payload.grids.kind, new Grids(model, payload.grids.grids, store, canvas("grids"))]);
  }
  if (payload.points && document.getElementById("points")) {
    out.push(["how_sure", new Points(canvas("points"), model, payload.points, store)]);
  }
  for (const [name, meta] of Object.entries(payload.bars)) {
    if (document.getElementById(name)) {
      out.push([name, new Bars(canvas(name), meta, name.startsWith("change_"))]);
    }
  }
  for (const [name, meta] of Object.entries(payload.columns)) {
    if (document.getElementById(name)) out.push([name, new Columns(canvas(name), meta)]);
  }
  return out;
}

/** Tell the CSS the height of the sticky controls, so that jump targets end up below them. */
function keepInSight(): void {
  const tools = byId("tools");
  // In a low or narrow window the space is for the plots.
  byId<HTMLDetailsElement>("inspector").open = window.innerWidth > 900 && window.innerHeight > 500;
  const root = document.documentElement.style;
  new ResizeObserver(() => root.setProperty("--sticky-height", `${46 + tools.offsetHeight + 8}px`)).observe(tools);
}

async function start(): Promise<void> {
  connectCopyButtons();
  connectTables();
  connectGlossary();
  document.documentElement.classList.add("js");
  const embedded = JSON.parse(byId("report-data").textContent ?? "") as Embedded;
  const arrays = new Arrays(await inflate(byId("report-arrays").textContent ?? ""));
  const flames = embedded.flames && (arrays.json(embedded.flames) as Flames);
  const model = new Model({ ...embedded, flames }, arrays);
  const store = new Store();
  store.set({ quantity: model.payload.quantity });
  document.documentElement.classList.add("interactive");

  keepInSight();
  const panel = byId("detail");
  show(panel, model, store, -1);
  const drawn = plots(model, store);
  store.listen((choice) => show(panel, model, store, choice.link));
  for (const [file, plot] of drawn) connectSaving(plot.surface, file);
  connectSelectors(model, store);
  connectTable(model, store);
  connectSearch(model, store);
  connectCommand(model, store);
  connectAddress(model, store);
  // Redraw for print: the screen's drawing scaled down would be too small to read.
  window.addEventListener("beforeprint", () => drawn.forEach(([, plot]) => plot.surface.forPaper()));
  window.addEventListener("afterprint", () => drawn.forEach(([, plot]) => plot.surface.redraw()));
  document.documentElement.dataset["ready"] = "true";
}

start().catch((problem: unknown) => {
  // The verdict, the remedy and the tables work without the viewer.
  document.documentElement.classList.remove("interactive");
  console.error("viewer:", problem);
});
