// Shrunk estimates of links: the same arithmetic as in tailback.telemetry.shrinkage, for time spans
// that the reader selects.

import { contrastExcess, interval, Z95 } from "./interval";

/** Hop samples of a link, with its bundle, below which no estimate is shown. */
const MIN_SAMPLES = 10;

export interface Counts {
  samples: ArrayLike<number>;
  weight: ArrayLike<number>;
  variance: ArrayLike<number>;
  congested: ArrayLike<number>;
  congestedVariance: ArrayLike<number>;
  /** Whether one reservoir made both counts. */
  shared: boolean;
}

/** Congested fractions with standard error and 95 % interval; NaN with too few samples. */
export interface Estimates {
  value: Float64Array;
  error: Float64Array;
  low: Float64Array;
  high: Float64Array;
  /** 1 where the samples contradict every fraction up to 1. */
  impossible: Uint8Array;
}

export const estimatesOf = (links: number): Estimates => ({
  value: new Float64Array(links), error: new Float64Array(links), low: new Float64Array(links),
  high: new Float64Array(links), impossible: new Uint8Array(links),
});

/** Which tier and direction (kind), and which bundle of that kind, each link belongs to. */
export interface Grouping {
  kind: ArrayLike<number>;
  /** Number of each link's bundle among those of its kind. */
  bundle: Int32Array;
  /** Of each kind its links, and how many bundles they are. */
  kinds: { links: Int32Array; bundles: number }[];
}

export function grouping(bundle: ArrayLike<number>, kind: ArrayLike<number>): Grouping {
  const links: number[][] = [];
  const known: Map<number, number>[] = [];
  const within = new Int32Array(kind.length);
  for (let i = 0; i < kind.length; i++) {
    const of = kind[i]!;
    (links[of] ??= []).push(i);
    const numbers = (known[of] ??= new Map<number, number>());
    let number = numbers.get(bundle[i]!);
    if (number === undefined) numbers.set(bundle[i]!, (number = numbers.size));
    within[i] = number;
  }
  // Numbers without any link leave gaps.
  const kinds = Array.from(links, (mine, of) =>
    ({ links: Int32Array.from(mine ?? []), bundles: known[of]?.size ?? 0 }));
  return { kind, bundle: within, kinds };
}

const clip = (value: number): number => Math.min(Math.max(value, 0), 1);
const ratio = (one: number, other: number): number => (other > 0 ? one / other : 0);

/** l−1 of a link's packets and g−1 of its congested ones. */
function excesses({ weight, variance, congested, congestedVariance }: Counts, i: number): [number, number] {
  const b = variance[i]! / weight[i]!;
  return [b, (congestedVariance[i]! + (b + 1) * b) / (congested[i]! + b + 1)];
}

