// What the report carries, and how its packed arrays are read.

/** Place of an array in the packed data: offset in bytes, number of elements, element type. */
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
  congested: Ref;
  error: Ref;
  utilization: Ref;
}

export interface DatasetMeta {
  id: string;
  label: string;
  selections: SelectionMeta[];
  truth: { utilization: Ref; stall: Ref } | null;
}

/** One box of the flame graph: name, kind, value, a link of it or -1, what waits on it. */
export type Frame = [string, "all" | "link" | "line" | "rank", number, number, Frame[]];

export interface Flames {
  unit: "ps" | "packets";
  trees: { name: string; top: Frame }[];
}

export interface Payload {
  scales: Record<Quantity, Ref>;
  node_names: string[];
  switch_names: string[];
  links: { src: Ref; dst: Ref; src_port: Ref; dst_port: Ref; group: Ref; rate_gbps: Ref };
  groups: string[];
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
    halves: Ref;
    segments: Ref;
  };
  blocks: BlockMeta[][];
  datasets: DatasetMeta[];
  flames: Flames | null;
}

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

/** Inflate the packed arrays of the page. */
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
}

/** Numbers of all links in one data set and one selection of phases. */
export interface View {
  samples: Numbers;
  weight: Numbers;
  congested: Numbers;
  error: Numbers;
  utilization: Numbers;
}

/** The data of the report with names resolved. */
export class Model {
  readonly src: Numbers;
  readonly dst: Numbers;
  readonly srcPort: Numbers;
  readonly dstPort: Numbers;
  readonly group: Numbers;
  readonly rate: Numbers;
  readonly count: number;

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
    this.count = this.src.length;
  }

  vertexName(vertex: number): string {
    const nodes = this.payload.node_names;
    return (
      (vertex < nodes.length
        ? nodes[vertex]
        : this.payload.switch_names[vertex - nodes.length]) ?? "?"
    );
  }

  linkName(link: number): string {
    const from = this.vertexName(this.src[link] ?? 0);
    return `${from}[${this.srcPort[link] ?? 0}] → ${this.vertexName(this.dst[link] ?? 0)}`;
  }

  groupName(link: number): string {
    return this.payload.groups[this.group[link] ?? 0] ?? "";
  }

  dataset(index: number): DatasetMeta {
    const found = this.payload.datasets[index];
    if (!found) throw new Error(`no data set ${index}`);
    return found;
  }

  view(dataset: number, selection: number): View {
    const meta = this.dataset(dataset).selections[selection];
    if (!meta) throw new Error(`no selection ${selection}`);
    return {
      samples: this.arrays.get(meta.samples),
      weight: this.arrays.get(meta.weight),
      congested: this.arrays.get(meta.congested),
      error: this.arrays.get(meta.error),
      utilization: this.arrays.get(meta.utilization),
    };
  }
}

/** Congested fraction of a link, 0–1, or NaN where it was never sampled. */
export function fraction(view: View, link: number): number {
  const weight = view.weight[link] ?? 0;
  return weight > 0 ? Math.min((view.congested[link] ?? 0) / weight, 1) : NaN;
}

/** A packed share as a number, NaN where there is no data. */
export function share(values: Numbers, link: number): number {
  const value = values[link] ?? NO_SHARE;
  return value === NO_SHARE ? NaN : value / 10000;
}
