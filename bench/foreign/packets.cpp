// A packet simulator of MPI programs on switched networks, for `bench/foreign/run.py`.
//
// It shares nothing with Tailback's engine. Switches queue at their inputs, one virtual queue per
// output, and serve inputs in turn. Links grant credits per virtual lane, or pause. Adapters serve
// queue pairs in turn. MPI sends eagerly or by rendezvous, whose handshake may need the rank inside
// a call. Collectives arrive as sends and receives.
//
//   packets < scenario > result
//
// Times are picoseconds, sizes bytes, rates Gb/s. `run.py` writes the scenario and documents it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

using Time = int64_t;

namespace {

constexpr Time kNever = INT64_MAX / 4;
constexpr int kLanes = 2;
constexpr int kMaxHops = 8;
constexpr int kCreditBlock = 64;  // bytes: the unit of InfiniBand's credits

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "packets: %s\n", text.c_str());
  std::exit(1);
}

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
double unit(uint64_t x) { return (static_cast<double>(mix(x) >> 11) + 0.5) * 0x1.0p-53; }
double exponential(uint64_t x) { return -std::log(unit(x)); }

struct Settings {
  int mtu = 4096, header = 58, ack = 30;
  Time switch_ps = 200'000;
  bool pause = false, cut_through = true;
  double speedup = 1.6;  // of the crossbar over the fastest link
  int64_t xoff = 60'000, xon = 40'000;
  std::string routing = "static";
  uint64_t seed = 1;
  int64_t eager = 16384;
  bool async = false;
  Time overhead_ps = 300'000, gap_ps = 100'000, shm_ps = 400'000;
  double jitter = 0.2, copy_gbps = 80, shm_gbps = 60;
  double noise_per_s = 0, noise_ps = 0;
  Time start_ps = 0, skew_ps = 0, interval_ps = 0, tail_ps = 0, limit_ps = 20'000'000'000'000;
} set;

enum Kind : uint8_t { Eager, Rts, Cts, Data, Ack };

struct Msg {
  Kind kind;
  uint8_t lane = 0;
  int from, to, tag;  // ranks
  int64_t bytes, left, arriving;
  int sreq, rreq;
  uint32_t seq = 0;
  int route[kMaxHops];
};

struct Packet {
  int msg, size, hop;
  Time tail;  // when its last byte is there
};

struct Link {
  int src, dst, back = -1;
  double gbps, nominal;
  Time latency;
  int64_t buffer;
  // of the sender
  int64_t credit[kLanes];
  bool busy = false, paused = false;
  Time wait_since = -1, paused_since = -1, paused_ps = 0, waited = 0;
  int64_t bytes = 0, packets = 0, queued = 0, pauses = 0, retrains = 0;
  int pointer[kLanes] = {};      // the input to serve next
  uint64_t inputs[kLanes] = {};  // inputs of the switch that hold packets for this output
  int lane_pointer = 0;
  // of the receiver's input port
  bool input_busy = false, pausing = false;
  int64_t held = 0;
  std::vector<std::deque<int>> voq[kLanes];  // by output of the switch
  uint64_t outputs = 0;                      // outputs for which it holds packets
  // a flaky cable
  Time period = 0, down_ps = 0, phase = -1;
  double low_share = 0, low_gbps = 0;
};

struct Op {
  char kind;
  int a = 0, b = 0, c = 0;
  int64_t n = 0;
};

struct Request {
  bool done = false, used = false;
  Time at = 0;
  int source = -1;
};

struct Posted { int source, tag, req; };

struct Rank {
  int host, job;
  bool loops;
  std::vector<Op> ops;
  size_t pc = 0;
  int round = 0;
  bool in_mpi = false, blocked = false, finished = false;
  Time cpu_free = 0, detour_at = -1;
  uint64_t detours = 0;
  int last_source = -1, call = -1;
  std::vector<Request> req;
  std::deque<Posted> posted;
  std::deque<int> unexpected, inbox;
  std::unordered_map<int, uint32_t> next_out, next_in;
  std::unordered_map<int, std::map<uint32_t, int>> early;
  std::vector<std::pair<Time, Time>> calls;
  std::vector<std::pair<int, int>> learned;  // call, source or index
};

