// The fabric raster: one cell per directed link, without overlaps.

import type { BlockMeta, Model, Numbers } from "./data";
import { linkFacts } from "./detail";
import type { Renderer } from "./renderer";
import { fitted, INK, MUTED, SELECTED } from "./renderer";
import type { Legend, Rect } from "./scale";
import {
  CHANGE_TICKS, CHANGES, dot, UNCERTAIN_WORDS, WIDE_INTERVAL, legend, legendHeight, SHADES, TITLES,
} from "./scale";
import type { Store } from "./state";
import { onlyMarks } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";
import { LinkValues } from "./values";

const LEFT = 100;
const GAP = 14;
const HEAD = 16;
const RIGHT = 8;
const ABOVE_LEGEND = 14;

interface PlacedBlock {
  block: BlockMeta;
  cells: Numbers;
  x: number;
  y: number;
  cw: number;
  ch: number;
}

export class Raster implements Drawing {
  readonly surface: Surface;
  private places: PlacedBlock[] = [];
  /** Bands on which no packet was ever sampled: a line of text each, at a height. */
  private folded: [number, string][] = [];
  private readonly shown: LinkValues;
  private readonly where = new Map<number, [number, number]>();

  constructor(
    private readonly model: Model,
    private readonly store: Store,
    private readonly canvas: HTMLCanvasElement,
    private readonly onHover: (link: number) => void,
  ) {
    this.shown = new LinkValues(model, store);
    let index = 0;
    for (const band of model.payload.blocks) {
      for (const block of band) {
        model.arrays.get(block.cells).forEach((link, cell) => {
          if (link >= 0) this.where.set(link, [index, cell]);
        });
        index++;
      }
    }
    this.surface = new Surface(canvas, this);
    new Tip(canvas, (x, y) => linkFacts(model, store, this.hit(x, y)));
    this.connect();
    store.listen((_, changed) => {
      if (onlyMarks(changed)) this.surface.refresh();
      else this.surface.redraw();
    });
  }

  /** Arrange the blocks of a band side by side and the bands below each other; wide bands wrap. */
  private arrange(width: number): number {
    const bands = this.model.payload.blocks.filter((band) => this.sampled(band));
    const rows = bands.reduce((sum, b) => sum + Math.max(...b.map((c) => c.switches.length)), 0);
    const ch = Math.min(Math.max(Math.round(480 / Math.max(rows, 1)), 3), 14);
    this.places = [];
    let y = 4;
    for (const band of bands) {
      const ports = Math.max(...band.map((block) => block.ports));
      const room = width - LEFT - RIGHT;
      const fitting = Math.floor((room + GAP) / (ports * 2 + GAP));
      const across = Math.max(1, Math.min(band.length, fitting));
      const cw = Math.min(Math.max((room - (across - 1) * GAP) / (across * ports), 1), 14);
      for (let start = 0; start < band.length; start += across) {
        const line = band.slice(start, start + across);
        line.forEach((block, i) => {
          const x = LEFT + i * (ports * cw + GAP);
          const cells = this.model.arrays.get(block.cells);
          this.places.push({ block, cells, x, y: y + HEAD, cw, ch });
        });
        y += HEAD + Math.max(...line.map((block) => block.switches.length)) * ch + 10;
      }
    }
    this.folded = this.model.payload.blocks.filter((band) => !this.sampled(band)).map((band) => {
      const links = band.reduce(
        (sum, { cells }) => sum + this.model.arrays.get(cells).filter((link) => link >= 0).length, 0);
      y += HEAD;
      return [y - 4, `${band[0]?.band ?? ""}: no packet was sampled on any of its ${links} links`];
    });
    return y;
  }

  /** Whether any run has a sample of some link of a band. */
  private sampled(band: BlockMeta[]): boolean {
    return this.model.payload.datasets.some((_, run) => {
      const weight = this.model.view(run, null, null)?.weight ?? [];
      return band.some(({ cells }) =>
        this.model.arrays.get(cells).some((link) => link >= 0 && (weight[link] ?? 0) > 0));
    });
  }

