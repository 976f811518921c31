// The link timeline: phases as a strip on top, below it the worst link of each row in each frame.

import type { CourseMeta, Model, Numbers } from "./data";
import { extrapolated, frameAt, share, timeOf } from "./data";
import { estimate } from "./detail";
import { AXIS_HEIGHT, bottomAxis, linear, ticksOf, timeText, timeUnit } from "./axis";
import type { Renderer } from "./renderer";
import { fitted, INK, MUTED, SELECTED, textWidth } from "./renderer";
import type { Legend, Rect } from "./scale";
import { CHANGE_TICKS, CHANGES, dot, legend, legendHeight, SHADES } from "./scale";
import type { Store } from "./state";
import { onlyMarks } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";
import { LinkValues } from "./values";

const LEFT = 150;
const RIGHT = 14;
const STRIP = 14;
const GAP = 10;
const LABEL = 26;
const GREYS = 16;
/** Height of the line of text that replaces a band without samples. */
const FOLDED = 12;

interface Cell {
  row: number;
  frame: number;
}

export class LinkTimeline implements Drawing {
  readonly surface: Surface;
  private readonly shown: LinkValues;
  private readonly empty = new Map<number, boolean>();
  private unpacked: { dataset: number; cells: number[] } | null = null;
  private cursor: Cell | null = null;
  private width = 0;

  constructor(
    private readonly model: Model,
    private readonly store: Store,
    private readonly canvas: HTMLCanvasElement,
  ) {
    this.shown = new LinkValues(model, store);
    this.surface = new Surface(canvas, this);
    new Tip(canvas, (x, y) => this.facts(this.hit(x, y)));
    this.connect();
    store.listen((choice, changed) => {
      if (choice.link < 0 && choice.time === null) this.cursor = null;
      if (onlyMarks(changed) || !changed.has("dataset")) this.surface.refresh();
      else this.surface.redraw();
    });
    store.listenPoint(() => this.surface.refresh());
  }

  /** The selected run's; both runs of a difference have the same rows and as many frames. */
  private get course(): CourseMeta {
    return this.model.run(this.model.runsOf(this.store.now.dataset)[0] ?? 0).course;
  }

  /** Rows with a height. */
  private get shownRows(): number {
    return this.course.bands.reduce((sum, band, b) => sum + (this.folded(b) ? 0 : band.rows), 0);
  }

  private get rows(): number {
    return this.course.bands.reduce((sum, band) => sum + band.rows, 0);
  }

  private rowHeight(): number {
    const most = Math.min(Math.max(Math.round(330 / Math.max(this.shownRows, 1)), 3), 12);
    // The name of a band is beside it, its number of links below the name.
    const drawn = this.course.bands.filter((_, b) => !this.folded(b));
    const fewest = Math.min(...drawn.map((band) => band.rows), 48);
    return Math.max(most, (LABEL - GAP) / Math.max(fewest, 1));
  }

  private top(): number {
    const strips = this.course.phases.length + (this.skipped.length > 0 ? 1 : 0);
    return 20 + strips * STRIP + GAP;
  }

  /** Extrapolated steps; two runs of a difference may differ in them. */
  private get skipped(): [number, number, number][] {
    return this.shown.change ? [] : this.course.skipped;
  }

  height(width: number): number {
    return this.bottom() + AXIS_HEIGHT + 14 + legendHeight(this.words(), width - LEFT - RIGHT);
  }

  /** Lower end of the rows, including the gap below them. */
  private bottom(): number {
    return this.y(this.rows);
  }

  private words(): Legend {
    const title = "highest congested fraction of a row's links (0–1)";
    return { title: this.shown.change ? CHANGES.congestion : title, noData: "too few samples" };
  }

  /** Start of a frame as a share of the run; frames of one run may differ in length. */
  private share(frame: number): number {
    const { edges_ps: edges, frames } = this.course;
    const [start, end] = [edges[0] ?? 0, edges[frames] ?? 1];
    if (this.shown.change || end <= start) return frame / frames;
    return ((edges[frame] ?? end) - start) / (end - start);
  }

