// Link timeline: each part of the network with its links in the order in which congestion reached them.

import { median, pairs } from "d3-array";
import type { Scale } from "../axis";
import { AXIS_HEIGHT, bottomAxis, linear, ticksOf } from "../axis";
import type { Renderer } from "../renderer";
import { fitted, INK, MUTED, SELECTED } from "../renderer";
import { legend, legendHeight } from "../scale";
import type { Drawing } from "../surface";
import { pointer, Surface } from "../surface";
import { Tip } from "../tooltip";
import type { Graph, PanelMeta } from "./data";
import type { Choice } from "./plot";

const RIGHT = 14;
const TOP = 6;
const GAP = 8;
const NAME = 15;
/** Most rows of a part: with more links, neighbours in the order share a row. */
const ROWS = 48;
const TALL = 420;

/** A part of the network: its congested links in the order they were reached, one or more to a row. */
interface Band {
  title: string;
  links: number;
  rows: number[][];
}

interface Cell {
  row: number;
  step: number;
}

/** Congested links of a part, and when each first was; links never congested are only counted. */
function bandOf(graph: Graph, panel: PanelMeta): Band {
  const places = Array.from(graph.arrays.get(panel.cells)).filter((place) => place >= 0);
  const reached = places.flatMap((place) => {
    const first = graph.reached(place);
    return first < 0 ? [] : [{ place, first }];
  }).sort((a, b) => a.first - b.first);
  const each = Math.max(1, Math.ceil(reached.length / ROWS));
  const rows = Array.from({ length: Math.ceil(reached.length / each) }, (_, row) =>
    reached.slice(row * each, (row + 1) * each).map(({ place }) => place));
  return { title: panel.title, links: places.length, rows };
}

/** Parts in which no link was ever congested as a single one: they are alike. */
function withoutCalm(bands: Band[]): Band[] {
  const calm = bands.filter(({ rows }) => rows.length === 0);
  if (calm.length < 2) return bands;
  const [first, last] = [calm[0]!.title, calm[calm.length - 1]!.title];
  const title = calm.length === 2 ? `${first}, ${last}` : `${first} … ${last}`;
  return [...bands.filter(({ rows }) => rows.length > 0),
    { title, links: calm.reduce((sum, { links }) => sum + links, 0), rows: [] }];
}

export class Heat implements Drawing {
  readonly surface: Surface;
  private bands: Band[];
  private readonly rows: number[][];
  private readonly shades: string[];
  private readonly starts: number[];
  /** Where each step ends: at the next one, or after the usual time where that is much later. */
  private readonly ends: number[];
  private cursor: Cell | null = null;
  private choice: Choice = { feature: -1, step: 0 };
  private width = 0;