  height(width: number): number {
    const legend = legendHeight(this.words(), width - LEFT - RIGHT);
    return this.arrange(width) + ABOVE_LEGEND + legend;
  }

  draw(renderer: Renderer, width: number): void {
    const bottom = this.arrange(width);
    const { quantity } = this.store.now;
    const colours = this.shown.colours(quantity);
    const value = this.shown.values(quantity);
    const halfInterval = quantity === "congestion" ? this.shown.halfIntervals() : () => 0;
    let band = "";
    for (const [y, text] of this.folded) renderer.text(fitted(text, 11, width - LEFT), LEFT, y, { size: 11, colour: MUTED });
    for (const place of this.places) {
      this.drawBlock(renderer, place, colours, value, halfInterval);
      if (place.block.band !== band) {
        band = place.block.band;
        const at = place.y + (place.block.switches.length * place.ch) / 2;
        renderer.text(band, LEFT - 10, at, { size: 12, align: "end", colour: MUTED });
      }
    }
    const ticks = this.shown.change ? CHANGE_TICKS : undefined;
    const room = width - LEFT - RIGHT;
    legend(renderer, colours, LEFT, bottom + ABOVE_LEGEND, room, this.words(), ticks);
  }

  private words(): Legend {
    const { quantity } = this.store.now;
    return {
      title: this.shown.change ? CHANGES[quantity] : TITLES[quantity],
      noData: quantity === "stall" ? "no data" : "no packet sampled, or too few: no data, not zero",
      ...(quantity === "congestion" ? { uncertain: UNCERTAIN_WORDS } : {}),
    };
  }

  private drawBlock(
    renderer: Renderer,
    place: PlacedBlock,
    colours: string[],
    value: (link: number) => number,
    halfInterval: (link: number) => number,
  ): void {
    const { block, x, y, cw, ch } = place;
    if (cw < 5 || ch < 5) this.drawDense(renderer, place, colours, value, halfInterval);
    else this.drawCells(renderer, place, colours, value, halfInterval);
    const w = block.ports * cw;
    const h = block.switches.length * ch;
    renderer.frame(x - 0.5, y - 0.5, w + 1, h + 1, "#c3cad1", 1);
    const last = block.first_port + block.ports - 1;
    const ports = `ports ${block.first_port}–${last}`;
    const pod = `${this.model.payload.grids?.kind === "dragonfly" ? "group" : "pod"} ${block.pod}`;
    const short = w < 110 ? fitted(pod, 10.5, w + 10) : `${pod}, ${ports}`;
    const title = block.pod < 0 ? ports : short;
    renderer.text(title, x, y - 8, { size: 10.5, colour: MUTED });
  }

  /** Small cells without gaps: one image for the shades, runs of cells for the uncertain ones. */
  private drawDense(
    renderer: Renderer, { block, cells, x, y, cw, ch }: PlacedBlock, colours: string[],
    value: (link: number) => number, halfInterval: (link: number) => number,
  ): void {
    const { ports } = block;
    const shades = new Int16Array(cells.length).fill(-1);
    // 1: no data, 2: uncertain.
    const marks = new Uint8Array(cells.length);
    const less: number[] = [];
    for (let i = 0; i < cells.length; i++) {
      const link = cells[i]!;
      if (link < 0) continue;
      const at = value(link);
      if (Number.isNaN(at)) marks[i] = 1;
      else {
        shades[i] = this.shown.shade(at);
        if (halfInterval(link) > WIDE_INTERVAL) marks[i] = 2;
        if (this.shown.change) {
          less.push(...dot([x + (i % ports) * cw, y + Math.floor(i / ports) * ch, cw, ch], at));
        }
      }
    }
    const runs: [number[], number[]] = [[], []];
    for (let i = 0, to = 1; i < marks.length; i = to, to++) {
      while (to % ports !== 0 && marks[to] === marks[i]) to++;
      runs[marks[i]! - 1]?.push(x + (i % ports) * cw, y + Math.floor(i / ports) * ch, (to - i) * cw, ch);
    }
    renderer.rects(runs[0], "hatch");
    renderer.cells([x, y, ports * cw, (cells.length / ports) * ch], ports, shades, colours);
    renderer.rects(runs[1], "uncertain");
    renderer.rects(less, "#fff");
  }