struct Queue { std::deque<int> msgs; bool active = false; };

struct Host {
  int out = -1;
  std::unordered_map<uint64_t, Queue> pairs;
  std::deque<uint64_t> turn;  // queue pairs with messages
  std::deque<int> acks;
  bool waiting_gap = false;
  Time ready = 0;
};

struct Switch {
  std::vector<int> in, out;
  std::vector<std::vector<int>> table;  // candidates per destination
};

enum Type : uint8_t { Step, LinkFree, Arrive, InputFree, Credit, PauseOn, PauseOff, Deliver,
                      ReqDone, Emit, Sample, Inject };

struct Event {
  Time t;
  uint64_t seq;
  Type type;
  int a, b;
  bool operator>(const Event& o) const { return t != o.t ? t > o.t : seq > o.seq; }
};

std::vector<Link> links;
std::vector<Host> hosts;
std::vector<Switch> switches;
std::vector<Rank> ranks;
std::vector<Msg> msgs;
std::vector<int> free_msgs, free_packets;
std::vector<Packet> packets;
std::vector<int> out_index, in_index;  // of a link among the outputs and inputs of its switch
std::vector<Time> phase;
std::priority_queue<Event, std::vector<Event>, std::greater<Event>> agenda;
Time now = 0, ended = -1;
uint64_t counted = 0;
int unfinished = 0;

void at(Time t, Type type, int a, int b = 0) { agenda.push({t, counted++, type, a, b}); }
bool is_host(int v) { return v < static_cast<int>(hosts.size()); }
Switch& switch_of(int v) { return switches[static_cast<size_t>(v) - hosts.size()]; }
Time span(int64_t bytes, double gbps) {
  return static_cast<Time>(std::llround(static_cast<double>(bytes) * 8000.0 / gbps));
}
int64_t blocks(int size) { return (size + kCreditBlock - 1) / kCreditBlock * kCreditBlock; }

int new_msg(const Msg& m) {
  int id;
  if (free_msgs.empty()) { id = static_cast<int>(msgs.size()); msgs.push_back(m); }
  else { id = free_msgs.back(); free_msgs.pop_back(); msgs[id] = m; }
  std::fill_n(msgs[id].route, kMaxHops, -1);
  return id;
}
int new_packet(const Packet& p) {
  if (free_packets.empty()) { packets.push_back(p); return static_cast<int>(packets.size()) - 1; }
  int id = free_packets.back();
  free_packets.pop_back();
  packets[id] = p;
  return id;
}

// --- links -----------------------------------------------------------------------------------

// Rate of a link, or 0 while it retrains; `until` is when that ends.
double rate(Link& l, Time& until) {
  if (!l.period) return l.gbps;
  Time in = now % l.period, low = static_cast<Time>(l.low_share * static_cast<double>(l.period));
  Time since = in < low ? in : in - low;
  Time turn = now / l.period * 2 + (in < low ? 0 : 1);
  if (turn != l.phase) { l.retrains += l.phase >= 0; l.phase = turn; }
  if (since < l.down_ps) { until = now - since + l.down_ps; return 0; }
  return in < low ? l.low_gbps : l.gbps;
}

void starts_waiting(Link& l) { if (l.wait_since < 0) l.wait_since = now; }
void stops_waiting(Link& l) {
  if (l.wait_since >= 0) { l.waited += now - l.wait_since; l.wait_since = -1; }
}

bool may_send(const Link& l, int lane, int size) {
  return set.pause ? !l.paused : l.credit[lane] >= blocks(size);
}

