// Details of a rank's window: its messages, the lines of the program that sent them, their links.

import type { Model, RanksMeta } from "./data";
import { fraction } from "./data";
import type { Store } from "./state";
import { LinkValues } from "./values";

/** Number of messages listed, and of links for each. */
const MAX_MESSAGES = 8;
const MAX_LINKS = 3;

interface Message {
  from: number;
  to: number;
  bytes: number;
  line: number;
  /** When it was sent, and when it was received. */
  sent: number;
  done: number;
}

/** Messages that ranks ``from`` to ``to`` (exclusive) sent in a window or were receiving then. */
function within(model: Model, meta: RanksMeta, from: number, to: number, window: number): Message[] {
  const get = (name: keyof RanksMeta["messages"]): ArrayLike<number> => model.arrays.get(meta.messages[name]);
  const [src, dst, sent] = [get("src_rank"), get("dst_rank"), get("sent")];
  const [begun, done, bytes, line] = [get("begun"), get("done"), get("size_bytes"), get("line")];
  const edge = (at: number): number => (meta.edges_ps[at] ?? 0) / meta.unit_ps;
  const [start, end] = [edge(window), edge(window + 1)];
  const out: Message[] = [];
  for (let i = 0; i < src.length; i++) {
    const receives = dst[i]! >= from && dst[i]! < to && begun[i]! < end && done[i]! >= start;
    const sends = src[i]! >= from && src[i]! < to && sent[i]! >= start && sent[i]! < end;
    if (!receives && !sends) continue;
    out.push({ from: src[i]!, to: dst[i]!, bytes: bytes[i]!, line: line[i]!, sent: sent[i]!, done: done[i]! });
  }
  // Longest wait first.
  return out.sort((a, b) => (b.done - b.sent) - (a.done - a.sent) || a.done - b.done);
}

/** Links used by a message's line of the program at its two hosts' leaf switches, most congested first. */
function linksOf(model: Model, meta: RanksMeta, store: Store, message: Message): { link: number; value: number }[] {
  const line = meta.lines[message.line];
  const [view] = new LinkValues(model, store).views();
  if (!line || !view) return [];
  const node = model.arrays.get(meta.rank_node);
  const leafOf = model.arrays.get(model.payload.layout.node_switch);
  const [source, target] = [node[message.from] ?? -1, node[message.to] ?? -1];
  const vertex = (host: number): number => model.nodeCount + (leafOf[host] ?? -1);
  const leaves = [vertex(source), vertex(target)];
  const found = Array.from(model.arrays.get(line.links)).filter((link) => {
    const [src, dst] = [model.src[link] ?? -1, model.dst[link] ?? -1];
    if (src === source || dst === target) return true;
    // Between leaf switches: up from the sender's, down to the receiver's.
    const host = src < model.nodeCount || dst < model.nodeCount;
    return !host && leaves[0] !== leaves[1] && (src === leaves[0] || dst === leaves[1]);
  }).map((link) => ({ link, value: fraction(view, link) }));
  return found.filter(({ value }) => value > 0).sort((a, b) => b.value - a.value).slice(0, MAX_LINKS);
}

function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${Number((bytes / 1e3).toPrecision(3))} kB` : `${Number((bytes / 1e6).toPrecision(3))} MB`;
}

function button(text: string, act: () => void): HTMLButtonElement {
  const out = document.createElement("button");
  out.type = "button";
  out.textContent = text;
  out.addEventListener("click", act);
  return out;
}

/** List the messages of a rank, or of neighbouring ranks, in a window; text only, never markup. */
export function listMessages(
  list: HTMLElement, model: Model, meta: RanksMeta, store: Store, ranks: [number, number], window: number,
): void {
  const found = within(model, meta, ...ranks, window);
  const node = model.arrays.get(meta.rank_node);
  list.replaceChildren(...found.slice(0, MAX_MESSAGES).map((message) => {
    const item = document.createElement("li");
    const hosts = [node[message.from] ?? -1, node[message.to] ?? -1].filter((host) => host >= 0);
    item.append(button(`rank ${message.from} → rank ${message.to}, ${size(message.bytes)}`,
      () => store.chooseNodes(model, hosts)));
    const line = meta.lines[message.line];
    if (line) {
      const phase = model.phases(store.now.dataset).indexOf(line.phase);
      item.append(button(line.name, () => store.set({ selection: Math.max(phase, 0) })));
    }
    for (const { link, value } of linksOf(model, meta, store, message)) {
      item.append(button(`${model.linkName(link)} ${(100 * value).toFixed(0)} %`, () => store.choose(model, link)));
    }
    return item;
  }));
  const last = document.createElement("li");
  last.className = "note";
  const left = meta.messages_left_out > 0 ? ` (this report omits ${meta.messages_left_out} messages with short waits)` : "";
  if (found.length === 0) last.textContent = `No point-to-point message in this window${left}.`;
  else last.textContent = (found.length > MAX_MESSAGES ? `${found.length - MAX_MESSAGES} more in this window. ` : "") +
    `Longest wait first: message, line of the program, and the links at its hosts where that line meets the most congestion in the expected run${left}.`;
  list.append(last);
}
