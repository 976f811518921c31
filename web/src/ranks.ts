// The rank timeline in measured time: what each rank did in each window, with waits by kind.

import { AXIS_HEIGHT, bottomAxis, linear, ticksOf, timeText, timeUnit } from "./axis";
import { Calls } from "./calls";
import type { Places, Span } from "./calls";
import type { Model, Numbers, RanksMeta } from "./data";
import { frameAt } from "./data";
import { listMessages } from "./messages";
import type { Renderer } from "./renderer";
import { fitted, INK, MUTED, SELECTED, textWidth } from "./renderer";
import type { Store } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";

// The same as in the link timeline below, so that the two line up.
const LEFT = 150;
const RIGHT = 14;
const TOP = 8;
const LINE = 18;
const SWATCH = 12;
const TALL = 360;
/** Rows at least this high show all activities in proportion, lower ones only the largest. */
const SPLIT = 6;
const FULL = 255;
/** How much a step of the zoom shows of what was shown, and a step aside moves it. */
const ZOOM = 0.5;
const ASIDE = 0.25;
/** Most of the zoom: so small a share of the measured time fills the width. */
const CLOSEST = 1e-6;

interface Cell {
  row: number;
  window: number;
}

export class RankTimeline implements Drawing {
  readonly surface: Surface;
  private readonly windows: number;
  private readonly rows: number;
  private readonly first: Numbers;
  private readonly node: Numbers;
  private readonly cells: Numbers[];
  /** Row of the data at each position from the top. */
  private order: number[];
  /** Part of the measured time that is drawn, and its single calls where they can be told apart. */
  private view: Span;
  private pieces: number[] | null = null;
  private arrowLegend = "";
  private readonly calls: Calls;
  private cursor: Cell | null = null;
  private hovered: Cell | null = null;
  /** Windows dragged over, and the span of frames they correspond to. */
  private brush: { span: [number, number]; time: readonly [number, number] | null } | null = null;
  private width = 0;

  constructor(
    private readonly model: Model,
    private readonly meta: RanksMeta,
    private readonly store: Store,
    private readonly canvas: HTMLCanvasElement,
  ) {
    this.windows = meta.edges_ps.length - 1;
    this.rows = meta.hosts.length;
    this.first = model.arrays.get(meta.first_rank);
    this.node = model.arrays.get(meta.node);
    this.cells = meta.kinds.map((kind) => model.arrays.get(kind.cells));
    this.order = Array.from({ length: this.rows }, (_, row) => row);
    this.view = this.entire;
    this.calls = new Calls(model, meta);
    this.surface = new Surface(canvas, this);
    this.connect();
    store.listen((choice) => {
      if (choice.time !== this.brush?.time) this.brush = null;
      if (choice.nodes.length === 0) this.cursor = null;
      this.surface.refresh();
    });
    store.listenPoint(() => this.surface.refresh());
  }

  private get rowHeight(): number {
    return Math.min(Math.max(Math.round(TALL / this.rows), 1), 14);
  }

  private get bottom(): number {
    return TOP + this.rows * this.rowHeight;
  }

  height(width: number): number {
    return this.bottom + AXIS_HEIGHT + LINE * this.legendLines(width).length + 6;
  }

  private get entire(): Span {
    return [0, this.meta.edges_ps[this.windows] ?? 0];
  }

  private get zoomed(): boolean {
    return this.view[1] - this.view[0] < this.entire[1];
  }

  /** Where a time is drawn, at the edges of the plot if it is outside of the view. */
  private xOf(ps: number): number {
    return Math.min(Math.max(this.unclipped(ps), LEFT), this.width - RIGHT);
  }

  private unclipped(ps: number): number {
    const [from, to] = this.view;
    return LEFT + ((ps - from) / Math.max(to - from, 1e-9)) * (this.width - LEFT - RIGHT);
  }

  private x(window: number): number {
    return Math.round(this.xOf(this.meta.edges_ps[window] ?? 0));
  }

  private psAt(px: number): number {
    const [from, to] = this.view;
    return from + ((px - LEFT) / Math.max(this.width - LEFT - RIGHT, 1)) * (to - from);
  }

