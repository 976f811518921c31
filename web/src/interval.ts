// 95 % intervals of a congested fraction: the same as in the tables (tailback.telemetry.estimate).

export const Z95 = 1.959963984540054;

export interface Sums {
  /** Estimated packets, and their variance. */
  weight: number;
  variance: number;
  /** Estimated congested packets, and their variance. */
  congested: number;
  congestedVariance: number;
  /** Whether one reservoir made both counts: their covariance is then the variance of the congested. */
  shared: boolean;
}

const clip = (value: number): number => Math.min(Math.max(value, 0), 1);

/** Score interval of congested / weight, both ends 0–1; NaN without packets. */
export function interval(sums: Sums, hashed: boolean): [number, number] {
  const { weight: w, congested: m } = sums;
  if (!(w > 0)) return [NaN, NaN];
  // Mean of l−1 over the packets, l hops; and of g−1, g congested hops, smoothed by one sample.
  const excess = sums.variance / w;
  const length = excess + 1;
  const met = (sums.congestedVariance + length * excess) / (m + length);
  const ratio = m / w;
  const c = (Z95 * Z95) / w;
  const linear = 2 * ratio + c * met;
  const square = 1 - c * contrastExcess(excess, met, sums.shared);
  const root = Math.sqrt(Math.max(linear * linear - 4 * ratio * ratio * square, 0));
  const low = clip(linear + root > 0 ? (2 * ratio * ratio) / (linear + root) : 0);
  const high = clip(square > 0 ? (linear + root) / (2 * square) : 1);
  return [hashed ? Math.min(low, lowerBound(sums)) : low, Math.max(high, low)];
}

/** l−1 of independent reservoirs; of one, the factor of f² in the variance of congested − f weight. */
export const contrastExcess = (excess: number, met: number, shared: boolean): number =>
  shared ? Math.max(excess - 2 * met, -met) : excess;

/** Of samples that were hashes: their variance does not vanish with the fraction (Fieller, 1954). */
function lowerBound(sums: Sums): number {
  const { weight: w, congested: m } = sums;
  const square = w * w - Z95 * Z95 * sums.variance;
  if (square <= 0) return 0;
  const linear = m * w - (sums.shared ? Z95 * Z95 * sums.congestedVariance : 0);
  const rest = m * m - Z95 * Z95 * sums.congestedVariance;
  return clip((linear - Math.sqrt(Math.max(linear * linear - square * rest, 0))) / square);
}

/** An estimate with its interval, all 0–1. */
export type Estimate = readonly [value: number, low: number, high: number];

/** Interval of after minus before, from those of both (Newcombe, 1998, method 10). */
export function ofDifference(before: Estimate, after: Estimate): [number, number] {
  const change = after[0] - before[0];
  return [
    change - Math.hypot(after[0] - after[1], before[2] - before[0]),
    change + Math.hypot(after[2] - after[0], before[0] - before[1]),
  ];
}