  private drawCells(
    renderer: Renderer, { block, cells, x, y, cw, ch }: PlacedBlock, colours: string[],
    value: (link: number) => number, halfInterval: (link: number) => number,
  ): void {
    const bins: number[][] = Array.from({ length: SHADES }, () => []);
    const blank: number[] = [];
    const less: number[] = [];
    const unsure: number[] = [];
    const inset = 0.5;
    cells.forEach((link, i) => {
      if (link < 0) return;
      const column = i % block.ports;
      const box: Rect = [
        x + column * cw,
        y + Math.floor(i / block.ports) * ch,
        cw - inset,
        ch - inset,
      ];
      const at = value(link);
      (Number.isNaN(at) ? blank : (bins[this.shown.shade(at)] ?? blank)).push(...box);
      if (this.shown.change) less.push(...dot(box, at));
      if (halfInterval(link) > WIDE_INTERVAL && !Number.isNaN(at)) unsure.push(...box);
    });
    renderer.rects(blank, "hatch");
    bins.forEach((bin, i) => renderer.rects(bin, colours[i] ?? INK));
    renderer.rects(unsure, "uncertain");
    renderer.rects(less, "#fff");
  }

  overlay(renderer: Renderer): void {
    const { link, nodes } = this.store.now;
    for (let host = 0; nodes.length > 0 && host < this.model.count; host++) {
      const ends = [this.model.src[host] ?? -1, this.model.dst[host] ?? -1];
      if (host !== link && ends.some((vertex) => nodes.includes(vertex))) this.mark(renderer, host, 1.2);
    }
    this.mark(renderer, link, 2);
  }

  private mark(renderer: Renderer, link: number, width: number): void {
    const found = this.where.get(link);
    const place = found && this.places[found[0]];
    if (!found || !place) return;
    const x = place.x + (found[1] % place.block.ports) * place.cw;
    const y = place.y + Math.floor(found[1] / place.block.ports) * place.ch;
    renderer.frame(x - 3, y - 3, place.cw + 6, place.ch + 6, "#fff", width + 2);
    renderer.frame(x - 3, y - 3, place.cw + 6, place.ch + 6, SELECTED, width);
  }

  private hit(px: number, py: number): number {
    for (const place of this.places) {
      const column = Math.floor((px - place.x) / place.cw);
      const row = Math.floor((py - place.y) / place.ch);
      const { ports, switches } = place.block;
      if (column >= 0 && column < ports && row >= 0 && row < switches.length) {
        return place.cells[row * ports + column] ?? -1;
      }
    }
    return -1;
  }

  /** Move to the next cable in a direction, across the gaps between blocks. */
  private move(dx: number, dy: number): void {
    const found = this.where.get(this.store.now.link);
    const place = found && this.places[found[0]];
    if (!found || !place) {
      const first = this.where.keys().next();
      if (!first.done) this.store.choose(this.model, first.value);
      return;
    }
    const x = place.x + ((found[1] % place.block.ports) + 0.5) * place.cw;
    const y = place.y + (Math.floor(found[1] / place.block.ports) + 0.5) * place.ch;
    const pace = dx ? place.cw : place.ch;
    for (let far = 1; far < 400; far++) {
      const link = this.hit(x + dx * far * pace, y + dy * far * pace);
      if (link >= 0 && link !== this.store.now.link) {
        this.store.choose(this.model, link);
        return;
      }
    }
  }

  private connect(): void {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => {
      this.onHover(this.hit(...pointer(event, canvas)));
    });
    canvas.addEventListener("pointerleave", () => this.onHover(-1));
    canvas.addEventListener("click", (event) => {
      this.store.choose(this.model, this.hit(...pointer(event, canvas)));
    });
    canvas.addEventListener("keydown", (event) => {
      const steps: Record<string, [number, number]> = {
        ArrowLeft: [-1, 0],
        ArrowRight: [1, 0],
        ArrowUp: [0, -1],
        ArrowDown: [0, 1],
      };
      if (event.key === "Escape") this.store.choose(this.model, -1);
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      this.move(...step);
    });
  }
}
