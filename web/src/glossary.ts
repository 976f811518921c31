// Terms of the field, explained where they stand.

const TERMS: readonly [RegExp, string][] = [
  [/^congested fraction/i, "Congested packets over packets of a link. Each link is estimated with the evidence of its bundle (empirical Bayes); pale or striped: the 95 % interval is wider than ±20 points."],
  [/^utilization/i, "Share of time a link is busy sending, 0–1; here the share that our own packets take."],
  [/^stall/i, "Time messages took beyond their bytes at line rate and the least latency. Of a port: it had data and no credit to send."],
  [/^(hop )?samples$/i, "Packets that recorded this link: each packet carries one hop of its path, drawn uniformly."],
  [/^part$/i, "Root: the link of a congestion tree that waits on no other. The others wait on a root, or their queues fill and empty."],
  [/^links waiting/i, "Congested links that wait on this one: the size of its congestion tree."],
  [/^ideal$/i, "Expected time on an ideal network: every adapter at line rate, nothing shared in between."],
  [/^above the ideal/i, "1 − ideal ÷ expected time. All percentages of time on this page are shares of the time of the run as it is."],
  [/^blocked in communication/i, "Share of the ranks' time spent inside MPI calls."],
  [/^saturated links/i, "Congested links whose own downstream is free: where back-pressure begins."],
  [/^filled by/i, "Whose traffic saturates the link: the observed job's, or other jobs'."],
  [/^kind of/i, "What the change alters: placement, routing, order of messages …"],
  [/^range over seeds/i, "Lowest and highest over repetitions with other random seeds."],
  [/^switches a packet visits/i, "Path length: mean number of switches between two ranks."],
  [/^telemetry scheme/i, "What the header bits of a packet mean and how switches update them."],
];

export function connectGlossary(): void {
  for (const name of document.querySelectorAll<HTMLElement>("th, dt")) {
    const text = name.textContent?.trim() ?? "";
    const found = TERMS.find(([pattern]) => pattern.test(text));
    if (!found) continue;
    name.title = found[1];
    name.classList.add("term");
  }
}