  private x(frame: number): number {
    return LEFT + this.share(frame) * (this.width - LEFT - RIGHT);
  }

  /** Upper edge of a row, over the gaps between bands. */
  private y(row: number): number {
    let first = 0;
    let y = this.top();
    for (const [b, band] of this.course.bands.entries()) {
      const tall = this.folded(b) ? 0 : this.rowHeight();
      if (row < first + band.rows) return y + (row - first) * tall;
      first += band.rows;
      y += (tall ? band.rows * tall : FOLDED) + GAP;
    }
    return y;
  }

  /** Whether what is shown has no value anywhere in a band: a line of text then replaces it. */
  private folded(band: number): boolean {
    const key = this.store.now.dataset * this.course.bands.length + band;
    let known = this.empty.get(key);
    if (known === undefined) {
      const { change } = this.model.payload;
      const ref = this.shown.change ? change?.cells[band] : this.course.bands[band]?.cells;
      known = !ref || this.model.arrays.get(ref).every((_, i, all) => Number.isNaN(share(all as Numbers, i)));
      this.empty.set(key, known);
    }
    return known;
  }

  /** Values of all cells, row after row: −1 to 1 for a difference, NaN for no data. */
  private cells(): number[] {
    const { dataset } = this.store.now;
    if (this.unpacked?.dataset !== dataset) this.unpacked = { dataset, cells: this.unpack() };
    return this.unpacked.cells;
  }

  private unpack(): number[] {
    const change = this.shown.change ? this.model.payload.change : null;
    const refs = change?.cells ?? this.course.bands.map((band) => band.cells);
    return refs.flatMap((ref) => {
      const packed = this.model.arrays.get(ref);
      return Array.from(packed, (_, i) => (change ? 2 * share(packed, i) - 1 : share(packed, i)));
    });
  }

  draw(renderer: Renderer, width: number): void {
    this.width = width;
    this.drawPhases(renderer);
    const bins: number[][] = Array.from({ length: SHADES }, () => []);
    const blank: number[] = [];
    const less: number[] = [];
    const { frames } = this.course;
    const rowHeight = this.rowHeight();
    const edges = Array.from({ length: frames + 1 }, (_, frame) => this.x(frame));
    const tops = Array.from({ length: this.rows }, (_, row) => this.y(row));
    const flat = this.course.bands.flatMap((band, b) => Array<boolean>(band.rows).fill(this.folded(b)));
    this.cells().forEach((value, i) => {
      if (flat[Math.floor(i / frames)]) return;
      const x = edges[i % frames] ?? 0;
      const wide = (edges[(i % frames) + 1] ?? 0) - x;
      const box: Rect = [x, tops[Math.floor(i / frames)] ?? 0, wide, rowHeight];
      (Number.isNaN(value) ? blank : (bins[this.shown.shade(value)] ?? blank)).push(...box);
      if (this.shown.change) less.push(...dot(box, value));
    });
    renderer.rects(blank, "hatch");
    const colours = this.shown.colours("congestion");
    bins.forEach((bin, i) => renderer.rects(bin, colours[i] ?? INK));
    renderer.rects(less, "#fff");
    this.drawFrame(renderer);
  }

