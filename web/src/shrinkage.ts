// Estimates of links that share their bundle's evidence: the same arithmetic as in
// tailback.telemetry.shrinkage, for spans of time that the reader chooses.

import { interval, Z95 } from "./interval";

/** Hop samples of a link, with its bundle, below which no estimate is shown. */
const MIN_SAMPLES = 10;

export interface Counts {
  samples: ArrayLike<number>;
  weight: ArrayLike<number>;
  variance: ArrayLike<number>;
  congested: ArrayLike<number>;
  congestedVariance: ArrayLike<number>;
}

/** Congested fractions with standard error and 95 % interval, NaN where nothing can be said. */
export interface Estimates {
  value: Float64Array;
  error: Float64Array;
  low: Float64Array;
  high: Float64Array;
  /** 1 where the samples contradict every fraction up to 1. */
  impossible: Uint8Array;
}

/** Which bundle, and which tier and direction, each link belongs to. */
export interface Grouping {
  bundle: ArrayLike<number>;
  kind: ArrayLike<number>;
  bundles: number;
  kinds: number;
}

export function grouping(bundle: ArrayLike<number>, kind: ArrayLike<number>): Grouping {
  const size = (of: ArrayLike<number>): number => Array.prototype.reduce.call(
    of, (most: unknown, n: unknown) => Math.max(most as number, n as number), -1) as number + 1;
  return { bundle, kind, bundles: size(bundle), kinds: size(kind) };
}

const clip = (value: number): number => Math.min(Math.max(value, 0), 1);
const ratio = (one: number, other: number): number => (other > 0 ? one / other : 0);

export function shrink(counts: Counts, groups: Grouping): Estimates {
  const { weight, variance, congested, congestedVariance, samples } = counts;
  const { bundle, bundles } = groups;
  const n = weight.length;
  const [b, g] = excesses(counts);
  const impossible = new Uint8Array(n);
  const sums = Array.from({ length: 5 }, () => new Float64Array(bundles));
  const [through, met, excess, size, many] = sums as
    [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
  for (let i = 0; i < n; i++) {
    const w = weight[i]!;
    if (!(w > 0)) continue;
    const m = congested[i]!;
    if (m - w > Z95 * Math.sqrt(w * (g[i]! + b[i]!))) {
      impossible[i] = 1;
      continue;
    }
    const of = bundle[i]!;
    through[of]! += w;
    met[of]! += m;
    excess[of]! += w * b[i]!;
    size[of]! += 1;
    many[of]! += samples[i]!;
  }
  const mean = new Float64Array(bundles);
  for (let of = 0; of < bundles; of++) mean[of] = Math.min(ratio(met[of]!, through[of]!), 1);
  // Variance of each link's own fraction, if its true one were the bundle's.
  const chance = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    const [w, mu] = [weight[i]!, mean[bundle[i]!]!];
    if (w > 0 && !impossible[i]) chance[i] = (mu * g[i]! + mu * mu * b[i]!) / w;
  }
  const tau = between(counts, groups, chance);
  const ofMean = new Float64Array(bundles);
  for (let i = 0; i < n; i++) {
    const of = bundle[i]!;
    if (weight[i]! > 0 && !impossible[i]) ofMean[of]! += (weight[i]! / through[of]!) ** 2 * (chance[i]! + tau[of]!);
  }
  const out = Array.from({ length: 4 }, () => new Float64Array(n).fill(NaN));
  const [value, error, low, high] = out as [Float64Array, Float64Array, Float64Array, Float64Array];
  for (let i = 0; i < n; i++) {
    const of = bundle[i]!;
    const w = weight[i]!;
    if (!(w > 0) || impossible[i] || many[of]! < MIN_SAMPLES) continue;
    const alone = size[of]! < 2;
    const x = congested[i]! / w;
    const mu = mean[of]!;
    const keep = alone || !(tau[of]! + chance[i]! > 0) ? 1 : tau[of]! / (tau[of]! + chance[i]!);
    const at = clip(mu + keep * (x - mu));
    const spread = (at * g[i]! + at * at * b[i]!) / w;
    const unknown = (2 / Math.max(size[of]! - 1, 1)) * (x - mu) ** 2;
    const sd = Math.sqrt(keep * spread + (1 - keep) ** 2 * (ofMean[of]! + unknown));
    value[i] = at;
    error[i] = sd;
    if (!alone && met[of]! > 0) {
      low[i] = clip(mu + keep * (x - mu) - Z95 * sd);
      high[i] = clip(mu + keep * (x - mu) + Z95 * sd);
      continue;
    }
    const ends = interval({ weight: w, variance: variance[i]!, congested: congested[i]!,
      congestedVariance: congestedVariance[i]! }, false);
    low[i] = alone ? ends[0] : 0;
    high[i] = alone ? ends[1] : Math.max(ends[1] * keep, bundleBound(through[of]!, ratio(excess[of]!, through[of]!)));
  }
  return { value, error, low, high, impossible };
}

