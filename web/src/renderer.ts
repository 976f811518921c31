// One drawing interface, two backends: a canvas for the screen and SVG for files.

/** A colour, or a pattern: hatching for no data, stripes over uncertain values. */
export type Fill = string | "hatch" | "uncertain";

/** Left, top, width and height. */
export type Box = readonly [number, number, number, number];

export interface TextStyle {
  size?: number;
  colour?: string;
  align?: "start" | "middle" | "end";
}

/** Drawing operations of all views. Coordinates are CSS pixels. */
export interface Renderer {
  /** Many separate segments x0,y0,x1,y1 of one style. */
  lines(coordinates: number[], colour: string, width: number, dash?: number[]): void;
  /** Many rectangles x,y,w,h of one fill. */
  rects(coordinates: number[], fill: Fill): void;
  /** A grid of adjacent cells in a box, each with the index of its colour; −1 draws nothing. */
  cells(box: Box, columns: number, shades: Int16Array, colours: string[]): void;
  frame(x: number, y: number, w: number, h: number, colour: string, width: number): void;
  circles(coordinates: number[], radius: number, fill: string, stroke: string): void;
  text(text: string, x: number, y: number, style?: TextStyle): void;
  clip(x: number, y: number, w: number, h: number): void;
  unclip(): void;
}

export const INK = "#1b2430";
export const MUTED = "#5d6875";
export const SELECTED = "#0b57d0";
const NO_DATA = "#eef0f2";
const HATCH = "#b4bcc5";
const UNCERTAIN_STRIPES = "rgba(255,255,255,0.85)";
const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif";

let measure: CanvasRenderingContext2D | null = null;

/** Width of a text in CSS pixels; both backends use the same font. */
export function textWidth(text: string, size: number): number {
  measure ??= document.createElement("canvas").getContext("2d");
  if (!measure) return 0.6 * size * text.length;
  measure.font = `${size}px ${FONT}`;
  return measure.measureText(text).width;
}

const UNITS = /(\d) (?=(?:%|[pnµm]?s|[kMG]?B|Gb\/s|Mb\/s)(?:\W|$))/g;