  private drawFrame(renderer: Renderer): void {
    let row = 0;
    for (const [b, band] of this.course.bands.entries()) {
      const y = this.y(row);
      const tall = band.rows * this.rowHeight();
      if (this.folded(b)) {
        const text = `${band.name}: too few samples in any window, ${band.links} links`;
        renderer.text(fitted(text, 11, this.width - LEFT), LEFT, y + FOLDED / 2, { size: 11, colour: MUTED });
        row += band.rows;
        continue;
      }
      renderer.frame(LEFT - 0.5, y - 0.5, this.x(this.course.frames) - LEFT + 1, tall + 1, "#c3cad1", 1);
      renderer.text(band.name, LEFT - 10, y + tall / 2 - 6, { size: 11.5, align: "end", colour: MUTED });
      const count = `${band.links} links`;
      renderer.text(count, LEFT - 10, y + tall / 2 + 8, { size: 10, align: "end", colour: MUTED });
      row += band.rows;
    }
    this.drawAxis(renderer);
    const colours = this.shown.colours("congestion");
    const [y, room] = [this.bottom() + AXIS_HEIGHT + 10, this.width - LEFT - RIGHT];
    legend(renderer, colours, LEFT, y, room, this.words(), this.shown.change ? CHANGE_TICKS : undefined);
  }

  private drawAxis(renderer: Renderer): void {
    const { edges_ps: edges, frames } = this.course;
    const [start, end] = this.shown.change ? [0, 100] : [edges[0] ?? 0, edges[frames] ?? 1];
    const scale = linear([start, end], [LEFT, this.width - RIGHT]);
    const [word, size] = this.shown.change ? ["% of each run", 1] as const : timeUnit(end);
    bottomAxis(renderer, scale, ticksOf(scale, size), this.bottom() - GAP + 4, this.axisTitle(word));
  }

  /** Title of the axis: it distinguishes expected from measured time where a page shows both. */
  private axisTitle(unit: string): string {
    const by = timeOf(this.course);
    if (this.shown.change) return `time, ${unit}: ${by}`;
    return `${this.model.payload.ranks ? "expected time" : "time"}, ${unit}: ${by}`;
  }

  private drawPhases(renderer: Renderer): void {
    const course = this.course;
    const caption = "phases (strength: share of a frame's samples)";
    const left = Math.max(0, Math.min(LEFT, this.width - textWidth(caption, 11) - 2));
    renderer.text(caption, left, 10, { size: 11, colour: MUTED });
    this.drawSkipped(renderer, 20 + course.phases.length * STRIP);
    const shares = this.model.arrays.get(course.phase_shares);
    course.phases.forEach((phase, p) => {
      const y = 20 + p * STRIP;
      for (let frame = 0; frame < course.frames; frame++) {
        const grey = Math.round(((shares[p * course.frames + frame] ?? 0) / 255) * GREYS);
        if (grey === 0) continue;
        const level = Math.round(240 - (grey / GREYS) * 170);
        const x = this.x(frame);
        renderer.rects([x, y, this.x(frame + 1) - x + 0.3, STRIP - 3], `rgb(${level},${level},${level})`);
      }
      const name = fitted(phase, 11, LEFT - 12);
      renderer.text(name, LEFT - 10, y + STRIP / 2 - 1, { size: 11, align: "end" });
    });
  }

  /** A strip below the phases where steps were not simulated. */
  private drawSkipped(renderer: Renderer, y: number): void {
    if (this.skipped.length === 0) return;
    const { edges_ps: edges, frames } = this.course;
    const scale = linear([edges[0] ?? 0, edges[frames] ?? 1], [LEFT, this.width - RIGHT]);
    renderer.text("extrapolated", LEFT - 10, y + STRIP / 2 - 1, { size: 11, align: "end" });
    for (const [start, end, steps] of this.skipped) {
      const [from, wide] = [scale(start), Math.max(scale(end) - scale(start), 1)];
      renderer.rects([from, y, wide, STRIP - 3], "hatch");
      renderer.frame(from, y, wide, STRIP - 3, "#c3cad1", 1);
      const text = `${steps} steps`;
      const room = textWidth(text, 10) + 6;
      if (room > wide) continue;
      renderer.rects([from + (wide - room) / 2, y, room, STRIP - 3], "#fff");
      renderer.text(text, from + wide / 2, y + STRIP / 2 - 1, { size: 10, align: "middle" });
    }
  }

