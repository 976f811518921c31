//! Traffic of single steps of a repeated program.
//!
//! A run may leave out repetitions of a step and extrapolate from the steps that it simulates
//! (docs/explanation/approximations.md). The labels of messages of such a step contain its number.
//! Their packets are counted again here, by link and by label, so that samples of the steps left
//! out can be drawn.

use std::sync::Arc;

use tailback_telemetry::Mark;

use super::passes::{PassLog, PassTable};
use super::truth::TruthLog;
use super::{DeliveredPacket, Hop, Probe, SentPacket, Transmission, TruthTable, WindowProbe};
use crate::model::Model;
use crate::network::link::Link;

/// A message: its label without regard to steps, and the step it belongs to, 0 for none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepMessage {
    label: u32,
    step: u32,
}

/// Number of labels without regard to steps; 0 if no message belongs to one.
fn labels_of_program(model: &Model<'_>) -> u32 {
    model.placement.label_step.iter().filter(|&&step| step == 0).count() as u32
}

/// The label and step of every message.
pub(crate) fn steps_of_messages(model: &Model<'_>) -> Arc<[StepMessage]> {
    let (steps, labels) = (&model.placement.label_step, labels_of_program(model));
    let messages = model.program.messages.iter();
    messages
        .map(|&message| StepMessage {
            label: if steps.is_empty() { message.label } else { message.label % labels.max(1) },
            step: steps.get(message.label as usize).copied().unwrap_or(0),
        })
        .collect()
}

/// Samples and truth per window, and truth and passes per step.
#[derive(Debug)]
pub(crate) struct StepProbe {
    measure: WindowProbe,
    messages: Arc<[StepMessage]>,
    truth: TruthLog,
    passes: PassLog,
    /// The last step whose log was looked at.
    looked_at: usize,
}

impl StepProbe {
    /// For a shard with these links; `measure` observes the whole run.
    pub(crate) fn new(
        measure: WindowProbe,
        links: &[Link],
        model: &Model<'_>,
        messages: Arc<[StepMessage]>,
        steps: u32,
    ) -> Self {
        let payload = model.settings.packet_bytes;
        let mut truth = TruthLog::new(links, model.settings.wire_bytes(payload));
        truth.grow(steps as usize);
        let (all, labels) = (model.fabric.n_links(), labels_of_program(model));
        let passes = PassLog::new(links, all, labels, steps, payload);
        Self { measure, messages, truth, passes, looked_at: 0 }
    }

    /// Merges the probes of all shards: those of the whole run, and tables by step, whose window is
    /// the step minus 1.
    pub(crate) fn join(
        parts: Vec<StepProbe>,
        threads: usize,
    ) -> (Vec<WindowProbe>, TruthTable, PassTable) {
        let (mut measured, mut truth, mut passes) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            measured.push(part.measure);
            truth.push(part.truth);
            passes.push(part.passes);
        }
        (measured, TruthLog::finish(truth, threads), PassLog::finish(passes, threads))
    }
}

impl Probe for StepProbe {
    const ON: bool = true;

    fn step_traffic(&self) -> TruthTable {
        self.truth.so_far()
    }

    #[inline]
    fn begin_window(&mut self, now: u64) {
        self.measure.begin_window(now);
        // In sequence, because there may be more steps than events in a window.
        self.looked_at = (self.looked_at + 1) % self.truth.windows();
        self.truth.compact_if_long(self.looked_at);
    }

    #[inline]
    fn hop(&mut self, now: u64, hop: Hop, observed: bool, mark: &mut Mark, random: u64) {
        let StepMessage { label, step } = self.messages[hop.message as usize];
        if step > 0 {
            if hop.congested {
                self.truth.congested(step - 1, hop.local, observed);
            }
            if observed && self.measure.deployment().stamps(hop.link) {
                self.passes.pass(step - 1, label, &hop);
            }
        }
        self.measure.hop(now, hop, observed, mark, random);
    }

    #[inline]
    fn sent(&mut self, now: u64, link: u32, slot: Transmission, packet: SentPacket) {
        let step = self.messages[packet.message as usize].step;
        if step > 0 {
            self.truth.sent(step - 1, link, slot, packet);
        }
        self.measure.sent(now, link, slot, packet);
    }

    #[inline]
    fn delivered(&mut self, time: u64, arrival: DeliveredPacket, mark: Mark) {
        let label = self.messages[arrival.message as usize].label;
        self.measure.delivered(time, DeliveredPacket { label, ..arrival }, mark);
    }
}
