// Runs messages on given routes through htsim's lossless queues and prints what each link carried.
//
// Built against htsim's sources, see docs/measurements/simulators.md. Input: the file that
// studies/conformance/peers.py writes. Output: one line a message and one a link.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "config.h"
#include "eth_pause_packet.h"
#include "eventlist.h"
#include "network.h"
#include "pipe.h"
#include "queue_lossless_input.h"
#include "queue_lossless_output.h"
#include "rocepacket.h"
#include "route.h"

namespace {

EventList events;

// A port that sums up what it sends and how long it holds packets back while it is paused.
class Port : public LosslessOutputQueue {
public:
    Port(linkspeed_bps rate, mem_b room) : LosslessOutputQueue(rate, room, events, nullptr) {}

    void receivePacket(Packet& packet) override {
        LosslessOutputQueue::receivePacket(packet);
        note();
    }
    void receivePacket(Packet& packet, VirtualQueue* from) override {
        LosslessOutputQueue::receivePacket(packet, from);
        note();
    }
    void beginService() override {
        sending = true;
        note();
        LosslessOutputQueue::beginService();
    }
    void completeService() override {
        sending = false;
        packets += 1;
        bytes += _enqueued.back()->size();
        LosslessOutputQueue::completeService();
        note();
    }

    unsigned long long packets = 0, bytes = 0, stall = 0;

private:
    void note() {
        const bool held = is_paused() && !sending && !_enqueued.empty();
        if (held && !stalled) since = events.now();
        if (!held && stalled) stall += events.now() - since;
        stalled = held;
    }
    bool sending = false, stalled = false;
    simtime_picosec since = 0;
};

// Where a message ends: the times of its first and last packet.
class Sink : public PacketSink {
public:
    void receivePacket(Packet& packet) override {
        last = events.now();
        packet.free();
    }
    void receivePacket(Packet& packet, VirtualQueue*) override { receivePacket(packet); }
    const string& nodename() override { return name; }
    simtime_picosec last = 0;

private:
    string name = "sink";
};

// A host: keeps two packets in the queue of its link, the messages one after another.
class Host : public VirtualQueue {
public:
    struct Message {
        std::unique_ptr<Route> route;
        unsigned long long left;
    };

    void add(std::unique_ptr<Route> route, unsigned long long bytes) {
        messages.push_back({std::move(route), bytes});
    }
    void completedService(Packet&) override { send(); }
    void send() {
        while (at < messages.size() && !messages[at].left) ++at;
        if (at == messages.size()) return;
        Message& message = messages[at];
        const auto size = std::min<unsigned long long>(message.left, full);
        message.left -= size;
        // The packet class adds the size of an acknowledgement to its payload.
        RocePacket* packet = RocePacket::newpkt(
            flow, *message.route, 1, size - RocePacket::ACKSIZE, false, false, 0);
        packet->sendOn2(this);
    }

    static unsigned long long full;

private:
    PacketFlow flow{nullptr};
    std::vector<Message> messages;
    size_t at = 0;
};
unsigned long long Host::full = 0;

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: htsim_links INPUT\n";
        return 2;
    }
    std::ifstream input(arguments[1]);
    unsigned nodes, links, messages;
    unsigned long long switch_delay, high, low;
    input >> nodes >> links >> messages >> Host::full >> switch_delay >> high >> low;
    Packet::set_packet_size(Host::full);
    LosslessInputQueue::_high_threshold = high;
    LosslessInputQueue::_low_threshold = low;
    events.setEndtime(timeFromSec(10));

    std::vector<Port*> ports;
    std::vector<std::vector<PacketSink*>> hops;
    for (unsigned link = 0; link < links; ++link) {
        unsigned from, to;
        double gbps;
        unsigned long long delay;
        input >> from >> to >> gbps >> delay;
        // Nothing is dropped: pauses limit what is in a switch, not the room of an output.
        auto* port = new Port(speedFromGbps(gbps), mem_b(1) << 40);
        ports.push_back(port);
        std::vector<PacketSink*> hop{port, new Pipe(delay + (to < nodes ? 0 : switch_delay), events)};
        if (to >= nodes) hop.push_back(new LosslessInputQueue(events, port));
        hops.push_back(hop);
    }
    std::vector<Host> hosts(nodes);
    std::vector<Sink*> sinks;
    for (unsigned message = 0; message < messages; ++message) {
        unsigned from, length;
        unsigned long long bytes;
        input >> from >> bytes >> length;
        auto route = std::make_unique<Route>();
        for (unsigned hop = 0; hop < length; ++hop) {
            unsigned link;
            input >> link;
            for (PacketSink* part : hops[link]) route->push_back(part);
        }
        sinks.push_back(new Sink);
        route->push_back(sinks.back());
        hosts[from].add(std::move(route), bytes);
    }
    if (!input) {
        std::cerr << arguments[1] << ": the file ends early\n";
        return 1;
    }
    for (Host& host : hosts) {
        host.send();
        host.send();
    }
    while (events.doNextEvent()) {
    }
    for (Sink* sink : sinks) std::printf("message %llu\n", (unsigned long long)sink->last);
    for (Port* port : ports)
        std::printf("link %llu %llu %llu\n", port->packets, port->bytes, port->stall);
    return 0;
}
