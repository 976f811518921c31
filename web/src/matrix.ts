// The communication matrix: bytes between ranks in order of their hosts, or the change in path length.

import type { MatrixMeta, Model, Numbers } from "./data";
import type { Renderer } from "./renderer";
import { INK, MUTED, SELECTED } from "./renderer";
import type { Legend } from "./scale";
import { dot, legend, legendHeight, shades, SHADES } from "./scale";
import type { Store } from "./state";
import { onlyMarks } from "./state";
import type { Drawing } from "./surface";
import { pointer, Surface } from "./surface";
import { Tip } from "./tooltip";

const LEFT = 62;
const TOP = 8;
const RIGHT = 20;
const ABOVE_LEGEND = 28;
const LEAF_LINES = 48;
const LEVELS = 255;

export class Matrix implements Drawing {
  readonly surface: Surface;
  private side = 1;
  private cursor: [number, number] | null = null;

  constructor(
    private readonly model: Model,
    private readonly store: Store,
    private readonly canvas: HTMLCanvasElement,
    private readonly panel: HTMLElement,
  ) {
    this.surface = new Surface(canvas, this);
    this.connect();
    store.listen((choice, changed) => {
      if (choice.nodes.length < 2) this.cursor = null;
      if (onlyMarks(changed)) this.surface.refresh();
      else if (changed.has("dataset")) this.surface.redraw();
    });
  }

  private get change(): boolean {
    return this.store.now.dataset === this.model.changeIndex;
  }

  private get meta(): MatrixMeta | null {
    const { change } = this.model.payload;
    return this.change ? (change?.matrix ?? null) : this.model.run(this.store.now.dataset).matrix;
  }

  private get(ref: MatrixMeta["node"]): Numbers {
    return this.model.arrays.get(ref);
  }

  height(width: number): number {
    this.side = Math.min(width - LEFT - RIGHT, 230);
    return this.side + TOP + ABOVE_LEGEND + 10 + legendHeight(this.words(), width - LEFT);
  }

  private words(): Legend {
    const what = this.change ? "change of switches visited; dot: fewer" : "bytes between two ranks";
    const { width } = this.meta ?? { width: 1 };
    const each = width > 1 ? ` (cells of ${width} × ${width} ranks)` : "";
    return { title: `${what}${each}; empty: none` };
  }

  draw(renderer: Renderer, width: number): void {
    const meta = this.meta;
    if (!meta) {
      renderer.text("no message log in this run", LEFT, 40, { colour: MUTED });
      return;
    }
    const bins: number[][] = Array.from({ length: SHADES }, () => []);
    const less: number[] = [];
    const pitch = this.side / meta.size;
    this.get(meta.cells).forEach((level, i) => {
      if (level === 0) return;
      const shade = Math.round(((level - 1) / (LEVELS - 1)) * (SHADES - 1));
      const [x, y] = [LEFT + (i % meta.size) * pitch, TOP + Math.floor(i / meta.size) * pitch];
      bins[shade]?.push(x, y, Math.max(pitch, 0.7), Math.max(pitch, 0.7));
      if (this.change) less.push(...dot([x, y, pitch, pitch], (2 * (level - 1)) / (LEVELS - 1) - 1));
    });
    this.drawLines(renderer, meta);
    const colours = shades(this.model, this.change ? "change" : "traffic");
    bins.forEach((bin, i) => renderer.rects(bin, colours[i] ?? INK));
    renderer.rects(less, "#fff");
    renderer.frame(LEFT - 0.5, TOP - 0.5, this.side + 1, this.side + 1, "#c3cad1", 1);
    renderer.text("receiving rank, in order of its host", LEFT, TOP + this.side + 12, { size: 11.5, colour: MUTED });
    renderer.text("sender", LEFT - 8, TOP + this.side / 2, { size: 11.5, align: "end", colour: MUTED });
    const middle = Math.sqrt(Math.abs(meta.least * meta.most));
    const ticks = this.change
      ? [meta.least, 0, meta.most]
      : [meta.least, middle, meta.most].map(bytes);
    const y = TOP + this.side + ABOVE_LEGEND;
    legend(renderer, colours, LEFT, y, width - LEFT, this.words(), ticks);
  }

  private drawLines(renderer: Renderer, meta: MatrixMeta): void {
    const edges = (ref: MatrixMeta["leaf"]): number[] => {
      const of = this.get(ref);
      return Array.from(of, (_, i) => i).filter((i) => i > 0 && of[i] !== of[i - 1]);
    };
    const scale = this.side / (meta.size * meta.width);
    const draw = (at: number[], colour: string): void => {
      const lines = at.flatMap((edge) => {
        const to = edge * scale;
        return [LEFT, TOP + to, LEFT + this.side, TOP + to, LEFT + to, TOP, LEFT + to, TOP + this.side];
      });
      renderer.lines(lines, colour, 0.7);
    };
    const leaves = edges(meta.leaf);
    if (leaves.length <= LEAF_LINES) draw(leaves, "#d9dee4");
    draw(edges(meta.pod), MUTED);
  }