/** Estimate the links of one kind, which share nothing with those of others. */
export function shrink(counts: Counts, groups: Grouping, of: number, out: Estimates): void {
  const { weight, variance, congested, congestedVariance, samples } = counts;
  const { links, bundles } = groups.kinds[of]!;
  const { bundle } = groups;
  const n = links.length;
  // Of each link of the kind: l−1 as in an interval, g−1, the variance of its own fraction by sampling, if its true
  // one were the bundle's, and that of the true one, of as many packets, if all links were alike.
  const columns = Array.from({ length: 4 }, () => new Float64Array(n));
  const [b, g, chance, realized] = columns as [Float64Array, Float64Array, Float64Array, Float64Array];
  const sums = Array.from({ length: 6 }, () => new Float64Array(bundles));
  const [through, met, excess, size, many, ofMean] = sums as
    [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
  const seen = new Uint8Array(n);
  for (let k = 0; k < n; k++) {
    const i = links[k]!;
    const w = weight[i]!;
    out.value[i] = out.error[i] = out.low[i] = out.high[i] = NaN;
    out.impossible[i] = 0;
    if (!(w > 0)) continue;
    const m = congested[i]!;
    const [whole, own] = excesses(counts, i);
    g[k] = own;
    b[k] = contrastExcess(whole, own, counts.shared);
    if (m - w > Z95 * Math.sqrt(w * (g[k]! + b[k]!))) {
      out.impossible[i] = 1;
      continue;
    }
    const at = bundle[i]!;
    seen[k] = 1;
    through[at]! += w;
    met[at]! += m;
    excess[at]! += w * whole;
    size[at]! += 1;
    many[at]! += samples[i]!;
  }
  for (let k = 0; k < n; k++) {
    if (!seen[k]) continue;
    const at = bundle[links[k]!]!;
    const mu = Math.min(met[at]! / through[at]!, 1);
    const w = weight[links[k]!]!;
    chance[k] = (mu * g[k]! + mu * mu * b[k]!) / w;
    realized[k] = (mu * (1 - mu)) / w;
  }
  const tau = differences(counts, groups, of, chance.map((each, k) => each + realized[k]!));
  for (let k = 0; k < n; k++) {
    const at = bundle[links[k]!]!;
    if (seen[k]) ofMean[at]! += (weight[links[k]!]! / through[at]!) ** 2 * (chance[k]! + realized[k]! + tau[at]!);
  }
  for (let k = 0; k < n; k++) {
    const i = links[k]!;
    const at = bundle[i]!;
    if (!seen[k] || many[at]! < MIN_SAMPLES) continue;
    const w = weight[i]!;
    const alone = size[at]! < 2;
    const x = congested[i]! / w;
    const mu = Math.min(met[at]! / through[at]!, 1);
    const between = tau[at]! + realized[k]!;
    const all = between + chance[k]!;
    const keep = alone || !(all > 0) ? 1 : between / all;
    const value = clip(mu + keep * (x - mu));
    const spread = (value * g[k]! + value * value * b[k]!) / w;
    const unknown = (2 / Math.max(size[at]! - 1, 1)) * (x - mu) ** 2;
    const sd = Math.sqrt(keep * spread + (1 - keep) ** 2 * (ofMean[at]! + unknown));
    out.value[i] = value;
    out.error[i] = sd;
    if (!alone && met[at]! > 0) {
      out.low[i] = clip(mu + keep * (x - mu) - Z95 * sd);
      out.high[i] = clip(mu + keep * (x - mu) + Z95 * sd);
      continue;
    }
    const ends = interval({ weight: w, variance: variance[i]!, congested: congested[i]!,
      congestedVariance: congestedVariance[i]!, shared: counts.shared }, false);
    out.low[i] = alone ? ends[0] : 0;
    out.high[i] = alone ? ends[1]
      : Math.max(ends[1] * keep, bundleBound(through[at]!, ratio(excess[at]!, through[at]!)));
  }
}

/** Upper end of the interval of a bundle without a congested sample. */
function bundleBound(weight: number, excess: number): number {
  return interval({ weight, variance: weight * excess, congested: 0, congestedVariance: 0, shared: false }, false)[1];
}

/**
 * Variance of what makes the links of each bundle of a kind differ, not below that of the kind;
 * by chance alone their fractions have the variances given.
 */
function differences(
  { weight, congested }: Counts, groups: Grouping, of: number, chance: Float64Array,
): Float64Array {
  const { links, bundles } = groups.kinds[of]!;
  const sums = Array.from({ length: 5 }, () => new Float64Array(bundles));
  const [first, second, third, fourth, count] = sums as
    [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
  for (let k = 0; k < links.length; k++) {
    if (!(chance[k]! > 0)) continue;
    const i = links[k]!;
    const at = groups.bundle[i]!;
    const precision = 1 / chance[k]!;
    first[at]! += precision;
    second[at]! += precision * precision;
    third[at]! += precision * (congested[i]! / weight[i]!);
    count[at]! += 1;
  }
  for (let k = 0; k < links.length; k++) {
    if (!(chance[k]! > 0)) continue;
    const i = links[k]!;
    const at = groups.bundle[i]!;
    fourth[at]! += (congested[i]! / weight[i]! - third[at]! / first[at]!) ** 2 / chance[k]!;
  }
  let [over, under] = [0, 0];
  const tau = new Float64Array(bundles);
  for (let at = 0; at < bundles; at++) {
    const scale = first[at]! - ratio(second[at]!, first[at]!);
    if (!(scale > 1e-9 * Math.max(first[at]!, 1e-300))) continue;
    const beyond = fourth[at]! - (count[at]! - 1);
    tau[at] = Math.max(beyond, 0) / scale;
    over += beyond;
    under += scale;
  }
  const least = Math.max(ratio(over, under), 0);
  for (let at = 0; at < bundles; at++) tau[at] = Math.max(tau[at]!, least);
  return tau;
}