void transmit(int id, int packet, double gbps) {
  Link& l = links[id];
  Packet& p = packets[packet];
  stops_waiting(l);
  Time finish = std::max(now + span(p.size, gbps), p.tail);
  l.busy = true;
  l.bytes += p.size;
  l.packets++;
  if (!set.pause) l.credit[msgs[p.msg].lane] -= blocks(p.size);
  at(finish, LinkFree, id);
  Time delay = l.latency + (is_host(l.dst) ? 0 : set.switch_ps);
  p.tail = finish + delay;
  at(is_host(l.dst) || !set.cut_through ? p.tail : now + delay, Arrive, id, packet);
}

void give_back(int id, int packet_size, int lane) {  // a packet left the input of a link
  Link& l = links[id];
  if (!set.pause) { at(now + l.latency, Credit, id, static_cast<int>(blocks(packet_size)) * kLanes + lane); return; }
  l.held -= packet_size;
  if (l.pausing && l.held <= set.xon) { l.pausing = false; at(now + l.latency, PauseOff, id); }
}

// --- switches --------------------------------------------------------------------------------

int choose(Switch& s, const Msg& m, int destination, int vertex) {
  const auto& some = s.table[destination];
  if (some.empty()) fail("no route");
  if (some.size() == 1 || set.routing == "static") return some[0];
  uint64_t flow = mix(static_cast<uint64_t>(m.from) << 32 | static_cast<uint32_t>(m.to));
  if (set.routing == "hash")
    return some[mix(flow ^ mix(set.seed + static_cast<uint64_t>(vertex))) % some.size()];
  int best = -1;
  size_t first = mix(flow + m.seq) % some.size();
  for (size_t i = 0; i < some.size(); i++) {
    int o = some[(first + i) % some.size()];
    if (best < 0 || links[o].queued < links[best].queued) best = o;
  }
  return best;
}

bool try_output(int id) {
  Link& o = links[id];
  if (o.busy || !o.queued) return false;
  Time until = 0;
  double gbps = rate(o, until);
  if (gbps == 0) { at(until, LinkFree, id); o.busy = true; return false; }
  Switch& s = switch_of(o.src);
  bool starved = false;
  for (int v = 0; v < kLanes; v++) {
    int lane = (o.lane_pointer + v) % kLanes;
    uint64_t all = o.inputs[lane], low = (1ULL << o.pointer[lane]) - 1;
    for (uint64_t some : {all & ~low, all & low}) {  // in turn from the pointer on
      for (; some && !starved; some &= some - 1) {
        int k = __builtin_ctzll(some);
        Link& input = links[s.in[k]];
        if (input.input_busy) continue;
        auto& q = input.voq[lane][out_index[id]];
        int packet = q.front();
        int size = packets[packet].size;
        if (!may_send(o, lane, size)) { starved = true; break; }
        q.pop_front();
        if (q.empty()) {
          o.inputs[lane] &= ~(1ULL << k);
          if (input.voq[1 - lane][out_index[id]].empty()) input.outputs &= ~(1ULL << out_index[id]);
        }
        o.pointer[lane] = (k + 1) % static_cast<int>(s.in.size());
        o.lane_pointer = (lane + 1) % kLanes;
        o.queued -= size;
        input.input_busy = true;
        Time leaves = std::max(now + span(size, input.nominal * set.speedup), packets[packet].tail);
        at(leaves, InputFree, s.in[k], size * kLanes + lane);
        transmit(id, packet, gbps);
        return true;
      }
    }
  }
  if (starved) starts_waiting(o);
  return false;
}

void input_free(int id, int what) {
  Link& l = links[id];
  l.input_busy = false;
  give_back(id, what / kLanes, what % kLanes);
  Switch& s = switch_of(l.dst);
  uint64_t all = l.outputs, low = (1ULL << mix(static_cast<uint64_t>(now)) % s.out.size()) - 1;
  for (uint64_t some : {all & ~low, all & low})
    for (; some && !l.input_busy; some &= some - 1) try_output(s.out[__builtin_ctzll(some)]);
}

void deliver(int id);

