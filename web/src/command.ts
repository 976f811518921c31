// A command that computes what is shown from the tables of the run.

import { byId } from "./controls";
import type { Model } from "./data";
import type { Store } from "./state";

const FOLDERS: Record<string, string> = { observed: "run", before: "before", after: "after" };

/** A text in single quotes for a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** A Python string literal: ASCII-only JSON is one. */
const literal = (text: string): string => JSON.stringify(text).replace(
  /[^ -~]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
);

/** A Python command that prints the estimates of the selected run, phase, time span and link. */
export function command(model: Model, store: Store): string {
  const { dataset, selection, time, link } = store.now;
  const phase = model.phases(dataset)[selection] ?? null;
  const runs = model.runsOf(dataset).map((run) => {
    const { id, course } = model.run(run);
    const chosen: string[] = [];
    if (phase !== null) chosen.push(`phases=[${literal(phase)}]`);
    if (time) {
      const [from, to] = time.map((frame) => course.edges_ps[frame] ?? 0);
      chosen.push(`windows=[w for w, a, b in run.tables["windows"].select("window", "start_ps", ` +
        `"end_ps").iter_rows() if ${from} <= (a + b) / 2 < ${to}]`);
    }
    const dated = time !== null && course.dated;
    const tables = dated
      ? 'run.tables | {"samples": FigureData(run).samples_by_link_time.drop("phase")}'
      : "run.tables";
    // As many columns as a terminal shows.
    const columns = ["link", "samples", "packets", "fraction", "fraction_low", "fraction_high"].map(literal);
    const only = `${link >= 0 ? `.filter(link=${link})` : ""}.select(${columns.join(", ")})`;
    return `run = tb.read_run(${literal(FOLDERS[id] ?? "run")})\n` +
      `print(link_estimates(select(${tables}, Selection(${chosen.join(", ")})))${only})`;
  });
  const code = "import tailback as tb\n" +
    (time ? "from tailback.report import FigureData\n" : "") +
    "from tailback.telemetry.estimate import Selection, link_estimates, select\n" +
    runs.join("\n");
  return `python -c ${quoted(code)}`;
}

/** The button copies the command, or shows it if the browser denies access to the clipboard. */
export function connectCommand(model: Model, store: Store): void {
  const button = byId<HTMLButtonElement>("copy-command");
  const shown = byId("command");
  button.addEventListener("click", () => {
    shown.textContent = command(model, store);
    const done = (word: string): void => {
      button.textContent = word;
      setTimeout(() => (button.textContent = "Copy as command"), 1500);
    };
    const select = (): void => {
      shown.hidden = false;
      getSelection()?.selectAllChildren(shown);
      done("Selected below");
    };
    if (!navigator.clipboard) select();
    else navigator.clipboard.writeText(shown.textContent).then(() => done("Copied"), select);
  });
}