  /** Show a part of the measured time. */
  private show(from: number, to: number): void {
    const [, end] = this.entire;
    const length = Math.min(Math.max(to - from, end * CLOSEST), end);
    const start = Math.min(Math.max(from, 0), end - length);
    this.view = [start, start + length];
    this.pieces = this.zoomed ? this.calls.within(this.view) : null;
    this.surface.redraw();
  }

  /** Zoom by a factor about a time, the middle of the view if none is given. */
  zoom(factor: number, about = (this.view[0] + this.view[1]) / 2): void {
    const [from, to] = this.view;
    this.show(about - (about - from) * factor, about + (to - about) * factor);
  }

  /** Show the selected time span, or where there is none, half of what is shown. */
  zoomIn(): void {
    const span = this.marked();
    const edges = this.meta.edges_ps;
    const [from, to] = span ? [edges[span[0]] ?? 0, edges[span[1]] ?? 0] : [0, 0];
    if (to > from && to - from < this.view[1] - this.view[0]) this.show(from, to);
    else this.zoom(ZOOM, this.cursorPs());
  }

  zoomOut(): void {
    this.zoom(1 / ZOOM, this.cursorPs());
  }

  showAll(): void {
    this.show(...this.entire);
  }

  private cursorPs(): number | undefined {
    if (!this.cursor) return undefined;
    const { edges_ps: edges } = this.meta;
    const ps = ((edges[this.cursor.window] ?? 0) + (edges[this.cursor.window + 1] ?? 0)) / 2;
    return ps >= this.view[0] && ps <= this.view[1] ? ps : undefined;
  }

  private get placesOnCanvas(): Places {
    const place = new Map(this.order.map((row, at) => [row, at]));
    return {
      x: (ps) => this.xOf(ps),
      at: (ps) => this.unclipped(ps),
      y: (rank) => (place.has(rank) ? TOP + place.get(rank)! * this.rowHeight : undefined),
      rowHeight: this.rowHeight,
    };
  }

  /** Share of a window that a row's ranks spent in a kind of time, 0–255. */
  private level(kind: number, row: number, window: number): number {
    return this.cells[kind]?.[row * this.windows + window] ?? 0;
  }

  private mostOf(row: number, window: number): number {
    let best = 0;
    for (let k = 1; k < this.cells.length; k++) {
      if (this.level(k, row, window) > this.level(best, row, window)) best = k;
    }
    return best;
  }

  draw(renderer: Renderer, width: number): void {
    this.width = width;
    if (this.pieces) {
      const places = this.placesOnCanvas;
      renderer.clip(LEFT, TOP, width - LEFT - RIGHT, this.bottom - TOP);
      this.calls.draw(renderer, this.pieces, places, this.view, (kind) => this.fill(kind));
      this.arrowLegend = this.calls.drawArrows(renderer, places, this.view);
      renderer.unclip();
    } else this.drawWindows(renderer);
    renderer.frame(LEFT - 0.5, TOP - 0.5, width - RIGHT - LEFT + 1, this.bottom - TOP + 1, "#c3cad1", 1);
    this.drawNames(renderer);
    this.drawAxis(renderer);
    this.drawLegend(renderer);
  }

  private drawWindows(renderer: Renderer): void {
    const bins: number[][] = this.cells.map(() => []);
    const tall = this.rowHeight;
    this.order.forEach((row, place) => {
      const y = TOP + place * tall;
      for (let from = 0, to = 1; from < this.windows; from = to, to++) {
        const most = this.mostOf(row, from);
        const alone = (window: number): boolean =>
          this.mostOf(row, window) === most &&
          (tall < SPLIT || this.level(most, row, window) === FULL);
        if (alone(from)) {
          while (to < this.windows && alone(to)) to++;
          bins[most]?.push(this.x(from), y, this.x(to) - this.x(from), tall);
        } else this.stack(bins, row, from, y);
      }
    });
    bins.forEach((bin, kind) => renderer.rects(bin, this.fill(kind)));
    if (tall >= SPLIT) this.drawRules(renderer);
  }

  /** One window of a row: its activities stacked, each as high as its share of the time. */
  private stack(bins: number[][], row: number, window: number, top: number): void {
    const shares = this.cells.map((_, kind) => this.level(kind, row, window));
    const sum = shares.reduce((a, b) => a + b, 0) || 1;
    let y = top;
    shares.forEach((share, kind) => {
      const high = (share / sum) * this.rowHeight;
      if (high > 0) bins[kind]?.push(this.x(window), y, this.x(window + 1) - this.x(window), high);
      y += high;
    });
  }