void arrive(int id, int packet) {
  Link& l = links[id];
  Packet& p = packets[packet];
  Msg& m = msgs[p.msg];
  if (is_host(l.dst)) {
    if (!set.pause) at(now + l.latency, Credit, id, static_cast<int>(blocks(p.size)) * kLanes + m.lane);
    int msg = p.msg;
    free_packets.push_back(packet);
    if (--m.arriving == 0) deliver(msg);
    return;
  }
  Switch& s = switch_of(l.dst);
  int hop = p.hop++;
  if (hop >= kMaxHops) fail("a route has too many hops");
  int& route = m.route[hop];
  // A message keeps its way, so its packets stay in order.
  if (route < 0) route = choose(s, m, ranks[m.to].host, l.dst);
  if (set.pause) {
    l.held += p.size;
    if (!l.pausing && l.held >= set.xoff) { l.pausing = true; at(now + l.latency, PauseOn, id); }
  }
  l.voq[m.lane][out_index[route]].push_back(packet);
  l.outputs |= 1ULL << out_index[route];
  links[route].inputs[m.lane] |= 1ULL << in_index[id];
  links[route].queued += p.size;
  try_output(route);
}

// --- adapters --------------------------------------------------------------------------------

int wire_packets(int64_t bytes) {
  return static_cast<int>(std::max<int64_t>(1, (bytes + set.mtu - 1) / set.mtu));
}

void inject(int host) {
  Host& h = hosts[host];
  Link& l = links[h.out];
  if (l.busy) return;
  Time until = 0;
  double gbps = rate(l, until);
  if (gbps == 0) { l.busy = true; at(until, LinkFree, h.out); return; }
  if (!h.acks.empty()) {
    int msg = h.acks.front();
    if (!may_send(l, msgs[msg].lane, set.ack)) { starts_waiting(l); return; }
    h.acks.pop_front();
    transmit(h.out, new_packet({msg, set.ack, 0, now}), gbps);
    return;
  }
  if (h.turn.empty()) return;
  if (now < h.ready) {
    if (!h.waiting_gap) { h.waiting_gap = true; at(h.ready, Inject, host); }
    return;
  }
  bool starved = false;
  for (size_t i = 0, n = h.turn.size(); i < n; i++) {
    uint64_t key = h.turn.front();
    h.turn.pop_front();
    Queue& q = h.pairs[key];
    int msg = q.msgs.front();
    Msg& m = msgs[msg];
    int64_t part = std::min<int64_t>(m.left, set.mtu);
    int size = static_cast<int>(part) + set.header;
    if (!may_send(l, m.lane, size)) { starved = true; h.turn.push_back(key); continue; }
    m.left -= part;
    if (m.left <= 0) { q.msgs.pop_front(); h.ready = now + set.gap_ps; }
    if (q.msgs.empty()) q.active = false; else h.turn.push_back(key);
    transmit(h.out, new_packet({msg, size, 0, now}), gbps);
    return;
  }
  if (starved) starts_waiting(l);
}

void send(int id) {
  Msg& m = msgs[id];
  Rank &from = ranks[m.from], &to = ranks[m.to];
  int64_t payload = m.kind == Eager || m.kind == Data ? m.bytes : 32;
  if (from.host == to.host) {
    at(now + set.shm_ps + span(payload, set.shm_gbps), Deliver, id);
    return;
  }
  m.left = m.kind == Ack ? 0 : payload;
  m.arriving = m.kind == Ack ? 1 : wire_packets(payload);
  Host& h = hosts[from.host];
  if (m.kind == Ack) h.acks.push_back(id);
  else {
    uint64_t key = static_cast<uint64_t>(m.from) << 32 | static_cast<uint32_t>(m.to);
    Queue& q = h.pairs[key];
    q.msgs.push_back(id);
    if (!q.active) { q.active = true; h.turn.push_back(key); }
  }
  inject(from.host);
}

// --- MPI -------------------------------------------------------------------------------------

void progress(int r);
void step(int r);

