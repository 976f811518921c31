// The congested-fraction plot: tiers in rows, pods in columns, hosts under their leaf.

import type { Model, Numbers } from "./data";
import { linkFacts } from "./detail";
import type { Renderer } from "./renderer";
import { INK, MUTED, SELECTED, textWidth } from "./renderer";
import type { Legend } from "./scale";
import { CHANGE_TICKS, CHANGES, TITLES, UNCERTAIN_WORDS, WIDE_INTERVAL, legend, legendHeight, SHADES } from "./scale";
import type { Store } from "./state";
import { onlyMarks } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";
import { LinkValues } from "./values";

const LEFT = 100;
const TOP = 24;
const RIGHT = 12;
const ABOVE_LEGEND = 14;
const HOST_GAP = 14;
const WIDTHS = 8;
const LESS = [4, 2];
const [ROOT, WAITING] = ["●", "○"];
/** Links below which there is room for thicker lines. */
const FEW = 200;
/** Roots that have a label: more would hide the network. */
const NAMED_ROOTS = 4;

export class FabricPlot implements Drawing {
  readonly surface: Surface;
  private readonly segments: Numbers;
  private readonly halves: Numbers;
  private readonly switchX: Numbers;
  private readonly switchY: Numbers;
  private readonly nodeX: Numbers;
  private readonly nodeRow: Numbers;
  private readonly ejection: Numbers;
  private readonly shown: LinkValues;
  private zoom = 1;
  private panX = 0;
  private panY = 0;
  private most = 1;
  private width = 0;
  private height_ = 0;
  /** Height of the legend with the room above it. */
  private under = 0;

  constructor(
    private readonly model: Model,
    private readonly store: Store,
    private readonly canvas: HTMLCanvasElement,
  ) {
    const { layout } = model.payload;
    const get = (ref: Parameters<typeof model.arrays.get>[0]): Numbers => model.arrays.get(ref);
    this.segments = get(layout.segments);
    this.halves = get(layout.halves);
    this.switchX = get(layout.switch_x);
    this.switchY = get(layout.switch_y);
    this.nodeX = get(layout.node_x);
    this.nodeRow = get(layout.node_row);
    this.ejection = model.ejection;
    this.shown = new LinkValues(model, store);
    // Widths are comparable between phases and runs: one largest value for all of them.
    model.payload.datasets.forEach((_, d) => {
      const whole = model.view(d, null, null)?.weight ?? [];
      for (const link of this.halves) this.most = Math.max(this.most, whole[link] ?? 0);
    });
    this.surface = new Surface(canvas, this);
    new Tip(canvas, (x, y) => linkFacts(model, store, this.hit(x, y)));
    this.connect();
    store.listen((_, changed) => {
      if (onlyMarks(changed)) this.surface.refresh();
      else this.surface.redraw();
    });
  }

  /** Height between two tiers: the picture fills the first screen beside the answer. */
  private get pitch(): number {
    return this.model.payload.layout.tiers === 2 ? 200 : 130;
  }

  private rowHeight(): number {
    return Math.max(3, Math.min(8, 150 / this.model.payload.layout.node_rows));
  }

  private hostsHeight(): number {
    return HOST_GAP + this.model.payload.layout.node_rows * this.rowHeight() + 22;
  }

  height(width: number): number {
    const { tiers } = this.model.payload.layout;
    this.under = ABOVE_LEGEND + legendHeight(this.words(), width - LEFT + 8 - RIGHT);
    return TOP + Math.max(tiers - 1, 0) * this.pitch + this.hostsHeight() + this.under;
  }

  private words(): Legend {
    const { quantity } = this.store.now;
    const { roots, waiting } = this.model.payload.marks;
    const marks = (roots.length ? `${ROOT} root: congestion begins here. ` : "") +
      (waiting.length ? `${WAITING} waits for another link. ` : "");
    return {
      title: this.shown.change ? CHANGES[quantity].replace("dot", "dashed") : TITLES[quantity],
      noData: "no packet sampled, or too few: no data, not zero (cables: not drawn)",
      ...(quantity === "congestion" ? { uncertain: UNCERTAIN_WORDS } : {}),
      note: `${marks}Each edge is a cable: its upper half is the link up, its lower half the ` +
        "link down. Width: packets (square root). Box: the link into a host.",
    };
  }

  private x(value: number): number {
    const span = this.width - LEFT - RIGHT;
    return LEFT + ((value / this.model.payload.layout.width) * span - this.panX) * this.zoom;
  }

  /** Pixel row of a tier, leaves at 0. */
  private y(value: number): number {
    const { tiers } = this.model.payload.layout;
    const plain = (tiers - 1 - value) * this.pitch;
    return TOP + (plain - this.panY) * this.zoom;
  }

