// Tori as rings and slices, dragonflies as groups: cells that show the worst of their links.

import type { GridMeta, Model } from "./data";
import { estimate } from "./detail";
import type { Renderer } from "./renderer";
import { fitted, INK, MUTED, SELECTED } from "./renderer";
import type { Legend, Rect } from "./scale";
import { CHANGE_TICKS, CHANGES, dot, legend, legendHeight, SHADES, TITLES } from "./scale";
import type { Store } from "./state";
import { onlyMarks } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";
import { LinkValues } from "./values";

const LEFT = 32;
const HEAD = 22;
const FOOT = 40;
/** Space between two grids, for the numbers of the rows. */
const GAP = 34;
/** Space for a number beside or below cells. */
const NUMBER = { size: 10.5, wide: 24, tall: 13 };

interface PlacedGrid {
  grid: GridMeta;
  /** Links of each cell. */
  links: number[][];
  x: number;
  y: number;
  cw: number;
  ch: number;
}

/** The smallest of 1, 2, 5, 10, … that is at least a number. */
function stride(least: number): number {
  let step = 1;
  for (let i = 0; step < least; i++) step = [2, 5, 10][i % 3]! * 10 ** Math.floor(i / 3);
  return step;
}

export class Grids implements Drawing {
  readonly surface: Surface;
  private places: PlacedGrid[] = [];
  private readonly shown: LinkValues;
  private readonly cells: number[][][];
  private readonly tip: Tip;
  private cursor: [number, number] | null = null;

  constructor(
    private readonly model: Model,
    private readonly grids: GridMeta[],
    private readonly store: Store,
    canvas: HTMLCanvasElement,
  ) {
    this.shown = new LinkValues(model, store);
    this.cells = grids.map((grid) => {
      const out = Array.from({ length: grid.rows * grid.columns }, () => [] as number[]);
      const link = model.arrays.get(grid.link);
      model.arrays.get(grid.cell).forEach((cell, i) => out[cell]?.push(link[i] ?? 0));
      return out;
    });
    this.surface = new Surface(canvas, this);
    this.tip = new Tip(canvas, (x, y) => this.facts(this.hit(x, y)));
    canvas.addEventListener("click", (event) => this.choose(this.hit(...pointer(event, canvas))));
    canvas.addEventListener("keydown", (event) => this.key(event));
    store.listen((_, changed) => {
      if (onlyMarks(changed)) this.surface.refresh();
      else this.surface.redraw();
    });
  }

  private words(): Legend {
    return {
      title: this.shown.change ? CHANGES.congestion : TITLES.congestion,
      noData: "no data, or too few samples",
    };
  }

  /** Arrange wide grids two to a row, square ones as many as fit; returns the lower end. */
  private arrange(width: number): number {
    this.places = [];
    let [x, y, tall] = [LEFT, 0, 0];
    this.grids.forEach((grid, g) => {
      const across = width < 640 ? 1 : 2;
      const room = grid.wide ? (width - LEFT - GAP * across) / across : Math.min(150, width - LEFT - GAP);
      const big = this.grids.length === 1 ? Math.min(width - LEFT - GAP, 420) : room;
      const cw = Math.max(big / grid.columns, 1);
      const ch = grid.wide ? Math.min(Math.max(150 / grid.rows, 2), 12) : cw;
      if (x > LEFT && (x + cw * grid.columns > width || grid.wide !== this.grids[g - 1]?.wide)) {
        [x, y, tall] = [LEFT, y + tall, 0];
      }
      this.places.push({ grid, links: this.cells[g] ?? [], x, y: y + HEAD, cw, ch });
      tall = Math.max(tall, HEAD + ch * grid.rows + FOOT);
      x += cw * grid.columns + GAP;
    });
    return y + tall;
  }

  height(width: number): number {
    return this.arrange(width) + 14 + legendHeight(this.words(), width - LEFT);
  }

  /** The link of a cell with the highest value, or the largest change; −1 without data. */
  private worst(links: number[], value: (link: number) => number): number {
    let [best, most] = [-1, -1];
    for (const link of links) {
      const at = Math.abs(value(link));
      if (at > most) [best, most] = [link, at];
    }
    return best;
  }