// When a rank that begins at `from` has computed for `ps`, with the interruptions meanwhile.
Time busy(int r, Time from, double ps) {
  Rank& k = ranks[r];
  Time end = from + static_cast<Time>(ps);
  if (set.noise_per_s <= 0 || k.job != 0) return end;
  auto draw = [&] { return exponential(set.seed ^ mix(static_cast<uint64_t>(r) << 40 ^ k.detours++)); };
  double gap = 1e12 / set.noise_per_s;
  if (k.detour_at < 0) k.detour_at = static_cast<Time>(draw() * gap);
  while (k.detour_at < end) {
    Time length = static_cast<Time>(draw() * set.noise_ps);
    if (k.detour_at + length > from) end += k.detour_at + length - std::max(from, k.detour_at);
    k.detour_at += length + static_cast<Time>(draw() * gap);
  }
  return end;
}

double overhead(int r) {  // processor time of a call or of handling a message
  Rank& k = ranks[r];
  uint64_t key = static_cast<uint64_t>(r) << 44 ^ static_cast<uint64_t>(k.pc) << 16 ^ static_cast<uint64_t>(k.round);
  return static_cast<double>(set.overhead_ps) * (1.0 - set.jitter + set.jitter * exponential(set.seed * 31 + mix(key)));
}

void done(int r, int req, Time when, int source) {
  Request& q = ranks[r].req[req];
  q.source = source;
  at(when, ReqDone, r, req);
}

// A receive meets its message; returns when the processor is free again.
Time match(int r, int req, int id, Time t) {
  Msg& m = msgs[id];
  if (m.kind == Eager) {
    t = busy(r, t, static_cast<double>(span(m.bytes, set.copy_gbps)));
    done(r, req, t, m.from);
    free_msgs.push_back(id);
    return t;
  }
  ranks[r].req[req].source = m.from;
  Msg cts = m;
  cts.kind = Cts;
  std::swap(cts.from, cts.to);
  cts.rreq = req;
  free_msgs.push_back(id);
  at(t, Emit, new_msg(cts));
  return t;
}

void handle(int r, int id) {
  Rank& k = ranks[r];
  Time t = busy(r, std::max(now, k.cpu_free), overhead(r));
  Msg& m = msgs[id];
  if (m.kind == Cts) {
    Msg data = m;
    data.kind = Data;
    std::swap(data.from, data.to);
    free_msgs.push_back(id);
    at(t, Emit, new_msg(data));
    k.cpu_free = t;
    return;
  }
  for (auto p = k.posted.begin(); p != k.posted.end(); ++p) {
    if ((p->source < 0 || p->source == m.from) && p->tag == m.tag) {
      int req = p->req;
      k.posted.erase(p);
      k.cpu_free = match(r, req, id, t);
      return;
    }
  }
  k.unexpected.push_back(id);
  k.cpu_free = t;
}

void progress(int r) {
  Rank& k = ranks[r];
  for (; (set.async || k.in_mpi) && !k.inbox.empty();) {
    int id = k.inbox.front();
    k.inbox.pop_front();
    handle(r, id);
  }
}

void acknowledge(const Msg& m) {
  Msg ack = m;
  ack.kind = Ack;
  std::swap(ack.from, ack.to);
  send(new_msg(ack));
}

void deliver(int id) {
  Msg m = msgs[id];
  Rank& k = ranks[m.to];
  if (m.kind == Ack) {
    if (m.sreq >= 0) done(m.to, m.sreq, now, -1);
    free_msgs.push_back(id);
    return;
  }
  bool local = ranks[m.from].host == k.host;
  if (m.kind == Data) {
    done(m.to, m.rreq, now, m.from);
    if (local) done(m.from, m.sreq, now, -1); else acknowledge(m);
    free_msgs.push_back(id);
    return;
  }
  if (m.kind == Eager && !local) { m.sreq = -1; acknowledge(m); }
  if (m.kind == Cts) k.inbox.push_back(id);
  else {
    // Messages of a pair match in the order in which they were sent.
    auto& early = k.early[m.from];
    early[m.seq] = id;
    uint32_t& next = k.next_in[m.from];
    while (!early.empty() && early.begin()->first == next) {
      k.inbox.push_back(early.begin()->second);
      early.erase(early.begin());
      next++;
    }
  }
  progress(m.to);
}