  private fill(kind: number): string {
    const { name, colour } = this.meta.kinds[kind]!;
    return name === "not recorded" ? "hatch" : colour;
  }

  private drawRules(renderer: Renderer): void {
    const lines = this.order.slice(1).flatMap((_, place) => {
      const y = TOP + (place + 1) * this.rowHeight;
      return [LEFT, y, this.x(this.windows), y];
    });
    renderer.lines(lines, "#fff", 1);
  }

  private drawNames(renderer: Renderer): void {
    const step = Math.ceil(12 / this.rowHeight);
    for (let place = 0; place < this.rows; place += step) {
      const y = TOP + (place + 0.5) * this.rowHeight;
      const row = this.order[place] ?? 0;
      const host = this.meta.hosts[row];
      const word = place === 0 ? "rank " : "";
      const name = fitted(`${word}${this.numbers(row)}${host ? ` · ${host}` : ""}`, 10.5, LEFT - 16);
      renderer.text(name, LEFT - 8, y, { size: 10.5, align: "end", colour: MUTED });
    }
  }

  private drawAxis(renderer: Renderer): void {
    const [from, to] = this.view;
    const time = linear([from, to], [LEFT, this.width - RIGHT]);
    const [word, size] = timeUnit(to - from);
    const arrows = this.pieces ? `; ${this.arrowLegend}` : "";
    const title = `measured time since the first rank began, ${word}${arrows}`;
    bottomAxis(renderer, time, ticksOf(time, size), this.bottom, title);
  }

  /** Names of the kinds of time, wrapped to the width. */
  private legendLines(width: number): { kind: number; x: number }[][] {
    const lines: { kind: number; x: number }[][] = [[]];
    let x = 4;
    this.meta.kinds.forEach(({ name }, kind) => {
      const wide = SWATCH + 6 + textWidth(name, 11) + 16;
      if (x + wide > width && lines[lines.length - 1]!.length) {
        lines.push([]);
        x = 4;
      }
      lines[lines.length - 1]!.push({ kind, x });
      x += wide;
    });
    return lines;
  }

  private drawLegend(renderer: Renderer): void {
    this.legendLines(this.width).forEach((line, i) => {
      const y = this.bottom + AXIS_HEIGHT + LINE * i + 9;
      for (const { kind, x } of line) {
        renderer.rects([x, y - 6, SWATCH, SWATCH], this.fill(kind));
        renderer.frame(x, y - 6, SWATCH, SWATCH, "#c3cad1", 0.7);
        renderer.text(this.meta.kinds[kind]!.name, x + SWATCH + 6, y, { size: 11 });
      }
    });
  }

  overlay(renderer: Renderer): void {
    const { nodes } = this.store.now;
    const span = this.marked();
    if (span) {
      const [from, to] = [this.x(span[0]), this.x(span[1])];
      const veil = "rgba(255,255,255,0.72)";
      renderer.rects([LEFT, TOP, from - LEFT, this.bottom - TOP], veil);
      renderer.rects([to, TOP, this.x(this.windows) - to, this.bottom - TOP], veil);
      renderer.frame(from, TOP, to - from, this.bottom - TOP, SELECTED, 1.5);
    }
    this.order.forEach((row, place) => {
      if (!nodes.includes(this.node[row] ?? -1)) return;
      const wide = this.x(this.windows) - LEFT;
      renderer.frame(LEFT - 2, TOP + place * this.rowHeight - 1, wide + 4, this.rowHeight + 2, SELECTED, 1.5);
    });
    const at = this.pointedAt();
    if (at) {
      const x = (this.x(at[0]) + this.x(at[1])) / 2;
      renderer.lines([x, TOP, x, this.bottom], SELECTED, 1, [4, 3]);
    }
    if (this.cursor) {
      const { row, window } = this.cursor;
      const y = TOP + this.order.indexOf(row) * this.rowHeight;
      renderer.frame(this.x(window) - 1, y - 1, this.x(window + 1) - this.x(window) + 2, this.rowHeight + 2, INK, 2);
    }
  }