  overlay(renderer: Renderer): void {
    const { link, time, dataset, selection } = this.store.now;
    const bottom = this.y(this.rows) - GAP;
    if (time) {
      const [from, to] = [this.x(time[0]), this.x(time[1])];
      const veil = "rgba(255,255,255,0.72)";
      renderer.rects([LEFT, 18, from - LEFT, bottom - 18], veil);
      renderer.rects([to, 18, this.x(this.course.frames) - to, bottom - 18], veil);
      renderer.frame(from, 18, to - from, bottom - 18, SELECTED, 1.5);
    }
    const phase = this.model.phases(dataset)[selection];
    const strip = phase == null ? -1 : this.course.phases.indexOf(phase);
    if (strip >= 0) {
      const wide = this.x(this.course.frames) - LEFT;
      renderer.frame(LEFT - 1, 19 + strip * STRIP, wide + 2, STRIP - 1, SELECTED, 2);
    }
    const row = link < 0 ? -1 : (this.rowOf()[link] ?? -1);
    if (row >= 0 && row < this.rows) {
      renderer.frame(LEFT - 3, this.y(row) - 2, this.x(this.course.frames) - LEFT + 6, this.rowHeight() + 4, "#fff", 3);
      renderer.frame(LEFT - 3, this.y(row) - 2, this.x(this.course.frames) - LEFT + 6, this.rowHeight() + 4, SELECTED, 1.5);
    }
    const { pointed } = this.store;
    if (pointed !== null && pointed < this.course.frames) {
      const x = (this.x(pointed) + this.x(pointed + 1)) / 2;
      renderer.lines([x, 18, x, bottom], SELECTED, 1, [4, 3]);
    }
    if (this.cursor) {
      const { row: at, frame } = this.cursor;
      const x = this.x(frame);
      renderer.frame(x - 1, this.y(at) - 1, this.x(frame + 1) - x + 2, this.rowHeight() + 2, INK, 2);
    }
  }

  private rowOf(): Numbers {
    return this.model.arrays.get(this.course.row);
  }

  private hit(px: number, py: number): Cell | null {
    const frame = this.frameAt(px);
    const height = this.rowHeight();
    for (let row = 0; row < this.rows; row++) {
      const y = this.y(row);
      if (py >= y && py < y + height && !this.flat(row) && px >= LEFT && frame !== null) return { row, frame };
    }
    return null;
  }

  /** Whether a row belongs to a collapsed band. */
  private flat(row: number): boolean {
    let first = 0;
    for (const [b, band] of this.course.bands.entries()) {
      if (row < (first += band.rows)) return this.folded(b);
    }
    return false;
  }

  private frameAt(px: number): number | null {
    if (px < LEFT - 6 || px > this.width) return null;
    const { edges_ps: edges, frames } = this.course;
    const part = Math.min(Math.max((px - LEFT) / (this.width - LEFT - RIGHT), 0), 1);
    if (this.shown.change) return Math.min(Math.floor(part * frames), frames - 1);
    const [start, end] = [edges[0] ?? 0, edges[frames] ?? 1];
    return frameAt(this.course, start + part * (end - start));
  }

  /** A cell as text: its time, its worst link, and that link's estimate. */
  private facts(cell: Cell | null): string[] | null {
    if (!cell) return null;
    const { edges_ps: edges, frames, bands } = this.course;
    const [from, to] = [cell.frame, cell.frame + 1];
    const span = this.shown.change
      ? `${((100 * from) / frames).toFixed(0)} – ${((100 * to) / frames).toFixed(0)} % of each run`
      : `${this.course.dated ? "at the link" : "arrived"} ${timeText(edges[from] ?? 0)} – ${timeText(edges[to] ?? 0)}`;
    const value = this.cellAt(cell);
    let first = 0;
    const band = bands.find((one) => cell.row < (first += one.rows));
    const skipped = this.shown.change ? null : extrapolated(this.course, cell.frame);
    const head = [`${band?.name ?? ""}, ${span}`, ...(skipped ? [skipped] : [])];
    if (Number.isNaN(value)) return [...head, "too few samples"];
    const best = this.worst(cell);
    const views = this.model.runsOf(this.store.now.dataset).map((run) => this.model.view(run, null, [from, to]));
    const samples = views.map((view) => view?.samples[best] ?? 0).join(" → ");
    const shown = `${this.shown.change ? "change" : "highest in the cell"}: ${(100 * value).toFixed(1)} %`;
    return best < 0 ? [...head, shown] : [...head, shown, `most congested packets: ${this.model.linkName(best)}`,
      `${views.map((view) => estimate(view, best)).join(" → ")}, ${samples} samples`];
  }