  overlay(renderer: Renderer): void {
    const meta = this.meta;
    if (!meta) return;
    const { link, nodes } = this.store.now;
    const behind = this.model.hostsBehind(link);
    if (behind) this.band(renderer, meta, behind.hosts, behind.sending);
    const [first, second] = nodes;
    if (first !== undefined) {
      const into = second ?? (this.model.dst[link] === first ? first : undefined);
      const from = second !== undefined || into === undefined ? first : undefined;
      if (from !== undefined) this.band(renderer, meta, new Set([from]), true);
      if (into !== undefined) this.band(renderer, meta, new Set([into]), false);
    }
    if (this.cursor) {
      const pitch = this.side / meta.size;
      const [row, column] = this.cursor;
      renderer.frame(LEFT + column * pitch - 1, TOP + row * pitch - 1, pitch + 2, pitch + 2, INK, 2);
    }
  }

  /** Mark the rows (senders) or columns (receivers) of some hosts' ranks. */
  private band(renderer: Renderer, meta: MatrixMeta, hosts: ReadonlySet<number>, rows: boolean): void {
    const node = this.get(meta.node);
    const scale = this.side / (meta.size * meta.width);
    let start = -1;
    for (let i = 0; i <= node.length; i++) {
      const here = i < node.length && hosts.has(node[i] ?? -1);
      if (here && start < 0) start = i;
      if (here || start < 0) continue;
      const [from, long] = [start * scale, Math.max((i - start) * scale, 1.5)];
      const box: [number, number, number, number] = rows
        ? [LEFT, TOP + from, this.side, long]
        : [LEFT + from, TOP, long, this.side];
      renderer.rects(box, "rgba(11,87,208,0.14)");
      renderer.frame(...box, SELECTED, 1);
      start = -1;
    }
  }

  private choose(row: number, column: number): void {
    const meta = this.meta;
    if (!meta) return;
    const inside = (at: number): number => Math.min(Math.max(at, 0), meta.size - 1);
    const [r, c] = [inside(row), inside(column)];
    const node = this.get(meta.node);
    this.store.chooseNodes(this.model, [node[r * meta.width] ?? 0, node[c * meta.width] ?? 0]);
    this.cursor = [r, c];
    this.surface.refresh();
    this.panel.textContent = this.facts(meta, r, c).join(": ");
  }

  /** A cell as text: its ranks with their hosts, and its value. */
  private facts(meta: MatrixMeta, r: number, c: number): string[] {
    const node = this.get(meta.node);
    const rank = this.get(meta.rank);
    const [from, to] = [r * meta.width, c * meta.width];
    const span = (at: number): string => {
      const last = Math.min(at + meta.width, rank.length) - 1;
      return last > at ? `ranks ${rank[at]} … ${rank[last]}` : `rank ${rank[at]}`;
    };
    const hosts = [from, to].map((at) => this.model.vertexName(node[at] ?? 0));
    const level = this.get(meta.cells)[r * meta.size + c] ?? 0;
    return [`${span(from)} on ${hosts[0]} → ${span(to)} on ${hosts[1]}`, this.amount(meta, level)];
  }

  private amount(meta: MatrixMeta, level: number): string {
    if (level === 0) return "nothing";
    const share = (level - 1) / (LEVELS - 1);
    if (this.change) {
      const change = meta.least + share * (meta.most - meta.least);
      return `${change > 0 ? "+" : ""}${change.toFixed(1)} switches`;
    }
    return `about ${bytes(meta.least * (meta.most / meta.least) ** share)}`;
  }

  private connect(): void {
    const { canvas } = this;
    const hit = (px: number, py: number): [number, number] | null => {
      const size = this.meta?.size ?? 1;
      const [column = -1, row = -1] = [px - LEFT, py - TOP].map((at) => Math.floor((at / this.side) * size));
      return column < 0 || row < 0 || column >= size || row >= size ? null : [row, column];
    };
    new Tip(canvas, (x, y) => {
      const [meta, at] = [this.meta, hit(x, y)];
      return meta && at && this.facts(meta, ...at);
    });
    canvas.addEventListener("click", (event) => {
      const at = hit(...pointer(event, canvas));
      if (at) this.choose(...at);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps: Record<string, [number, number]> = {
        ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      };
      if (event.key === "Escape") this.store.choose(this.model, -1);
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const [row, column] = this.cursor ?? [0, 0];
      this.choose(row + (this.cursor ? step[0] : 0), column + (this.cursor ? step[1] : 0));
    });
  }
}

const SIZES: [string, number][] = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]];

function bytes(amount: number): string {
  const [unit, size] = SIZES.find(([, s]) => amount >= s) ?? ["B", 1];
  return `${Number((amount / size).toPrecision(3))} ${unit}`;
}