  private hostBox(node: number): [number, number, number, number] {
    const { layout } = this.model.payload;
    const left = this.nodeX[node] ?? NaN;
    const x = this.x(left);
    const row = this.rowHeight() * this.zoom;
    const y = this.y(0) + HOST_GAP * this.zoom + (this.nodeRow[node] ?? 0) * row;
    const w = this.x(left + layout.node_width) - x;
    return [x, y, Math.max(w * 0.92, 0.6), Math.max(row * 0.86, 0.6)];
  }

  draw(renderer: Renderer, width: number, height: number): void {
    this.width = width;
    this.height_ = height;
    renderer.clip(LEFT - 8, 0, width - LEFT + 8, height - this.under);
    this.drawCables(renderer);
    this.drawHosts(renderer);
    const spots: number[] = [];
    for (let s = 0; s < this.switchX.length; s++) {
      spots.push(this.x(this.switchX[s] ?? 0), this.y(this.switchY[s] ?? 0));
    }
    const pitch = this.x(1) - this.x(0);
    renderer.circles(spots, Math.max(2, Math.min(5, pitch * 0.36)), "#fff", MUTED);
    this.drawMarks(renderer);
    this.drawNames(renderer, pitch);
    const below = this.y(0) + (this.hostsHeight() - 12) * this.zoom;
    for (const [pod, left, right] of this.model.payload.layout.pods) {
      const room = this.x(right) - this.x(left);
      if (pod < 0 || room < 12) continue;
      const middle = (this.x(left) + this.x(right)) / 2;
      renderer.text(room < 46 ? String(pod) : `pod ${pod}`, middle, below, { size: 11, align: "middle", colour: MUTED });
    }
    renderer.unclip();
    this.drawLabels(renderer, height);
  }

  /** Dots on the links at which congestion begins, circles on those that wait for others. */
  private drawMarks(renderer: Renderer): void {
    const { roots, waiting } = this.model.payload.marks;
    const rooted = this.spots(roots);
    if (rooted.length <= 2 * NAMED_ROOTS) this.nameRoots(renderer, rooted);
    renderer.circles(this.spots(waiting), 4, "#fff", INK);
    renderer.circles(rooted, 5, INK, "#fff");
  }

  /** The word beside each dot, right or left of it; the legend explains a dot without room. */
  private nameRoots(renderer: Renderer, rooted: readonly number[]): void {
    const wide = textWidth("root", 11) + 6;
    const taken: [number, number, number][] = [];
    for (let i = 0; i < rooted.length; i += 2) taken.push([(rooted[i] ?? 0) - 6, (rooted[i] ?? 0) + 6, rooted[i + 1] ?? 0]);
    for (let i = 0; i < rooted.length; i += 2) {
      const [x = 0, y = 0] = [rooted[i], rooted[i + 1]];
      const left = [x + 8, x - 8 - wide].find((at) =>
        taken.every(([from, to, height]) => at + wide < from || at > to || Math.abs(height - y) > 13));
      if (left === undefined) continue;
      taken.push([left, left + wide, y]);
      renderer.rects([left, y - 7, wide, 14], "rgba(255,255,255,0.85)");
      renderer.text("root", left + 3, y, { size: 11 });
    }
  }

  /** The middle of what is drawn for each link; links that are not drawn are left out. */
  private spots(links: readonly number[]): number[] {
    return links.flatMap((link) => {
      const half = this.halves.indexOf(link);
      if (half >= 0) {
        const [x0, y0, x1, y1] = this.line(half);
        return [(x0 + x1) / 2, (y0 + y1) / 2];
      }
      const node = this.ejection.indexOf(link);
      if (node < 0 || Number.isNaN(this.nodeX[node] ?? NaN)) return [];
      const [x, y, w, h] = this.hostBox(node);
      return [x + w / 2, y + h / 2];
    });
  }

  /** Names of the switches, where there is room between them. */
  private drawNames(renderer: Renderer, pitch: number): void {
    const names = this.model.payload.switch_names;
    names.forEach((name, s) => {
      const [x, y] = [this.x(this.switchX[s] ?? 0), this.y(this.switchY[s] ?? 0)];
      if (x < LEFT || x > this.width || textWidth(name, 10) + 6 > pitch) return;
      const wide = textWidth(name, 10) + 4;
      renderer.rects([x - wide / 2, y - 18, wide, 12], "rgba(255,255,255,0.8)");
      renderer.text(name, x, y - 12, { size: 10, align: "middle" });
    });
  }

