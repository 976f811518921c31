// Base class of plots with few items that respond to the pointer: bars, columns, points.

import type { Renderer } from "./renderer";
import { INK } from "./renderer";
import type { Rect } from "./scale";
import type { Drawing } from "./surface";
import { Surface } from "./surface";
import { Tip } from "./tooltip";

/** One item: its box, and the text of its tooltip. */
export interface Item {
  box: Rect;
  facts: string[];
}

export abstract class ItemPlot implements Drawing {
  readonly surface: Surface;
  protected items: Item[] = [];
  private at = -1;
  private readonly tip: Tip;

  constructor(readonly canvas: HTMLCanvasElement) {
    this.surface = new Surface(canvas, this);
    this.tip = new Tip(canvas, (x, y) => {
      const found = this.nearest(x, y);
      if (found !== this.at) this.surface.refresh();
      this.at = found;
      return this.items[found]?.facts ?? null;
    });
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("click", () => this.chosen(this.at));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  abstract height(width: number): number;

  /** Draw, and return the items that respond to the pointer. */
  protected abstract paint(renderer: Renderer, width: number, height: number): Item[];

  /** Called with the number of an item that was clicked, −1 for none. */
  protected chosen(_item: number): void {}

  draw(renderer: Renderer, width: number, height: number): void {
    this.items = this.paint(renderer, width, height);
  }

  overlay(renderer: Renderer): void {
    const item = this.items[this.at];
    if (!item) return;
    const [x, y, w, h] = item.box;
    renderer.frame(x - 1.5, y - 1.5, w + 3, h + 3, INK, 1.5);
  }

  private nearest(px: number, py: number): number {
    let [best, score] = [-1, 12];
    this.items.forEach(({ box: [x, y, w, h] }, i) => {
      const distance = Math.hypot(
        Math.max(x - px, 0, px - x - w), Math.max(y - py, 0, py - y - h),
      );
      if (distance < score) [best, score] = [i, distance];
    });
    return best;
  }

  private point(item: number): void {
    this.at = item;
    this.surface.refresh();
  }

  private key(event: KeyboardEvent): void {
    const step: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const by = step[event.key];
    if (event.key === "Enter") this.chosen(this.at);
    if (event.key === "Escape") this.tip.show(null, 0, 0);
    if (!by || this.items.length === 0) return;
    event.preventDefault();
    const next = Math.min(Math.max(this.at + (this.at < 0 ? 1 : by), 0), this.items.length - 1);
    this.point(next);
    const item = this.items[next]!;
    this.tip.show(item.facts, item.box[0] + item.box[2] / 2, item.box[1] + item.box[3] / 2);
  }
}
