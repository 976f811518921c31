// The network at one step: slices of a torus, or the tiers of a tree; a cell is a link.

import type { Renderer } from "../renderer";
import { INK, MUTED } from "../renderer";
import { legend, legendHeight } from "../scale";
import type { Drawing } from "../surface";
import { pointer, Surface } from "../surface";
import type { Graph, PanelMeta } from "./data";
import type { Choice } from "./plot";
import type { Spot } from "./walk";
import { placeAt, walk } from "./walk";

const GAP = 12;
const HEAD = 15;
/** Room on the left for the frame of a selected link. */
const EDGE = 3;
const LEGEND = { title: "time stalled (%)", noData: "not measured" };
const SELECTED = "#0b57d0";

interface Box {
  panel: PanelMeta;
  x: number;
  y: number;
  cw: number;
  ch: number;
}

export class Panels implements Drawing {
  readonly surface: Surface;
  private boxes: Box[] = [];
  private choice: Choice = { feature: -1, step: 0 };
  /** The link that was clicked or reached by the arrow keys. */
  private spot: Spot | null = null;
  private readonly shades: string[];

  constructor(
    private readonly graph: Graph,
    canvas: HTMLCanvasElement,
    private readonly onHover: (place: number) => void,
  ) {
    this.shades = graph.shades();
    this.surface = new Surface(canvas, this);
    canvas.addEventListener("pointermove", (event) => {
      const under = this.hit(...pointer(event, canvas));
      this.onHover(under ? placeAt(graph, under) : -1);
    });
    canvas.addEventListener("pointerleave", () => this.tell());
    canvas.addEventListener("click", (event) => this.move(this.hit(...pointer(event, canvas))));
    canvas.addEventListener("keydown", (event) => {
      const next = walk(graph, this.spot, event.key);
      if (!next && event.key !== "Escape") return;
      event.preventDefault();
      this.move(next);
    });
  }

  private move(spot: Spot | null): void {
    this.spot = spot;
    this.tell();
    this.surface.refresh();
  }

  private tell(): void {
    this.onHover(this.spot ? placeAt(this.graph, this.spot) : -1);
  }

  show(choice: Choice): void {
    const moved = choice.step !== this.choice.step;
    this.choice = choice;
    if (moved) this.surface.redraw();
    else this.surface.refresh();
    this.tell();
  }

  /** Panels with square cells side by side for a torus; each wide panel on a row of its own. */
  private arrange(width: number): number {
    this.boxes = [];
    let x = EDGE;
    let y = 0;
    let tall = 0;
    for (const panel of this.graph.payload.panels) {
      const wide = panel.columns > 2.5 * panel.rows || panel.columns > 60;
      const room = wide ? width - 2 * EDGE : Math.max(width / 4 - GAP, 90);
      const cw = Math.max(Math.min(room / panel.columns, 14), 0.5);
      const ch = wide ? Math.max(Math.min(90 / panel.rows, 9), 1.5) : cw;
      const w = panel.columns * cw;
      if (x > EDGE && x + w > width) {
        x = EDGE;
        y += tall + GAP;
        tall = 0;
      }
      this.boxes.push({ panel, x, y: y + HEAD, cw, ch });
      x += w + GAP;
      tall = Math.max(tall, HEAD + panel.rows * ch);
    }
    return y + tall + GAP;
  }

  height(width: number): number {
    return this.arrange(width) + legendHeight(LEGEND, width - 2 * EDGE);
  }

  draw(renderer: Renderer, width: number): void {
    const y = this.arrange(width);
    for (const box of this.boxes) this.drawBox(renderer, box);
    legend(renderer, this.shades, EDGE, y, width - 2 * EDGE, LEGEND, [0, 50, 100]);
  }

  private drawBox(renderer: Renderer, box: Box): void {
    const { panel, x, y, cw, ch } = box;
    const cells = this.graph.arrays.get(panel.cells);
    const bins: number[][] = this.shades.map(() => []);
    const blank: number[] = [];
    const inset = cw >= 5 && ch >= 5 ? 0.5 : 0;
    cells.forEach((place, i) => {
      if (place < 0) return;
      const left = x + (i % panel.columns) * cw;
      const top = y + Math.floor(i / panel.columns) * ch;
      const value = this.graph.percent(this.choice.step, place);
      const bin = Math.min(Math.round((value / 100) * (bins.length - 1)), bins.length - 1);
      (Number.isNaN(value) ? blank : (bins[bin] ?? blank)).push(
        left,
        top,
        cw - inset,
        ch - inset,
      );
    });
    renderer.rects(blank, "hatch");
    bins.forEach((bin, i) => renderer.rects(bin, this.shades[i] ?? INK));
    renderer.frame(x - 0.5, y - 0.5, panel.columns * cw + 1, panel.rows * ch + 1, "#c3cad1", 1);
    renderer.text(panel.title, x, y - 8, { size: 10.5, colour: MUTED });
  }

  overlay(renderer: Renderer): void {
    const { feature } = this.choice;
    const members = new Set(feature < 0 ? [] : this.graph.members(feature));
    for (const { panel, x, y, cw, ch } of this.boxes) {
      this.graph.arrays.get(panel.cells).forEach((place, i) => {
        if (!members.has(place)) return;
        const left = x + (i % panel.columns) * cw;
        const top = y + Math.floor(i / panel.columns) * ch;
        renderer.frame(left - 1, top - 1, cw + 2, ch + 2, SELECTED, 2);
      });
    }
    const box = this.spot && this.boxes[this.spot.panel];
    if (!this.spot || !box) return;
    const left = box.x + (this.spot.cell % box.panel.columns) * box.cw;
    const top = box.y + Math.floor(this.spot.cell / box.panel.columns) * box.ch;
    renderer.frame(left - 2, top - 2, box.cw + 4, box.ch + 4, INK, 2);
  }

  private hit(px: number, py: number): Spot | null {
    for (const [number, { panel, x, y, cw, ch }] of this.boxes.entries()) {
      const column = Math.floor((px - x) / cw);
      const row = Math.floor((py - y) / ch);
      if (column >= 0 && column < panel.columns && row >= 0 && row < panel.rows) {
        const spot = { panel: number, cell: row * panel.columns + column };
        return placeAt(this.graph, spot) < 0 ? null : spot;
      }
    }
    return null;
  }
}