  /** The windows of the selected time span. */
  private marked(): readonly [number, number] | null {
    if (this.brush) return this.brush.span;
    const { time } = this.store.now;
    return time && this.windowsOf(...time);
  }

  private pointedAt(): readonly [number, number] | null {
    if (this.hovered) return [this.hovered.window, this.hovered.window + 1];
    const { pointed } = this.store;
    return pointed === null ? null : this.windowsOf(pointed, pointed + 1);
  }

  /** Positions of the edges in the selected run; null where unknown. */
  private get places(): number[] | null {
    const run = this.model.runsOf(this.store.now.dataset)[0] ?? 0;
    return this.meta.expected_ps[run] ?? null;
  }

  /** Windows in which the messages of some frames of the link timeline were posted. */
  private windowsOf(from: number, to: number): readonly [number, number] | null {
    const { places } = this;
    if (!places) return null;
    const within = Array.from({ length: this.windows }, (_, window) => window).filter((window) => {
      const [first, last] = this.framesOf(places, window, window + 1);
      return first < to && last > from;
    });
    return within.length ? [within[0]!, within[within.length - 1]! + 1] : null;
  }

  /** Frames of the link timeline in which the messages of some windows were posted. */
  private framesOf(places: number[], from: number, to: number): [number, number] {
    const run = this.model.runsOf(this.store.now.dataset)[0] ?? 0;
    const { course } = this.model.run(run);
    const frame = (ps: number): number => frameAt(course, ps);
    return [frame(places[from] ?? 0), frame(places[to] ?? 0) + 1];
  }

  /** "3", or "10–19" where a row holds several ranks. */
  private numbers(row: number): string {
    const [from, end] = [this.first[row] ?? 0, this.first[row + 1] ?? 0];
    return end - from > 1 ? `${from}–${end - 1}` : String(from);
  }

  private who(row: number): string {
    const numbers = this.numbers(row);
    const host = this.meta.hosts[row];
    return `${numbers.includes("–") ? "ranks" : "rank"} ${numbers}${host ? ` on ${host}` : ""}`;
  }

  /** A cell as text: rank and host, time and call, and the length of each kind of time. */
  facts({ row, window }: Cell): string[] {
    const [from, to] = [this.meta.edges_ps[window] ?? 0, this.meta.edges_ps[window + 1] ?? 0];
    const call = this.model.arrays.get(this.meta.call)[row * this.windows + window] ?? 0;
    const within = call > 0 ? `, mostly in ${this.meta.calls[call - 1]}` : "";
    const spent = this.meta.kinds
      .map(({ name }, kind) => ({ name, part: this.level(kind, row, window) / FULL }))
      .filter(({ part }) => part > 0)
      .sort((a, b) => b.part - a.part)
      .map(({ name, part }) => `${name} ${timeText(part * (to - from))} (${(100 * part).toFixed(0)} %)`);
    return [this.who(row), `measured time ${timeText(from)} – ${timeText(to)}${within}`, ...spent];
  }

  /** The single call at a place, if calls are drawn. */
  private factsOfCall(row: number, px: number): string[] | null {
    const facts = this.pieces && this.calls.facts(row, this.psAt(px), this.pieces);
    return facts && [this.who(row), ...facts];
  }

  /** Waiting time per rank of a row in the whole run. */
  private waited(row: number): number {
    const ranks = Math.max((this.first[row + 1] ?? 0) - (this.first[row] ?? 0), 1);
    const waits = this.meta.kinds.filter(({ wait }) => wait);
    const get = (ref: RanksMeta["call"]): number => this.model.arrays.get(ref)[row] ?? 0;
    return waits.reduce((sum, { total_ps }) => sum + get(total_ps), 0) / ranks;
  }

  connectSelector(select: HTMLSelectElement): void {
    select.addEventListener("change", () => {
      const rows = Array.from({ length: this.rows }, (_, row) => row);
      const byWait = (a: number, b: number): number => this.waited(b) - this.waited(a) || a - b;
      this.order = select.value === "wait" ? rows.sort(byWait) : rows;
      this.surface.redraw();
    });
  }

