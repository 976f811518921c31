// Single calls of the ranks, and messages between them as arrows: the rank timeline at deep zoom.

import type { Model, Numbers, RanksMeta } from "./data";
import { timeText } from "./axis";
import type { Renderer } from "./renderer";
import { fitted, INK, textWidth } from "./renderer";

/** Most pieces of calls drawn at once: of more, one is narrower than a pixel. */
const MAX_PIECES = 4000;
/** Most messages drawn as arrows. */
const MAX_ARROWS = 400;
const HEAD = 5;

/** A part of the measured time, in picoseconds. */
export type Span = readonly [number, number];

interface Arrow {
  from: number;
  to: number;
  sent: number;
  done: number;
  bytes: number;
}

/** Where a rank and a time are on the canvas. */
export interface Places {
  /** Where a time is, at an edge of the plot if it is outside of the view. */
  x(ps: number): number;
  /** Where a time is, also outside of the plot. */
  at(ps: number): number;
  /** Upper edge of a rank's row; undefined for a rank without one. */
  y(rank: number): number | undefined;
  rowHeight: number;
}

export class Calls {
  private readonly rank: Numbers;
  private readonly kind: Numbers;
  private readonly start: Numbers;
  private readonly end: Numbers;
  private readonly call: Numbers;
  private readonly inPieces: Numbers;

  constructor(private readonly model: Model, private readonly meta: RanksMeta) {
    const { pieces } = meta;
    this.rank = model.arrays.get(pieces.rank);
    this.kind = model.arrays.get(pieces.kind);
    this.start = model.arrays.get(pieces.start);
    this.end = model.arrays.get(pieces.end);
    this.call = model.arrays.get(pieces.call);
    this.inPieces = model.arrays.get(meta.in_pieces);
  }

  /** The pieces within a span; null where some are not in the report, or too many to tell apart. */
  within([from, to]: Span): number[] | null {
    const { edges_ps: edges, unit_ps: unit } = this.meta;
    for (let window = 0; window + 1 < edges.length; window++) {
      const inside = (edges[window] ?? 0) < to && (edges[window + 1] ?? 0) > from;
      if (inside && !this.inPieces[window]) return null;
    }
    const out: number[] = [];
    for (let i = 0; i < this.rank.length; i++) {
      if (this.start[i]! * unit < to && this.end[i]! * unit > from) out.push(i);
      if (out.length > MAX_PIECES) return null;
    }
    return out;
  }

  /** Draw pieces with the names of their calls where these fit. */
  draw(renderer: Renderer, pieces: number[], places: Places, [from, to]: Span, fill: (kind: number) => string): void {
    const { unit_ps: unit, kinds } = this.meta;
    const bins: number[][] = kinds.map(() => []);
    const names: [string, number, number][] = [];
    for (const i of pieces) {
      const left = places.x(Math.max(this.start[i]! * unit, from));
      const right = places.x(Math.min(this.end[i]! * unit, to));
      const y = places.y(this.rank[i]!);
      if (y === undefined) continue;
      // A gap of half a pixel separates calls that follow one another.
      bins[this.kind[i]!]?.push(left, y, Math.max(right - left - 0.5, 0.5), places.rowHeight - 1);
      const name = this.call[i] ? (this.meta.calls[this.call[i]! - 1] ?? "") : "";
      if (name && right - left > 40 && places.rowHeight >= 11) {
        names.push([fitted(name, 9.5, right - left - 6), left + 3, y + places.rowHeight / 2]);
      }
    }
    bins.forEach((bin, kind) => renderer.rects(bin, fill(kind)));
    for (const [name, x, y] of names) {
      renderer.rects([x - 1, y - 5, textWidth(name, 9.5) + 2, 10], "rgba(255,255,255,0.75)");
      renderer.text(name, x, y, { size: 9.5 });
    }
  }

  /** Messages between rows under way in a span, those of longest duration first. */
  private arrows(places: Places, [from, to]: Span): Arrow[] {
    const { unit_ps: unit, messages } = this.meta;
    const get = (name: keyof RanksMeta["messages"]): Numbers => this.model.arrays.get(messages[name]);
    const [src, dst, sent, done, bytes] = [get("src_rank"), get("dst_rank"), get("sent"), get("done"), get("size_bytes")];
    const out: Arrow[] = [];
    for (let i = 0; i < src.length; i++) {
      const [begun, ended] = [sent[i]! * unit, done[i]! * unit];
      if (places.y(src[i]!) === undefined || places.y(dst[i]!) === undefined) continue;
      if (begun < to && ended > from) out.push({ from: src[i]!, to: dst[i]!, sent: begun, done: ended, bytes: bytes[i]! });
    }
    return out.sort((a, b) => (b.done - b.sent) - (a.done - a.sent));
  }

  /** Draw messages as arrows from the call that sends to the end of the receive; returns a legend. */
  drawArrows(renderer: Renderer, places: Places, span: Span): string {
    const all = this.arrows(places, span);
    const lines: number[] = [];
    for (const { from, to, sent, done } of all.slice(0, MAX_ARROWS)) {
      const middle = places.rowHeight / 2;
      const [x0, y0] = [places.at(sent), places.y(from)! + middle];
      const [x1, y1] = [places.at(done), places.y(to)! + middle];
      lines.push(x0, y0, x1, y1);
      const angle = Math.atan2(y1 - y0, x1 - x0);
      for (const turn of [-0.4, 0.4]) {
        lines.push(x1, y1, x1 - HEAD * Math.cos(angle + turn), y1 - HEAD * Math.sin(angle + turn));
      }
    }
    renderer.lines(lines, INK, 0.9);
    const what = "arrows: messages, from the call that sends to the end of the receive";
    return all.length > MAX_ARROWS ? `${what}; the ${MAX_ARROWS} longest of ${all.length}` : what;
  }

  /** The call of a rank at a time as text: name, kind of time, beginning, end and length. */
  facts(rank: number, ps: number, pieces: number[]): string[] | null {
    const { unit_ps: unit, kinds, calls } = this.meta;
    const at = pieces.find((i) => this.rank[i] === rank && this.start[i]! * unit <= ps && this.end[i]! * unit > ps);
    if (at === undefined) return null;
    const [start, end] = [this.start[at]! * unit, this.end[at]! * unit];
    const call = this.call[at] ? `${calls[this.call[at]! - 1]}, ` : "";
    return [
      `${call}${kinds[this.kind[at]!]?.name} for ${timeText(end - start)}`,
      `measured time ${timeText(start)} – ${timeText(end)}`,
    ];
  }
}