/** A text wrapped to a width; a word that is wider gets a line of its own. */
export function wrapped(text: string, size: number, room: number): string[] {
  const lines: string[] = [];
  // A number stays with its unit.
  for (const word of text.replace(UNITS, "$1\u00a0").split(" ")) {
    const last = lines[lines.length - 1];
    const longer = `${last ?? ""} ${word}`;
    if (last !== undefined && textWidth(longer, size) <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** A text truncated to a width. */
export function fitted(text: string, size: number, room: number): string {
  if (textWidth(text, size) <= room) return text;
  const letters = [...text];
  while (letters.length > 0 && textWidth(`${letters.join("")}…`, size) > room) letters.pop();
  return `${letters.join("")}…`;
}

/** A repeating tile of diagonal strokes. */
function stripes(
  ctx: CanvasRenderingContext2D, stroke: string, paper: string | null,
): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const on = tile.getContext("2d");
  if (on) {
    if (paper) {
      on.fillStyle = paper;
      on.fillRect(0, 0, 6, 6);
    }
    on.strokeStyle = stroke;
    on.lineWidth = 1;
    on.beginPath();
    for (const shift of [-6, 0, 6]) {
      on.moveTo(shift, 6);
      on.lineTo(shift + 6, 0);
    }
    on.stroke();
  }
  return ctx.createPattern(tile, "repeat") ?? paper ?? "transparent";
}

interface Patterns {
  hatch: CanvasPattern | string;
  uncertain: CanvasPattern | string;
}

/** Cached patterns of each canvas: creating them costs more than most of what a frame draws. */
const patterns = new WeakMap<CanvasRenderingContext2D, Patterns>();

/** A colour #rrggbb as a pixel of an image in native byte order. */
function pixel(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) as [number, number, number];
  return new Uint32Array(new Uint8Array([r, g, b, 255]).buffer)[0] ?? 0;
}

export class CanvasRenderer implements Renderer {
  private readonly hatch: CanvasPattern | string;
  private readonly uncertain: CanvasPattern | string;

  constructor(private readonly ctx: CanvasRenderingContext2D) {
    let known = patterns.get(ctx);
    if (!known) patterns.set(ctx, (known = { hatch: stripes(ctx, HATCH, NO_DATA), uncertain: stripes(ctx, UNCERTAIN_STRIPES, null) }));
    ({ hatch: this.hatch, uncertain: this.uncertain } = known);
  }

  cells([x, y, w, h]: Box, columns: number, shades: Int16Array, colours: string[]): void {
    const rows = Math.floor(shades.length / Math.max(columns, 1));
    if (rows < 1 || columns < 1) return;
    // One small image, scaled up without smoothing: thousands of rectangles take far longer.
    const tile = document.createElement("canvas");
    [tile.width, tile.height] = [columns, rows];
    const on = tile.getContext("2d");
    if (!on) return;
    const image = on.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const palette = colours.map(pixel);
    for (let i = 0; i < pixels.length; i++) pixels[i] = shades[i]! < 0 ? 0 : (palette[shades[i]!] ?? 0);
    on.putImageData(image, 0, 0);
    const { ctx } = this;
    const smooth = ctx.imageSmoothingEnabled;
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(tile, x, y, w, h);
    ctx.imageSmoothingEnabled = smooth;
  }

  lines(coordinates: number[], colour: string, width: number, dash: number[] = []): void {
    const { ctx } = this;
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.beginPath();
    for (let i = 0; i + 3 < coordinates.length; i += 4) {
      ctx.moveTo(coordinates[i]!, coordinates[i + 1]!);
      ctx.lineTo(coordinates[i + 2]!, coordinates[i + 3]!);
    }
    ctx.stroke();
    ctx.setLineDash([]);
  }

  rects(coordinates: number[], fill: Fill): void {
    const { ctx } = this;
    ctx.fillStyle = fill === "hatch" ? this.hatch : fill === "uncertain" ? this.uncertain : fill;
    for (let i = 0; i + 3 < coordinates.length; i += 4) {
      ctx.fillRect(
        coordinates[i]!,
        coordinates[i + 1]!,
        coordinates[i + 2]!,
        coordinates[i + 3]!,
      );
    }
  }

  frame(x: number, y: number, w: number, h: number, colour: string, width: number): void {
    this.ctx.strokeStyle = colour;
    this.ctx.lineWidth = width;
    this.ctx.strokeRect(x, y, w, h);
  }

  circles(coordinates: number[], radius: number, fill: string, stroke: string): void {
    const { ctx } = this;
    ctx.fillStyle = fill;
    ctx.strokeStyle = stroke;
    ctx.lineWidth = 1;
    for (let i = 0; i + 1 < coordinates.length; i += 2) {
      ctx.beginPath();
      ctx.arc(coordinates[i]!, coordinates[i + 1]!, radius, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    }
  }

  text(text: string, x: number, y: number, style: TextStyle = {}): void {
    const { ctx } = this;
    ctx.font = `${style.size ?? 12}px ${FONT}`;
    ctx.fillStyle = style.colour ?? INK;
    ctx.textAlign = style.align === "middle" ? "center" : (style.align ?? "start");
    ctx.textBaseline = "middle";
    ctx.fillText(text, x, y);
  }

  clip(x: number, y: number, w: number, h: number): void {
    this.ctx.save();
    this.ctx.beginPath();
    this.ctx.rect(x, y, w, h);
    this.ctx.clip();
  }

  unclip(): void {
    this.ctx.restore();
  }
}

const round = (value: number): string => String(Math.round(value * 100) / 100);
const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

export class SvgRenderer implements Renderer {
  private readonly parts: string[] = [];
  private clips = 0;

  constructor(
    private readonly width: number,
    private readonly height: number,
  ) {}

  lines(coordinates: number[], colour: string, width: number, dash: number[] = []): void {
    const d: string[] = [];
    for (let i = 0; i + 3 < coordinates.length; i += 4) {
      const [a, b, c, e] = coordinates.slice(i, i + 4).map(round);
      d.push(`M${a} ${b}L${c} ${e}`);
    }
    const dashes = dash.length ? ` stroke-dasharray="${dash.map(round).join(" ")}"` : "";
    const look = `fill="none" stroke="${colour}" stroke-width="${round(width)}"${dashes}`;
    if (d.length) this.parts.push(`<path d="${d.join("")}" ${look}/>`);
  }

  rects(coordinates: number[], fill: Fill): void {
    const d: string[] = [];
    for (let i = 0; i + 3 < coordinates.length; i += 4) {
      const [x, y, w, h] = coordinates.slice(i, i + 4).map(round);
      d.push(`M${x} ${y}h${w}v${h}h-${w}z`);
    }
    const paint = fill === "hatch" ? "url(#no-data)" : fill === "uncertain" ? "url(#uncertain)" : fill;
    if (d.length) this.parts.push(`<path d="${d.join("")}" fill="${paint}"/>`);
  }

  cells([x, y, w, h]: Box, columns: number, shades: Int16Array, colours: string[]): void {
    const rows = Math.floor(shades.length / Math.max(columns, 1));
    const [cw, ch] = [w / columns, h / rows];
    const bins: number[][] = colours.map(() => []);
    // Adjacent cells of one shade in a row become one rectangle.
    for (let i = 0, to = 1; i < rows * columns; i = to, to++) {
      while (to % columns !== 0 && shades[to] === shades[i]) to++;
      bins[shades[i]!]?.push(x + (i % columns) * cw, y + Math.floor(i / columns) * ch, (to - i) * cw, ch);
    }
    bins.forEach((bin, shade) => this.rects(bin, colours[shade] ?? INK));
  }

  frame(x: number, y: number, w: number, h: number, colour: string, width: number): void {
    const box = `x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}"`;
    this.parts.push(
      `<rect ${box} fill="none" stroke="${colour}" stroke-width="${round(width)}"/>`,
    );
  }

  circles(coordinates: number[], radius: number, fill: string, stroke: string): void {
    for (let i = 0; i + 1 < coordinates.length; i += 2) {
      const at = `cx="${round(coordinates[i]!)}" cy="${round(coordinates[i + 1]!)}"`;
      this.parts.push(`<circle ${at} r="${round(radius)}" fill="${fill}" stroke="${stroke}"/>`);
    }
  }

  text(text: string, x: number, y: number, style: TextStyle = {}): void {
    const safe = text.replace(/[&<>"]/g, (c) => ESCAPES[c] ?? "").replace(/[\0-\x1f]/g, " ");
    const size = style.size ?? 12;
    const at = `x="${round(x)}" y="${round(y + size * 0.35)}" font-size="${size}"`;
    const look = `fill="${style.colour ?? INK}" text-anchor="${style.align ?? "start"}"`;
    this.parts.push(`<text ${at} ${look}>${safe}</text>`);
  }

  clip(x: number, y: number, w: number, h: number): void {
    const id = `clip${this.clips++}`;
    const box = `x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}"`;
    this.parts.push(`<clipPath id="${id}"><rect ${box}/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
  }

  unclip(): void {
    this.parts.push("</g>");
  }

  toString(): string {
    const size = `width="${this.width}" height="${this.height}"`;
    const box = `viewBox="0 0 ${this.width} ${this.height}"`;
    const pattern =
      '<defs><pattern id="no-data" width="6" height="6" patternUnits="userSpaceOnUse">' +
      `<rect width="6" height="6" fill="${NO_DATA}"/>` +
      `<path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke="${HATCH}"/></pattern>` +
      '<pattern id="uncertain" width="6" height="6" patternUnits="userSpaceOnUse">' +
      `<path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke="#fff" stroke-opacity="0.85"/></pattern></defs>`;
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${box} font-family="${FONT}">` +
      `${pattern}<rect width="100%" height="100%" fill="#fff"/>${this.parts.join("\n")}</svg>\n`
    );
  }
}