  connectText(panel: HTMLElement, list: HTMLElement): void {
    this.describe = (cell) => {
      const [who, ...facts] = this.facts(cell);
      panel.textContent =
        `${who}: ${facts.join("; ")}. Whole run: waited ${timeText(this.waited(cell.row))}.`;
      const ranks: [number, number] = [this.first[cell.row] ?? 0, this.first[cell.row + 1] ?? 0];
      listMessages(list, this.model, this.meta, this.store, ranks, cell.window);
    };
    new Tip(this.canvas, (x, y) => {
      const cell = this.hit(x, y);
      return cell && (this.factsOfCall(cell.row, x) ?? this.facts(cell));
    });
  }

  private describe: (cell: Cell) => void = () => undefined;

  private choose(cell: Cell): void {
    const node = this.node[cell.row] ?? -1;
    if (node >= 0) this.store.chooseNodes(this.model, [node]);
    this.cursor = cell;
    this.describe(cell);
    this.surface.refresh();
  }

  private take(from: number, to: number): void {
    const { places } = this;
    if (!places) return;
    const time = this.framesOf(places, from, to);
    this.brush = { span: [from, to], time };
    this.store.set({ time });
    this.surface.refresh();
  }

  private windowAt(px: number): number | null {
    if (px < LEFT - 6 || px > this.width) return null;
    const ps = this.psAt(px);
    const at = this.meta.edges_ps.findIndex((edge) => edge > ps) - 1;
    return at < 0 ? (ps < 0 ? 0 : this.windows - 1) : at;
  }

  private hit(px: number, py: number): Cell | null {
    const window = this.windowAt(px);
    const row = this.order[Math.floor((py - TOP) / this.rowHeight)];
    return window === null || row === undefined || px < LEFT ? null : { row, window };
  }

  private connect(): void {
    const { canvas } = this;
    let from: number | null = null;
    let dragged = false;
    canvas.addEventListener("pointerdown", (event) => {
      from = this.windowAt(pointer(event, canvas)[0]);
      dragged = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [px, py] = pointer(event, canvas);
      this.hovered = this.hit(px, py);
      const { places } = this;
      const at = this.hovered?.window;
      const frame = at === undefined || !places ? null : this.framesOf(places, at, at + 1)[0];
      this.store.point(frame);
      this.surface.refresh();
      const to = this.windowAt(px);
      if (from === null || to === null || (to === from && !dragged)) return;
      dragged = true;
      this.take(Math.min(from, to), Math.max(from, to) + 1);
    });
    canvas.addEventListener("pointerup", (event) => {
      from = null;
      const cell = this.hit(...pointer(event, canvas));
      if (!dragged && cell) this.choose(cell);
    });
    canvas.addEventListener("pointerleave", () => {
      this.hovered = null;
      this.store.point(null);
      this.surface.refresh();
    });
    canvas.addEventListener("wheel", (event) => {
      // A wheel alone scrolls the page.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, this.psAt(pointer(event, canvas)[0]));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Zoom and move by the keys that trace viewers have for it. */
  private zoomKey(key: string): boolean {
    const [from, to] = this.view;
    const aside = (to - from) * ASIDE;
    const acts: Record<string, () => void> = {
      w: () => this.zoomIn(),
      s: () => this.zoomOut(),
      a: () => this.show(from - aside, to - aside),
      d: () => this.show(from + aside, to + aside),
      0: () => this.showAll(),
    };
    const act = acts[key.toLowerCase()];
    act?.();
    return act !== undefined;
  }

  connectZoom(into: HTMLElement, out: HTMLElement, all: HTMLElement): void {
    into.addEventListener("click", () => this.zoomIn());
    out.addEventListener("click", () => this.zoomOut());
    all.addEventListener("click", () => this.showAll());
  }

  private key(event: KeyboardEvent): void {
    if (!event.ctrlKey && !event.metaKey && !event.altKey && this.zoomKey(event.key)) return;
    const steps: Record<string, [number, number]> = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    };
    if (event.key === "Escape") this.store.set({ time: null, link: -1, nodes: [] });
    if (event.key === "Enter" && this.cursor) this.take(this.cursor.window, this.cursor.window + 1);
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const place = this.cursor ? this.order.indexOf(this.cursor.row) + step[0] : 0;
    const window = this.cursor ? this.cursor.window + step[1] : 0;
    this.choose({
      row: this.order[Math.min(Math.max(place, 0), this.rows - 1)] ?? 0,
      window: Math.min(Math.max(window, 0), this.windows - 1),
    });
  }
}
