// Data embedded in the report, and the reader of its packed arrays.

import { bisector } from "d3-array";
import type { Estimates, Grouping } from "./shrinkage";
import { estimatesOf, grouping, shrink } from "./shrinkage";

/** Position of an array in the packed data: offset in bytes, number of elements, element type. */
export interface Ref {
  o: number;
  n: number;
  t: "u1" | "u2" | "u4" | "i4" | "f4";
}

export interface BlockMeta {
  band: string;
  pod: number;
  switches: number[];
  ports: number;
  first_port: number;
  cells: Ref;
}

export interface SelectionMeta {
  phase: string | null;
  samples: Ref;
  weight: Ref;
  variance: Ref;
  congested: Ref;
  congested_variance: Ref;
  utilization: Ref;
}

/** A tier and direction over time; NaN for no estimate. */
export interface TierMeta {
  name: string;
  tier: number;
  direction: string;
  samples: Ref;
  value: Ref;
  low: Ref;
  high: Ref;
}

export interface Bar {
  name: string;
  from: number;
  to: number;
  low: number | null;
  high: number | null;
  text: string;
  colour: string;
  strong: boolean;
}

export interface BarsMeta {
  rows: Bar[];
  unit: "ps" | "";
  axis: string;
  note: string;
  /** Position of a reference line across all rows. */
  line: number | null;
  /** Meaning of the whiskers. */
  range: string;
}

export interface ColumnsMeta {
  labels: string[];
  /** Where the classes begin and end, of a histogram of numbers; one more than there are classes. */
  edges: string[] | null;
  series: { name: string; colour: string; values: number[] }[];
  curve: { name: string; values: number[] } | null;
  stacked: boolean;
  unit: string;
  title: string;
  x: string;
  y: string;
}

export interface PointsMeta {
  title: string;
  short: boolean;
  link: number[];
  x: number[];
  y: number[];
  low: number[];
  high: number[];
  colours: string[];
}

/** Cells in rows and columns; each shows the worst of its links. */
export interface GridMeta {
  name: string;
  rows: number;
  columns: number;
  x: string;
  y: string;
  cell: Ref;
  link: Ref;
  wide: boolean;
}

/** Link timeline; rows are groups of neighbouring links, numbered through all bands. */
export interface CourseMeta {
  frames: number;
  /** Whether samples are placed at the time packets reached the link, or else arrived at the receiver. */
  dated: boolean;
  edges_ps: number[];
  phases: string[];
  phase_shares: Ref;
  bands: { name: string; rows: number; links: number; cells: Ref }[];
  row: Ref;
  index: Ref;
  step: Ref;
  samples: Ref;
  weight: Ref;
  congested: Ref;
  variance: Ref;
  congested_variance: Ref;
  bytes: Ref;
  left_out: number;
  /** Windows that stand for extrapolated steps: start and end in picoseconds, number of steps. */
  skipped: [number, number, number][];
  sums: { tiers: TierMeta[]; bytes: Ref };
}

/** Ranks in order of their hosts, and a level for every pair: 0 for none, 1 to 255. */
export interface MatrixMeta {
  size: number;
  width: number;
  node: Ref;
  rank: Ref;
  leaf: Ref;
  pod: Ref;
  least: number;
  most: number;
  cells: Ref;
}

export interface DatasetMeta {
  id: string;
  label: string;
  /** Whether the samples were hashes. */
  hashed: boolean;
  /** Whether one reservoir made both counts. */
  shared: boolean;
  selections: SelectionMeta[];
  truth: { utilization: Ref; stall: Ref } | null;
  course: CourseMeta;
  matrix: MatrixMeta | null;
}

/**
 * One box of the flame graph: name, kind, value, what it refers to (a link, the number of a phase,
 * a node; -1 for none), what waits on it, and how much more it is in the second of two runs.
 */
export type Frame = [string, "all" | "link" | "line" | "rank", number, number, Frame[], number];