  private drawLabels(renderer: Renderer, height: number): void {
    const names = this.model.payload.layout.tier_names;
    const style = { size: 12, align: "end", colour: MUTED } as const;
    names.forEach((name, tier) => {
      if (this.y(tier) > 0 && this.y(tier) < height - this.under) {
        renderer.text(name, LEFT - 14, this.y(tier), style);
      }
    });
    const hosts = this.y(0) + (this.hostsHeight() / 2) * this.zoom;
    if (hosts < height - this.under) renderer.text("hosts", LEFT - 14, hosts, style);
    const colours = this.shown.colours(this.store.now.quantity);
    const ticks = this.shown.change ? CHANGE_TICKS : undefined;
    const [y, room] = [height - this.under + ABOVE_LEGEND, this.width - LEFT + 8 - RIGHT];
    legend(renderer, colours, LEFT - 8, y, room, this.words(), ticks);
  }

  private drawCables(renderer: Renderer): void {
    const value = this.shown.values(this.store.now.quantity);
    const weight = this.shown.weights();
    const halfInterval = this.store.now.quantity === "congestion" ? this.shown.halfIntervals() : () => 0;
    const bins = new Map<number, number[]>();
    for (let h = 0; h < this.halves.length; h++) {
      const link = this.halves[h] ?? 0;
      const at = value(link);
      if (Number.isNaN(at)) continue;
      const wide = Math.sqrt(Math.min(weight(link) / this.most, 1));
      const pale = halfInterval(link) > WIDE_INTERVAL ? 50 : 0;
      const key = this.shown.shade(at) * 100 + pale + Math.max(1, Math.round(wide * WIDTHS));
      let bin = bins.get(key);
      if (!bin) bins.set(key, (bin = []));
      bin.push(...this.line(h));
    }
    const grow = Math.min(this.zoom, 2.5) * (this.halves.length < FEW ? 1.8 : 1);
    const colours = this.shown.colours(this.store.now.quantity);
    // The strongest are on top: in a difference, both ends of the scale.
    const middle = this.shown.change ? (SHADES - 1) / 2 : 0;
    const strength = (key: number): number => Math.abs(Math.floor(key / 100) - middle);
    for (const key of [...bins.keys()].sort((a, b) => strength(a) - strength(b) || a - b)) {
      const shade = Math.floor(key / 100);
      const width = (0.25 + ((key % 50) / WIDTHS) * 2.4) * grow;
      const colour = `${colours[shade] ?? INK}${key % 100 >= 50 ? "59" : ""}`;
      renderer.lines(bins.get(key) ?? [], colour, width, shade < middle - 1 ? LESS : []);
    }
  }

  private line(half: number): [number, number, number, number] {
    const at = 4 * half;
    return [
      this.x(this.segments[at] ?? 0),
      this.y(this.segments[at + 1] ?? 0),
      this.x(this.segments[at + 2] ?? 0),
      this.y(this.segments[at + 3] ?? 0),
    ];
  }

  private drawHosts(renderer: Renderer): void {
    const value = this.shown.values(this.store.now.quantity);
    const colours = this.shown.colours(this.store.now.quantity);
    const bins: number[][] = Array.from({ length: SHADES }, () => []);
    const blank: number[] = [];
    const unsure: number[] = [];
    const halfInterval = this.store.now.quantity === "congestion" ? this.shown.halfIntervals() : () => 0;
    for (let node = 0; node < this.nodeX.length; node++) {
      if (Number.isNaN(this.nodeX[node] ?? NaN)) continue;
      const link = this.ejection[node] ?? -1;
      const at = link < 0 ? NaN : value(link);
      const target = Number.isNaN(at) ? blank : (bins[this.shown.shade(at)] ?? blank);
      const box = this.hostBox(node);
      target.push(...box);
      if (link >= 0 && target !== blank && halfInterval(link) > WIDE_INTERVAL) unsure.push(...box);
    }
    renderer.rects(blank, "hatch");
    bins.forEach((bin, i) => renderer.rects(bin, colours[i] ?? INK));
    renderer.rects(unsure, "uncertain");
  }

  overlay(renderer: Renderer): void {
    const { link, nodes } = this.store.now;
    renderer.clip(LEFT - 8, 0, this.width - LEFT + 8, this.height_ - this.under);
    for (const node of this.model.hostsBehind(link)?.hosts ?? []) {
      renderer.frame(...this.hostBox(node), SELECTED, 0.7);
    }
    const half = link < 0 ? -1 : this.halves.indexOf(link);
    if (half >= 0) {
      const [x0, y0, x1, y1] = this.line(half);
      renderer.lines([x0, y0, x1, y1], "#fff", 7);
      renderer.lines([x0, y0, x1, y1], SELECTED, 3.5);
      renderer.circles([x1, y1], 5, SELECTED, "#fff");
    }
    for (const node of nodes) {
      const [x, y, w, h] = this.hostBox(node);
      renderer.frame(x - 2, y - 2, w + 4, h + 4, SELECTED, 2);
    }
    renderer.unclip();
  }

