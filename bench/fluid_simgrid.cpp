// The flows of bench/fluid_simgrid.py in SimGrid's fluid model.
//
// Reads: number of hosts, of links and of flows; the capacity of each link in bytes/s; of each flow
// source, destination, bytes, start in s, number of links, and the links. Flows are in order of
// their starts. Prints the processor time of the simulation, then the end of each flow in s.

#include <cstdio>
#include <ctime>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

struct Flow {
  sg4::Host *source, *destination;
  double bytes, start;
};

static double number() {
  double value;
  if (scanf("%lf", &value) != 1) {
    fprintf(stderr, "a number is missing\n");
    exit(2);
  }
  return value;
}

static void send_all(const std::vector<Flow> &flows, std::vector<double> &ends) {
  std::vector<sg4::CommPtr> sent;
  for (const Flow &flow : flows) {
    sg4::this_actor::sleep_until(flow.start);
    sent.push_back(
        sg4::Comm::sendto_async(flow.source, flow.destination, static_cast<uint64_t>(flow.bytes)));
  }
  for (const sg4::CommPtr &comm : sent)
    comm->wait();
  for (const sg4::CommPtr &comm : sent)
    ends.push_back(comm->get_finish_time());
}

int main(int argc, char **argv) {
  sg4::Engine engine(&argc, argv);
  const int hosts = static_cast<int>(number()), links = static_cast<int>(number()),
            flows = static_cast<int>(number());
  auto *zone = sg4::create_full_zone("network");
  std::vector<sg4::Host *> host;
  std::vector<const sg4::Link *> link;
  for (int i = 0; i < hosts; i++)
    host.push_back(zone->create_host("host" + std::to_string(i), 1e9));
  for (int i = 0; i < links; i++)
    link.push_back(zone->create_link("link" + std::to_string(i), number())->set_latency(0)->seal());
  std::vector<Flow> all;
  for (int i = 0; i < flows; i++) {
    sg4::Host *from = host[static_cast<size_t>(number())], *to = host[static_cast<size_t>(number())];
    const double bytes = number(), start = number();
    std::vector<sg4::LinkInRoute> route;
    for (int left = static_cast<int>(number()); left > 0; left--)
      route.emplace_back(link[static_cast<size_t>(number())]);
    zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
    all.push_back({from, to, bytes, start});
  }
  zone->seal();
  std::vector<double> ends;
  sg4::Actor::create("sender", host[0], [&] { send_all(all, ends); });
  const clock_t began = clock();
  engine.run();
  printf("%.6f\n", static_cast<double>(clock() - began) / CLOCKS_PER_SEC);
  for (double end : ends)
    printf("%.15g\n", end);
  return 0;
}
