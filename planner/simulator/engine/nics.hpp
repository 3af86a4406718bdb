// What max-min sharing works on: flows between a server's and a worker's NIC, and the rows of a server's flows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "clocks.hpp"

namespace planner {

struct MaxMinFlow : Flow {
  int row = 0, nic = 0;    // of the server, of the worker
  bool waiting = false;    // for its rate, while rates are computed
  Clock* limit = nullptr;  // as last computed
  double level = 0, left = 0;
};

// One direction of a node's NIC.
struct Nic {
  Clock clock;
  int link = 0;  // its number among all
  double capacity = 0, weight = 0, share = infinity;  // of all flows, and the capacity for a unit of it
  double left = 0, weight_left = 0, share_left = 0;   // of flows that have no rate yet
  int flows = 0, flows_left = 0;
  bool stale = false, filling = false;
  std::vector<int> workers;  // that have it, if it is one of workers
  void weigh(int n, double sum) {
    flows = n;
    weight = sum;
    share = n > 0 ? capacity / weight : infinity;
    stale = false;
  }
  void fill() {
    left = capacity;
    weight_left = weight;
    share_left = share;
    flows_left = flows;
  }
  void take(double rate, double weight_of_flow) {
    left -= rate;
    weight_left -= weight_of_flow;
    --flows_left;
    share_left = -1;
  }
  double share_now() {
    if (share_left < 0) share_left = std::max(0.0, left) / weight_left;
    return share_left;
  }
};

struct Row {
  int nic = 0;
  bool dirty = false;     // flows came or went
  bool safe = true;       // whatever workers do, their NICs give more than its level
  bool plain = true;      // all flows go by the clock of its NIC
  bool was_plain = true;  // and did before this event
  std::vector<MaxMinFlow*> flows;  // running, in the order of workers
};

}  // namespace planner
