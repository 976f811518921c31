//! Red and green lights (RGBCC; Liu and Russell, PDP 2016, as described by Taffet 2019, section
//! 2.2).
//!
//! From that description: a sender that receives a notification pauses; when the congestion in the
//! switch "has subsided beyond a second threshold" the switch notifies the senders that may have
//! received one, and they resume; a switch copies its id into every packet it marks, so that
//! several hot spots can be distinguished. The paper itself was not available. Choices of this
//! implementation:
//!
//! * A light is an output (a lane of a link), not a switch. It turns red with the first packet it
//!   marks and records the nodes whose packets it has marked since.
//! * The queue to one destination pauses. It resumes when every light that it has seen red is
//!   green.
//! * A green light overtakes notifications that are still on their way through the queue and back.
//!   So lights count how often they have turned red, and a mark carries this count. A sender that
//!   has seen the light turn green since then ignores the mark.
//! * Green lights travel like InfiniBand's management packets (virtual lane 15): on the path of
//!   lowest latency, without waiting for credit, and they use no bandwidth.

use std::collections::BTreeMap;

use crate::network::packet::Light;

/// The light of an output.
#[derive(Debug, Default, Clone)]
struct LightState {
    turn: u32,
    red: bool,
    /// Nodes whose packets it has marked since it turned red, in order, each with one of its
    /// messages.
    notified: Vec<(u32, u32)>,
}

/// The lights of a shard, and the lights that marked packets carry.
#[derive(Debug, Default)]
pub(crate) struct LightTable {
    outputs: Vec<LightState>,
    /// By slot: the light that a marked packet carries. Kept apart to keep packets small.
    carried: Vec<Light>,
}

impl LightTable {
    /// For the given number of lanes.
    pub fn new(lanes: usize) -> Self {
        Self { outputs: vec![LightState::default(); lanes], carried: Vec::new() }
    }

    /// The light that the packet in `slot` carries; the default where there are none.
    pub fn on_packet(&self, slot: u32) -> Light {
        self.carried.get(slot as usize).copied().unwrap_or_default()
    }

    /// Attaches a light to the packet in `slot`, if lights are in use.
    pub fn attach(&mut self, slot: u32, light: Light) {
        if self.outputs.is_empty() {
            return;
        }
        if self.carried.len() <= slot as usize {
            self.carried.resize(slot as usize + 1, Light::default());
        }
        self.carried[slot as usize] = light;
    }

    /// A packet of `node` is marked at `lane`. Returns how often the light has turned red, and
    /// whether it turned red now.
    pub fn mark(&mut self, lane: u32, node: u32, message: u32) -> (u32, bool) {
        let output = &mut self.outputs[lane as usize];
        let turned = !output.red;
        if turned {
            output.red = true;
            output.turn += 1;
        }
        if let Err(place) = output.notified.binary_search_by_key(&node, |notified| notified.0) {
            output.notified.insert(place, (node, message));
        }
        (output.turn, turned)
    }

    /// The light of `lane` turns green. Returns its count, and the nodes to notify.
    pub fn turn_green(&mut self, lane: u32) -> (u32, Vec<(u32, u32)>) {
        let output = &mut self.outputs[lane as usize];
        output.red = false;
        (output.turn, std::mem::take(&mut output.notified))
    }

    /// Whether all lights are green.
    pub fn all_green(&self) -> bool {
        self.outputs.iter().all(|output| !output.red)
    }
}

/// The lights known to an adapter.
#[derive(Debug, Default)]
pub(crate) struct KnownLights {
    /// By output: the last red phase that is over.
    green: BTreeMap<u32, u32>,
}

impl KnownLights {
    /// Adds `light` to those that stop a queue, unless it has turned green again.
    pub fn add(&self, red: &mut Vec<Light>, light: Light) {
        let over = self.green.get(&light.output).is_some_and(|&turn| light.turn <= turn);
        if !(over || red.contains(&light)) {
            red.push(light);
        }
    }

    /// Records that a light is green.
    pub fn turn_green(&mut self, light: Light) {
        let turn = self.green.entry(light.output).or_default();
        *turn = light.turn.max(*turn);
    }

    /// Removes green lights from `red`.
    pub fn remove_green(&self, red: &mut Vec<Light>) {
        red.retain(|l| self.green.get(&l.output).is_none_or(|&turn| l.turn > turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn light(output: u32, turn: u32) -> Light {
        Light { output, turn }
    }

    #[test]
    fn a_green_light_may_overtake_notifications() {
        let (mut stops, mut red) = (KnownLights::default(), Vec::new());
        stops.add(&mut red, light(7, 1));
        stops.add(&mut red, light(9, 1));
        stops.add(&mut red, light(7, 1));
        assert_eq!(red, [light(7, 1), light(9, 1)]);
        stops.turn_green(light(7, 1));
        stops.remove_green(&mut red);
        assert_eq!(red, [light(9, 1)]);
        // A late notification of the first red phase; then the light is red again.
        stops.add(&mut red, light(7, 1));
        assert_eq!(red, [light(9, 1)]);
        stops.add(&mut red, light(7, 2));
        stops.turn_green(light(9, 1));
        stops.remove_green(&mut red);
        assert_eq!(red, [light(7, 2)]);
    }

    #[test]
    fn a_light_notifies_each_marked_node_once() {
        let mut lights = LightTable::new(2);
        assert_eq!(lights.mark(1, 5, 50), (1, true));
        assert_eq!(lights.mark(1, 3, 30), (1, false));
        assert_eq!(lights.mark(1, 5, 51), (1, false));
        assert!(!lights.all_green());
        assert_eq!(lights.turn_green(1), (1, vec![(3, 30), (5, 50)]));
        assert!(lights.all_green());
        assert_eq!(lights.mark(1, 5, 52), (2, true));
    }
}