export interface Flames {
  unit: "ps" | "packets";
  trees: { name: string; change: boolean; top: Frame }[];
}

/** Ranks against measured time: rows of ranks, and windows of equal length. */
export interface RanksMeta {
  edges_ps: number[];
  first_rank: Ref;
  hosts: string[];
  /** Node of a row's first rank; −1 where unknown. */
  node: Ref;
  /** What the ranks did: shares of the windows, 0 to 255, row after row, and each row's total. */
  kinds: { name: string; colour: string; wait: boolean; cells: Ref; total_ps: Ref }[];
  /** The longest call of each cell: its place in the list, counted from 1; 0 for none. */
  call: Ref;
  calls: string[];
  /** For each run the place in it of each edge, by the messages posted; null where unknown. */
  expected_ps: (number[] | null)[];
  /** Node of each rank; −1 where unknown. */
  rank_node: Ref;
  /** Unit of the times of pieces and messages, in picoseconds. */
  unit_ps: number;
  /** Single calls by rank and time, in pieces of one kind; ``call`` as above. */
  pieces: Record<"rank" | "kind" | "start" | "end" | "call", Ref>;
  /** Whether the report has the single calls of each window. */
  in_pieces: Ref;
  /** Point-to-point messages by receiver, with the times of their sending and receiving. */
  messages: Record<"src_rank" | "dst_rank" | "size_bytes" | "sent" | "begun" | "done" | "line", Ref>;
  messages_left_out: number;
  /** Lines of the program that send, and the links on which they met most congestion. */
  lines: { name: string; phase: string; links: Ref }[];
}

export type Scale = Quantity | "traffic" | "change";

export interface Payload {
  scales: Record<Scale, Ref>;
  node_names: string[];
  switch_names: string[];
  links: {
    src: Ref;
    dst: Ref;
    src_port: Ref;
    dst_port: Ref;
    /** Names of the ports that links leave; null where the fabric gives numbers alone. */
    interfaces: string[] | null;
    group: Ref;
    rate_gbps: Ref;
    bundle: Ref;
  };
  groups: string[];
  /** Links at which congestion begins, and links that wait for others. */
  marks: { roots: number[]; waiting: number[] };
  /** What plots of links show first. */
  quantity: Quantity;
  ways: [number, "up" | "down" | "flat"][];
  layout: {
    width: number;
    tiers: number;
    tier_names: string[];
    switch_x: Ref;
    switch_y: Ref;
    pods: [number, number, number][];
    node_x: Ref;
    node_row: Ref;
    node_width: number;
    node_rows: number;
    ejection: Ref;
    node_switch: Ref;
    switch_pod: Ref;
    halves: Ref;
    segments: Ref;
  };
  blocks: BlockMeta[][];
  datasets: DatasetMeta[];
  change: { of: [number, number]; cells: Ref[]; matrix: MatrixMeta | null } | null;
  flames: Flames | null;
  ranks: RanksMeta | null;
  bars: Record<string, BarsMeta>;
  columns: Record<string, ColumnsMeta>;
  points: PointsMeta | null;
  grids: { kind: string; grids: GridMeta[] } | null;
  scenario: string;
}

/** The payload as the page holds it: the flame graph is JSON among the packed arrays. */
export type Embedded = Omit<Payload, "flames"> & { flames: Ref | null };

export type Quantity = "congestion" | "utilization" | "stall";
export type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array;

const KINDS = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
} as const;

/** A share of 65535 ten-thousandths in a packed array means: no data. */
const NO_SHARE = 65535;

