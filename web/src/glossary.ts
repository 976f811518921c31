// Tooltips that explain technical terms in table headings.

const TERMS: readonly [RegExp, string][] = [
  [/^congested fraction/i, "Congested packets over packets of a link. Each link's estimate is shrunk towards the mean of its bundle (empirical Bayes); pale or striped: the 95 % interval is wider than ±20 percentage points."],
  [/^utilization/i, "Share of time a link is busy sending, 0–1; here the share taken by our own packets."],
  [/^stall/i, "Time messages took beyond the minimum latency plus their bytes at line rate. For a port: time with data to send but no credit."],
  [/^(hop )?samples$/i, "Packets that recorded this link: each packet records one hop of its path, chosen uniformly at random."],
  [/^part$/i, "Root: the link of a congestion tree that waits on no other link. The other links wait on a root, or their queues fill and drain."],
  [/^links waiting/i, "Congested links that wait on this one: the size of its congestion tree."],
  [/^ideal$/i, "Expected time on an ideal network: every adapter sends at line rate and nothing in between is shared."],
  [/^above the ideal/i, "1 − ideal ÷ expected time. All percentages of time on this page are relative to the unchanged run."],
  [/^blocked in communication/i, "Share of the ranks' time spent inside MPI calls: exposed communication."],
  [/^hidden behind computation/i, "Share of the ranks' time in which they compute while messages of theirs are in flight."],
  [/^saturated links/i, "Congested links with no congestion downstream: where back-pressure begins."],
  [/^filled by/i, "The traffic that saturates the link: the observed job's or other jobs'."],
  [/^kind of/i, "What the change affects: placement, routing, order of messages …"],
  [/^range over seeds/i, "Lowest and highest value over repetitions with different random seeds."],
  [/^switches a packet visits/i, "Path length: mean number of switches between two ranks."],
  [/^feature$/i, "Adjacent links that are congested in the same step."],
  [/^links ever congested/i, "Links of this part that were congested in at least one step."],
  [/^most at once/i, "Largest number of links of this part that were congested in the same step."],
  [/^parallel efficiency/i, "Mean computation of the ranks ÷ measured time (POP)."],
  [/^load balance/i, "Mean computation of the ranks ÷ that of the rank that computes longest (POP)."],
  [/^serialisation/i, "Longest computation of a rank ÷ time on an ideal network: what is lost to dependencies (POP)."],
  [/^transfer$/i, "Time on an ideal network ÷ measured time: what is lost to moving data (POP)."],
  [/^by the clocks/i, "Bounds that the uncertainty of the ranks' clocks leaves."],
  [/^because of noise/i, "The part of the wait caused by computations that took longer than usual; the rest is imbalance."],
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