/** Upper end of the interval of a bundle without a congested sample. */
function bundleBound(weight: number, excess: number): number {
  return interval({ weight, variance: weight * excess, congested: 0, congestedVariance: 0 }, false)[1];
}

/** l−1 of the packets and g−1 of the congested ones, for each link. */
function excesses({ weight, variance, congested, congestedVariance }: Counts): [Float64Array, Float64Array] {
  const n = weight.length;
  const [b, g] = [new Float64Array(n), new Float64Array(n)];
  let [all, spread] = [0, 0];
  for (let i = 0; i < n; i++) {
    all += weight[i]!;
    spread += variance[i]!;
  }
  const usual = all > 0 ? spread / all : 1;
  for (let i = 0; i < n; i++) {
    b[i] = weight[i]! > 0 ? variance[i]! / weight[i]! : usual;
    const length = b[i]! + 1;
    g[i] = (congestedVariance[i]! + length * b[i]!) / (congested[i]! + length);
  }
  return [b, g];
}

/** Variance of the true fractions within each bundle, not below that of its kind. */
function between({ weight, congested }: Counts, groups: Grouping, chance: Float64Array): Float64Array {
  const { bundle, kind, bundles, kinds } = groups;
  const sums = Array.from({ length: 5 }, () => new Float64Array(bundles));
  const [first, second, third, fourth, count] = sums as
    [Float64Array, Float64Array, Float64Array, Float64Array, Float64Array];
  const kindOf = new Int32Array(bundles);
  const centre = new Float64Array(bundles);
  const use = (visit: (of: number, precision: number, x: number) => void): void => {
    for (let i = 0; i < weight.length; i++) {
      const of = bundle[i]!;
      kindOf[of] = kind[i]!;
      const w = weight[i]!;
      if (chance[i]! > 0) visit(of, 1 / chance[i]!, congested[i]! / w);
    }
  };
  use((of, precision, x) => {
    first[of]! += precision;
    second[of]! += precision * precision;
    third[of]! += precision * x;
    count[of]! += 1;
  });
  for (let of = 0; of < bundles; of++) centre[of] = ratio(third[of]!, first[of]!);
  use((of, precision, x) => (fourth[of]! += precision * (x - centre[of]!) ** 2));
  const [over, under] = [new Float64Array(kinds), new Float64Array(kinds)];
  const tau = new Float64Array(bundles);
  for (let of = 0; of < bundles; of++) {
    const scale = first[of]! - ratio(second[of]!, first[of]!);
    if (!(scale > 1e-9 * Math.max(first[of]!, 1e-300))) continue;
    const beyond = fourth[of]! - (count[of]! - 1);
    tau[of] = Math.max(beyond, 0) / scale;
    over[kindOf[of]!]! += beyond;
    under[kindOf[of]!]! += scale;
  }
  for (let of = 0; of < bundles; of++) {
    const at = kindOf[of]!;
    tau[of] = Math.max(tau[of]!, Math.max(ratio(over[at]!, under[at]!), 0));
  }
  return tau;
}