  draw(renderer: Renderer, width: number): void {
    const bottom = this.arrange(width);
    const value = this.shown.values("congestion");
    const bins: number[][] = Array.from({ length: SHADES }, () => []);
    const blank: number[] = [];
    const less: number[] = [];
    for (const { grid, links, x, y, cw, ch } of this.places) {
      links.forEach((of, cell) => {
        if (of.length === 0) return;
        const box: Rect = [x + (cell % grid.columns) * cw, y + Math.floor(cell / grid.columns) * ch,
          cw > 4 ? cw - 0.5 : cw, ch > 4 ? ch - 0.5 : ch];
        const best = this.worst(of, value);
        const at = best < 0 ? NaN : value(best);
        (Number.isNaN(at) ? blank : (bins[this.shown.shade(at)] ?? blank)).push(...box);
        if (this.shown.change) less.push(...dot(box, at));
      });
    }
    renderer.rects(blank, "hatch");
    const colours = this.shown.colours("congestion");
    bins.forEach((bin, i) => renderer.rects(bin, colours[i] ?? INK));
    renderer.rects(less, "#fff");
    for (const { grid, x, y, cw, ch } of this.places) {
      const [w, h] = [cw * grid.columns, ch * grid.rows];
      renderer.frame(x - 0.5, y - 0.5, w + 1, h + 1, "#c3cad1", 1);
      renderer.text(fitted(grid.name, 11.5, Math.max(w, 140)), x, y - 10, { size: 11.5 });
      const axes = fitted(`→ ${grid.x}, ↓ ${grid.y}`, 10.5, Math.max(w, 100));
      renderer.text(axes, x, y + h + 25, { size: 10.5, colour: MUTED });
      this.number(renderer, grid, [x, y, cw, ch]);
    }
    const ticks = this.shown.change ? CHANGE_TICKS : undefined;
    legend(renderer, colours, LEFT, bottom + 14, width - LEFT, this.words(), ticks);
  }

  /** Numbers of columns and rows, as many as there is room for. */
  private number(renderer: Renderer, { columns, rows }: GridMeta, [x, y, cw, ch]: Rect): void {
    const { size, wide, tall } = NUMBER;
    const style = { size, colour: MUTED };
    for (let column = 0, step = stride(wide / cw); column < columns; column += step) {
      renderer.text(String(column), x + (column + 0.5) * cw, y + rows * ch + 10, { ...style, align: "middle" });
    }
    for (let row = 0, step = stride(tall / ch); row < rows; row += step) {
      renderer.text(String(row), x - 5, y + (row + 0.5) * ch, { ...style, align: "end" });
    }
  }

  overlay(renderer: Renderer): void {
    const { link } = this.store.now;
    const mark = (place: PlacedGrid, cell: number, colour: string): void => {
      const x = place.x + (cell % place.grid.columns) * place.cw;
      const y = place.y + Math.floor(cell / place.grid.columns) * place.ch;
      renderer.frame(x - 2, y - 2, place.cw + 4, place.ch + 4, colour, 2);
    };
    if (link >= 0) {
      for (const place of this.places) {
        const cell = place.links.findIndex((of) => of.includes(link));
        if (cell >= 0) mark(place, cell, SELECTED);
      }
    }
    const at = this.cursor && this.places[this.cursor[0]];
    if (this.cursor && at) mark(at, this.cursor[1], INK);
  }

  private hit(px: number, py: number): [number, number] | null {
    for (const [index, { grid, x, y, cw, ch }] of this.places.entries()) {
      const [column, row] = [Math.floor((px - x) / cw), Math.floor((py - y) / ch)];
      if (column >= 0 && column < grid.columns && row >= 0 && row < grid.rows) {
        return [index, row * grid.columns + column];
      }
    }
    return null;
  }

  private facts(at: [number, number] | null): string[] | null {
    const place = at && this.places[at[0]];
    if (!at || !place) return null;
    const [row, column] = [Math.floor(at[1] / place.grid.columns), at[1] % place.grid.columns];
    const head = `${place.grid.name}; ${place.grid.x} ${column}, ${place.grid.y} ${row}`;
    const best = this.worst(place.links[at[1]] ?? [], this.shown.values("congestion"));
    if (best < 0) return [head, "no data"];
    const said = this.shown.views().map((view) => estimate(view, best)).join(" → ");
    return [head, this.model.linkName(best), `congested fraction ${said}`];
  }

  private choose(at: [number, number] | null): void {
    this.cursor = at;
    const links = at && this.places[at[0]]?.links[at[1]];
    const best = this.worst(links ?? [], this.shown.values("congestion"));
    this.store.choose(this.model, best >= 0 ? best : (links?.[0] ?? -1));
    this.surface.refresh();
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = {
      ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
    };
    if (event.key === "Escape") this.choose(null);
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const [index, cell] = this.cursor ?? [0, 0];
    const { grid } = this.places[index]!;
    const column = (cell % grid.columns) + (this.cursor ? step[0] : 0);
    const row = Math.floor(cell / grid.columns) + (this.cursor ? step[1] : 0);
    let next: [number, number] = [index, row * grid.columns + column];
    // Over the edge of a grid lies the one beside it.
    if (column < 0 || row < 0) next = [Math.max(index - 1, 0), 0];
    else if (column >= grid.columns || row >= grid.rows) next = [Math.min(index + 1, this.places.length - 1), 0];
    this.choose(next);
    const place = this.places[next[0]]!;
    this.tip.show(this.facts(next), place.x, place.y + place.ch);
  }
}
