// Viewer of a Tailback report. Everything it shows is in the page; it never asks the network.

import { connectAddress } from "./address";
import { byId, connectCopyButtons, connectDownloads, connectSelectors, connectTable, save }
  from "./controls";
import { CoursePlot } from "./course";
import type { Payload } from "./data";
import { Arrays, inflate, Model } from "./data";
import { show } from "./detail";
import { FabricPlot } from "./fabric";
import { Flame } from "./flame";
import { Matrix } from "./matrix";
import { RankTimeline } from "./ranks";
import { Raster } from "./raster";
import { Store } from "./state";

async function start(): Promise<void> {
  connectDownloads();
  connectCopyButtons();
  document.documentElement.classList.add("js");
  const payload = JSON.parse(byId("report-data").textContent ?? "") as Payload;
  const bytes = await inflate(byId("report-arrays").textContent ?? "");
  const model = new Model(payload, new Arrays(bytes));
  const store = new Store();
  document.documentElement.classList.add("interactive");

  const panel = byId("detail");
  show(panel, model, store, -1);
  const fabric = new FabricPlot(model, store, byId<HTMLCanvasElement>("fabric"));
  const raster = new Raster(model, store, byId<HTMLCanvasElement>("raster"), (hovered) => {
    show(panel, model, store, hovered >= 0 ? hovered : store.now.link);
  });
  store.listen((choice) => show(panel, model, store, choice.link));
  const saved = (id: string, name: string, plot: { surface: { svg(): string } }): void => {
    byId(id).addEventListener("click", () => save(name, plot.surface.svg(), "image/svg+xml"));
  };
  if (payload.flames) {
    const flame = new Flame(model, payload.flames, store, byId<HTMLCanvasElement>("flame"));
    const count = (): void => {
      flame.surface.canvas.dataset["marked"] = String(flame.marked);
    };
    store.listen(() => requestAnimationFrame(count));
    flame.connectSelector(byId<HTMLSelectElement>("flame-tree"), byId("flame-detail"));
    saved("save-flame", "back_pressure.svg", flame);
  }
  if (payload.ranks) {
    const ranks = new RankTimeline(model, payload.ranks, store, byId<HTMLCanvasElement>("ranks"));
    ranks.connectTexts(byId("rank-detail"), byId("rank-tip"));
    ranks.connectSelector(byId<HTMLSelectElement>("rank-sort"));
    saved("save-ranks", "rank_timeline.svg", ranks);
  }
  if (model.run(0).course.frames > 1) {
    const course = new CoursePlot(model, store, byId<HTMLCanvasElement>("course"));
    saved("save-course", "link_time.svg", course);
  }
  if (model.run(0).matrix) {
    const matrix = new Matrix(model, store, byId<HTMLCanvasElement>("matrix"), byId("pair"));
    saved("save-matrix", "rank_matrix.svg", matrix);
  }
  connectSelectors(model, store);
  connectTable(model, store);

  saved("save-fabric", "congested_fraction.svg", fabric);
  saved("save-raster", "fabric_raster.svg", raster);
  for (const button of document.querySelectorAll<HTMLButtonElement>("button[data-zoom]")) {
    button.addEventListener("click", () => fabric.zoomButton(button.dataset["zoom"] ?? ""));
  }
  connectAddress(model, store);
  document.documentElement.dataset["ready"] = "true";
}

start().catch((problem: unknown) => {
  // The verdict, the tables and the printed figures are there without the viewer.
  document.documentElement.classList.remove("interactive");
  console.error("viewer:", problem);
});
