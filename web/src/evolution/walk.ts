// Keyboard navigation over the cells of the network: a panel and a cell in it, in row-major order.

import type { Graph } from "./data";

export interface Spot {
  panel: number;
  cell: number;
}

export const placeAt = (graph: Graph, { panel, cell }: Spot): number => {
  const meta = graph.payload.panels[panel];
  return meta ? (graph.arrays.get(meta.cells)[cell] ?? -1) : -1;
};

/** The cell an arrow key moves to, across panel boundaries; null for other keys. */
export function walk(graph: Graph, from: Spot | null, key: string): Spot | null {
  if (!key.startsWith("Arrow")) return null;
  if (!from) return along(graph, { panel: 0, cell: -1 }, 1);
  const back = key === "ArrowLeft" || key === "ArrowUp";
  const way = back ? -1 : 1;
  if (key === "ArrowLeft" || key === "ArrowRight") return along(graph, from, way) ?? from;
  const { rows = 0, columns = 1 } = graph.payload.panels[from.panel] ?? {};
  for (let cell = from.cell + way * columns; cell >= 0 && cell < rows * columns; ) {
    if (placeAt(graph, { panel: from.panel, cell }) >= 0) return { panel: from.panel, cell };
    cell += way * columns;
  }
  const panel = from.panel + way;
  const next = graph.payload.panels[panel];
  if (!next) return from;
  return along(graph, { panel, cell: back ? next.rows * next.columns : -1 }, way) ?? from;
}

/** The next cell with a link, in row-major order. */
function along(graph: Graph, from: Spot, way: number): Spot | null {
  let { panel, cell } = from;
  for (let meta = graph.payload.panels[panel]; meta; meta = graph.payload.panels[panel]) {
    for (cell += way; cell >= 0 && cell < meta.rows * meta.columns; cell += way) {
      if (placeAt(graph, { panel, cell }) >= 0) return { panel, cell };
    }
    panel += way;
    const next = graph.payload.panels[panel];
    cell = way > 0 || !next ? -1 : next.rows * next.columns;
  }
  return null;
}