void resume(int r, Time t) { at(t, Step, r); }

bool take_any(Rank& k, const Op& op) {
  int best = -1;
  for (int i = op.a; i < op.a + op.b; i++)
    if (k.req[i].done && !k.req[i].used && (best < 0 || k.req[i].at < k.req[best].at)) best = i;
  if (best < 0) return false;
  k.req[best].used = true;
  k.learned.push_back({k.call, best - op.a});
  return true;
}

bool ready(Rank& k, const Op& op) {
  if (op.kind == 'Y') return take_any(k, op);
  for (int i = op.a; i < op.a + op.b; i++)
    if (!k.req[i].done) return false;
  k.last_source = k.req[op.a].source;
  return true;
}

void post_send(int r, const Op& op) {
  Rank& k = ranks[r];
  Msg m{};
  m.from = r;
  m.to = op.a >= 0 ? op.a : k.last_source;
  m.tag = op.b;
  m.bytes = op.n;
  m.sreq = op.c;
  m.rreq = -1;
  m.seq = k.next_out[m.to]++;
  m.kind = op.n <= set.eager ? Eager : Rts;
  m.lane = static_cast<uint8_t>(k.job % kLanes == 0 ? 0 : 1);
  k.req[op.c] = Request{};
  Time t = busy(r, std::max(now, k.cpu_free), overhead(r));
  if (m.kind == Eager) {  // copied, so the sender is free
    t = busy(r, t, static_cast<double>(span(op.n, set.copy_gbps)));
    done(r, op.c, t, -1);
  }
  at(t, Emit, new_msg(m));
  resume(r, t);
}

void post_receive(int r, const Op& op) {
  Rank& k = ranks[r];
  k.req[op.c] = Request{};
  Time t = busy(r, std::max(now, k.cpu_free), overhead(r) / 2);
  for (auto u = k.unexpected.begin(); u != k.unexpected.end(); ++u) {
    if ((op.a < 0 || msgs[*u].from == op.a) && msgs[*u].tag == op.b) {
      int id = *u;
      k.unexpected.erase(u);
      resume(r, match(r, op.c, id, t));
      return;
    }
  }
  k.posted.push_back({op.a, op.b, op.c});
  resume(r, t);
}

void finish(int r) {
  Rank& k = ranks[r];
  if (k.loops) { k.pc = 0; k.round++; resume(r, now); return; }
  k.finished = true;
  k.in_mpi = true;  // MPI_Finalize makes progress for others
  progress(r);
  if (k.job == 0 && --unfinished == 0) ended = now;
}

void step(int r) {
  Rank& k = ranks[r];
  while (true) {
    if (k.pc == k.ops.size()) { finish(r); return; }
    const Op& op = k.ops[k.pc];
    switch (op.kind) {
      case 'B':
        k.call = op.a;
        k.in_mpi = true;
        if (k.job == 0) { k.calls.resize(std::max<size_t>(k.calls.size(), static_cast<size_t>(op.a) + 1)); k.calls[op.a].first = now; }
        progress(r);
        k.pc++;
        resume(r, busy(r, std::max(now, k.cpu_free), overhead(r) / 2));
        return;
      case 'E':
        if (k.cpu_free > now) { resume(r, k.cpu_free); return; }
        k.in_mpi = false;
        if (k.job == 0) k.calls[op.a].second = now;
        k.pc++;
        continue;
      case 'C': k.pc++; resume(r, busy(r, std::max(now, k.cpu_free), static_cast<double>(op.n))); return;
      case 'Z': k.pc++; resume(r, (now / op.n + 1) * op.n); return;  // until the next multiple
      case 'S': k.pc++; post_send(r, op); return;
      case 'R': k.pc++; post_receive(r, op); return;
      case 'W':
      case 'Y':
        if (!ready(k, op)) { k.blocked = true; return; }
        if (op.kind == 'W' && op.c) k.learned.push_back({k.call, k.last_source});
        k.pc++;
        continue;
      default: fail("unknown operation");
    }
  }
}