  /** Link nearest to a point; -1 if none is close enough. */
  private hit(px: number, py: number): number {
    for (let node = 0; node < this.nodeX.length; node++) {
      const [x, y, w, h] = this.hostBox(node);
      if (px >= x && px <= x + w + 1 && py >= y && py <= y + h + 1) {
        return this.ejection[node] ?? -1;
      }
    }
    const value = this.shown.values(this.store.now.quantity);
    let best = -1;
    let score = Infinity;
    for (let h = 0; h < this.halves.length; h++) {
      const link = this.halves[h] ?? 0;
      const strong = Math.abs(value(link));
      if (Number.isNaN(strong)) continue;
      const distance = toSegment(px, py, this.line(h));
      // Where lines cross, the darker one is on top and is selected.
      if (distance <= 5 && distance - 4 * strong < score) {
        score = distance - 4 * strong;
        best = link;
      }
    }
    return best;
  }

  private zoomBy(factor: number, px: number, py: number): void {
    const before = this.zoom;
    this.zoom = Math.min(Math.max(this.zoom * factor, 1), 24);
    this.panX += (px - LEFT) * (1 / before - 1 / this.zoom);
    this.panY += (py - TOP) * (1 / before - 1 / this.zoom);
    this.keepInside();
    this.surface.redraw();
  }

  private keepInside(): void {
    const free = 1 - 1 / this.zoom;
    this.panX = Math.min(Math.max(this.panX, 0), (this.width - LEFT) * free);
    this.panY = Math.min(Math.max(this.panY, 0), (this.height_ - this.under) * free);
  }

  /** Step through the links of the selection, most congested (or changed) packets first. */
  private step(by: number): void {
    const value = this.shown.values(this.store.now.quantity);
    const weight = this.shown.weights();
    const met = (link: number): number => Math.abs(value(link)) * weight(link);
    const drawn = [...this.halves].filter((link) => weight(link) > 0);
    drawn.sort((a, b) => met(b) - met(a) || a - b);
    if (drawn.length === 0) return;
    const at = drawn.indexOf(this.store.now.link);
    const next = at < 0 ? 0 : (at + by + drawn.length) % drawn.length;
    this.store.choose(this.model, drawn[next] ?? -1);
  }

  private connect(): void {
    const { canvas } = this;
    let drag: [number, number] | null = null;
    let moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      drag = pointer(event, canvas);
      moved = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = pointer(event, canvas);
      if (!drag || this.zoom === 1) return;
      if (Math.hypot(x - drag[0], y - drag[1]) > 3) moved = true;
      if (!moved) return;
      this.panX -= (x - drag[0]) / this.zoom;
      this.panY -= (y - drag[1]) / this.zoom;
      drag = [x, y];
      this.keepInside();
      this.surface.redraw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (!moved) this.store.choose(this.model, this.hit(...pointer(event, canvas)));
      drag = null;
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 300), ...pointer(event, canvas));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const middle: [number, number] = [this.width / 2, this.height_ / 3];
      const keys: Record<string, () => void> = {
        ArrowRight: () => this.step(1),
        ArrowDown: () => this.step(1),
        ArrowLeft: () => this.step(-1),
        ArrowUp: () => this.step(-1),
        "+": () => this.zoomBy(1.5, ...middle),
        "-": () => this.zoomBy(1 / 1.5, ...middle),
        "0": () => this.zoomBy(1e-9, ...middle),
        Escape: () => this.store.choose(this.model, -1),
      };
      const action = keys[event.key];
      if (!action || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      action();
    });
  }

  /** Zoom by a button: in, out, or reset. */
  zoomButton(kind: string): void {
    const factor = kind === "in" ? 1.5 : kind === "out" ? 1 / 1.5 : 1e-9;
    this.zoomBy(factor, this.width / 2, this.height_ / 3);
  }
}

function toSegment(px: number, py: number, line: [number, number, number, number]): number {
  const [x0, y0, x1, y1] = line;
  const dx = x1 - x0;
  const dy = y1 - y0;
  const along = ((px - x0) * dx + (py - y0) * dy) / Math.max(dx * dx + dy * dy, 1e-9);
  const t = Math.min(Math.max(along, 0), 1);
  return Math.hypot(px - x0 - t * dx, py - y0 - t * dy);
}