/** Decompress the packed arrays of the page. */
export async function inflate(base64: string): Promise<Uint8Array> {
  const binary = atob(base64.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads arrays by their reference; the bytes of an array are stored plane by plane. */
export class Arrays {
  private readonly cache = new Map<number, Numbers>();
  private readonly sums = new Map<number, Int32Array>();

  constructor(private readonly bytes: Uint8Array) {}

  get(ref: Ref): Numbers {
    const known = this.cache.get(ref.o);
    if (known && known.length === ref.n) return known;
    const kind = KINDS[ref.t];
    const size = kind.BYTES_PER_ELEMENT;
    const plain = new Uint8Array(ref.n * size);
    for (let plane = 0; plane < size; plane++) {
      const from = ref.o + plane * ref.n;
      for (let i = 0; i < ref.n; i++) plain[i * size + plane] = this.bytes[from + i] ?? 0;
    }
    const out = new kind(plain.buffer);
    this.cache.set(ref.o, out);
    return out;
  }

  /** Plain values that were stored as JSON. */
  json(ref: Ref): unknown {
    return JSON.parse(new TextDecoder().decode(this.get(ref) as Uint8Array<ArrayBuffer>));
  }

  /** Running sums of an array that was stored as differences. */
  running(ref: Ref): Int32Array {
    const known = this.sums.get(ref.o);
    if (known && known.length === ref.n) return known;
    let sum = 0;
    const out = Int32Array.from(this.get(ref), (step) => (sum += step));
    this.sums.set(ref.o, out);
    return out;
  }
}

/** Sums over all links for one run and phase; those of a time span are computed here. */
export class View {
  private readonly done: Uint8Array;

  constructor(
    readonly samples: ArrayLike<number>,
    readonly weight: ArrayLike<number>,
    readonly variance: ArrayLike<number>,
    readonly congested: ArrayLike<number>,
    readonly congestedVariance: ArrayLike<number>,
    private readonly busy: (link: number) => number,
    private readonly groups: Grouping,
    readonly hashed: boolean,
    readonly shared: boolean,
    readonly found: Estimates = estimatesOf(weight.length),
  ) {
    this.done = new Uint8Array(groups.kinds.length);
  }

  /** Share of the line rate that our packets took; NaN for no data. */
  utilization(link: number): number {
    return (this.weight[link] ?? 0) > 0 ? this.busy(link) : NaN;
  }

  /**
   * Shrunk congested fractions, computed for a link's tier and direction on first use: a drag
   * that shows one link estimates no others.
   */
  estimates(link: number): Estimates {
    const kind = this.groups.kind[link] ?? 0;
    if (!this.done[kind]) {
      this.done[kind] = 1;
      shrink(this, this.groups, kind, this.found);
    }
    return this.found;
  }
}

/** Sums of one run and phase over a span of frames, updated as the span moves. */
interface Sums {
  from: number;
  to: number;
  columns: Float64Array[];
}

export type Span = readonly [number, number] | null;

/** The data of the report with names resolved. */
export class Model {
  readonly src: Numbers;
  readonly dst: Numbers;
  readonly srcPort: Numbers;
  readonly dstPort: Numbers;
  readonly group: Numbers;
  readonly rate: Numbers;
  readonly bundle: Numbers;
  readonly ejection: Numbers;
  readonly count: number;
  readonly nodeCount: number;
  private readonly groups: Grouping;
  private readonly interfaceAt = new Map<string, string>();
  private readonly known = new Map<string, View | null>();
  private readonly sums = new Map<string, Sums>();
  private readonly spans = new Map<string, { from: number; to: number; view: View }>();

  constructor(
    readonly payload: Payload,
    readonly arrays: Arrays,
  ) {
    const links = payload.links;
    this.src = arrays.get(links.src);
    this.dst = arrays.get(links.dst);
    this.srcPort = arrays.get(links.src_port);
    this.dstPort = arrays.get(links.dst_port);
    this.group = arrays.get(links.group);
    this.rate = arrays.get(links.rate_gbps);
    this.bundle = arrays.get(links.bundle);
    this.groups = grouping(this.bundle, this.group);
    this.ejection = arrays.get(payload.layout.ejection);
    this.count = this.src.length;
    this.nodeCount = payload.node_names.length;
    links.interfaces?.forEach((name, link) =>
      this.interfaceAt.set(`${this.src[link]} ${this.srcPort[link]}`, name),
    );
  }

  vertexName(vertex: number): string {
    const nodes = this.payload.node_names;
    return (
      (vertex < nodes.length
        ? nodes[vertex]
        : this.payload.switch_names[vertex - nodes.length]) ?? "?"
    );
  }

  /** A directed link by the ports at its ends, as port_names.py names it. */
  linkName(link: number): string {
    const near = this.portName(this.src[link] ?? 0, this.srcPort[link] ?? 0);
    return `${near} → ${this.portName(this.dst[link] ?? 0, this.dstPort[link] ?? 0)}`;
  }

  private portName(vertex: number, port: number): string {
    return `${this.vertexName(vertex)}[${this.interfaceAt.get(`${vertex} ${port}`) || port}]`;
  }

  groupName(link: number): string {
    return this.payload.groups[this.group[link] ?? 0] ?? "";
  }

  /** Index of the difference in the list of runs: after the runs. */
  get changeIndex(): number {
    return this.payload.change ? this.payload.datasets.length : -1;
  }

  run(index: number): DatasetMeta {
    const found = this.payload.datasets[index];
    if (!found) throw new Error(`no run ${index}`);
    return found;
  }

  /** The runs of a selection: one, or the two of the difference. */
  runsOf(dataset: number): number[] {
    const { change } = this.payload;
    return change && dataset === this.changeIndex ? [...change.of] : [dataset];
  }

  /** Phases that can be selected; null, the first entry, is the whole run. */
  phases(dataset: number): (string | null)[] {
    const all = this.runsOf(dataset).flatMap((run) => this.run(run).selections);
    return [...new Set(all.map((selection) => selection.phase))];
  }

  /** A phase of a run (null: all phases) in a time span; returns null if the run lacks the phase. */
  view(run: number, phase: string | null, time: Span): View | null {
    const key = JSON.stringify([run, phase]);
    if (time) return this.within(key, run, phase, time);
    let found = this.known.get(key);
    if (found === undefined) this.known.set(key, (found = this.whole(run, phase)));
    return found;
  }

  private whole(run: number, phase: string | null): View | null {
    const { selections, hashed, shared } = this.run(run);
    const meta = selections.find((selection) => selection.phase === phase);
    if (!meta) return null;
    const get = (ref: Ref): Numbers => this.arrays.get(ref);
    const busy = get(meta.utilization);
    return new View(
      get(meta.samples), get(meta.weight), get(meta.variance), get(meta.congested),
      get(meta.congested_variance), (link) => share(busy, link), this.groups, hashed,
      shared,
    );
  }

  /** The samples of some frames of time, summed. */
  private within(
    key: string, run: number, phase: string | null, [from, to]: readonly [number, number],
  ): View | null {
    const last = this.spans.get(key);
    if (last?.from === from && last.to === to) return last.view;
    const { course, hashed, shared, selections } = this.run(run);
    const slot = selections.findIndex((selection) => selection.phase === phase) - 1;
    if (phase !== null && slot < 0) return null;
    const slots = (course.index.n - 1) / course.frames;
    const chosen = phase === null ? [0, slots] as const : [slot, slot + 1] as const;
    const columns = this.summed(key, course, chosen, from, to);
    const [samples, weight, congested, variance, met, bytes] = columns as
      [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
    const seconds = ((course.edges_ps[to] ?? 0) - (course.edges_ps[from] ?? 0)) / 1e12;
    const busy = (link: number): number =>
      Math.min((bytes[link]! * 8e-9) / (seconds * (this.rate[link] ?? 0)), 1);
    // The sums of the last span are moved in place, and so are its estimates.
    const view = new View(
      samples, weight, variance, congested, met, busy, this.groups, hashed, shared, last?.view.found,
    );
    this.spans.set(key, { from, to, view });
    return view;
  }

  /** Sums of a span of frames; frames that the previous span had are not added again. */
  private summed(
    key: string, course: CourseMeta, slots: readonly [number, number], from: number, to: number,
  ): Float64Array[] {
    const last = this.sums.get(key);
    const moved = last ? Math.abs(last.from - from) + Math.abs(last.to - to) : Infinity;
    const fresh = !last || moved >= to - from;
    const sums: Sums = fresh
      ? { from, to: from, columns: last?.columns ?? COLUMNS.map(() => new Float64Array(this.count)) }
      : last;
    if (fresh) for (const column of sums.columns) column.fill(0);
    const add = (first: number, end: number, sign: 1 | -1): void => {
      if (end > first) this.add(sums.columns, course, slots, first, end, sign);
    };
    add(sums.from, Math.min(from, sums.to), -1);
    add(Math.max(to, sums.from), sums.to, -1);
    add(from, Math.min(sums.from, to), 1);
    add(Math.max(sums.to, from), to, 1);
    [sums.from, sums.to] = [from, to];
    this.sums.set(key, sums);
    return sums.columns;
  }

  private add(
    sums: Float64Array[], course: CourseMeta, [first, end]: readonly [number, number],
    from: number, to: number, sign: 1 | -1,
  ): void {
    const index = this.arrays.get(course.index);
    const link = this.arrays.running(course.step);
    COLUMNS.forEach((name, c) => {
      const column = this.arrays.get(course[name]);
      const sum = sums[c]!;
      for (let p = first; p < end; p++) {
        const last = index[p * course.frames + to]!;
        for (let i = index[p * course.frames + from]!; i < last; i++) {
          sum[link[i]!]! += sign * column[i]!;
        }
      }
    });
  }

  /** Hosts whose messages may cross an inner link: those of its leaf, or of its pod. */
  hostsBehind(link: number): { sending: boolean; hosts: Set<number> } | null {
    const way = this.payload.ways[this.group[link] ?? 0];
    if (link < 0 || !way || way[0] < 1 || way[1] === "flat") return null;
    const { layout } = this.payload;
    const leafOf = this.arrays.get(layout.node_switch);
    const podOf = this.arrays.get(layout.switch_pod);
    const lower = ((way[1] === "up" ? this.src[link] : this.dst[link]) ?? 0) - this.nodeCount;
    const pod = podOf[lower] ?? -1;
    const hosts = new Set<number>();
    leafOf.forEach((leaf, node) => {
      const below = way[0] === 1 ? leaf === lower : pod >= 0 && podOf[leaf] === pod;
      if (leaf >= 0 && below) hosts.add(node);
    });
    return { sending: way[1] === "up", hosts };
  }
}

/** Quantities per link and frame, in the order of a view's sums. */
const COLUMNS = ["samples", "weight", "congested", "variance", "congested_variance", "bytes"] as const;

/** Congested fraction of a link, 0–1; NaN with too few samples. */
export function fraction(view: View, link: number): number {
  return view.estimates(link).value[link] ?? NaN;
}

/** Frame of a time course at a point in time. */
export function frameAt({ edges_ps: edges, frames }: CourseMeta, ps: number): number {
  return Math.min(Math.max(ascending.right(edges, ps) - 1, 0), frames - 1);
}

/** Extrapolated steps in a frame as text; null where every packet was simulated. */
export function extrapolated({ edges_ps: edges, skipped }: CourseMeta, frame: number): string | null {
  const [from = 0, to = 0] = [edges[frame], edges[frame + 1]];
  const inside = skipped.filter(([start, end]) => start < to && end > from);
  const steps = inside.reduce((sum, [, , each]) => sum + each, 0);
  return steps > 0 ? `extrapolated: ${steps} steps that were not simulated` : null;
}

/** Meaning of the time axis of a time course. */
export function timeOf({ dated }: CourseMeta): string {
  return dated ? "at the link" : "arrival of the packets";
}

const ascending = bisector((edge: number) => edge);

/** A packed share as a number, NaN where there is no data. */
export function share(values: Numbers, link: number): number {
  const value = values[link] ?? NO_SHARE;
  return value === NO_SHARE ? NaN : value / 10000;
}
