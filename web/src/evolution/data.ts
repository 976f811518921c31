// Data embedded in the page of a congestion evolution graph.

import type { Arrays, Numbers, Ref } from "../data";

export interface PanelMeta {
  title: string;
  rows: number;
  columns: number;
  cells: Ref;
}

export interface Payload {
  threshold: number;
  bands: [number, string][];
  shades: Ref;
  unit: string;
  times: number[];
  place_word: string;
  places: string[];
  features: { step: Ref; column: Ref; extent: Ref; maximum: Ref; mean: Ref; evolution: Ref; at_least: Ref };
  edges: { source: Ref; target: Ref };
  members: { start: Ref; place: Ref };
  panels: PanelMeta[];
  values: Ref | null;
  /** Which values (step times number of places, plus place) are lower bounds. */
  full: Ref | null;
}

/** Values are in steps of half a percent; 255 means not measured. */
const UNKNOWN = 255;

/** The graph with its arrays unpacked and its neighbours by feature. */
export class Graph {
  readonly step: Numbers;
  readonly column: Numbers;
  readonly extent: Numbers;
  readonly maximum: Numbers;
  readonly mean: Numbers;
  readonly evolution: Numbers;
  /** 1 for a feature with a link whose stall counter is saturated: its values are lower bounds. */
  readonly atLeast: Numbers;
  readonly source: Numbers;
  readonly target: Numbers;
  readonly before: number[][];
  readonly after: number[][];
  readonly byStep: number[][];
  readonly columns: number;
  private readonly start: Numbers;
  private readonly place: Numbers;
  private readonly values: Numbers | null;
  private readonly full: Set<number>;
  private firsts: Int32Array | null = null;

  constructor(
    readonly payload: Payload,
    readonly arrays: Arrays,
  ) {
    const { features, edges, members } = payload;
    this.step = arrays.get(features.step);
    this.column = arrays.get(features.column);
    this.extent = arrays.get(features.extent);
    this.maximum = arrays.get(features.maximum);
    this.mean = arrays.get(features.mean);
    this.evolution = arrays.get(features.evolution);
    this.source = arrays.get(edges.source);
    this.target = arrays.get(edges.target);
    this.start = arrays.get(members.start);
    this.place = arrays.get(members.place);
    this.values = payload.values && arrays.get(payload.values);
    this.full = new Set(payload.full ? arrays.get(payload.full) : []);
    this.atLeast = arrays.get(features.at_least);
    this.before = Array.from({ length: this.count }, () => []);
    this.after = Array.from({ length: this.count }, () => []);
    this.source.forEach((source, edge) => {
      const target = this.target[edge] ?? 0;
      this.after[source]?.push(target);
      this.before[target]?.push(source);
    });
    this.byStep = payload.times.map(() => []);
    this.step.forEach((step, feature) => this.byStep[step]?.push(feature));
    for (const row of this.byStep) {
      row.sort((a, b) => (this.column[a] ?? 0) - (this.column[b] ?? 0));
    }
    let columns = 1;
    this.column.forEach((column) => (columns = Math.max(columns, column + 1)));
    this.columns = columns;
  }

  get count(): number {
    return this.step.length;
  }

  members(feature: number): number[] {
    return Array.from(this.place.slice(this.start[feature], this.start[feature + 1]));
  }

  /** Percent of a place at a step, NaN where nothing was measured. */
  percent(step: number, place: number): number {
    const value = this.values?.[step * this.payload.places.length + place] ?? UNKNOWN;
    return value === UNKNOWN ? NaN : value / 2;
  }

  /** The same as text: "≥" for a link whose stall counter is saturated. */
  amount(step: number, place: number): string {
    const percent = this.percent(step, place);
    if (Number.isNaN(percent)) return "not measured";
    const bound = this.full.has(step * this.payload.places.length + place);
    return `${bound ? "≥ " : ""}${percent.toFixed(1)} %`;
  }

  /** First step at which a place was at the threshold; −1 for never. */
  reached(place: number): number {
    if (!this.firsts) {
      const many = this.payload.places.length;
      this.firsts = new Int32Array(many).fill(-1);
      const least = 2 * this.payload.threshold;
      this.values?.forEach((value, i) => {
        const at = i % many;
        // Bytes hold half percent steps; 255 is unknown.
        if (this.firsts![at]! < 0 && value >= least && value !== UNKNOWN) this.firsts![at] = Math.floor(i / many);
      });
    }
    return this.firsts[place] ?? -1;
  }

  /** The feature that a place is part of at a step; −1 for none. */
  featureOf(step: number, place: number): number {
    return this.byStep[step]?.find((feature) => this.members(feature).includes(place)) ?? -1;
  }

  /** Shades from no stall to stalled all the time. */
  shades(): string[] {
    const rgb = this.arrays.get(this.payload.shades);
    return Array.from({ length: rgb.length / 3 }, (_, i) => {
      const parts = [0, 1, 2].map((c) => (rgb[3 * i + c] ?? 0).toString(16).padStart(2, "0"));
      return `#${parts.join("")}`;
    });
  }

  colour(percent: number): string {
    let out = "#faf0f8";
    for (const [from, colour] of this.payload.bands) if (percent >= from) out = colour;
    return out;
  }

  time(step: number): string {
    return `${(this.payload.times[step] ?? 0).toPrecision(4)} ${this.payload.unit}`;
  }
}