  constructor(
    private readonly graph: Graph,
    canvas: HTMLCanvasElement,
    private readonly choose: (choice: Choice) => void,
    private readonly onHover: (place: number) => void,
  ) {
    this.shades = graph.shades();
    this.starts = graph.payload.times;
    const usual = median(pairs(this.starts, (a, b) => b - a)) ?? 1;
    this.ends = this.starts.map((at, step) => Math.min(this.starts[step + 1] ?? Infinity, at + 1.5 * usual));
    this.ends[this.starts.length - 1] = (this.starts[this.starts.length - 1] ?? 0) + usual;
    this.bands = graph.payload.panels.map((panel) => bandOf(graph, panel));
    // The part that congestion reached first is on top.
    const first = ({ rows }: Band): number => (rows[0]?.[0] === undefined ? Infinity : graph.reached(rows[0][0]!));
    this.bands = withoutCalm(this.bands.sort((a, b) => first(a) - first(b) || 0));
    this.rows = this.bands.flatMap((band) => band.rows);
    this.surface = new Surface(canvas, this);
    new Tip(canvas, (x, y) => this.facts(this.hit(x, y)));
    canvas.addEventListener("click", (event) => this.take(this.hit(...pointer(event, canvas))));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(choice: Choice): void {
    this.choice = choice;
    this.surface.refresh();
  }

  private get steps(): number {
    return this.graph.payload.times.length;
  }

  private get left(): number {
    return this.width < 600 ? 96 : 150;
  }

  private get rowHeight(): number {
    return Math.min(Math.max(TALL / Math.max(this.rows.length, 1), 2), 10);
  }

  /** Height of a band, with room for its name beside it. */
  private tall(band: Band): number {
    return Math.max(band.rows.length * this.rowHeight, NAME) + GAP;
  }

  private get bottom(): number {
    return TOP + this.bands.reduce((sum, band) => sum + this.tall(band), 0);
  }

  private get words(): { title: string; noData: string } {
    const most = Math.max(...this.rows.map((row) => row.length), 0);
    const of = most > 1 ? `, highest of up to ${most} links` : "";
    return { title: `time stalled (%)${of}`, noData: "not measured" };
  }

  height(width: number): number {
    this.width = width;
    return this.bottom + AXIS_HEIGHT + 12 + legendHeight(this.words, width - this.left - RIGHT);
  }

  private get time(): Scale {
    return linear([this.starts[0] ?? 0, this.ends[this.steps - 1] ?? 1], [this.left, this.width - RIGHT]);
  }

  /** Left edge and width of a step: a pause between readings stays blank. */
  private span(step: number): [number, number] {
    const { time } = this;
    const from = time(this.starts[step] ?? 0);
    return [from, Math.max(time(this.ends[step] ?? 0) - from, 0.5)];
  }

  private y(row: number): number {
    let [first, y] = [0, TOP];
    for (const band of this.bands) {
      if (row < first + band.rows.length) return y + (row - first) * this.rowHeight;
      first += band.rows.length;
      y += this.tall(band);
    }
    return y;
  }

  /** The link of a row that stalls most at a step; −1 where none was measured. */
  private worst({ row, step }: Cell): number {
    let [best, most] = [-1, -1];
    for (const place of this.rows[row] ?? []) {
      const percent = this.graph.percent(step, place);
      if (percent > most) [best, most] = [place, percent];
    }
    return best;
  }

  draw(renderer: Renderer, width: number): void {
    this.width = width;
    const bins: number[][] = this.shades.map(() => []);
    const blank: number[] = [];
    const tall = this.rowHeight;
    const spans = this.starts.map((_, step) => this.span(step));
    this.rows.forEach((_, row) => {
      const y = this.y(row);
      for (let step = 0; step < this.steps; step++) {
        const place = this.worst({ row, step });
        const [x, wide] = spans[step]!;
        const box = [x, y, wide, tall];
        const at = place < 0 ? -1 : Math.round((this.graph.percent(step, place) / 100) * (bins.length - 1));
        (bins[Math.min(at, bins.length - 1)] ?? blank).push(...box);
      }
    });
    renderer.rects(blank, "hatch");
    bins.forEach((bin, i) => renderer.rects(bin, this.shades[i] ?? INK));
    this.names(renderer);
    this.axis(renderer);
    const y = this.bottom + AXIS_HEIGHT + 8;
    legend(renderer, this.shades, this.left, y, width - this.left - RIGHT, this.words, [0, 50, 100]);
  }

  private names(renderer: Renderer): void {
    let y = TOP;
    for (const band of this.bands) {
      const high = band.rows.length * this.rowHeight;
      const count = band.rows.reduce((sum, row) => sum + row.length, 0);
      renderer.text(fitted(band.title, 11, this.left - 10), this.left - 8, y + Math.max(high, NAME) / 2,
        { size: 11, align: "end", colour: MUTED });
      const wide = this.width - RIGHT - this.left;
      if (high > 0) renderer.frame(this.left - 0.5, y - 0.5, wide + 1, high + 1, "#c3cad1", 1);
      else {
        const text = `none of ${band.links} links stalls ${this.graph.payload.threshold} % of a step`;
        renderer.text(fitted(text, 11, wide), this.left, y + NAME / 2, { size: 11, colour: MUTED });
      }
      if (high >= 44) {
        renderer.text(`${count} of ${band.links} links`, this.left - 8, y + high / 2 + 14,
          { size: 10, align: "end", colour: MUTED });
      }
      y += this.tall(band);
    }
  }

  private axis(renderer: Renderer): void {
    const { time } = this;
    bottomAxis(renderer, time, ticksOf(time), this.bottom, `time, ${this.graph.payload.unit}`);
  }

  overlay(renderer: Renderer): void {
    const { step, feature } = this.choice;
    const [from, wide] = this.span(step);
    // Not over the text about parts without congestion, which are last.
    const calm = this.bands.filter(({ rows }) => rows.length === 0).reduce((sum, band) => sum + this.tall(band), 0);
    const bottom = this.rows.length > 0 ? this.bottom - calm - GAP : this.bottom;
    renderer.frame(from, TOP - 2, Math.max(wide, 2), bottom - TOP + 4, SELECTED, 1.5);
    const members = new Set(feature < 0 ? [] : this.graph.members(feature));
    this.rows.forEach((row, at) => {
      if (row.some((place) => members.has(place))) {
        renderer.rects([this.left - 5, this.y(at), 4, this.rowHeight], SELECTED);
      }
    });
    if (!this.cursor) return;
    const { row, step: at } = this.cursor;
    const [left, across] = this.span(at);
    renderer.frame(left - 1, this.y(row) - 1, across + 2, this.rowHeight + 2, INK, 2);
  }

  private facts(cell: Cell | null): string[] | null {
    if (!cell) return null;
    const place = this.worst(cell);
    const time = this.graph.time(cell.step);
    if (place < 0) return [time, "not measured"];
    const first = this.graph.time(this.graph.reached(place));
    const many = this.rows[cell.row]?.length ?? 1;
    return [this.graph.payload.places[place] ?? "?", `${this.graph.amount(cell.step, place)} of the step at ${time}`,
      `first from ${this.graph.payload.threshold} % at ${first}`, ...(many > 1 ? [`highest of ${many} links`] : [])];
  }

  private hit(px: number, py: number): Cell | null {
    const at = this.time.invert(px);
    const step = this.starts.findIndex((from, i) => at >= from && at < (this.ends[i] ?? from));
    if (step < 0) return null;
    const row = this.rows.findIndex((_, at) => py >= this.y(at) && py < this.y(at) + this.rowHeight);
    return row < 0 ? null : { row, step };
  }

  private take(cell: Cell | null): void {
    if (!cell) return;
    this.cursor = cell;
    const place = this.worst(cell);
    this.choose({ feature: this.graph.featureOf(cell.step, place), step: cell.step });
    this.onHover(place);
    this.surface.refresh();
  }

  private key(event: KeyboardEvent): void {
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    };
    const move = moves[event.key];
    if (event.key === "Escape") {
      this.cursor = null;
      this.choose({ feature: -1, step: this.choice.step });
      this.onHover(-1);
    }
    if (!move || this.rows.length === 0) return;
    event.preventDefault();
    const old = this.cursor ?? { row: -move[0], step: this.choice.step - move[1] };
    this.take({
      row: Math.min(Math.max(old.row + move[0], 0), this.rows.length - 1),
      step: Math.min(Math.max(old.step + move[1], 0), this.steps - 1),
    });
  }
}