void req_done(int r, int req) {
  Rank& k = ranks[r];
  k.req[req].done = true;
  k.req[req].at = now;
  if (!k.blocked) return;
  const Op& op = k.ops[k.pc];
  if (req < op.a || req >= op.a + op.b) return;
  if (op.kind == 'W')
    for (int i = op.a; i < op.a + op.b; i++) if (!k.req[i].done) return;
  k.blocked = false;
  resume(r, std::max(now, k.cpu_free));
}

// --- counters --------------------------------------------------------------------------------

void sample(int id) {
  Link& l = links[id];
  Time waited = l.waited + (l.wait_since >= 0 ? now - l.wait_since : 0);
  Time paused = l.paused_ps + (l.paused_since >= 0 ? now - l.paused_since : 0);
  std::cout << "P " << id << ' ' << now << ' ' << l.bytes << ' ' << l.packets << ' ' << waited << ' '
            << l.queued << ' ' << l.pauses << ' ' << paused << ' ' << l.retrains << '\n';
  at(now + set.interval_ps, Sample, id);
}

// --- input and output ------------------------------------------------------------------------

#define SETTING(name) if (key == #name) { std::cin >> set.name; return; }
void read_setting(const std::string& key) {
  SETTING(mtu) SETTING(header) SETTING(ack) SETTING(switch_ps) SETTING(pause)
  SETTING(cut_through) SETTING(speedup) SETTING(xoff) SETTING(xon) SETTING(routing)
  SETTING(seed) SETTING(eager) SETTING(async) SETTING(overhead_ps) SETTING(gap_ps)
  SETTING(shm_ps) SETTING(jitter) SETTING(copy_gbps) SETTING(shm_gbps) SETTING(noise_per_s)
  SETTING(noise_ps) SETTING(start_ps) SETTING(skew_ps) SETTING(interval_ps) SETTING(tail_ps)
  SETTING(limit_ps)
  fail("unknown setting " + key);
}
#undef SETTING

void read_scenario() {
  std::string word;
  auto& in = std::cin;
  int n_hosts = 0, n_switches = 0;
  while (in >> word) {
    if (word == "vertices") {
      in >> n_hosts >> n_switches;
      hosts.resize(static_cast<size_t>(n_hosts));
      switches.resize(static_cast<size_t>(n_switches));
      for (auto& s : switches) s.table.resize(static_cast<size_t>(n_hosts));
    } else if (word == "link") {  // source, destination, nominal, real rate, latency, buffer, reverse link
      Link l{};
      in >> l.src >> l.dst >> l.nominal >> l.gbps >> l.latency >> l.buffer >> l.back;
      std::fill_n(l.credit, kLanes, l.buffer / kLanes);
      Time first = 0;
      in >> first;
      phase.push_back(first);
      links.push_back(l);
    } else if (word == "flaky") {
      int id;
      in >> id;
      Link& l = links.at(static_cast<size_t>(id));
      in >> l.period >> l.low_share >> l.low_gbps >> l.down_ps;
    } else if (word == "route") {  // switch, host, number of links, links
      int s, h, n;
      in >> s >> h >> n;
      auto& some = switches.at(static_cast<size_t>(s)).table.at(static_cast<size_t>(h));
      some.resize(static_cast<size_t>(n));
      for (int& one : some) in >> one;
    } else if (word == "rank") {  // host, job, loops, number of operations, operations
      Rank k{};
      size_t n;
      int most = 0;
      in >> k.host >> k.job >> k.loops >> n;
      k.ops.resize(n);
      for (auto& op : k.ops) {
        in >> op.kind;
        if (op.kind == 'S' || op.kind == 'R') { in >> op.a >> op.b >> op.c >> op.n; most = std::max(most, op.c + 1); }
        else if (op.kind == 'W') in >> op.a >> op.b >> op.c;
        else if (op.kind == 'Y') in >> op.a >> op.b;
        else if (op.kind == 'C' || op.kind == 'Z') in >> op.n;
        else in >> op.a;
      }
      k.req.resize(static_cast<size_t>(most));
      ranks.push_back(std::move(k));
    } else read_setting(word);
    if (!in) fail("cannot read " + word);
  }
  out_index.assign(links.size(), 0);
  in_index = out_index;
  for (size_t id = 0; id < links.size(); id++) {
    Link& l = links[id];
    if (is_host(l.src)) hosts[l.src].out = static_cast<int>(id);
    else { auto& o = switch_of(l.src).out; out_index[id] = static_cast<int>(o.size()); o.push_back(static_cast<int>(id)); }
    if (!is_host(l.dst)) { auto& i = switch_of(l.dst).in; in_index[id] = static_cast<int>(i.size()); i.push_back(static_cast<int>(id)); }
  }
  for (auto& l : links)
    if (!is_host(l.dst))
      for (auto& lane : l.voq) lane.resize(switch_of(l.dst).out.size());
  for (auto& s : switches)
    if (s.in.size() > 64 || s.out.size() > 64) fail("a switch has more than 64 ports");
}