  private cellAt({ row, frame }: Cell): number {
    return this.cells()[row * this.course.frames + frame] ?? NaN;
  }

  /** The link of a row with most congestion in a frame; for a difference, in either run. */
  private worst({ row, frame }: Cell): number {
    const of = this.rowOf();
    let best = -1;
    let most = -1;
    for (const run of this.model.runsOf(this.store.now.dataset)) {
      const view = this.model.view(run, null, [frame, frame + 1]);
      of.forEach((at, link) => {
        const met = at === row && (view?.weight[link] ?? 0) > 0 ? (view?.congested[link] ?? 0) : -1;
        if (met > most) [best, most] = [link, met];
      });
    }
    return best;
  }

  private choose(cell: Cell): void {
    const link = this.worst(cell);
    this.store.choose(this.model, link);
    this.cursor = cell;
    this.surface.refresh();
  }

  /** The phase whose strip is at a height, or nothing. */
  private strip(py: number): void {
    const phase = this.course.phases[Math.floor((py - 20) / STRIP)];
    const { dataset, selection } = this.store.now;
    const at = phase === undefined ? -1 : this.model.phases(dataset).indexOf(phase);
    if (at >= 0) this.store.set({ selection: at === selection ? 0 : at });
  }

  private connect(): void {
    const { canvas } = this;
    let from: number | null = null;
    let dragged = false;
    canvas.addEventListener("pointerdown", (event) => {
      from = this.frameAt(pointer(event, canvas)[0]);
      dragged = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const to = this.frameAt(pointer(event, canvas)[0]);
      this.store.point(to);
      if (from === null || to === null || (to === from && !dragged)) return;
      dragged = true;
      this.store.set({ time: [Math.min(from, to), Math.max(from, to) + 1] });
    });
    canvas.addEventListener("pointerup", (event) => {
      from = null;
      if (dragged) return;
      const [px, py] = pointer(event, canvas);
      const cell = this.hit(px, py);
      if (cell) this.choose(cell);
      else if (py < this.top()) this.strip(py);
    });
    canvas.addEventListener("pointerleave", () => this.store.point(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    };
    const step = steps[event.key];
    const { frames } = this.course;
    if (event.key === "Escape") this.store.set({ time: null, link: -1, nodes: [] });
    if (event.key === "Enter" && this.cursor) {
      this.store.set({ time: [this.cursor.frame, this.cursor.frame + 1] });
    }
    if (!step) return;
    event.preventDefault();
    const old = this.cursor ?? { row: 0, frame: 0 };
    const next = {
      row: Math.min(Math.max(old.row + (this.cursor ? step[0] : 0), 0), this.rows - 1),
      frame: Math.min(Math.max(old.frame + (this.cursor ? step[1] : 0), 0), frames - 1),
    };
    if (event.shiftKey && step[1]) {
      const [a, b] = this.store.now.time ?? [old.frame, old.frame + 1];
      // Move the end of the span that the cursor is at.
      const span = old.frame + 1 >= b ? [a, next.frame + 1] : [next.frame, b];
      const [first, last] = [Math.min(...span), Math.max(...span)];
      this.store.set({ time: [first, Math.max(last, first + 1)] });
      this.cursor = next;
      this.surface.refresh();
      return;
    }
    this.choose(next);
  }
}
