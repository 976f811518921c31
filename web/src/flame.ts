// The back-pressure flame graph: saturated links at the bottom, above them what waits on them.

import { timeUnit } from "./axis";
import type { Flames, Frame, Model } from "./data";
import type { Renderer } from "./renderer";
import { fitted, INK, SELECTED, textWidth } from "./renderer";
import { shades, SHADES } from "./scale";
import type { Store } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";

const ROW = 22;
const NARROWEST = 22;

/** A rank's number alone where its name does not fit: a part of its name would say nothing. */
function shortRank(name: string, room: number): string {
  const number = /^rank (\d+)$/.exec(name)?.[1];
  return number && textWidth(name, 11) > room ? number : name;
}

interface Box {
  frame: Frame;
  parent: Box | null;
  x: number;
  row: number;
  w: number;
}

export class Flame implements Drawing {
  readonly surface: Surface;
  private tree = 0;
  private zoomed: Frame[] = [];
  private boxes: Box[] = [];
  private at: Box | null = null;
  private readonly colours: string[];
  private readonly changes: string[];
  private panel: HTMLElement | null = null;
  private select: HTMLSelectElement | null = null;

  constructor(
    private readonly model: Model,
    private readonly flames: Flames,
    private readonly store: Store,
    private readonly canvas: HTMLCanvasElement,
  ) {
    this.colours = shades(model, "stall");
    this.changes = shades(model, "change");
    this.surface = new Surface(canvas, this);
    new Tip(canvas, (_, y) => (this.at && y > 0 ? this.facts(this.at) : null));
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("click", (event) => this.enter(this.hit(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
    store.listen((choice, changed) => {
      if (changed.has("dataset")) this.follow(choice.dataset === model.changeIndex);
      this.surface.refresh();
    });
  }

  /** Show the change where the other views do. */
  private follow(change: boolean): void {
    const tree = this.flames.trees.findIndex((other) => other.change === change);
    if (tree < 0 || this.flames.trees[this.tree]?.change === change) return;
    this.tree = tree;
    if (this.select) this.select.value = String(tree);
    this.zoom([]);
  }

  connectSelector(select: HTMLSelectElement, panel: HTMLElement): void {
    this.panel = panel;
    this.select = select;
    this.flames.trees.forEach((tree, index) => {
      const option = document.createElement("option");
      option.value = String(index);
      option.textContent = tree.name;
      select.append(option);
    });
    select.addEventListener("change", () => {
      this.tree = Number(select.value);
      this.zoom([]);
    });
  }

  private top(): Frame {
    const found = this.flames.trees[this.tree];
    if (!found) throw new Error(`no flame graph ${this.tree}`);
    return this.zoomed[this.zoomed.length - 1] ?? found.top;
  }

  height(): number {
    const deep = (frame: Frame): number => 1 + Math.max(0, ...frame[4].map(deep));
    const all = this.flames.trees.map((tree) => deep(tree.top));
    return Math.max(...all) * ROW + 4;
  }

  draw(renderer: Renderer, width: number, height: number): void {
    this.boxes = [];
    const top = this.top();
    const place = (frame: Frame, parent: Box | null, x: number, row: number, w: number): void => {
      if (w < 0.4) return;
      const box = { frame, parent, x, row, w };
      this.boxes.push(box);
      let left = x;
      for (const child of frame[4]) {
        const wide = (w * child[2]) / Math.max(frame[2], 1);
        place(child, box, left, row + 1, wide);
        left += wide;
      }
    };
    place(top, null, 0, 0, width);
    for (const box of this.boxes) {
      const y = this.y(box, height);
      renderer.rects([box.x, y, Math.max(box.w - 1, 0.4), ROW - 2], this.colour(box));
      if (box.w < NARROWEST) continue;
      const name = box.row === 0 ? `${this.name(top)}: ${this.amount(top[2])}` : box.frame[0];
      const text = fitted(shortRank(name, box.w - 8), 11, box.w - 8);
      const colour = this.dark(box) ? "#fff" : INK;
      renderer.text(text, box.x + 4, y + ROW / 2 - 1, { size: 11, colour });
    }
  }

  overlay(renderer: Renderer): void {
    for (const box of this.boxes.filter((b) => this.chosen(b.frame))) {
      const y = this.y(box, this.surface.heightPx);
      renderer.frame(box.x + 1, y + 1, Math.max(box.w - 3, 1), ROW - 4, "#fff", 3);
      renderer.frame(box.x + 1, y + 1, Math.max(box.w - 3, 1), ROW - 4, SELECTED, 2);
    }
    if (!this.at) return;
    const y = this.y(this.at, this.surface.heightPx);
    renderer.frame(this.at.x, y, Math.max(this.at.w - 1, 2), ROW - 2, INK, 1.5);
  }

  /** Whether a box matches the selection made elsewhere: links of one bundle, a phase, a host. */
  private chosen(frame: Frame): boolean {
    const { link, nodes, dataset, selection } = this.store.now;
    const [, kind, , refers] = frame;
    if (refers < 0) return false;
    if (kind === "link") return link >= 0 && this.model.bundle[refers] === this.model.bundle[link];
    if (kind === "rank") return nodes.includes(refers);
    const phase = this.model.phases(dataset)[selection];
    return phase != null && this.model.phases(0)[refers + 1] === phase;
  }

  /** Number of boxes that match the selection made elsewhere. */
  get marked(): number {
    return this.boxes.filter((box) => this.chosen(box.frame)).length;
  }

  private y(box: Box, height: number): number {
    return height - (box.row + 1) * ROW - 2;
  }

  private name(frame: Frame): string {
    return frame[1] === "all" ? (this.change ? "both runs" : "all stall") : frame[0];
  }

  private amount(value: number): string {
    if (this.flames.unit === "packets") return `${value} congested packets`;
    const [unit, size] = timeUnit(value);
    return `${(value / size).toPrecision(3)} ${unit}`;
  }

  private get change(): boolean {
    return this.flames.trees[this.tree]?.change ?? false;
  }

  /** Change over the sum of both runs, −1 (gone) to 1 (new). */
  private relative(frame: Frame): number {
    return frame[2] > 0 ? frame[5] / frame[2] : 0;
  }

  private dark(box: Box): boolean {
    if (this.change) return Math.abs(this.relative(box.frame)) > 0.7;
    return box.frame[1] === "link" && box.frame[3] >= 0;
  }

  private colour(box: Box): string {
    const [, kind, , link] = box.frame;
    if (this.change) {
      const at = Math.round(((this.relative(box.frame) + 1) / 2) * (SHADES - 1));
      return this.changes[at] ?? INK;
    }
    if (kind === "line") return "#c3cad3";
    if (kind === "rank") return "#e8ebef";
    if (kind === "all") return "#dfe3e8";
    const depth = box.row + this.zoomed.length;
    return link < 0 ? "#d5d9de" : (this.colours[Math.max(54 - 6 * depth, 34)] ?? INK);
  }

  private hit(event: MouseEvent): Box | null {
    const [px, py] = pointer(event, this.canvas);
    const row = Math.floor((this.surface.heightPx - 2 - py) / ROW);
    return this.boxes.find((b) => b.row === row && px >= b.x && px < b.x + b.w) ?? null;
  }

  private point(event: MouseEvent): void {
    this.choose(this.hit(event));
  }

  private choose(box: Box | null): void {
    this.at = box;
    this.surface.refresh();
    if (this.panel && box) this.panel.textContent = this.facts(box).join(": ");
  }

  /** A box as text: its name, its amount, and its share of the total. */
  private facts({ frame }: Box): string[] {
    const all = this.flames.trees[this.tree]?.top[2] ?? 1;
    if (this.change) {
      const [, , sum, , , change] = frame;
      const [before, after] = [(sum - change) / 2, (sum + change) / 2];
      return [this.name(frame), `before ${this.amount(before)}, after ${this.amount(after)}`];
    }
    const share = (100 * frame[2]) / Math.max(all, 1);
    return [this.name(frame), `${this.amount(frame[2])}, ${share.toFixed(1)} % of all`];
  }

  /** Zoom into a box; the bottom one zooms out. */
  private enter(box: Box | null): void {
    if (!box) return;
    const [, kind, , refers] = box.frame;
    if (refers >= 0 && kind === "link") this.store.choose(this.model, refers);
    if (refers >= 0 && kind === "rank") this.store.chooseNodes(this.model, [refers]);
    if (refers >= 0 && kind === "line") this.choosePhase(refers + 1);
    if (box.row === 0) {
      this.zoom(this.zoomed.slice(0, -1));
      return;
    }
    const path: Frame[] = [];
    for (let b: Box | null = box; b && b.row > 0; b = b.parent) path.unshift(b.frame);
    if (box.frame[4].length) this.zoom([...this.zoomed, ...path]);
  }

  private choosePhase(selection: number): void {
    const phase = this.model.phases(0)[selection] ?? null;
    const here = this.model.phases(this.store.now.dataset).indexOf(phase);
    if (here >= 0) this.store.set({ selection: here });
  }

  private zoom(path: Frame[]): void {
    this.zoomed = path;
    this.at = null;
    this.surface.redraw();
  }

  private key(event: KeyboardEvent): void {
    const at = this.at ?? this.boxes[0] ?? null;
    if (!at) return;
    const { parent } = at;
    const beside = this.boxes.filter((b) => b.row === at.row).sort((a, b) => a.x - b.x);
    const place = beside.indexOf(at);
    const steps: Record<string, () => void> = {
      ArrowUp: () => this.choose(this.boxes.find((b) => b.parent === at) ?? at),
      ArrowDown: () => this.choose(parent ?? at),
      ArrowLeft: () => this.choose(beside[place - 1] ?? at),
      ArrowRight: () => this.choose(beside[place + 1] ?? at),
      Enter: () => this.enter(at),
      Escape: () => this.zoom(this.zoomed.slice(0, -1)),
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    step();
  }
}