void kick(int id) { if (is_host(links[id].src)) inject(links[id].src); else try_output(id); }

void unpause(int id) {
  Link& l = links[id];
  l.paused = false;
  l.paused_ps += now - std::exchange(l.paused_since, -1);
  kick(id);
}

void dispatch(const Event& e) {
  switch (e.type) {
    case Step: step(e.a); break;
    case LinkFree: links[e.a].busy = false; kick(e.a); break;
    case Arrive: arrive(e.a, e.b); break;
    case InputFree: input_free(e.a, e.b); break;
    case Credit: links[e.a].credit[e.b % kLanes] += e.b / kLanes; kick(e.a); break;
    case PauseOn: links[e.a].paused = true; links[e.a].pauses++; links[e.a].paused_since = now; break;
    case PauseOff: unpause(e.a); break;
    case Deliver: deliver(e.a); break;
    case ReqDone: req_done(e.a, e.b); break;
    case Emit: send(e.a); break;
    case Sample: sample(e.a); break;
    case Inject: hosts[e.a].waiting_gap = false; inject(e.a); break;
  }
}

void write_result() {
  std::cout << "T " << ended << ' ' << counted << '\n';
  for (size_t id = 0; id < links.size(); id++)
    std::cout << "L " << id << ' ' << links[id].bytes << ' ' << links[id].packets << ' ' << links[id].waited << '\n';
  for (size_t r = 0; r < ranks.size(); r++) {
    if (ranks[r].job) continue;
    for (auto& c : ranks[r].calls) std::cout << "C " << r << ' ' << c.first << ' ' << c.second << '\n';
    for (auto& i : ranks[r].learned) std::cout << "I " << r << ' ' << i.first << ' ' << i.second << '\n';
  }
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  read_scenario();
  for (size_t r = 0; r < ranks.size(); r++) {
    bool ours = ranks[r].job == 0;
    unfinished += ours;
    Time skew = static_cast<Time>(unit(set.seed * 977 + r) * static_cast<double>(set.skew_ps));
    at(ours ? set.start_ps + skew : 0, Step, static_cast<int>(r));
  }
  if (set.interval_ps)
    for (size_t id = 0; id < links.size(); id++) at(phase[id], Sample, static_cast<int>(id));
  while (!agenda.empty() && (ended < 0 || now < ended + set.tail_ps)) {
    Event e = agenda.top();
    agenda.pop();
    now = e.t;
    if (now > set.limit_ps) fail("the run takes longer than its limit");
    dispatch(e);
  }
  if (ended < 0) {
    for (size_t r = 0; r < ranks.size(); r++)
      if (!ranks[r].finished && ranks[r].job == 0)
        fail("rank " + std::to_string(r) + " waits for ever at operation " + std::to_string(ranks[r].pc));
  }
  write_result();
  return 0;
}
